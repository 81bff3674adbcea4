/* Predictions that a reader can enter, once, and a page that knows its reader: what was chosen and
   read is kept on this machine alone. */
(function () {
  "use strict";

  const KEY = "book-reader";
  const path = location.pathname.split("/").slice(-2).join("/");
  const empty = () => ({ guesses: {}, read: {}, last: null });

  // a private window may keep nothing
  function kept() {
    try { return Object.assign(empty(), JSON.parse(localStorage.getItem(KEY))); } catch { return empty(); }
  }
  function keep(change) {
    const known = kept();
    change(known);
    try { localStorage.setItem(KEY, JSON.stringify(known)); } catch { return; }
  }

  /* ---- predictions: the answer waits for a choice among the points of the box's list ---- */

  const before = kept().guesses[path] || {};

  document.querySelectorAll(".admonition.predict").forEach(function (box, number) {
    const list = box.querySelector("ul");
    let answer = box.nextElementSibling;
    while (!answer.matches(".book-answer")) { answer = answer.nextElementSibling; }
    const choices = Array.from(list.children), right = choices.findIndex((point) => point.matches(".book-right"));
    const words = choices[right].textContent.trim();
    const told = document.createElement("p"), skip = document.createElement("button");

    let arrow = false; // the key that is down

    function reveal() {
      answer.removeAttribute("hidden");
      choices[right].classList.add("book-shown");
      skip.remove();
      dispatchEvent(new Event("resize")); // figures and wide boxes measure themselves
    }
    function tell(chosen) {
      told.textContent = chosen === right ? "Right. Read why." : `Not this, but: ${words}. Read why.`;
      list.querySelectorAll("input").forEach((radio) => { radio.disabled = true; });
      reveal();
    }
    function commit(chosen) {
      keep(function (known) { (known.guesses[path] = known.guesses[path] || {})[number] = chosen; });
      const held = list.contains(document.activeElement);
      tell(chosen);
      if (held) { told.focus({ preventScroll: true }); } // a disabled radio cannot keep it
    }

    answer.setAttribute("hidden", "until-found");
    answer.addEventListener("beforematch", reveal);
    list.classList.add("book-guess");
    list.setAttribute("role", "radiogroup");
    list.setAttribute("aria-label", "Your prediction");
    ["keyup", "pointerdown"].forEach((kind) => list.addEventListener(kind, () => { arrow = false; }));
    choices.forEach(function (point, index) {
      const label = document.createElement("label"), radio = document.createElement("input");
      radio.type = "radio";
      radio.name = "guess-" + number;
      radio.checked = before[number] === index;
      radio.addEventListener("click", function () { // an arrow key clicks too
        if (arrow) { told.textContent = "Enter or Space makes it your prediction."; } else { commit(index); }
      });
      radio.addEventListener("keydown", function (event) {
        arrow = event.key.startsWith("Arrow");
        if (event.key !== "Enter" && event.key !== " ") { return; }
        event.preventDefault();
        radio.checked = true;
        commit(index);
      });
      label.append(radio, ...point.childNodes);
      point.setAttribute("role", "presentation");
      point.append(label);
    });
    told.className = "book-told-right";
    told.setAttribute("role", "status");
    told.tabIndex = -1;
    skip.type = "button";
    skip.textContent = "Show me";
    skip.addEventListener("click", reveal);
    list.after(told, skip);
    addEventListener("beforeprint", reveal);
    if (number in before) { tell(before[number]); }
  });

  // a page that the browser kept as it was may have been forgotten meanwhile
  addEventListener("pageshow", function (event) {
    if (event.persisted && document.querySelector(".book-guess :disabled") && !kept().guesses[path]) { location.reload(); }
  });

  /* ---- where the reader is: the last section, chapters read to their summary, the sidebar ---- */

  const sidebar = document.querySelector(".bd-sidebar-primary"), here = sidebar && sidebar.querySelector("a.current, li.current > a");
  // on loading the theme leaves the sidebar as it stood on the page before
  if (here) {
    addEventListener("load", function () {
      const link = here.getBoundingClientRect(), seen = sidebar.getBoundingClientRect();
      if (link.top < seen.top || link.bottom > seen.bottom) {
        sidebar.scrollTop += link.top - seen.top - sidebar.clientHeight / 3;
      }
    });
  }

  const title = document.querySelector(".bd-article h1"), summary = document.getElementById("summary");
  if (summary && title) {
    const seen = new IntersectionObserver(function (entries) {
      entries.filter((entry) => entry.isIntersecting).forEach(function (entry) {
        keep(function (known) {
          known.last = { path, title: words(title), section: entry.target.id, name: words(entry.target.querySelector("h2")) };
          if (entry.target === summary) { known.read[path] = true; }
        });
      });
    }, { rootMargin: "-30% 0px -60% 0px" });
    document.querySelectorAll(".bd-article section > section:has(> h2)").forEach((section) => seen.observe(section));
  }

  function words(heading) {
    const copy = heading.cloneNode(true);
    copy.querySelectorAll(".headerlink").forEach((link) => link.remove());
    return copy.textContent.trim();
  }

  const known = kept();
  document.querySelectorAll(".bd-sidebar-primary a.reference.internal").forEach(function (link) {
    if (!known.read[link.pathname.split("/").slice(-2).join("/")]) { return; }
    const mark = document.createElement("span");
    mark.className = "book-read";
    mark.textContent = " ✓";
    mark.title = "read to its summary";
    link.append(mark);
  });

  /* ---- the front page: where to go on, and how to forget ---- */

  const start = document.querySelector(".book-continue");
  if (start && known.last) {
    const link = document.createElement("a"), forget = document.createElement("button");
    const read = Object.keys(known.read).length, guesses = Object.values(known.guesses).flatMap(Object.values).length;
    link.href = "../" + known.last.path + "#" + known.last.section;
    link.textContent = `${known.last.title}: ${known.last.name}`;
    forget.type = "button";
    forget.textContent = "Forget it all";
    forget.addEventListener("click", function () {
      try { localStorage.removeItem(KEY); } catch { return; }
      start.hidden = true;
    });
    start.append("Go on with ", link, `. Chapters read to the end: ${read}; predictions: ${guesses}. Only this browser knows. `, forget);
    start.hidden = false;
  }
})();
