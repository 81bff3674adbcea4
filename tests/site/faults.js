/* What is wrong with the page as it stands, one line each; see reader.py. */
() => {
  const found = [], root = document.documentElement, article = document.querySelector("article, [role=main]");
  const tex = /\\[()\[\]]|\\(?:begin|end|frac|mathbb|sum)\b|\$\$|\$[^\s$][^$\n]{0,200}\$/;
  const skip = "script, style, noscript, pre, code, textarea, svg, math";
  if (!article || article.innerText.trim().length < 40) { found.push("the page is empty"); }
  document.querySelectorAll(".math > code").forEach(e => found.push("a formula is not set: " + e.textContent));
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode());) {
    const match = tex.exec(node.data);
    if (match && !node.parentElement.closest(skip)) { found.push("unrendered TeX: " + match[0]); }
  }
  if (root.scrollWidth > root.clientWidth + 1) {
    const wide = [...document.querySelectorAll(".bd-article *")]
      .filter(e => e.getBoundingClientRect().right > root.clientWidth + 1).slice(0, 3)
      .map(e => e.tagName.toLowerCase() + "." + e.className + " " + e.textContent.trim().slice(0, 40));
    found.push("wider than the screen: " + root.scrollWidth + " px of " + root.clientWidth + "; " + wide.join(" | "));
  }
  document.querySelectorAll("article *").forEach(box => {
    if (box.scrollWidth <= box.clientWidth + 1 || !box.clientWidth || box.tabIndex >= 0) { return; }
    if (/auto|scroll/.test(getComputedStyle(box).overflowX)) {
      found.push("scrolls sideways, and not by keyboard: " + box.tagName.toLowerCase() + "." + box.className);
    }
  });
  if (matchMedia("(pointer: coarse)").matches) {
    document.querySelectorAll(":is(.bd-article, .bd-header) :is(button:not(.book-verdict), input, select, textarea, summary, [role=slider])").forEach(e => {
      // words in a sentence are as high as the sentence
      const { width, height } = (e.matches("[type=checkbox], [type=radio]") && e.closest("label") || e).getBoundingClientRect();
      if (e.checkVisibility() && width > 1 && height < 23.9) {
        found.push("lower than 24 px: " + e.tagName.toLowerCase() + "." + e.className + " in " + e.closest("[id]").id);
      }
    });
    article.querySelectorAll("p").forEach(p => {
      if (p.textContent.length > 80 && p.checkVisibility() && p.getBoundingClientRect().width < 250 && !p.closest("table, li, figure, .book-live")) {
        found.push("squeezed: " + p.textContent.trim().slice(0, 40));
      }
    });
  }
  document.querySelectorAll(".book-figure").forEach(box => {
    const plot = box.querySelector(".book-plot"), edge = plot.getBoundingClientRect();
    if (plot.dataset.state === undefined || !plot.data.length || !plot.querySelector(".main-svg")) {
      found.push(box.id + " is not drawn");
      return;
    }
    if (!plot.getAttribute("aria-label")) { found.push(box.id + " has no alternative text"); }
    const text = getComputedStyle(root).getPropertyValue("--pst-color-text-base").trim();
    if (plot._fullLayout.font.color !== text) { found.push(box.id + " has not followed the colour mode"); }
    plot.querySelectorAll("text").forEach(text => {
      const r = text.getBoundingClientRect();
      const over = [edge.left - r.left, r.right - edge.right, edge.top - r.top, r.bottom - edge.bottom];
      if (r.width && Math.max(...over) > 3) {
        found.push(box.id + " cuts off the text " + JSON.stringify(text.textContent));
      }
    });
  });
  return found;
}
