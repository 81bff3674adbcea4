"""RetNet, GLA, RWKV-6 and SSD against their recurrences as printed."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus

from stringlib import reference
from stringlib.attention.delta import delta_rule
from stringlib.attention.state import (
    gated_linear_attention,
    retention,
    retnet_log_decay,
    rwkv6,
    ssd,
)
from stringlib.kernels.recurrence import DECAY_CHUNK as CHUNK
from stringlib.testing.properties import largest_difference
from tests.draws import random

HEADS, D, D_V = 2, 5, 3
MODES = (None, "parallel", "recurrent", "chunk")


def arguments(name: str, n: int) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return what the function takes, and what its recurrence takes."""
    q, k, v = random(HEADS, n, D), random(HEADS, n, D, seed=1), random(HEADS, n, D_V, seed=2)
    alpha = torch.sigmoid(random(HEADS, n, D, seed=3))
    if name == "retnet":
        gamma = torch.tensor([0.9, 0.5]).double()
        return (q, k, v, gamma.log()), (q, k, v, gamma)
    if name == "gla":
        return (q, k, v, alpha.log()), (q, k, v, alpha)
    if name == "rwkv6":
        u = random(HEADS, D, seed=4)
        return (q, k, v, alpha.log(), u), (q, k, v, alpha, u)
    if name == "delta":
        k, beta = k / k.norm(dim=-1, keepdim=True), 2 * torch.sigmoid(random(HEADS, n, seed=7))
        return (q, k, v, beta, alpha[..., 0].log()), (q, k, v, beta, alpha[..., 0])
    dt, rate = softplus(random(HEADS, n, seed=5)), -random(HEADS, seed=6).exp()
    return (v, dt, rate, k, q), (v, dt, rate, k, q)


FUNCTIONS = {"retnet": retention, "gla": gated_linear_attention, "rwkv6": rwkv6, "ssd": ssd,
             "delta": delta_rule}  # fmt: skip
TWINS = {
    "retnet": reference.retnet_recurrence,
    "gla": reference.gla_recurrence,
    "rwkv6": reference.rwkv6_recurrence,
    "ssd": reference.ssd_recurrence,
    "delta": reference.delta_rule_recurrence,
}
PER_TOKEN = {"retnet": (0, 1, 2), "gla": range(4), "rwkv6": range(4), "ssd": (0, 1, 3, 4),
             "delta": range(5)}  # fmt: skip


@pytest.mark.proves("eq-retnet", "eq-gla", "eq-rwkv6", "eq-ssd", "eq-delta-rule")
@pytest.mark.parametrize("n", [1, 2, 7, CHUNK + 1])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_is_the_recurrence_of_the_paper(name: str, mode: str | None, n: int) -> None:
    given, literal = arguments(name, n)
    expected, last = TWINS[name](*literal)
    for cuts in ((0, n), (0, 1, 1, n), (0, n - 1, n)):
        state, parts = None, []
        for start, end in itertools.pairwise(cuts):
            part = (x[:, start:end] if i in PER_TOKEN[name] else x for i, x in enumerate(given))
            out, state = FUNCTIONS[name](*part, mode=mode, state=state)
            parts.append(out)
        assert largest_difference(torch.cat(parts, 1), expected) <= 1e-12
        assert largest_difference(state, last) <= 1e-12


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_those_of_the_recurrence(name: str) -> None:
    given, literal = arguments(name, 6)
    probe = random(HEADS, 6, D_V, seed=8)
    leaves = [x.clone().requires_grad_() for x in given]
    got = torch.autograd.grad((FUNCTIONS[name](*leaves)[0] * probe).sum(), leaves)
    twins = [x.clone().requires_grad_() for x in literal]
    want = list(torch.autograd.grad((TWINS[name](*twins)[0] * probe).sum(), twins))
    if name != "ssd":  # the twin takes the decay, the function its logarithm
        decay = 4 if name == "delta" else 3
        want[decay] = want[decay] * literal[decay]
    for a, b in zip(got, want, strict=True):
        assert largest_difference(a, b) <= 1e-12


@pytest.mark.proves("eq-retnet-decay")
def test_retnets_decays() -> None:
    log_decay = retnet_log_decay(8)
    assert log_decay.dtype == torch.float32
    for h, a in enumerate(log_decay.tolist()):
        assert a == pytest.approx(torch.tensor(1 - 2.0 ** (-5 - h)).double().log().item(), rel=1e-6)


def test_one_step_for_all_heads_of_a_single_token() -> None:
    (x, _, rate, b, c), _ = arguments("ssd", 1)
    x, b, c = (y.expand(HEADS, *y.shape) for y in (x, b, c))
    dt, state = softplus(random(HEADS, 1, 1, seed=5)), random(HEADS, HEADS, D, D_V, seed=6)
    got, _ = ssd(x, dt, rate[:1], b, c, state=state)
    expected, _ = ssd(x, dt.expand(-1, HEADS, -1), rate[:1].expand(HEADS), b, c, state=state)
    assert largest_difference(got, expected) <= 1e-14


@pytest.mark.parametrize("name", ["retnet", "gla"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("n", [6, 3 * CHUNK])
def test_a_huge_key_is_not_seen_before_it(n: int, mode: str | None, name: str) -> None:
    """Its products overflow, and times a decay of 0 they would not be numbers."""
    given = [x.float() for x in arguments(name, n)[0]]
    huge = [x.clone() for x in given]
    early = n - 2
    for x in (given, huge):
        x[0] *= 1e10
    huge[1][:, early:] = 1e30

    def results(given: list[Tensor]) -> list[Tensor]:
        given = [x.detach().requires_grad_() for x in given]
        out = FUNCTIONS[name](*given, mode=mode)[0][:, :early]
        grads = torch.autograd.grad(out.sum(), given)
        return [out, *(g[:, :early] for g in grads[:3])]

    for found, wanted in zip(results(huge), results(given), strict=True):
        assert wanted.isfinite().all()
        torch.testing.assert_close(found, wanted)
