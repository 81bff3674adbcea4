"""The figure of one causal sum in three forms."""

from __future__ import annotations

import itertools

import pytest
import torch

from book.figures import linear_attention as states
from stringlib import linear_attention
from stringlib.checks import largest_difference

STATES = list(itertools.product(range(states.TOKENS), (1, 2, 4, 8)))


def exact(values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(("token", "chunk"), STATES)
def test_the_two_parts_add_up_to_what_the_package_computes(token: int, chunk: int) -> None:
    phi_q, phi_k, u = (x[None] for x in states._example())
    first = token - token % chunk
    sums, state = linear_attention(
        phi_q[:, : token + 1],
        phi_k[:, : token + 1],
        u[:, : token + 1, :-1],
        causal=True,
        normalize=False,
        return_state=True,
    )
    fig = states.three_forms(token, chunk).figure
    _, by_state, own, row, before, now = fig.data
    both = exact(by_state.y) + exact(own.y)
    assert largest_difference(both, exact(row.y)) < 1e-12
    assert largest_difference(both[:-1], sums[0, token]) < 1e-12
    assert largest_difference(exact(now.z), state.sums[0]) < 1e-12
    earlier = phi_k[0, :first].mT @ u[0, :first]
    assert largest_difference(exact(before.z), earlier) < 1e-12
    low, high = fig.layout.yaxis2.range
    assert low < min(*by_state.y, *own.y, *row.y)
    assert high > max(row.y)


@pytest.mark.parametrize(("token", "chunk"), STATES)
def test_the_frames_cover_the_keys_that_the_token_sees(token: int, chunk: int) -> None:
    shapes = states.three_forms(token, chunk).figure.layout.shapes
    covered = [k for s in shapes for k in range(round(s.x0 + 0.5), round(s.x1 + 0.5))]
    assert covered == list(range(token + 1))
    assert len(shapes) == (1 if token < chunk else 2)


def test_the_text_names_the_two_ways() -> None:
    assert "keys 0 to 3 come through the state" in states.three_forms(5, 4).alt
    assert "4 to 5 one by one" in states.three_forms(5, 4).alt
    assert "No chunk is complete, so keys 0 to 5" in states.three_forms(5, 8).alt
