"""The figure of the chapter on rotations and linear attention."""

from __future__ import annotations

import numpy as np
import pytest

from book.figures import rotations_meet_linear_attention as figures


def maps(shift: float, features: str) -> list[np.ndarray]:
    """Return the kernel before, its change, the kernel after, its change."""
    before, after, *changes = figures.shifted_kernels(shift, features).figure.data
    return [np.array(trace.z) for trace in (before, changes[0], after, changes[1])]


@pytest.mark.parametrize("features", figures.KERNEL_FEATURES)
def test_a_shift_moves_what_is_turned_before_the_features_only(features: str) -> None:
    before, change_before, after, change_after = maps(16, features)
    start = maps(0, features)
    assert not start[1].any()
    assert not start[3].any()
    np.testing.assert_allclose(before - start[0], change_before, atol=0.011)
    assert abs(change_before).max() > 0.1
    assert not change_after.any()
    np.testing.assert_array_equal(after, start[2])
    assert before.min() >= 0
    assert after.min() < 0 or features == "random, 1024"


def test_every_negative_entry_is_marked_and_counted() -> None:
    figure, text = figures.shifted_kernels(4, "random, 64")
    after = figure.data[1]
    marks = np.array(after.text) != ""
    assert marks.any()
    assert (np.array(after.z)[marks] <= 0).all()
    assert (np.array(after.z)[~marks] >= 0).all()
    share = f"{marks.mean():.0%} "
    assert share in figure.layout.annotations[1].text
    assert share in text


def test_a_kernel_has_mean_size_one_and_more_features_help() -> None:
    errors = []
    for features in figures.KERNEL_FEATURES:
        before, _, after, _ = maps(64, features)
        assert abs(abs(before).mean() - 1) < 0.01
        assert abs(abs(after).mean() - 1) < 0.01
        errors.append(float(figures.shifted_kernels(64, features).alt.split("%")[0].split()[-1]))
    assert errors[1] > errors[2] > errors[3] > 0


def test_unknown_features_are_named() -> None:
    with pytest.raises(ValueError, match="features must be one of"):
        figures.shifted_kernels(0, "elu")
