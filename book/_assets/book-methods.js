/* The map of all methods: a button pressed lets only those rows stay that have what it says, and lays
   the marks of what it measures beside them, best first. The address keeps what is pressed, in order.
   Without this script all rows stand, with what they cost. */
(() => {
  const map = document.querySelector(".book-map");
  if (!map) { return; }
  const buttons = [...map.querySelectorAll(".book-needs button")], said = map.querySelector("[role=status]");
  const kinds = [...map.querySelectorAll(".book-kind")].map(box => ({
    box,
    title: box.querySelector(".rubric").textContent.toLowerCase(),
    rows: [...box.querySelectorAll(".book-method")],
    scales: [...box.querySelectorAll(".book-scale")].map(scale => scale.dataset.measure),
  }));
  const need = button => button.id.slice("need-".length);
  let pressed = [];

  function place(row, measure) {
    const mark = row.querySelector(`.book-mark[data-measure="${measure}"]`);
    return mark ? Number(mark.dataset.order) : Infinity;
  }

  function show() {
    buttons.forEach(button => button.setAttribute("aria-pressed", pressed.includes(need(button))));
    const counts = kinds.map(({ box, title, rows, scales }) => {
      const asked = pressed.findLast(key => scales.includes(key)), measure = asked || "cost";
      const order = asked ? [...rows].sort((a, b) => place(a, asked) - place(b, asked)) : rows;
      box.append(...order);
      for (const row of rows) {
        const has = row.dataset.has.split(" ");
        row.hidden = !pressed.every(key => has.includes(key));
      }
      for (const part of box.querySelectorAll("[data-measure]")) { part.hidden = part.dataset.measure !== measure; }
      const found = rows.filter(row => !row.hidden).length;
      box.hidden = !found;
      return found && `${found} of ${rows.length} ${title}`;
    });
    said.textContent = counts.filter(Boolean).join(", ") || "No method has all of these properties.";
  }

  function press(button) {
    const key = need(button), group = [...button.parentElement.querySelectorAll("button")].map(need);
    const other = pressed.filter(each => each !== key && !("one" in button.parentElement.dataset && group.includes(each)));
    pressed = pressed.includes(key) ? other : [...other, key];
    history.replaceState(null, "", `#need=${pressed.join(",")}`);
    show();
  }
  map.addEventListener("click", event => {
    const button = event.target.closest(".book-needs button");
    if (button) { press(button); }
  });

  /* A link to a choice presses its buttons, one to a row that is away brings all back. */
  function follow() {
    const asked = /^#need=(.*)/.exec(location.hash), known = buttons.map(need);
    if (asked) { pressed = decodeURIComponent(asked[1]).split(",").filter(key => known.includes(key)); }
    else if (map.querySelector(":target")?.hidden) { pressed = []; }
    else { return; }
    show();
    if (asked) {
      map.focus({ preventScroll: true });
      map.scrollIntoView();
    } else { map.querySelector(":target").scrollIntoView(); }
  }
  map.querySelector(".book-needs").hidden = false;
  show();
  follow();
  addEventListener("hashchange", follow);
})();
