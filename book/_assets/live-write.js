/* Write on: book/live/write.py computes, this draws. */
bookLive.add("write", (box, run, about) => {
  "use strict";
  const { asked, atRest, element, keep, lazily, reading, slider, softmax } = bookLive;

  const MOST = about.most, LONGEST = about.written, DARK = 55, SURPRISED = 8; // bits at which a byte is marked as strongly as can be, in percent
  const STRIDE = 8; // bytes between two drawings
  const state = { text: about.text, temperature: 0, seed: 1, writing: false };
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
  const text = () => bytes(state.text);

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
  box.append(
    element("label.live-text", {}, element("span.live-title", {}, "Your text ", room), input),
    element("div.live-choice", {}, twice, on, draws),
    temperature.row, said, rows,
    element("div.live-foot", {},
      element("button", { type: "button", onclick: () => { input.value = ""; change({ text: about.text, temperature: 0, seed: 1 }); } }, "Reset"),
      element("a.live-link", { href: "#" }, "Link to this state"),
      element("small", {}, "The more bits a model needs for a byte (up to " + SURPRISED + "), the more strongly the byte is marked. After the bar, the text occurs a second time. Bytes that a model generated are underlined. Numbers for held-out text are the mean ± half the width of its 95 % interval, over " + about.seeds + " seeds. The models shown here were trained with the first seed.")));

  /* ---- drawing ---- */

  const kilobytes = (numbers) => ((4 * numbers) / 1000).toFixed(1) + " kB";

  function drawModel(model, given, period, caret) {
    const all = given.concat(model.written), until = Math.min(given.length, model.read.scores.length);
    model.line.replaceChildren(...all.map((byte, i) => {
      const piece = element(i < given.length ? "span" : "u", {}, shown(byte), ...(byte === 32 || byte === 10 ? [element("wbr")] : []));
      if (i > 0 && i < until) { piece.style.setProperty("--dark", ((DARK * Math.min(1, bits(model, given, i) / SURPRISED)).toFixed(0)) + "%"); }
      if (period && i === period) { piece.className = "live-again"; }
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
      const wanted = text().concat(model.written);
      const more = await model.read.step(wanted);
      const same = wanted.join() === text().concat(model.written).join();
      if (model.read.scores.length % STRIDE === 0) { redraw(); } // to draw takes longer than to read
      if (more || !same) { continue; }
      if (!state.writing || !wanted.length || model.written.length >= LONGEST) { break; }
      model.written.push(next(model));
    }
    model.busy = false;
    if (models.every((one) => !one.busy)) {
      state.writing = false;
      redraw();
      rest();
    }
  }

  const redraw = lazily(draw);
  let moved = false;
  const rest = atRest(() => {
    if (models.some((model) => model.busy)) { return; }
    draw();
    said.textContent = sentence();
    box.dataset.rested = state.text + "|" + models[0].written.length;
    if (!moved) { return; }
    keep("write", { text: state.text, temperature: state.temperature, seed: state.seed, on: Number(models[0].written.length > 0) });
    box.querySelector(".live-link").setAttribute("href", location.hash);
  });

  function begin() {
    models.forEach((model) => { model.written = []; model.random = random(state.seed); });
    delete box.dataset.rested;
  }

  function go() { models.forEach(listen); redraw(); rest(); }
  function stop() { state.writing = false; go(); }
  function write() { moved = true; begin(); state.writing = text().length > 0; go(); }
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
  }
  begin();
  draw();
  go();
}, bookRun.apart);
