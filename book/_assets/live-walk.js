/* Six words, one head: a figure that stays in sight while the reader scrolls from stop to stop.
   Vectors and constants come from book/live/walk.py; every number is computed here. */
bookLive.add("walk", (box, _, about) => {
  "use strict";
  const { asked, atRest, colour, element, follow, keep, lazily, ready } = bookLive;

  /* ---- arithmetic ---- */

  const { words: WORDS, q, k, v, planes: PLANES, frequencies: STANDARD, axial: AXIAL } = about;
  const N = WORDS.length, D = q[0].length, ROOT = Math.sqrt(D);
  const range = (n) => Array.from({ length: n }, (_, i) => i), SIX = range(N);
  const KINDS = SIX.filter((i) => WORDS.indexOf(WORDS[i]) === i); // each word once
  const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
  const add = (a, b) => a.map((x, i) => x + b[i]);
  const times = (c, a) => a.map((x) => c * x);
  const apart = (a, b) => Math.max(...a.flatMap((row, m) => row.map((x, n) => Math.abs(x - b[m][n]))));
  const best = (row) => row.indexOf(Math.max(...row));
  const softmax = (qs, ks) => qs.map((a) => bookLive.softmax(ks.map((b) => dot(a, b)), ROOT));
  const shares = (row) => { const sum = row.reduce((a, b) => a + b, 0); return row.map((x) => (sum ? x / sum : 0)); };
  const kernel = (fq, fk, weigh = () => 1) => fq.map((a, m) => shares(fk.map((b, n) => weigh(m, n) * dot(a, b))));
  const average = (row, values) => range(D).map((c) => dot(row, values.map((x) => x[c])));
  const elu = (x) => x.map((c) => (c > 0 ? c + 1 : Math.exp(c)));

  /* Rotate each pair of channels of x by its angle. */
  const rotate = (x, angles) => angles.flatMap((angle, i) => {
    const [a, b] = [x[2 * i], x[2 * i + 1]], [c, s] = [Math.cos(angle), Math.sin(angle)];
    return [a * c - b * s, a * s + b * c];
  });
  const rope = (position, theta = STANDARD) => times(position, theta);
  const sinusoid = (position) => STANDARD.flatMap((frequency) => [Math.sin(position * frequency), Math.cos(position * frequency)]);
  const roped = (xs, start, theta) => xs.map((x, n) => rotate(x, rope(start + n, theta)));
  const added = (xs, start) => xs.map((x, n) => add(x, sinusoid(start + n)));
  const gridded = (xs, cells) => xs.map((x, n) => rotate(x, [...rope(cells[n][0], AXIAL), ...rope(cells[n][1], AXIAL)]));

  /* The transpose of P times x, or P times x: P is the identity for share 0. */
  const mix = (x, share, back) => {
    const y = x.slice();
    (back ? PLANES.slice().reverse() : PLANES).forEach(([i, j, angle]) => {
      const c = Math.cos(share * angle), s = (back ? -1 : 1) * Math.sin(share * angle);
      [y[i], y[j]] = [y[i] * c - y[j] * s, y[i] * s + y[j] * c];
    });
    return y;
  };
  const string = (x, angles, share) => mix(rotate(mix(x, share), angles), share, true); // P R(m) Pᵀ x
  const matrix = (f) => { const columns = range(D).map((i) => f(range(D).map((j) => Number(i === j)))); return range(D).map((i) => columns.map((column) => column[i])); };

  /* Numbers that look random, the same at every visit. */
  let seed = 11;
  const uniform = () => { seed = (seed + 0x6d2b79f5) | 0; let t = Math.imul(seed ^ (seed >>> 15), 1 | seed); t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t; return ((t ^ (t >>> 14)) >>> 0) / 4294967296; };
  const normal = () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
  const favor = (x, rows) => { const y = times(D ** -0.25, x), half = dot(y, y) / 2; return rows.map((row) => Math.exp(dot(row, y) - half) / Math.sqrt(rows.length)); };

  /* ---- what the reader changes: first value, lowest, highest, step ---- */

  const AMOUNTS = {
    mark: [4, 0, 5, 1], moved: [40, 0, 100, 0.1], basis: [0.6, 0, 1, 0.01], distance: [1, 0, 12, 1], copies: [2, 0, 5, 1],
    doublings: [4, 2, 10, 1], read: [3, 0, 6, 1], gamma: [0.7, 0.2, 1, 0.01], horizon: [8, 6, 40, 1], beta: [1, 0, 1, 0.01], written: [5, 0, 5, 1],
  };
  const CHOICES = { span: [30, 3000], carry: [true, false], weight: ["decay", "cosine", "none"] };
  const GRID = 5, PLACED = [[1, 1], [1, 2], [2, 1], [2, 2], [3, 1], [3, 2]]; // (row, column)
  const LISTS = {
    order: [SIX, (x) => x.slice().sort().join() === SIX.join()],
    theta: [STANDARD, (x) => x.every((y) => y >= 0 && y <= 4)],
    cells: [PLACED, (x) => new Set(x.map(String)).size === N && x.every((cell) => cell.length === 2) && x.flat().every((y) => range(GRID).includes(y))],
  };
  const first = (key) => (AMOUNTS[key] || CHOICES[key] || [structuredClone(LISTS[key][0])])[0];
  const s = Object.fromEntries([AMOUNTS, CHOICES, LISTS].flatMap(Object.keys).map((key) => [key, first(key)]));

  /* A value from the address, or else what is there: an address may say anything. */
  function taken(key, text) {
    let value;
    try { value = JSON.parse(text); } catch { return s[key]; }
    if (AMOUNTS[key]) {
      const [, low, high, step] = AMOUNTS[key];
      return value >= low && value <= high ? Number((low + Math.round((value - low) / step) * step).toFixed(2)) : s[key];
    }
    if (CHOICES[key]) { return CHOICES[key].includes(value) ? value : s[key]; }
    const [now, fits] = LISTS[key];
    return Array.isArray(value) && value.length === now.length && fits(value) ? value : s[key];
  }

  const plain = softmax(q, k), fq = q.map(elu), fk = k.map(elu);
  const causal = (weigh) => kernel(fq, fk, (m, n) => (n > m ? 0 : weigh(m, n)));
  const cosine = (r) => Math.cos((Math.PI / 2) * r / s.horizon);
  const factor = (m, n) => ({ none: 1, decay: s.gamma ** (m - n), cosine: cosine(m - n) })[s.weight];
  const outer = (keys, values, weights) => range(D).map((i) => average(weights.map((w, n) => w * keys[n][i]), values));
  const answer = (state, key) => range(D).map((c) => dot(state.map((row) => row[c]), key));

  /* Random features: the estimate that was drawn last, and the error of every draw. */
  const error = (rows) => rows.flatMap((row, m) => row.map((x, n) => Math.abs(x - plain[m][n]))).reduce((a, b) => a + b) / N / N;
  const EQUAL = error(plain.map((row) => row.map(() => 1 / N)));
  let estimate = null, tries = [];
  function sample() {
    const rows = range(2 ** s.doublings).map(() => range(D).map(normal));
    estimate = kernel(q.map((x) => favor(x, rows)), k.map((x) => favor(x, rows)));
    tries.push([rows.length, error(estimate)]);
  }
  function sampleAll() { // ten draws of each number, and one that is shown
    tries = [];
    const chosen = s.doublings;
    [2, 4, 6, 8, 10].forEach((m) => { s.doublings = m; range(10).forEach(sample); });
    s.doublings = chosen;
    sample();
  }

  /* Two memories after the pairs (a word, the word after it): a sum, and the delta rule. */
  const keys = k.map((x) => times(1 / Math.sqrt(dot(x, x)), x));
  function memories() {
    let sum = range(D).map(() => range(D).fill(0)), delta = sum;
    range(s.written).forEach((n) => {
      const wrong = add(v[n + 1], times(-1, answer(delta, keys[n])));
      sum = sum.map((row, i) => add(row, times(keys[n][i], v[n + 1])));
      delta = delta.map((row, i) => add(row, times(s.beta * keys[n][i], wrong)));
    });
    return { sum, delta };
  }
  const answers = (state) => keys.map((key) => v.map((x) => dot(answer(state, key), x)));

  /* ---- words ---- */

  const calm = matchMedia("(prefers-reduced-motion: reduce)"), upright = matchMedia("(max-width: 56rem) and (orientation: portrait)"), low = matchMedia("(max-height: 34rem)"), terse = () => upright.matches || low.matches;
  const count = (n) => Math.round(n).toLocaleString("en");
  const decimal = (x) => (Math.abs(x) < 0.005 ? "0.00" : x.toFixed(2).replace("-", "−"));
  const percent = (x) => Math.round(100 * x) + "%";
  const points = (x) => (100 * x < 0.05 ? "0.0" : (100 * x).toFixed(1)) + " percentage points";
  const tokens = (n) => count(n) + (n === 1 ? " token" : " tokens");
  const quoted = (i) => "“" + WORDS[i] + "”";
  const which = (i) => { const same = SIX.filter((j) => WORDS[j] === WORDS[i]); return same.length < 2 ? quoted(i) : (i === same[0] ? "the first " : "the second ") + quoted(i); };
  const capital = (text) => text[0].toUpperCase() + text.slice(1);

  /* ---- drawing ---- */

  const small = (wide) => wide < 220;
  const opened = (canvas) => { const [pen, wide, high] = ready(canvas); pen.font = pen.font.replace(/^[\d.]+px/, small(wide) ? "10px" : "12.5px"); return [pen, wide, high]; };
  const write = (pen, text, x, y, align = "center", paint = "--pst-color-text-muted") => { pen.textAlign = align; pen.fillStyle = colour(paint); pen.fillText(text, x, y); };
  const line = (pen, ...corners) => { pen.beginPath(); corners.forEach(([x, y], i) => (i ? pen.lineTo(x, y) : pen.moveTo(x, y))); pen.stroke(); };
  const upward = (pen, text, x, y) => { pen.save(); pen.translate(x, y); pen.rotate(-Math.PI / 2); write(pen, text, 0, 0); pen.restore(); };

  /* Weights as squares, filled: now; outlined: before. */
  function drawMap(canvas, now, was, paint, names, lit) {
    const [pen, wide] = opened(canvas), left = small(wide) ? 29 : 36, top = small(wide) ? 14 : 20, cell = (wide - left) / N;
    names.forEach((name, m) => {
      write(pen, name, left - 6, top + (m + 0.5) * cell + 4, "right", m === lit ? "--pst-color-text-base" : undefined);
      write(pen, name, left + (m + 0.5) * cell, top - 5);
    });
    if (lit >= 0) { pen.globalAlpha = 0.16; pen.fillStyle = paint; pen.fillRect(left, top + lit * cell, N * cell, cell); pen.globalAlpha = 1; }
    pen.strokeStyle = colour("--book-grid");
    range(N + 1).forEach((i) => { line(pen, [left, top + i * cell], [left + N * cell, top + i * cell]); line(pen, [left + i * cell, top], [left + i * cell, top + N * cell]); });
    pen.strokeStyle = colour("--pst-color-text-base"); pen.lineWidth = 1.2; pen.fillStyle = paint;
    now.forEach((row, m) => row.forEach((value, n) => {
      const x = left + (n + 0.5) * cell, y = top + (m + 0.5) * cell, side = (w) => (cell - 3) * Math.sqrt(Math.max(0, w)), a = side(value);
      pen.fillRect(x - a / 2, y - a / 2, a, a);
      const b = was ? side(was[m][n]) : 0;
      if (b > 2) { pen.strokeRect(x - b / 2, y - b / 2, b, b); }
    }));
  }

  /* The map of a sentence repeated: the same six by six, tiled. */
  function drawTiles(canvas, now, paint) {
    const copies = 2 ** s.copies;
    if (copies === 1) { drawMap(canvas, now, null, paint, WORDS, s.mark); return; }
    const [pen, wide] = opened(canvas), left = small(wide) ? 16 : 20, top = small(wide) ? 14 : 20, side = wide - left, tile = side / copies;
    const picture = element("canvas", { width: N, height: N }), brush = picture.getContext("2d");
    brush.fillStyle = paint;
    now.forEach((row, m) => row.forEach((w, n) => { brush.globalAlpha = Math.min(1, Math.sqrt(w) * 1.25); brush.fillRect(n, m, 1, 1); }));
    pen.imageSmoothingEnabled = false;
    range(copies).forEach((i) => range(copies).forEach((j) => pen.drawImage(picture, left + j * tile, top + i * tile, tile, tile)));
    pen.strokeStyle = colour("--pst-color-border"); pen.strokeRect(left, top, side, side);
    write(pen, count(N * copies) + " keys", left + side / 2, top - 5);
    upward(pen, count(N * copies) + " queries", left - 7, top + side / 2);
  }

  /* Signed numbers as shades: blue above zero, orange below. */
  function drawNumbers(canvas, rows, { most = 1, names = [], across = "", down = "", side = null, above = null, lit = -1 } = {}) {
    const [pen, wide, high] = opened(canvas), left = names.length ? (small(wide) ? 42 : 56) : (small(wide) ? 14 : 20), top = small(wide) ? 14 : 20;
    const extra = side ? 1.5 : 0, cell = Math.min((wide - left) / (D + extra), (high - top) / (rows.length + extra)), x0 = left + extra * cell, y0 = top + extra * cell;
    const square = (value, x, y) => {
      pen.fillStyle = colour("--pst-color-surface"); pen.fillRect(x + 0.5, y + 0.5, cell - 1, cell - 1);
      pen.globalAlpha = Math.min(1, Math.abs(value) / most) ** 0.8; pen.fillStyle = colour(value < 0 ? "--walk-minus" : "--pst-color-primary"); pen.fillRect(x + 0.5, y + 0.5, cell - 1, cell - 1);
      pen.globalAlpha = 1;
    };
    rows.forEach((row, i) => {
      row.forEach((value, j) => square(value, x0 + j * cell, y0 + i * cell));
      if (names[i]) { write(pen, names[i], left - 6, y0 + (i + 0.5) * cell + 4, "right", i === lit ? "--pst-color-text-base" : undefined); }
    });
    if (side) { side.forEach((value, i) => square(value, left, y0 + i * cell)); above.forEach((value, j) => square(value, x0 + j * cell, top)); }
    write(pen, across, x0 + D * cell / 2, top - 5);
    upward(pen, down, left - 7, y0 + rows.length * cell / 2);
  }

  function drawOutput(canvas, now, was, paint) {
    const [pen, wide, high] = opened(canvas), left = 6, step = (wide - left) / D, zero = high / 2, scale = high * 0.75;
    now.forEach((value, c) => {
      const x = left + c * step + 3, width = step - 6;
      pen.fillStyle = paint; pen.fillRect(x, zero, width, -value * scale);
      pen.strokeStyle = colour("--pst-color-text-base"); pen.lineWidth = 1.2; pen.strokeRect(x, zero, width, -was[c] * scale);
      write(pen, String(c + 1), x + width / 2, high - 3);
    });
    pen.strokeStyle = colour("--pst-color-border"); line(pen, [0, zero], [wide, zero]);
  }

  const dialCentre = (i, wide) => [(i % 2 + 0.5) * wide / 2, (Math.floor(i / 2) + 0.44) * wide / 2, wide * 0.17];
  function drawDials(canvas, target, paint) {
    const [pen, wide] = opened(canvas), a = rotate(q[s.mark], rope(s.moved + s.mark)), b = rotate(k[target], rope(s.moved + target));
    const pair = (x, i) => x.slice(2 * i, 2 * i + 2), longest = Math.max(...range(4).flatMap((i) => [Math.hypot(...pair(a, i)), Math.hypot(...pair(b, i))]));
    range(4).forEach((i) => {
      const [x, y, radius] = dialCentre(i, wide);
      pen.strokeStyle = colour("--pst-color-border"); pen.lineWidth = 1; pen.beginPath(); pen.arc(x, y, radius, 0, 7); pen.stroke();
      [[a, 4.5, paint], [b, 2, colour("--pst-color-text-base")]].forEach(([vector, thick, ink]) => {
        const [dx, dy] = times(radius / longest, pair(vector, i));
        pen.strokeStyle = pen.fillStyle = ink; pen.lineWidth = thick; pen.lineCap = "round"; line(pen, [x, y], [x + dx, y - dy]);
        pen.beginPath(); pen.arc(x + dx, y - dy, thick * 0.9 + 1, 0, 7); pen.fill();
      });
      write(pen, "pair " + (i + 1) + ": " + decimal(dot(pair(a, i), pair(b, i))), x, y + radius + (small(wide) ? 11 : 17), "center", "--pst-color-text-base");
    });
  }

  function drawCurve(canvas, target, paint) {
    const [pen, wide, high] = opened(canvas), left = 26, right = wide - 4, top = 8, bottom = high - 24, most = 2.2;
    const parts = (r) => range(4).map((i) => dot(q[s.mark].slice(2 * i, 2 * i + 2), rotate(k[target].slice(2 * i, 2 * i + 2), [r * s.theta[i]])) / ROOT);
    const sum = (r) => parts(r).reduce((a, b) => a + b);
    const x = (r) => left + (r + s.span) / 2 / s.span * (right - left), y = (value) => top + (most - value) / 2 / most * (bottom - top);
    pen.strokeStyle = colour("--book-grid");
    [-2, -1, 0, 1, 2].forEach((value) => { line(pen, [left, y(value)], [right, y(value)]); write(pen, String(value).replace("-", "−"), left - 5, y(value) + 4, "right"); });
    pen.strokeStyle = colour("--pst-color-border"); line(pen, [x(0), top], [x(0), bottom]);
    [-1, 0, 1].forEach((sign) => write(pen, ["−", "", "+"][sign + 1] + count(Math.abs(sign) * s.span), x(sign * s.span), high - 8, ["left", "center", "right"][sign + 1]));
    const columns = range(Math.round(right - left) + 1), token = 2 * s.span / (columns.length - 1); // tokens per pixel
    const wave = (f, bound) => columns.map((i) => [left + i, y(bound(...range(token < 1 ? 1 : 24).map((j) => f(-s.span + token * (i + j / 24)))))]);
    range(4).forEach((i) => { // a wave too fast for the pixels shows as its two bounds
      const tall = Math.hypot(q[s.mark][2 * i], q[s.mark][2 * i + 1]) * Math.hypot(k[target][2 * i], k[target][2 * i + 1]) / ROOT;
      pen.setLineDash([[6, 3], [2, 3], [9, 2, 2, 2], [1, 2]][i]); pen.lineWidth = 1.1; pen.strokeStyle = colour("--pst-color-text-muted");
      if (token * s.theta[i] > 0.5) { [tall, -tall].forEach((bound) => line(pen, [left, y(bound)], [right, y(bound)])); } else { line(pen, ...wave((r) => parts(r)[i], Math.max)); }
    });
    pen.setLineDash([]);
    const above = wave(sum, Math.max), below = wave(sum, Math.min);
    pen.strokeStyle = pen.fillStyle = paint; pen.lineWidth = 2.2; line(pen, ...above);
    if (token >= 1) { line(pen, ...below); pen.globalAlpha = 0.4; line(pen, ...above, ...below.reverse()); pen.fill(); pen.globalAlpha = 1; }
    pen.fillStyle = colour("--pst-color-background"); pen.lineWidth = 2.4; pen.beginPath(); pen.arc(x(target - s.mark), y(sum(target - s.mark)), 5, 0, 7); pen.fill(); pen.stroke();
  }

  /* The patches of the digit on their grid, and a line to each as thick as its weight. */
  function drawGrid(canvas, now, paint) {
    const [pen, wide] = opened(canvas), cell = wide / GRID, side = Math.sqrt(about.patches[0].length), dotted = cell / side, centre = ([row, column]) => [(column + 0.5) * cell, (row + 0.5) * cell];
    pen.strokeStyle = colour("--book-grid");
    range(GRID + 1).forEach((i) => { line(pen, [i * cell, 0], [i * cell, wide]); line(pen, [0, i * cell], [wide, i * cell]); });
    SIX.forEach((n) => {
      const [row, column] = s.cells[n];
      pen.fillStyle = colour("--pst-color-surface"); pen.fillRect(column * cell + 0.5, row * cell + 0.5, cell - 1, cell - 1);
      pen.fillStyle = colour("--pst-color-text-base");
      about.patches[n].forEach((ink, i) => { pen.globalAlpha = 0.75 * ink / 255; pen.fillRect(column * cell + (i % side) * dotted, row * cell + Math.floor(i / side) * dotted, dotted + 0.2, dotted + 0.2); });
      pen.globalAlpha = 1;
    });
    pen.strokeStyle = paint; pen.lineCap = "round";
    SIX.forEach((n) => { if (n !== s.mark) { pen.globalAlpha = 0.7; pen.lineWidth = 20 * now[s.mark][n]; line(pen, centre(s.cells[s.mark]), centre(s.cells[n])); } });
    pen.globalAlpha = 1;
    SIX.forEach((n) => write(pen, String(n + 1), s.cells[n][1] * cell + 4, (s.cells[n][0] + 1) * cell - 5, "left", "--pst-color-text-base"));
  }

  function drawErrors(canvas, paint) {
    const [pen, wide, high] = opened(canvas), left = small(wide) ? 24 : 36, top = 8, bottom = high - (small(wide) ? 26 : 38), right = wide - 8;
    const x = (m) => left + (Math.log2(m) - 1.5) / 9 * (right - left), y = (e) => top + Math.log(0.2 / Math.min(0.2, Math.max(0.0101, e))) / Math.log(20) * (bottom - top);
    pen.strokeStyle = colour("--book-grid");
    [0.2, 0.1, 0.05, 0.02, 0.01].forEach((e) => { line(pen, [left, y(e)], [right, y(e)]); write(pen, String(100 * e), left - 5, y(e) + 4, "right"); });
    [4, 16, 64, 256, 1024].forEach((m) => write(pen, count(m), x(m), bottom + (small(wide) ? 11 : 16)));
    pen.strokeStyle = colour("--pst-color-text-muted"); pen.setLineDash([6, 4]); line(pen, [left, y(EQUAL)], [right, y(EQUAL)]); pen.setLineDash([]);
    write(pen, "equal weights: " + (100 * EQUAL).toFixed(1), right, y(EQUAL) - 5, "right", "--pst-color-text-base");
    write(pen, "features m", (left + right) / 2, high - (small(wide) ? 3 : 5));
    tries.forEach(([m, e], i) => {
      const last = i === tries.length - 1;
      pen.globalAlpha = last ? 1 : 0.35; pen.fillStyle = paint; pen.beginPath(); pen.arc(x(m) + (last ? 0 : ((i * 7) % 11 - 5) * 0.7), y(e), last ? 6 : 3.2, 0, 7); pen.fill();
      if (last) { pen.strokeStyle = colour("--pst-color-text-base"); pen.lineWidth = 1.5; pen.stroke(); }
    });
    pen.globalAlpha = 1;
  }

  /* ---- controls ---- */

  const slider = (label, key, say, step = AMOUNTS[key][3]) => {
    const [, low, high] = AMOUNTS[key];
    return ranged(label, low, high, step, () => s[key], (x) => { s[key] = x; if (key === "doublings") { sample(); } }, say);
  };
  const ranged = (label, low, high, step, get, set, say) => {
    const { row, show } = bookLive.slider(label, low, high, (x) => { set(x); changed(); });
    row.querySelector("input").step = step;
    return { node: row, show: () => show(get(), say(get())) };
  };
  const button = (label, act, { primary = false, off = () => false, named = null } = {}) => {
    const node = element(primary ? "button.walk-first" : "button", { type: "button", onclick: () => { act(); changed(); }, ...(named ? { "aria-label": named } : {}) }, label);
    return { node, show() { node.disabled = off(); } };
  };
  const choice = (key, label, options, then = () => {}) => {
    const buttons = options.map(([value, text]) => element("button", { type: "button", onclick: () => { s[key] = value; then(); changed(); } }, text));
    return { node: element("span.live-choice", { role: "group", "aria-label": label }, ...buttons), show() { buttons.forEach((b, i) => b.setAttribute("aria-pressed", options[i][0] === s[key])); } };
  };
  const check = (label, key) => {
    const input = element("input", { type: "checkbox", onchange: () => { s[key] = input.checked; changed(); } });
    return { node: element("label.walk-check", {}, input, label), show() { input.checked = s[key]; } };
  };

  /* ---- the stops ----
     keys: what the reader changes there; now, was: the weights and those to compare with; left, right:
     what is drawn; under: what is written under a word; says: the sentence below; share: "Show me". */

  const { blue: BLUE, red: RED, sky: SKY, teal: TEAL, orange: ORANGE } = about.palette;
  const map = (more = "") => (terse() ? "Weights (area)" : "Attention weights: rows attend to columns; area = weight") + more;
  const position = (start) => (i) => (terse() ? "" : "position ") + +(start() + i).toFixed(1);
  const output = () => average(s.order.map((b) => plain[s.mark][b]), s.order.map((b) => v[b]));
  const ORDERS = [SIX, [4, 0, 1, 2, 3, 5], [4, 0, 3, 1, 2, 5], [4, 5, 0, 3, 1, 2]];
  const STRAIGHT = { added: softmax(added(q, 0), added(k, 0)), roped: softmax(roped(q, 0), roped(k, 0)), gridded: softmax(gridded(about.patchQ, PLACED), gridded(about.patchK, PLACED)), causal: causal(() => 1) };
  const patch = (i) => "patch " + (i + 1), at = ([row, column]) => "(" + row + ", " + column + ")";
  const shift = (dr, dc) => { s.cells = s.cells.map(([row, column]) => [row + dr, column + dc]); };
  const inside = ([row, column]) => row >= 0 && column >= 0 && row < GRID && column < GRID;
  const STOPS = {
    set: {
      paint: BLUE, keys: ["order"], drags: true,
      now: () => s.order.map((a) => s.order.map((b) => plain[a][b])),
      left: () => map(), right: () => "Output of " + which(s.mark) + ", 8 channels; outline: in the first order",
      draw: (canvas) => drawOutput(canvas, output(), average(plain[s.mark], v), BLUE),
      controls: () => [button("Shuffle", () => { const from = s.order.join(); do { s.order = s.order.map((i) => [uniform(), i]).sort((a, b) => a[0] - b[0]).map(([, i]) => i); } while (s.order.join() === from); }, { primary: true })],
      under: (i) => position(() => 0)(s.order.indexOf(i)),
      says: () => {
        const moved = s.order.some((word, place) => word !== place), by = Math.max(...output().map((x, c) => Math.abs(x - average(plain[s.mark], v)[c])));
        return "Both “the” have the same weights and the same output. " + (moved ? "The words are in another order, and the output of " + which(s.mark) + " has changed by " + by.toFixed(3) + "." : "Drag a word to another position.");
      },
      share: (x) => { s.order = ORDERS[Math.min(3, Math.floor(4 * x))].slice(); },
    },
    absolute: {
      paint: RED, keys: ["moved"], arrive: () => { s.moved = Math.round(s.moved); },
      now: () => softmax(added(q, s.moved), added(k, s.moved)), was: () => STRAIGHT.added,
      left: () => map("; outline: at positions 0–5"), right: () => "The vector added at each position (sinusoids); blue > 0, orange < 0",
      draw: (canvas) => drawNumbers(canvas, SIX.map((n) => sinusoid(s.moved + n)), { names: SIX.map((n) => WORDS[n] + " " + (s.moved + n)), across: "8 channels", lit: s.mark }),
      controls: () => [slider("Move by", "moved", tokens, 1)],
      under: position(() => s.moved),
      says: (now, was) => {
        const top = best(now[s.mark]);
        return "At positions " + s.moved + "–" + (s.moved + 5) + " " + which(s.mark) + " gives " + quoted(top) + " " + percent(now[s.mark][top]) + " of its weight" + (s.moved ? "; at positions 0–5 this weight is " + percent(was[s.mark][top]) + ". Largest change of a weight: " + points(apart(now, was)) + "." : ". Move the sentence.");
      },
      share: (x) => { s.moved = Math.round(100 * x); },
    },
    rope: {
      paint: BLUE, keys: ["moved"], dial: true,
      now: () => softmax(roped(q, s.moved), roped(k, s.moved)), was: () => STRAIGHT.roped,
      left: () => map("; outline: at positions 0–5"), right: (now) => "q of " + which(s.mark) + " (thick) and k of " + quoted(best(now[s.mark])) + " (thin), rotated; number: qᵀk of the pair",
      draw: (canvas, now) => drawDials(canvas, best(now[s.mark]), BLUE),
      controls: () => [slider("Move by", "moved", (x) => x.toFixed(1) + " tokens")],
      under: position(() => s.moved),
      says: (now, was) => {
        const top = best(now[s.mark]), score = dot(rotate(q[s.mark], rope(s.moved + s.mark)), rotate(k[top], rope(s.moved + top)));
        return capital(which(s.mark)) + " gives " + quoted(top) + " " + percent(now[s.mark][top]) + " of its weight; their score is " + score.toFixed(2) + " / √8. " + (s.moved ? "Moved by " + s.moved.toFixed(1) + " tokens: the largest change of a weight is " + points(apart(now, was)) + " with RoPE, and with added vectors it is " + points(apart(softmax(added(q, s.moved), added(k, s.moved)), STRAIGHT.added)) + "." : "Move the sentence.");
      },
      share: (x) => { s.moved = 100 * x; },
    },
    frequencies: {
      paint: BLUE, keys: ["theta", "span"], many: true, stays: true,
      now: () => softmax(roped(q, 0, s.theta), roped(k, 0, s.theta)), was: () => STRAIGHT.roped,
      left: () => map("; outline: RoPE’s frequencies"), right: (now, target) => "Score of " + which(s.mark) + " with " + quoted(target) + " against n\u00a0−\u00a0m, in tokens; dashed: the four pairs",
      draw: (canvas, now, target) => drawCurve(canvas, target, BLUE),
      controls: () => [
        ...range(4).map((i) => ranged("Pair " + (i + 1), -3.3, 0.5, 0.05, () => (s.theta[i] ? Math.log10(s.theta[i]) : -3.3), (x) => { s.theta[i] = x <= -3.29 ? 0 : 10 ** x; }, () => String(+s.theta[i].toPrecision(2)))),
        choice("span", "Distances shown", [[30, "±30 tokens"], [3000, "±3,000"]])],
      under: position(() => 0),
      says: (now, was) => capital(which(s.mark)) + " gives “cat” " + percent(now[s.mark][1]) + " and “mat” " + percent(now[s.mark][5]) + " of its weight. Frequencies in radians per token: " + s.theta.map((x) => +x.toPrecision(2)).join(", ") + ". Largest change of a weight: " + points(apart(now, was)) + ".",
      share: (x) => { s.theta[0] = x < 1 ? 10 ** (-3.3 * x) : 0; },
    },
    grid: {
      paint: SKY, keys: ["cells"], first: 1, pieces: true, names: SIX.map((i) => String(i + 1)),
      now: () => softmax(gridded(about.patchQ, s.cells), gridded(about.patchK, s.cells)), was: () => STRAIGHT.gridded,
      left: () => map("; outline: before the move"), right: () => "Six patches of a digit; lines: weights of " + patch(s.mark),
      draw: (canvas, now) => drawGrid(canvas, now, SKY),
      controls: () => [["←", "left", 0, -1], ["→", "right", 0, 1], ["↑", "up", -1, 0], ["↓", "down", 1, 0]].map(([sign, name, dr, dc]) =>
        button("All " + sign, () => shift(dr, dc), { named: "All patches " + name, off: () => !s.cells.every(([row, column]) => inside([row + dr, column + dc])) })),
      under: (i) => at(s.cells[i]),
      says: (now, was) => { const top = best(now[s.mark]); return capital(patch(s.mark)) + " in row " + s.cells[s.mark][0] + ", column " + s.cells[s.mark][1] + " gives " + patch(top) + " " + percent(now[s.mark][top]) + " of its weight. Largest change of a weight since the start: " + points(apart(now, was)) + "."; },
      share: (x) => { const [dr, dc, away] = [[0, 0, 0], [0, 1, 0], [0, 2, 0], [1, 2, 0], [1, 1, 0], [1, 1, 1]][Math.min(5, Math.floor(6 * x))]; s.cells = PLACED.map(([row, column], i) => [row + dr, column + dc + (i === 3 ? away : 0)]); },
    },
    string: {
      paint: TEAL, keys: ["basis", "distance", "carry"],
      now: () => { const side = (xs) => xs.map((x, n) => string(s.carry ? mix(x, s.basis, true) : x, rope(n), s.basis)); return softmax(side(q), side(k)); }, was: () => STRAIGHT.roped,
      left: () => map("; outline: RoPE"), right: () => "The 8 × 8 matrix P R(r) Pᵀ for the distance r = " + s.distance + "; blue > 0, orange < 0",
      draw: (canvas) => drawNumbers(canvas, matrix((x) => string(x, rope(s.distance), s.basis)), { across: "channel of k", down: "channel of q" }),
      controls: () => [slider("Basis P", "basis", (x) => (x ? percent(x) : "identity")), slider("Distance r", "distance", tokens), check("q and k follow the basis", "carry")],
      under: position(() => 0),
      says: (now, was) => { const full = matrix((x) => string(x, rope(s.distance), s.basis)).flat().filter((x) => Math.abs(x) > 1e-4).length; return full + " of the 64 entries of the matrix are above 0.0001 in absolute value. The largest difference between a weight and RoPE’s is " + points(apart(now, was)) + "." + (s.carry || !s.basis ? "" : " The weights differ because q and k are now rotated in other planes."); },
      share: (x) => { s.carry = true; s.basis = x; },
    },
    linear: {
      paint: BLUE, keys: ["copies"],
      now: () => plain, left: () => "Softmax: |" + count((N * 2 ** s.copies) ** 2) + " weights", right: () => "Linear attention: |72 numbers|, and the weights that they give",
      drawLeft: (canvas) => drawTiles(canvas, plain, BLUE), draw: (canvas) => drawTiles(canvas, kernel(fq, fk), SKY),
      controls: () => [slider("Repeat the sentence", "copies", (x) => "× " + 2 ** x)],
      under: () => "",
      says: () => { const n = N * 2 ** s.copies, top = best(plain[s.mark]); return "For n = " + n + " words, softmax has " + count(n * n) + " weights, and linear attention stores 8 × 8 + 8 = 72 numbers. In one sentence, " + which(s.mark) + " gives " + quoted(top) + " " + percent(plain[s.mark][top]) + " of its weight with softmax and " + percent(kernel(fq, fk)[s.mark][top]) + " with these features."; },
      share: (x) => { s.copies = Math.min(5, Math.floor(6 * x)); },
    },
    favor: {
      paint: ORANGE, keys: ["doublings"], arrive: () => { if (!estimate) { sampleAll(); } }, renew: sampleAll,
      now: () => estimate, was: () => plain, left: () => "Estimated weights (filled) and softmax weights (outline)", right: () => "Mean error of a weight, percentage points; one dot per draw; dashed: all weights 1/6",
      draw: (canvas) => drawErrors(canvas, ORANGE),
      controls: () => [slider("Features m", "doublings", (x) => count(2 ** x)), button("Draw again", sample, { primary: true }), button("Draw 20 times", () => range(20).forEach(sample))],
      under: () => "",
      says: () => { const m = 2 ** s.doublings, same = tries.filter(([n]) => n === m), mean = same.reduce((sum, [, e]) => sum + e, 0) / same.length; return "With m = " + count(m) + " features, the mean error of a weight in this draw is " + points(same.at(-1)[1]) + ". Over " + same.length + (same.length === 1 ? " draw" : " draws") + " the mean error is " + points(mean) + "."; },
      share: (x) => { const m = x < 0.5 ? 4 : 10; if (x === 0) { tries = []; } if (tries.length < 12 * x || m !== s.doublings || !tries.length) { s.doublings = m; sample(); } },
    },
    state: {
      paint: SKY, keys: ["read"], first: 2, reads: true,
      now: () => STRAIGHT.causal.map((row, m) => (m < s.read ? row : row.map(() => 0))),
      left: () => map(" (never stored)"), right: () => (s.read ? "State S + φ(k)vᵀ: φ(k) of " + quoted(s.read - 1) + " on the left, its v above" : "State S (8 × 8): empty"),
      draw: (canvas) => { const none = range(D).fill(0); drawNumbers(canvas, outer(fk, v, SIX.map((n) => Number(n < s.read))), { most: 3.2, across: "channel of v", down: "feature of k", side: s.read ? fk[s.read - 1] : none, above: s.read ? times(3, v[s.read - 1]) : none }); },
      controls: () => [button("Read the next word", () => { s.read = Math.min(N, s.read + 1); s.mark = s.read - 1; }, { primary: true, off: () => s.read === N })],
      under: (i) => (i < s.read ? "read" : ""),
      says: () => {
        if (!s.read) { return "No word has been read yet, so S and z are zero. Read the first word."; }
        const m = s.read - 1, past = range(s.read).map((n) => fk[n]), y = times(1 / dot(past.reduce(add), fq[m]), answer(outer(fk, v, SIX.map((n) => Number(n <= m))), fq[m]));
        return "After " + s.read + (s.read === 1 ? " word " : " words ") + quoted(m) + " reads its output from 72 numbers. The average of the values with the weights of its row is the same, with a largest difference of " + Math.max(...add(y, times(-1, average(STRAIGHT.causal[m], v))).map(Math.abs)).toFixed(6) + ".";
      },
      share: (x) => { s.read = Math.min(N, Math.floor(7 * x)); s.mark = Math.max(0, s.read - 1); },
    },
    decay: {
      paint: ORANGE, keys: ["weight", "gamma", "horizon"], first: 5,
      now: () => causal(factor), was: () => STRAIGHT.causal, left: () => map("; outline: without position weight"),
      right: () => ({ none: "State S after six words", decay: "State S after six words: × γ per word", cosine: "S as “mat” reads it: cos · S₁ + sin · S₂" })[s.weight],
      draw: (canvas) => drawNumbers(canvas, outer(fk, v, SIX.map((n) => factor(N - 1, n))), { most: 3.2, across: "channel of v", down: "feature of k" }),
      controls: () => [
        choice("weight", "Position weight", [["none", "None"], ["cosine", "Cosine"], ["decay", "Decay"]], controls),
        ...(s.weight === "decay" ? [slider("Decay γ", "gamma", (x) => x.toFixed(2))] : []),
        ...(s.weight === "cosine" ? [slider("Horizon M", "horizon", tokens)] : [])],
      under: (i) => (i > s.mark ? "" : "× " + factor(s.mark, i).toFixed(2)),
      says: () => ({
        none: "Every earlier word has its full weight at any distance. The state has 72 numbers.",
        decay: "In the output of “mat”, the weight of the first “the” is multiplied by " + s.gamma.toFixed(2) + "⁵ = " + (s.gamma ** 5).toFixed(3) + ". The state still has 72 numbers.",
        cosine: "In the output of “mat”, the weight of the first “the” is multiplied by cos(π · 5 / " + 2 * s.horizon + ") = " + cosine(5).toFixed(3) + ". Two states are needed, with 144 numbers.",
      })[s.weight],
      share: (x) => { if (s.weight !== "decay") { s.weight = "decay"; controls(); } s.gamma = 1 - 0.7 * x; },
    },
    delta: {
      paint: SKY, keys: ["written", "beta"], answers: true,
      now: () => answers(memories().delta), was: () => answers(memories().sum),
      left: () => "State S of the sum; blue > 0, orange < 0", right: () => "State S of the delta rule",
      drawLeft: (canvas) => drawNumbers(canvas, memories().sum, { across: "channel of v", down: "channel of k" }),
      draw: (canvas) => drawNumbers(canvas, memories().delta, { across: "channel of v", down: "channel of k" }),
      controls: () => [slider("Pairs written", "written", (x) => x + " of 5"), slider("Rate β", "beta", (x) => x.toFixed(2))],
      under: (i) => (i < s.written ? "→ " + WORDS[i + 1] : ""),
      says: (now, was) => {
        const say = (row) => KINDS.map((i) => [WORDS[i], row[i]]).filter(([, x]) => x > 0.3).sort((a, b) => b[1] - a[1]).map(([word, x]) => "“" + word + "” " + decimal(x)).join(", ") || "nothing above 0.3";
        return "For the key of " + quoted(s.mark) + ", the sum retrieves " + say(was[s.mark]) + ", and the delta rule retrieves " + say(now[s.mark]) + ".";
      },
      share: (x) => { s.beta = 1; s.written = Math.min(5, Math.floor(6 * x)); },
    },
  };

  /* ---- the parts of the page ---- */

  const tabled = element("table"), status = element("p.live-hidden", { role: "status" }), said = element("p.live-said", { "aria-hidden": "true" });
  const strip = element("div.walk-strip", { role: "group", "aria-label": "The sentence: press a word to mark it" }), panel = element("div.walk-controls", { role: "group", "aria-label": "Controls of the figure" });
  const [left, right] = range(2).map(() => ({ caption: element("figcaption"), canvas: element("canvas", { role: "img" }), board: element("div.walk-board") }));
  const pieces = element("div.walk-pieces", { role: "group", "aria-label": "The patches" });
  [left, right].forEach(({ board, canvas }) => board.append(canvas));
  right.board.append(pieces);
  const words = SIX.map(() => element("button.walk-word", { type: "button" }, element("i", {}, element("u")), element("b"), element("s")));
  strip.append(...words);
  box.append(strip, element("div.walk-panels", {}, ...[left, right].map(({ caption, board }) => element("figure", {}, caption, board))), panel, said, status, element("div.live-hidden", {}, tabled)); // of a table that is clipped itself, Firefox shows the caption

  let name = "set", stop = STOPS.set, shown = plain, parts = [], target = 5, byHand = false;
  const names = () => stop.names || WORDS;

  function controls() {
    const focused = panel.contains(document.activeElement) && document.activeElement.textContent;
    const reset = button("Reset", () => { stop.keys.forEach((key) => { s[key] = first(key); }); s.mark = stop.first ?? 4; stop.renew?.(); controls(); });
    parts = [...stop.controls(), reset];
    panel.replaceChildren(...parts.map((part) => part.node));
    if (focused) { [...panel.querySelectorAll("button")].find((b) => b.textContent === focused)?.focus(); }
    panel.classList.toggle("walk-many", Boolean(stop.many));
  }

  function paintStrip(now, was) {
    strip.classList.toggle("walk-drags", Boolean(stop.drags));
    const empty = stop.reads && s.read === 0;
    words.forEach((node, i) => {
      const place = (j) => (stop.drags ? s.order.indexOf(j) : j), [word, number, note] = [node.querySelector("b"), node.querySelector("u"), node.querySelector("s")];
      const weight = empty ? 0 : now[place(s.mark)][place(i)], before = was ? was[place(s.mark)][place(i)] : 0;
      if (!node.classList.contains("walk-held")) { node.style.left = place(i) * 100 / N + "%"; }
      node.setAttribute("aria-pressed", i === s.mark && !empty);
      node.classList.toggle("walk-was", Boolean(was) && !empty);
      // the number is above the bar, or above the dashed line if that is in its way
      node.classList.toggle("walk-lift", before > weight - 0.02 && before < weight + (terse() ? 0.75 : 0.27));
      node.classList.toggle("walk-unread", Boolean(stop.reads) && i >= s.read);
      node.style.setProperty("--now", Math.max(0, weight));
      node.style.setProperty("--was", Math.max(0, before));
      word.textContent = names()[i];
      number.textContent = stop.answers ? decimal(weight) : weight === 0 ? "" : percent(weight);
      note.textContent = stop.under(i);
    });
  }

  function paint() {
    const now = stop.now(), was = stop.was ? stop.was() : null;
    if (!stop.stays || target === s.mark || target < 0) { target = best(now[s.mark]); }
    box.style.setProperty("--paint", stop.paint);
    paintStrip(now, was);
    [[left, stop.left], [right, stop.right]].forEach(([{ caption, canvas }, text]) => {
      const pieces = text(now, target).split("|");
      caption.replaceChildren(element("span", {}, ...pieces.map((piece, i) => (i === 1 ? element("b", {}, piece) : piece))));
      canvas.setAttribute("aria-label", pieces.join(""));
    });
    if (stop.drawLeft) { stop.drawLeft(left.canvas); } else {
      const order = stop.drags ? s.order : SIX;
      drawMap(left.canvas, shown, was, stop.paint, order.map((i) => names()[i]), stop.reads ? s.read - 1 : order.indexOf(s.mark));
    }
    stop.draw(right.canvas, now, target);
    right.board.classList.toggle("walk-dial", Boolean(stop.dial));
    pieces.hidden = !stop.pieces;
    [...pieces.children].forEach((piece, i) => {
      const [row, column] = s.cells[i];
      Object.assign(piece.style, { top: 100 * row / GRID + "%", left: 100 * column / GRID + "%" });
      piece.setAttribute("aria-pressed", i === s.mark);
      piece.setAttribute("aria-label", "Patch " + (i + 1) + ", row " + row + ", column " + column);
    });
    parts.forEach((part) => part.show());
    said.textContent = stop.says(now, was);
    rest();
  }

  /* The map glides from what was shown to what is now. */
  const update = lazily(() => {
    const now = stop.now();
    shown = calm.matches || apart(shown, now) < 0.003 ? now : shown.map((row, m) => row.map((x, n) => x + (now[m][n] - x) * 0.3));
    paint();
    if (shown !== now) { update(); }
  });
  const changed = () => { byHand = true; update(); };

  /* Once nothing moves: what is shown in words and as a table, and in the address if a hand made it. */
  const told = () => Object.fromEntries([["stop", name], ["mark", s.mark], ...stop.keys.map((key) => [key, JSON.stringify(s[key])])]);
  const rest = atRest(() => {
    const now = stop.now(), order = stop.drags ? s.order : SIX, row = (head, cells) => element("tr", {}, element("th", { scope: "row" }, head), ...cells);
    status.textContent = said.textContent;
    tabled.replaceChildren(
      element("caption", {}, stop.answers ? "Output for the key of each word: its dot product with each value" : "Attention weights: each row attends to the columns"),
      element("tr", {}, element("td"), ...order.map((i) => element("th", { scope: "col" }, names()[i]))),
      ...order.map((i, m) => row(names()[i], now[m].map((x) => element("td", {}, element("data", { value: x }, stop.answers ? decimal(x) : percent(x)))))));
    if (byHand) { keep("walk", told()); }
    box.dataset.rested = JSON.stringify(told());
  });

  function go(to) {
    if (to === name && parts.length) { return; }
    if (stop.drags) { s.order = first("order"); }
    name = to;
    stop = STOPS[to];
    s.mark = stop.first ?? 4;
    if (stop.reads) { s.read = first("read"); }
    byHand = false;
    target = -1;
    box.scrollTop = 0; // where the window is low, a little of the figure is scrolled to
    stop.arrive?.();
    controls();
    update();
  }

  /* ---- hands ---- */

  const SIDEWAYS = { ArrowLeft: -1, ArrowRight: 1 }, ARROWS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  function mark(i) { s.mark = i; if (stop.reads) { s.read = i + 1; } target = -1; changed(); }
  function place(i, to) { const from = s.order.indexOf(i), end = Math.min(N - 1, Math.max(0, to)); if (from !== end) { s.order.splice(from, 1); s.order.splice(end, 0, i); changed(); } }

  words.forEach((node, i) => {
    let began = null, dragged = false;
    node.addEventListener("pointerdown", (event) => { dragged = false; if (stop.drags) { began = event.clientX; node.setPointerCapture(event.pointerId); } });
    node.addEventListener("pointermove", (event) => {
      if (began === null || (!dragged && Math.abs(event.clientX - began) < 6)) { return; }
      dragged = true;
      const frame = strip.getBoundingClientRect(), x = (event.clientX - frame.left) / frame.width;
      node.classList.add("walk-held");
      node.style.left = 100 * Math.min(1 - 1 / N, Math.max(0, x - 0.5 / N)) + "%";
      place(i, Math.floor(x * N));
    });
    const drop = () => { began = null; node.classList.remove("walk-held"); update(); };
    node.addEventListener("pointerup", drop);
    node.addEventListener("pointercancel", drop);
    node.addEventListener("click", () => { if (!dragged) { mark(i); } dragged = false; });
    node.addEventListener("keydown", (event) => {
      const by = SIDEWAYS[event.key];
      if (!by) { return; }
      event.preventDefault();
      if (stop.drags) { place(i, s.order.indexOf(i) + by); } else { words[(i + by + N) % N].focus(); mark((i + by + N) % N); }
    });
  });

  SIX.forEach((i) => {
    const piece = element("button", { type: "button", onclick: () => mark(i) });
    const put = (cell) => { if (inside(cell) && !s.cells.some((other) => String(other) === String(cell))) { s.cells[i] = cell; changed(); } };
    piece.addEventListener("pointerdown", (event) => { piece.setPointerCapture(event.pointerId); mark(i); });
    piece.addEventListener("pointermove", (event) => {
      if (!piece.hasPointerCapture(event.pointerId)) { return; }
      const frame = right.canvas.getBoundingClientRect();
      put([(event.clientY - frame.top) / frame.height, (event.clientX - frame.left) / frame.width].map((x) => Math.floor(x * GRID)));
    });
    piece.addEventListener("keydown", (event) => {
      const by = ARROWS[event.key];
      if (by) { event.preventDefault(); put(add(s.cells[i], by)); }
    });
    pieces.append(piece);
  });

  /* A dial is a handle: rotating pair 1 or 2 moves the sentence. */
  let held = -1, last = 0;
  const pointed = (event) => { const frame = right.canvas.getBoundingClientRect(); return [event.clientX - frame.left, event.clientY - frame.top]; };
  const angle = (event, i) => { const [x, y] = pointed(event), [cx, cy] = dialCentre(i, right.canvas.clientWidth); return Math.atan2(cy - y, x - cx); };
  right.canvas.addEventListener("pointerdown", (event) => {
    const [x, y] = pointed(event), half = right.canvas.clientWidth / 2;
    if (!stop.dial || y > half) { return; } // pairs 3 and 4 rotate too slowly for a hand
    held = Number(x > half);
    last = angle(event, held);
    right.canvas.setPointerCapture(event.pointerId);
  });
  right.canvas.addEventListener("pointermove", (event) => {
    if (held < 0) { return; }
    const now = angle(event, held), by = Math.atan2(Math.sin(now - last), Math.cos(now - last));
    last = now;
    s.moved = Math.min(100, Math.max(0, s.moved + by / STANDARD[held]));
    changed();
  });
  ["pointerup", "pointercancel"].forEach((kind) => right.canvas.addEventListener(kind, () => { held = -1; }));

  /* ---- "Show me" does once what the reader is asked to do ---- */

  const SHOW_MS = 4000;
  let showing = 0, left_from = null;
  function show(to) {
    go(to);
    cancelAnimationFrame(showing);
    const begun = performance.now(), run = (time) => {
      const x = calm.matches ? 1 : Math.min(1, Math.max(0, time - begun) / SHOW_MS);
      stop.share(x);
      changed();
      showing = x < 1 && name === to ? requestAnimationFrame(run) : 0;
    };
    if (calm.matches) { stop.share(0); }
    run(begun);
  }
  ["pointerdown", "keydown"].forEach((kind) => box.addEventListener(kind, () => cancelAnimationFrame(showing)));

  const sections = [...document.querySelectorAll("[data-stop]")].map((mark) => ({ to: mark.dataset.stop, section: mark.closest("section") }));
  sections.forEach(({ to, section }) => {
    const into = element("button.walk-into", { type: "button", onclick: () => { left_from = into; panel.querySelector("button, input").focus({ preventScroll: true }); } }, "To the controls");
    section.querySelector(".walk-try").append(element("p.walk-buttons", {}, element("button", { type: "button", onclick: () => show(to) }, "Show me"), into));
  });
  box.addEventListener("keydown", (event) => { if (event.key === "Escape") { left_from?.focus(); } });

  /* ---- scrolling; in a chapter, where there are no sections, the page says which stop it is ---- */

  if (!sections.length) { box.append(element("p.walk-buttons", {}, element("button", { type: "button", onclick: () => show(name) }, "Show me"))); }

  function where() {
    if (!sections.length) { return; }
    const limit = innerHeight * (upright.matches ? 0.2 : 0.45);
    go((sections.findLast(({ section }) => section.getBoundingClientRect().top < limit) || sections[0]).to);
  }
  addEventListener("scroll", lazily(where), { passive: true });
  follow(box, update);

  const from = asked("walk");
  if (from && from.get("stop") in STOPS) {
    go(from.get("stop"));
    ["mark", ...stop.keys].forEach((key) => { if (from.has(key)) { s[key] = taken(key, from.get(key)); } });
    stop.arrive?.();
    controls();
    sections.find(({ to }) => to === name)?.section.scrollIntoView({ behavior: "instant" });
    if (stop.reads && s.read) { s.mark = s.read - 1; }
    update();
  } else { where(); }
}, () => null);
