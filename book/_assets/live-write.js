/* Write on: book/live/write.py computes, this draws. */
bookLive.add("write", (box, run, about) => {
  "use strict";
  const { asked, atRest, element, keep, lazily, reading, slider, softmax } = bookLive;

  const MOST = about.most, LONGEST = about.written, DARK = 55, SURPRISED = 8; // bits at which a byte is marked as strongly as can be, in percent
  const STRIDE = 8; // bytes between two drawings
  const MARKS = ["surprise", ...Array.from({ length: about.layers }, (_, i) => "attention in layer " + (i + 1))];
  const HEADS = ["all heads", ...Array.from({ length: about.heads }, (_, i) => "head " + (i + 1))];
  const state = { text: about.text, temperature: 0, seed: 1, writing: false, mark: 0, head: 0 };
  const models = Object.entries(about.models).map(([name, told]) => Object.assign({ name, written: [], read: reading(run, name + " step", told.kept) }, told));

  /* ---- bytes ---- */

  /* the bytes of a text, as many whole characters as there is room for */
  function bytes(text) {
    const found = [];
    for (const character of text) {
      const more = new TextEncoder().encode(character);
      if (found.length + more.length > MOST) { break; }
      found.push(...more);
    }
    return found;
  }
  const shown = (byte) => (byte === 10 ? "↵" : byte === 32 ? "\u00a0" : byte > 32 && byte < 127 ? String.fromCharCode(byte) : "▯");
  const named = (byte) => (byte === 10 ? "new line" : byte === 32 ? "space" : shown(byte));
  const text = () => bytes(state.text), wanted = (model) => text().concat(model.written);

  /* Where the text begins to repeat all that it has said: the length of what is said again, or 0. */
  function repeats(given) {
    for (let period = 4; period <= given.length - 4; period++) {
      if (given.every((byte, i) => i < period || byte === given[i - period])) { return period; }
    }
    return 0;
  }

  /* Shares of the next byte; what was read stays as it is, so they are computed once. */
  const shares = (scores) => scores.shares || (scores.shares = softmax(scores));

  /* Bits of surprise of byte i, for i from 1. */
  const bits = (model, given, i) => -Math.log2(shares(model.read.scores[i])[given[i]]);
  const mean = (values) => values.reduce((sum, v) => sum + v, 0) / values.length;

  /* numbers between 0 and 1 from a seed (mulberry32) */
  function random(seed) {
    let a = seed;
    return () => {
      a = (a + 0x6d2b79f5) | 0;
      let t = Math.imul(a ^ (a >>> 15), 1 | a);
      t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
      return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
    };
  }

  /* The next byte: the likeliest at temperature 0, otherwise drawn. */
  function next(model) {
    const scores = model.read.scores.at(-1);
    if (!state.temperature) { return scores.indexOf(Math.max(...scores)); }
    let left = model.random();
    return Math.max(0, softmax(scores, state.temperature).findIndex((p) => (left -= p) < 0));
  }

  /* ---- the parts of the page ---- */

  const input = element("textarea", { rows: "3", autocomplete: "off", spellcheck: "false" });
  const room = element("small");
  const on = element("button", { type: "button", onclick: () => (state.writing ? stop() : write()) });
  const twice = element("button", { type: "button", onclick: () => change({ text: state.text + state.text }) }, "Repeat the text");
  const draws = element("button", { type: "button", onclick: () => { state.seed += 1; write(); } }, "Sample again");
  const temperature = slider("temperature", 0, 1.5, (value) => change({ temperature: Number(value.toFixed(2)) }));
  const choice = (label, names, part) => element("div.live-choice", { role: "group", "aria-label": label },
    ...names.map((name, i) => element("button", { type: "button", onclick: () => mark({ [part]: i }) }, name)));
  const marks = choice("What marks a byte", MARKS, "mark"), heads = choice("Heads", HEADS, "head");
  const said = element("p.live-said", { role: "status" });
  const rows = element("ul.live-writers", {}, ...models.map((model) => {
    model.bits = element("p.live-bits");
    model.memory = element("p.live-score");
    model.bar = element("i");
    model.line = element("p.live-bytes", { role: "img" });
    model.then = element("p.live-then");
    const item = element("li", {}, element("p.live-name", {}, model.title), model.bits, model.line, model.then,
      element("div.live-keeps", {}, element("div.live-bar", { "aria-hidden": "true" }, model.bar), model.memory),
      element("p.live-then", {}, "on held-out text " + model.plain + " bits per byte; on passages that occur twice, " + model.first + " in the first copy and " + model.second + " in the second copy"));
    item.style.setProperty("--own", model.colour);
    return item;
  }));
  const legend = element("small");
  box.append(
    element("label.live-text", {}, element("span.live-title", {}, "Your text ", room), input),
    element("div.live-choice", {}, twice, on, draws),
    temperature.row,
    element("div.live-row", {}, element("span", {}, "mark each byte by"), marks, heads),
    said, rows,
    element("div.live-foot", {},
      element("button", { type: "button", onclick: () => { input.value = ""; change({ text: about.text, temperature: 0, seed: 1, mark: 0, head: 0 }); } }, "Reset"),
      element("a.live-link", { href: "#" }, "Link to this state"),
      legend, element("small", {}, "A bar marks where the text begins for the second time. Text that a model wrote is underlined. On held-out text: mean ± half the width of its 95 % interval, over " + about.seeds + " seeds. The models here are those of the first seed.")));

  /* ---- drawing ---- */

  const kilobytes = (numbers) => ((4 * numbers) / 1000).toFixed(1) + " kB";

  /* The weights with which the last byte before the cursor attends to itself and those before it: of a
     head, or the mean of all. With the delta rule they may be negative. */
  function attention(model, at) {
    const { data, text } = model.seen ?? {}, side = MOST + LONGEST;
    if (!state.mark || at < 0 || !text || !(at < text.length)) { return null; }
    const chosen = state.head ? [state.head - 1] : Array.from({ length: about.heads }, (_, i) => i);
    const rows = chosen.map((head) => (((state.mark - 1) * about.heads + head) * side + at) * side);
    return Array.from({ length: at + 1 }, (_, i) => mean(rows.map((row) => data[row + i])));
  }

  function drawModel(model, given, period, caret) {
    const all = given.concat(model.written), at = (caret < given.length ? caret : all.length) - 1;
    const weights = attention(model, at), most = weights && Math.max(...weights.map(Math.abs)), until = Math.min(given.length, model.read.scores.length);
    model.line.replaceChildren(...all.map((byte, i) => {
      const piece = element(i < given.length ? "span" : "u", {}, shown(byte), ...(byte === 32 || byte === 10 ? [element("wbr")] : []));
      if (weights && i <= at) {
        piece.style.setProperty("--dark", (DARK * Math.abs(weights[i] / most)).toFixed(0) + "%");
        if (weights[i] < 0) { piece.classList.add("live-minus"); }
        if (i === at) { piece.classList.add("live-from"); }
      }
      if (!state.mark && i > 0 && i < until) { piece.style.setProperty("--dark", ((DARK * Math.min(1, bits(model, given, i) / SURPRISED)).toFixed(0)) + "%"); }
      if (period && i === period) { piece.classList.add("live-again"); }
      return piece;
    }));
    model.line.setAttribute("aria-label", "Your text" + (model.written.length ? ", and its continuation: " + new TextDecoder().decode(new Uint8Array(model.written)) : ""));
    const read = Array.from({ length: Math.max(0, until - 1) }, (_, i) => bits(model, given, i + 1));
    const part = (from, to) => (read.length >= to - 1 ? mean(read.slice(Math.max(0, from - 1), to - 1)) : NaN);
    model.once = part(1, period || given.length);
    model.again = period ? part(period, given.length) : NaN;
    const number = (v) => (Number.isFinite(v) ? v.toFixed(2) : "…");
    model.bits.replaceChildren(...(given.length < 2 ? [] : period
      ? ["first copy ", element("b", {}, number(model.once)), ", second copy ", element("b", {}, number(model.again)), " bits per byte"]
      : [element("b", {}, number(model.once)), " bits per byte"]));
    const now = model.read.kept(all.length), full = models[0].read.kept(MOST + LONGEST);
    model.memory.textContent = "stores " + kilobytes(now) + " per layer" + (now < model.read.kept(all.length + 1) ? ", " + 4 * (model.read.kept(1) - model.read.kept(0)) + " bytes more for each byte" : ", at any length");
    model.bar.style.width = (100 * now) / full + "%";
    if (state.mark) {
      const top = (weights ?? []).map((w, i) => [w, i]).sort((a, b) => Math.abs(b[0]) - Math.abs(a[0])).slice(0, 3);
      model.then.replaceChildren(...(top.length ? [element("code", {}, named(all[at])), " attends most to ", ...top.flatMap(([w, i], n) => [n ? ", " : "", element("code", {}, named(all[i])), " (" + (i < at ? at - i + " before" : "itself") + ") " + (Math.round(100 * w) / 100 || 0).toFixed(2).replace("-", "−")])] : ["…"]));
      return;
    }
    const after = caret > 0 && model.read.scores[caret];
    const likely = after ? shares(after).map((p, byte) => [p, byte]).sort((a, b) => b[0] - a[0]).slice(0, 3) : [];
    model.then.replaceChildren(...(likely.length ? [caret < given.length ? "most probable bytes at the cursor: " : "most probable next bytes: ", ...likely.flatMap(([p, byte], i) => [i ? ", " : "", element("code", {}, named(byte)), " " + Math.round(100 * p) + " %"])] : ["…"]));
  }

  function draw() {
    const given = text(), period = repeats(given);
    const caret = bytes(state.text.slice(0, document.activeElement === input ? input.selectionEnd : state.text.length)).length;
    if (input.value !== state.text) { input.value = state.text; }
    room.textContent = given.length + " of " + MOST + " bytes" + (new TextEncoder().encode(state.text).length > given.length ? " (the rest is ignored)" : "");
    on.textContent = state.writing ? "Stop" : "Continue the text";
    twice.disabled = !given.length || 2 * given.length > MOST;
    draws.disabled = !state.temperature;
    [[marks, state.mark], [heads, state.head]].forEach(([group, chosen]) => [...group.children].forEach((button, i) => button.setAttribute("aria-pressed", String(i === chosen))));
    heads.hidden = !state.mark;
    legend.textContent = state.mark ? "The marks show how much the outlined byte, which is the last one or the one before the cursor, attends to each byte: the larger the attention weight, relative to the largest one, the stronger the mark. A striped mark is a negative weight."
      : "The more bits a byte costs, up to " + SURPRISED + ", the stronger its mark.";
    temperature.show(state.temperature, state.temperature ? state.temperature.toFixed(2) : "greedy");
    models.forEach((model) => drawModel(model, given, period, caret));
  }

  function sentence() {
    const given = text(), period = repeats(given);
    if (given.length < 2) { return "Type at least two bytes."; }
    const told = (model) => model.title + " " + (period ? model.once.toFixed(1) + " → " + model.again.toFixed(1) : model.once.toFixed(2));
    const wrote = models[0].written.length ? " Each model continued the text with " + models[0].written.length + " bytes." : "";
    return (period ? "The text occurs twice. Bits per byte in the first and in the second copy: " : "Bits per byte: ") + models.map(told).join(", ") + "." + wrote;
  }

  /* ---- reading and writing: each model goes on by itself, and the worker serves them in turn ---- */

  async function listen(model) {
    if (model.busy) { return; }
    model.busy = true;
    for (;;) {
      const asks = wanted(model);
      const more = await model.read.step(asks);
      const same = asks.join() === wanted(model).join();
      if (model.read.scores.length % STRIDE === 0) { redraw(); } // to draw takes longer than to read
      if (more || !same) { continue; }
      if (!state.writing || !asks.length || model.written.length >= LONGEST) { break; }
      model.written.push(next(model));
    }
    model.busy = false;
    if (models.every((one) => !one.busy)) {
      state.writing = false;
      redraw();
      rest();
    }
  }

  /* What the models attend to is asked for only when it is to be shown. */
  async function see(model) {
    const text = wanted(model), key = text.join();
    if (!state.mark || model.seen?.key === key) { return; }
    const { weights } = await run(model.name + " seen", { tokens: text.concat(Array(MOST + LONGEST - text.length).fill(0)) });
    if (key === wanted(model).join()) { model.seen = { key, text, data: weights.data }; }
    redraw();
  }

  const redraw = lazily(draw);
  let moved = false;
  const rest = atRest(async () => {
    if (models.some((model) => model.busy)) { return; }
    await Promise.all(models.map(see));
    if (models.some((model) => model.busy)) { return; }
    draw();
    said.textContent = sentence();
    box.dataset.rested = state.text + "|" + models[0].written.length;
    if (!moved) { return; }
    keep("write", { text: state.text, temperature: state.temperature, seed: state.seed, on: Number(models[0].written.length > 0), mark: state.mark, head: state.head });
    box.querySelector(".live-link").setAttribute("href", location.hash);
  });

  function begin() {
    models.forEach((model) => { model.written = []; model.random = random(state.seed); });
    delete box.dataset.rested;
  }

  function go() { models.forEach(listen); redraw(); rest(); }
  function stop() { state.writing = false; go(); }
  function write() { moved = true; begin(); state.writing = text().length > 0; go(); }
  /* Show other marks of the same text. */
  function mark(part) {
    moved = true;
    Object.assign(state, part);
    delete box.dataset.rested;
    redraw();
    rest();
  }

  function change(part) {
    moved = true;
    Object.assign(state, part, { writing: false });
    begin();
    go();
  }

  input.addEventListener("input", () => change({ text: input.value }));
  ["keyup", "pointerup", "focus", "blur"].forEach((kind) => input.addEventListener(kind, () => redraw()));

  const given = asked("write");
  if (given) {
    state.text = given.get("text") ?? state.text;
    state.temperature = Math.min(1.5, Math.max(0, Number(given.get("temperature")) || 0));
    state.seed = Math.round(Number(given.get("seed"))) || 1;
    state.writing = given.get("on") === "1";
    state.mark = MARKS[given.get("mark")] ? Number(given.get("mark")) : 0;
    state.head = HEADS[given.get("head")] ? Number(given.get("head")) : 0;
  }
  begin();
  draw();
  go();
}, bookRun.apart);
