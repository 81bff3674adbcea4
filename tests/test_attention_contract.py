"""What every kernelised attention must do, whatever its features and its position weight."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import stringlib
from stringlib import (
    LinearState,
    linear_attention,
)
from tests.attention_cases import FEATURES, HEADS, WEIGHTS, dense_attention, inputs
from tests.draws import random

EXACT = 1e-12
LENGTHS = (1, 2, 7, 31, 32, 33, 65, 100)
PLACES = [(name, causal) for name, weight in WEIGHTS.items() for causal in weight.causal]
WAYS = [
    (name, causal, mode)
    for name, causal in PLACES
    for mode in (None, *WEIGHTS[name].modes)
    if causal or mode not in ("recurrent", "chunk")
]
CARRIES = [name for name, weight in WEIGHTS.items() if weight.carries]


def modes(name: str, causal: bool) -> list[str | None]:
    """Return the ways to one sum, for tests that compute once what all must equal."""
    return [mode for *place, mode in WAYS if place == [name, causal]]


def given(name: str, n: int, batch: tuple[int, ...] = (2,), **sizes: int) -> list[Tensor]:
    """Return features of queries and keys, values, and the tensor of the weight, if it has one."""
    draw, generator = WEIGHTS[name].draw, torch.Generator().manual_seed(3)
    return [*inputs(n, batch, **sizes), *([] if draw is None else [draw(batch, n, generator)])]


def narrow(tensors: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Return them in a dtype, but what the weight is made of in float32."""
    return [*(x.to(dtype) for x in tensors[:3]), *(x.float() for x in tensors[3:])]


def attend(
    name: str,
    tensors: list[Tensor],
    causal: bool = True,
    mode: str | None = None,
    length: int | None = None,
    **options: object,
) -> Tensor | tuple[Tensor, LinearState]:
    """Return what the package gives; ``length`` is that of all tokens, if these are some."""
    *data, n = *tensors[:3], length or tensors[2].shape[-2]
    weight = WEIGHTS[name].build(tensors[3] if tensors[3:] else None, n, 0)
    return linear_attention(*data, weight, causal, mode=mode, **options)


def dense(name: str, tensors: list[Tensor], causal: bool = True, normalize: bool = True) -> Tensor:
    """Return the same by its definition, NaN where 0 is divided by 0."""
    weights = WEIGHTS[name].dense(tensors[3] if tensors[3:] else None, tensors[2].shape[-2])
    return dense_attention(*tensors[:3], weights, causal, normalize)


def scaled(tensors: list[Tensor], scale: Tensor) -> list[Tensor]:
    """Return them with keys that are multiplied by exponentials."""
    return [tensors[0], tensors[1] * scale.exp()[..., None], *tensors[2:]]


def gradients(out: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    """Return those of a random sum, 0 where a leaf is not used."""
    loss = (out * random(*out.shape, seed=9)).sum()
    return list(torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True))


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize(("name", "causal"), PLACES)
def test_equals_the_dense_sum(name: str, causal: bool, n: int, normalize: bool) -> None:
    tensors = given(name, n)
    expected = dense(name, tensors, causal, normalize)
    limits = {"rtol": 0, "atol": EXACT} if normalize else {"rtol": 1e-12, "atol": 1e-11}
    for mode in modes(name, causal):
        got = attend(name, tensors, causal, mode, normalize=normalize)
        torch.testing.assert_close(got, expected, **limits)


@pytest.mark.parametrize("n", [1, 7, 70])
@pytest.mark.parametrize(("name", "causal"), PLACES)
def test_gradients_equal_those_of_the_dense_sum(name: str, causal: bool, n: int) -> None:
    leaves = [x.requires_grad_() for x in given(name, n)]
    expected = gradients(dense(name, leaves, causal), leaves)
    for mode in modes(name, causal):
        got = gradients(attend(name, leaves, causal, mode), leaves)
        for a, b in zip(got, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize(("name", "mode"), [(a, m) for a, causal, m in WAYS if causal])
def test_the_future_changes_nothing(name: str, mode: str | None) -> None:
    t, tensors = 33, given(name, 70)
    before = attend(name, tensors, mode=mode)
    for x in tensors[:3]:
        x[..., t + 1 :, :] = 50 * x[..., t + 1 :, :].flip(-2)
    after = attend(name, tensors, mode=mode)
    gap = (before - after)[..., : t + 1, :].abs().max().item()
    # the FFT's rounding is relative to the largest of all values, those of the future included
    assert gap <= (1e-9 if mode == "fft" else EXACT)
    assert (before - after)[..., t + 1 :, :].abs().max() > 0.1


@pytest.mark.parametrize(("name", "causal", "mode"), WAYS)
@pytest.mark.parametrize("batch", [(), (1,), (2, 3)])
def test_batches_heads_and_strides_do_not_matter(
    name: str, causal: bool, mode: str | None, batch: tuple[int, ...]
) -> None:
    tensors = given(name, 9, batch)
    odd = [x.transpose(-3, -2).contiguous().transpose(-3, -2) for x in tensors[:3]]
    assert not odd[0].is_contiguous()
    got = attend(name, [*odd, *tensors[3:]], causal, mode)
    assert got.shape == tensors[2].shape
    torch.testing.assert_close(got, dense(name, tensors, causal), rtol=0, atol=EXACT)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("with_scale", [False, True])
@pytest.mark.parametrize(("name", "causal", "mode"), WAYS)
def test_padded_keys_are_not_there(
    name: str, causal: bool, mode: str | None, with_scale: bool, normalize: bool
) -> None:
    if with_scale and name == "toeplitz" and causal and mode == "fft":
        pytest.skip("a causal FFT takes no scale")
    n, tensors = 40, given(name, 40, (3,))
    mask = torch.stack([random(n) > 0.1, torch.arange(n) < 29, torch.zeros(n).bool()])
    mask[0, 0] = mode == "fft"  # which is imprecise for early queries that find nothing
    scale = random(3, HEADS, n, seed=5).clamp(-1, 1) * with_scale
    kept = scaled(tensors, scale)
    kept[1] = kept[1] * mask[:, None, :, None]
    expected = dense(name, kept, causal, normalize).nan_to_num()  # no key: 0, not 0 by 0
    for x in (tensors[1], tensors[2], scale[..., None]):  # whatever stands in the padding
        x.masked_fill_(~mask[:, None, :, None], torch.nan)
    leaves = [x.requires_grad_() for x in tensors]
    options = {"normalize": normalize, "key_scale": scale if with_scale else None}
    limits = {"rtol": 0, "atol": EXACT} if normalize else {"rtol": 1e-12, "atol": 1e-11}
    for shape in ((3, n), (3, 1, n), (3, HEADS, n)):
        by_head = mask.view(3, *(1,) * (len(shape) - 2), n).expand(shape)
        got = attend(name, leaves, causal, mode, key_mask=by_head, **options)
        torch.testing.assert_close(got, expected, **limits)
    for one in range(3):  # a mask for the whole batch
        out = attend(name, leaves, causal, mode, key_mask=mask[one], **options)
        torch.testing.assert_close(out[one], expected[one], **limits)
    found = gradients(got, leaves)
    assert all(g.isfinite().all() for g in found)
    assert all((g.masked_select(~mask[:, None, :, None]) == 0).all() for g in found[1:3])


@pytest.mark.parametrize(("name", "causal", "mode"), WAYS)
def test_a_query_that_no_key_answers_gets_zero_and_finite_gradients(
    name: str, causal: bool, mode: str | None
) -> None:
    for nothing in (lambda q, k: q[..., 2, :].zero_(), lambda q, k: k.zero_()):
        tensors = given(name, 6)
        nothing(*tensors[:2])
        leaves = [x.requires_grad_() for x in tensors]
        out = attend(name, leaves, causal, mode)
        assert (out[..., 2, :] == 0).all()
        assert out.isfinite().all()
        assert all(g.isfinite().all() for g in gradients(out, leaves))
    assert (out == 0).all()


@pytest.mark.parametrize(("name", "causal", "mode"), WAYS)
@pytest.mark.parametrize(("small_q", "small_k"), [(3e-21, 7e-20), (2e-38, 1.0), (1.0, 4e-39)])
def test_gradients_of_tiny_features_are_finite(
    name: str, causal: bool, mode: str | None, small_q: float, small_k: float
) -> None:
    tensors, sizes = given(name, 37), (small_q, small_k, 1.0)
    tiny = [(size * x).float().requires_grad_() for x, size in zip(tensors, sizes, strict=False)]
    out = attend(name, [*tiny, *(x.float() for x in tensors[3:])], causal, mode)
    wide = [x.detach().double().requires_grad_() for x in tiny]
    exact = dense(name, [*wide, *tensors[3:]], causal)
    torch.testing.assert_close(out.double(), exact, rtol=0, atol=1e-4)
    found = torch.autograd.grad(out.square().sum(), tiny)
    assert all(x.isfinite().all() for x in found)
    if min(sizes) > 1e-30:  # the gradient itself can be represented
        for a, b in zip(found, torch.autograd.grad(exact.square().sum(), wide), strict=True):
            torch.testing.assert_close(a.double(), b, rtol=0, atol=1e-4 * b.abs().max().item())


@pytest.mark.parametrize(("name", "causal", "mode"), WAYS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_dtype_in_is_dtype_out(
    name: str, causal: bool, mode: str | None, dtype: torch.dtype
) -> None:
    tensors = given(name, 50)
    low = narrow(tensors, dtype)
    got = attend(name, low, causal, mode)
    assert got.dtype == dtype
    exact = dense(name, [*(x.double() for x in low[:3]), *tensors[3:]], causal)
    error = (got.double() - exact).abs().max().item()
    # the arithmetic is float32 whatever comes in, so a half loses only its last rounding
    assert error <= 4 * torch.finfo(dtype).eps * max(1.0, exact.abs().max().item())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(attend(name, low, causal, mode), got)


@pytest.mark.parametrize(("name", "causal", "mode"), WAYS)
def test_nan_in_nan_out(name: str, causal: bool, mode: str | None) -> None:
    tensors = given(name, 8)
    tensors[0][..., 3, 0] = torch.nan
    assert attend(name, tensors, causal, mode)[..., 3, :].isnan().all()
    tensors = given(name, 8)
    tensors[1][0, 0, 3, 0] = torch.nan
    out = attend(name, tensors, causal, mode)
    assert out[0, 0, 3:].isnan().all()
    assert out[0, 1:].isfinite().all()
    assert out[1].isfinite().all()


@pytest.mark.parametrize(("name", "causal", "mode"), WAYS)
@pytest.mark.parametrize("batch", [(), (2,), (0,)])
def test_no_tokens(name: str, causal: bool, mode: str | None, batch: tuple[int, ...]) -> None:
    n = 1 if batch == (0,) else 0
    if name == "toeplitz" and n == 0:
        pytest.skip("a bias for 2n − 1 offsets has no n = 0")
    tensors = given(name, n, batch)
    leaves = [x.requires_grad_() for x in tensors[:3]]
    out = attend(name, [*leaves, *tensors[3:]], causal, mode)
    assert out.shape == leaves[2].shape
    out.sum().backward()


@pytest.mark.parametrize("mode", [None, "parallel"])
@pytest.mark.parametrize(("queries", "keys"), [(3, 8), (8, 3), (1, 5), (4, 0), (40, 3), (3, 40)])
@pytest.mark.parametrize("name", ["constant", "cosine", "cosine-positive"])
def test_more_keys_than_queries(name: str, mode: str | None, queries: int, keys: int) -> None:
    n = max(queries, keys)
    phi_q, phi_k, v = given(name, n)
    cut = [phi_q[..., :queries, :], phi_k[..., :keys, :], v[..., :keys, :]]
    weights = WEIGHTS[name].dense(None, n)[..., :queries, :keys]
    for normalize in (True, False):
        out = attend(name, cut, False, mode, n, normalize=normalize)
        assert out.shape == (2, HEADS, queries, v.shape[-1])
        expected = dense_attention(*cut, weights, False, normalize).nan_to_num()
        torch.testing.assert_close(out, expected, rtol=0, atol=EXACT)


def piece(name: str, tensors: list[Tensor], start: int, end: int) -> list[Tensor]:
    """Return the part of all tensors that belongs to some tokens."""
    cut = [x[..., start:end, :] for x in tensors[:3]]
    if name == "decay-scalar":
        return [*cut, tensors[3][..., start:end]]
    return [*cut, *(x[..., start:end, :] if name == "decay-vector" else x for x in tensors[3:])]


CUTS = ((1,), (33,), (32, 64), (0, 5, 6, 6, 7, 50), tuple(range(1, 70)))


@pytest.mark.parametrize("with_scale", [False, True])
@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("mode", [None, "recurrent", "chunk", "parallel"])
@pytest.mark.parametrize("name", CARRIES)
def test_a_state_is_all_that_later_tokens_need(
    name: str, mode: str | None, cuts: tuple[int, ...], with_scale: bool
) -> None:
    n, tensors = 70, given(name, 70)
    scale = 8 * random(2, HEADS, n, seed=4).clamp(0, 1) if with_scale else None
    whole = attend(name, tensors, key_scale=scale)
    state, out = None, []
    for start, end in itertools.pairwise((0, *cuts, n)):
        y, state = attend(
            *(name, piece(name, tensors, start, end), True, mode, n),
            key_scale=None if scale is None else scale[..., start:end],
            state=state,
            return_state=True,
        )
        out.append(y)
    assert state is not None
    assert state.length == n
    torch.testing.assert_close(torch.cat(out, -2), whole, rtol=0, atol=EXACT)


@pytest.mark.parametrize("name", CARRIES)
def test_gradients_flow_through_a_carried_state(name: str) -> None:
    n, cut = 40, 17
    leaves = [x.requires_grad_() for x in given(name, n)]
    first, state = attend(name, piece(name, leaves, 0, cut), length=n, return_state=True)
    second = attend(name, piece(name, leaves, cut, n), length=n, state=state)
    got = gradients(torch.cat([first, second], -2), leaves)
    for a, b in zip(got, gradients(attend(name, leaves), leaves), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(("name", "causal"), PLACES)
def test_a_scale_kept_apart_equals_one_multiplied_in(
    name: str, causal: bool, normalize: bool
) -> None:
    scale = (4 * random(2, HEADS, 12, seed=4).clamp(-1, 1)).requires_grad_()
    leaves = [*(x.requires_grad_() for x in given(name, 12)), scale]
    expected = dense(name, scaled(leaves[:-1], scale), causal, normalize)
    wanted = gradients(expected, leaves)
    more = 1 if normalize else 100
    for mode in modes(name, causal):
        if name == "toeplitz" and causal and mode == "fft":
            continue  # a causal FFT takes no scale
        got = attend(name, leaves[:-1], causal, mode, normalize=normalize, key_scale=scale)
        torch.testing.assert_close(got, expected, rtol=0, atol=more * EXACT)
        for a, b in zip(gradients(got, leaves), wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=more * 1e-11)


@pytest.mark.parametrize(("name", "causal"), PLACES)
def test_scales_far_beyond_float32_are_harmless(name: str, causal: bool) -> None:
    tensors, scale = given(name, 90), 200 * random(2, HEADS, 90, seed=4).clamp(-1, 1)
    exact = attend(name, tensors, causal, key_scale=scale)  # e^200 has no float32
    low = narrow(tensors, torch.float32)
    got = attend(name, low, causal, key_scale=scale.float())
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.double(), exact, rtol=0, atol=2e-5)
    shifted = attend(name, tensors, causal, key_scale=scale + 1000)
    torch.testing.assert_close(shifted, exact, rtol=0, atol=1e-11)


@pytest.mark.parametrize(("name", "causal"), PLACES)
def test_a_scale_of_minus_infinity_is_a_factor_of_zero(name: str, causal: bool) -> None:
    tensors, scale = given(name, 7), (4 * random(2, HEADS, 7, seed=4)).requires_grad_()
    absent = torch.tensor([1, 1, 0, 0, 1, 0, 1]).bool()
    hidden = scale.masked_fill(absent, -torch.inf)
    expected = dense(name, scaled(tensors, hidden), causal).nan_to_num()
    got = attend(name, tensors, causal, key_scale=hidden)
    torch.testing.assert_close(got, expected, rtol=0, atol=EXACT)
    (gradient,) = torch.autograd.grad(got.sum(), scale)
    assert gradient.isfinite().all()
    assert (gradient[..., absent] == 0).all()


@pytest.mark.parametrize("name", WEIGHTS)
def test_gradients_stay_finite_however_far_scales_are_apart(name: str) -> None:
    leaves = [x.requires_grad_() for x in given(name, 12)]
    scale = (1e4 * random(2, HEADS, 12, seed=4)).requires_grad_()
    out = attend(name, leaves, key_scale=scale)
    # the loudest key so far takes all
    loudest = scale.cummax(-1).indices[..., None].expand_as(out)
    torch.testing.assert_close(out, leaves[2].gather(-2, loudest), rtol=0, atol=EXACT)
    assert all(g.isfinite().all() for g in gradients(out, [*leaves, scale]))


@pytest.mark.parametrize("level", [-1000.0, 1000.0])
@pytest.mark.parametrize("kept", ["001011", "110011", "100110", "000001"])
@pytest.mark.parametrize("name", CARRIES)
def test_padding_between_pieces_changes_no_scale(name: str, kept: str, level: float) -> None:
    """Wherever a piece is all padding, or begins with it, a state keeps what it holds."""
    tensors, mask, loud = (
        given(name, 6),
        torch.tensor([x == "1" for x in kept]),
        torch.arange(6) > 3,
    )
    scale = 8 * random(2, HEADS, 6, seed=4).clamp(0, 1)
    # later keys are so loud that a query sees them alone as soon as there is one
    late, early = (
        dense(name, scaled(tensors, scale.masked_fill(~(mask & heard), -torch.inf)))
        for heard in (loud, ~loud)
    )
    expected = torch.where(late.isnan(), early, late).nan_to_num()
    for cuts in ((), (2, 4), (1, 2, 3, 4, 5), (4,)):
        state, pieces = None, []
        for start, end in itertools.pairwise((0, *cuts, 6)):
            out, state = attend(
                *(name, piece(name, tensors, start, end), True, None, 6),
                key_scale=(scale + level + 900 * loud)[..., start:end],
                key_mask=mask[start:end],
                state=state,
                return_state=True,
            )
            pieces.append(out)
        torch.testing.assert_close(torch.cat(pieces, -2), expected, rtol=0, atol=EXACT)


class LargestTensor(TorchDispatchMode):
    """Records the number of elements of the largest tensor that any operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, (tuple, list)) else (out,):
            # a view costs nothing, so the storage is what counts
            if isinstance(x, Tensor):
                self.elements = max(self.elements, x.untyped_storage().nbytes() // x.element_size())
        return out


@pytest.mark.parametrize("mode", [None, "chunk"])
@pytest.mark.parametrize("name", ["constant", "cosine", "decay-heads", "decay-scalar"])
def test_the_chunked_form_never_holds_a_state_for_each_token(name: str, mode: str | None) -> None:
    n, m = 1024, 32
    leaves = [x.requires_grad_() for x in given(name, n, (), m=m, d_v=32)]
    with LargestTensor() as largest:
        torch.autograd.grad(attend(name, leaves, mode=mode).sum(), leaves)
    # a state for each token would be n·m·33: 32 times a feature tensor; a matrix n·n: as many
    assert largest.elements <= HEADS * n * m * 4


@pytest.mark.parametrize("mode", [None, "chunk"])
def test_vector_decays_hold_no_state_for_each_token(mode: str | None) -> None:
    n, m = 1024, 32
    leaves = [x.requires_grad_() for x in inputs(n, (), m, d_v=96)]
    weight = stringlib.DecayWeight(-torch.rand(HEADS, n, m, dtype=torch.float64))
    with LargestTensor() as largest:
        out = linear_attention(*leaves, weight, causal=True, mode=mode)
        torch.autograd.grad(out.sum(), leaves)
    assert largest.elements <= HEADS * n * m * 32


@pytest.mark.parametrize("name", ["constant", "cosine-positive", "decay-heads", "decay-scalar"])
def test_sixteen_thousand_tokens_in_float32(name: str) -> None:
    tensors = given(name, 16384, ())
    low = attend(name, narrow(tensors, torch.float32))
    assert (low - attend(name, tensors)).abs().max() < 2e-4


@pytest.mark.parametrize("name", FEATURES)
def test_features_have_the_sign_shape_and_scale_that_they_say(name: str) -> None:
    case, phi = FEATURES[name], FEATURES[name].make()
    assert phi.nonnegative == case.nonnegative
    assert phi.scale == pytest.approx(case.head_dim**-0.25 if case.exponential else 1)
    m = phi(torch.zeros(HEADS, 1, case.head_dim).double()).shape[-1]
    for batch, n in (((), 3), ((2,), 1), ((2, 3), 4), ((2,), 0), ((0,), 4)):
        x = random(*batch, HEADS, n, case.head_dim)
        keys, scale = phi.scaled_keys(x)
        assert (scale is not None) == case.exponential
        if scale is None:
            assert torch.equal(keys, phi(x))
        else:
            assert scale.shape == x.shape[:-1]
        for y in (phi(x), phi(x, is_query=False), keys):
            assert y.shape == (*x.shape[:-1], m)
            assert (y >= 0).all() or not case.nonnegative


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", FEATURES)
def test_half_precision_rounds_features_once_and_autocast_never(
    name: str, dtype: torch.dtype
) -> None:
    case, phi = FEATURES[name], FEATURES[name].make().float()
    x = random(2, HEADS, 7, case.head_dim).to(dtype)
    for is_query in (True, False):
        wide, got = phi(x.float(), is_query), phi(x, is_query)
        assert got.dtype == dtype
        assert torch.equal(got, wide.to(dtype))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(phi(x.float(), is_query), wide)
    features, scale = phi.scaled_keys(x)
    assert features.dtype == dtype
    assert scale is None or scale.dtype == torch.float32


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", FEATURES)
def test_features_and_attention_equal_their_definition(name: str, causal: bool) -> None:
    case, phi = FEATURES[name], FEATURES[name].make()
    q, k = random(2, 2, HEADS, 11, case.head_dim)
    v = random(2, HEADS, 11, 3, seed=1)
    divide = phi.nonnegative
    got = linear_attention(phi(q), phi(k, is_query=False), v, causal=causal, normalize=divide)
    plain_q, plain_k = case.plain(phi, q), case.plain(phi, k)
    expected = dense_attention(plain_q, plain_k, v, torch.ones(()).double(), causal, divide)
    expected = expected.nan_to_num()  # ReLU: a query that no key answers
    torch.testing.assert_close(got, expected, rtol=0, atol=EXACT)


STABILIZED = [name for name, case in FEATURES.items() if case.stabilized]


def stabilized(name: str, q: Tensor, k: Tensor, v: Tensor, causal: bool = True, **options):
    """Attend with scales of the keys, in the dtype of the queries."""
    phi = FEATURES[name].make().to(q.dtype)
    features, scale = phi.scaled_keys(k)
    return linear_attention(phi(q), features, v, causal=causal, key_scale=scale, **options)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", STABILIZED)
def test_nothing_looks_ahead_through_the_stabiliser(name: str, dtype: torch.dtype) -> None:
    phi = FEATURES[name].make().to(dtype)
    q, k = random(2, 2, HEADS, 40, FEATURES[name].head_dim).to(dtype)
    v, loud = random(2, HEADS, 40, 3, seed=1).to(dtype), k.clone()
    with torch.no_grad():  # keys that have the largest features there are
        loud[..., 20:, :] = phi.projection_matrix()[:, :1, :].to(dtype)
    before, after = stabilized(name, q, k, v), stabilized(name, q, loud, v)
    assert torch.equal(before[..., :20, :], after[..., :20, :])
    assert not torch.equal(before[..., 20:, :], after[..., 20:, :])
    common = linear_attention(phi(q), phi(k, is_query=False), v, causal=True)
    torch.testing.assert_close(before, common, rtol=0, atol=1e-12 if dtype.itemsize == 8 else 1e-4)


@pytest.mark.parametrize("length", [10, 30])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", STABILIZED)
def test_long_vectors_stay_finite_and_exact_in_float32(
    name: str, causal: bool, length: float
) -> None:
    torch.manual_seed(0)
    q, k = torch.randn(2, 2, HEADS, 30, FEATURES[name].head_dim, dtype=torch.float64)
    k = length * k / k.norm(dim=-1, keepdim=True) * torch.rand(30, 1).double()
    q = length * q / q.norm(dim=-1, keepdim=True)
    v = torch.randn(2, HEADS, 30, 3, dtype=torch.float64)
    low = stabilized(name, q.float(), k.float(), v.float(), causal)
    assert low.isfinite().all()
    # beyond, a lone key and a query may have no feature in common that float32 can hold
    assert length > 10 or (low - stabilized(name, q, k, v, causal)).abs().max() < 1e-3
    phi = FEATURES[name].make().float()
    features = phi(q.float()), phi(k.float(), is_query=False)
    assert linear_attention(*features, v.float(), causal=causal).isfinite().all()


@pytest.mark.parametrize("name", STABILIZED)
def test_prefill_and_decode_equal_the_whole(name: str) -> None:
    q, k = 3 * random(2, 2, HEADS, 25, FEATURES[name].head_dim)
    v = random(2, HEADS, 25, 3, seed=1)
    state, out = None, []
    for start, end in itertools.pairwise((0, *range(13, 26))):
        part = (x[..., start:end, :] for x in (q, k, v))
        y, state = stabilized(name, *part, state=state, return_state=True)
        out.append(y)
    whole = stabilized(name, q, k, v)
    torch.testing.assert_close(torch.cat(out, -2), whole, rtol=0, atol=EXACT)
