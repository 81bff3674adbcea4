/* Build an encoder: book/live/encoder.py computes, this draws. */
bookLive.add("encoder", (box, programs, about) => {
  "use strict";
  const { asked, atRest, colour, element, follow, keep, lazily, ready, slider, vectors } = bookLive;

  const PAIRS = 32, WORDS = 16, HANDLES = 8, SIDE = 15, FARTHEST = 1e5;
  const LOW = -6.3, HIGH = 0.6;              // the axis of frequencies, in powers of ten
  const FIRST = "the cat sat on the mat and the dog sat on the rug";
  const BASES = ["pairs of channels", "Fourier (circulant)", "random"];
  const PRESETS = Object.keys(about.presets), PASTED = "pasted";
  const BEGIN = { preset: PRESETS[0], shifts: Array(HANDLES).fill(0), basis: 0, slope: 0, moved: 1000, rough: false, text: FIRST, pasted: "", length: 0 };
  const state = Object.assign({}, BEGIN);
  let pasted = null; // what bookRope says of the text that was pasted

  /* ---- what a state means ---- */

  function preset() {
    return state.preset === PASTED ? { frequencies: pasted.frequencies, still: pasted.still, colour: about.pasted, code: "" } : Object.assign({ still: 0 }, about.presets[state.preset]);
  }

  /* A handle moves an eighth of the pairs by the same factor, and their neighbours by less. */
  function frequencies() {
    return preset().frequencies.map((w, i, all) => {
      const at = Math.min(HANDLES - 1, Math.max(0, ((i + 0.5) * HANDLES) / all.length - 0.5)), left = Math.min(HANDLES - 2, Math.floor(at));
      const shift = state.shifts[left] * (left + 1 - at) + state.shifts[left + 1] * (at - left);
      return shift ? Math.min(10 ** 0.5, Math.max(10 ** LOW, w * 10 ** shift)) : w;
    });
  }

  /* Where neighbouring pairs are first a whole turn apart: chapter 3. */
  function horizon(given) {
    const w = given.slice().sort((a, b) => b - a), slopes = w.slice(1).map((v, i) => w[i] * Math.abs(Math.log(w[i] / v)));
    return 2 * Math.PI / Math.max(...slopes);
  }

  /* The first of all distances at which the score is negative; 0 if none is. */
  function below(w, still) {
    for (let d = 1; d <= FARTHEST; d++) {
      if (w.reduce((sum, v) => sum + Math.cos(d * v), still) < 0) { return d; }
    }
    return 0;
  }

  function own() { return state.shifts.some((shift) => shift !== 0); }
  const pairsOf = (i, count) => [Math.round((i * count) / HANDLES), Math.round(((i + 1) * count) / HANDLES)];
  function handle(i, w) {
    const logs = w.slice(...pairsOf(i, w.length)).map(Math.log);
    return Math.exp(logs.reduce((sum, v) => sum + v, 0) / logs.length);
  }
  function typed() { return state.text.trim().split(/\s+/).filter(Boolean); }
  function words() { return typed().slice(0, WORDS); }

  const filled = (list, length) => list.concat(Array(length - list.length).fill(0));

  /* What runs as it stands, given q, k and positions: imports first. */
  function code(w) {
    const { still, code: given } = preset(), lines = [];
    let made = given;
    if (own() || !made) {
      lines.push("inv_freq = torch.tensor([" + w.map((v) => String(Number(v.toPrecision(6)))).join(", ") + "])");
      made = "inv_freq[None, :, None]";
    }
    const rope = !state.basis && made.match(/^(RoPE\(.*\))\.frequencies\(\)$/); // nothing but RoPE
    const basis = ["", ", basis=CirculantSTRING(64).basis()", ", basis=haar_orthogonal(64, generator=torch.Generator().manual_seed(0))[None]"][state.basis];
    const wide = still ? ", head_dim=" + 2 * (w.length + still) : "";
    const string = state.preset === PASTED && !basis ? "STRING.from_inv_freq(inv_freq" + wide + ")" : "STRING(" + made + basis + ")";
    lines.push("encoder = " + (rope ? rope[1] : string));
    lines.push("q, k = encoder(q, k, positions)");
    if (state.slope) { lines.push("bias = -" + state.slope.toFixed(2) + " * (positions - positions.mT).abs()   # ALiBi's: exp(bias) falls by " + (100 * (1 - Math.exp(-state.slope))).toFixed(0) + " % per token"); }
    const used = Object.keys(about.modules).filter((name) => lines.some((line) => line.includes(name + "(") || line.includes(name + ".")));
    const imports = [...new Set(used.map((name) => about.modules[name]))].sort()
      .map((module) => "from " + module + " import " + used.filter((name) => about.modules[name] === module).join(", "));
    if (lines.some((line) => line.includes("torch."))) { imports.unshift("import torch"); }
    return imports.concat("", lines).join("\n");
  }

  /* ---- the parts of the page ---- */

  const axis = element("canvas", { "aria-hidden": "true" });
  const knobs = Array.from({ length: HANDLES }, () => element("button.live-knob", {
    type: "button", role: "slider", "aria-valuemin": "-6.3", "aria-valuemax": "0.5",
  }));
  const axisBox = element("div.live-axis", {}, axis, ...knobs);
  const curve = element("canvas.live-curve", { role: "img" });
  const grids = ["axial", "mixed"].map(() => element("canvas.live-map", { role: "img" }));
  const gridCaptions = grids.map(() => element("figcaption"));
  const maps = ["rotated", "rotated_moved", "added", "added_moved"].map(() => element("canvas.live-map", { role: "img" }));
  const captions = maps.map(() => element("figcaption"));
  const listing = element("code"), said = element("p.live-said", { role: "status" });
  const text = element("input", { type: "text", maxlength: "90", autocomplete: "off", spellcheck: "false" });
  text.value = state.text;
  const room = element("small");
  const presets = element("div.live-choice", { role: "group", "aria-label": "Frequencies to begin with" },
    ...PRESETS.concat(PASTED).map((name) => element("button", { type: "button", onclick: () => change({ preset: name, shifts: BEGIN.shifts }) }, name)));
  const bases = element("div.live-choice", { role: "group", "aria-label": "Basis" },
    ...BASES.map((name, i) => element("button", { type: "button", onclick: () => change({ basis: i }) }, name)));
  const spread = element("small"), config = element("textarea", { rows: "5", autocomplete: "off", spellcheck: "false" });
  const length = element("input", { type: "number", min: "1", step: "1" });
  const lengthRow = element("label.live-row", { hidden: "" }, "length of the text in tokens ", length);
  const read = element("p", { role: "status" });
  const paste = element("details.live-paste", {}, element("summary", {}, "Paste a model’s frequencies"),
    element("label.live-text", {}, "A config.json of Hugging Face transformers, or a list of frequencies", config), lengthRow, read);
  const rough = element("input", { type: "checkbox", onchange: (event) => change({ rough: event.target.checked }) });

  /* moved: 0, then 1 to 100,000 evenly in the logarithm */
  const moved = slider("moved by", 0, 100, (v) => change({ moved: v < 1 ? 0 : Math.round(10 ** (5 * (v - 1) / 99)) }));
  const slope = slider("bias per token", 0, 1, (v) => change({ slope: Number(v.toFixed(2)) }));

  const figure = (canvas, caption) => element("figure", {}, caption, canvas);
  box.append(
    presets, paste,
    element("div.live-columns", {},
      element("div", {},
        element("p.live-title", {}, "Frequencies", spread), axisBox,
        element("p.live-title", {}, "Score against distance", element("small", {}, " for two equal words")), curve,
        element("p.live-title", {}, "On a grid", element("small", {}, " score of the middle patch and every other patch")),
        element("div.live-maps", {}, ...grids.map((canvas, i) => figure(canvas, gridCaptions[i]))),
        element("p.live-title", {}, "As code"), element("pre", {}, listing)),
      element("div", {},
        element("p.live-title", {}, "Attention maps", element("small", {}, " of your words (each word has a fixed random vector)")),
        element("label.live-text", {}, element("span.live-hidden", {}, "Your sentence"), text, room),
        moved.row, slope.row,
        element("div.live-row", {}, element("span", {}, "basis"), bases),
        element("label.live-row", {}, rough, " positions and frequencies in bfloat16"),
        element("div.live-maps", {}, ...maps.map((canvas, i) => figure(canvas, captions[i]))))),
    said,
    element("div.live-foot", {},
      element("button", { type: "button", onclick: () => {
        pasted = null;
        config.value = read.textContent = "";
        lengthRow.hidden = true;
        change(BEGIN);
      } }, "Reset"),
      element("a.live-link", { href: "#" }, "Link to this state")));

  text.addEventListener("input", () => change({ text: text.value }));

  /* Read what was pasted, and draw it. What cannot be read is said, and changes nothing. */
  function take(given, tokens) {
    try {
      pasted = window.bookRope(given, tokens);
    } catch (error) {
      if (!(error instanceof RangeError)) { throw error; }
      read.textContent = given.trim() && error.message;
      read.className = "live-off";
      return;
    }
    read.textContent = pasted.said;
    read.className = "";
    lengthRow.hidden = !pasted.at;
    length.value = pasted.at;
    change({ preset: PASTED, pasted: pasted.kept, length: pasted.at, shifts: BEGIN.shifts, basis: 0 });
  }

  config.addEventListener("input", () => take(config.value, 0));
  length.addEventListener("change", () => take(state.pasted, Number(length.value)));

  /* ---- handles: dragged, or moved by keys ---- */

  const width = () => axis.clientWidth;
  const X = (w) => 14 + Math.min(1, Math.max(0, (HIGH - Math.log10(w)) / (HIGH - LOW))) * (width() - 28);
  const BACK = (x) => HIGH - ((x - 14) / (width() - 28)) * (HIGH - LOW);

  function shift(i, power) {
    const shifts = state.shifts.slice(), now = Math.log10(handle(i, frequencies()));
    shifts[i] = Math.round(1000 * (shifts[i] + Math.max(LOW, Math.min(0.5, power)) - now)) / 1000;
    change({ shifts });
  }

  knobs.forEach((knob, i) => {
    knob.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) { return; }
      knob.setPointerCapture(event.pointerId);
      knob.focus();
      event.preventDefault();
    });
    knob.addEventListener("pointermove", (event) => {
      if (knob.hasPointerCapture(event.pointerId)) { shift(i, BACK(event.clientX - axis.getBoundingClientRect().left)); }
    });
    knob.addEventListener("keydown", (event) => {
      const end = { Home: LOW, End: 0.5 }[event.key];
      if (end !== undefined) {               // a shift moves its pairs by less: their neighbours hold them
        event.preventDefault();
        for (let n = 0; n < 100 && Math.abs(Math.log10(handle(i, frequencies())) - end) > 0.005; n++) { shift(i, end); }
      }
      const step = { ArrowLeft: 0.05, ArrowUp: 0.05, ArrowRight: -0.05, ArrowDown: -0.05, PageUp: 0.5, PageDown: -0.5 }[event.key];
      if (step === undefined) { return; }
      event.preventDefault();
      shift(i, Math.log10(handle(i, frequencies())) + step);
    });
  });

  /* ---- drawing ---- */

  const number = (v) => (v >= 1e6 ? (v / 1e6).toFixed(1) + " million" : Math.round(v).toLocaleString("en-US"));

  function drawAxis(w, paint) {
    const [pen, wide, high] = ready(axis), base = high - 42;
    pen.strokeStyle = colour("--book-grid");
    pen.fillStyle = colour("--pst-color-text-muted");
    pen.textAlign = "center";
    pen.beginPath(); pen.moveTo(0, base); pen.lineTo(wide, base); pen.stroke();
    for (let power = 0; power >= -6; power--) {
      const x = X(10 ** power);
      pen.beginPath(); pen.moveTo(x, base); pen.lineTo(x, base + 5); pen.stroke();
      pen.fillText(power ? "10" + ["⁻¹", "⁻²", "⁻³", "⁻⁴", "⁻⁵", "⁻⁶"][-power - 1] : "1", x, base + 18);
      if (power % 2 === 0) {
        const turn = number(2 * Math.PI / 10 ** power);
        pen.fillText(power ? turn : "a full turn in " + turn, Math.max(46, Math.min(wide - 32, x)), base + 36);
      }
    }
    pen.strokeStyle = paint;
    w.forEach((v) => { pen.globalAlpha = 0.55; pen.beginPath(); pen.moveTo(X(v), base); pen.lineTo(X(v), 30); pen.stroke(); });
    pen.globalAlpha = 1;
    spread.textContent = " each handle sets an eighth of the " + w.length + " pairs; drag it";
    knobs.forEach((knob, i) => {
      const v = handle(i, w), [from, to] = pairsOf(i, w.length);
      knob.setAttribute("aria-label", "frequencies of pairs " + (from + 1) + " to " + to);
      knob.style.left = X(v) + "px";
      knob.style.background = paint;
      knob.setAttribute("aria-valuenow", Math.log10(v).toFixed(2));
      knob.setAttribute("aria-valuetext", v.toPrecision(3) + " radians per token, a full turn in " + number(2 * Math.PI / v) + " tokens");
    });
  }

  const D = about.distances;

  function drawCurve(score, mean, far, paint) {
    const [pen, wide, high] = ready(curve), left = 36, foot = high - 22;
    const x = (d) => left + (Math.log10(Math.max(1, d)) / 5) * (wide - left - 8), y = (v) => 8 + (1 - v) / 1.6 * (foot - 8);
    pen.strokeStyle = colour("--book-grid");
    pen.fillStyle = colour("--pst-color-text-muted");
    pen.textAlign = "right";
    [1, 0.5, 0, -0.5].forEach((v) => {
      pen.beginPath(); pen.moveTo(left, y(v)); pen.lineTo(wide, y(v)); pen.stroke();
      pen.fillText(String(v).replace("-", "−"), left - 6, y(v) + 4);
    });
    pen.textAlign = "center";
    [1, 10, 100, 1e3, 1e4, 1e5].forEach((d) => pen.fillText(wide < 420 && d >= 1e3 ? d / 1e3 + "k" : number(d), Math.min(x(d), wide - 26), high - 5));
    pen.strokeStyle = paint;
    pen.lineJoin = "round";
    const line = (values) => { pen.beginPath(); D.forEach((d, i) => { if (d >= 1) { pen.lineTo(x(d), y(values[i])); } }); pen.stroke(); };
    pen.globalAlpha = 0.4; line(score);
    pen.globalAlpha = 1; pen.lineWidth = 2.5; line(mean); pen.lineWidth = 1;
    if (far > 1 && far < 1e5) {
      const right = x(far) > wide - 90;
      pen.setLineDash([4, 4]);
      pen.strokeStyle = pen.fillStyle = colour("--pst-color-text-base");
      pen.beginPath(); pen.moveTo(x(far), 8); pen.lineTo(x(far), foot); pen.stroke();
      pen.setLineDash([]);
      pen.textAlign = right ? "right" : "left";
      pen.fillText("horizon " + number(far), x(far) + (right ? -6 : 6), foot - 8);
    }
  }

  /* The first rows and columns of a map of side times side numbers; strength says how dark a number is. */
  function drawMap(canvas, values, side, shown, paint, strength, labels) {
    const left = labels.length ? 34 : 0, cell = (canvas.clientWidth - left) / shown;
    canvas.style.height = shown * cell + "px";
    const [pen, wide] = ready(canvas);
    pen.fillStyle = colour("--pst-color-surface");
    pen.fillRect(left, 0, wide - left, shown * cell);
    pen.fillStyle = paint;
    for (let i = 0; i < shown; i++) {
      for (let j = 0; j < shown; j++) {
        pen.globalAlpha = strength(values[i * side + j]);
        pen.fillRect(left + j * cell + 0.5, i * cell + 0.5, cell - 1, cell - 1);
      }
    }
    pen.globalAlpha = 1;
    pen.fillStyle = colour("--pst-color-text-muted");
    pen.font = Math.min(12, 0.9 * cell) + "px " + getComputedStyle(document.body).fontFamily;
    pen.textAlign = "right";
    labels.forEach((label, i) => pen.fillText(label.slice(0, 6), left - 4, (i + 0.72) * cell, left - 4));
  }

  /* A weight of attention: small ones are still seen. */
  const weight = (v) => Math.min(1, (2.2 * v) ** 0.75);

  /* A score on the grid: from the least, white, to 1. */
  function drawGrid(i, values, paint) {
    const least = Math.min(...values), name = ["axial: each pair encodes row or column", "mixed: each pair has its own direction"][i];
    drawMap(grids[i], values, SIDE, SIDE, paint, (v) => (v - least) / (1 - least + 1e-9), []);
    gridCaptions[i].textContent = name + ": " + least.toFixed(2).replace("-", "−") + " to 1";
    grids[i].setAttribute("aria-label", "A heat map shows the score of the middle patch with each patch of a " + SIDE + " by " + SIDE + " grid of rows and columns. " + ["Each pair of channels encodes the row or the column", "Each pair of channels has its own direction"][i] + ", and the scores are between " + least.toFixed(2).replace("-", "−") + " and 1, which is the score of the middle patch with itself.");
  }

  const furthest = (a, b) => a.reduce((most, v, i) => Math.max(most, Math.abs(v - b[i])), 0);

  function draw() {
    const w = frequencies(), list = words(), { still, colour: paint } = preset();
    const all = w.length + still, size = all === PAIRS ? PAIRS : about.most; // smaller heads are filled up with zeros
    const given = { frequencies: filled(w, size), shares: filled(Array(all).fill(1 / all), size) };
    if (!list.length) { list.push("…"); }
    const far = horizon(w);
    const { score, mean } = bookRun.run(programs["score " + size], given);
    drawAxis(w, paint);
    drawCurve(score.data, mean.data, far, paint);
    const grid = bookRun.run(programs["grid " + size], given);
    drawGrid(0, grid.axial.data, paint);
    drawGrid(1, grid.mixed.data, paint);
    const there = state.rough ? "rough" : "rotated_moved", names = ["rotated", there, "added", "added_moved"];
    const basis = BASES.map((_, i) => Number(i === state.basis));
    const found = bookRun.run(programs["maps " + size], Object.assign(vectors(list, WORDS, 2 * all, 2 * size), given, { basis, slope: [state.slope], moved: [state.moved] }), names);
    const paints = [paint, paint, about.added, about.added];
    names.forEach((name, i) => drawMap(maps[i], found[name].data, WORDS, list.length, paints[i], weight, list));
    const points = [furthest(found[there].data, found.rotated.data), furthest(found.added_moved.data, found.added.data)].map((v) => 100 * v);
    const change = points.map((v) => (v < 0.05 ? "the same" : "± " + (v < 10 ? v.toFixed(1) : v.toFixed(0)) + " points"));
    const behind = "from " + number(state.moved);
    [["rotated, from 0", ""], ["rotated, " + behind, change[0]], ["sinusoids added, from 0", ""], ["added, " + behind, change[1]]]
      .forEach(([name, much], i) => {
        captions[i].replaceChildren(name, ...(much ? [element("b", {}, " " + much)] : []));
        maps[i].setAttribute("aria-label", "A heat map shows the attention weights, in a row for each word and a column for each word that it attends to, if " + (i < 2 ? "positions rotate queries and keys" : "sinusoids are added to the words") + " and the first word is at position " + (i % 2 ? number(state.moved) : "0") + "."
          + (!much ? "" : much === "the same" ? " The weights are the same as from position 0." : " The largest change of a weight from the map at position 0 is " + much.slice(2) + "."));
      });
    tell = () => {
      const negative = below(w, still), first = negative ? "first below 0 at distance " + number(negative) : "never below 0 up to distance " + number(FARTHEST);
      curve.setAttribute("aria-label", "A line chart shows the score of a word with itself against the distance, on a logarithmic axis from 1 to 100,000 tokens. A pale curve is the score, and a thick curve is its mean over near distances. The score is " + first + ". The horizon is at " + number(far) + ".");
      said.textContent = "The horizon, the distance at which neighbouring pairs differ by a full turn, is " + number(far) + "; the score is " + first + ". If the sentence is moved by " + number(state.moved) + ", the map with rotations is "
        + (points[0] < 0.05 ? "the same" : "changed by up to " + change[0].slice(2)) + "; the map with added sinusoids is "
        + (points[1] < 0.05 ? "the same" : "changed by up to " + change[1].slice(2)) + ".";
    };
    const more = typed().length - WORDS;
    room.textContent = more > 0 ? "only the first " + WORDS + " words are used (" + more + " words are ignored)" : "";
    listing.textContent = code(w);
    [...presets.children].forEach((button, i) => button.setAttribute("aria-pressed", String((PRESETS[i] ?? PASTED) === state.preset)));
    presets.lastChild.hidden = !pasted;
    [...bases.children].forEach((button, i) => button.setAttribute("aria-pressed", String(i === state.basis)));
    [...bases.children].slice(1).forEach((button) => { button.disabled = all !== PAIRS; });
    rough.checked = state.rough;
    moved.show(state.moved ? 1 + 99 * Math.log10(state.moved) / 5 : 0, number(state.moved));
    slope.show(state.slope, state.slope ? state.slope.toFixed(2) : "none");
    if (text.value !== state.text) { text.value = state.text; }
  }

  /* ---- the state, here and in the address ---- */

  let tell; // say what is drawn
  const redraw = lazily(draw);
  const rest = atRest(() => {
    tell();
    keep("encoder", { ...(state.preset === PASTED ? { pasted: state.pasted, length: state.length } : {}), preset: state.preset, shifts: state.shifts.join(" "), basis: state.basis, slope: state.slope, moved: state.moved, rough: Number(state.rough), text: state.text });
    box.querySelector(".live-link").setAttribute("href", location.hash);
  });

  function change(part) { Object.assign(state, part); redraw(); rest(); }

  function restore(given) {
    const shifts = (given.get("shifts") || "").split(" ").map(Number), preset = given.get("preset");
    config.value = given.get("pasted") ?? "";
    if (config.value) { take(config.value, Number(given.get("length"))); }
    if (PRESETS.includes(preset)) { state.preset = preset; }
    if (shifts.length === HANDLES && shifts.every(Number.isFinite)) { state.shifts = shifts; }
    ["basis", "slope", "moved"].forEach((name) => { if (given.has(name) && Number.isFinite(Number(given.get(name)))) { state[name] = Number(given.get(name)); } });
    state.rough = given.get("rough") === "1";
    state.text = given.get("text") ?? state.text;
  }

  const given = asked("encoder");
  if (given) { restore(given); }
  follow(box, redraw);
  draw();
  tell();
});
