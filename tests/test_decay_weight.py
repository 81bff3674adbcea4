"""The recurrence that forgets: its forms, its strong decays, its gradients."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from stringlib import DecayWeight, linear_attention
from stringlib.attention.decay import decay_mask, decayed_sums
from stringlib.attention.learned import GLADecay, SSDDecay
from stringlib.attention.state import gated_linear_attention
from stringlib.kernels.recurrence import DECAY_CHUNK as CHUNK
from stringlib.kernels.recurrence import Mode
from stringlib.reference import semiseparable_mask
from stringlib.testing.properties import largest_difference
from tests.attention_cases import decays
from tests.draws import random
from tests.refusals import refusals

MODES = ("parallel", "recurrent", "chunk")
KINDS = ("constant", "scalar", "vector")
SIZES = (1, 2, 7, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 5)
HEADS, M, D = 3, 5, 4


def drawn_decay(kind: str, n: int, batch: tuple[int, ...] = (2,), scale: float = 2.0) -> Tensor:
    shapes = {"constant": (HEADS,), "scalar": (*batch, HEADS, n), "vector": (*batch, HEADS, n, M)}
    return -scale * random(*shapes[kind], seed=9).abs()


def tensors(n: int, batch: tuple[int, ...] = (2,)) -> list[Tensor]:
    """Return features of queries and keys, what is summed, and a state."""
    shapes = [(n, M), (n, M), (n, D), (M, D)]
    return [random(*batch, HEADS, *shape, seed=i) for i, shape in enumerate(shapes)]


def by_definition(q: Tensor, k: Tensor, u: Tensor, log_decay: Tensor, state: Tensor) -> Tensor:
    """Return every output as its own sum over the state and all earlier tokens."""
    n, m = k.shape[-2:]
    a = log_decay[:, None, None].expand(-1, n, 1) if log_decay.ndim == 1 else log_decay
    a = a if a.shape[-2:] in ((n, m), (n, 1)) else a[..., None]
    weights = torch.einsum("...im,...jm,...ijm->...ij", q, k, decays(a))
    return weights @ u + (q * a.cumsum(-2).exp()) @ state


@pytest.mark.proves("eq-decay-state", "eq-decay-chunk", "eq-decay-halves")
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_mode_is_the_sum_over_earlier_tokens(kind: str, n: int) -> None:
    *tokens, state = tensors(n + 1)
    log_decay = drawn_decay(kind, n + 1)
    whole = by_definition(*tokens, log_decay, state)

    def piece(start: int, end: int) -> list[Tensor]:
        cut = log_decay if kind == "constant" else log_decay[:, :, start:end]
        return [*(x[..., start:end, :] for x in tokens), cut]

    for mode in (None, *MODES):
        got, after = decayed_sums(*piece(0, n), mode=mode, state=state)
        assert largest_difference(got, whole[..., :n, :]) <= 1e-12, mode
        step, _ = decayed_sums(*piece(n, n + 1), state=after)
        assert largest_difference(step, whole[..., n:, :]) <= 1e-12, mode


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 6, CHUNK + 3])
def test_the_gradients_of_all_modes_are_those_of_the_definition(kind: str, n: int) -> None:
    leaves = [x.requires_grad_() for x in (*tensors(n), drawn_decay(kind, n))]
    q, k, u, state, log_decay = leaves
    probe = random(2, HEADS, n, D, seed=20)
    definition = by_definition(q, k, u, log_decay, state)
    expected = torch.autograd.grad((definition * probe).sum(), leaves)
    _, last = decayed_sums(q, k, u, log_decay, mode="recurrent", state=state)
    by_state = torch.autograd.grad(last.square().sum(), leaves[1:])
    for mode in MODES:
        sums, after = decayed_sums(q, k, u, log_decay, mode=mode, state=state)
        found = torch.autograd.grad((sums * probe).sum(), leaves, retain_graph=True)
        alone = torch.autograd.grad(after.square().sum(), leaves[1:])  # the sums are not used
        for got, want in zip((*found, *alone), (*expected, *by_state), strict=True):
            assert largest_difference(got, want) <= 1e-12 * max(1.0, want.abs().max().item())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", MODES)
def test_first_and_second_derivatives(mode: str, kind: str) -> None:
    n = 5
    shapes = [(1, n, 2), (1, n, 2), (1, n, 1), (1, 2, 1)]
    decays = {"constant": (1,), "scalar": (1, n), "vector": (1, n, 2)}
    q, k, u, state = (random(*shape, seed=i) for i, shape in enumerate(shapes))
    log_decay = -random(*decays[kind]).abs()
    leaves = [x.requires_grad_() for x in (q, k, u, log_decay, state)]

    def sums(*x: Tensor) -> tuple[Tensor, Tensor]:
        return decayed_sums(*x[:4], mode=mode, state=x[4])

    assert torch.autograd.gradcheck(sums, leaves)
    assert torch.autograd.gradgradcheck(sums, leaves, fast_mode=True)


@pytest.mark.parametrize(
    "mapped", [(0, 0, 0, 0, 0), (None, None, 0, None, None), (None,) * 3 + (0, 0)]
)
def test_the_gradient_by_hand_serves_torch_func(mapped: tuple[int | None, ...]) -> None:
    *tokens, state = tensors(CHUNK + 3)
    given = [*tokens, drawn_decay("scalar", CHUNK + 3), state]
    some = [x if dim == 0 else x[0] for x, dim in zip(given, mapped, strict=True)]
    tangents = tuple(random(*x.shape, seed=i) for i, x in enumerate(given))
    found, forwards = [], []
    for mode in ("chunk", "recurrent"):

        def total(*x: Tensor, mode: str = mode) -> Tensor:
            sums, after = decayed_sums(*x[:4], mode=mode, state=x[4])
            return sums.square().sum() + after.sum()

        found.append(torch.func.vmap(torch.func.grad(total, tuple(range(5))), mapped)(*some))
        forwards.append(torch.func.jvp(total, tuple(given), tangents)[1])
    for got, want in zip(*found, strict=True):
        assert largest_difference(got, want) <= 1e-12 * want.abs().max().item()
    assert largest_difference(*forwards) <= 1e-12 * forwards[1].abs().item()


@pytest.mark.proves("eq-decay-weight")
@pytest.mark.parametrize("n", [1, 2, 9, 40])
def test_the_mask_is_made_of_products(n: int) -> None:
    log_decay = -random(n).abs()
    mask = decay_mask(log_decay)
    assert largest_difference(mask, semiseparable_mask(log_decay.exp())) <= 1e-14
    assert torch.equal(DecayWeight(log_decay[None]).matrix(n, n)[0], mask)
    constant = DecayWeight(torch.tensor([-0.3, 0.0], dtype=torch.float64)).matrix(n, n + 2)
    gap = torch.arange(n)[:, None] - torch.arange(n + 2)
    expected = torch.where(gap >= 0, (-0.3 * gap.double()).exp(), 0)
    assert largest_difference(constant[0], expected) <= 1e-14
    assert torch.equal(constant[1], (gap >= 0).double())


@pytest.mark.parametrize("kind", ["scalar", "vector"])
@pytest.mark.parametrize("mode", MODES)
def test_minus_infinity_starts_afresh(mode: str, kind: str) -> None:
    n, resets = 2 * CHUNK + 9, (5, CHUNK, CHUNK + 1, 2 * CHUNK + 8)
    q, k, u, state = (x.requires_grad_() for x in tensors(n))
    log_decay = drawn_decay(kind, n)
    log_decay[:, :, list(resets)] = -torch.inf
    log_decay.requires_grad_()
    got, after = decayed_sums(q, k, u, log_decay, mode=mode, state=state)
    for start, end in itertools.pairwise((*resets, n)):
        piece = (x[:, :, start:end] for x in (q, k, u, log_decay))
        fresh, last = decayed_sums(*piece, mode="recurrent", state=0 * state)
        assert largest_difference(got[..., start:end, :], fresh) <= 1e-13
    assert largest_difference(after, last) <= 1e-13
    gradients = torch.autograd.grad(got.sum(), (q, k, u, state, log_decay))
    assert all(g.isfinite().all() for g in gradients)
    assert gradients[-1][:, :, list(resets)].abs().max() == 0


@pytest.mark.parametrize("kind", ["scalar", "vector"])
@pytest.mark.parametrize("mode", MODES)
def test_digits_survive_behind_a_strong_decay(mode: str, kind: str) -> None:
    """A difference of cumulative sums of 1e6 would know the logarithms to 0.06 only."""
    n = CHUNK
    q, k, u, _ = (x.abs() + 0.1 for x in tensors(n))
    log_decay = 0.1 * drawn_decay(kind, n)
    log_decay[:, :, 3] = -1e6
    exact, _ = decayed_sums(q, k, u, log_decay, mode="recurrent")
    single, _ = decayed_sums(*(x.float() for x in (q, k, u, log_decay)), mode=mode)
    assert largest_difference(single / exact, torch.ones(())) <= 2e-6


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strength", [0.0, 1e-4, 20.0, 1e4])
def test_sixteen_thousand_tokens_in_float32(kind: str, strength: float) -> None:
    n = 16_384
    q, k, u, _ = tensors(n, ())
    log_decay = -strength * random(*drawn_decay(kind, n, ()).shape, seed=9).abs().clamp(min=0.5)
    exact, _ = decayed_sums(q, k, u, log_decay)
    leaves = [x.float().requires_grad_() for x in (q, k, u, log_decay)]
    single, _ = decayed_sums(*leaves)
    assert largest_difference(single, exact) <= 3e-6 * exact.abs().max()
    gradients = torch.autograd.grad(single.square().sum(), leaves)
    assert all(g.isfinite().all() for g in gradients)


@pytest.mark.parametrize("mode", ["parallel", "chunk"])
def test_gradients_under_autocast_are_those_without(mode: Mode) -> None:
    *given, state, log_decay = (*tensors(6), drawn_decay("scalar", 6))

    def gradients(cast: bool) -> list[Tensor]:
        leaves = [x.float().requires_grad_() for x in (*given, log_decay, state)]
        out, last = decayed_sums(*leaves[:4], mode=mode, state=leaves[4])
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=cast):
            return list(torch.autograd.grad(out.sum() + last.sum(), leaves))

    for cast, plain in zip(gradients(True), gradients(False), strict=True):
        assert torch.equal(cast, plain)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("lead", [(3, 2), (2, 2), (1, 2), (4,)])
@pytest.mark.parametrize("size", [1, 4])
def test_a_decay_for_each_feature_needs_no_batch(
    size: int, lead: tuple[int, ...], mode: str
) -> None:
    """Of shape (heads, n, m), also where it might be read as a batch of (heads, n)."""
    heads, n, m = lead[-1], 1 if size == 1 else lead[-1], size
    if lead[:-1] == (heads,) and n == heads:
        return  # then it is a batch
    q, k = random(2, *lead, n, m, seed=1)
    u, state = random(*lead, n, D, seed=2), random(*lead, m, D, seed=3)
    log_decay = -random(heads, n, m, seed=4).abs()
    found, expected = (
        decayed_sums(q, k, u, a, mode=mode, state=state)
        for a in (log_decay, log_decay.expand(*lead, n, m))
    )
    for got, want in zip(found, expected, strict=True):
        assert got.shape == want.shape
        assert largest_difference(got, want) <= 1e-14


@pytest.mark.parametrize("mode", MODES)
def test_a_decay_that_may_be_one_a_token_or_one_a_feature_is_refused(mode: str) -> None:
    q, k, u = (random(3, 3, 3, 3, seed=i) for i in range(3))
    log_decay = -random(3, 3, 3, seed=4).abs()
    for call in (
        lambda: decayed_sums(q, k, u, log_decay, mode=mode),
        lambda: linear_attention(q, k, u, DecayWeight(log_decay), causal=True, mode=mode),
    ):
        with pytest.raises(ValueError, match=r"got \(3, 3, 3\), which could be.*\(3, 3, 3, 1\)"):
            call()
    # said in full, either is meant; GLA has one a feature in any case
    token, feature = log_decay[..., None], log_decay[None]
    by_token, by_feature = (decayed_sums(q, k, u, a, mode=mode)[0] for a in (token, feature))
    for found, meant in ((by_token, token), (by_feature, feature)):
        assert largest_difference(found, decayed_sums(q, k, u, meant.expand_as(k))[0]) <= 1e-14
    assert torch.equal(gated_linear_attention(q, k, u, log_decay, mode=mode)[0], by_feature)
    assert largest_difference(by_feature, by_token) > 0.1


test_bad_arguments_are_named = refusals(
    (lambda: linear_attention(*tensors(4)[:3], DecayWeight(-torch.ones(HEADS))),
     "causal must be True with a DecayWeight, got False"),
    (lambda: decayed_sums(*tensors(4)[:3], -torch.ones(2, 4)),
     r"log_decay must have shape .*\(2, 3, 4\) .* got \(2, 4\)"),
    (lambda: linear_attention(*tensors(4)[:3], DecayWeight(torch.zeros(2, 3, 5)), causal=True),
     r"log_decay must have shape .*\(2, 3, 4\) .* got \(2, 3, 5\)"),
    (lambda: DecayWeight(torch.zeros(3, 4)).matrix(7, 7),
     r"log_decay must have shape .* 7 tokens, got \(3, 4\)"),
    (lambda: GLADecay(12, heads=3, features=4).matrix(5, 5),
     r"GLADecay\.matrix\(\) is undefined. .* no single matrix"),
)  # fmt: skip


def test_a_learned_decay_that_has_grown_above_one_is_refused() -> None:
    weight = DecayWeight(torch.nn.Parameter(torch.full((HEADS,), -0.1)))
    with torch.no_grad():
        weight.log_decay += 0.2
    phi = torch.ones(HEADS, 4, M)
    with pytest.raises(ValueError, match="log_decay must be at most 0"):
        weight.factors(phi, phi)


def test_a_decay_that_tokens_decide_equals_its_formula() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    gla = GLADecay(12, heads=3, features=4).double()
    alpha = torch.sigmoid(x @ gla.down.weight.mT @ gla.up.weight.mT + gla.up.bias) ** (1 / 16)
    got = gla(x).log_decay.exp()
    torch.testing.assert_close(got, alpha.unflatten(-1, (3, 4)).transpose(1, 2))
    ssd = SSDDecay(12, heads=3).double()
    step = (1 + (x @ ssd.to_step.weight.mT + ssd.to_step.bias).exp()).log()
    got = ssd(x).log_decay.exp().squeeze(-1)
    torch.testing.assert_close(got, (-ssd.log_rate.exp() * step).exp().mT)
