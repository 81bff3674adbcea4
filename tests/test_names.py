"""The display names of methods: one for each, and none of the code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import pytest

from book import cells, names
from book.figures import lookup
from book.forest import verdict
from book.verdicts import FAMILIES, MEASURES
from lab.explore import COLOURS
from lab.methods import METHODS
from results import copy_rates, language, language_rates, listops, page_digits, page_recall
from stringlib.attention.registry import WEIGHTS
from stringlib.encoders.registry import BIASES, ENCODERS

MODELS = [
    *(("language", name) for name in language.CELLS),
    *(("language_rates", name) for name in language_rates.METHODS),
    *(("listops", name) for name in listops.CELLS),
]
PRIVATE = re.compile(
    r"(?<![\w-])(favor|elu|relu|gla|ssd|rope|ntk|pi|yarn|alibi|kerple|toeplitz|retnet|mixed|axial|"
    r"cayley|iid|none|free|cls|c-cosgate|[Tt]able added|stretched|half softmax|"
    r"simplex rows|a head of|ELU, |circulant, |ramp,|literal|(?<!learning )rate \d|turned)"
    r"(?![\w+-])"
)
"""Names of the code and of the authors among themselves."""


def shown_cells() -> Iterator[tuple[str, str, list[str]]]:
    """Yield name, record and cells of all that notes show."""
    for name, family in FAMILIES.items():
        both = [*family.claims, *map(family.other, family.claims)]
        yield name, family.record, [*dict.fromkeys(both)]
    for name, measure in MEASURES.items():
        yield name, measure.record, [*measure.runs()]


NOTES = list(shown_cells())


@pytest.mark.parametrize("registry", [METHODS, ENCODERS, BIASES, WEIGHTS, names.KERNELS])
def test_every_name_of_a_registry_has_a_display_name_of_its_own(
    registry: Iterable[str],
) -> None:
    found = {name: names.display(name) for name in registry}
    assert len({*found.values()}) == len(found)
    assert not [text for text in found.values() if PRIVATE.search(text)]


@pytest.mark.parametrize(("name", "record", "keys"), NOTES, ids=[name for name, *_ in NOTES])
def test_every_cell_of_a_note_is_said_in_words_of_its_own(
    name: str, record: str, keys: list[str]
) -> None:
    found = [cells.shown(key, record) for key in keys]
    assert len({*found}) == len(found)
    assert not [text for text in found if PRIVATE.search(text)]


def test_a_method_has_one_name_and_one_colour_in_all_records() -> None:
    called: dict[str, str] = {}
    for record, name in MODELS:
        text = names.display(name, model=True)
        assert cells.shown(name, record) == text
        assert called.setdefault(name, text) == text
        assert cells.coloured(name, record) in COLOURS
    assert len({*called.values()}) == len(called)
    for here, there in (("SSD", "ELU, SSD"), ("GLA", "ELU, GLA"), ("gla", "ELU, GLA")):
        assert names.display(here) == names.display(there)
        assert names.drawn_as(here) == names.drawn_as(there)


def test_a_cell_has_the_colour_of_its_method() -> None:
    for cell, record, method in (
        ("C-CosGate, RoPE, ramp, 4,000 steps", "language", "favor-circulant"),
        ("half softmax, half circulant, RoPE, 256 bytes", "language_long", "softmax"),
        (
            "simplex rows, RoPE and a head of softmax, alone",
            "copy_distance",
            "favor-simplex-circulant",
        ),
        ("SSD, with the one before, one head", "copy_distance", "ssd"),
        ("every 10, new rows", "language_redraw", "favor-circulant"),
    ):
        assert cells.coloured(cell, record) == method


@pytest.mark.parametrize("listed", [copy_rates.METHODS, page_digits.CELLS, page_recall.CELLS,
                                    lookup.SERIES])  # fmt: skip
def test_names_of_a_study_and_of_a_figure_are_in_the_registry(listed: Iterable[str]) -> None:
    record = "copy_distance" if listed is copy_rates.METHODS else "lookup"
    found = [cells.shown(name, record) for name in listed]
    assert len({*found}) == len(found)
    assert not [text for text in found if PRIVATE.search(text)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("softmax, RoPE", "Softmax + RoPE"),
        ("ELU, GLA", "Linear attention (ELU+1), GLA decay"),
        ("ELU, SSD", "Linear attention (ELU+1), SSD decay (Mamba-2)"),
        ("ELU, RetNet", "Linear attention (ELU+1), fixed decay (RetNet)"),
        ("circulant, RoPE", "FAVOR+ (circulant) + RoPE"),
        ("circulant, GLA", "FAVOR+ (circulant), GLA decay"),
        ("half softmax, half circulant, RoPE", "Hybrid: softmax + FAVOR+ (circulant), RoPE"),
        ("SSD and a head of softmax", "Hybrid: softmax + SSD"),
        ("C-CosGate, RoPE, ramp", "C-CosGate (squared-ramp weight) + RoPE"),
        ("ReLU, cosine", "cosFormer (ReLU, cosine weight)"),
        ("ReLU, Toeplitz", "ReLU, learned Toeplitz weight"),
        ("favor-optimal, RoPE", "FAVOR++ (least variance) + RoPE"),
        ("softmax", "Softmax, NoPE"),
        ("none", "No position encoding (NoPE)"),
    ],
)
def test_names_are_put_together(name: str, text: str) -> None:
    assert names.display(name, model=True) == text


def test_a_name_that_nobody_has_named_says_where_to_add_it() -> None:
    with pytest.raises(ValueError, match=r"names\.py, got 'mine'"):
        names.display("softmax, mine")
    with pytest.raises(ValueError, match="expected one encoder, got 'rope' and 'alibi'"):
        names.display("softmax, rope, alibi")
    with pytest.raises(ValueError, match="got 'mine'"):
        cells.shown("8 pairs, mine", "recall")


def test_a_narrow_legend_has_whole_words() -> None:
    assert names.wrapped("FAVOR+ (circulant) + RoPE", 20) == "FAVOR+ (circulant) +<br>RoPE"


def test_a_row_with_a_limit_is_said_to_be_within_or_beyond_it() -> None:
    claims = FAMILIES["claims of the note"]
    for cell, text in (
        ("C-CosGate, RoPE, 4,000 steps", "below the limit of 5 (suggestive)"),
        ("ELU, SSD, 4,000 steps", "significantly below the limit of 10"),
        ("ReLU, cosine", "significantly above the limit of 10"),
        ("circulant, RoPE", "inconclusive about the limit of 5"),
        ("circulant, RoPE, elementwise gate", "inconclusive"),
    ):
        assert verdict(claims, cell) == text
