"""What a page computes is what PyTorch computes, on numbers that nobody chose.

The scripts run in V8, as formulas do while the book is built: no browser and no built book are
needed. What the page shows of it is looked at in tests/site/test_live.py.
"""

from __future__ import annotations

import importlib
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from py_mini_racer import MiniRacer

from book.live import encoder, memory, sentence, write
from book.recorded import measured
from lab.explore import figure_json
from lab.explore.frames import PLOTLY
from lab.program import bundle, traced
from tests.model_cases import language_model, text
from tests.site.reader import ROOT, differences

ASSETS = ROOT / "book" / "_assets"
WINDOW = """
const CODES = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
globalThis.window = globalThis;
globalThis.atob = text => {
  let bits = 0, held = 0, found = "";
  for (const letter of text.replace(/=+$/, "")) {
    held = held << 6 | CODES.indexOf(letter);
    bits += 6;
    if (bits >= 8) { bits -= 8; found += String.fromCharCode(held >> bits & 255); }
  }
  return found;
};
null"""
CALL = """([made, inputs]) => {
  const programs = window.bookRun.load(made), found = {};
  for (const name in inputs) {
    found[name] = {};
    const outputs = window.bookRun.run(programs[name], inputs[name]);
    for (const key in outputs) { found[name][key] = Array.from(outputs[key].data); }
  }
  return found;
}"""
STATES = "([figure, points]) => points.map(window.bookStates.states(figure))"
TRIED = 6


class Scripts:
    """Scripts of the page without a page: what runs programs, and knows the states of figures."""

    def __init__(self) -> None:
        self.machine = MiniRacer()
        self.machine.eval(WINDOW)
        for name in ("book-run.js", "book-states.js"):
            self.machine.eval((ASSETS / name).read_text(encoding="utf8") + "; null")

    def evaluate(self, function: str, argument: Any) -> Any:
        """Return what a function of JavaScript makes of an argument, both as JSON."""
        call = f"JSON.stringify(({function})({json.dumps(argument)}))"
        return json.loads(str(self.machine.eval(call)))


@pytest.fixture(scope="module")
def runner() -> Iterator[Scripts]:
    scripts = Scripts()
    yield scripts
    scripts.machine.close()


def computed(
    runner: Scripts, made: dict[str, Any], inputs: dict[str, dict[str, torch.Tensor]]
) -> Any:
    """Return what the page makes of tensors, as lists."""
    plain = {
        name: {key: x.flatten().tolist() for key, x in given.items()}
        for name, given in inputs.items()
    }
    return runner.evaluate(CALL, [made, plain])


MODELS = (
    *("softmax-cayley", "relu-after", "favor-after", "normal", "shift", "grouped"),
    *("elu-gla-None", "elu-gated-delta-circulant", "c-cosgate"),
)


def test_models_run_in_the_page(runner: Scripts) -> None:
    """Each kind of attention and of weight, but for a table of offsets: its FFT is complex."""
    models = {name: language_model(name).eval() for name in MODELS}
    for model in models.values():
        model.blocks = model.blocks[:1]
    inputs = {name: {"tokens": text(1, 7, seed=i)} for i, name in enumerate(MODELS)}
    made = bundle({name: traced(models[name], tokens=text(1, 7)) for name in MODELS}, half=False)
    found = computed(runner, made, inputs)
    for name, model in models.items():
        there = torch.tensor(found[name]["out"])
        torch.testing.assert_close(
            there, model(inputs[name]["tokens"]).detach().flatten(), atol=2e-5, rtol=1e-4, msg=name
        )


def test_the_encoder_of_the_page_is_the_package(runner: Scripts) -> None:
    """Frequencies, a basis, a bias and a place that the page was not exported with."""
    generator = torch.Generator().manual_seed(7)
    frequencies = torch.rand(32, generator=generator, dtype=torch.float64)
    words = torch.nn.functional.normalize(torch.randn(16, 64, generator=generator), dim=-1)
    given = {"frequencies": frequencies, "shares": torch.full((32,), 1 / 32)}
    inputs = {
        "score": given,
        "grid": given,
        "maps": {
            "words": words,
            "mask": (torch.arange(16) < 11).float(),
            **given,
            "basis": torch.tensor([0.0, 0.0, 1.0]),
            "slope": torch.tensor([0.2]),
            "moved": torch.tensor([31_415.0]),
        },
    }
    modules = {"score": encoder.Score(), "grid": encoder.Grid(), "maps": encoder.Maps()}
    made = {name: encoder.programs()[f"{name} 32"] for name in modules}
    found = computed(runner, bundle(made, half=encoder.HALF), inputs)
    for name, module in modules.items():
        for key, value in module(**inputs[name]).items():
            there = torch.tensor(found[name][key], dtype=torch.float64)
            assert (there - value.flatten()).abs().max() < 1e-7, (name, key)
    rotated, moved = (torch.tensor(found["maps"][key]) for key in ("rotated", "rotated_moved"))
    assert (rotated - moved).abs().max() < 1e-6
    assert (torch.tensor(found["maps"]["added_moved"]) - rotated).abs().max() > 0.01


@pytest.mark.parametrize("moved", [0.0, 17.25, 100.0])
def test_the_sentence_of_the_front_page_is_turned_by_the_package(
    runner: Scripts, moved: float
) -> None:
    words = torch.nn.functional.normalize(torch.randn(sentence.MOST, sentence.HEAD_DIM), dim=-1)
    inputs = {"words": words, "mask": (torch.arange(sentence.MOST) < 6).float()}
    inputs["moved"], module = torch.tensor([moved]), sentence.Sentence()
    found = computed(runner, bundle(sentence.programs(), half=sentence.HALF), {"maps": inputs})
    wanted, still = module(**inputs), module(**{**inputs, "moved": torch.zeros(1)})
    for name, value in wanted.items():
        assert (torch.tensor(found["maps"][name]) - value.flatten()).abs().max() < 1e-6
    assert (wanted["turned"] - still["turned"]).abs().max() < 1e-6
    assert bool((wanted["added"] - still["added"]).abs().max() > 0.05) == bool(moved)


def test_one_question_asks_for_all_keys(runner: Scripts) -> None:
    """Eight keys behind one list, whose state stays as it was."""
    for name in ("softmax, RoPE", "delta rule"):
        one = memory.memories()[name]
        listed, keys = torch.randint(8, (6,)), torch.arange(8, 16)
        kept = one.start()
        with torch.no_grad():
            for at, token in enumerate(listed):
                found = one(token[None], torch.tensor([at]), **kept)
                for part, x in found.items():
                    if part.endswith(("_keys", "_values")):
                        kept[part][..., at : at + 1, :] = x
                    elif part in kept:
                        kept[part] = x
            whole = one.model(torch.cat([listed.expand(8, 6), keys[:, None]], 1))[:, -1]
        inputs = {"tokens": keys, "place": torch.tensor([6]), **kept}
        made = bundle({name: one.program(8)}, half=False)
        there = torch.tensor(computed(runner, made, {name: inputs})[name]["scores"])
        torch.testing.assert_close(there, whole.flatten(), atol=2e-4, rtol=1e-3)


def test_the_list_that_is_shown_first_is_one_on_which_memories_differ() -> None:
    pairs, asked = memory.chosen()
    had = [value for key, value in pairs if key == asked]
    assert len(had) == 2
    assert had[0] != had[1]
    assert len(pairs) == memory.LISTED
    tokens = [t for key, value in pairs for t in (key + 8, value)] + [asked + 8]
    with torch.no_grad():
        said = {
            name: int(one.model(torch.tensor([tokens]))[0, -1].argmax())
            for name, one in memory.memories().items()
        }
    assert {name for name, value in said.items() if value == had[0]} == {"sum", "FAVOR+"}
    assert sum(value == had[1] for value in said.values()) == 4


def test_of_the_passage_said_twice_some_copy() -> None:
    """As the page says to whom it shows nothing: who copies, who does in part, who does not."""
    given = torch.tensor([*write.data()["text"].encode()])[None]
    once, kept = given.shape[-1] // 2, {}
    for name, one in write.models().items():
        with torch.no_grad():
            shares = one.model(given[:, :-1]).softmax(-1)
        bits = -shares.gather(-1, given[:, 1:, None]).log2().flatten()
        kept[name] = float(bits[once - 1 :].mean() / bits[: once - 1].mean())
    assert kept["softmax, RoPE"] < 0.2
    assert all(0.3 < kept[name] < 0.8 for name in ("FAVOR+, RoPE", "SSD", "GLA"))
    assert kept["gated delta rule"] > 0.9


def test_of_held_out_pieces_said_twice_the_same_copy() -> None:
    """What chapter 21 says of the record, for every seed."""
    bits = {
        kind: measured("page_text", lambda run, kind=kind: run["bits"][kind])
        for kind in ("first", "second")
    }
    share = {
        name: [again / once for once, again in zip(bits["first"][name], second, strict=True)]
        for name, second in bits["second"].items()
    }
    assert max(share["softmax, RoPE"]) < 1 / 4
    for name in ("FAVOR+, RoPE", "SSD", "GLA"):
        assert 0.5 < min(share[name]) < max(share[name]) < 0.7
    assert min(share["gated delta rule"]) >= 1


def figures() -> Iterator[dict[str, Any]]:
    """Yield every figure of the chapters."""
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf8"))["cells"]:
            for output in cell.get("outputs", []):
                if PLOTLY in output.get("data", {}):
                    yield output["data"][PLOTLY]


ABOUT = [(figure["layout"]["meta"]["explorer"], figure) for figure in figures()]
COMPUTE = {about["name"]: (about, figure) for about, figure in ABOUT if "programs" in about}


@pytest.mark.parametrize("name", COMPUTE)
def test_a_figure_computes_what_it_draws(runner: Scripts, name: str) -> None:
    """At both ends of every slider, and at settings that nobody chose."""
    about, figure = COMPUTE[name]
    parameters = about["parameters"]
    sizes = [len(p["values"]) for p in parameters]
    draw = random.Random(name)
    points = [[0] * len(sizes), [n - 1 for n in sizes]]
    points += [[draw.randrange(n) for n in sizes] for _ in range(TRIED)]
    module, _, function = about["source"].partition(":")
    shown = runner.evaluate(STATES, [figure, points])
    found = []
    for point, state in zip(points, shown, strict=True):
        values = {p["name"]: p["values"][i] for p, i in zip(parameters, point, strict=True)}
        drawn = getattr(importlib.import_module(module), function)(**values)
        want = {**figure_json(drawn.figure), "alt": drawn.alt}
        got = {**state, "alt": state["layout"]["meta"]["alt"]}
        found += [f"{values}: {line}" for line in differences(want, got)]
    assert not found, "\n".join(found[:10])


@pytest.mark.parametrize(
    ("value", "spec"),
    [
        *[(x, ".2f") for x in (0.125, -0.125, 2.675, 1.005, 99.995, -0.001)],
        *[(x, ".0f") for x in (0.5, 1.5, -2.5, 1e6)],
        *[(x, "g") for x in (1e-5, 1234567.0, 0.00012, 0.30000000000000004, 13777.25, 0.0)],
        *[(x, ".3g") for x in (0.0005, 1234.0, 9.995)],
        *[(x, "+.2f") for x in (0.5, 0.0)],
        *[(x, ",.0f") for x in (999.0, 1234567.0)],
        *[(x, ".0%") for x in (0.125, 0.005)],
    ],
)
def test_numbers_are_written_as_python_writes_them(
    runner: Scripts, value: float, spec: str
) -> None:
    assert runner.evaluate("([v, s]) => window.bookStates.written(v, s)", [value, spec]) == format(
        value, spec
    )
