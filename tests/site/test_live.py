"""Instruments: what the page computes is what PyTorch computes, on numbers that nobody chose."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from book.live import encoder
from lab.program import bundle, traced
from tests.model_cases import language_model, text
from tests.site.reader import DESKTOP, PHONE, ROOT, Reader

RUN = ROOT / "book" / "_assets" / "book-run.js"
CALL = """([text, inputs]) => {
  const programs = window.bookRun.load(JSON.parse(text)), found = {};
  for (const name in inputs) {
    found[name] = {};
    const outputs = window.bookRun.run(programs[name], inputs[name]);
    for (const key in outputs) { found[name][key] = Array.from(outputs[key].data); }
  }
  return found;
}"""


APART = """async ([text, name, inputs]) => {
  const run = window.bookRun.apart(JSON.parse(text));
  const first = run(name, inputs, ["out"]), second = await run(name, inputs, ["out"]);
  return [(await first).out.data, second.out.data].map(data => Array.from(data));
}"""


@pytest.fixture(scope="module")
def runner(browser: Any) -> Iterator[Any]:
    """An empty page that can run programs."""
    page = browser.new_page()
    page.add_script_tag(path=str(RUN))
    yield page
    page.close()


def computed(page: Any, made: dict[str, Any], inputs: dict[str, dict[str, torch.Tensor]]) -> Any:
    """Return what the page makes of tensors, as lists."""
    plain = {
        name: {key: x.flatten().tolist() for key, x in given.items()}
        for name, given in inputs.items()
    }
    return page.evaluate(CALL, [json.dumps(made), plain])


MODELS = (
    "softmax-cayley",
    "relu-after",
    "favor-after",
    "normal",
    "shift",
    "grouped",
    "elu-gla-None",
    "elu-gated-delta-circulant",
    "c-cosgate",
)


def test_models_run_in_the_page(runner: Any) -> None:
    """Each kind of attention and of weight, but for a table of offsets: its FFT is complex."""
    models = {name: language_model(name).eval() for name in MODELS}
    inputs = {name: {"tokens": text(1, 7, seed=i)} for i, name in enumerate(MODELS)}
    made = bundle({name: traced(models[name], tokens=text(1, 7)) for name in MODELS}, half=False)
    found = computed(runner, made, inputs)
    for name, model in models.items():
        there = torch.tensor(found[name]["out"])
        torch.testing.assert_close(
            there, model(inputs[name]["tokens"]).detach().flatten(), atol=2e-5, rtol=1e-4, msg=name
        )


def test_a_worker_answers_the_same(runner: Any) -> None:
    model, tokens = language_model("softmax-cayley").eval(), text(1, 7, seed=3)
    made = bundle({"it": traced(model, tokens=text(1, 7))})
    inputs = {"tokens": tokens.flatten().tolist()}
    for found in runner.evaluate(APART, [json.dumps(made), "it", inputs]):
        there = torch.tensor(found)
        torch.testing.assert_close(there, model(tokens).detach().flatten(), atol=1e-2, rtol=1e-2)


def test_the_encoder_of_the_page_is_the_package(runner: Any) -> None:
    """Frequencies, a basis, a bias and a place that the page was not exported with."""
    generator = torch.Generator().manual_seed(7)
    frequencies = torch.rand(32, generator=generator, dtype=torch.float64)
    words = torch.nn.functional.normalize(torch.randn(16, 64, generator=generator), dim=-1)
    inputs = {
        "score": {"frequencies": frequencies},
        "grid": {"frequencies": frequencies},
        "maps": {
            "words": words,
            "mask": (torch.arange(16) < 11).float(),
            "frequencies": frequencies,
            "basis": torch.tensor([0.0, 0.0, 1.0]),
            "slope": torch.tensor([0.2]),
            "moved": torch.tensor([31_415.0]),
        },
    }
    modules = {"score": encoder.Score(), "grid": encoder.Grid(), "maps": encoder.Maps()}
    found = computed(runner, bundle(encoder.programs(), half=encoder.HALF), inputs)
    for name, module in modules.items():
        for key, value in module(**inputs[name]).items():
            there = torch.tensor(found[name][key], dtype=torch.float64)
            assert (there - value.flatten()).abs().max() < 1e-7, (name, key)
    rotated, moved = (torch.tensor(found["maps"][key]) for key in ("rotated", "rotated_moved"))
    assert (rotated - moved).abs().max() < 1e-6
    assert (torch.tensor(found["maps"]["added_moved"]) - rotated).abs().max() > 0.01


@pytest.fixture(params=["desktop", "phone"])
def page(request: Any, site: Path, browser: Any) -> Iterator[Any]:
    """The page of all instruments."""
    reader = Reader(browser, **(DESKTOP if request.param == "desktop" else PHONE))
    reader.open(site / "book" / "try.html")
    yield reader.page
    reader.close()
    assert not reader.complaints


def test_a_handle_moves_by_key_and_by_pointer_and_a_link_keeps_it(page: Any) -> None:
    """The listing follows, the page says what it shows, and the address brings it back."""
    box = page.locator("#live-encoder")
    box.scroll_into_view_if_needed()
    page.locator("#live-encoder[data-ready]").wait_for()
    knob, listing = box.get_by_role("slider").first, box.locator("pre code")
    assert listing.inner_text().startswith("encoder = RoPE(64)\n")
    assert "the rotated map is the same" in box.locator(".live-said").inner_text()
    before = float(knob.get_attribute("aria-valuenow"))
    knob.press("ArrowRight")
    page.wait_for_function(
        "document.querySelector('#live-encoder pre').innerText.includes('inv_freq')"
    )
    assert float(knob.get_attribute("aria-valuenow")) == pytest.approx(before - 0.05, abs=0.011)
    place = knob.bounding_box()
    page.mouse.move(place["x"] + 8, place["y"] + 8)
    page.mouse.down()
    page.mouse.move(place["x"] + 68, place["y"] + 8, steps=4)
    page.mouse.up()
    page.wait_for_function(
        "([selector, value]) => Number(document.querySelector(selector).ariaValueNow) < value",
        arg=["#live-encoder .live-knob", before - 0.3],
    )
    page.wait_for_function(
        "location.hash.startsWith('#live=encoder') && !location.hash.includes('shifts=-0.05+')"
    )
    moved = knob.get_attribute("aria-valuenow")
    page.reload()
    page.locator("#live-encoder[data-ready]").wait_for()
    assert page.locator("#live-encoder .live-knob").first.get_attribute("aria-valuenow") == moved


def test_a_bias_of_bfloat16_shows(page: Any) -> None:
    """Positions that bfloat16 does not hold change the map that rotation would keep."""
    box = page.locator("#live-encoder")
    box.scroll_into_view_if_needed()
    page.locator("#live-encoder[data-ready]").wait_for()
    box.get_by_role("checkbox").check()
    page.wait_for_function(
        "document.querySelector('#live-encoder .live-said').innerText.includes('map is changed')"
    )
