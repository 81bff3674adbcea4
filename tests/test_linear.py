"""Kernelised attention: its forms, its state, its masks and its numbers, against literal twins."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from stringlib import (
    CosineWeight,
    DecayWeight,
    LinearState,
    ToeplitzWeight,
    linear_attention,
    reference,
)
from stringlib.attention.weights import ConstantWeight
from stringlib.checks import largest_difference
from stringlib.kernels.recurrence import PLAIN_CHUNK as CHUNK

MODES = ("parallel", "recurrent", "chunk")
EXACT = 1e-12


def draw(*shape: int, seed: int = 0) -> Tensor:
    """Return positive float64 numbers."""
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def tokens(n: int, heads: int = 2, m: int = 3, d_v: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    values = draw(heads, n, d_v, seed=3) - 0.5
    return draw(heads, n, m, seed=1), draw(heads, n, m, seed=2), values


# ------------------------------------------------------------------ three forms, one sum


@pytest.mark.proves("eq-linear-attention", "eq-linear-ones")
@pytest.mark.parametrize("mode", [None, "parallel"])
@pytest.mark.parametrize(("n", "keys"), [(1, 1), (4, 7), (7, 4), (40, 3), (3, 40)])
@pytest.mark.parametrize("normalize", [True, False])
def test_the_whole_sum_equals_the_double_sum(
    n: int, keys: int, mode: str | None, normalize: bool
) -> None:
    phi_q, (_, phi_k, v) = tokens(n)[0], tokens(keys)
    got = linear_attention(phi_q, phi_k, v, normalize=normalize, mode=mode)
    expected = reference.linear_attention(phi_q, phi_k, v, normalize=normalize)
    assert largest_difference(got, expected) <= EXACT


@pytest.mark.proves("eq-linear-state", "eq-linear-chunk")
@pytest.mark.parametrize("mode", [None, *MODES])
@pytest.mark.parametrize("n", [1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 3])
def test_matrix_recurrence_and_chunks_equal_their_literal_forms(mode: str | None, n: int) -> None:
    phi_q, phi_k, v = tokens(n)
    out, state = linear_attention(phi_q, phi_k, v, causal=True, mode=mode, return_state=True)
    by_recurrence, S, z = reference.recurrent_attention(phi_q, phi_k, v)
    assert largest_difference(out, by_recurrence) <= EXACT
    assert (
        largest_difference(out, reference.linear_attention(phi_q, phi_k, v, causal=True)) <= 1e-12
    )
    assert largest_difference(state.sums, torch.cat([S, z[..., None]], -1)) <= EXACT
    assert (state.length, state.log_scale) == (n, None)


@pytest.mark.parametrize("mode", MODES)
def test_gradients_equal_those_of_the_recurrence(mode: str) -> None:
    leaves = [x.requires_grad_() for x in tokens(CHUNK + 5)]
    probe = draw(2, CHUNK + 5, 5, seed=7)
    got = linear_attention(*leaves, causal=True, mode=mode)
    expected = reference.recurrent_attention(*leaves)[0]
    for a, b in zip(
        torch.autograd.grad((got * probe).sum(), leaves),
        torch.autograd.grad((expected * probe).sum(), leaves),
        strict=True,
    ):
        assert largest_difference(a, b) <= EXACT


def test_gradients_of_gradients() -> None:
    leaves = [x.requires_grad_() for x in tokens(5)]
    assert torch.autograd.gradgradcheck(
        lambda *x: linear_attention(*x, causal=True, mode="chunk"), leaves
    )


@pytest.mark.parametrize("causal", [False, True])
def test_leading_dimensions_broadcast(causal: bool) -> None:
    phi_q, phi_k, v = draw(4, 1, 2, 9, 3), draw(3, 1, 9, 3, seed=1), draw(2, 9, 5, seed=2)
    got = linear_attention(phi_q, phi_k, v, causal=causal)
    assert got.shape == (4, 3, 2, 9, 5)
    for a, b, head in itertools.product(range(4), range(3), range(2)):
        expected = reference.linear_attention(
            phi_q[a, 0, head][None], phi_k[b, 0][None], v[head][None], causal=causal
        )
        assert largest_difference(got[a, b, head], expected[0]) <= EXACT


def test_the_constant_weight_is_the_default() -> None:
    phi_q, phi_k, v = tokens(9)
    ones = ConstantWeight().matrix(9, 9).expand(2, 9, 9)
    expected = reference.linear_attention(phi_q, phi_k, v, ones)
    assert (
        largest_difference(linear_attention(phi_q, phi_k, v, ConstantWeight()), expected) <= 1e-12
    )


# ------------------------------------------------------------------ denominators


@pytest.mark.parametrize("causal", [False, True])
def test_a_query_that_no_key_answers_gets_zero_and_finite_gradients(causal: bool) -> None:
    phi_q, phi_k, v = tokens(6)
    phi_q[:, 2] = 0
    leaves = [x.requires_grad_() for x in (phi_q, phi_k, v)]
    out = linear_attention(*leaves, causal=causal)
    assert (out[:, 2] == 0).all()
    assert out.isfinite().all()
    assert all(g.isfinite().all() for g in torch.autograd.grad(out.sum(), leaves))


def test_a_nan_among_the_keys_reaches_every_query_that_sees_it() -> None:
    phi_q, phi_k, v = tokens(100)
    phi_k[0, 70, 0] = float("nan")
    out = linear_attention(phi_q, phi_k, v, causal=True)
    assert out[0, 70:].isnan().all()
    assert out[0, :70].isfinite().all()
    assert out[1].isfinite().all()


# ------------------------------------------------------------------ masks


@pytest.mark.parametrize("causal", [False, True])
def test_a_mask_is_the_same_with_and_without_heads(causal: bool) -> None:
    phi_q, phi_k, v = (x.expand(2, 2, 7, -1).clone() for x in tokens(7))
    mask = torch.tensor([[True] * 7, [True, True, False, True, False, True, True]])
    got = linear_attention(phi_q, phi_k, v, causal=causal, key_mask=mask)
    by_head = linear_attention(
        phi_q, phi_k, v, causal=causal, key_mask=mask[:, None].expand(2, 2, 7)
    )
    assert torch.equal(got, by_head)
    weights = mask[1].double().expand(2, 7, 7)
    expected = reference.linear_attention(phi_q[1], phi_k[1], v[1], weights, causal=causal)
    assert largest_difference(got[1], expected) <= EXACT
    whole = reference.linear_attention(phi_q[0], phi_k[0], v[0], causal=causal)
    assert largest_difference(got[0], whole) <= EXACT


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
def test_nothing_leaks_out_of_padding_not_even_into_gradients(causal: bool, scaled: bool) -> None:
    phi_q, phi_k, v = tokens(6)
    mask = torch.tensor([False, True, True, False, True, False])
    scale = draw(2, 6, seed=5)
    expected = reference.linear_attention(
        phi_q,
        phi_k * (scale.exp()[..., None] if scaled else 1),
        v,
        mask.double().expand(2, 6, 6),
        causal=causal,
    )
    for x in (phi_k, v, scale[..., None]):
        x[:, ~mask] = float("nan")
    leaves = [x.requires_grad_() for x in (phi_q, phi_k, v)]
    key_scale = scale if scaled else None
    out = linear_attention(*leaves, causal=causal, key_mask=mask, key_scale=key_scale)
    if causal:
        assert (out[:, 0] == 0).all()  # where the formula divides 0 by 0
        out, expected = out[:, 1:], expected[:, 1:]
    assert largest_difference(out, expected) <= EXACT
    gradients = torch.autograd.grad(out.sum(), leaves)
    assert all(g.isfinite().all() for g in gradients)
    assert all((g[:, ~mask] == 0).all() for g in gradients[1:])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
def test_no_key_left_gives_zero(causal: bool, normalize: bool, scaled: bool) -> None:
    out = linear_attention(
        *tokens(4),
        causal=causal,
        normalize=normalize,
        key_mask=torch.zeros(4, dtype=torch.bool),
        key_scale=draw(2, 4) if scaled else None,
    )
    assert (out == 0).all()


# ------------------------------------------------------------------ scales kept apart

SCALED = {
    "constant": lambda n: (None, None),
    "cosine": lambda n: (CosineWeight(n), CosineWeight(n).matrix(n, n)[None].expand(2, n, n)),
    "toeplitz": lambda n: (toeplitz := ToeplitzWeight(draw(2, 2 * n - 1)), toeplitz.matrix(n, n)),
    "decay": lambda n: (
        DecayWeight(-draw(2)),
        (-draw(2)[:, None, None] * (torch.arange(n)[:, None] - torch.arange(n))).exp(),
    ),
}


@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_a_scale_kept_apart_equals_one_multiplied_in(
    name: str, normalize: bool, causal: bool
) -> None:
    if name == "decay" and not causal:
        pytest.skip("a decay is causal")
    phi_q, phi_k, v = tokens(12)
    scale = 8 * draw(2, 12, seed=4) - 4
    weight, weights = SCALED[name](12)
    expected = reference.linear_attention(
        phi_q, phi_k * scale.exp()[..., None], v, weights, causal=causal, normalize=normalize
    )
    leaves = [x.requires_grad_() for x in (phi_q, phi_k, v, scale)]
    got = linear_attention(phi_q, phi_k, v, weight, causal, normalize, key_scale=scale)
    assert largest_difference(got, expected) <= EXACT * (1 if normalize else 100)
    literal = reference.linear_attention(
        phi_q, phi_k * scale.exp()[..., None], v, weights, causal=causal, normalize=normalize
    )
    probe = draw(2, 12, 5, seed=8)
    for a, b in zip(
        torch.autograd.grad((got * probe).sum(), leaves),
        torch.autograd.grad((literal * probe).sum(), leaves),
        strict=True,
    ):
        assert largest_difference(a, b) <= 1e-11 * (1 if normalize else 100)


@pytest.mark.parametrize("causal", [False, True])
def test_scales_far_beyond_float32_are_harmless(causal: bool) -> None:
    phi_q, phi_k, v = tokens(90)
    scale = 400 * draw(2, 90, seed=4) - 200  # e^200 has no float32
    exact = linear_attention(phi_q, phi_k, v, causal=causal, key_scale=scale)
    low = [x.float() for x in (phi_q, phi_k, v)]
    got = linear_attention(*low, causal=causal, key_scale=scale.float())
    assert got.dtype == torch.float32
    assert largest_difference(got.double(), exact) < 2e-5
    shifted = linear_attention(phi_q, phi_k, v, causal=causal, key_scale=scale + 1000)
    assert largest_difference(shifted, exact) < 1e-11


def test_a_later_scale_changes_no_earlier_bit() -> None:
    phi_q, phi_k, v = (x.float() for x in tokens(90))
    scale = draw(2, 90, seed=4).float()
    before = linear_attention(phi_q, phi_k, v, causal=True, key_scale=scale)
    scale[:, 50:] += 80
    after = linear_attention(phi_q, phi_k, v, causal=True, key_scale=scale)
    assert torch.equal(before[:, :50], after[:, :50])
    assert not torch.allclose(before[:, 50:], after[:, 50:])


@pytest.mark.parametrize("cuts", [(0, 7), (3, 3, 9), (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)])
@pytest.mark.parametrize("name", ["constant", "cosine", "decay"])
@pytest.mark.parametrize("scaled", [False, True])
def test_pieces_equal_the_whole(name: str, scaled: bool, cuts: tuple[int, ...]) -> None:
    n, (phi_q, phi_k, v) = 12, tokens(12)
    weight, _ = SCALED[name](n)
    scale = 8 * draw(2, n, seed=4) if scaled else None
    whole = linear_attention(phi_q, phi_k, v, weight, causal=True, key_scale=scale)
    state, pieces = None, []
    for start, end in itertools.pairwise((0, *cuts, n)):
        part = [x[:, start:end] for x in (phi_q, phi_k, v)]
        out, state = linear_attention(
            *part,
            weight,
            causal=True,
            key_scale=None if scale is None else scale[:, start:end],
            state=state,
            return_state=True,
        )
        pieces.append(out)
    assert state.length == n
    assert largest_difference(torch.cat(pieces, 1), whole) <= EXACT


@pytest.mark.parametrize("level", [-1000.0, 1000.0])
@pytest.mark.parametrize("kept", ["001011", "110011", "100110", "000001"])
@pytest.mark.parametrize("name", ["constant", "cosine", "decay"])
def test_padding_between_pieces_changes_no_scale(name: str, kept: str, level: float) -> None:
    """Wherever a piece is all padding, or begins with it, a state keeps what it holds."""
    phi_q, phi_k, v = tokens(6)
    weight, weights = SCALED[name](6)
    mask, scale = torch.tensor([x == "1" for x in kept]), 8 * draw(2, 6, seed=4) + level
    scale[:, 4:] += 900  # later keys are so loud that earlier ones vanish beside them
    loud = scale - level - torch.arange(6).ge(4) * 900.0
    hidden = mask.double().expand(2, 6, 6) * (1 if weights is None else weights)
    early = reference.linear_attention(
        phi_q,
        phi_k * loud.exp()[..., None] * (torch.arange(6) < 4)[:, None],
        v,
        hidden,
        causal=True,
    )
    late = reference.linear_attention(
        phi_q,
        phi_k * loud.exp()[..., None] * (torch.arange(6) >= 4)[:, None],
        v,
        hidden,
        causal=True,
    )
    # a query sees the loud keys alone as soon as there is one
    expected = torch.where(late.isnan(), early, late).nan_to_num()
    for cuts in ((), (2, 4), (1, 2, 3, 4, 5), (4,)):
        state, pieces = None, []
        for start, end in itertools.pairwise((0, *cuts, 6)):
            out, state = linear_attention(
                *(x[:, start:end] for x in (phi_q, phi_k, v)),
                weight,
                causal=True,
                key_scale=scale[:, start:end],
                key_mask=mask[start:end],
                state=state,
                return_state=True,
            )
            pieces.append(out)
        assert largest_difference(torch.cat(pieces, 1), expected) <= EXACT


@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize("causal", [False, True])
def test_a_scale_of_minus_infinity_is_a_factor_of_zero(name: str, causal: bool) -> None:
    if name == "decay" and not causal:
        pytest.skip("a decay is causal")
    phi_q, phi_k, v = tokens(7)
    weight, weights = SCALED[name](7)
    scale = (8 * draw(2, 7, seed=4)).requires_grad_()
    absent = torch.tensor([1, 1, 0, 0, 1, 0, 1]).bool()
    expected = reference.linear_attention(
        phi_q, phi_k * scale.exp()[..., None] * ~absent[:, None], v, weights, causal=causal
    ).nan_to_num()
    got = linear_attention(
        phi_q, phi_k, v, weight, causal, key_scale=scale.masked_fill(absent, -torch.inf)
    )
    assert largest_difference(got, expected) <= EXACT
    (gradient,) = torch.autograd.grad(got.sum(), scale)
    assert gradient.isfinite().all()
    assert (gradient[:, absent] == 0).all()


def test_a_mask_may_have_the_batch_that_keys_and_values_have_not() -> None:
    phi_q, phi_k, v = tokens(6)
    mask = torch.tensor([[True] * 6, [False] + [True] * 5])
    got = linear_attention(phi_q.expand(2, -1, -1, -1), phi_k, v, key_mask=mask)
    for out, kept in zip(got, mask, strict=True):
        assert largest_difference(out, linear_attention(phi_q, phi_k, v, key_mask=kept)) <= EXACT


def test_one_scale_for_all_heads_of_a_single_token() -> None:
    """As many sequences as heads: the scales of a batch are not those of the features of a head."""
    phi_q, phi_k, v = (x.expand(2, 2, 2, -1) * draw(2, 1, 1, 1, seed=9) for x in tokens(2))
    scale = 3 * draw(2, 1, 2, seed=4)
    whole = linear_attention(phi_q, phi_k, v, causal=True, key_scale=scale.expand(2, 2, 2))
    state, out = None, []
    for t in range(2):
        part = (x[..., t : t + 1, :] for x in (phi_q, phi_k, v))
        y, state = linear_attention(
            *part, causal=True, key_scale=scale[..., t : t + 1], state=state, return_state=True
        )
        out.append(y)
    assert largest_difference(torch.cat(out, -2), whole) <= EXACT


@pytest.mark.parametrize("name", SCALED)
def test_gradients_stay_finite_however_far_scales_are_apart(name: str) -> None:
    phi_q, phi_k, v = tokens(12)
    scale = (1e4 * (draw(2, 12, seed=4) - 0.5)).requires_grad_()
    leaves = [x.requires_grad_() for x in (phi_q, phi_k, v)]
    out = linear_attention(*leaves, SCALED[name](12)[0], causal=True, key_scale=scale)
    # the loudest key so far takes all
    loudest = scale.cummax(-1).indices[..., None].expand_as(v)
    assert largest_difference(out, v.gather(1, loudest)) <= EXACT
    gradients = torch.autograd.grad(out.sum(), [*leaves, scale])
    assert all(g.isfinite().all() for g in gradients)


def test_an_empty_batch_carries_a_scale_on() -> None:
    empty = [x.expand(0, *x.shape) for x in tokens(4)]
    given = {"causal": True, "key_scale": torch.zeros(0, 2, 4).double(), "return_state": True}
    _, state = linear_attention(*empty, **given)
    out, _ = linear_attention(*empty, **given, state=state)
    assert out.shape == (0, 2, 4, 5)


# ------------------------------------------------------------------ numbers and machines


@pytest.mark.parametrize("causal", [False, True])
def test_autocast_changes_nothing(causal: bool) -> None:
    phi_q, phi_k, v = (x.float() for x in tokens(300))
    plain = linear_attention(phi_q, phi_k, v, causal=causal)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = linear_attention(phi_q, phi_k, v, causal=causal)
    assert torch.equal(plain, inside)


def test_a_long_sum_in_bfloat16_keeps_counting() -> None:
    """In bfloat16 a sum of ones ends at 256: 256 + 1 rounds to 256."""
    n = 5000
    ones, v = torch.ones(1, n, 1, dtype=torch.bfloat16), torch.zeros(1, n, 1, dtype=torch.bfloat16)
    v[0, : n // 2] = 1
    out, state = linear_attention(ones, ones, v, causal=True, return_state=True)
    assert out.dtype == torch.bfloat16
    assert out[0, -1].item() == 0.5
    assert state.sums.dtype == torch.float32
    assert state.sums[0, 0].tolist() == [n / 2, n]


def test_the_dtype_of_the_values_decides() -> None:
    phi_q, phi_k, v = tokens(4)
    out, state = linear_attention(phi_q, phi_k.float(), v.half(), causal=True, return_state=True)
    assert out.dtype == torch.float16
    assert state.sums.dtype == torch.float64


@pytest.mark.parametrize(
    "options",
    [{}, {"causal": True}, {"causal": True, "scaled": True}, {"key_mask": torch.ones(70).bool()}],
)
def test_compiles_into_one_graph(options: dict) -> None:
    options = dict(options)
    phi_q, phi_k, v = tokens(70)
    if options.pop("scaled", False):
        options["key_scale"] = draw(2, 70)
    torch.compiler.reset()
    compiled = torch.compile(linear_attention, fullgraph=True, backend="eager")
    expected = linear_attention(phi_q, phi_k, v, **options)
    assert largest_difference(compiled(phi_q, phi_k, v, **options), expected) <= EXACT


class LiveMemory(TorchDispatchMode):
    """Counts the bytes that the tensors made by operations hold at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(x, Tensor):
                storage = x.untyped_storage()
                self.live[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self.live = {key: held for key, held in self.live.items() if not held[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self.live.values()))
        return out


def peak(n: int, mode: str | None) -> float:
    """Return the most that a forward and backward pass holds, in sizes of one input."""
    data = [torch.rand(1, 2, n, 32, requires_grad=True) for _ in range(3)]
    with LiveMemory() as memory:
        out = linear_attention(*data, causal=True, mode=mode)
        torch.autograd.grad(out, data, torch.ones_like(out))
    return memory.peak / (data[0].numel() * 4)


def test_memory_grows_with_the_length_alone() -> None:
    short, long = peak(512, None), peak(2048, None)
    assert long < 1.1 * short < 20  # in sizes of one input, so that a constant means linear
    assert peak(2048, "parallel") > 3 * long  # the matrix


def test_the_gradient_of_many_chunks_is_linear_too() -> None:
    """A slice's gradient is as long as the whole, so a loop over slices would be quadratic."""

    class Written(TorchDispatchMode):
        elements = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore
            out = func(*args, **(kwargs or {}))
            for x in out if isinstance(out, (tuple, list)) else (out,):
                if isinstance(x, Tensor):
                    self.elements += x.numel()
            return out

    def written(n: int) -> float:
        data = [torch.rand(1, n, 8, requires_grad=True) for _ in range(3)]
        with Written() as count:
            out = linear_attention(*data, causal=True)
            torch.autograd.grad(out, data, torch.ones_like(out))
        return count.elements / n

    assert written(8192) < 1.1 * written(1024)


# ------------------------------------------------------------------ errors


MADE = linear_attention(*tokens(6), causal=True, return_state=True)[1]
TOEPLITZ = ToeplitzWeight(torch.zeros(2, 11).double())


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"phi_q": draw(6, 3)}, ValueError, r"phi_q must have shape \(\.\.\., heads.*\(6, 3\)"),
        ({"phi_k": draw(2, 6, 4)}, ValueError, "phi_k must have the 3 channels of phi_q"),
        ({"v": draw(2, 5, 5)}, ValueError, "v must have one row for each of the 6 tokens of phi_k"),
        ({"v": draw(3, 6, 5)}, ValueError, "leading dimensions of phi_q, phi_k and v must"),
        ({"v": torch.ones(2, 6, 5).long()}, TypeError, "v must be a floating-point tensor"),
        ({"weight": 0.5}, TypeError, "weight must be a PositionWeight or None, got 0.5"),
        ({"mode": "recurrent"}, ValueError, "mode must be None or 'parallel' unless causal"),
        ({"mode": "fft"}, ValueError, r"mode must be None or one of \('parallel'.*got 'fft'"),
        ({"mode": "fft", "causal": True}, ValueError, "mode must be None or one of"),
        ({"phi_q": draw(2, 4, 3), "causal": True}, ValueError, "phi_k must have a token for each"),
        ({"state": MADE}, ValueError, "state must be left out unless causal"),
        ({"state": MADE.sums, "causal": True}, TypeError, "state must be a LinearState.*Tensor"),
        (
            {"state": MADE._replace(sums=draw(2, 4, 6)), "causal": True},
            ValueError,
            r"state must have shape \(2, 3, 6\), .*got \(2, 4, 6\)",
        ),
        (
            {"state": MADE._replace(sums=draw(3, 3, 6)), "causal": True},
            ValueError,
            r"state must have shape \(2, 3, 6\), .*got \(3, 3, 6\)",
        ),
        ({"return_state": True}, ValueError, "return_state must be left out unless causal"),
        ({"key_mask": draw(6)}, TypeError, "key_mask must be a boolean tensor.*float64"),
        ({"key_mask": torch.ones(1).bool()}, ValueError, r"key_mask must have .*got \(1,\)"),
        ({"key_mask": torch.ones(5).bool()}, ValueError, r"key_mask must have .*got \(5,\)"),
        ({"key_scale": draw(3, 6)}, ValueError, r"key_scale must have shape \(2, 6\).*\(3, 6\)"),
        ({"key_scale": torch.ones(2, 6).long()}, TypeError, "key_scale must be a floating"),
        (
            {"causal": True, "state": MADE, "key_scale": draw(2, 6)},
            ValueError,
            "key_scale must be given if and only if",
        ),
        (
            {"weight": TOEPLITZ, "causal": True, "mode": "chunk", "key_scale": draw(2, 6)},
            ValueError,
            "mode must be None or 'parallel', and state None, for ToeplitzWeight",
        ),
        (
            {"weight": TOEPLITZ, "causal": True, "return_state": True},
            ValueError,
            "state must be .* ToeplitzWeight",
        ),
    ],
)
def test_bad_arguments_are_named(
    changes: dict[str, object], error: type[Exception], match: str
) -> None:
    given: dict = dict(zip(("phi_q", "phi_k", "v"), tokens(6), strict=True)) | changes
    with pytest.raises(error, match=match):
        linear_attention(**given)


def test_a_state_is_a_tuple_of_three() -> None:
    state = LinearState(torch.zeros(1, 2, 3), None, 0)
    phi_q, phi_k, v = tokens(1, heads=1, m=2, d_v=2)
    fresh = linear_attention(phi_q, phi_k, v, causal=True)
    assert (
        largest_difference(linear_attention(phi_q, phi_k, v, causal=True, state=state), fresh) == 0
    )


@pytest.mark.proves("eq-linear-ssm")
def test_a_state_space_model_whose_transition_is_the_identity_is_linear_attention() -> None:
    phi_q, phi_k, v = tokens(9, heads=1)
    out = linear_attention(phi_q, phi_k, v, causal=True, normalize=False)
    identity = torch.eye(3).double().expand(9, 3, 3)
    literal = reference.state_space(identity, phi_k[0], phi_q[0], v[0])
    assert largest_difference(out[0], literal) <= EXACT
