"""Six words, one head: the page computes what the package computes, and its text says no other."""

from __future__ import annotations

import gzip
import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import stringlib as sl
from book.live import walk
from tests.site.reader import DESKTOP, PHONE, ROOT, WINDOWS, Reader, drag, middle, straight
from tools.ledger import cells, pages

ASSETS = ROOT / "book" / "_assets"
TEXT = " ".join((ROOT / "book" / "walk.md").read_text(encoding="utf8").split())
STOPS = ["set", "absolute", "rope", "frequencies", "grid", "string", "linear"]
STOPS += ["favor", "state", "decay", "delta"]
START = torch.tensor([[r, c] for r in (1, 2, 3) for c in (1, 2)], dtype=torch.float64)
AWAY = torch.cat([START[:5], torch.tensor([[4.0, 4.0]])])
MOVED = torch.arange(6, dtype=torch.float64)[:, None] + 40
UNIT = torch.eye(6, dtype=torch.float64)
Q, K, V = walk.vectors()
OUTSIDE = """box => {
  const edge = box.getBoundingClientRect();
  const seen = x => x.getBoundingClientRect().width && !x.closest(".live-hidden");
  return [...box.querySelectorAll("*")].filter(seen).filter(x => {
    const r = x.getBoundingClientRect();
    return r.left < edge.left - 1 || r.right > edge.right + 1
      || r.top < edge.top - 1 || r.bottom > edge.bottom + 1;
  }).map(x => x.outerHTML.slice(0, 80));
}"""
SIDE = {"viewport": {"width": 844, "height": 390}, "has_touch": True, "is_mobile": True}


def heads(*xs: Tensor) -> list[Tensor]:
    return [x[None, None] for x in xs]


def softmax(q: Tensor, k: Tensor) -> Tensor:
    return sl.softmax_attention(*heads(q, k, UNIT))[0, 0]


def rotated(encoder: Any, positions: Tensor, q: Tensor = Q, k: Tensor = K) -> Tensor:
    return softmax(*(x[0, 0] for x in encoder(*heads(q, k), positions)))


def added(positions: Tensor) -> Tensor:
    p = sl.Sinusoidal(8)(torch.zeros(1, 6, 8, dtype=torch.float64), positions)[0]
    return softmax(Q + p, K + p)


def linear(weight: Any = None, *, causal: bool = True) -> Tensor:
    phi, (q, k, unit) = sl.ELUFeatures(), heads(Q, K, UNIT)
    return sl.linear_attention(phi(q), phi(k, False), unit, weight, causal=causal)[0, 0]


def basis(share: float) -> Tensor:
    """The basis P of the page, from its rotations of two channels."""
    transposed = torch.eye(8, dtype=torch.float64)
    for i, j, angle in walk.PLANES:
        plane = torch.eye(8, dtype=torch.float64)
        c, s = math.cos(share * angle), math.sin(share * angle)
        plane[i, i], plane[i, j], plane[j, i], plane[j, j] = c, -s, s, c
        transposed = plane @ transposed
    return transposed.T


def string(share: float, *, carry: bool) -> Tensor:
    p = basis(share)
    encoder = sl.STRING(sl.RoPE(8).frequencies(), p[None])
    q, k = (Q @ p.T, K @ p.T) if carry else (Q, K)
    return rotated(encoder, MOVED - 40, q, k)


def delta(beta: float, written: int = 5, *, add: bool = False) -> Tensor:
    """The answer to each key, as dot products with the values."""
    keys = K / K.norm(dim=-1, keepdim=True)
    k, v = heads(keys[:written], V[1 : written + 1])
    state = k.mT @ v
    if not add:
        _, state = sl.delta_rule(k, k, v, torch.full((1, 1, written), beta, dtype=torch.float64))
    return keys @ state[0, 0] @ V.T


def slow() -> Any:
    frequencies = sl.RoPE(8).frequencies().clone()
    frequencies[0, 0] = 0
    return sl.STRING(frequencies)


ORDER = [4, 0, 1, 5, 3, 2]
WANTED: dict[str, tuple[dict[str, Any], Callable[[], Tensor]]] = {
    "set": ({}, lambda: softmax(Q, K)),
    "set, order": ({"order": ORDER}, lambda: softmax(Q, K)[ORDER][:, ORDER]),
    "absolute": ({"moved": 40}, lambda: added(MOVED)),
    "rope": ({"moved": 40}, lambda: rotated(sl.RoPE(8), MOVED)),
    "frequencies": ({"theta": [0, 0.1, 0.01, 0.001]}, lambda: rotated(slow(), MOVED - 40)),
    "grid": (
        {"cells": AWAY.int().tolist()},
        lambda: rotated(sl.AxialRoPE(8, 2), AWAY, *walk.patch_vectors()),
    ),
    "string, carried": ({"basis": 0.7}, lambda: string(0.7, carry=True)),
    "string, kept": ({"basis": 0.7, "carry": False}, lambda: string(0.7, carry=False)),
    "state": ({"read": 6}, linear),
    "decay": (
        {"gamma": 0.6},
        lambda: linear(sl.DecayWeight(torch.tensor([math.log(0.6)], dtype=torch.float64))),
    ),
    "decay, cosine": ({"weight": "cosine"}, lambda: linear(sl.CosineWeight(8))),
    "delta": ({}, lambda: delta(1.0)),
    "delta, halfway": ({"beta": 0.5}, lambda: delta(0.5)),
}


class Figure:
    """The page in a window, at one of its stops."""

    def __init__(self, site: Path, browser: Any, page: str = "book/walk", **options: Any) -> None:
        self.path = site / f"{page}.html"
        self.reader = Reader(browser, reduced_motion="reduce", **options)
        self.page, self.box = self.reader.page, self.reader.page.locator("#live-walk")

    def show(self, stop: str, **state: Any) -> None:
        given = "".join(f"&{key}={json.dumps(value)}" for key, value in state.items())
        self.reader.open(self.path, f"#live=walk&stop={stop}{given}")
        self.rested(stop)

    def rested(self, stop: str = "", **state: Any) -> dict[str, Any]:
        """Wait until the figure says that it has come to rest in a state, and return it."""
        wanted = {"stop": stop} if stop else {}
        wanted |= {key: json.dumps(value, separators=(",", ":")) for key, value in state.items()}
        self.page.wait_for_function(
            """wanted => {
            const is = JSON.parse(document.getElementById("live-walk").dataset.rested || "{}");
            return Object.keys(wanted).every(key => String(is[key]) === wanted[key]);
            }""",
            arg=wanted,
        )
        return dict(json.loads(self.box.get_attribute("data-rested")))

    def table(self) -> Tensor:
        """The weights, from the table for who does not see them."""
        rows = self.box.locator("table tr").all()[1:]
        return torch.tensor(
            [[float(c.get_attribute("value")) for c in r.locator("data").all()] for r in rows],
            dtype=torch.float64,
        )

    def said(self) -> str:
        return str(self.box.locator(".live-said").inner_text())


@pytest.fixture(scope="module")
def figure(site: Path, browser: Any) -> Iterator[Figure]:
    opened = Figure(site, browser, **DESKTOP)
    yield opened
    opened.reader.close()


@pytest.mark.parametrize("case", WANTED)
def test_the_page_computes_what_the_package_computes(case: str, figure: Figure) -> None:
    state, wanted = WANTED[case]
    figure.show(case.partition(",")[0], **state)
    assert (figure.table() - wanted()).abs().max() < 1e-6
    assert not figure.box.locator("table.live-hidden").count(), "Firefox would show its caption"
    assert not figure.reader.complaints


def favor(m: int, draws: int = 200) -> float:
    """The mean error of a weight with independent random features, in percentage points."""
    exact, scale = softmax(Q, K), 8**-0.25
    q, k, unit = heads(Q * scale, K * scale, UNIT)
    errors = []
    for seed in range(draws):
        torch.manual_seed(seed)
        phi = sl.FavorFeatures(8, m, projection="iid", stabilize=False).double()
        found = sl.linear_attention(phi(q), phi(k, False), unit)[0, 0]
        errors.append((found - exact).abs().mean().item())
    return 100 * sum(errors) / draws


def test_random_features_err_as_the_package_says_and_fade_as_the_text_says(figure: Figure) -> None:
    figure.show("favor")
    few, some, many = (favor(m) for m in (4, 16, 1024))
    for _ in range(2):
        figure.box.get_by_role("button", name="Draw 20 times").click()
    figure.page.wait_for_function(
        "document.querySelector('#live-walk .live-said').innerText.includes('Over 51 draws')"
    )
    said = re.search(r"the mean error is (\d+\.\d+)", figure.said())
    assert said
    assert abs(float(said[1]) - some) < 0.8  # four standard errors
    assert "with 1,024 features it is about a fifth of the error with 4 features" in TEXT
    assert 0.17 < many / few < 0.23
    equal = 100 * (softmax(Q, K) - 1 / 6).abs().mean().item()
    assert "With 4 features the estimate is only a little better than equal weights" in TEXT
    assert 0.85 < few / equal < 1


def test_the_text_says_what_the_package_says() -> None:
    """Every number of the prose; those of the alternative text too."""
    plain, shifted = softmax(Q, K), rotated(sl.RoPE(8), MOVED)
    assert torch.equal(plain[0], plain[4])
    assert f'both give {plain[0, 1]:.0%} of their weight to "cat"' in TEXT
    assert f'and {plain[0, 5]:.0%} to "mat", and neither' in TEXT
    assert f'the first gives {shifted[0, 1]:.0%} of its weight to "cat", and' in TEXT
    assert f'the second gives {shifted[4, 5]:.0%} to "mat".' in TEXT
    assert f'{shifted[4, 5]:.0%} for "mat", {shifted[4, 1]:.0%} for "cat"' in walk.ROPE
    assert f"at most {shifted[4, [0, 2, 3, 4]].max():.0%} for each of the others" in walk.ROPE
    assert (shifted - rotated(sl.RoPE(8), MOVED - 40)).abs().max() < 1e-12
    assert (added(MOVED) - added(MOVED - 40)).abs().max() > 0.3
    assert (added(MOVED - 40)[0] - added(MOVED - 40)[4]).abs().max() > 0.05
    task = [*map(walk.WORDS.__getitem__, shifted.argmax(-1))]
    assert task == ["cat", "sat", "cat", "mat", "mat", "on"]
    assert [f"{f:g}" for f in sl.RoPE(8).frequencies().flatten()] == ["1", "0.1", "0.01", "0.001"]
    assert "1, 0.1, 0.01 and 0.001 radians per token" in TEXT
    still = rotated(slow(), MOVED)
    assert (still[4, [1, 5]] - plain[4, [1, 5]]).abs().max() < 0.01
    assert 8 * 9 < 9**2  # "from nine words on they are more", and with eight they are fewer
    assert 8 * 9 >= 8**2
    assert linear(causal=False).std() < plain.std() / 3  # "much flatter"
    keys = K / K.norm(dim=-1, keepdim=True)
    assert delta(1.0)[4, 5] > 0.99 > 0.1 > delta(1.0)[4, [0, 1, 2, 3]].abs().max()
    assert delta(1.0, add=True)[4, [1, 5]].min() > 0.99
    assert abs(delta(0.5)[4, 5] - (delta(0.5, 4)[4, 5] + 1) / 2) < 0.02  # halfway to the new value
    assert delta(1.0)[5].argmax() == 2  # "the strongest answer is sat"
    assert (keys[5] @ keys.T)[:5].argmax() == 1  # "similar to the key of cat"
    patches = rotated(sl.AxialRoPE(8, 2), START, *walk.patch_vectors())
    assert patches[1].argmax() == 3  # "patch 2 attends most to patch 4"
    assert patches[1, 3] > 0.5
    elsewhere = rotated(sl.AxialRoPE(8, 2), START + 1, *walk.patch_vectors())
    assert (patches - elsewhere).abs().max() < 1e-12
    assert (rotated(sl.AxialRoPE(8, 2), AWAY, *walk.patch_vectors()) - patches).abs().max() > 0.05
    assert ((V @ V.T)[[0, 1, 2, 3, 5]][:, [0, 1, 2, 3, 5]] - torch.eye(5)).abs().max() < 0.01


def test_the_walk_is_small() -> None:
    parts = [(ASSETS / f"live-walk.{kind}").read_bytes() for kind in ("js", "css")]
    parts.append(json.dumps(walk.data()).encode())
    assert sum(len(gzip.compress(part)) for part in parts) < 30_000


def test_hands_mouse_and_keys(figure: Figure) -> None:
    """Words, a dial, patches, a slider and buttons; the address brings each state back."""
    page, box = figure.page, figure.box
    figure.show("set")
    strip, word = box.locator(".walk-strip").bounding_box(), box.locator(".walk-word")
    before = box.locator("canvas").nth(1).screenshot()
    x, y = middle(word.nth(4))[0], word.nth(4).bounding_box()["y"] + 60
    drag(page, straight((x, y), (strip["x"] + strip["width"] * 0.08, y)))
    figure.rested("set", order=[4, 0, 1, 2, 3, 5])
    assert "has changed by 0.000" in figure.said()
    assert box.locator("canvas").nth(1).screenshot() == before  # the output stays
    word.nth(1).press("ArrowRight")
    word.nth(2).click()
    figure.rested("set", order=[4, 0, 2, 1, 3, 5], mark=2)
    address = page.url
    box.get_by_role("button", name="Reset").click()
    figure.rested("set", order=[0, 1, 2, 3, 4, 5], mark=4)
    page.goto("about:blank")
    page.goto(address)
    figure.rested("set", order=[4, 0, 2, 1, 3, 5], mark=2)

    figure.show("rope", moved=10)
    dial = box.locator("canvas").nth(1).bounding_box()
    x, y = dial["x"] + dial["width"] / 4, dial["y"] + dial["width"] * 0.22
    turn = [math.tau * i / 32 for i in range(33)]  # of pair 1
    drag(page, [(x + 40 * math.cos(angle), y - 40 * math.sin(angle)) for angle in turn])
    page.wait_for_function(
        "document.querySelector('#live-walk .live-said').innerText.includes('Moved by 16.3 tokens')"
    )
    assert "change of a weight is 0.0 percentage points" in figure.said()
    slider = box.get_by_role("slider")
    slider.press("Home")
    figure.rested("rope", moved=0)
    slider.press("ArrowRight")
    figure.rested("rope", moved=0.1)

    figure.show("grid")
    piece = box.locator(".walk-pieces button")
    box.get_by_role("button", name="All patches right").click()
    assert "Largest change of a weight since the start: 0.0" in figure.said()
    piece.nth(5).press("ArrowDown")
    figure.rested("grid", cells=[[1, 2], [1, 3], [2, 2], [2, 3], [3, 2], [4, 3]])
    assert "since the start: 0.0" not in figure.said()
    piece.nth(3).drag_to(box.locator("canvas").nth(1), target_position={"x": 9, "y": 9}, force=True)
    assert json.loads(figure.rested("grid", mark=3)["cells"])[3] == [0, 0]

    figure.show("state", read=0)
    assert "No word has been read yet" in figure.said()
    more = box.get_by_role("button", name="Read the next word")
    for _ in range(6):
        more.click()
    figure.rested("state", read=6)
    assert more.is_disabled()
    figure.show("decay")
    box.get_by_role("button", name="Cosine").click()
    assert page.evaluate("document.activeElement.textContent") == "Cosine"
    figure.rested("decay", weight="cosine")
    assert not figure.reader.complaints


def test_a_finger_drags_a_word_and_a_patch(site: Path, browser: Any) -> None:
    """A drag along the sentence moves the word; the page scrolls only where nothing is held."""
    figure = Figure(site, browser, **PHONE)
    figure.show("set")
    strip, word = figure.box.locator(".walk-strip").bounding_box(), figure.box.locator(".walk-word")
    start = middle(word.nth(4))
    drag(figure.page, straight(start, (strip["x"] + 10, start[1])), finger=True)
    figure.rested("set", order=[4, 0, 1, 2, 3, 5])
    figure.show("grid")
    board = figure.box.locator("canvas").nth(1).bounding_box()
    corner = board["x"] + board["width"] - 5, board["y"] + 5
    patch = figure.box.locator(".walk-pieces button").nth(5)
    drag(figure.page, straight(middle(patch), corner), finger=True)
    assert json.loads(figure.rested("grid", mark=5)["cells"])[5] == [0, 4]
    figure.reader.close()


def test_scrolling_passes_every_stop_and_keys_reach_the_controls(figure: Figure) -> None:
    figure.show("set")
    page, seen = figure.page, []
    page.evaluate("scrollTo(0, 0)")
    for top in page.evaluate(
        """[...document.querySelectorAll("[data-stop]")]
        .map(x => x.closest("section").getBoundingClientRect().top)"""
    ):
        page.mouse.move(300, 400)
        page.evaluate("top => scrollTo({top: top - 100, behavior: 'instant'})", top)
        page.wait_for_timeout(50)
        seen.append(
            page.evaluate("document.getElementById('live-walk').getBoundingClientRect().top")
        )
    assert max(seen) - min(seen) < 2  # the figure stays
    figure.rested("delta")
    for i, stop in enumerate(STOPS):
        page.locator(".walk-try").nth(i).get_by_role("button", name="Show me").press("Enter")
        figure.rested(stop)
    into = page.locator(".walk-into").nth(2)
    into.focus()  # the page scrolls there, and the figure goes to this stop
    figure.rested("rope")
    into.press("Enter")
    assert page.evaluate("document.activeElement.closest('.walk-controls') !== null")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.textContent") == "To the controls"


def test_an_address_may_say_anything(figure: Figure) -> None:
    figure.show("set", order=[9, 9], mark=40)
    figure.rested("set", order=[0, 1, 2, 3, 4, 5], mark=4)
    figure.show("linear", copies=40)
    figure.rested("linear", copies=2)
    figure.show("grid", cells=[[1, 1]] * 6)
    figure.rested("grid", cells=START.int().tolist())
    assert not figure.reader.complaints


@pytest.mark.parametrize(
    ("window", "theme"), [("desktop", "light"), ("phone", "dark"), ("side", "light")]
)
def test_every_stop_fits_and_shuts_nobody_out(
    window: str, theme: str, site: Path, browser: Any
) -> None:
    figure = Figure(site, browser, **{**WINDOWS, "side": SIDE}[window])
    for stop in STOPS:
        figure.show(stop)
        figure.reader.dress(theme)
        assert not figure.reader.faults(), stop
        box, size = figure.box.bounding_box(), figure.page.viewport_size
        inside = figure.box.evaluate(OUTSIDE)
        assert not inside or window == "side", stop  # where the figure scrolls in itself
        assert box["height"] <= size["height"] * (0.6 if window == "phone" else 1)
        if stop in ("frequencies", "grid", "delta"):
            assert not figure.reader.barriers(), stop
    figure.reader.close()


CHAPTERS = {
    found[1]: page.stem
    for page in pages(ROOT)
    for _, cell in cells(ROOT, page)
    if (found := re.search(r"\{walk-here\} (\S+)", cell["source"]))
}
"""State of the figure in an opening → one of the chapters that have it."""


@pytest.mark.parametrize("state", CHAPTERS)
def test_a_chapter_shows_the_figure_at_its_stop(state: str, site: Path, browser: Any) -> None:
    figure = Figure(site, browser, f"notebooks/{CHAPTERS[state]}", **DESKTOP)
    figure.page.goto(figure.path.as_uri())
    stop, *set_to = state.split("&")
    figure.rested(stop, **{k: json.loads(v) for k, v in (word.split("=") for word in set_to)})
    before = figure.box.get_attribute("data-rested")
    figure.box.get_by_role("button", name="Show me").click()
    if stop != "delta":  # which begins as "Show me" leaves it
        figure.page.wait_for_function(
            "rested => document.getElementById('live-walk').dataset.rested !== rested", arg=before
        )
    assert not figure.box.evaluate(OUTSIDE)
    assert not figure.reader.complaints
    figure.reader.close()


def test_without_javascript_the_walk_can_be_read(site: Path, plain: Any) -> None:
    plain.goto((site / "book" / "walk.html").as_uri())
    poster = plain.locator("#live-walk img")
    assert poster.get_attribute("alt").startswith("The figure at stop 3, RoPE,")
    parts = (plain.locator("article h1"), poster, plain.locator("article h2").first)
    places = [part.bounding_box()["y"] for part in parts]
    assert places == sorted(places)


def test_on_paper_the_walk_can_be_read(site: Path, browser: Any) -> None:
    figure = Figure(site, browser, **DESKTOP)
    figure.show("set")
    figure.page.emulate_media(media="print")
    assert figure.box.evaluate("box => getComputedStyle(box).position") == "static"
    assert not figure.page.locator(".walk-buttons").first.is_visible()
    figure.reader.close()


FIRST_MOVING = """() => Math.min(...[...document.querySelectorAll(".book-live, .book-figure")]
    .map(box => box.getBoundingClientRect()).filter(edge => edge.height > 40)
    .map(edge => edge.top + scrollY))"""


SCREENS = {"desktop": 1, "phone": 1.8}


def open_first_screen(page: Any, path: Path) -> None:
    """Open a chapter as far as its first section: the layout of the rest takes seconds."""
    text = path.read_text(encoding="utf8")
    end = [found.start() for found in re.finditer("<section id=", text)][1]
    page.route(
        path.as_uri(), lambda route: route.fulfill(body=text[:end], content_type="text/html")
    )
    page.goto(path.as_uri())


def test_each_chapter_has_a_figure_that_moves_on_its_first_screen(site: Path, browser: Any) -> None:
    reader, late = Reader(browser), {}
    for path in sorted((site / "notebooks").glob("[0-9]*.html")):
        open_first_screen(reader.page, path)
        for window, screens in SCREENS.items():
            size = WINDOWS[window]["viewport"]
            reader.page.set_viewport_size(size)
            top = reader.page.evaluate(FIRST_MOVING) / size["height"]
            if top > screens:
                late[path.stem, window] = top
    assert not late
    reader.close()
