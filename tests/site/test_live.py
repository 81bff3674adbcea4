"""Instruments: what the page computes is what PyTorch computes, on numbers that nobody chose."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from book.live import encoder, memory, move, sentence, train, write
from book.live.steps import Seen, Stepped
from book.names import display
from lab.program import bundle
from lab.theory.rope_decay import horizon
from tests.site.reader import ROOT, WINDOWS, Reader, drag, middle, straight

RUN = ROOT / "book" / "_assets" / "book-run.js"


@pytest.fixture(scope="module")
def runner(browser: Any) -> Iterator[Any]:
    """An empty page that can run programs."""
    page = browser.new_page()
    page.add_script_tag(path=str(RUN))
    yield page
    page.close()


STEPS = """async ([text, name, shapes, wanted]) => {
  const run = window.bookRun.apart(JSON.parse(text));
  const read = window.bookLive.reading(run, name, shapes), rows = [];
  for (const tokens of wanted) {
    while (await read.step(tokens)) { }
    rows.push(read.scores.slice(1).map(row => Array.from(row)));
  }
  return [rows, read.kept(wanted[1].length)];
}"""


@pytest.mark.parametrize(
    ("study", "name"),
    [(study, name) for study in (memory.study, write.study) for name in study.CELLS],
)
def test_a_page_that_reads_token_by_token_says_what_the_whole_model_says(
    runner: Any, study: ModuleType, name: str
) -> None:
    """Random tokens, then others from the sixth on: what was read before them is not read again."""
    runner.add_script_tag(path=str(RUN.parent / "book-live.js"))
    torch.manual_seed(1)
    told = {key: x for key, x in study.CELLS[name].items() if key != "rate"}
    model = study.make_model(**told).eval()
    one = Stepped(model, room=12)
    tokens = torch.randint(16, (2, 9))
    tokens[1, :5] = tokens[0, :5]
    shapes = {part: [*x.shape] for part, x in one.start().items()}
    made = json.dumps(bundle({name: one.program(1)}, half=False))
    rows, kept = runner.evaluate(STEPS, [made, name, shapes, tokens.tolist()])
    with torch.no_grad():
        whole, states = model(tokens, return_state=True)
    torch.testing.assert_close(torch.tensor(rows), whole, atol=2e-4, rtol=1e-3)
    state = getattr(states[0], "rest", states[0])
    parts = (
        [x[:1] for x in (state.keys, state.values)] if hasattr(state, "keys") else [state.sums[:1]]
    )
    parts += [states[0].key[:1]] if hasattr(states[0], "rest") else []
    scale = getattr(state, "log_scale", None)
    assert kept == sum(x.numel() for x in parts) + (0 if scale is None else scale[0].numel())


def everywhere(fixture: str) -> Any:
    """On the phone as well: what is moved there by other events, or stands in another place."""
    return pytest.mark.parametrize(fixture, WINDOWS, indirect=True)


@contextmanager
def tried(site: Path, browser: Any, window: str = "desktop", **options: Any) -> Iterator[Reader]:
    """Open the page of all instruments."""
    reader = Reader(browser, **WINDOWS[window], **options)
    reader.open(site / "book" / "try.html")
    yield reader
    reader.close()


def begun(page: Any, name: str) -> Any:
    """Wait for an instrument; return its box."""
    box = page.locator(f"#live-{name}")
    box.scroll_into_view_if_needed()
    page.locator(f"#live-{name}[data-ready]").wait_for()
    return box


@pytest.fixture
def page(request: Any, site: Path, browser: Any) -> Iterator[Any]:
    with tried(site, browser, getattr(request, "param", "desktop")) as reader:
        yield reader.page
    assert not reader.complaints


@pytest.fixture
def front(request: Any, site: Path, browser: Any) -> Iterator[Any]:
    """The front page."""
    reader = Reader(browser, **WINDOWS[request.param])
    reader.open(site / "book" / "intro.html")
    yield reader.page
    assert not reader.complaints
    reader.close()


LISTED = """state => {
  location.hash = new URLSearchParams({live: "encoder", slope: .3, ...state});
  const made = window.bookPrograms.encoder, box = document.getElementById("live-encoder");
  const load = window.bookRun.load(made), run = window.bookRun.run;
  let drawn;
  window.bookRun.run = (program, given, ...rest) => {
    drawn = given.frequencies;
    return run(program, given, ...rest);
  };
  box.replaceChildren();
  window.begun(box, load, made.about);
  window.bookRun.run = run;
  const said = box.querySelector(".live-said").textContent;
  return [box.querySelector("pre").textContent, Array.from(drawn), said];
}"""


def test_without_javascript_a_poster_and_words_stand_in_for_an_instrument(
    site: Path, plain: Any
) -> None:
    plain.goto((site / "book" / "try.html").as_uri(), wait_until="load")
    boxes = plain.locator(".book-live").all()
    assert len(boxes) == 5
    for box in boxes:
        assert "needs JavaScript" in box.inner_text()
        poster = box.locator("img").bounding_box()
        assert poster["width"] > 600
        assert poster["height"] > 300
        assert box.bounding_box()["height"] < poster["height"] + 200  # room for words, and no more


@everywhere("page")
def test_a_handle_moves_by_key_and_by_pointer_and_a_link_keeps_it(page: Any) -> None:
    """The listing follows, the page says what it shows, and the address brings it back."""
    box = begun(page, "encoder")
    knob, listing = box.get_by_role("slider").first, box.locator("pre code")
    assert listing.inner_text().startswith("from stringlib import RoPE\n\nencoder = RoPE(64)\n")
    assert "the map with rotations is the same" in box.locator(".live-said").inner_text()
    before = float(knob.get_attribute("aria-valuenow"))
    knob.press("ArrowRight")
    page.wait_for_function(
        "document.querySelector('#live-encoder pre').innerText.includes('inv_freq')"
    )
    assert float(knob.get_attribute("aria-valuenow")) == pytest.approx(before - 0.05, abs=0.011)
    x, y = (knob.bounding_box()[key] + 8 for key in "xy")
    drag(page, straight((x, y), (x + 60, y), 4))
    page.wait_for_function(
        "value => Number(document.querySelector('#live-encoder .live-knob').ariaValueNow) < value",
        arg=before - 0.3,
    )
    assert middle(knob)[0] == pytest.approx(x + 60, abs=12)
    page.wait_for_function(
        "location.hash.startsWith('#live=encoder') && !location.hash.includes('shifts=-0.05+')"
    )
    moved = knob.get_attribute("aria-valuenow")
    page.reload()
    begun(page, "encoder")
    assert knob.get_attribute("aria-valuenow") == moved


@pytest.fixture
def listed(runner: Any, site: Path) -> Any:
    """Build an encoder from a state: its listing, its frequencies, and what the page says."""
    runner.goto("about:blank")
    runner.set_content("<div id='live-encoder'></div>")
    for script in ("book-run.js", "book-live.js"):
        runner.add_script_tag(path=str(RUN.parent / script))
    runner.evaluate("bookLive.add = (_, begin) => { window.begun = begin; }")
    for script in (*encoder.SCRIPTS, "live-encoder.js"):
        runner.add_script_tag(path=str(RUN.parent / script))
    runner.add_script_tag(path=str(site / "_static" / "live-encoder-programs.js"))
    return lambda **state: runner.evaluate(LISTED, state)


@pytest.mark.parametrize("shifts", ["0", "0.05"], ids=["as given", "dragged"])
def test_the_listing_runs_and_is_what_the_page_draws(shifts: str, listed: Any) -> None:
    """Every preset in every basis, with a bias: frequencies, basis and bias are the program's."""
    maps = encoder.Maps()
    q = torch.randn(1, encoder.WORDS, encoder.HEAD_DIM, dtype=torch.float64)
    positions = torch.arange(encoder.WORDS).double()[:, None]
    for name, preset in encoder.data()["presets"].items():
        for basis in range(3):
            text, drawn, _ = listed(preset=name, shifts=" ".join([shifts] * 8), basis=basis)
            space = {"q": q, "k": q, "positions": positions}
            exec(text, space)
            made = space["encoder"]
            w = torch.tensor(drawn, dtype=torch.float64)
            if shifts == "0":
                assert drawn == preset["frequencies"]
            torch.testing.assert_close(
                made.frequencies().flatten().double(), w, rtol=1e-5, atol=0, msg=(name, basis)
            )
            assert (made.basis()[0] - maps.bases[basis]).abs().max() < 1e-6
            torch.testing.assert_close(space["bias"], -0.3 * (positions - positions.mT).abs())


CLOSED = {
    "RoPE": horizon(32, 1e4),
    "base 500,000": horizon(32, 5e5),
    "interpolated × 4": 4 * horizon(32, 1e4),
    "NTK × 4": horizon(32, 1e4 * 4 ** (64 / 62)),
    "YaRN × 4": horizon(32, 1e4),  # it leaves the fast pairs as they are
}


@pytest.mark.parametrize("name", encoder.data()["presets"])
def test_the_distances_that_the_page_says_are_those_of_the_package(name: str, listed: Any) -> None:
    """The first negative score of all distances, not of those at which the curve is drawn."""
    preset = encoder.data()["presets"][name]
    w = torch.tensor(preset["frequencies"], dtype=torch.float64)
    if preset["code"]:
        w = eval(preset["code"], vars(encoder)).flatten().double()
    distances = torch.arange(1, encoder.FARTHEST + 1, dtype=torch.float64)
    first = (distances[:, None] * w).cos().sum(-1).lt(0).nonzero()[0].item() + 1
    *_, said = listed(preset=name)
    assert f"the score is first below 0 at distance {first:,}." in said
    if name in CLOSED:
        assert f"a full turn, is {CLOSED[name]:,.0f};" in said


PARTIAL = {"head_dim": 64, "partial_rotary_factor": 0.5, "rope_theta": 1e4, "rope_scaling": None}


@pytest.mark.parametrize(
    ("pasted", "pairs", "channels"),
    [
        (json.dumps({"head_dim": 128, "rope_theta": 1e9}), 64, 128),
        (json.dumps(PARTIAL), 16, 64),
        (" ".join(str(0.7**i) for i in range(20)), 20, 40),
    ],
    ids=["a larger head", "a part that does not rotate", "a smaller head"],
)
def test_pasted_frequencies_are_drawn_and_listed(
    pasted: str, pairs: int, channels: int, listed: Any
) -> None:
    """The score is that of all channels of a head, and the maps stay the same when moved."""
    text, drawn, said = listed(pasted=pasted, length=0, slope=0)
    space = {"q": torch.randn(1, 4, channels), "k": torch.randn(1, 4, channels)}
    space["positions"] = torch.arange(4)[:, None]
    exec(text, space)
    made = space["encoder"]
    assert made.head_dim == channels
    assert made.frequencies().shape == (1, pairs, 1)
    w = torch.tensor(drawn[:pairs], dtype=torch.float64)
    assert not any(drawn[pairs:])
    torch.testing.assert_close(made.frequencies().flatten().double(), w, rtol=1e-5, atol=0)
    distances = torch.arange(1, encoder.FARTHEST + 1, dtype=torch.float64)
    score = (distances[:, None] * w).cos().sum(-1) + channels / 2 - pairs
    first = score.lt(0).nonzero().flatten().tolist()[:1]
    where = f"at distance {first[0] + 1:,}" if first else "up to distance 100,000"
    end = "If the sentence is moved by 1,000, the map with rotations is the same;"
    assert f"below 0 {where}. {end}" in said


TRAINED = """([key, name, image]) => {
  const made = window.bookPrograms[key];
  made.loaded = made.loaded || window.bookRun.load(made);
  const found = window.bookRun.run(made.loaded[name], {images: image});
  return Object.fromEntries(Object.entries(found).map(([key, x]) => [key, Array.from(x.data)]));
}"""


@pytest.mark.parametrize("run", range(move.RUNS))
def test_the_models_of_the_page_are_the_trained_ones(runner: Any, site: Path, run: int) -> None:
    """Scores and maps of attention, on noise and on a digit at a place of no training."""
    part = f"move-{run}" if run else "move"
    runner.add_script_tag(path=str(site / "_static" / f"live-{part}-programs.js"))
    generator = torch.Generator().manual_seed(11)
    noise = torch.rand(1, 1, 40, 40, generator=generator)
    images = [noise, move.at(move.digits()[0][13:14], 17, 3)]
    for name, model in move.models(run).items():
        for image in images:
            with torch.no_grad():
                expected = move.Seen(model)(image)
            found = runner.evaluate(TRAINED, [part, name, image.flatten().tolist()])
            assert found.keys() == expected.keys()
            for key, value in expected.items():
                # angles and folded weights are rounded to half precision
                least = 0.03 if key == "scores" else 0.01
                off = (torch.tensor(found[key]) - value.flatten()).abs().max()
                assert off < least * max(1, value.abs().max()), (name, key)


@pytest.fixture
def still(request: Any, site: Path, browser: Any) -> Iterator[Any]:
    """The same page for a reader who wants no motion, at the digit that is moved."""
    window = getattr(request, "param", "desktop")
    with tried(site, browser, window, reduced_motion="reduce") as reader:
        begin(reader.page)
        yield reader.page
    assert not reader.complaints


def begin(page: Any) -> Any:
    """Wait for the digit; return the box."""
    box = begun(page, "move")
    page.locator("#live-move .live-board").scroll_into_view_if_needed()
    page.wait_for_function("document.querySelector('#live-move .live-said').innerText")
    return box


def place(box: Any) -> tuple[int, int]:
    """Return row and column of the digit, as a screen reader is told."""
    label = box.locator(".live-digit").get_attribute("aria-label")
    row, column = re.search(r"row (\d+), column (\d+)", label).groups()
    return int(row), int(column)


def answers(page: Any) -> list[str]:
    """Return what the models say once the instrument has come to rest."""
    page.wait_for_function("location.hash.includes('live=move')")
    return [text[0] for text in page.locator("#live-move .live-answer").all_inner_texts()]


@everywhere("still")
def test_a_digit_is_moved_by_keys_and_pointer_and_a_link_keeps_it(still: Any) -> None:
    """It begins where nobody trained; what is said at rest is what PyTorch says there."""
    page, box = still, still.locator("#live-move")
    images, labels = move.digits()
    shown, *end = move.told_apart()
    assert place(box) == tuple(end)
    assert "there were no digits at this position" in box.locator(".live-said").inner_text()
    digit = box.locator(".live-digit")
    digit.press("ArrowLeft")
    digit.press("Shift+ArrowUp")
    page.wait_for_function(f"location.hash.includes('row={end[0] - 4}&')")
    assert place(box) == (end[0] - 4, end[1] - 1)
    with torch.no_grad():
        there = [m(move.at(images[shown : shown + 1], *place(box))) for m in move.models().values()]
    assert answers(page) == [str(scores.argmax().item()) for scores in there]
    assert digit.get_attribute("aria-label").startswith(f"The digit {labels[shown]} is")
    frame, (x, y) = digit.bounding_box(), middle(digit)
    drag(page, straight((x, y), (x - 40, y - 30), 5))
    dragged = (
        end[0] - 4 - round(20 * 30 / frame["height"]),
        end[1] - 1 - round(20 * 40 / frame["width"]),
    )
    page.wait_for_function("row => location.hash.includes('row=' + row)", arg=place(box)[0])
    assert all(abs(a - b) <= 1 for a, b in zip(place(box), dragged, strict=True))
    assert box.locator(".live-patch").is_hidden()
    kept = place(box)
    page.reload()
    begin(page)
    page.wait_for_function("location.hash.includes('live=move')")
    assert place(box) == kept


@everywhere("still")
def test_a_patch_shows_where_it_looks(still: Any) -> None:
    """By a tap on the digit, or by Enter and arrows."""
    page, box = still, still.locator("#live-move")
    maps = box.locator(".live-places").first
    box.locator(".live-digit").press("Enter")
    page.wait_for_function(
        "document.querySelector('#live-move .live-places').ariaLabel.includes('attends most')"
    )
    patch = box.locator(".live-patch")
    assert patch.evaluate("patch => patch === document.activeElement")
    before = patch.bounding_box()["x"]
    patch.press("ArrowLeft")
    page.wait_for_function(
        "x => document.querySelector('#live-move .live-patch').getBoundingClientRect().x < x",
        arg=before - 5,
    )
    box.get_by_role("button", name="layer 2").click()
    page.wait_for_function(
        "document.querySelector('#live-move .live-said').innerText.includes('in layer 2')"
    )
    patch.press("Escape")
    page.wait_for_function("document.querySelector('#live-move .live-patch').hidden")
    assert "right at" in maps.get_attribute("aria-label")
    box.locator(".live-digit").click(position={"x": 30, "y": 30})
    page.wait_for_function("!document.querySelector('#live-move .live-patch').hidden")


@pytest.mark.parametrize("still", ["phone"], indirect=True)
def test_a_finger_moves_the_digit_and_not_the_page(still: Any) -> None:
    box, top = still.locator("#live-move"), still.evaluate("scrollY")
    before, (x, y) = place(box), middle(box.locator(".live-digit"))
    drag(still, straight((x, y), (x - 30, y - 30), 5), finger=True)
    still.wait_for_function("location.hash.includes('live=move')")
    assert all(b > a for a, b in zip(place(box), before, strict=True))
    assert still.evaluate("scrollY") == top


@everywhere("still")
def test_a_drawn_digit_is_read(still: Any) -> None:
    """A line from top to bottom is a 1, and the link brings it back."""
    page, box = still, still.locator("#live-move")
    box.get_by_role("button", name="Draw").click()
    page.keyboard.press("Escape")
    assert box.locator(".live-draw").is_hidden()
    assert box.locator(".live-digit").evaluate("digit => digit === document.activeElement")
    box.get_by_role("button", name="Draw").click()
    box.get_by_role("button", name="Use it").click()
    assert box.locator(".live-said").inner_text() == "Draw a digit first."
    assert box.locator(".live-draw").is_visible()
    pad = box.locator(".live-pad")
    (x, y), far = middle(pad), 0.35 * pad.bounding_box()["height"]
    drag(page, straight((x, y - far), (x - 3, y + far)))
    box.get_by_role("button", name="Use it").click()
    page.wait_for_function("location.hash.includes('ink=')")
    assert "counts as a 1" in box.locator(".live-said").inner_text()
    page.reload()
    begin(page)
    page.wait_for_function(
        "document.querySelector('#live-move .live-said').innerText.includes('counts as a 1')"
    )


SAYS = "document.querySelector('#live-sentence .live-said').innerText.includes(%s)"


def test_the_sentence_moves_once_and_then_by_hand(site: Path, fresh: Reader) -> None:
    fresh.open(site / "book" / "intro.html")
    page, box = fresh.page, begun(fresh.page, "sentence")
    button = box.locator(".live-foot button")
    assert button.inner_text() == "Stop"
    page.wait_for_function(SAYS % "'moved by 100 tokens'")
    assert button.inner_text() == "Move the sentence"
    x, y = middle(box.locator(".live-dial").nth(1))
    drag(page, straight((x + 30, y), (x, y + 30)))  # a quarter back, at 0.1 radians a token
    page.wait_for_function(SAYS % "'moved by 84 tokens'")
    box.get_by_role("slider").press("Home")
    page.wait_for_function(SAYS % "'moved by 0 tokens'")
    assert not fresh.complaints


@everywhere("front")
def test_a_sentence_of_the_readers_own_is_moved(front: Any) -> None:
    """Its vectors are made in the page; how much weights change is what PyTorch says of them."""
    page, box = front, begun(front, "sentence")
    box.get_by_role("slider").press("End")
    page.wait_for_function(SAYS % "'moved by 100 tokens'")
    box.get_by_role("textbox").fill("one TWO one four five six seven eight nine ten")
    page.wait_for_function(SAYS % "'moved by 100 tokens'")
    words = ["one", "TWO", "one", "four", "five", "six", "seven", "eight"]
    assert box.locator(".live-words > span").all_inner_texts() == [
        f"{word}\n{100 + i}" for i, word in enumerate(words)
    ]
    assert "only the first 8 words are used" in box.inner_text()
    assert "“one” (thick) and “eight” (thin)" in box.inner_text()
    made = page.evaluate("words => bookLive.vectors(words, 8, 64)", words)
    given = {name: torch.tensor(x) for name, x in made.items()}
    given["words"] = given["words"].view(sentence.MOST, sentence.HEAD_DIM)
    with torch.no_grad():
        before, after = (sentence.Sentence()(**given, moved=torch.tensor([x])) for x in (0.0, 100))
    points = 100 * (after["added"] - before["added"]).abs().max().item()
    rotated, added = box.locator(".live-map").evaluate_all(LINES)
    assert rotated.endswith("unchanged")
    assert float(re.search(r"by up to (\d+) points", added)[1]) == pytest.approx(points, abs=0.51)
    box.get_by_role("textbox").fill("")
    page.wait_for_function(
        "document.querySelector('#live-sentence .live-words').innerText.startsWith('…')"
    )


@pytest.mark.parametrize(("window", "theme"), [("desktop", "light"), ("phone", "dark")])
def test_nobody_is_shut_out(site: Path, browser: Any, window: str, theme: str) -> None:
    with tried(site, browser, window, reduced_motion="reduce") as reader:
        begin(reader.page)
        for name in ("encoder", "memory", "write"):
            begun(reader.page, name)
        rested(reader.page, "write", f"{2 * write.PASSAGE}|0")
        reader.dress(theme)
        assert not reader.faults()
        assert not reader.barriers()


ATTENDS = re.compile(r"attends most to (.+?) \((?:(\d+) before|itself)\) ([−.\d]+),")


@pytest.mark.parametrize(("layer", "head"), [(2, None), (1, 2)])
def test_the_bytes_to_which_models_attend_are_marked(
    layer: int, head: int | None, page: Any
) -> None:
    """Of the last byte and of the one before the cursor, in one layer, as PyTorch computes them."""
    box, text = begun(page, "write"), write.PASSAGE + write.PASSAGE[:30]
    box.get_by_role("textbox").fill(text)
    rested(page, "write", f"{text}|0")
    box.get_by_role("button", name=f"attention in layer {layer}").click()
    if head:
        box.get_by_role("button", name=f"head {head}").click()
    rested(page, "write", f"{text}|0")
    given = torch.tensor([*text.encode()])
    for back in (0, 7):
        for _ in range(back):
            box.get_by_role("textbox").press("ArrowLeft")
        at = len(text) - 1 - back
        page.wait_for_function(
            "name => document.querySelector('#live-write .live-then code').innerText === name",
            arg=text[at],
        )
        lines = box.locator(".live-bits ~ .live-then:not(:last-child)").all_inner_texts()
        assert len(lines) == len(write.models())
        for line, one in zip(lines, write.models().values(), strict=True):
            with torch.no_grad():
                heads = Seen(one.model)(given)["weights"][layer - 1, :, at]
            weights = heads[head - 1] if head else heads.mean(0)
            name, before, weight = ATTENDS.search(line).groups()
            place = at - int(before or 0)
            assert {"space": " "}.get(name, name) == text[place]
            assert float(weight.replace("−", "-")) == pytest.approx(weights[place].item(), abs=0.02)
            assert weights[place].abs() > weights.abs().max() - 0.02


def rested(page: Any, name: str, state: str) -> None:
    """Wait until an instrument has computed what it shows of a state, and said so."""
    page.wait_for_function(
        "([name, state]) => document.getElementById(name).dataset.rested === state",
        arg=[f"live-{name}", state],
    )


def test_a_key_is_overwritten_and_asked_for(page: Any) -> None:
    """By typing, by keys and by clicks; the list hears fewer pairs; a link brings all back."""
    box = begun(page, "memory")
    box.get_by_role("textbox").fill("a1 b2 zz a5, B: 3")
    asked = box.locator("[aria-pressed=true]").first  # a key; the second one is a size
    rested(page, "memory", "a1 b2 a5 b3?" + asked.inner_text())
    box.get_by_role("button", name="a", exact=True).click()
    rested(page, "memory", "a1 b2 a5 b3?a")
    said = box.locator(".live-said").inner_text()
    assert said.startswith("The latest value of a is 5 (before that: 1).")
    assert sum(display(name) in said for name in memory.memories()) == len(memory.memories())
    assert box.locator(".live-gone").all_inner_texts() == ["a1", "b2"]
    box.get_by_role("slider").press("ArrowLeft")
    rested(page, "memory", "a1 b2 a5?a")
    box.get_by_role("slider").press("ArrowLeft")
    rested(page, "memory", "a1 b2?a")
    assert box.locator(".live-said").inner_text().startswith("The latest value of a is 1. Right: ")
    box.get_by_role("button", name="give a another value").click()
    rested(page, "memory", "a1 b2 a4?a")
    page.reload()
    rested(page, "memory", "a1 b2 a4?a")


@pytest.mark.parametrize("run", range(1, memory.RUNS))
def test_the_size_of_a_memory_is_changed(run: int, page: Any) -> None:
    """Other models answer, those of that size; the link keeps it."""
    box, size = begun(page, "memory"), memory.SIZES[run]
    box.get_by_role("textbox").fill("a1 b2 c3 a5 d0 b7")
    box.get_by_role("button", name="b", exact=True).click()
    rested(page, "memory", "a1 b2 c3 a5 d0 b7?b")
    box.get_by_role("button", name=f"{size} × {size}").click()
    rested(page, "memory", f"a1 b2 c3 a5 d0 b7?b {size}")
    tokens = torch.tensor([[8, 1, 9, 2, 10, 3, 8, 5, 11, 0, 9, 7, 9]])
    for card, (name, one) in zip(
        box.locator(".live-memories > li").all(), memory.memories(run).items(), strict=True
    ):
        with torch.no_grad():
            shares = one.model(tokens)[0, -1].softmax(-1)[:8]
        answer = int(card.locator(".live-answered b").inner_text())
        assert shares[answer] > shares.max() - 0.03, name
        numbers = sum(x.numel() for x in one.start().values())
        if "layer0_keys" not in one.start():
            assert f"stores {numbers:,} numbers" in card.inner_text()
        once = memory.data()["sizes"][run]["memories"][name]["once"]
        assert f"after 12 pairs: {once} for keys written once" in card.inner_text()
    page.reload()
    rested(page, "memory", f"a1 b2 c3 a5 d0 b7?b {size}")


LINES = "lines => lines.map(line => line.ariaLabel)"
OTHERWISE = """before => {
  const lines = [...document.querySelectorAll("#live-write .live-bytes")];
  return lines.some((line, i) => !before[i].startsWith(line.ariaLabel));
}"""


@everywhere("page")
def test_a_text_is_read_and_written_on(page: Any) -> None:
    """By typing and by clicks; said twice it is compared with itself; a link brings all back."""
    box, passage = begun(page, "write"), write.PASSAGE
    rested(page, "write", f"{2 * passage}|0")
    assert not page.evaluate("location.hash")
    said = box.locator(".live-said").inner_text()
    assert said.startswith("The text occurs twice.")
    assert "darke" not in box.inner_text()  # at night what is marked is bright
    with torch.no_grad():
        for name, one in write.models().items():
            given = torch.tensor([*(2 * passage).encode()])[None]
            shares = one.model(given[:, :-1]).softmax(-1)
            bits = -shares.gather(-1, given[:, 1:, None]).log2().flatten()
            lengths = [len(passage) - 1, len(passage)]
            once, again = (x.mean().item() for x in bits.split(lengths))
            there = re.search(rf"{re.escape(display(name))} (\S+) → (\d+\.\d)", said)
            assert there
            assert float(there[1]) == pytest.approx(once, abs=0.06)
            assert float(there[2]) == pytest.approx(again, abs=0.06)
    box.get_by_role("textbox").fill("abcd")
    rested(page, "write", "abcd|0")
    assert box.locator(".live-said").inner_text().startswith("Bits per byte: Softmax + RoPE ")
    box.get_by_role("button", name="Repeat the text").click()
    rested(page, "write", "abcdabcd|0")
    assert "4.4 kB per layer, 512 bytes more" in box.locator(".live-score").first.inner_text()
    box.get_by_role("slider").press("End")
    box.get_by_role("button", name="Continue the text").click()
    rested(page, "write", f"abcdabcd|{write.WRITTEN}")
    wrote = box.locator(".live-bytes").evaluate_all(LINES)
    assert len(set(wrote)) == len(write.models())
    assert box.locator("u").count() == len(write.models()) * write.WRITTEN
    page.reload()
    rested(page, "write", f"abcdabcd|{write.WRITTEN}")
    assert wrote == box.locator(".live-bytes").evaluate_all(LINES)
    box.get_by_role("button", name="Sample again").click()
    page.wait_for_function(OTHERWISE, arg=wrote)
    box.get_by_role("button", name="Reset").click()
    rested(page, "write", f"{2 * passage}|0")


NOW = re.compile(r"step (\d+) of 400, loss ([\d.]+), accuracy ([\d.]+)(?:, share β ([\d.]+))?")


def test_a_token_shift_lets_the_page_train_a_layer_that_recalls(page: Any) -> None:
    """With a token shift nearly all answers are right, and without one hardly more than counts."""
    box = begun(page, "train")
    said, now = box.locator(".live-said"), box.locator(".live-now")
    told = {name: setting["told"] for name, setting in train.data()["settings"].items()}
    recorded = f"the recorded runs have an accuracy of {told['shift']} with a token shift"
    assert recorded in said.inner_text()
    box.get_by_label("seed").fill("3")
    box.get_by_label("seed").press("Enter")
    box.get_by_role("button", name="Train").click()
    box.get_by_role("button", name="Stop").click()
    stopped = now.inner_text()
    page.wait_for_timeout(200)
    assert now.inner_text() == stopped
    early = float(NOW.match(stopped)[3])
    box.get_by_role("button", name="Continue").click()
    box.get_by_role("button", name="Train again").wait_for(timeout=90_000)
    step, loss, accuracy, share = map(float, NOW.match(now.inner_text()).groups())
    assert (step, early) < (401, 0.5)
    assert accuracy > 0.98
    assert loss < 0.1
    assert share > 0.5
    box.get_by_role("button", name="Without a token shift").click()
    box.get_by_role("button", name="Train").click()
    box.get_by_role("button", name="Train again").wait_for(timeout=90_000)
    _, loss, accuracy, share = NOW.match(now.inner_text()).groups()
    assert 0.25 < float(accuracy) < train.data()["mostAccurate"] + 0.04  # of 1,000 sequences
    assert float(loss) > 1.2
    assert share is None
    assert "With a token shift, the layer trained here with seed 3" in said.inner_text()
    label = box.get_by_role("img", name="A line chart shows the accuracy").get_attribute(
        "aria-label"
    )
    told = f"Without a token shift, the layer trained here (solid curve) is at {accuracy}, and"
    assert told in label
    box.get_by_role("button", name="Reset").click()
    box.get_by_role("button", name="Train", exact=True).wait_for()
    assert recorded in said.inner_text()
    assert now.inner_text() == "step 0 of 400"
