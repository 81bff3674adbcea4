"""The scripts of the pages, each on a page of a few lines: what a reader types, opens, or copies.

They need a Chromium, but no built book. How they work on the real pages is tested in tests/site.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from _ext.book_assets import figure_html
from book.live import move, train
from lab.explore import Explorer
from lab.tasks.recall import Recall
from lab.train import fit
from stringlib import RoPE
from tests.site.conftest import started
from tests.site.reader import ROOT
from tests.test_explorer import wave

ASSETS = ROOT / "book" / "_assets"
ADDRESS = "http://book.test/notebooks/chapter.html"
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium: closed after this file, for another test starts one of its own."""
    with started() as opened:
        yield opened


@pytest.fixture
def page(browser: Any) -> Any:
    """Open a page of some lines with some scripts: ``page(body, *scripts, to="#place")``."""
    context = browser.new_context()
    context.set_default_timeout(30_000)

    def opened(body: str, *scripts: str, to: str = "") -> Any:
        texts = [s if " " in s else (ASSETS / s).read_text(encoding="utf8") for s in scripts]
        lines = "".join(f"<script>{text}</script>" for text in texts)
        html = f'<!doctype html><meta charset="utf-8"><body><article class="bd-article">{body}'
        context.route(
            "**/*", lambda route: route.fulfill(body=html + lines, content_type="text/html")
        )
        one = context.new_page()
        one.goto(ADDRESS + to)
        return one

    yield opened
    context.close()


NUMBER = """<h1>T</h1><div class="book-question"><div class="book-asked"><p>How many?</p></div>
<details class="book-why" data-answer="{}" data-within="0.01" data-unit="tokens"><summary>Why
</summary><p>So.</p></details></div>"""


@pytest.mark.parametrize(
    ("answer", "typed", "said"),
    [
        (15, "fifteen", "Enter a number"),
        (15, "-15", "has the wrong sign"),
        (15, "30", "off by a factor of two"),
        (15, "4", "4 is too small"),
        (15, "10,000", "10,000 is too large"),
        (15, "30/2", "Right"),
        (15, "15.1", "Right"),
        (-1500, "−1,500", "Right"),
    ],
)
def test_a_question_judges_a_number(page: Open, answer: int, typed: str, said: str) -> None:
    one = page(NUMBER.format(answer), "book-predict.js")
    one.locator("input").fill(typed)
    one.locator("input").press("Enter")
    assert said in one.locator("output").inner_text()
    right = said == "Right"
    assert one.locator("details").evaluate("fold => fold.open") == right
    one.reload()  # it is remembered
    assert one.locator("input").input_value() == typed
    assert one.locator("details").evaluate("fold => fold.open") == right


def test_an_answer_waits_for_a_prediction(page: Open) -> None:
    points = '<li><p>one</p></li><li class="book-right"><p>two</p></li>'
    box = f'<h1>T</h1><div class="admonition predict"><ul>{points}</ul></div>'
    one = page(f'{box}<div class="book-answer"><p>It is two.</p></div>', "book-predict.js")
    assert not one.locator(".book-answer p").is_visible()
    one.get_by_label("one").click()
    assert (
        one.locator("[role=status]").inner_text()
        == "Not right. The answer is: two. The explanation is below."
    )
    assert one.locator(".book-answer p").is_visible()


def test_a_link_opens_all_folds_around_its_target(page: Open) -> None:
    inner = '<details class="book-why"><summary>b</summary><p id="here">c</p></details>'
    body = f'<h1>T</h1><details class="book-advanced"><summary>a</summary>{inner}</details>'
    one = page(body, "book-form.js", to="#here")
    assert one.locator("#here").is_visible()


def test_a_list_shows_what_has_all_words(page: Open) -> None:
    names = ("linear attention", "linear map", "sliding attention")
    entries = "".join(f"<dt>{name}</dt><dd>{n}</dd>" for n, name in enumerate(names))
    terms = f'<section><h1>T</h1><dl class="glossary">{entries}</dl></section>'
    one = page(terms, "book-filter.js")
    one.get_by_label("Show only").fill("Linear  ATTENTION")
    assert [n for n in range(3) if one.locator("dd").nth(n).is_visible()] == [0]
    assert one.locator("output").inner_text() == "1 of 3"


def test_a_table_sorts_by_numbers_with_gaps_at_the_end(page: Open) -> None:
    rows = "".join(f"<tr><td>{cell}</td></tr>" for cell in ("12", "–", "1,024", "−3", "3.5 s"))
    head = "<caption>c</caption><thead><tr><th>n</th></tr></thead>"
    table = f'<div><table class="book-sortable">{head}<tbody>{rows}</table></div>'
    one = page(table, "book-tables.js")
    for expected in (["−3", "3.5 s", "12", "1,024", "–"], ["1,024", "12", "3.5 s", "−3", "–"]):
        one.get_by_role("button").click()
        assert one.locator("td").all_inner_texts() == expected


COPY = """selector => {
  const event = new ClipboardEvent("copy", {clipboardData: new DataTransfer(), cancelable: true});
  getSelection().selectAllChildren(document.querySelector(selector));
  dispatchEvent(event);
  return event.clipboardData.getData("text/plain");
}"""


def test_formulas_are_copied_in_tex(page: Open) -> None:
    math = "<math{}><mi>x</mi><annotation>{}</annotation></math>"
    body = f"<p>so {math.format('', 'x^2')} and {math.format(' display=block', 'y')}.</p>"
    assert page(body, "book-copy.js").evaluate(COPY, "p") == "so $x^2$ and $$y$$."


def searched(page: Open, pages: list[str], passages: list[tuple[int, str, str, str]]) -> Any:
    """Open the search over some passages: page, heading, other names, text."""
    told = {
        "pages": [[name, name.rpartition("/")[2]] for name in pages],
        "passages": [[at, f"a{n}", *rest] for n, (at, *rest) in enumerate(passages)],
    }
    script = f"window.bookPassages = {json.dumps(told)};"
    return page("", script, "minisearch.min.js", "book-search.js")


def test_words_that_were_asked_for_come_before_their_synonyms(page: Open) -> None:
    texts = {"synonym": "recall of a value in a list", "asked": "lookup of a value in a list"}
    rows = [(n, "Values", "", text) for n, text in enumerate(texts.values())]
    one = searched(page, [f"notebooks/{name}" for name in texts], rows)
    hits = one.evaluate("bookSearch('lookup')")
    assert [hit["page"] for hit in hits] == ["notebooks/asked", "notebooks/synonym"]
    assert one.evaluate("bookSearch('lookop')")[0]["page"] == "notebooks/asked"


def test_further_terms_of_the_glossary_stand_for_the_first(page: Open) -> None:
    one = searched(
        page,
        ["notebooks/decay", "notebooks/gate", "book/terms"],
        [
            (0, "Recurrence", "", "the state has a data-dependent decay"),
            (1, "Layer", "", "the output has a gate"),
            (2, "Data-dependent decay", "forget gate, selective decay", "a function of the token"),
        ],
    )
    hits = one.evaluate("bookSearch('forget gate')")
    assert [hit["page"] for hit in hits][:2] == ["book/terms", "notebooks/decay"]


def test_a_section_whose_name_is_asked_for_as_a_whole_comes_first(page: Open) -> None:
    texts = "a needle in a haystack, and a needle", "the study"
    names = "", "needle in a haystack"
    rows = [(n, "Part", names[n], texts[n]) for n in range(2)]
    one = searched(page, ["notebooks/words", "notebooks/named"], rows)
    hits = one.evaluate("bookSearch('Needle in a haystack?')")
    assert [hit["page"] for hit in hits] == ["notebooks/named", "notebooks/words"]


PLOTLY = """window.Plotly = { react: async (plot, data) => { plot._fullLayout = { _size: {} };
plot.style.height = "9px"; plot.dataset.y = JSON.stringify(data[0].y); } };"""


@pytest.mark.parametrize(("speed", "size"), [(0, 0), (2, 1)])
def test_an_address_sets_a_figure(page: Open, speed: int, size: int) -> None:
    grid = {"speed": [0.5, 1.0, 2.0], "size": [1, 2], "kind": ["line"]}
    shown = Explorer(
        lambda **at: wave(**at).update_layout(margin={"l": 1, "r": 1, "t": 1, "b": 1}),
        name="wave", alt="A wave.", initial={"speed": 1.0, "size": 2}, **grid,
    )  # fmt: skip
    to = f"#fig=wave&speed={['0.5', '1', '2'][speed]}&size={grid['size'][size]}"
    scripts = PLOTLY, "book-run.js", "book-states.js", "book-plotly.js"
    one = page(figure_html(shown.to_json()), *scripts, to=to)
    one.wait_for_function("document.querySelector('.book-plot').dataset.state")
    found = [c.get_attribute("data-index") for c in one.query_selector_all(".book-control")]
    assert found[:2] == [str(speed), str(size)]
    drawn = json.loads(one.locator(".book-plot").get_attribute("data-y"))
    wanted = shown.state(speed=grid["speed"][speed], size=grid["size"][size], kind="line")
    assert drawn == wanted["data"][0]["y"]


BEGIN = "bookLive.add = (_, begin) => { window.begun = begin; };"
KEPT = {"layer0_sums": [1, 2]}
RUN = """async (program, given) => {
  const layer0_sums = {data: new Float32Array(2)}, data = new Float32Array(256);
  data[given.tokens[0] + 1] = 50;  // each token expects the one after it
  if (!program.endsWith("ask")) { return {layer0_sums, scores: {data}}; }
  const scores = new Float32Array(64);
  for (let key = 0; key < 8; key++) { scores[8 * key + 1] = 50; }  // each key is answered by 1
  return {scores: {data: scores}};
}"""


def live(page: Open, name: str, about: dict[str, Any], run: str = RUN, to: str = "") -> Any:
    """Begin an instrument with a model that is told what to answer."""
    scripts = "book-run.js", "book-live.js", BEGIN, f"live-{name}.js"
    one = page(f'<div id="live-{name}"></div>', *scripts, to=to)
    box = f"document.getElementById('live-{name}')"
    one.evaluate(f"about => begun({box}, {run}, about)", about)
    return one


def test_a_memory_is_judged_by_the_latest_value(page: Open) -> None:
    told = {"sum": {"title": "Sum", "colour": "red", "kept": KEPT, "once": "", "overwritten": ""}}
    sizes = [{"channels": 16, "memories": told}]
    about = {"most": 8, "asked": 0, "seeds": 2, "titles": {"sum": "Sum"}, "sizes": sizes}
    for pairs, judged in (
        ([[0, 1], [0, 2]], "An old value: sum."),
        ([[0, 2], [0, 1]], "Right: sum."),
    ):
        one = live(page, "memory", {**about, "pairs": pairs})
        one.locator(".live-said", has_text=judged).wait_for()


def test_a_byte_that_was_expected_surprises_nobody(page: Open) -> None:
    words = dict.fromkeys(("plain", "first", "second"), "")
    told = {"GLA": {"title": "GLA decay", "colour": "red", "kept": KEPT, **words}}
    about = {"most": 20, "written": 4, "text": "abc", "seeds": 2, "models": told}
    one = live(page, "write", about)
    one.locator(".live-bits", has_text="0.00 bits per byte").wait_for()
    one.get_by_role("button", name="Continue the text").click()
    one.locator(".live-bytes", has_text="abcdefg").wait_for()
    hot, cold = (one.evaluate("t => bookLive.softmax([0, 1], t)[1]", t) for t in (2, 0.5))
    assert hot == pytest.approx(0.622, abs=1e-3)
    assert cold == pytest.approx(0.881, abs=1e-3)


def test_models_see_the_digit_as_it_is_turned(page: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter turn clockwise, as the browser turns what is shown."""
    see = "async (_, {images}) => { seen.push([...images]); return {scores: {data: [1, 0]}}; }"
    a_three = 3 * move.OF_A_CLASS
    monkeypatch.setattr(move, "told_apart", lambda: (a_three, 0, 0))
    about = move.data() | {"start": [0, 0]}
    wide, side = about["canvas"], about["side"]
    there = f"""upright => seen.find((x) => x.some(Boolean) && String(x) !== String(upright)
      && x.every((ink, i) => !ink || (i < {wide * side} && i % {wide} < {side})))"""
    upright, turned = None, None
    for turn in (0, 90):
        one = live(page, "move", about, f"(window.seen = [], {see})", to=f"#live=move&turn={turn}")
        upright, turned = turned, one.wait_for_function(there, arg=turned).json_value()
    shown, made = ([x[wide * i : wide * i + side] for i in range(side)] for x in (upright, turned))
    for row, column in zip(made, zip(*shown[::-1], strict=True), strict=True):
        assert row == pytest.approx(column, abs=1e-12)


PARTS = {
    "embed": "embed.weight",
    "scale": "blocks.0.norm_attention.weight",
    "offset": "blocks.0.norm_attention.bias",
    "q": "blocks.0.attention.to_q.weight",
    "k": "blocks.0.attention.to_k.weight",
    "v": "blocks.0.attention.to_v.weight",
    "out": "blocks.0.attention.to_out.weight",
    "logit": "blocks.0.attention.shift.logit",
    "lastScale": "norm.weight",
    "lastOffset": "norm.bias",
    "readout": "readout.weight",
}
"""Parameter of the layer that the page trains → its name in PyTorch."""
UPDATED = """([about, weights, batches]) => {
  const run = bookRecall.training(about, bookRecall.drawn(about, 0));
  const read = (room, names) => Object.fromEntries(names.map((name) => [name, [...room[name]]]));
  Object.entries(weights).forEach(([name, values]) => run.weights[name].set(values));
  return batches.map(([tokens, targets]) => {
    const found = run.step({count: targets.length, tokens: tokens.flat(), targets});
    const [grad, after] = [run.grad, run.weights].map((room) => read(room, Object.keys(weights)));
    return {...found, grad, after};
  });
}"""


class Exact(Recall):
    """Recall whose loss is in float64."""

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the loss at the last tokens."""
        return cross_entropy(outputs[:, -1], targets[:, -1], reduction="sum")


@pytest.mark.parametrize("shift", [True, False])
def test_the_page_trains_as_pytorch_does(page: Open, shift: bool) -> None:
    """Loss, accuracy, each gradient, and each parameter after one to five updates, in float64."""
    sizes = train.sizes() | {"shift": shift, "steps": 5, "clip": 0.5}
    torch.manual_seed(3)
    task = Exact(sizes["pairs"], sizes["keys"], sizes["values"])
    model = task.model(shift=shift).double()
    parts = {part: name for part, name in PARTS.items() if name in model.state_dict()}
    assert len(parts) == len([*model.parameters()])
    with torch.no_grad():
        for weight in model.parameters():  # scales other than 1, offsets other than 0
            weight += 0.1 * torch.randn_like(weight)

    def read(values: dict[str, torch.Tensor]) -> dict[str, list[float]]:
        return {part: values[name].flatten().tolist() for part, name in parts.items()}

    seeds = [torch.Generator().manual_seed(step) for step in range(5)]  # of a run with seed 0
    drawn = [task.batch(sizes["batch"], seed) for seed in seeds]
    batches = [(tokens.tolist(), targets[:, -1].tolist()) for tokens, targets in drawn]
    one = page("", "bookLive = {add: () => 0};", "live-train.js")
    found = one.evaluate(UPDATED, [sizes, read(model.state_dict()), batches])

    tokens, targets = drawn[0]
    (task.loss(model(tokens), targets) / len(tokens)).backward()
    right = model(tokens)[:, -1].argmax(-1) == targets[:, -1]
    grads = {name: weight.grad for name, weight in model.named_parameters()}
    compare(found[0]["grad"], read(grads))
    assert torch.stack([x.norm() for x in grads.values()]).norm() > sizes["clip"]  # it is clipped
    assert found[0]["accuracy"] == right.double().mean()

    after, losses = [], []

    def keep(history: Any) -> None:
        after.append(read(model.state_dict()))
        losses.append(history.losses[-1])

    settings = replace(train.study.settings(0, 5), clip=sizes["clip"], log_every=1)
    fit(model, task, settings, on_log=keep)
    assert [update["loss"] for update in found] == pytest.approx(losses, rel=1e-12)
    for update, expected in zip(found, after, strict=True):
        compare(update["after"], expected)


def compare(found: dict[str, list[float]], expected: dict[str, list[float]]) -> None:
    """Compare two sets of parameters or gradients."""
    assert found.keys() == expected.keys()
    for part, values in expected.items():
        assert found[part] == pytest.approx(values, rel=1e-9, abs=1e-12), part


DRAWN = """([about, parts]) => {
  const weights = bookRecall.drawn(about, 0), random = bookRecall.uniform(1);
  const {tokens, targets} = bookRecall.sequences(about, 500, random);
  return [parts.map((part) => [...weights[part]]), [...tokens], [...targets]];
}"""


def test_the_page_draws_weights_and_sequences_as_the_package_does(page: Open) -> None:
    sizes = train.sizes()
    task = Recall(pairs=sizes["pairs"], keys=sizes["keys"])
    one = page("", "bookLive = {add: () => 0};", "live-train.js")
    weights, tokens, targets = one.evaluate(DRAWN, [sizes, [*PARTS]])
    torch.manual_seed(0)
    model = task.model(shift=True).state_dict()
    for (part, name), numbers in zip(PARTS.items(), weights, strict=True):
        made, expected = torch.tensor(numbers), model[name].flatten()
        assert made.shape == expected.shape, part
        if part not in ("logit", "scale", "offset", "lastScale", "lastOffset"):
            assert 0.85 < made.std() / expected.std() < 1.15, part
            assert abs(made.mean()) < 0.2 * made.std(), part
        else:
            assert made.tolist() == expected.tolist(), part
    rows = torch.tensor(tokens).view(500, -1)
    keys, values, asked = rows[:, :-1:2], rows[:, 1:-1:2], rows[:, -1:]
    assert (keys.sort(-1).values == torch.arange(8, 16)).all()
    assert (values[keys == asked] == torch.tensor(targets)).all()
    place = (keys == asked).int().argmax(-1)
    for drawn, count in ((values, 4000), (place, 500), (keys[:, 0] - 8, 500)):
        assert (drawn.flatten().bincount(minlength=8) / count - 1 / 8).abs().max() < 0.06


HEAD = {"hidden_size": 512, "num_attention_heads": 4, "rope_theta": 5e5}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LONG = {
    "short_factor": [1.0 + i / 50 for i in range(64)],
    "long_factor": [2.0 + i for i in range(64)],
}
PASTED = {
    "linear": HEAD | {"rope_scaling": {"type": "linear", "factor": 4.0}},
    "dynamic": HEAD
    | {"rope_scaling": {"type": "dynamic", "factor": 2.0}, "max_position_embeddings": 4096},
    "yarn": HEAD
    | {
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 40.0,
            "original_max_position_embeddings": 4096,
            "beta_fast": 24,
            "mscale": 0.7,
            "mscale_all_dim": 1.0,
        }
    },
    "yarn, ends not rounded": HEAD
    | {
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 1.5e5,
            "factor": 32.0,
            "truncate": False,
        },
        "max_position_embeddings": 8192,
    },
    "llama3": HEAD
    | {"rope_scaling": {**LLAMA3, "rope_type": "llama3", "original_max_position_embeddings": 8192}},
    "longrope": HEAD
    | {
        "rope_scaling": {"type": "longrope", **LONG},
        "max_position_embeddings": 65536,
        "original_max_position_embeddings": 4096,
    },
    "part of a head": HEAD
    | {"head_dim": 80, "partial_rotary_factor": 0.4}
    | {"rope_scaling": {"rope_type": "linear", "factor": 1.0}},
    "proportional": HEAD
    | {
        "rope_parameters": {
            "rope_type": "proportional",
            "rope_theta": 1e6,
            "partial_rotary_factor": 0.25,
        }
    },
}
REFUSED = """given => {
  try { bookRope(given, 0); } catch (error) { return [error.name, error.message]; }
}"""
READ = "([given, length]) => bookRope(given, length)"


@pytest.mark.parametrize("length", [2000, 40_000])
@pytest.mark.parametrize("name", PASTED)
def test_a_pasted_config_has_the_frequencies_of_transformers(
    name: str, length: int, page: Open
) -> None:
    """For each way to scale them, at a length within and one beyond that of training."""
    rope = pytest.importorskip("transformers.modeling_rope_utils")
    from transformers import LlamaConfig

    given = PASTED[name]
    scaling = given.get("rope_parameters") or given["rope_scaling"]
    kind = scaling.get("rope_type") or scaling["type"]
    config = LlamaConfig(**copy.deepcopy(given))
    expected, scale = rope.ROPE_INIT_FUNCTIONS[kind](config, "cpu", seq_len=length)
    found = page("", "live-rope.js").evaluate(
        READ, [json.dumps({**given, "use_cache": True}), length]
    )
    w = torch.tensor(found["frequencies"] + [0.0] * (len(expected) - len(found["frequencies"])))
    torch.testing.assert_close(w, expected.float(), rtol=1e-5, atol=0)
    assert found["scale"] == pytest.approx(scale)
    head_dim = given.get("head_dim", 128)
    assert found["still"] + len(found["frequencies"]) == head_dim // 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"hidden_size": 768, "num_attention_heads": 12}, "Does the model use RoPE?"),
        ({"rope_theta": 1e4}, "must have head_dim, or hidden_size and num_attention_heads"),
        ({**HEAD, "rope_theta": "1e4"}, 'rope_theta must be a number above 1, got "1e4".'),
        (HEAD | {"rope_scaling": {"type": "mrope"}}, 'The rope_type "mrope" is not known here.'),
        (HEAD | {"rope_scaling": {"type": "linear"}}, "The key factor is missing."),
        (
            HEAD | {"rope_scaling": {"type": "linear", "factor": 2, "mscale": 1}},
            'The key mscale is not known here for the rope_type "linear"',
        ),
        (HEAD | {"rope_ratio": 2}, "The key rope_ratio is not known here, and it may change"),
        (
            HEAD
            | {"rope_scaling": {"type": "su", "factor": 2, "short_factor": [1, 2]}}
            | {"max_position_embeddings": 512},
            "short_factor must have 64 numbers, one for each pair, got 2.",
        ),
        ({**HEAD, "head_dim": 512}, "at most 128 pairs of channels here, got 256"),
        ("{'rope_theta': 1e4}", "This is not JSON"),
        ("[1.0, 0.5, ..., 1e-4]", "“...” is not a frequency."),
        ("1 0.5 0.25", "At least 8 frequencies above 0 are needed, got 3."),
    ],
)
def test_what_is_not_known_of_a_pasted_text_is_said(
    given: str | dict[str, Any], said: str, page: Open
) -> None:
    text = given if isinstance(given, str) else json.dumps(given)
    name, found = page("", "live-rope.js").evaluate(REFUSED, text)
    assert name == "RangeError"
    assert said in found


def test_a_list_of_frequencies_is_read_as_torch_prints_it(page: Open) -> None:
    """Zeros are pairs that do not rotate."""
    w = torch.cat([RoPE(24).frequencies().flatten(), torch.zeros(4)])
    found = page("", "live-rope.js").evaluate(READ, [repr(w.double()) + ", device='cuda:0')", 0])
    torch.testing.assert_close(
        torch.tensor(found["frequencies"]), w[:12].float(), rtol=1e-3, atol=0
    )
    assert found["still"] == 4
