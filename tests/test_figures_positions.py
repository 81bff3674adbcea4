"""The figures of the chapter on why positions show what they say."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from book.figures import why_positions as figures
from stringlib import ALiBi

WORDS = ("dog", "bites", "man")
ORDERS = [" ".join(order) for order in itertools.permutations(WORDS)]


def outputs(order: str, positions: str) -> dict[str, list[float]]:
    """Return word → the drawn channels of its output, and those of the mean."""
    rows = figures.permuted_words(order, positions).figure.data[1].z
    return dict(zip([*order.split(), "mean"], map(list, rows), strict=True))


@pytest.mark.parametrize("order", ORDERS)
def test_without_positions_outputs_follow_their_words(order: str) -> None:
    assert outputs(order, "none") == outputs(ORDERS[0], "none")


@pytest.mark.parametrize("positions", [p for p in figures.POSITIONS if p != "none"])
def test_positions_tell_the_sentences_apart(positions: str) -> None:
    assert all(outputs(o, positions) != outputs(ORDERS[0], positions) for o in ORDERS[1:5])
    # a symmetric bias cannot see a reversal
    assert (outputs("man bites dog", positions) == outputs(ORDERS[0], positions)) is (
        positions == "ALiBi"
    )


def test_weights_are_weights_and_the_mask_hides_what_follows() -> None:
    for positions in figures.POSITIONS:
        weights = np.array(figures.permuted_words(ORDERS[3], positions).figure.data[0].z)
        np.testing.assert_allclose(weights.sum(1), 1, atol=2e-3)
        assert (np.triu(weights, 1) == 0).all() == (positions == "causal mask")


def test_the_printed_change_is_that_of_the_rows() -> None:
    figure, told = figures.permuted_words("man dog bites", "RoPE")
    text = figure.layout.annotations[1].text
    printed = float(text.split("by ")[1].split(",")[0])
    before, after = outputs(ORDERS[0], "RoPE"), outputs("man dog bites", "RoPE")
    drawn = max(np.abs(np.subtract(before[word], after[word])).max() for word in WORDS)
    assert printed >= drawn - 0.01  # all channels count, some are drawn
    assert f"{printed:.2f}" in told


def test_bias_curves_are_the_modules() -> None:
    figure = figures.bias_curves(slope=3, r1=2.0, r2=0.25, power=0.5).figure
    curves = {trace.name: np.array(trace.y) for trace in figure.data}
    distance = np.arange(129)
    np.testing.assert_allclose(curves["ALiBi"], -distance / 8, atol=1e-3)
    assert ALiBi(8).slopes[2].item() == 1 / 8
    np.testing.assert_allclose(curves["KERPLE power"], -2 * distance**0.5, atol=1e-3)
    log = -2 * np.log(1 + 0.25 * distance)
    np.testing.assert_allclose(curves["KERPLE log"], log, atol=1e-3)
    stairs = curves["T5 buckets, following log"]
    np.testing.assert_allclose(stairs[:16], log[:16], atol=1e-3)
    assert np.unique(stairs[113:]).size == 1
    assert stairs[113] == pytest.approx(log[113:].mean(), abs=1e-3)
