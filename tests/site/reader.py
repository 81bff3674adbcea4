"""A reader that opens pages offline and says what is wrong with them."""

from __future__ import annotations

import functools
import importlib
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe

from lab.explore import figure_json
from tests.figure_states import state_of

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_MS = 20_000
DESKTOP = {"viewport": {"width": 1280, "height": 900}}
PHONE = {
    "viewport": {"width": 390, "height": 844},
    "has_touch": True,
    "is_mobile": True,
}
WINDOWS = {"desktop": DESKTOP, "phone": PHONE}

FAULTS = (Path(__file__).parent / "faults.js").read_text(encoding="utf8")

STATE = """box => {
  const plot = box.querySelector(".book-plot");
  return JSON.stringify({data: plot._fullData.map((full, i) => {
    const shown = Object.assign({}, plot.data[i]);
    // the coordinates as plotly holds them, not as the page handed them over
    for (const k of ["x", "y", "z", "r", "theta"]) {
      if (Array.isArray(shown[k])) { shown[k] = full[k]; }
    }
    return shown;
  }), layout: plot.layout});
}"""
UNFOLD = """() => document.querySelectorAll("details:is(.book-advanced, .book-why)").forEach(
  d => { d.open = true; })"""
DRAWN = """box => {
  const link = box.querySelector(".book-link");
  const state = link ? link.getAttribute("href").replace(/^#fig=[^&]*&?/, "") : "";
  return box.querySelector(".book-plot").dataset.state === state;
}"""
DRESS = """async theme => {
  Object.assign(document.documentElement.dataset, {mode: theme, theme});
  const text = getComputedStyle(document.documentElement)
    .getPropertyValue("--pst-color-text-base").trim();
  const followed = plot => plot._fullLayout?.font.color === text;
  for (let i = 0; i < 120; i++) {  // what has not followed by then never will: see faults.js
    if ([...document.querySelectorAll(".book-plot")].every(followed)) { return; }
    await new Promise(done => setTimeout(done, 25));
  }
}"""
# axe-core does not read MathML, as screen readers do, but spends time on it; code and signatures
# whose kinds of words have all been on the page before say nothing new; and a colour on its way to
# another is taken for the colour
STILL = """() => {
  document.querySelectorAll("math").forEach(m => m.replaceWith("x"));
  const seen = new Set();
  document.querySelectorAll(".highlight pre, dt.sig").forEach(code => {
    const kinds = [...code.querySelectorAll("*")].map(word => word.tagName + "." + word.className);
    if (kinds.every(kind => seen.has(kind))) { code.replaceChildren(code.textContent); }
    kinds.forEach(kind => seen.add(kind));
  });
  const style = document.createElement("style");
  style.textContent = "*, ::before, ::after { transition: none !important; }";
  document.head.append(style);
}"""
# most of axe-core's seconds go into contrast: of texts that look alike, on grounds that are alike,
# it is to see three in all pages; where it looks at contrast alone the page is cut down to them, or
# else the others keep their places and their meaning
ALIKE = """([before, alone]) => {
  const grounds = new Map([[null, "page"]]), seen = new Map(Object.entries(before));
  const ground = element => {
    if (!grounds.has(element)) {
      const style = getComputedStyle(element), below = ground(element.parentElement);
      const own = [style.backgroundColor, style.backgroundImage, style.opacity, style.position];
      const plain = own.join() === "rgba(0, 0, 0, 0),none,1,static";
      grounds.set(element, plain ? below : [below, ...own].join());
    }
    return grounds.get(element);
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const spare = [], kept = new Set();
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!(element instanceof HTMLElement && texts.currentNode.data.trim())) { continue; }
    if (element.closest("script, style, noscript, option, textarea")) { continue; }
    if (!element.checkVisibility()) { continue; }
    const style = getComputedStyle(element);
    const look = [style.color, style.fontSize, style.fontWeight, style.display];
    const kind = [ground(element), ...look].join();
    seen.set(kind, (seen.get(kind) || 0) + 1);
    if (seen.get(kind) > 3) { spare.push(texts.currentNode); continue; }
    for (let e = element; e && !kept.has(e); e = e.parentElement) { kept.add(e); }
  }
  if (alone) {
    spare.splice(0).forEach(text => text.remove());
    document.querySelectorAll("body *").forEach(e => kept.has(e) || e.remove());
  }
  for (const text of spare) {
    const hidden = document.createElement("span");
    hidden.style.opacity = 0;
    text.replaceWith(hidden);
    hidden.append(text);
  }
  return Object.fromEntries([...seen].map(([kind, times]) => [kind, Math.min(times, 3)]));
}"""


CONTRAST = ["color-contrast"]
Place = Sequence[float]


def book() -> Path:
    """Return the folder of the built pages: $BOOK_HTML, or where `make book` puts them."""
    return Path(os.environ.get("BOOK_HTML") or ROOT / "_build" / "html").resolve()


def pages_of(root: Path) -> list[Path]:
    """Return every page of the book; the theme's snippets and the redirect are none."""
    found = [p for p in sorted(root.rglob("*.html")) if "_static" not in p.parts]
    return [p for p in found if 'http-equiv="refresh"' not in p.read_text(encoding="utf8").lower()]


class Reader:
    """A browser window without a network that collects a page's complaints."""

    def __init__(self, browser: Any, **options: Any) -> None:
        self.complaints: list[str] = []
        self.looks: dict[str, int] = {}  # of texts that axe-core has seen
        # Playwright waits with code that the policy of a page forbids
        self.context = browser.new_context(**{"bypass_csp": True, **options})
        self.context.route("**/*", self._route)
        self.context.set_offline(True)
        self.context.set_default_timeout(TIMEOUT_MS)
        self.page = self.context.new_page()
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.complaints.append(f"page error: {error}"))
        self.page.on("requestfailed", self._failed)

    def _route(self, route: Any) -> None:
        if route.request.url.startswith(("file:", "data:", "blob:")):
            route.continue_()
        else:
            self.complaints.append(f"asks the network for {route.request.url}")
            route.abort()

    def _console(self, message: Any) -> None:
        if message.type == "error":
            self.complaints.append(f"console error: {message.text}")

    def _failed(self, request: Any) -> None:
        # what the page was left before is not missing
        if request.url.startswith("file:") and request.failure != "net::ERR_ABORTED":
            self.complaints.append(f"cannot load {request.url}")

    def open(self, path: Path, fragment: str = "", *, draw: bool = True) -> None:
        """Open a page and wait until its letters are there and its figures are drawn.

        Args:
            path: The page.
            fragment: What stands behind its address.
            draw: Whether to draw all figures, which takes most of the time.
        """
        self.page.goto("about:blank")  # a fragment alone would load nothing
        self.complaints.clear()  # what the page before had not loaded when it was left
        self.page.goto(path.as_uri() + fragment, wait_until="load")
        self.page.evaluate(UNFOLD)
        for button in self.page.query_selector_all(".predict button"):
            button.click()  # what waits for a prediction
        self.page.evaluate("document.fonts.ready.then(() => null)")
        if draw:
            for box in self.figures():
                self.show(box)

    def figures(self) -> list[Any]:
        return list(self.page.query_selector_all(".book-figure"))

    def show(self, box: Any) -> None:
        """Scroll to a figure and wait until it is drawn."""
        box.scroll_into_view_if_needed()
        self.drawn(box)

    def drawn(self, box: Any) -> None:
        """Wait until a figure shows what its controls say."""
        self.page.wait_for_function(DRAWN, arg=box)

    def faults(self) -> list[str]:
        return self.complaints + list(self.page.evaluate(FAULTS))

    def dress(self, theme: str) -> None:
        """Switch to light or dark as the page's own button does, and let the figures follow."""
        self.page.evaluate(DRESS, theme)

    def barriers(self, *, contrast: bool = False) -> list[str]:
        """Return what axe-core finds to shut a reader out.

        Formulas and most of the text are not seen afterwards: it comes last.

        Args:
            contrast: Whether to look for contrast alone, and only if a text looks like none before.
        """
        self.page.evaluate(STILL)
        before, self.looks = self.looks, self.page.evaluate(ALIKE, [self.looks, contrast])
        if contrast and self.looks == before:
            return []
        told = {"resultTypes": ["violations"], **({"runOnly": CONTRAST} if contrast else {})}
        found = Axe().run(self.page, options=told).response["violations"]
        return [
            f"{fault['id']}: {node['html']:.120}: {node['failureSummary']}"
            for fault in found
            for node in fault["nodes"]
        ]

    def close(self) -> None:
        self.context.close()


def reload_until(page: Any, condition: str) -> None:
    """Load a page again until a JavaScript condition holds, ten times at most.

    Chromium hands on what one page stored to the next page only after a moment. A condition that
    something is gone must say that it is gone from the storage too, and that the page has read the
    storage: without this, the condition holds too early.
    """
    for _ in range(10):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(100)
        page.reload()


def middle(element: Any) -> list[float]:
    """Return where the middle of an element is."""
    box = element.bounding_box()
    return [box["x"] + box["width"] / 2, box["y"] + box["height"] / 2]


def straight(start: Place, end: Place, steps: int = 8) -> list[Place]:
    """Return places on the way from one place to another."""
    (x, y), (u, v) = start, end
    return [(x + (u - x) * i / steps, y + (v - y) * i / steps) for i in range(steps + 1)]


def drag(page: Any, path: Sequence[Place], *, finger: bool = False) -> None:
    """Press at the first place, go along the others and let go, with the mouse or a finger."""
    if finger:
        touch = page.context.new_cdp_session(page)
        for n, (x, y) in enumerate(path):
            event = {"type": "touchMove" if n else "touchStart", "touchPoints": [{"x": x, "y": y}]}
            touch.send("Input.dispatchTouchEvent", event)
        touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        touch.detach()
    else:
        page.mouse.move(*path[0])
        page.mouse.down()
        for place in path[1:]:
            page.mouse.move(*place)
        page.mouse.up()


def about(box: Any) -> dict[str, Any]:
    """Return the JSON that a figure's page carries."""
    figure: dict[str, Any] = json.loads(box.query_selector("script").text_content())
    return figure


def expected(figure: dict[str, Any], index: dict[str, int]) -> dict[str, Any]:
    """Return the state that a figure should show: computed anew where it can be."""
    explorer = figure["layout"]["meta"]["explorer"]
    if "source" not in explorer:
        return state_of(figure, index)
    values = {p["name"]: p["values"][index[p["name"]]] for p in explorer["parameters"]}
    return computed(explorer["source"], json.dumps(values))


@functools.lru_cache(maxsize=256)
def computed(source: str, values: str) -> dict[str, Any]:
    """Return what one of the book's figures draws; windows of every size ask for the same."""
    module, _, function = source.partition(":")
    drawn = getattr(importlib.import_module(module), function)(**json.loads(values))
    return figure_json(drawn.figure)


def differences(want: Any, got: Any, path: str = "") -> list[str]:
    """Return where ``got`` lacks something of ``want``; more is allowed in mappings only."""
    if isinstance(want, dict):
        if not isinstance(got, dict):
            return [f"{path}: expected a mapping, got {got!r}"]
        return [d for k in want for d in differences(want[k], got.get(k), f"{path}.{k}")]
    if isinstance(want, list):
        if not isinstance(got, list) or len(got) != len(want):
            return [f"{path}: expected {len(want)} values, got {got!r:.80}"]
        return [d for i, w in enumerate(want) for d in differences(w, got[i], f"{path}[{i}]")]
    if isinstance(want, float | int) and isinstance(got, float | int):
        # the page's own arithmetic is not rounded to six digits
        close = math.isclose(want, got, rel_tol=1e-5, abs_tol=1e-5)
        return [] if close else [f"{path}: expected {want}, got {got}"]
    return [] if want == got else [f"{path}: expected {want!r}, got {got!r}"]


def compare(box: Any, figure: dict[str, Any]) -> list[str]:
    """Return how a drawn figure differs from what its controls' values should give."""
    controls = box.query_selector_all(".book-control")
    index = {c.get_attribute("data-name"): int(c.get_attribute("data-index")) for c in controls}
    want, got = expected(figure, index), json.loads(box.evaluate(STATE))
    # the size is the page's, and margins grow to what labels need
    own = ("height", "width", "margin", "meta")
    layout = {k: v for k, v in want["layout"].items() if k not in own}
    for name, axis in layout.items():
        if isinstance(axis, dict) and axis.get("constrain") == "domain":
            # plotly fits it to the screen
            layout[name] = {k: v for k, v in axis.items() if k != "domain"}
    stale = [
        f".data[{i}] has {sorted(shown.keys() - full.keys())} which this state has not"
        for i, (shown, full) in enumerate(zip(got["data"], want["data"], strict=False))
        if shown.keys() - full.keys() - {"uid"}
    ]
    found = stale + differences(want["data"], got["data"], ".data")
    found += differences(layout, got["layout"], ".layout")
    name = figure["layout"]["meta"]["explorer"]["name"]
    return [f"{name} at {index}: {line}" for line in found[:5]]
