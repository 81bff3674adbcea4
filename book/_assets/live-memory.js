/* Ask a memory: book/live/memory.py computes, this draws. */
bookLive.add("memory", (box, run, about) => {
  "use strict";
  const { ask, asked, atRest, colour, element, follow, keep, lazily, reading, ready, softmax } = bookLive;

  const KEYS = [..."abcdefgh"], VALUES = 8, MOST = about.most, SIZES = about.sizes.map((size) => size.channels);
  const state = { pairs: about.pairs, asked: about.asked, heard: about.pairs.length, size: 0 };
  const memories = Object.entries(about.titles).map(([name, title]) => ({ name, title, shown: {} }));
  const runs = [run]; // of each size that is there

  /* ---- the list ---- */

  const written = (pairs) => pairs.map(([k, v]) => KEYS[k] + v).join(" ");
  const parsed = (text) => [...text.toLowerCase().matchAll(/([a-h])[\s:=]*([0-7])/g)].slice(0, MOST).map(([, k, v]) => [KEYS.indexOf(k), Number(v)]);
  const tokens = (pairs) => pairs.flatMap(([k, v]) => [VALUES + k, v]);
  const heard = () => state.pairs.slice(0, state.heard);
  /* all values that a key has had so far, the latest last */
  const had = (key) => heard().filter(([k]) => k === key).map(([, v]) => v);
  const latest = (key) => had(key).at(-1);
  const old = (key) => had(key).filter((v) => v !== latest(key));

  /* ---- the parts of the page ---- */

  const list = element("input", { type: "text", maxlength: "60", autocomplete: "off", autocapitalize: "none", spellcheck: "false" });
  const chips = element("div.live-chips", { "aria-hidden": "true" });
  const slider = element("input", { type: "range", min: 0, step: 1, "aria-label": "pairs read" }), count = element("b");
  const keys = element("div.live-choice", { role: "group", "aria-label": "Key to query" },
    ...KEYS.map((key, i) => element("button", { type: "button", onclick: () => change({ asked: i }) }, key)));
  const overwrite = element("button", { type: "button", onclick: () => {
    const value = (Math.max(-1, ...had(state.asked)) + 3) % VALUES, pairs = heard().concat([[state.asked, had(state.asked).includes(value) ? (value + 1) % VALUES : value]]);
    change({ pairs, heard: pairs.length });
  } });
  const other = element("button", { type: "button", onclick: () => {
    const any = (n) => Math.floor(n * Math.random()), pairs = Array.from({ length: MOST }, () => [any(KEYS.length), any(VALUES)]);
    change({ pairs, heard: MOST, asked: pairs[any(MOST)][0] });
  } }, "random list");
  const sizes = element("div.live-choice", { role: "group", "aria-label": "Size of a memory" },
    ...SIZES.map((wide, i) => element("button", { type: "button", onclick: () => change({ size: i }) }, wide + " × " + wide)));
  const said = element("p.live-said", { role: "status" });
  const cards = element("ul.live-memories", {}, ...memories.map((memory) => {
    memory.table = element("canvas.live-table", { role: "img", "aria-label": "The model “" + memory.title + "” has not been queried yet.", onclick: (event) => {
      const row = Math.floor((event.offsetY / memory.table.clientHeight) * (KEYS.length + 1)) - 1;
      if (row >= 0) { change({ asked: row }); }
    } });
    memory.all = element("canvas.live-kept", { "aria-hidden": "true" });
    memory.last = element("canvas.live-kept", { "aria-hidden": "true" });
    memory.size = element("small");
    memory.answer = element("p.live-answered");
    memory.changed = element("figcaption");
    memory.score = element("p.live-score");
    const item = element("li", {},
      element("p.live-name", {}, memory.title, " ", memory.size), memory.answer,
      element("div.live-memory", {}, memory.table,
        element("figure", {}, element("figcaption", {}, "stores"), memory.all),
        element("figure", {}, memory.changed, memory.last)),
      memory.score);
    item.style.setProperty("--own", about.sizes[0].memories[memory.name].colour);
    return item;
  }));
  box.append(
    element("label.live-text", {}, element("span.live-title", {}, "Keys and values", element("small", {}, " keys a to h, values 0 to 7, up to " + MOST + " pairs")), list),
    chips,
    element("label.live-slider", {}, element("span", {}, "pairs read"), slider, count),
    element("div.live-row", {}, element("span", {}, "query"), keys),
    element("div.live-choice", {}, overwrite, other),
    element("div.live-row", {}, element("span", {}, "size of a memory"), sizes),
    said,
    element("p.live-legend", {}, "Each table shows the value that this model would retrieve for every key: ", element("span.live-ring", {}), " is the latest value, ", element("b", { "aria-hidden": "true" }, "×"), " an older one. The fuller a cell, the higher the probability of its value. Beside the table are the numbers that the model stores, and the changes that the last pair made to them."),
    cards,
    element("div.live-foot", {},
      element("button", { type: "button", onclick: () => change({ pairs: about.pairs, asked: about.asked, heard: about.pairs.length, size: 0 }) }, "Reset"),
      element("a.live-link", { href: "#" }, "Link to this state"),
      element("small", {}, "Accuracy: mean ± half the width of its 95 % interval, over " + about.seeds + " seeds. The models shown here were trained with the first seed.")));

  list.addEventListener("input", () => {
    const pairs = parsed(list.value);
    change({ pairs, heard: pairs.length }, true);
  });
  slider.addEventListener("input", () => change({ heard: Number(slider.value) }));

  /* ---- drawing ---- */

  function drawTable(memory, answers) {
    const [pen, wide, high] = ready(memory.table), left = 18, row = high / (KEYS.length + 1), column = (wide - left) / VALUES;
    const text = colour("--pst-color-text-base"), muted = colour("--pst-color-text-muted");
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.fillStyle = muted;
    for (let v = 0; v < VALUES; v++) { pen.fillText(v, left + (v + 0.5) * column, row / 2); }
    KEYS.forEach((key, k) => {
      const y = (k + 1) * row, known = had(k).length > 0;
      pen.globalAlpha = known ? 1 : 0.35;
      pen.fillStyle = k === state.asked ? text : muted;
      pen.font = (k === state.asked ? "bold " : "") + "13px " + getComputedStyle(document.body).fontFamily;
      pen.fillText(key, left / 2, y + row / 2);
      for (let v = 0; v < VALUES; v++) {
        const x = left + v * column;
        pen.globalAlpha = known ? 1 : 0.3;
        pen.fillStyle = colour("--pst-color-surface");
        pen.fillRect(x + 0.5, y + 0.5, column - 1, row - 1);
        pen.globalAlpha = (known ? 1 : 0.3) * answers[k][v] ** 0.7;
        pen.fillStyle = memory.colour;
        pen.fillRect(x + 0.5, y + 0.5, column - 1, row - 1);
        pen.globalAlpha = 1;
        pen.strokeStyle = pen.fillStyle = text;
        pen.lineWidth = 1.5;
        if (known && latest(k) === v) { pen.beginPath(); pen.arc(x + column / 2, y + row / 2, 0.3 * Math.min(row, column), 0, 7); pen.stroke(); }
        if (known && old(k).includes(v)) {
          const r = 0.2 * Math.min(row, column), a = x + column / 2, b = y + row / 2;
          pen.beginPath(); pen.moveTo(a - r, b - r); pen.lineTo(a + r, b + r); pen.moveTo(a - r, b + r); pen.lineTo(a + r, b - r); pen.stroke();
        }
      }
      if (k === state.asked) { pen.globalAlpha = 1; pen.lineWidth = 2; pen.strokeRect(left, y, wide - left - 1, row); }
    });
  }

  /* Numbers as shades of two colours, rows of so many; what is 1 is full. */
  function drawNumbers(canvas, rows, scale, paint) {
    const [pen, wide, high] = ready(canvas), negative = colour("--pst-color-text-base");
    pen.fillStyle = colour("--pst-color-surface");
    pen.fillRect(0, 0, wide, high);
    rows.forEach((row, i) => row.forEach((v, j) => {
      pen.globalAlpha = Math.min(1, Math.abs(v) / scale);
      pen.fillStyle = v > 0 ? paint : negative;
      const x = Math.floor((j * wide) / row.length), y = Math.floor((i * high) / rows.length);
      pen.fillRect(x, y, Math.ceil(wide / row.length), Math.ceil(high / rows.length));
    }));
  }

  /* What is kept after so many pairs, as rows: of softmax a key and a value for each token. */
  function kept(memory, pairs) {
    const held = memory.read.states[2 * pairs], sums = held.layer0_sums, wide = SIZES[state.size];
    if (sums) { return Array.from({ length: sums.length / (wide + 1) }, (_, i) => Array.from(sums.subarray(i * (wide + 1), i * (wide + 1) + wide))); }
    return Array.from({ length: 2 * MOST }, (_, i) => Array.from({ length: 2 * wide }, (_, j) =>
      (i < 2 * pairs ? (j < wide ? held.layer0_keys : held.layer0_values)[i * wide + (j % wide)] : 0)));
  }

  const percent = (p) => Math.round(100 * p) + " %";
  const most = (row) => row.indexOf(Math.max(...row));
  const verdict = (key, value) => (!had(key).length ? "key not read yet" : value === latest(key) ? "right" : had(key).includes(value) ? "an old value" : "wrong");

  const JUDGED = { "key not read yet": "but it has not read this key yet", right: "which is right", "an old value": "which is an old value", wrong: "which is wrong" };

  function drawMemory(memory) {
    const { answers, pairs } = memory.shown;
    if (!answers || pairs !== state.heard) { return; }
    const row = answers[state.asked], value = most(row), second = most(row.map((p, v) => (v === value ? -1 : p)));
    const judged = verdict(state.asked, value);
    memory.answer.replaceChildren("retrieves ", element("b", {}, String(value)), " " + percent(row[value]), element("span" + (judged === "right" ? ".live-right" : ".live-off"), {}, judged),
      element("small", {}, row[second] > 0.05 ? "then " + second + ", " + percent(row[second]) : ""));
    memory.size.textContent = "stores " + memory.read.kept(2 * pairs).toLocaleString("en-US") + " numbers" + (memory.kept.layer0_keys ? ", more with each token" : "");
    drawTable(memory, answers);
    const now = kept(memory, pairs), before = kept(memory, Math.max(0, pairs - 1));
    const scale = now.flat().map(Math.abs).sort((a, b) => a - b).at(memory.kept.layer0_keys ? -20 : -10) || 1;
    drawNumbers(memory.all, now, scale, memory.colour);
    drawNumbers(memory.last, now.map((line, i) => line.map((v, j) => v - before[i][j])), scale, memory.colour);
    memory.changed.textContent = pairs ? written([state.pairs[pairs - 1]]) + " changes" : "";
    memory.table.setAttribute("aria-label", "A heat map shows the probability of each value (column) for each key (row) in the model “" + memory.title + "”. " + KEYS.map((key, k) => {
      const value = most(answers[k]);
      return "For the key " + key + " the model would retrieve " + value + " with a probability of " + percent(answers[k][value]) + ", " + JUDGED[verdict(k, value)] + ".";
    }).join(" "));
  }

  function draw() {
    if (document.activeElement !== list) { list.value = written(state.pairs); }
    chips.replaceChildren(...state.pairs.map(([k, v], i) => {
      const gone = state.pairs.slice(i + 1, state.heard).some(([later]) => later === k);
      return element("span" + (i >= state.heard ? ".live-later" : gone ? ".live-gone" : "") + (k === state.asked ? ".live-asked" : ""), {}, KEYS[k] + v);
    }));
    slider.max = state.pairs.length;
    slider.value = state.heard;
    count.textContent = state.heard + " of " + state.pairs.length;
    slider.setAttribute("aria-valuetext", state.heard + " of " + state.pairs.length + (state.heard ? ", the last " + written([state.pairs[state.heard - 1]]) : ""));
    [...keys.children].forEach((button, i) => button.setAttribute("aria-pressed", String(i === state.asked)));
    [...sizes.children].forEach((button, i) => button.setAttribute("aria-pressed", String(i === state.size)));
    overwrite.textContent = "give " + KEYS[state.asked] + (had(state.asked).length ? " another value" : " a value");
    overwrite.disabled = state.heard >= MOST;
    memories.forEach(drawMemory);
  }

  function sentence() {
    const key = KEYS[state.asked], values = had(state.asked), by = {};
    memories.forEach((memory) => {
      const judged = verdict(state.asked, most(memory.shown.answers[state.asked]));
      (by[judged] = by[judged] || []).push(memory.title);
    });
    const asked = values.length ? "The latest value of " + key + " is " + latest(state.asked) + (old(state.asked).length ? " (before that: " + old(state.asked).reverse().join(", ") + ")" : "") + ". " : "The key " + key + " has no value yet. ";
    return asked + [["right", "Right: "], ["an old value", "An old value: "], ["wrong", "A value that " + key + " never had: "]].filter(([judged]) => by[judged]).map(([judged, told]) => told + by[judged].join(", ") + ".").join(" ");
  }

  /* ---- reading and asking: each memory goes on by itself, and the worker serves them in turn ---- */

  async function listen(memory) {
    if (memory.busy || !memory.read) { return; }
    memory.busy = true;
    for (;;) {
      const { read } = memory;
      const pairs = state.heard, wanted = tokens(heard()), asks = wanted.join();
      /* what was read behind the pairs heard stays, if the list says the same */
      const further = tokens(state.pairs), known = memory.known || [];
      const same = further.findIndex((token, i) => token !== known[i]), upto = Math.min(known.length, same < 0 ? further.length : same);
      const goal = upto > wanted.length ? further.slice(0, upto) : wanted;
      memory.known = goal;
      if (await read.step(goal) || read !== memory.read) { continue; }
      if (memory.shown.asks === asks) { break; }
      const held = read.states[wanted.length];
      const { scores } = await runs[memory.run](memory.name + " ask", Object.assign({ tokens: KEYS.map((_, k) => VALUES + k), place: [wanted.length] }, held), ["scores"]);
      if (read !== memory.read) { continue; }
      const wide = scores.data.length / KEYS.length;
      memory.shown = { asks, pairs, answers: KEYS.map((_, k) => softmax(scores.data.subarray(k * wide, (k + 1) * wide)).slice(0, VALUES)) };
      redraw();
    }
    memory.busy = false;
    if (memories.every((one) => !one.busy)) { rest(); }
  }

  /* Take the models of the size that is asked for, once they are there. */
  function fit() {
    const { size } = state;
    if (!runs[size]) {
      ask("memory-" + size, (made) => {
        runs[size] = runs[size] || bookRun.apart(made);
        fit();
      });
      return;
    }
    memories.filter((memory) => memory.run !== size).forEach((memory) => {
      Object.assign(memory, about.sizes[size].memories[memory.name], { run: size, shown: {}, known: [] });
      memory.read = reading(runs[size], memory.name + " step", memory.kept);
      memory.score.textContent = "accuracy after " + MOST + " pairs: " + memory.once + " for keys written once, " + memory.overwritten + " for overwritten keys";
    });
    memories.forEach(listen);
  }

  /* ---- the state, here and in the address ---- */

  const redraw = lazily(draw);
  let moved = false;
  const rest = atRest(() => {
    if (memories.some((memory) => memory.busy || !memory.shown.answers || memory.run !== state.size)) { return; }
    said.textContent = sentence();
    box.dataset.rested = written(heard()) + "?" + KEYS[state.asked] + (state.size ? " " + SIZES[state.size] : "");
    if (!moved) { return; }
    keep("memory", { pairs: written(state.pairs), heard: state.heard, ask: KEYS[state.asked], size: SIZES[state.size] });
    box.querySelector(".live-link").setAttribute("href", location.hash);
  });

  function change(part, typed) {
    Object.assign(state, part);
    moved = true;
    if (!typed) { list.value = written(state.pairs); }
    fit();
    redraw();
    rest();
  }

  const given = asked("memory");
  if (given) {
    state.pairs = parsed(given.get("pairs") || "");
    state.heard = Math.min(state.pairs.length, Math.max(0, Math.round(Number(given.get("heard") ?? MOST)) || 0));
    state.asked = Math.max(0, KEYS.indexOf(given.get("ask")));
    state.size = Math.max(0, SIZES.indexOf(Number(given.get("size"))));
  }
  follow(box, redraw);
  draw();
  fit();
}, bookRun.apart);
