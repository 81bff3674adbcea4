"""The studies behind the chapter on circulant features: tasks and measures."""

from __future__ import annotations

import math

import pytest
import torch

from results import circulant_favor, circulant_speed, recall_maps
from stringlib.checks import largest_difference


def test_directions_have_the_length_that_the_errors_assume() -> None:
    for z in circulant_favor.directions(3).values():
        assert z.square().sum().item() == pytest.approx(circulant_favor.SQUARE)


def test_independent_rows_have_the_error_of_the_theory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(circulant_favor, "DRAWS", 2000)
    errors = circulant_favor.kernel_errors("iid", 0)
    expected = math.expm1(circulant_favor.SQUARE) / circulant_favor.DIM
    for error, bias in errors.values():
        assert error == pytest.approx(expected, rel=0.4)
        assert abs(bias) < 0.03


def test_training_lowers_the_error_it_is_trained_on() -> None:
    found = circulant_favor.learning(0, 40)
    assert found["after"]["error skewed"] < 0.9 * found["before"]["error skewed"]
    assert found["before"]["length"] == pytest.approx(8, abs=2.5)


def test_a_sequence_lists_pairs_and_asks_for_one() -> None:
    for task, (pairs, keys, _, _) in recall_maps.TASKS.items():
        sequence, answer = recall_maps.batch(task, 50, torch.Generator().manual_seed(0))
        assert sequence.shape == (50, 2 * pairs + 1)
        assert sequence.max() < recall_maps.VALUES + keys
        for row, value in zip(sequence.tolist(), answer.tolist(), strict=True):
            held = dict(zip(row[0:-1:2], row[1:-1:2], strict=True))
            assert len(held) == pairs  # no key twice
            assert held[row[-1]] == value


@pytest.mark.parametrize("method", recall_maps.MAPS)
def test_without_a_shift_the_order_of_the_tokens_does_not_matter(method: str) -> None:
    for task, matters in (("8 pairs, no shift", False), ("8 pairs", True)):
        torch.manual_seed(0)
        model = recall_maps.Recall(method, task).double()
        sequence, _ = recall_maps.batch(task, 4, torch.Generator().manual_seed(0))
        mixed = sequence[:, [*torch.randperm(16).tolist(), 16]]
        change = largest_difference(model(sequence), model(mixed))
        assert (change > 1e-6) is matters


def test_every_form_of_the_product_is_the_same() -> None:
    found = {name: call() for name, call in circulant_speed.forms(64, 0).items()}
    assert tuple(found) == circulant_speed.FORMS
    assert largest_difference(found["dense"], found["fft"]) < 1e-4
    for name in ("fft, gradient", "autograd, gradient"):
        assert largest_difference(found["dense, gradient"], found[name]) < 1e-4
