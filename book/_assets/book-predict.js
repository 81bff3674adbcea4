/* Predictions and questions that a reader can answer, and a page that knows its reader: what was
   chosen, written and read is kept on this machine alone. */
(function () {
  "use strict";

  const KEY = "book-reader";
  const path = location.pathname.split("/").slice(-2).join("/");
  const empty = () => ({ guesses: {}, answers: {}, read: {}, last: null });

  // a private window may keep nothing
  function kept() {
    try { return Object.assign(empty(), JSON.parse(localStorage.getItem(KEY))); } catch { return empty(); }
  }
  function keep(change) {
    const known = kept();
    change(known);
    try { localStorage.setItem(KEY, JSON.stringify(known)); } catch { return; }
  }

  // of guesses or of answers: what this page's reader said, by the number of the box
  function said(kind, number) { return (kept()[kind][path] || {})[number]; }
  function say(kind, number, what) {
    keep(function (known) { (known[kind][path] = known[kind][path] || {})[number] = what; });
  }

  /* ---- a list of which one point can be chosen, once ---- */

  // reveal() shows what waits for the choice
  function choose(list, kind, number, label, reveal) {
    const choices = Array.from(list.children), right = choices.findIndex((point) => point.matches(".book-right"));
    const before = said(kind, number), told = document.createElement("p");
    const words = (choices[right].querySelector(":scope > p") || choices[right]).cloneNode(true).childNodes; // with its formulas
    let arrow = false; // the key that is down

    function tell(chosen) {
      if (chosen === right) { told.textContent = "Right. The explanation is below."; }
      else { told.replaceChildren("Not right. The answer is: ", ...words, ". The explanation is below."); }
      list.querySelectorAll("input").forEach((radio) => { radio.disabled = true; });
      reveal();
    }
    function commit(chosen) {
      say(kind, number, chosen);
      const held = list.contains(document.activeElement);
      tell(chosen);
      if (held) { told.focus({ preventScroll: true }); } // a disabled radio cannot keep it
    }

    list.classList.add("book-guess");
    list.setAttribute("role", "radiogroup");
    list.setAttribute("aria-label", label);
    ["keyup", "pointerdown"].forEach((event) => list.addEventListener(event, () => { arrow = false; }));
    choices.forEach(function (point, index) {
      const name = document.createElement("label"), radio = document.createElement("input");
      radio.type = "radio";
      radio.name = `${kind}-${number}`;
      radio.checked = before === index;
      radio.addEventListener("click", function () { // an arrow key clicks too
        if (arrow) { told.textContent = "Press Enter or Space to confirm your choice."; } else { commit(index); }
      });
      radio.addEventListener("keydown", function (event) {
        arrow = event.key.startsWith("Arrow");
        if (event.key !== "Enter" && event.key !== " ") { return; }
        event.preventDefault();
        radio.checked = true;
        commit(index);
      });
      name.append(radio, ...point.childNodes);
      point.setAttribute("role", "presentation");
      point.append(name);
    });
    told.className = "book-told-right";
    told.setAttribute("role", "status");
    told.tabIndex = -1;
    list.after(told);
    if (before !== undefined) { tell(before); }
  }

  function mark(list) { list.querySelector(":scope > .book-right").classList.add("book-shown"); }

  /* ---- predictions: the answer waits for a choice among the points of the box's list ---- */

  document.querySelectorAll(".admonition.predict").forEach(function (box, number) {
    const list = box.querySelector("ul"), skip = document.createElement("button");
    let answer = box.nextElementSibling;
    while (!answer.matches(".book-answer")) { answer = answer.nextElementSibling; }

    function reveal() {
      answer.removeAttribute("hidden");
      mark(list);
      skip.remove();
      dispatchEvent(new Event("resize")); // figures and wide boxes measure themselves
    }

    answer.setAttribute("hidden", "until-found");
    answer.addEventListener("beforematch", reveal);
    skip.type = "button";
    skip.textContent = "Show the answer";
    skip.addEventListener("click", reveal);
    list.after(skip);
    choose(list, "guesses", number, "Your prediction", reveal);
    addEventListener("beforeprint", reveal);
  });

  /* ---- questions: a choice, or a number that may be tried again; the fold that says why opens ---- */

  // 10,000 and 3/4 and −2 are numbers too
  function value(text) {
    const plain = text.replace(/\u2212/g, "-").replace(/\s/g, "");
    const parts = (/^[+-]?\d{1,3}(,\d{3})+(\.\d*)?$/.test(plain) ? plain.replace(/,/g, "") : plain).split("/");
    return parts.length > 2 || parts.includes("") ? NaN : parts.map(Number).reduce((above, below) => above / below);
  }

  function verdict(text, answer, within) {
    const given = value(text), near = (number) => Math.abs(given - number) <= Math.max(within, 1e-9) * Math.abs(number);
    if (!Number.isFinite(given)) { return "Enter a number, for example 10,000, 3/4, −0.5 or 2e6."; }
    if (near(answer)) { return "Right. The explanation is below."; }
    if (near(-answer)) { return `${text} has the wrong sign.`; }
    if (near(2 * answer) || near(answer / 2)) { return `${text} is off by a factor of two.`; }
    return `${text} is too ${given < answer ? "small" : "large"}.`;
  }

  document.querySelectorAll(".book-question").forEach(function (box, number) {
    const asked = box.querySelector(".book-asked"), fold = box.querySelector(".book-why");
    const list = asked.querySelector(":scope > ul"), show = fold.querySelector("summary"), about = fold.dataset;

    box.setAttribute("role", "group");
    box.setAttribute("aria-label", `Question ${number + 1}`);
    show.textContent = "Show the answer";
    fold.addEventListener("toggle", function () {
      show.textContent = fold.open ? "Hide the answer" : "Show the answer";
      if (fold.open && !about.answer) { mark(list); }
    });
    if (!about.answer) {
      choose(list, "answers", number, "Your answer", () => { fold.open = true; });
      return;
    }

    const form = document.createElement("form"), label = document.createElement("label"), field = document.createElement("input");
    const unit = document.createElement("span"), check = document.createElement("button"), told = document.createElement("output");
    function tell() {
      told.textContent = verdict(field.value.trim(), Number(about.answer), Number(about.within));
      if (told.textContent.startsWith("Right")) { fold.open = true; }
    }
    form.className = "book-number";
    form.autocomplete = "off";
    asked.id = `question-${number + 1}`;
    unit.id = `${asked.id}-unit`;
    unit.textContent = about.unit;
    field.inputMode = about.answer.startsWith("-") ? "text" : "decimal"; // some keyboards lack the sign
    field.value = said("answers", number) || "";
    field.required = true;
    field.setAttribute("aria-describedby", `${asked.id} ${unit.id}`);
    check.textContent = "Check";
    told.className = "book-told-right";
    told.setAttribute("role", "status");
    form.addEventListener("submit", function (event) {
      event.preventDefault();
      say("answers", number, field.value);
      tell();
    });
    label.append("Your answer ", field);
    form.append(label, unit, check, told);
    asked.after(form);
    if (field.value) { tell(); }
  });

  // a page that the browser kept as it was may have been forgotten meanwhile
  addEventListener("pageshow", function (event) {
    const known = kept();
    if (event.persisted && document.querySelector(".book-told-right:not(:empty)") && !known.guesses[path] && !known.answers[path]) {
      location.reload();
    }
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
    mark.title = "You have read this chapter up to its summary.";
    link.append(mark);
  });

  /* ---- the front page: where to go on, and how to forget ---- */

  const start = document.querySelector(".book-continue");
  if (start && known.last) {
    const link = document.createElement("a"), forget = document.createElement("button");
    const read = Object.keys(known.read).length, [guesses, answers] = [known.guesses, known.answers].map((all) => Object.values(all).flatMap(Object.values).length);
    link.href = "../" + known.last.path + "#" + known.last.section;
    link.textContent = `${known.last.title}: ${known.last.name}`;
    forget.type = "button";
    forget.textContent = "Delete these data";
    forget.addEventListener("click", function () {
      try { localStorage.removeItem(KEY); } catch { return; }
      start.hidden = true;
    });
    start.append("Continue with ", link, `. Chapters read to the end: ${read}; predictions made: ${guesses}; questions answered: ${answers}. These data are stored only in your browser. `, forget);
    start.hidden = false;
  }
})();
