/* The switch that opens all code of a page, remembered for the whole book; folds that a link opens;
   and what the theme leaves out for those who do not see or do not point. */
(function () {
  "use strict";

  const KEY = "book-code";
  const folds = Array.from(document.querySelectorAll("details.book-code"));
  const title = document.querySelector(".bd-article h1");

  // a private window may keep nothing
  function kept() { try { return localStorage.getItem(KEY) === "all"; } catch { return false; } }
  function keep(all) { try { localStorage.setItem(KEY, all ? "all" : ""); } catch { return; } }

  if (folds.length && title) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "book-all";
    button.textContent = "Show all code";
    const show = function (all) {
      button.setAttribute("aria-pressed", String(all));
      folds.forEach(function (fold) { fold.open = all; });
    };
    button.addEventListener("click", function () {
      const all = button.getAttribute("aria-pressed") !== "true";
      keep(all);
      show(all);
    });
    title.after(button);
    show(kept());
  }

  /* ---- folded boxes: a link to one or into it opens it, and its button bears its title ---- */

  function openTarget() {
    const target = document.querySelector(":target");
    if (!target) { return; }
    const box = target.closest(".toggle-hidden"), shut = "details:is(.book-advanced, .book-method, .book-why):not([open])";
    const answer = target.closest(".book-answer[hidden]");
    const own = target.querySelector(":scope > " + shut);
    if (own) { own.open = true; }
    for (let fold = target.closest(shut); fold; fold = target.closest(shut)) { fold.open = true; }
    if (box) { box.querySelector(".toggle-button").click(); }
    if (answer) { answer.dispatchEvent(new Event("beforematch")); } // as a search in the page tells it
    target.scrollIntoView();
  }
  addEventListener("hashchange", openTarget);
  addEventListener("load", function () {
    document.querySelectorAll(".admonition-title > .toggle-button").forEach(function (button) {
      button.setAttribute("aria-label", button.parentElement.textContent.trim());
    });
    openTarget();
  });

  /* ---- the advanced sections, and answers: paper has all of it ---- */

  let shut = [];
  addEventListener("beforeprint", function () {
    shut = Array.from(document.querySelectorAll("details:is(.book-advanced, .book-why):not([open])"));
    shut.forEach(function (fold) { fold.open = true; });
  });
  addEventListener("afterprint", function () { shut.forEach(function (fold) { fold.open = false; }); });

  /* ---- names that the theme leaves out, or says otherwise than it shows them ---- */

  document.querySelectorAll(".search-button-field").forEach(function (field) { field.removeAttribute("aria-label"); });
  document.querySelectorAll(".has-children > details > summary").forEach(function (summary) {
    const link = summary.closest(".has-children").querySelector("a");
    summary.setAttribute("aria-label", "Pages of " + link.textContent.trim());
  });
  document.querySelectorAll(".bd-sidebar-primary").forEach(function (bar) {
    bar.setAttribute("role", "navigation");
    bar.setAttribute("aria-label", "Book");
  });

  // the role that docutils gives an entry is no longer one, and none of a list
  document.querySelectorAll("[role=doc-biblioentry]").forEach(function (entry) { entry.setAttribute("role", "listitem"); });

  // the corner of a table whose rows have names is no heading: a reader would be told of an empty one
  document.querySelectorAll(".bd-article th.head").forEach(function (corner) {
    if (corner.textContent.trim()) { return; }
    const cell = document.createElement("td");
    cell.className = corner.className;
    corner.replaceWith(cell);
  });

  // a long name in a table may break between its words
  document.querySelectorAll(".bd-article td :is(code .pre, code:not(:has(*)))").forEach(function (name) {
    const words = name.textContent.split(/(?<=[._])(?=\w)|(?<=[a-z])(?=[A-Z])/);
    name.replaceChildren(...words.flatMap(function (word, i) { return i ? [document.createElement("wbr"), word] : [word]; }));
  });

  // what scrolls sideways can be scrolled by keyboard, also what a fold or a prediction held back
  function scrollable() {
    const boxes = [...document.querySelectorAll(".bd-article :is(pre, table, p, li, dd, td, div.math, .book-numbers)")];
    // all are measured before one changes: a change between would have the page laid out anew for each
    boxes.filter(function (box) {
      return box.scrollWidth > box.clientWidth + 1 && /auto|scroll/.test(getComputedStyle(box).overflowX);
    }).forEach(function (box) { box.tabIndex = 0; });
  }
  addEventListener("load", scrollable);
  document.fonts.ready.then(scrollable);   // the letters of formulas come late
  addEventListener("resize", scrollable);
  document.addEventListener("toggle", scrollable, true);
})();
