"""Values that cannot be right are refused where looking is free, and those that can be are not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from stringlib import (
    DecayWeight,
    DeltaWeight,
    RoPE,
    linear_attention,
    make_encoder,
    rotated_linear_attention,
)
from stringlib.attention.rotated_linear import LARGEST

POSITIVE = torch.ones(2, 3, 4)
NEGATIVE = POSITIVE.clone().index_put((torch.tensor(1), torch.tensor(2)), torch.tensor(-1e-3))


@pytest.mark.parametrize("causal", [False, True])
def test_features_with_signs_are_divided_by_no_sum(causal: bool) -> None:
    good: dict[str, Any] = {"phi_q": POSITIVE, "phi_k": POSITIVE, "v": POSITIVE, "causal": causal}
    for name in ("phi_q", "phi_k"):
        bad = good | {name: NEGATIVE}
        with pytest.raises(ValueError, match=rf"^{name} must not be negative, .*got -0.001"):
            linear_attention(**bad)
        assert torch.isfinite(linear_attention(**bad, normalize=False)).all()
        assert linear_attention(
            **{k: x.to("meta") for k, x in bad.items() if k != "causal"}
        ).is_meta
    zero = {"phi_q": 0 * POSITIVE, "phi_k": 0 * POSITIVE}
    assert torch.equal(linear_attention(**(good | zero)), 0 * POSITIVE)


def test_what_padding_holds_is_not_looked_at() -> None:
    mask = torch.tensor([True, True, False])
    out = linear_attention(POSITIVE, NEGATIVE, POSITIVE, key_mask=mask)
    assert torch.equal(out, POSITIVE)


def turned(size: float, values: Tensor) -> Tensor:
    """Return attention to two like keys, of which a quarter turn shows one the large feature."""
    phi_q = torch.tensor([[1.0, size], [1.0, size]])[None]
    phi_k = torch.tensor([[1.0, 0.0], [1.0, 0.0]])[None]
    positions = torch.tensor([[0.0], [torch.pi / 2]])
    return rotated_linear_attention(phi_q, phi_k, values, RoPE(2), positions, numerator_only=True)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_outputs_may_be_so_many_times_their_values_and_no_more(sign: float) -> None:
    """The denominator, 2, does not see the turn: the output is half of the large feature."""
    values = sign * torch.tensor([[[0.0], [1.0]]])
    assert turned(0.9 * 2 * LARGEST, values).abs().max() > 0.8 * LARGEST
    with pytest.raises(ValueError, match=r"rotate='after'\) must give"):
        turned(1.2 * 2 * LARGEST, values)


def test_a_query_that_no_key_answers_hears_nothing_by_its_turn() -> None:
    """The numerator has a partner that only the turn brings, and the denominator is 0."""
    phi_q, phi_k = torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]])
    phi_q, phi_k = (x.expand(1, 2, 2) for x in (phi_q, phi_k))
    positions = torch.tensor([[0.0], [torch.pi / 2]])
    plain = (phi_q, phi_k, torch.ones(1, 2, 1), RoPE(2), positions)
    assert torch.equal(rotated_linear_attention(*plain, numerator_only=True), torch.zeros(1, 2, 1))


@pytest.mark.parametrize(
    ("weight", "name", "edge", "beyond"),
    [
        (DecayWeight, "log_decay", 0.0, 1e-9),
        (DeltaWeight, "beta", 0.0, -1e-3),
        (DeltaWeight, "beta", 2.0, 2.1),
    ],
)
def test_a_decay_or_a_rate_fits_up_to_its_edge(
    weight: type[DecayWeight | DeltaWeight], name: str, edge: float, beyond: float
) -> None:
    given = torch.tensor([[edge, edge]])
    assert torch.equal(getattr(weight(given), name), given)
    with pytest.raises(ValueError, match=f"{name} must be"):
        weight(torch.tensor([[edge, beyond]]))


def test_a_place_that_no_matrix_has_is_drawn_anew() -> None:
    encoder: Any = make_encoder("cayley-sparse", 8)
    for row, column in ((0, 8), (-1, 3), (5, 5), (6, 2)):
        encoder.support[:] = torch.tensor([[row], [column]])
        encoder.to("cpu")
        rows, columns = encoder.support
        assert ((rows >= 0) & (rows < columns) & (columns < 8)).all(), (row, column)
    kept = encoder.support.clone()
    assert torch.equal(encoder.to("cpu").support, kept)
