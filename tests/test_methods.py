"""The map of all methods: complete, of what the classes are, and as the records have it."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
import torch

from _ext import book_choice, book_methods
from book import measures, methods, recorded
from lab.theory.spread import difference, interval, mean
from results import extrapolation, language, recall_hedgehog, recall_many, vision
from stringlib import make_encoder
from stringlib.attention.registry import FEATURES, WEIGHTS
from stringlib.encoders.registry import BIASES, ENCODERS
from stringlib.models.blocks import ABSOLUTE

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def encoders() -> dict[str, methods.Row]:
    return {row.name: row for row in methods.encoders()}


@pytest.fixture(scope="module")
def attentions() -> dict[str, methods.Row]:
    return {row.name: row for row in methods.attentions()}


# --- complete ---


def test_every_name_has_a_row_of_every_column_that_leads_to_a_class_and_a_chapter(
    encoders, attentions
) -> None:
    assert set(encoders) == {"none", *ABSOLUTE, *ENCODERS, *BIASES}
    assert set(attentions) == {"softmax", *FEATURES, *WEIGHTS}
    chapters = book_choice.numbers(ROOT)
    for kind, rows in (("encoders", encoders), ("attentions", attentions)):
        for row in rows.values():
            assert set(row.cells) == set(book_methods.KINDS[kind][2])
            assert all(text.strip() for text in row.cells.values())
            module, _, name = row.code.rpartition(".")
            assert not row.code or hasattr(importlib.import_module(module), name)
            assert f"notebooks/{row.chapter}" in chapters


# --- what the classes are ---


def test_numbers_that_act_are_those_of_the_chapters(encoders) -> None:
    d, axes = methods.HEAD, methods.AXES
    pairs, entries = d // 2, d * (d - 1) // 2
    expected = {
        "none": "0",
        "rope": "0",
        "axial": "0",
        "mixed": f"{axes * pairs} frequencies",
        # two mirrors a pair, of which the difference counts
        "reflection": f"{axes * pairs} of {2 * axes * pairs} frequencies",
        # chapter 6: c_0, c_{d/2} and the symmetric part do nothing
        "circulant": f"{axes * ((d - 1) // 2)} of {axes * d} frequencies",
        # chapter 7: d/2 are spare
        "cayley": f"{entries + axes * pairs - pairs} of {entries + axes * pairs} entries",
        # of 32 buckets that of distance 0 among the keys behind stays empty, and a constant is free
        "t5": "30 of 32 buckets",
        "kerple-log": "2 parameters",
        "kerple-power": "2 parameters",
        "alibi": "0",
        "learned": f"{14 * 14 * d:,} entries",
    }
    found = {name: row.cells["learned"] for name, row in encoders.items()}
    assert {name: found[name] for name in expected} == expected


def test_relative_is_what_the_theory_says(encoders) -> None:
    found = {name: row.cells["relative"] for name, row in encoders.items()}
    assert found == {
        name: "–" if name == "none" else "no" if name in ABSOLUTE else "yes" for name in encoders
    }


def test_only_what_has_a_basis_folds(encoders) -> None:
    found = {name: row.cells["folds"] for name, row in encoders.items()}
    folds = {name for name, text in found.items() if text == "yes"}
    assert folds == {"circulant", "cayley", "cayley-sparse"}
    for name in ENCODERS:
        basis = make_encoder(name, 8).basis()
        assert (name in folds) == (not torch.equal(basis[0], torch.eye(8).to(basis)))
    assert {found[name] for name in BIASES} == {"no"}


def test_the_state_of_an_attention_has_the_size_of_the_theory(attentions) -> None:
    d = methods.WIDE
    found = {name: row.cells["kept"] for name, row in attentions.items()}
    assert found["softmax"] == f"grows, {2 * d} per token"
    assert found["toeplitz"] == "no state"
    for name, copies in {"relu": 1, "gla": 1, "hyperbolic": 2, "ramp": 2, "falling": 4}.items():
        assert found[name] == f"{copies * d * (d + 1):,}"
    causal = {name for name, row in attentions.items() if row.cells["causal"] == "only"}
    sums = {"ramp", "ramp-squared", "falling"}
    assert causal == sums | {"retnet", "gla", "ssd", "delta", "gated-delta", "kda"}
    exact = {name: row.cells["rope"] for name, row in attentions.items()}
    assert exact.pop("softmax") == "yes"
    assert {exact.pop(name) for name in ("identity", "taylor", "delta", "gated-delta")} == {
        "before"
    }
    assert {name for name, place in exact.items() if place != "after φ"} == {"gla", "kda"}


# --- as the records have it ---


def numbers_of(text: str) -> list[float]:
    return [float(x) for x in re.findall(r"[+-]?\d+\.\d+", text.replace("−", "-"))]


def test_cells_are_means_and_intervals_of_the_records(encoders, attentions) -> None:
    def agrees(text: str, values: list[float]) -> bool:
        middle, *half = numbers_of(text)
        low, high = interval(values)
        wide = half[0] if half else 0.0
        return abs(middle - mean(values)) < 0.0051 and abs(wide - (high - low) / 2) < 0.0051

    bits = recorded.data("language")["cells"]["ELU, GLA"]["runs"]
    assert agrees(attentions["gla"].cells["text"], [run["bits"] for run in bits])
    pairs = recorded.data("recall_many")["cells"]
    rows = [[run["scores"]["test"] for run in pairs[f"free, relu, rate {rate:g}"]["runs"]]
            for rate in recall_many.RATES]  # fmt: skip
    assert agrees(attentions["relu"].cells["lookup"], max(rows, key=sum))
    grids = [run["places"] for run in recorded.data("vision")["cells"]["moved axial"]["runs"]]
    # at 16 of 25 places no image was trained at
    new = [sum(map(sum, grid)) - sum(sum(row[:3]) for row in grid[:3]) for grid in grids]
    assert agrees(encoders["axial"].cells["images"], [total / 16 for total in new])
    runs = recorded.data("extrapolation")["cells"]["text rope"]["runs"]
    rope = [run["read"]["rope"]["lengths"] for run in runs]
    assert agrees(encoders["rope"].cells["text"], [row[0] for row in rope])
    assert agrees(encoders["rope"].cells["longer"], [row[-1] - row[0] for row in rope])
    digits = recorded.data("mnist")["cells"]["favor: axial"]["runs"]
    assert agrees(attentions["favor"].cells["images"], [run["scores"]["test"] for run in digits])


def test_a_dash_stands_where_and_only_where_there_is_no_run(encoders, attentions) -> None:
    for name in ("text", "longer", "lookup"):
        tried = {n for n, row in encoders.items() if row.cells[name] != methods.MISSING}
        assert tried == set(extrapolation.METHODS) - {"gla"}
    tried = {n for n, row in encoders.items() if row.cells["images"] != methods.MISSING}
    assert tried == set(vision.ENCODERS)
    tried = {n for n, row in attentions.items() if row.cells["lookup"] != methods.MISSING}
    learned = {cell["attention"] for cell in recall_hedgehog.CELLS.values()}
    assert tried == set(recall_many.MAPS["free"]) | learned
    asked = {told.get("weight") for told in language.CELLS.values()} - {None}
    found = {n for n in WEIGHTS if attentions[n].cells["text"] != methods.MISSING}
    assert found == asked


def test_the_words_of_the_page_hold() -> None:
    seen, long, bits = recorded.vision(), recorded.longer(), recorded.language()

    def less(one: list[float], other: list[float]) -> bool:
        return difference(one, other)[2] < 0

    # a text
    for ahead in ("ELU, GLA", "ELU, SSD", "softmax, RoPE"):
        assert all(less(bits[ahead], bits[b]) for b in ("FAVOR+, RoPE", "ReLU, Toeplitz"))
    floor = mean(bits["softmax"])
    assert all(abs(mean(bits[b]) - floor) < 0.02 for b in ("ReLU, cosine", "C-CosGate"))
    # images
    other, sizes = seen["other"], measures.resolution()
    assert difference(other["moved axial"], other["moved cls axial"])[1] > 0
    table, axial = (
        [sizes[f"{n}, {w}, picture"] for w in ("at once", "then")]
        for n in ("learned table", "axial RoPE")
    )
    assert less(table[0], axial[0])
    assert not less(table[1], axial[1])
    assert less(sizes["axial RoPE, then, counted"], axial[1])
    biased, plain = (seen["same"][f"performer favor{x}"] for x in (", toeplitz", ""))
    assert difference(biased, plain)[1] < 0 < difference(biased, plain)[2]
    assert less(other["performer favor, axial"], other["performer favor"])
    # more tokens than in training
    level = ("kerple-log", "kerple-power", "gla", "alibi")
    assert max(abs(mean(long["text"][m])) for m in level) < 0.03
    assert min(mean(long["text"][m]) for m in ("rope", "yarn", "t5")) > 1
    assert min(mean(long["needles"][m]) for m in ("none", "t5", "yarn")) > 0.97
    best = {m: row for m, row in long["needles"].items() if m in level}
    assert max(best, key=lambda m: mean(best[m])) == "kerple-log"


def test_the_settings_that_the_page_names_are_those_of_the_studies() -> None:
    assert extrapolation.LENGTH == 64
    assert extrapolation.LENGTHS[-1] == 1024 == 16 * extrapolation.LENGTH
    assert vision.STEPS == recorded.data("vision")["steps"] == 400
    for study in ("vision", "language", "extrapolation", "recall_many"):
        assert {len(c["runs"]) for c in recorded.data(study)["cells"].values()} == {5}
    assert recorded.LONGEST == 16384
    assert methods.WIDE == 64


# --- on the page ---

PAGE = (ROOT / "book" / "choose.md").read_text(encoding="utf8")
MAP = re.compile(r"^:+\{methods\}\n(.*?)\n:+$", re.DOTALL | re.MULTILINE)


def test_the_map_has_a_row_for_every_method_and_words_for_no_other(encoders, attentions) -> None:
    words = book_choice.told(MAP.search(PAGE)[1].splitlines())
    text = book_methods.listed(words, book_choice.numbers(ROOT))
    assert re.findall(r'id="method-([\w-]+)"', text) == [*encoders, *attentions]
    assert set(re.findall(r'id="need-([\w-]+)"', text)) == {*book_methods.KINDS, *methods.NEEDS}
    assert words.keys() == {*encoders, *attentions}  # what each is, and what came of it


def test_a_mark_stands_where_its_number_is() -> None:
    less = book_methods.mark("text", "1.82\u00a0±\u00a00.04, elu", (1.0, 3.0), less=True)
    assert 'style="--mean:41%;--low:39%;--high:43%"' in less
    assert 'data-order="1.82"' in less
    assert "±\u00a00.04<" in less  # not what it stood beside
    more = book_methods.mark("cost", "−4,160", (-8320, 0), less=False)
    assert 'style="--mean:50%;--low:50%;--high:50%"' in more
    assert 'data-order="4160"' in more
