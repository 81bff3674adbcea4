/* What is copied has its formulas in TeX, between dollars. */
addEventListener("copy", event => {
  const selection = getSelection();
  if (selection.isCollapsed || !event.clipboardData) { return; }
  const range = selection.getRangeAt(0).cloneRange();
  const formula = node => (node.nodeType === Node.ELEMENT_NODE ? node : node.parentElement).closest("math");
  const [first, last] = [formula(range.startContainer), formula(range.endContainer)];
  if (first) { range.setStartBefore(first); }
  if (last) { range.setEndAfter(last); }
  const part = range.cloneContents();
  const formulas = part.querySelectorAll("math");
  if (!formulas.length) { return; }
  for (const one of formulas) {
    const dollars = one.getAttribute("display") === "block" ? "$$" : "$";
    one.replaceWith(dollars + one.querySelector("annotation").textContent + dollars);
  }
  event.clipboardData.setData("text/plain", part.textContent);
  event.preventDefault();
});
