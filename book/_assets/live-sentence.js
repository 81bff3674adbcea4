/* A sentence moves: book/live/sentence.py computes, this draws. It moves once by itself; then the
   reader moves it, by the slider or by a hand of a clock, or types another one. */
bookLive.add("sentence", (box, programs, about) => {
  "use strict";
  const { atRest, colour, element, follow, lazily, ready, slider, vectors } = bookLive;

  const PLAY_MS = 8000;
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const maps = (moved) => bookRun.run(programs.maps, { ...given, moved: [moved] });
  let words, given, start, moved = 0, playing = 0;

  const line = element("p.live-words", { "aria-hidden": "true" }), hands = element("span");
  const text = element("input", { type: "text", maxlength: "60", autocomplete: "off", spellcheck: "false" }), room = element("small");
  const dials = about.hands.map((speed) => element("canvas.live-dial", { role: "img" }));
  const shown = [["turned", "rotated"], ["added", "added"]].map(([name, said]) => ({ name, said, canvas: element("canvas.live-map", { role: "img" }), caption: element("figcaption") }));
  const said = element("p.live-said", { role: "status" });
  const move = slider("moved by", 0, about.farthest, (value) => go(value));
  const play = element("button", { type: "button", onclick: () => (playing ? stop() : run()) });
  box.append(
    element("label.live-text", {}, element("span.live-hidden", {}, "Your sentence"), text, room),
    line,
    element("div.live-maps", {}, ...shown.map(({ canvas, caption }) => element("figure", {}, caption, canvas))),
    element("p.live-note", {}, "Positions rotate queries and keys (left), or position vectors are added to the words (right). Each dial shows, for one pair of channels, by which angles ", hands, " are rotated. Drag a hand to move the sentence."),
    element("div.live-dials", {}, ...dials),
    move.row,
    element("div.live-foot", {}, play),
    said);

  /* ---- drawing ---- */

  const tokens = (value) => Math.round(value) + (Math.round(value) === 1 ? " token" : " tokens");
  const weight = (v) => Math.min(1, (2.2 * v) ** 0.75); // small ones are still seen

  function drawMap(canvas, values, paint) {
    const side = words.length, left = 38, cell = (canvas.clientWidth - left) / side;
    canvas.style.height = side * cell + "px";
    const [pen] = ready(canvas);
    values.forEach((value, i) => {
      const x = left + (i % side) * cell + 0.5, y = Math.floor(i / side) * cell + 0.5;
      pen.globalAlpha = 1;
      pen.fillStyle = colour("--pst-color-surface");
      pen.fillRect(x, y, cell - 1, cell - 1);
      pen.globalAlpha = weight(value);
      pen.fillStyle = paint;
      pen.fillRect(x, y, cell - 1, cell - 1);
    });
    pen.globalAlpha = 1;
    pen.fillStyle = colour("--pst-color-text-muted");
    pen.textAlign = "right";
    words.forEach((word, i) => pen.fillText(word.slice(0, 6), left - 5, (i + 0.5) * cell + 4, left - 5));
  }

  function drawDial(canvas, speed) {
    const [pen, wide, high] = ready(canvas), x = wide / 2, y = high / 2, radius = Math.min(x, y) - 5;
    pen.strokeStyle = colour("--pst-color-border");
    pen.beginPath(); pen.arc(x, y, radius, 0, 7); pen.stroke();
    pen.lineCap = "round";
    [[moved, 5, 1], [moved + words.length - 1, 2.5, 0.75]].forEach(([place, thick, length]) => {
      pen.lineWidth = thick;
      pen.strokeStyle = about.turned;
      pen.beginPath(); pen.moveTo(x, y);
      pen.lineTo(x + length * radius * Math.cos(speed * place), y - length * radius * Math.sin(speed * place));
      pen.stroke();
    });
    pen.lineWidth = 1;
    canvas.setAttribute("aria-label", "A dial with two hands. The angle between them is " + (speed * (words.length - 1)).toFixed(2) + " radians at every position of the sentence.");
  }

  /* the rows and columns of a map that belong to words */
  const of = (map) => Array.from(map.data).filter((_, i) => i % about.most < words.length && i < words.length * about.most);

  function draw() {
    const now = maps(moved);
    shown.forEach(({ name, said: how, canvas, caption }) => {
      const values = of(now[name]), first = of(start[name]);
      const most = 100 * Math.max(...values.map((value, i) => Math.abs(value - first[i])));
      const much = most < 0.05 ? "the same" : "± " + most.toFixed(0) + " points";
      drawMap(canvas, values, about[name]);
      caption.replaceChildren(how, element("b", {}, moved ? " " + much : ""));
      canvas.setAttribute("aria-label", "A heat map shows the attention weights, in a row for each word and a column for each word that it attends to, if positions are " + how + ". " + (much === "the same" ? "The weights are unchanged." : "The largest change of a weight is " + much.slice(2) + "."));
    });
    dials.forEach((canvas, i) => drawDial(canvas, about.hands[i]));
    line.querySelectorAll("small").forEach((place, i) => { place.textContent = Math.round(moved) + i; });
    move.show(moved, tokens(moved));
    play.textContent = playing ? "Stop" : "Move the sentence";
    said.dataset.next = "If the sentence is moved by " + tokens(moved) + ", all weights stay the same with rotated queries and keys. With added position vectors, "
      + shown[1].caption.querySelector("b").textContent.trim().replace("±", "some weights change by up to").replace("the same", "all weights stay the same, too") + ".";
  }

  /* ---- typing ---- */

  function read(typed) {
    const all = typed.trim().split(/\s+/).filter(Boolean);
    words = all.length ? all.slice(0, about.most) : ["…"];
    given = vectors(words, about.most, about.channels);
    start = maps(0);
    line.replaceChildren(...words.map((word) => element("span", {}, word, element("small"))));
    hands.textContent = words.length > 1 ? "“" + words[0] + "” (thick) and “" + words.at(-1) + "” (thin)" : "the queries and keys";
    room.textContent = all.length > about.most ? "only the first " + about.most + " words are used" : "";
  }

  text.addEventListener("input", () => {
    read(text.value);
    stop();
    rest();
  });

  /* ---- moving ---- */

  const redraw = lazily(draw);
  const rest = atRest(() => { said.textContent = said.dataset.next; });

  function go(value) {
    stop();
    moved = Math.min(about.farthest, Math.max(0, value));
    redraw();
    rest();
  }

  function stop() { cancelAnimationFrame(playing); playing = 0; redraw(); }

  function run() {
    const from = moved < about.farthest ? moved : 0, begun = performance.now();
    const step = (time) => {
      const share = Math.max(0, time - begun) / PLAY_MS, over = from + share * about.farthest;
      if (over >= about.farthest) { go(about.farthest); return; }
      moved = over;
      playing = requestAnimationFrame(step);
      draw();
    };
    playing = requestAnimationFrame(step);
  }

  dials.forEach((canvas, i) => {
    const angle = (event) => {
      const place = canvas.getBoundingClientRect();
      return Math.atan2(place.top + place.height / 2 - event.clientY, event.clientX - place.left - place.width / 2);
    };
    let last = 0;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      last = angle(event);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!canvas.hasPointerCapture(event.pointerId)) { return; }
      const now = angle(event), turned = Math.atan2(Math.sin(now - last), Math.cos(now - last));
      last = now;
      go(moved + turned / about.hands[i]);
    });
  });

  text.value = about.words.join(" ");
  read(text.value);
  follow(box, redraw);
  if (calm) { moved = 30; }
  draw();
  if (calm) { rest(); } else { run(); }
});
