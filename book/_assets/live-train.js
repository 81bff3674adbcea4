/* Train the recall layer of chapter 19: one layer of softmax attention with one head, a norm before
   the attention and another before the readout. Forward and backward pass, AdamW and the sequences
   are computed here, in double precision; book/live/train.py has the recorded runs. */
window.bookRecall = (function () {
  "use strict";

  const EPS = 1e-5; // of a norm

  /* Uniform numbers in [0, 1), the same for the same seed (mulberry32). */
  function uniform(seed) {
    let state = seed >>> 0;
    return () => {
      state = (state + 0x6d2b79f5) >>> 0;
      let x = Math.imul(state ^ (state >>> 15), state | 1);
      x ^= x + Math.imul(x ^ (x >>> 7), x | 61);
      return ((x ^ (x >>> 14)) >>> 0) / 4294967296;
    };
  }

  function shapes({ dim, keys, values }) {
    const square = dim * dim, table = (keys + values) * dim;
    return { embed: table, scale: dim, offset: dim, q: square, k: square, v: square, out: square, logit: 1, lastScale: dim, lastOffset: dim, readout: table };
  }

  /* Numbers for each parameter, in one array, and a view of each part. */
  function room(about) {
    const sizes = Object.entries(shapes(about)), all = new Float64Array(sizes.reduce((sum, [, size]) => sum + size, 0));
    let at = 0;
    return { all, ...Object.fromEntries(sizes.map(([name, size]) => [name, all.subarray(at, at += size)])) };
  }

  /* Weights as stringlib draws them: normal with deviation 1/√dim, those of the output also
     divided by √2, norms the identity, and half of each key that of the token before. */
  function drawn(about, seed) {
    const weights = room(about), random = uniform(seed);
    for (const name of ["embed", "q", "k", "v", "out", "readout"]) {
      const deviation = 1 / Math.sqrt(about.dim * (name === "out" ? 2 : 1));
      weights[name].forEach((_, i, part) => {
        part[i] = deviation * Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
      });
    }
    weights.scale.fill(1);
    weights.lastScale.fill(1);
    return weights;
  }

  /* Sequences: pairs of a key and a value, then one of the keys; and the value of this key. */
  function sequences({ pairs, keys, values }, count, random) {
    const long = 2 * pairs + 1, tokens = new Uint8Array(count * long), targets = new Uint8Array(count);
    const any = (n) => Math.floor(n * random());
    for (let s = 0; s < count; s++) {
      const order = Array.from({ length: keys }, (_, i) => values + i), asked = any(pairs);
      for (let p = 0; p < pairs; p++) {
        const other = p + any(keys - p);
        [order[p], order[other]] = [order[other], order[p]];
        tokens[s * long + 2 * p] = order[p];
        tokens[s * long + 2 * p + 1] = any(values);
      }
      tokens[(s + 1) * long - 1] = order[asked];
      targets[s] = tokens[s * long + 2 * asked + 1];
    }
    return { count, tokens, targets };
  }

  /* The product of n × k and k × m numbers, added to what is there; T says that a factor is transposed. */
  function product(n, k, m, a, aT, b, bT, there = new Float64Array(n * m)) {
    const [aRow, aColumn] = aT ? [1, n] : [k, 1], [bRow, bColumn] = bT ? [1, k] : [m, 1];
    for (let i = 0; i < n; i++) {
      for (let l = 0; l < k; l++) {
        const factor = a[i * aRow + l * aColumn];
        for (let at = i * m, from = l * bRow; at < (i + 1) * m; at++, from += bColumn) { there[at] += factor * b[from]; }
      }
    }
    return there;
  }

  /* Rows less their mean, divided by their deviation, then times a scale, plus an offset. */
  function norm(x, scale, offset) {
    const dim = scale.length, rows = x.length / dim, unit = new Float64Array(x.length), y = new Float64Array(x.length), deviation = new Float64Array(rows);
    for (let r = 0; r < rows; r++) {
      const row = x.subarray(r * dim, (r + 1) * dim), mean = row.reduce((a, b) => a + b, 0) / dim;
      deviation[r] = Math.sqrt(row.reduce((sum, v) => sum + (v - mean) ** 2, 0) / dim + EPS);
      row.forEach((v, i) => {
        unit[r * dim + i] = (v - mean) / deviation[r];
        y[r * dim + i] = unit[r * dim + i] * scale[i] + offset[i];
      });
    }
    return { y, unit, deviation };
  }

  /* The gradient of the rows from that of y; those of scale and offset are added to what is there. */
  function normBack({ unit, deviation }, scale, dy, dScale, dOffset) {
    const dim = scale.length, dx = new Float64Array(dy.length);
    deviation.forEach((size, r) => {
      let mean = 0, along = 0;
      for (let i = 0, at = r * dim; i < dim; i++, at++) {
        dScale[i] += dy[at] * unit[at];
        dOffset[i] += dy[at];
        mean += dy[at] * scale[i] / dim;
        along += dy[at] * scale[i] * unit[at] / dim;
      }
      for (let i = 0, at = r * dim; i < dim; i++, at++) { dx[at] = (dy[at] * scale[i] - mean - unit[at] * along) / size; }
    });
    return dx;
  }

  /* The loss at the last token of each sequence, how many answers are right, and, if gradients
     have room, the gradient. No position has an effect, so queries, keys, values and scores are
     computed once for each of the different tokens. */
  function pass(about, weights, { count, tokens, targets }, grad) {
    const { dim, shift } = about, vocab = about.keys + about.values, long = 2 * about.pairs + 1, root = Math.sqrt(dim);
    const share = shift ? 1 / (1 + Math.exp(-weights.logit[0])) : 0; // β
    const first = norm(weights.embed, weights.scale, weights.offset);
    const [q, k, v] = ["q", "k", "v"].map((name) => product(vocab, dim, dim, first.y, false, weights[name], true));
    const scores = product(vocab, dim, vocab, q, false, k, true).map((s) => s / root);

    /* p: attention of the last token; held: its sum over the places of each token */
    const p = new Float64Array(count * long), held = new Float64Array(count * vocab);
    for (let s = 0; s < count; s++) {
      const asked = tokens[(s + 1) * long - 1] * vocab;
      let most = -Infinity, sum = 0, before = 0;
      for (let at = s * long; at < (s + 1) * long; at++) {
        const score = scores[asked + tokens[at]];
        p[at] = (1 - share) * score + share * before; // the key before the first is 0
        before = score;
        most = Math.max(most, p[at]);
      }
      for (let at = s * long; at < (s + 1) * long; at++) { sum += p[at] = Math.exp(p[at] - most); }
      for (let at = s * long; at < (s + 1) * long; at++) { held[s * vocab + tokens[at]] += p[at] /= sum; }
    }
    const heads = product(count, vocab, dim, held, false, v, false);
    const x = product(count, dim, dim, heads, false, weights.out, true);
    for (let s = 0; s < count; s++) {
      const asked = tokens[(s + 1) * long - 1] * dim;
      for (let i = 0; i < dim; i++) { x[s * dim + i] += weights.embed[asked + i]; }
    }
    const last = norm(x, weights.lastScale, weights.lastOffset);
    const logits = product(count, dim, vocab, last.y, false, weights.readout, true);

    let loss = 0, right = 0;
    for (let s = 0; s < count; s++) { // logits become their gradient
      const row = logits.subarray(s * vocab, (s + 1) * vocab), most = Math.max(...row), chosen = row[targets[s]];
      right += row.indexOf(most) === targets[s];
      const sum = row.reduce((all, l) => all + Math.exp(l - most), 0);
      loss += (most + Math.log(sum) - chosen) / count;
      row.forEach((l, i) => { row[i] = (Math.exp(l - most) / sum - (i === targets[s])) / count; });
    }
    const found = { loss, accuracy: right / count, share };
    if (!grad) { return found; }

    grad.all.fill(0);
    product(vocab, count, dim, logits, true, last.y, false, grad.readout);
    const dx = normBack(last, weights.lastScale, product(count, vocab, dim, logits, false, weights.readout, false), grad.lastScale, grad.lastOffset);
    product(dim, count, dim, dx, true, heads, false, grad.out);
    const dHeads = product(count, dim, dim, dx, false, weights.out, false);
    const dv = product(vocab, count, dim, held, true, dHeads, false);
    const dHeld = product(count, dim, vocab, dHeads, false, v, true), dScores = new Float64Array(vocab * vocab);
    let dShare = 0;
    for (let s = 0; s < count; s++) {
      const token = tokens[(s + 1) * long - 1], asked = token * vocab;
      for (let i = 0; i < dim; i++) { grad.embed[token * dim + i] += dx[s * dim + i]; }
      let mean = 0;
      for (let at = s * long; at < (s + 1) * long; at++) { mean += p[at] * dHeld[s * vocab + tokens[at]]; }
      for (let at = s * long; at < (s + 1) * long; at++) {
        const d = p[at] * (dHeld[s * vocab + tokens[at]] - mean), inside = at > s * long;
        dScores[asked + tokens[at]] += (1 - share) * d;
        if (inside) { dScores[asked + tokens[at - 1]] += share * d; }
        dShare += d * ((inside ? scores[asked + tokens[at - 1]] : 0) - scores[asked + tokens[at]]);
      }
    }
    if (shift) { grad.logit[0] = dShare * share * (1 - share); }
    dScores.forEach((d, i) => { dScores[i] = d / root; });
    const dq = product(vocab, vocab, dim, dScores, false, k, false), dk = product(vocab, vocab, dim, dScores, true, q, false);
    const dy = new Float64Array(vocab * dim);
    [["q", dq], ["k", dk], ["v", dv]].forEach(([name, d]) => {
      product(dim, vocab, dim, d, true, first.y, false, grad[name]);
      product(vocab, dim, dim, d, false, weights[name], false, dy);
    });
    normBack(first, weights.scale, dy, grad.scale, grad.offset).forEach((d, i) => { grad.embed[i] += d; });
    return found;
  }

  /* A run: step(batch) makes one update, and returns what pass found before it. AdamW without weight decay;
     the learning rate falls as half a cosine, and the norm of the gradient is clipped. */
  function training(about, weights) {
    const grad = room(about), mean = new Float64Array(grad.all.length), square = new Float64Array(grad.all.length);
    const [b, c] = about.betas;
    let done = 0;
    return {
      weights, grad,
      step(batch) {
        const found = pass(about, weights, batch, grad), size = Math.sqrt(grad.all.reduce((sum, g) => sum + g * g, 0)), clip = Math.min(1, about.clip / (size + 1e-6));
        const rate = about.rate * 0.5 * (1 + Math.cos(Math.PI * done / about.steps));
        done++;
        const toMean = rate / (1 - b ** done), toSquare = 1 / (1 - c ** done);
        for (let i = 0; i < mean.length; i++) {
          const g = clip * grad.all[i];
          mean[i] = b * mean[i] + (1 - b) * g;
          square[i] = c * square[i] + (1 - c) * g * g;
          weights.all[i] -= toMean * mean[i] / (Math.sqrt(toSquare * square[i]) + 1e-8);
        }
        return found;
      },
    };
  }

  return { drawn, pass, sequences, training, uniform };
})();

bookLive.add("train", (box, programs, about) => {
  "use strict";
  const { colour, element, follow, lazily, ready } = bookLive, { drawn, pass, sequences, training, uniform } = bookRecall;

  const STEP_MS = 16, SLICE_MS = 40;
  const TEST = sequences(about, about.tested, uniform(about.testSeed));
  const state = { chosen: "shift", seed: 0, playing: 0 };
  const settings = Object.entries(about.settings).map(([name, told]) => ({ name, ...told, run: null }));
  const chosen = () => settings.find(({ name }) => name === state.chosen);

  /* Both settings start from the same weights and see the same sequences. */
  function begun({ name }) {
    const options = { ...about, shift: name === "shift" };
    return { options, trained: training(options, drawn(options, state.seed)), random: uniform(about.steps + state.seed), losses: [], tests: [] };
  }

  function test(run) {
    const found = pass(run.options, run.trained.weights, TEST);
    run.share = found.share;
    run.tests.push(found.accuracy);
  }

  function advance(run) {
    if (!run.tests.length) { test(run); }
    run.losses.push(run.trained.step(sequences(about, about.batch, run.random)).loss);
    if (run.losses.length % about.every === 0) { test(run); }
  }

  const over = (run) => run.losses.length === about.steps;
  const number = (n) => n.toLocaleString("en-US");
  const percent = (share) => (100 * share).toFixed(0) + " %";

  /* ---- the parts of the page ---- */

  const choice = element("div.live-choice", { role: "group", "aria-label": "Token shift" },
    ...settings.map(({ name, title }) => element("button", { type: "button", onclick: () => { stop(); state.chosen = name; redraw(); } }, title)));
  const seed = element("input", { type: "number", min: 0, max: 999, step: 1, value: 0, onchange: () => {
    state.seed = seed.value = Math.min(999, Math.max(0, Math.round(seed.value) || 0));
    reset();
  } });
  const play = element("button", { type: "button", onclick: () => (state.playing ? stop() : start()) });
  const now = element("p.live-now");
  const charts = [
    { title: "Accuracy", small: " on new sequences", top: 1, ticks: [0, 0.25, 0.5, 0.75, 1], level: about.mostAccurate, of: "accuracy", points: (run) => run.tests.map((v, i) => [i * about.every, v]) },
    { title: "Loss", small: " of each batch, in nats", top: 3.5, ticks: [0, 1, 2, 3], level: about.leastLoss, of: "loss", points: (run) => run.losses.map((v, i) => [i, v]) },
  ];
  charts.forEach((chart) => { chart.canvas = element("canvas.live-curve", { role: "img" }); });
  const said = element("p.live-said", { role: "status" });
  const entry = (kind, words, paint = "currentColor") => element("span.live-entry", {}, element("i.live-" + kind, { "aria-hidden": "true", style: "border-color: " + paint }), words);
  box.append(
    element("div.live-row", {}, choice),
    element("div.live-foot", {}, play, element("button", { type: "button", onclick: reset }, "Reset"), element("label", {}, "seed ", seed)),
    now,
    element("div.live-columns", {}, ...charts.map(({ title, small, canvas }) => element("div", {}, element("p.live-title", {}, title, element("small", {}, small)), canvas))),
    element("p.live-legend", {}, ...settings.map((one) => entry("solid", one.title, one.colour)), entry("dashed", "recorded in PyTorch, mean of " + about.seeds + " seeds"), entry("dotted", "bound without a token shift")),
    said,
    element("p.live-note", {}, "One layer of softmax attention with " + number(about.parameters) + " parameters. With a token shift the layer has one more parameter, the share β of the previous key. Sequences have " + about.pairs + " pairs. Each step trains on "
      + about.batch + " new sequences. The learning rate starts at " + about.rate + "."));

  /* ---- drawing ---- */

  function drawChart({ canvas, title, small, top, ticks, level, of, points }) {
    const [pen, wide, high] = ready(canvas), left = 34, foot = high - 22;
    const x = (step) => left + step / about.steps * (wide - left - 12), y = (v) => 8 + (1 - Math.min(v, top) / top) * (foot - 8);
    pen.strokeStyle = colour("--book-grid");
    pen.fillStyle = colour("--pst-color-text-muted");
    pen.textAlign = "right";
    ticks.forEach((v) => {
      pen.beginPath(); pen.moveTo(left, y(v)); pen.lineTo(wide, y(v)); pen.stroke();
      pen.fillText(v, left - 6, y(v) + 4);
    });
    pen.textAlign = "center";
    [0, 0.25, 0.5, 0.75, 1].forEach((share) => pen.fillText(share ? share * about.steps : "step 0", Math.min(x(share * about.steps), wide - 12), high - 5));
    const line = (of, dashes, width, paint) => {
      pen.setLineDash(dashes);
      pen.lineWidth = width;
      pen.strokeStyle = paint;
      pen.beginPath();
      of.forEach(([step, v]) => pen.lineTo(x(step), y(v)));
      pen.stroke();
    };
    pen.lineJoin = "round";
    line([[0, level], [about.steps, level]], [2, 4], 1.5, colour("--pst-color-text-base"));
    settings.forEach((one) => line(one[of].map((v, i) => [Math.min(i * about.every, about.steps), v]), [6, 4], 1.5, one.colour));
    settings.forEach((one) => { if (one.run) { line(points(one.run), [], 2.5, one.colour); } });
    const last = settings.map((one) => one.title + ", the layer trained here " + (one.run?.tests.length ? "(solid curve) is at " + points(one.run).at(-1)[1].toFixed(2) : "has no curve yet") + ", and the mean of the recorded runs (dashed curve) ends at " + one[of].at(-1).toFixed(2) + ". ").join("");
    canvas.setAttribute("aria-label", "A line chart shows the " + title.toLowerCase() + small.replace(",", "") + " against the training step, from 0 to " + about.steps + ". " + last + "A dotted line at " + level.toFixed(2) + " is the bound without a token shift.");
  }

  function draw() {
    const { run } = chosen(), ended = run && over(run);
    charts.forEach(drawChart);
    [...choice.children].forEach((button, i) => button.setAttribute("aria-pressed", String(settings[i].name === state.chosen)));
    play.textContent = state.playing ? "Stop" : !run ? "Train" : ended ? "Train again" : "Continue";
    now.textContent = !run ? "step 0 of " + about.steps : "step " + run.losses.length + " of " + about.steps + ", loss " + run.losses.at(-1).toFixed(2) + ", accuracy " + run.tests.at(-1).toFixed(2)
      + (run.options.shift ? ", share β " + run.share.toFixed(2) : "");
  }

  function tell() {
    const ended = settings.filter(({ run }) => run && over(run)).map(({ title, run }) => title + ", the layer trained here with seed " + state.seed + " gives the right answer for " + percent(run.tests.at(-1)) + " of " + number(about.tested) + " new sequences.");
    said.textContent = ended.length ? ended.join(" ") : "After " + about.steps + " steps, the recorded runs have an accuracy of " + settings.map(({ title, told }) => told + " " + title.toLowerCase()).join(" and of ") + ". Press Train to train the layer here.";
  }

  /* ---- training ---- */

  const redraw = lazily(draw);

  function stop() { cancelAnimationFrame(state.playing); state.playing = 0; redraw(); }

  function start() {
    const one = chosen();
    if (!one.run || over(one.run)) { one.run = begun(one); }
    const from = one.run.losses.length, began = performance.now();
    const frame = () => { // slowly enough to watch, and in slices, so that the page stays responsive
      const now = performance.now();
      do { advance(one.run); } while (!over(one.run) && one.run.losses.length < from + (now - began) / STEP_MS && performance.now() - now < SLICE_MS);
      if (over(one.run)) { stop(); tell(); return; }
      state.playing = requestAnimationFrame(frame);
      draw();
    };
    frame();
  }

  function reset() {
    stop();
    settings.forEach((one) => { one.run = null; });
    tell();
  }

  follow(box, redraw);
  draw();
  tell();
});
