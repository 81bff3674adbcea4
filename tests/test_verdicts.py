"""What chapters say of records, where no cell of theirs has computed it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from results import performer_vision
from stringlib.records import read_record
from stringlib.theory.spread import difference, mean

RESULTS = Path(__file__).resolve().parents[1] / "results"
PHI = ("relu", "favor")
KNOWN = {(row, column) for row in range(3) for column in range(3)}
"""The places of the training on the canvas of ``moved``."""


def cells(study: str) -> dict[str, Any]:
    return read_record(RESULTS / f"{study}.json")["data"]["cells"]


def scores(cell: dict[str, Any], test: str = "test") -> list[float]:
    return [run["scores"][test] for run in cell["runs"]]


def at(cell: dict[str, Any], known: bool) -> list[float]:
    """Return one accuracy a seed: of the known places, or of the others."""
    every = [
        {(r, c): x for r, row in enumerate(run["places"]) for c, x in enumerate(row)}
        for run in cell["runs"]
    ]
    return [mean([x for spot, x in each.items() if (spot in KNOWN) == known]) for each in every]


def test_where_digits_stand_in_one_place_rotations_help_performers_and_a_bias_hardly() -> None:
    found = cells("performer_vision")
    for phi in PHI:
        score = {n: mean(scores(found[f"digits {phi}: {n}"])) for n in performer_vision.POSITIONS}
        gain = {name: value - score["none"] for name, value in score.items()}
        for name in gain:
            if name.endswith(("before", "after")):
                assert 0.155 < gain[name] < 0.235
            elif name.endswith("turned"):
                assert gain[name] < 0.015
        assert 0.01 < gain["toeplitz"] < 0.03


def test_performers_at_new_places() -> None:
    found = cells("performer_vision")
    relu, favor = (
        {n: at(found[f"moved {phi}: {n}"], known=False) for n in performer_vision.POSITIONS}
        for phi in PHI
    )
    for name in ("mixed after", "cayley after"):
        assert 0.14 < mean(relu[name]) - mean(relu["none"]) < 0.165
    for name in ("mixed before", "cayley before"):
        assert 0.185 < mean(favor["none"]) - mean(favor[name]) < 0.275
    assert difference(favor["circulant before"], favor["none"])[2] > 0
    for name in performer_vision.ENCODERS:
        turned = [at(found[f"moved favor: {name} turned"], known) for known in (True, False)]
        assert abs(mean(turned[0]) - mean(turned[1])) < 0.02
        assert max(map(mean, turned)) < mean(favor["none"]) - 0.1
    after = [at(found[f"moved favor: {e} after"], known=True) for e in performer_vision.ENCODERS]
    ends = [min(map(min, after)), max(map(max, after))]
    assert [round(x, 2) for x in ends] == [0.19, 0.82]


def test_unit_circulant_rows_do_as_orthogonal_ones_do() -> None:
    found = cells("performer_vision")
    for name in ("none", "axial before", "mixed before", "circulant before", "toeplitz"):
        for known in (True, False):
            one, other = (
                at(found[f"moved {phi}: {name}"], known)
                for phi in ("favor-unit-circulant", "favor")
            )
            low, high = difference(one, other)[1:]
            assert low < 0 < high


def test_on_mnist_a_bias_helps_and_a_rotation_helps_more() -> None:
    found = {name: scores(cell) for name, cell in cells("mnist").items()}
    bias = {phi: difference(found[f"{phi}: toeplitz"], found[f"{phi}: none"]) for phi in PHI}
    assert [round(bias[phi][0], 2) for phi in PHI] == [0.14, 0.06]
    for phi in PHI:
        assert bias[phi][1] > 0
        low, high = difference(found[f"{phi}: unit"], found[f"{phi}: none"])[1:]
        assert low < 0 < high
        both = found[f"{phi}: unit, toeplitz"]
        assert round(mean(both), 2) == 0.81
        assert round(mean(both) - mean(found[f"{phi}: unit"]), 2) in (0.15, 0.16)
        for encoder in ("axial", "mixed", "circulant"):
            rotated = found[f"{phi}: {encoder}"]
            assert 0.86 < mean(rotated) < 0.915
            assert difference(rotated, both)[1] > 0
            assert difference(found[f"softmax: {encoder}"], rotated)[0] < 0.035
        low, high = difference(found[f"{phi}: circulant, toeplitz"], found[f"{phi}: circulant"])[1:]
        assert low < 0 < high


def test_a_longer_training_lets_a_bias_help_favor_at_known_places_alone() -> None:
    found = cells("vision")
    plain, biased = (f"longer performer favor{bias}" for bias in ("", ", toeplitz"))
    gains = [difference(at(found[biased], k), at(found[plain], k)) for k in (True, False)]
    assert round(gains[0][0], 2) == 0.07
    assert gains[0][1] > 0 > gains[1][1]
