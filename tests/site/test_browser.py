"""Every page in a browser without a network: what it shows, and what its figures do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.site.reader import (
    DESKTOP,
    PHONE,
    Reader,
    about,
    book,
    compare,
    drag,
    pages_of,
    reload_until,
    straight,
)
from tools.check_site import GENERATED

OF_EACH_KIND = ("notebooks/02_rope.html", "book/terms.html", "book/api/encoders.html")
"""Pages that are looked at on the phone for all barriers, not only contrast."""
ROPE, FRONT = "notebooks/02_rope.html", "book/intro.html"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test for each page: two workers share them."""
    if "page" in metafunc.fixturenames:
        names = [str(path.relative_to(book())) for path in pages_of(book())]
        metafunc.parametrize("page", names or ["index.html"])  # which is missed: see `site`


@pytest.fixture(scope="session")
def with_figures(pages: list[Path]) -> list[Path]:
    """The pages that have figures."""
    found = [p for p in pages if 'class="book-figure"' in p.read_text(encoding="utf8")]
    assert found, "the book shows no figure at all"
    return found


def sliders(box: Any) -> list[Any]:
    return [s for s in box.query_selector_all("input[type=range]") if s.is_visible()]


def choose(box: Any) -> Iterator[str]:
    """Choose, of every control that is no slider, the last value or the first; yield its name."""
    for control in box.query_selector_all(".book-control:not(.book-slider, [hidden])"):
        kind, name, at = (control.get_attribute(f"data-{key}") for key in ("kind", "name", "index"))
        values = control.query_selector_all("option" if kind == "list" else "input")
        there = 0 if int(at) == len(values) - 1 else len(values) - 1
        if kind == "list":
            control.query_selector("select").select_option(index=there)
        else:
            values[there].focus()
            values[there].press("Space")
        yield name


def picture(box: Any) -> str:
    return str(
        box.eval_on_selector(".book-plot", "plot => plot.querySelector('.main-svg').innerHTML")
    )


def drag_slider(reader: Reader, slider: Any, share: float) -> None:
    """Drag a slider's thumb to a share of its width, with the finger where there is one."""
    slider.scroll_into_view_if_needed()
    box = slider.bounding_box()
    value = int(slider.input_value()) / max(1, int(slider.get_attribute("max")))
    inset = 8  # half a thumb
    start, end = (
        (box["x"] + inset + s * (box["width"] - 2 * inset), box["y"] + box["height"] / 2)
        for s in (value, share)
    )
    finger = reader.page.evaluate("matchMedia('(pointer: coarse)').matches")
    drag(reader.page, straight(start, end, 6), finger=finger)


def move(reader: Reader, box: Any, *, drags: bool) -> tuple[list[str], int]:
    """Move a figure's controls and reset it: what is not as Python computes, how many were moved.

    Each slider goes by keyboard to an end where it does not stand. What a figure computes is
    compared at many more values without its page: see ``test_page_programs.py``.

    Args:
        reader: Whose window the figure is in.
        box: The figure.
        drags: Whether sliders go a step back from there too, and the first is dragged.
    """
    figure, moved = about(box), 0
    found = compare(box, figure)
    for slider in sliders(box):
        name, last = (slider.get_attribute(key) for key in ("name", "max"))
        keys, far = {"End": last, "ArrowLeft": str(int(last) - 1)}, 0.2
        if slider.input_value() == last:
            keys, far = {"Home": "0", "ArrowRight": "1"}, 0.8
        slider.focus()
        for key, want in [*keys.items()][: 2 if drags else 1]:
            slider.press(key)
            reader.drawn(box)
            if slider.input_value() != want:
                found.append(f"{key} gives {slider.input_value()}, not {want}")
            found += compare(box, figure)
        if drags and not moved:
            before, shown = slider.input_value(), picture(box)
            drag_slider(reader, slider, far if int(last) > 1 else 1 - int(before))
            reader.drawn(box)
            if slider.input_value() == before:
                found.append(f"dragging {name} did nothing")
            elif picture(box) == shown:
                found.append(f"{name} shows the same picture")
            found += compare(box, figure)
        text = slider.evaluate("s => s.previousElementSibling.textContent")
        if slider.get_attribute("aria-valuetext") != text:
            found.append(f"aria-valuetext is not what is shown, {text!r}")
        moved += 1
    for name in choose(box):
        reader.drawn(box)
        found += [f"{name}: {fault}" for fault in compare(box, figure)]
        moved += 1
    button = box.query_selector(".book-reset")
    if button:
        button.click()
        reader.drawn(box)
        found += compare(box, figure)
    return found, moved


POINT = """([box, name, handle, value]) => {
  const [, kind, panel, at] = /^(x|y|turn)(\\d*)(?: at (.+))?$/.exec(handle);
  const plot = box.querySelector(".book-plot"), corner = plot.getBoundingClientRect();
  const x = plot._fullLayout["xaxis" + panel], y = plot._fullLayout["yaxis" + panel];
  const turn = value * Math.PI / 180;
  const place = {
    x: [x.d2p(value), at ? y.d2p(Number(at)) : y._length / 2],
    y: [at ? x.d2p(Number(at)) : x._length / 2, y.d2p(value)],
    turn: [x.d2p(Math.cos(turn)), y.d2p(Math.sin(turn))],
  }[kind];
  return [corner.left + x._offset + place[0], corner.top + y._offset + place[1]];
}"""
ARC = """([box, panel, gone]) => {
  const plot = box.querySelector(".book-plot"), corner = plot.getBoundingClientRect();
  const x = plot._fullLayout["xaxis" + panel], y = plot._fullLayout["yaxis" + panel];
  const hands = plot.data.find(t => t.customdata && (t.xaxis || "x") === "x" + panel);
  const [left, right] = hands.x, [low, high] = hands.y;
  const start = Math.atan2(high - low, right - left);
  return Array.from({length: 9}, (_, i) => {
    const angle = start + gone * hands.customdata[0] * i / 8;
    return [corner.left + x._offset + x.d2p(left + 0.8 * Math.cos(angle)),
            corner.top + y._offset + y.d2p(low + 0.8 * Math.sin(angle))];
  });
}"""


def turn(reader: Reader, box: Any, name: str, values: list[float], panel: str) -> list[str]:
    """Turn the first dial of a panel by five units, in an arc: whether the parameter follows."""
    control = box.query_selector(f".book-control[data-name={name}]")
    before = values[int(control.get_attribute("data-index"))]
    gone = 5 if before + 5 <= values[-1] else -5
    drag(reader.page, reader.page.evaluate(ARC, [box, panel, gone]))
    now = values[int(control.get_attribute("data-index"))]
    return [] if now == before + gone else [f"{name} turned from {before} to {now}"]


def hold(reader: Reader, box: Any) -> list[str]:
    """Drag each thing that can be held to two values: what does not follow the pointer."""
    figure, mouse, found = about(box), reader.page.mouse, []
    box.scroll_into_view_if_needed()
    explorer = figure["layout"]["meta"]["explorer"]
    values = {p["name"]: p["values"] for p in explorer["parameters"]}
    for name, handle in explorer["drag"].items():
        if handle.startswith("hands"):
            found += turn(reader, box, name, values[name], handle.removeprefix("hands"))
            reader.drawn(box)
            found += compare(box, figure)
            continue
        control = box.query_selector(f".book-control[data-name={name}]")
        first, second = len(values[name]) // 3, len(values[name]) // 2
        # pressed at the first, let go at the second, it stays there
        for index, then, want in ((first, "down", first), (second, "up", second), (0, "", second)):
            mouse.move(*reader.page.evaluate(POINT, [box, name, handle, values[name][index]]))
            if then:
                getattr(mouse, then)()
            if control.get_attribute("data-index") != str(want):
                found.append(f"{name} is not {values[name][want]} under the pointer")
        reader.drawn(box)
        found += compare(box, figure)
    return found


def test_a_page_reads_well_and_its_sliders_draw_what_python_computes(
    readers: dict[str, Reader], site: Path, page: str
) -> None:
    """No error, nothing from the network, no raw TeX, nothing too wide, no barrier."""
    path = site / page
    found = []
    for window, reader in readers.items():
        reader.open(path)
        faults = [f"light: {fault}" for fault in reader.faults()]
        moved = 0
        for box in reader.figures():
            if moved and window == "phone":  # a finger moves one as it moves all
                faults += compare(box, about(box))
                continue
            wrong, count = move(reader, box, drags=not moved)
            faults += wrong
            moved += count
            if window == "desktop" and box.query_selector(".held"):
                faults += hold(reader, box)
        if moved:
            faults += [f"moved: {fault}" for fault in reader.faults()]
        elif 'class="book-panel"' in path.read_text(encoding="utf8"):
            faults.append("no control was found")
        if window == "desktop":
            reader.dress("dark")
            faults += [f"dark: {fault}" for fault in reader.faults()]
        faults += reader.barriers(contrast=window == "phone" and page not in OF_EACH_KIND)
        found += [f"{window}, {fault}" for fault in faults]
    # an index that Sphinx makes may have no entry
    found = [f for f in found if not (path.name in GENERATED and f.endswith("is empty"))]
    assert not found, "\n".join(found)


def test_a_state_is_in_the_address_and_comes_back_from_it(
    reader: Reader, with_figures: list[Path]
) -> None:
    path = with_figures[0]  # the same code serves every page
    reader.open(path, draw=False)
    box = next(b for b in reader.figures() if sliders(b))
    reader.show(box)
    slider = sliders(box)[0]
    slider.focus()
    slider.press("End")
    reader.drawn(box)
    link = box.query_selector(".book-link").get_attribute("href")
    reader.page.wait_for_function("hash => location.hash === hash", arg=link)
    shown = box.query_selector(".book-plot").get_attribute("aria-label")
    assert box.query_selector(".book-said").text_content() == shown
    before = about(box)["layout"]["meta"]["explorer"]["name"]

    reader.open(path, link, draw=False)
    again = reader.page.query_selector(f"#fig-{before}")
    reader.show(again)
    assert sliders(again)[0].input_value() == sliders(again)[0].get_attribute("max")
    assert not compare(again, about(again))
    assert not reader.complaints

    # and an address typed into an open page
    reader.page.evaluate(f"location.hash = '#fig={before}'")
    reader.page.wait_for_function(
        "id => document.querySelector(id).dataset.state !== undefined",
        arg=f"#fig-{before} .book-plot",
    )
    reader.drawn(again)
    initial = about(again)["layout"]["meta"]["explorer"]["parameters"]
    shown = [c.get_attribute("data-index") for c in again.query_selector_all(".book-control")]
    assert shown == [str(p["initial"]) for p in initial]


def test_play_runs_and_pauses(reader: Reader, site: Path) -> None:
    reader.open(site / ROPE, draw=False)
    box = next(b for b in reader.figures() if b.query_selector(".book-play"))
    reader.show(box)
    figure, button = about(box), box.query_selector(".book-play")
    slider = box.query_selector(f"input[name={figure['layout']['meta']['explorer']['play']}]")
    first = slider.input_value()
    button.click()
    assert button.text_content() == "Pause"
    reader.page.wait_for_function("([s, v]) => s.value !== v", arg=[slider, first])
    button.click()
    assert button.text_content() == "Play"
    stopped = slider.input_value()
    reader.page.wait_for_timeout(200)
    assert slider.input_value() == stopped
    reader.drawn(box)
    assert not compare(box, figure)

    # and from the end it begins again
    slider.press("End")
    button.click()
    assert int(slider.input_value()) < int(slider.get_attribute("max")) // 2
    button.click()


def test_figures_are_large_enough_for_a_finger(phone: Reader, with_figures: list[Path]) -> None:
    phone.open(with_figures[0])
    for element in phone.page.query_selector_all(".book-figure :is(input, button)"):
        if element.is_visible():
            assert element.bounding_box()["height"] >= 44


def test_nothing_covers_the_text_of_a_phone(site: Path, phone: Reader) -> None:
    """The theme shows "Back to top" when one scrolls up: in the middle, over cards and text."""
    phone.page.goto((site / "book" / "intro.html").as_uri())
    for place in (500, 1500, 2500, 2300, 2000, 1700):
        phone.page.evaluate("y => scrollTo({top: y, behavior: 'instant'})", place)
        phone.page.wait_for_timeout(100)
    covers = """[...document.querySelectorAll("body *")].filter(e => {
      const { left, right, top, bottom } = e.getBoundingClientRect();
      const seen = bottom > Math.max(0, top) && right > Math.max(0, left) && left < innerWidth;
      return seen && getComputedStyle(e).position === "fixed"
        && e.checkVisibility({ visibilityProperty: true });
    }).map(e => e.id || e.className)"""
    assert not phone.page.evaluate(covers)


GUESSES = "JSON.parse(localStorage.getItem('book-reader'))?.guesses"
CHOSEN = "document.querySelector('.predict input:disabled')"
START = "document.querySelector('.book-continue')"


def test_an_answer_waits_for_a_prediction_and_the_page_remembers_it(
    fresh: Reader, site: Path
) -> None:
    """By arrows every choice is reached without making another; what is made is kept once."""
    page = fresh.page
    page.goto((site / ROPE).as_uri())
    box, answer = (page.locator(name).first for name in (".predict", ".book-answer"))
    told, radios = box.locator("[role=status]"), box.locator("input")
    radios.first.focus()
    for _ in range(radios.count() - 1):
        page.keyboard.press("ArrowDown")
    assert radios.last.is_checked()
    assert answer.get_attribute("hidden") == "until-found"
    assert not answer.locator("p").first.is_visible()
    assert not page.evaluate(GUESSES)
    assert "Enter or Space" in told.inner_text()
    page.keyboard.press("Enter")
    assert told.inner_text().endswith("The explanation is below.")
    assert told.evaluate("told => told === document.activeElement")
    assert page.evaluate(GUESSES) == {ROPE: {"0": radios.count() - 1}}
    other = page.locator(".predict").nth(1)
    other.locator("input").first.focus()
    page.keyboard.press("Space")
    assert other.locator("[role=status]").inner_text().endswith("The explanation is below.")
    for _ in range(2):
        answer.locator("p").first.wait_for()  # until it is visible
        assert box.locator("input:disabled").count() == radios.count()
        assert radios.last.is_checked()
        page.reload()
        reload_until(page, CHOSEN)
    page.goto((site / FRONT).as_uri())
    page.locator(".book-continue").wait_for(state="attached")
    page.evaluate("localStorage.removeItem('book-reader')")  # as its button does
    page.goto((site / ROPE).as_uri())
    made = "document.querySelector('.predict input')"  # the page has read the storage
    reload_until(page, f"!({GUESSES}) && {made} && !{CHOSEN}")
    assert box.locator("input:is(:disabled, :checked)").count() == 0


def test_the_front_page_leads_back_to_where_the_reader_was(fresh: Reader, site: Path) -> None:
    page, start = fresh.page, fresh.page.locator(".book-continue")
    page.goto((site / FRONT).as_uri())
    assert not start.is_visible()
    page.goto((site / "notebooks" / "03_rope_decay.html").as_uri())
    page.locator("#summary h2").scroll_into_view_if_needed()
    page.evaluate("document.querySelector('#summary').scrollIntoView()")
    page.wait_for_function("(localStorage.getItem('book-reader') || '').includes('summary')")
    page.goto((site / FRONT).as_uri())
    reload_until(page, f"!{START}.hidden")
    assert "Chapters read to the end: 1" in start.inner_text()
    assert page.locator(".bd-sidebar-primary .book-read").count() == 1
    assert start.locator("a").get_attribute("href").endswith("03_rope_decay.html#summary")
    start.locator("button").click()
    for _ in range(2):
        assert not start.is_visible()
        page.reload()
        reload_until(page, f"!localStorage.getItem('book-reader') && {START}.hidden")


def test_a_claim_opens_what_it_rests_on(plain: Any, site: Path) -> None:
    plain.set_viewport_size(PHONE["viewport"])
    plain.goto((site / "notebooks" / "21_language_model.html").as_uri())
    kinds = {"minus": "corrected for", "fixed decay (RetNet)": "5 seeds of results/"}
    for kind, rests_on in kinds.items():
        told = plain.locator(".book-told", has_text=kind).first
        words = plain.locator(f'[popovertarget="{told.get_attribute("id")}"]')
        assert not told.is_visible()
        words.tap()
        assert rests_on in told.inner_text()
        plain.keyboard.press("Escape")


JUMP = "name => { location.hash = name; }"


def test_a_link_into_an_answer_opens_it(reader: Reader, site: Path) -> None:
    reader.page.goto((site / ROPE).as_uri())
    name = reader.page.locator(".book-answer [id]").first.get_attribute("id")
    reader.page.evaluate(JUMP, name)
    reader.page.locator(".book-answer:not([hidden])").first.wait_for()


def test_a_link_into_a_folded_box_opens_it(reader: Reader, site: Path) -> None:
    reader.page.goto((site / "notebooks" / "12_circulant_favor.html").as_uri())
    box = reader.page.locator(".admonition.dropdown:has(.bibtex-citation)").first
    words = box.locator("p").last
    assert not words.is_visible()
    reader.page.evaluate(JUMP, box.locator(".bibtex-citation").first.get_attribute("id"))
    button = box.locator(".toggle-button[aria-expanded=true]")
    button.wait_for()
    assert button.get_attribute("aria-label") == "Advanced: signed circulants with cosine features"
    assert words.is_visible()
    button.press("Enter")
    assert not words.is_visible()


def test_a_link_to_an_advanced_section_or_into_it_opens_it_and_paper_shows_it(
    reader: Reader, site: Path
) -> None:
    section = (
        "advanced-one-reflection-of-all-channels-per-token-gives-relative-scores"
        "-only-at-a-single-frequency"
    )
    reader.page.goto((site / "notebooks" / "08_reflections.html").as_uri())
    inside = reader.page.locator(f"#{section} details.book-advanced [id]").first.get_attribute("id")
    for target in (section, inside):
        reader.page.reload()
        text = reader.page.locator(f"#{section} p").first
        assert not text.is_visible()
        reader.page.evaluate(JUMP, target)
        text.wait_for(state="visible")
        reader.page.evaluate(JUMP, "")
    shut = reader.page.locator("details.book-advanced:not([open])")
    assert shut.count() > 0
    reader.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert shut.count() == 0
    reader.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert shut.count() > 0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_opened_code_shuts_nobody_out(browser: Any, site: Path, theme: str) -> None:
    window = Reader(browser, **PHONE)
    window.open(site / "notebooks" / "01_why_positions.html")
    window.page.locator(".book-all").click()
    window.dress(theme)
    assert window.barriers(contrast=theme == "dark") == []
    window.close()


def test_a_chapter_prints_with_its_figures_and_nothing_to_press(browser: Any, site: Path) -> None:
    window = Reader(browser, color_scheme="dark", **DESKTOP)
    window.page.goto((site / "notebooks" / "07_cayley_string.html").as_uri())
    printed = window.page.pdf(format="A4")
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) <= 20
    drawn = ".book-plot[data-state]"  # nobody has come near the last
    assert window.page.locator(drawn).count() == len(window.figures()) > 0
    window.page.emulate_media(media="print")
    pressed = window.page.locator("nav, button:not(.walk-word), .book-panel, .bd-sidebar").all()
    assert [one.inner_html()[:80] for one in pressed if one.is_visible()] == []
    window.close()


@pytest.mark.parametrize(
    "name", ["book/intro", "book/walk", "book/try", "notebooks/02_rope", "search"]
)
def test_a_page_works_under_its_policy_and_loads_nothing_from_elsewhere(
    name: str, browser: Any, site: Path
) -> None:
    window = Reader(browser, bypass_csp=False, **DESKTOP)
    window.page.goto((site / f"{name}.html").as_uri())
    window.page.evaluate(
        "document.querySelectorAll('.js-plotly-plot, canvas').forEach(x => x.scrollIntoView())"
    )
    window.page.wait_for_timeout(500)
    assert window.complaints == []
    window.page.evaluate("new Image().src = 'https://a.invalid/b.png'; null")
    window.page.wait_for_timeout(200)
    window.close()
    assert "Content Security Policy" in window.complaints[0]


def test_without_javascript_a_figure_is_told_in_words(plain: Any, site: Path) -> None:
    plain.goto((site / ROPE).as_uri())
    figure = plain.query_selector(".book-figure")
    assert len(figure.query_selector(".book-noscript").inner_text()) > 40
    assert not figure.query_selector(".book-plot").is_visible()
    assert "pictures of one state" in plain.inner_text("article noscript >> nth=0")


ARTICLE = "<article><p>Some forty characters of text that a reader can read.</p>{}</article>"
PLANTED = {
    "a console error": ("<script>console.error('boom')</script>", "console error: boom"),
    "an exception": ("<script>nowhere.at.all</script>", "page error"),
    "a wide table": ("<div style='width:3000px'>x</div>", "wider than the screen"),
    "a TeX error": ("<span class='math'><code>x_</code></span>", "a formula is not set: x_"),
    "raw dollars": ("<p>so $x^2$ is</p>", "unrendered TeX"),
    "raw parentheses": (r"<p>so \(x^2\) is</p>", "unrendered TeX"),
    "an external image": ("<img src='https://example.org/a.png'>", "asks the network"),
    "a box without a key": (
        "<div style='overflow: auto; width: 9em'><a href='#'>" + "wide" * 40 + "</a></div>",
        "scrolls sideways, and not by keyboard",
    ),
    "a missing file": ("<script src='gone.js'></script>", "cannot load"),
    "a dead figure": (
        "<div class='book-figure' id='fig-a'><div class='book-plot' data-state=''></div>",
        "fig-a",
    ),
}


@pytest.mark.parametrize("what", PLANTED)
def test_the_reader_sees_a_planted_fault(what: str, reader: Reader, tmp_path: Path) -> None:
    html, complaint = PLANTED[what]
    page = tmp_path / "page.html"
    page.write_text(f"<!doctype html><body>{ARTICLE.format(html)}</body>", encoding="utf8")
    if what == "a dead figure":
        reader.page.goto(page.as_uri())
        reader.page.evaluate("document.querySelector('.book-plot').data = []")
    else:
        reader.open(page)
    assert any(complaint in fault for fault in reader.faults())
