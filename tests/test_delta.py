"""The delta rule: what makes it one, and where it would break. Its values: test_state.py."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from stringlib import RoPE, linear_attention, rotated_linear_attention
from stringlib.attention.delta import DeltaWeight, delta_rule
from stringlib.attention.learned_delta import LearnedDelta
from stringlib.kernels import delta
from stringlib.testing.properties import largest_difference
from tests.draws import random
from tests.refusals import refusals

HEADS, D, D_V = 2, 5, 3
MODES = ("parallel", "recurrent", "chunk")


def given(n: int, batch: tuple[int, ...] = ()) -> tuple[Tensor, ...]:
    """Return q, k of norm 1, v, beta below 2, log_decay and a state."""
    q, k, v = (random(*batch, HEADS, n, m, seed=i) for i, m in enumerate((D, D, D_V)))
    beta = 2 * torch.sigmoid(random(*batch, HEADS, n, seed=3))
    a = -random(*batch, HEADS, n, seed=4).square()
    k = k / k.norm(dim=-1, keepdim=True)
    return q, k, v, beta, a, random(*batch, HEADS, D, D_V, seed=5)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("batch", [(), (2, 1)])
def test_every_size_of_chunk_gives_the_recurrence(
    size: int, batch: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta, "CHUNK", size)
    leaves = [x.requires_grad_() for x in given(11, batch)]
    probe, found = random(*batch, HEADS, 11, D_V, seed=9), []
    for mode in ("recurrent", "chunk"):
        out, state = delta_rule(*leaves[:5], mode=mode, state=leaves[5])
        slopes = torch.autograd.grad((out * probe).sum() + state.sin().sum(), leaves)
        found.append((out, state, *slopes))
    for a, b in zip(*found, strict=True):
        assert largest_difference(a, b) <= 1e-12


@pytest.mark.parametrize("mode", MODES)
def test_a_huge_last_key_leaves_earlier_outputs_and_gradients(mode: str) -> None:
    """Its product with a query overflows, and times a decay of 0 it would not be a number."""
    plain = [x.float() for x in given(9)[:5]]
    plain[0][..., :-1, :] *= 1e10
    huge = [x.clone() for x in plain]
    huge[1][..., -1, :] = 1e30

    def results(given: list[Tensor]) -> list[Tensor]:
        leaves = [x.detach().requires_grad_() for x in given]
        out = delta_rule(*leaves, mode=mode)[0][..., :-1, :]
        return [out, *(g[..., :8, :] for g in torch.autograd.grad(out.sum(), leaves[:3]))]

    for found, wanted in zip(results(huge), results(plain), strict=True):
        assert wanted.isfinite().all()
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("mode", MODES)
def test_a_forgotten_state_is_gone_and_gradients_stay_finite(mode: str) -> None:
    q, k, v, beta, a, state = given(9)
    a[..., 4] = -torch.inf
    leaves = [x.requires_grad_() for x in (q, k, v, beta)]
    out, after = delta_rule(*leaves, a, mode=mode, state=state)
    fresh, last = delta_rule(*(x[..., 4:, :] for x in leaves[:3]), beta[..., 4:], a[..., 4:])
    assert largest_difference(out[..., 4:, :], fresh) <= 1e-13
    assert largest_difference(after, last) <= 1e-13
    slopes = torch.autograd.grad(out.sum(), leaves)
    assert all(slope.isfinite().all() for slope in slopes)


def kernelised(**options: Any) -> object:
    q, k, v, beta, *_ = given(6)
    return linear_attention(q, k, v, DeltaWeight(beta), **options)


def turned() -> object:
    q, k, v, beta, *_ = given(6)
    places = torch.arange(6.0)[:, None]
    return rotated_linear_attention(q, k, v, RoPE(6), places, DeltaWeight(beta), causal=True)


test_what_does_not_fit_is_named = refusals(
    (lambda: delta_rule(*given(6)[:4], given(6)[4][0, :4]), "log_decay must have shape"),
    (lambda: kernelised(causal=True), "normalize must be False for DeltaWeight"),
    (lambda: kernelised(normalize=False), "causal must be True with a DeltaWeight"),
    (turned, "weight must have a denominator for rotated features"),
    (lambda: DeltaWeight(given(6)[3]).matrix(6, 6), "DeltaWeight.* is undefined. Under"),
    (lambda: LearnedDelta(4, 2).matrix(6, 6), "LearnedDelta.* is undefined. Under"),
)
