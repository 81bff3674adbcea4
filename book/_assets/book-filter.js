/* A field that narrows a long list, the terms or the formulas, to what contains every word typed into
   it. Without script the list is whole. */
(function () {
  "use strict";

  const title = document.querySelector(".bd-article h1");
  const boxes = Array.from(document.querySelectorAll(".bd-article :is(.book-formula, dl.glossary > dd)"));
  if (!title || !boxes.length) { return; }

  // small letters, British spelling, an underscore as good as a blank
  function plain(text) { return text.toLowerCase().replace(/iz(?=e|ing|ation|er)/g, "is").replace(/[_\s]+/g, " "); }

  // a definition belongs to the names above it, a formula to its chapter
  const items = boxes.map(function (box) {
    const parts = [box], chapter = box.closest("section");
    while (box.matches("dd") && parts[0].previousElementSibling?.matches("dt")) {
      parts.unshift(parts[0].previousElementSibling);
    }
    const heading = box.matches("dd") ? "" : chapter.firstElementChild.textContent;
    return { parts, chapter, text: plain([heading, box.id, ...parts.map(p => p.textContent)].join(" ")) };
  });
  const chapters = Array.from(new Set(items.map(item => item.chapter))).filter(c => !c.contains(title));

  const bar = document.createElement("div"), label = document.createElement("label");
  const field = document.createElement("input"), count = document.createElement("output");
  bar.className = "book-filter";
  bar.setAttribute("role", "search");
  bar.setAttribute("aria-label", "Search in this list");
  field.type = "search";
  field.autocomplete = "off";
  label.append("Show only entries with", field);
  bar.append(label, count);
  let last = title;
  const holds = element => element.matches("section, dl") || boxes.some(box => element.contains(box));
  while (last.nextElementSibling && !holds(last.nextElementSibling)) { last = last.nextElementSibling; }
  last.after(bar);

  function show() {
    const words = plain(field.value).split(" ").filter(Boolean), seen = new Set();
    let found = 0;
    items.forEach(function (item) {
      const fits = words.every(word => item.text.includes(word));
      item.parts.forEach(function (part) { part.hidden = !fits; });
      if (fits) { found += 1; seen.add(item.chapter); }
    });
    chapters.forEach(function (chapter) { chapter.hidden = !seen.has(chapter); });
    count.textContent = words.length ? `${found} of ${items.length}` : "";
  }
  field.addEventListener("input", show);
  // a link to an entry shows it
  addEventListener("hashchange", function () {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target && target.closest("[hidden]")) { field.value = ""; show(); target.scrollIntoView(); }
  });
})();
