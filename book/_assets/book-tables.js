/* Tables that sort: a button in each heading of a table of class book-sortable. Without this
   script they stand in the order of the page. */
(() => {
  const text = cell => cell.textContent.trim();

  /* What a cell counts as: its leading number, or its text. */
  function value(cell) {
    const found = text(cell).replace("−", "-").replace(/(\d),(?=\d)/g, "$1").match(/^[+-]?\d+(\.\d+)?/);
    return found ? Number(found[0]) : text(cell);
  }

  function compare(a, b) {
    if (typeof a === typeof b) { return typeof a === "number" ? a - b : a.localeCompare(b); }
    return typeof a === "number" ? -1 : 1;  // numbers before words
  }

  function sort(table, column, down) {
    const body = table.tBodies[0], rows = [...body.rows];
    const known = rows.filter(row => text(row.cells[column]) !== "–");
    const keys = new Map(known.map(row => [row, value(row.cells[column])]));
    known.sort((a, b) => (down ? -1 : 1) * compare(keys.get(a), keys.get(b)));
    body.append(...known, ...rows.filter(row => !keys.has(row)));  // no record: at the end
  }

  for (const table of document.querySelectorAll("table.book-sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach(other => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        sort(table, column, down);
      });
    });
    /* what scrolls can be reached by keyboard, and says what it is */
    const box = table.parentElement;
    if (!box.hasAttribute("tabindex")) { box.tabIndex = 0; }
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", text(table.caption ?? box.parentElement.querySelector("summary")));
  }
})();
