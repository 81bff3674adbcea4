/* What all instruments share: their programs, colours, canvases, and their state in the address.
   An instrument calls bookLive.add(name, begin); begin(box, programs, about) builds it. The
   programs, some hundred kilobytes, are asked for when the reader comes near. */
window.bookLive = (function () {
  "use strict";

  const HERE = document.currentScript.src;
  const REST_MS = 500; // an instrument has come to rest: it says what it shows, and keeps its state
  const redraws = [];

  function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

  /* An element: element("p.note", {id: "x"}, child, "text"). */
  function element(kind, attributes, ...children) {
    const [tag, ...classes] = kind.split("."), made = document.createElement(tag);
    if (classes.length) { made.className = classes.join(" "); }
    Object.entries(attributes || {}).forEach(([name, value]) => {
      if (name.startsWith("on")) { made.addEventListener(name.slice(2), value); } else { made.setAttribute(name, value); }
    });
    made.append(...children);
    return made;
  }

  /* A slider with its name and what it says: show(value, said) sets it. */
  function slider(label, from, to, changed) {
    const input = element("input", { type: "range", min: from, max: to, step: "any", "aria-label": label });
    const output = element("b");
    input.addEventListener("input", () => changed(Number(input.value)));
    const show = (value, said) => { input.value = value; output.textContent = said; input.setAttribute("aria-valuetext", said); };
    return { row: element("label.live-slider", {}, element("span", {}, label), input, output), show };
  }

  /* A canvas as sharp as the screen, cleared: [context, width, height] in CSS pixels. */
  function ready(canvas) {
    const sharp = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
    canvas.width = width * sharp;
    canvas.height = height * sharp;
    const pen = canvas.getContext("2d");
    pen.scale(sharp, sharp);
    pen.font = "12px " + getComputedStyle(document.body).fontFamily;
    return [pen, width, height];
  }

  /* Call draw before the next repaint, however often it is asked for. */
  function lazily(draw) {
    let waiting = false;
    return () => {
      if (waiting) { return; }
      waiting = true;
      requestAnimationFrame(() => { waiting = false; draw(); });
    };
  }

  /* Tell f when nothing has moved for a while. */
  function atRest(f) {
    let timer = 0;
    return () => { clearTimeout(timer); timer = setTimeout(f, REST_MS); };
  }

  /* The state of an instrument as the address has it, or else as the page has it, or null. */
  function asked(name) {
    const state = new URLSearchParams(location.hash.slice(1));
    if (state.get("live") === name) { return state; }
    const { first } = document.getElementById("live-" + name).dataset;
    return first ? new URLSearchParams(first) : null;
  }

  function keep(name, state) {
    history.replaceState(null, "", "#" + new URLSearchParams(Object.assign({ live: name }, state)));
  }

  /* Draw anew when the page changes its colours, or the box its width. */
  function follow(box, redraw) {
    redraws.push(redraw);
    new ResizeObserver(redraw).observe(box);
  }

  new MutationObserver(() => redraws.forEach((redraw) => redraw()))
    .observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });

  /* What a model of book/live/steps.py has read: a list of tokens, and the scores and states after each.
     All states share one cache, to which each step adds a row. */
  function reading(run, program, shapes) {
    const size = (shape) => shape.reduce((n, m) => n * m, 1), names = Object.keys(shapes);
    const grows = names.filter((name) => /_(keys|values)$/.test(name));
    const tokens = [], scores = [null], states = [{}];
    names.forEach((name) => { states[0][name] = new Float32Array(size(shapes[name])); });
    return {
      scores, states,
      /* Read one further token of those wanted; false if all are read. What differs is forgotten first. */
      async step(wanted) {
        const other = tokens.findIndex((token, i) => token !== wanted[i]), at = other < 0 ? tokens.length : other;
        tokens.length = at;
        scores.length = states.length = at + 1;
        if (at >= wanted.length) { return false; }
        const found = await run(program, Object.assign({ tokens: [wanted[at]], place: [at] }, states[at]));
        tokens.push(wanted[at]);
        scores.push(found.scores.data);
        states.push(Object.fromEntries(names.map((name) => [name, grows.includes(name) ? states[0][name] : found[name].data])));
        grows.forEach((name) => {
          const [room, wide] = shapes[name].slice(-2), row = found[name].data;
          for (let head = 0; head * wide < row.length; head++) {
            states[0][name].set(row.subarray(head * wide, (head + 1) * wide), (head * room + at) * wide);
          }
        });
        return true;
      },
      /* How many numbers the first layer keeps after so many tokens. */
      kept(length) {
        return names.filter((name) => name.startsWith("layer0_")).reduce((sum, name) =>
          sum + (grows.includes(name) ? size(shapes[name]) / shapes[name].at(-2) * length : size(shapes[name])), 0);
      },
    };
  }

  /* The same unit vector for the same word: normal numbers from a hash of its letters. */
  function vector(word, channels) {
    let h = 2166136261;
    for (const letter of word.toLowerCase()) { h = Math.imul(h ^ letter.codePointAt(0), 16777619); }
    const uniform = () => {
      h = (Math.imul(h ^ (h >>> 15), 2246822507) + 0x9e3779b9) | 0;
      const t = Math.imul(h ^ (h >>> 13), 3266489909);
      return ((t ^ (t >>> 16)) >>> 0) / 2 ** 32 || 1e-9;
    };
    const v = Array.from({ length: channels }, () => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform()));
    const size = Math.hypot(...v);
    return v.map((x) => x / size);
  }

  /* Words for a program with room for more: their vectors in its channels, and which places hold a word. */
  function vectors(list, most, channels, room = channels) {
    const places = Array.from({ length: most }, (_, i) => list[i]);
    return {
      words: places.flatMap((word) => (word ? vector(word, channels) : []).concat(Array(word ? room - channels : room).fill(0))),
      mask: places.map((word) => Number(word !== undefined)),
    };
  }

  function softmax(scores, temperature = 1) {
    const most = Math.max(...scores), e = Array.from(scores, (s) => Math.exp((s - most) / temperature));
    const sum = e.reduce((a, b) => a + b, 0);
    return e.map((v) => v / sum);
  }

  /* Ask for the programs of a script beside this one, and hand them over when they are there. */
  function ask(key, then) {
    const source = new URL("live-" + key + "-programs.js", HERE).href;
    document.head.append(element("script", { src: source, onload: () => then(window.bookPrograms[key]) }));
  }

  /* load makes programs of what was exported: bookRun.load, or bookRun.apart for a worker. */
  function add(name, begin, load = bookRun.load) {
    const box = document.getElementById("live-" + name);
    const start = (made) => {
      box.dataset.first = box.querySelector("[data-state]")?.dataset.state ?? "";
      box.replaceChildren(...box.querySelectorAll(".live-paper"));
      begin(box, load(made), made.about);
      box.dataset.ready = "";
    };
    new IntersectionObserver((entries, observer) => {
      if (!entries.some((entry) => entry.isIntersecting)) { return; }
      observer.disconnect();
      ask(name, start);
    }, { rootMargin: "600px 0px" }).observe(box);
    if (asked(name)) { // the page's own state is not there before it begins
      box.closest(".book-answer[hidden]")?.dispatchEvent(new Event("beforematch")); // it may wait for a prediction
      box.scrollIntoView({ block: "start" });
    }
  }

  return { add, ask, asked, atRest, colour, element, follow, keep, lazily, reading, ready, slider, softmax, vectors };
})();
