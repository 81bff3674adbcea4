"""The delta rule: what makes it one, and where it would break. Its values: test_state.py."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from stringlib import RoPE, linear_attention, rotated_linear_attention
from stringlib.attention.delta import DeltaWeight, delta_rule
from stringlib.attention.learned import LearnedDelta
from stringlib.kernels import delta
from stringlib.testing.properties import largest_difference
from tests.draws import random

HEADS, D, D_V = 2, 5, 3
MODES = ("parallel", "recurrent", "chunk")


def given(n: int, batch: tuple[int, ...] = (), top: float = 2.0) -> tuple[Tensor, ...]:
    """Return q, k of norm 1, v, beta below ``top``, log_decay and a state."""
    q, k, v = (random(*batch, HEADS, n, m, seed=i) for i, m in enumerate((D, D, D_V)))
    beta = top * torch.sigmoid(random(*batch, HEADS, n, seed=3))
    a = -random(*batch, HEADS, n, seed=4).square()
    k = k / k.norm(dim=-1, keepdim=True)
    return q, k, v, beta, a, random(*batch, HEADS, D, D_V, seed=5)


def step(s: Tensor, k: Tensor, v: Tensor, beta: float) -> Tensor:
    return s - beta * torch.autograd.functional.jacobian(
        lambda s: (s.mT @ k - v).square().sum() / 2, s
    )


def test_a_token_is_a_step_down_the_gradient() -> None:
    _, k, v, beta, _, s = (x[0] for x in given(1))
    _, after = delta_rule(k[None], k[None], v[None], beta[None], state=s[None])
    assert largest_difference(after[0], step(s, k[0], v[0], beta.item())) <= 1e-14


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
@pytest.mark.parametrize("beta", [0.5, 1.0, 1.9, 2.0])
def test_the_state_stays_bounded_up_to_two(beta: float, mode: str) -> None:
    """A key of norm 1 multiplies a direction by 1 - β; beyond 2 it would grow."""
    _, k, v, *_, state = given(400)
    rate = torch.full(k.shape[:-1], beta).double()
    start, after = state, delta_rule(k, k, 0 * v, rate, mode=mode, state=state)[1]
    assert after.norm() <= start.norm() * (1 + 1e-12)
    beyond = torch.full_like(rate, 2.4)[..., None]
    _, grown = delta.delta_sums(k, k, 0 * v, beyond, 0 * beyond, mode, state)
    assert grown.norm() > 1e3 * start.norm()
    with pytest.raises(ValueError, match=r"beta must be from 0, .* to 2, .* got 2.4 to 2.4"):
        delta_rule(k, k, v, beyond[..., 0], mode=mode)


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


def test_the_length_of_a_feature_and_its_scale_cancel() -> None:
    q, k, v, beta, *_ = given(6)
    weight = DeltaWeight(beta)
    expected = linear_attention(q, k, v, weight, causal=True, normalize=False)
    scale = random(HEADS, 6, seed=7)
    longer = linear_attention(
        3 * q, 5 * k, v, weight, causal=True, normalize=False, key_scale=scale
    )
    assert largest_difference(longer, expected) <= 1e-14


BAD = [
    (lambda x: delta_rule(*x[:4], x[4][0, :4]), "log_decay must have shape"),
    (lambda x: linear_attention(*x[:3], DeltaWeight(x[3]), causal=True),
     "normalize must be False for DeltaWeight"),
    (lambda x: linear_attention(*x[:3], DeltaWeight(x[3]), normalize=False),
     "causal must be True with a DeltaWeight"),
    (lambda x: rotated_linear_attention(*x[:2], x[2], RoPE(6), torch.arange(6.0)[:, None],
                                        DeltaWeight(x[3]), causal=True),
     "weight must have a sum to divide by"),
    (lambda x: DeltaWeight(x[3]).matrix(6, 6), "weight must be one of pairs .* a DeltaWeight"),
    (lambda x: LearnedDelta(4, 2).matrix(6, 6), "weight must be one of pairs .* a LearnedDelta"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "match"), BAD)
def test_what_does_not_fit_is_named(call, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        call(given(6))
