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

  /* The state of an instrument as the address has it, or null. */
  function asked(name) {
    const state = new URLSearchParams(location.hash.slice(1));
    return state.get("live") === name ? state : null;
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

  /* load makes programs of what was exported: bookRun.load, or bookRun.apart for a worker. */
  function add(name, begin, load = bookRun.load) {
    const box = document.getElementById("live-" + name);
    const start = () => {
      const made = window.bookPrograms[name];
      box.replaceChildren();
      begin(box, load(made), made.about);
      box.dataset.ready = "";
    };
    new IntersectionObserver((entries, observer) => {
      if (!entries.some((entry) => entry.isIntersecting)) { return; }
      observer.disconnect();
      document.head.append(element("script", { src: new URL("live-" + name + "-programs.js", HERE).href, onload: start }));
    }, { rootMargin: "600px 0px" }).observe(box);
    if (asked(name)) { box.scrollIntoView({ block: "start" }); }
  }

  return { add, asked, atRest, colour, element, follow, keep, lazily, ready, slider };
})();
