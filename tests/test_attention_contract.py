"""What every kernelised attention must do, whatever its features and its position weight."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import stringlib
from stringlib import MultiHeadAttention, attention, linear_attention, softmax_attention
from stringlib.attention.linear import rotated_linear_attention
from stringlib.attention.projections import IidProjection
from stringlib.attention.shift import KeyShift
from tests.attention_cases import (
    FEATURES,
    HEADS,
    WEIGHTS,
    Weight,
    dense_attention,
    inputs,
)

EXACT = 1e-12
LENGTHS = (1, 2, 7, 31, 32, 33, 65, 100)
PLACES = [(name, causal) for name, weight in WEIGHTS.items() for causal in weight.causal]
WAYS = [
    (name, causal, mode)
    for name, causal in PLACES
    for mode in (None, *WEIGHTS[name].modes)
    if causal or mode not in ("recurrent", "chunk")
]


def modes(name: str, causal: bool) -> list[str | None]:
    """Return the ways to one sum, for tests that compute once what all must equal."""
    return [mode for *place, mode in WAYS if place == [name, causal]]


def drawn(weight: Weight, n: int, batch: tuple[int, ...] = (2,), seed: int = 3) -> Tensor | None:
    if weight.draw is None:
        return None
    return weight.draw(batch, n, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize(("name", "causal"), PLACES)
def test_equals_the_dense_sum(name: str, causal: bool, n: int) -> None:
    weight, (phi_q, phi_k, v) = WEIGHTS[name], inputs(n)
    tensor = drawn(weight, n)
    expected = dense_attention(phi_q, phi_k, v, weight.dense(tensor, n), causal)
    for mode in modes(name, causal):
        made = weight.build(tensor, n, 0)
        got = linear_attention(phi_q, phi_k, v, made, causal=causal, mode=mode)
        torch.testing.assert_close(got, expected, rtol=0, atol=EXACT)


@pytest.mark.parametrize(("name", "causal", "mode"), WAYS)
def test_equals_the_dense_sum_when_not_normalised(
    name: str, causal: bool, mode: str | None
) -> None:
    n, weight = 41, WEIGHTS[name]
    (phi_q, phi_k, v), tensor = inputs(n), drawn(weight, n)
    got = linear_attention(
        phi_q, phi_k, v, weight.build(tensor, n, 0), causal=causal, mode=mode, normalize=False
    )
    expected = dense_attention(phi_q, phi_k, v, weight.dense(tensor, n), causal, normalize=False)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("n", [1, 7, 40])
@pytest.mark.parametrize(("name", "causal"), PLACES)
def test_gradients_equal_those_of_the_dense_sum(name: str, causal: bool, n: int) -> None:
    weight, data = WEIGHTS[name], inputs(n)
    tensor = drawn(weight, n)
    leaves = [x.requires_grad_() for x in (*data, *(() if tensor is None else (tensor,)))]
    phi_q, phi_k, v = data
    probe = torch.randn(v.shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64)

    def gradients(out: Tensor) -> list[Tensor]:
        found = torch.autograd.grad((out * probe).sum(), leaves, allow_unused=True)
        return [torch.zeros_like(x) if g is None else g for g, x in zip(found, leaves, strict=True)]

    expected = gradients(dense_attention(phi_q, phi_k, v, weight.dense(tensor, n), causal))
    for mode in modes(name, causal):
        made = weight.build(tensor, n, 0)
        got = gradients(linear_attention(phi_q, phi_k, v, made, causal=causal, mode=mode))
        for a, b in zip(got, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize(("name", "causal", "mode"), WAYS)
def test_gradcheck(name: str, causal: bool, mode: str | None) -> None:
    n, weight = 5, WEIGHTS[name]
    data, tensor = inputs(n, batch=(), d_v=2), drawn(weight, n, batch=())
    leaves = [x.requires_grad_() for x in (*data, *(() if tensor is None else (tensor,)))]

    def attend(phi_q: Tensor, phi_k: Tensor, v: Tensor, *rest: Tensor) -> Tensor:
        made = weight.build(rest[0] if rest else None, n, 0)
        return linear_attention(phi_q, phi_k, v, made, causal=causal, mode=mode)

    # a random product: the test above compares every entry
    assert torch.autograd.gradcheck(attend, leaves, fast_mode=True)


@pytest.mark.parametrize(("name", "mode"), [(a, m) for a, causal, m in WAYS if causal])
def test_the_future_changes_nothing(name: str, mode: str | None) -> None:
    n, t, weight = 70, 33, WEIGHTS[name]
    (phi_q, phi_k, v), tensor = inputs(n), drawn(weight, n)
    made = weight.build(tensor, n, 0)
    before = linear_attention(phi_q, phi_k, v, made, causal=True, mode=mode)
    for x in (phi_q, phi_k, v):
        x[..., t + 1 :, :] = 50 * x[..., t + 1 :, :].flip(-2)
    after = linear_attention(phi_q, phi_k, v, made, causal=True, mode=mode)
    gap = (before - after)[..., : t + 1, :].abs().max().item()
    # the FFT's rounding is relative to the largest of all values, those of the future included
    assert gap <= (1e-9 if mode == "fft" else EXACT)
    assert (before - after)[..., t + 1 :, :].abs().max() > 0.1


@pytest.mark.parametrize(("name", "causal", "mode"), WAYS)
@pytest.mark.parametrize("batch", [(), (1,), (2, 3)])
def test_batches_and_heads_do_not_mix(
    name: str, causal: bool, mode: str | None, batch: tuple[int, ...]
) -> None:
    n, weight = 9, WEIGHTS[name]
    (phi_q, phi_k, v), tensor = inputs(n, batch), drawn(weight, n, batch)
    whole = linear_attention(phi_q, phi_k, v, weight.build(tensor, n, 0), causal=causal, mode=mode)
    assert whole.shape == v.shape
    expected = dense_attention(phi_q, phi_k, v, weight.dense(tensor, n), causal)
    torch.testing.assert_close(whole, expected, rtol=0, atol=EXACT)


@pytest.mark.parametrize(("name", "causal", "mode"), WAYS)
def test_strides_do_not_matter(name: str, causal: bool, mode: str | None) -> None:
    n, weight = 12, WEIGHTS[name]
    (phi_q, phi_k, v), tensor = inputs(n), drawn(weight, n)
    made = weight.build(tensor, n, 0)
    odd = [x.transpose(-3, -2).contiguous().transpose(-3, -2) for x in (phi_q, phi_k, v)]
    assert not odd[0].is_contiguous()
    torch.testing.assert_close(
        linear_attention(*odd, made, causal=causal, mode=mode),
        linear_attention(phi_q, phi_k, v, made, causal=causal, mode=mode),
        rtol=0,
        atol=EXACT,
    )


@pytest.mark.parametrize(("name", "causal", "mode"), WAYS)
def test_padded_keys_are_not_there(name: str, causal: bool, mode: str | None) -> None:
    n, kept, weight = 40, 29, WEIGHTS[name]
    (phi_q, phi_k, v), tensor = inputs(n), drawn(weight, n)
    made = weight.build(tensor, n, 0)
    mask = torch.arange(n) < kept
    weights = weight.dense(tensor, n).clone()
    absent = (~mask)[:, None] if weights.ndim == phi_q.ndim + 1 else ~mask
    weights = weights.masked_fill(absent, 0)
    expected = dense_attention(phi_q, phi_k, v, weights, causal)
    v[..., kept:, :] = float("nan")  # whatever stands in the padding
    phi_k[..., kept:, :] = float("inf")
    for shape in ((n,), (2, 1, n), (2, HEADS, n)):
        got = linear_attention(
            phi_q, phi_k, v, made, causal=causal, mode=mode, key_mask=mask.expand(shape)
        )
        torch.testing.assert_close(got, expected, rtol=0, atol=EXACT)


@pytest.mark.parametrize(("name", "causal", "mode"), WAYS)
def test_no_key_at_all_gives_zero(name: str, causal: bool, mode: str | None) -> None:
    n, weight = 6, WEIGHTS[name]
    (phi_q, phi_k, v), tensor = inputs(n), drawn(weight, n)
    phi_k.zero_()
    leaves = [x.requires_grad_() for x in (phi_q, phi_k, v)]
    out = linear_attention(phi_q, phi_k, v, weight.build(tensor, n, 0), causal=causal, mode=mode)
    assert (out == 0).all()
    assert all(g.isfinite().all() for g in torch.autograd.grad(out.sum(), leaves))


@pytest.mark.parametrize(("name", "causal", "mode"), WAYS)
@pytest.mark.parametrize(("small_q", "small_k"), [(3e-21, 7e-20), (2e-38, 1.0), (1.0, 4e-39)])
def test_gradients_of_tiny_features_are_finite(
    name: str, causal: bool, mode: str | None, small_q: float, small_k: float
) -> None:
    n, weight = 37, WEIGHTS[name]
    data, tensor = inputs(n), drawn(weight, n)
    made = weight.build(tensor if tensor is None else tensor.float(), n, 0)
    sizes = (small_q, small_k, 1.0)
    tiny = [(size * x).float().requires_grad_() for x, size in zip(data, sizes, strict=True)]
    out = linear_attention(*tiny, made, causal=causal, mode=mode)
    wide = [x.detach().double().requires_grad_() for x in tiny]
    exact = dense_attention(*wide, weight.dense(tensor, n), causal)
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
    n, weight = 50, WEIGHTS[name]
    (phi_q, phi_k, v), tensor = inputs(n), drawn(weight, n)
    low = [x.to(dtype) for x in (phi_q, phi_k, v)]
    made = weight.build(tensor if tensor is None else tensor.float(), n, 0)
    got = linear_attention(*low, made, causal=causal, mode=mode)
    assert got.dtype == dtype
    exact = dense_attention(*(x.double() for x in low), weight.dense(tensor, n), causal)
    error = (got.double() - exact).abs().max().item()
    # the arithmetic is float32 whatever comes in, so a half loses only its last rounding
    assert error <= 4 * torch.finfo(dtype).eps * max(1.0, exact.abs().max().item())


@pytest.mark.parametrize(("name", "causal", "mode"), WAYS)
def test_nan_in_nan_out(name: str, causal: bool, mode: str | None) -> None:
    n, weight = 8, WEIGHTS[name]
    (phi_q, phi_k, v), tensor = inputs(n), drawn(weight, n)
    made = weight.build(tensor, n, 0)
    phi_q[..., 3, 0] = float("nan")
    out = linear_attention(phi_q, phi_k, v, made, causal=causal, mode=mode)
    assert out[..., 3, :].isnan().all()


@pytest.mark.parametrize(("name", "causal", "mode"), WAYS)
@pytest.mark.parametrize("batch", [(), (2,), (0,)])
def test_no_tokens(name: str, causal: bool, mode: str | None, batch: tuple[int, ...]) -> None:
    n = 1 if batch == (0,) else 0
    weight = WEIGHTS[name]
    if name == "toeplitz" and n == 0:
        pytest.skip("a bias for 2n − 1 offsets has no n = 0")
    (phi_q, phi_k, v), tensor = inputs(n, batch), drawn(weight, n, batch)
    for x in (phi_q, phi_k, v):
        x.requires_grad_()
    out = linear_attention(phi_q, phi_k, v, weight.build(tensor, n, 0), causal=causal, mode=mode)
    assert out.shape == v.shape
    out.sum().backward()


@pytest.mark.parametrize("mode", [None, "parallel"])
@pytest.mark.parametrize(("queries", "keys"), [(3, 8), (8, 3), (1, 5), (4, 0)])
def test_more_keys_than_queries(mode: str | None, queries: int, keys: int) -> None:
    phi_q, phi_k, v = inputs(max(queries, keys, 1))
    phi_q, phi_k, v = phi_q[..., :queries, :], phi_k[..., :keys, :], v[..., :keys, :]
    out = linear_attention(phi_q, phi_k, v, mode=mode)
    assert out.shape == (*v.shape[:-2], queries, v.shape[-1])
    if keys:
        expected = dense_attention(phi_q, phi_k, v, torch.ones(()).double(), False)
        torch.testing.assert_close(out, expected, rtol=0, atol=EXACT)


CARRIES = [n for n, weight in WEIGHTS.items() if weight.carries]


def piece(name: str, tensor: Tensor | None, start: int, end: int) -> Tensor | None:
    """Return the part of a weight's tensor that belongs to some tokens."""
    if tensor is None or name == "decay-heads":
        return tensor
    return tensor[..., start:end] if name == "decay-scalar" else tensor[..., start:end, :]


@pytest.mark.parametrize("cuts", [(1,), (33,), (32, 64), (5, 6, 7, 50), tuple(range(1, 70))])
@pytest.mark.parametrize("mode", [None, "recurrent", "chunk", "parallel"])
@pytest.mark.parametrize("name", CARRIES)
def test_a_state_is_all_that_later_tokens_need(
    name: str, mode: str | None, cuts: tuple[int, ...]
) -> None:
    n, weight = 70, WEIGHTS[name]
    (phi_q, phi_k, v), tensor = inputs(n), drawn(weight, n)
    whole = linear_attention(phi_q, phi_k, v, weight.build(tensor, n, 0), causal=True)
    state, out = None, []
    for start, end in zip((0, *cuts), (*cuts, n), strict=True):
        made = weight.build(piece(name, tensor, start, end), n, 0)
        part = (x[..., start:end, :] for x in (phi_q, phi_k, v))
        y, state = linear_attention(
            *part, made, causal=True, mode=mode, state=state, return_state=True
        )
        out.append(y)
    assert state is not None
    assert state.length == n
    torch.testing.assert_close(torch.cat(out, -2), whole, rtol=0, atol=EXACT)


@pytest.mark.parametrize("name", CARRIES)
def test_gradients_flow_through_a_carried_state(name: str) -> None:
    n, cut, weight = 40, 17, WEIGHTS[name]
    data, tensor = inputs(n), drawn(weight, n)
    leaves = [x.requires_grad_() for x in (*data, *(() if tensor is None else (tensor,)))]
    probe = torch.randn(data[2].shape, generator=torch.Generator().manual_seed(1)).double()
    phi_q, phi_k, v = data
    whole = linear_attention(phi_q, phi_k, v, weight.build(tensor, n, 0), causal=True)
    first, state = linear_attention(
        phi_q[..., :cut, :],
        phi_k[..., :cut, :],
        v[..., :cut, :],
        weight.build(piece(name, tensor, 0, cut), n, 0),
        causal=True,
        return_state=True,
    )
    second = linear_attention(
        phi_q[..., cut:, :],
        phi_k[..., cut:, :],
        v[..., cut:, :],
        weight.build(piece(name, tensor, cut, n), n, 0),
        causal=True,
        state=state,
    )
    parts = torch.cat([first, second], -2)
    expected = torch.autograd.grad((whole * probe).sum(), leaves)
    got = torch.autograd.grad((parts * probe).sum(), leaves)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-11)


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
    n, m, weight = 1024, 32, WEIGHTS[name]
    data, tensor = inputs(n, (), m, d_v=32), drawn(weight, n, ())
    leaves = [x.requires_grad_() for x in (*data, *(() if tensor is None else (tensor,)))]
    with LargestTensor() as largest:
        out = linear_attention(*data, weight.build(tensor, n, 0), causal=True, mode=mode)
        torch.autograd.grad(out.sum(), leaves)
    # a state for each token would be n·m·33: 32 times a feature tensor; a matrix n·n: as many
    assert largest.elements <= HEADS * n * m * 4


@pytest.mark.parametrize("mode", [None, "chunk"])
def test_vector_decays_hold_no_state_for_each_token(mode: str | None) -> None:
    n, m = 1024, 32
    phi_q, phi_k, v = (x.requires_grad_() for x in inputs(n, (), m, d_v=96))
    log_decay = -torch.rand(HEADS, n, m, dtype=torch.float64)
    with LargestTensor() as largest:
        out = linear_attention(
            phi_q, phi_k, v, stringlib.DecayWeight(log_decay), causal=True, mode=mode
        )
        torch.autograd.grad(out.sum(), (phi_q, phi_k, v))
    assert largest.elements <= HEADS * n * m * 32


@pytest.mark.parametrize("name", ["constant", "cosine-positive", "decay-heads", "decay-scalar"])
def test_sixteen_thousand_tokens_in_float32(name: str) -> None:
    n, weight = 16384, WEIGHTS[name]
    (phi_q, phi_k, v), tensor = inputs(n, ()), drawn(weight, n, ())
    made = weight.build(None if tensor is None else tensor.float(), n, 0)
    got = linear_attention(phi_q.float(), phi_k.float(), v.float(), made, causal=True)
    exact = linear_attention(phi_q, phi_k, v, weight.build(tensor, n, 0), causal=True)
    assert (got - exact).abs().max() < 2e-4


# ------------------------------------------------------------------ feature maps


@pytest.mark.parametrize("name", FEATURES)
def test_features_have_the_sign_and_shape_that_they_say(name: str) -> None:
    case, phi = FEATURES[name], FEATURES[name].make()
    assert phi.nonnegative == case.nonnegative
    for batch, n in (((), 3), ((2,), 1), ((2, 3), 4), ((2,), 0), ((0,), 4)):
        x = torch.randn(*batch, HEADS, n, case.head_dim, dtype=torch.float64)
        for is_query in (True, False):
            y = phi(x, is_query=is_query)
            assert y.shape[:-1] == x.shape[:-1]
            assert (y >= 0).all() or not case.nonnegative


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", FEATURES)
def test_features_and_attention_equal_their_definition(name: str, causal: bool) -> None:
    case, phi = FEATURES[name], FEATURES[name].make()
    torch.manual_seed(0)
    q, k = torch.randn(2, 2, HEADS, 11, case.head_dim, dtype=torch.float64)
    v = torch.randn(2, HEADS, 11, 3, dtype=torch.float64)
    got = linear_attention(phi(q), phi(k, is_query=False), v, causal=causal)
    plain_q, plain_k = case.plain(phi, q), case.plain(phi, k)
    expected = dense_attention(plain_q, plain_k, v, torch.ones(()).double(), causal)
    expected = expected.nan_to_num()  # ReLU: a query that no key answers
    torch.testing.assert_close(got, expected, rtol=0, atol=EXACT)


@pytest.mark.parametrize("name", FEATURES)
def test_a_layer_scales_what_stands_for_the_exponential(name: str) -> None:
    """Softmax has qᵀk/√d; a map that estimates exp(qᵀk) is to get q and k over d^(1/4)."""
    case, phi = FEATURES[name], FEATURES[name].make()
    assert phi.scale == pytest.approx(case.head_dim**-0.25 if case.exponential else 1)
    layer = MultiHeadAttention(HEADS * case.head_dim, HEADS, attention=phi).double()
    x = torch.randn(1, 7, HEADS * case.head_dim, dtype=torch.float64)
    q, k = (layer._split(project(x)) * phi.scale for project in (layer.to_q, layer.to_k))
    a = torch.einsum("...im,...jm->...ij", case.plain(phi, q), case.plain(phi, k))
    expected = (a / a.sum(-1, keepdim=True)).nan_to_num()
    torch.testing.assert_close(layer.attention_weights(x), expected, rtol=0, atol=EXACT)


STABILIZED = [name for name, case in FEATURES.items() if case.stabilized]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", STABILIZED)
def test_nothing_looks_ahead_through_the_stabiliser(name: str, dtype: torch.dtype) -> None:
    phi = FEATURES[name].make().to(dtype)
    torch.manual_seed(0)
    q, k = torch.randn(2, 2, HEADS, 40, FEATURES[name].head_dim, dtype=dtype)
    v = torch.randn(2, HEADS, 40, 3, dtype=dtype)
    loud = k.clone()
    with torch.no_grad():  # keys that have the largest features there are
        loud[..., 20:, :] = phi.projection_matrix()[:, :1, :].to(dtype) * 1.0

    def attend(keys: Tensor) -> Tensor:
        features, scale = phi.scaled_keys(keys)
        return linear_attention(phi(q), features, v, causal=True, key_scale=scale)

    before, after = attend(k), attend(loud)
    assert torch.equal(before[..., :20, :], after[..., :20, :])
    common = linear_attention(phi(q), phi(k, is_query=False), v, causal=True)
    torch.testing.assert_close(before, common, rtol=0, atol=1e-12 if dtype.itemsize == 8 else 1e-4)


@pytest.mark.parametrize("length", [10, 30])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", STABILIZED)
def test_long_vectors_stay_finite_and_exact_in_float32(
    name: str, causal: bool, length: float
) -> None:
    phi = FEATURES[name].make()
    torch.manual_seed(0)
    d = FEATURES[name].head_dim
    q, k = torch.randn(2, 2, HEADS, 30, d, dtype=torch.float64)
    k = length * k / k.norm(dim=-1, keepdim=True) * torch.rand(30, 1).double()
    q = length * q / q.norm(dim=-1, keepdim=True)
    v = torch.randn(2, HEADS, 30, 3, dtype=torch.float64)

    def attend(dtype: torch.dtype) -> Tensor:
        map_ = FEATURES[name].make().to(dtype)
        features, scale = map_.scaled_keys(k.to(dtype))
        return linear_attention(
            map_(q.to(dtype)), features, v.to(dtype), causal=causal, key_scale=scale
        )

    low, exact = attend(torch.float32), attend(torch.float64)
    assert low.isfinite().all()
    # beyond, a lone key and a query may have no feature in common that float32 can hold
    assert length > 10 or (low - exact).abs().max() < 1e-3
    plain = linear_attention(
        phi.float()(q.float()), phi.float()(k.float(), is_query=False), v.float(), causal=causal
    )
    assert plain.isfinite().all()


@pytest.mark.parametrize("name", STABILIZED)
def test_prefill_and_decode_equal_the_whole(name: str) -> None:
    phi = FEATURES[name].make()
    torch.manual_seed(0)
    q, k = 3 * torch.randn(2, 2, HEADS, 25, FEATURES[name].head_dim, dtype=torch.float64)
    v = torch.randn(2, HEADS, 25, 3, dtype=torch.float64)

    def attend(start: int, end: int, state):  # type: ignore[no-untyped-def]
        features, scale = phi.scaled_keys(k[..., start:end, :])
        return linear_attention(
            phi(q[..., start:end, :]),
            features,
            v[..., start:end, :],
            causal=True,
            key_scale=scale,
            state=state,
            return_state=True,
        )

    whole, _ = attend(0, 25, None)
    first, state = attend(0, 13, None)
    out = [first]
    for t in range(13, 25):
        y, state = attend(t, t + 1, state)
        out.append(y)
    torch.testing.assert_close(torch.cat(out, -2), whole, rtol=0, atol=EXACT)


# ---------------------------------------------------------------------- softmax


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("n", [1, 2, 7])
def test_softmax_equals_its_definition(n: int, causal: bool, with_bias: bool) -> None:
    torch.manual_seed(0)
    q, k = torch.randn(2, 2, HEADS, n, 5, dtype=torch.float64)
    v = torch.randn(2, HEADS, n, 4, dtype=torch.float64)
    bias = torch.randn(HEADS, n, n, dtype=torch.float64) if with_bias else None
    scores = torch.einsum("bhid,bhjd->bhij", q, k) / 5**0.5
    scores = scores if bias is None else scores + bias
    if causal:
        scores = scores.masked_fill(~torch.ones(n, n, dtype=torch.bool).tril(), float("-inf"))
    expected = scores.softmax(-1) @ v
    torch.testing.assert_close(
        softmax_attention(q, k, v, bias, causal), expected, rtol=0, atol=EXACT
    )


# ----------------------------------------------------------------------- errors


def test_bad_input_is_named() -> None:
    phi_q, phi_k, v = inputs(6)
    bad = [
        (ValueError, "phi_k", lambda: linear_attention(phi_q, phi_k[..., :3], v)),
        (ValueError, "v", lambda: linear_attention(phi_q, phi_k, v[..., :5, :])),
        (ValueError, "mode", lambda: linear_attention(phi_q, phi_k, v, mode="fast")),
        (ValueError, "mode", lambda: linear_attention(phi_q, phi_k, v, mode="chunk")),
        (TypeError, "phi_q", lambda: linear_attention(phi_q.long(), phi_k, v)),
        (TypeError, "weight", lambda: linear_attention(phi_q, phi_k, v, weight=0.5)),
        (
            ValueError,
            "phi_k",
            lambda: linear_attention(phi_q[..., :3, :], phi_k, v, causal=True),
        ),
        (
            ValueError,
            "horizon",
            lambda: linear_attention(phi_q, phi_k, v, stringlib.CosineWeight(4)),
        ),
        (ValueError, "horizon", lambda: stringlib.CosineWeight(0)),
        (
            ValueError,
            "bias",
            lambda: linear_attention(
                phi_q, phi_k, v, stringlib.ToeplitzWeight(torch.zeros(HEADS, 9))
            ),
        ),
        (ValueError, "bias", lambda: stringlib.ToeplitzWeight(torch.zeros(HEADS, 10))),
        (
            ValueError,
            "causal",
            lambda: linear_attention(phi_q, phi_k, v, stringlib.DecayWeight(torch.zeros(HEADS))),
        ),
        (
            ValueError,
            "log_decay",
            lambda: linear_attention(
                phi_q, phi_k, v, stringlib.DecayWeight(torch.zeros(2, HEADS, 5)), causal=True
            ),
        ),
        (TypeError, "log_decay", lambda: stringlib.DecayWeight(torch.zeros(2, dtype=torch.int))),
        (ValueError, "head_dim", lambda: stringlib.FavorFeatures(0, 4)),
        (TypeError, "num_features", lambda: stringlib.FavorFeatures(4, 4.0)),  # type: ignore
        (ValueError, "projection", lambda: stringlib.FavorFeatures(4, 4, "fourier")),
        (ValueError, "x", lambda: stringlib.FavorFeatures(4, 4)(torch.zeros(2, 3, 5))),
        (TypeError, "x", lambda: stringlib.FavorFeatures(4, 4)(torch.zeros(2, 3, 4).long())),
        (TypeError, "x", lambda: stringlib.ReLUFeatures()(torch.zeros(2, 3, 4).long())),
        (TypeError, "q", lambda: softmax_attention(phi_q.long(), phi_k, v)),
        (ValueError, "k", lambda: softmax_attention(phi_q, phi_k[..., :3], v)),
        (ValueError, "bias", lambda: softmax_attention(phi_q, phi_k, v, torch.zeros(3, 5, 6))),
    ]
    for error, name, call in bad:
        with pytest.raises(error, match=rf"\b{name}\b.*got|\b{name}\b must"):
            call()


Q, K, V = (torch.rand(2, HEADS, 5, 4) for _ in range(3))
ROWS = torch.arange(5.0)[:, None]


@pytest.mark.parametrize(
    ("error", "match", "call"),
    [
        (TypeError, "causal must be a bool, got 1", lambda: softmax_attention(Q, K, V, causal=1)),
        (
            TypeError,
            "causal must be a .*, got 'no'",
            lambda: linear_attention(Q, K, V, causal="no"),
        ),
        (TypeError, "normalize must be a bool", lambda: linear_attention(Q, K, V, normalize=None)),
        (
            TypeError,
            r"return_state must be a bool, got \[\]",
            lambda: linear_attention(Q, K, V, causal=True, return_state=[]),
        ),
        (
            TypeError,
            "phi_q must be a floating-point tensor, got NoneType",
            lambda: rotated_linear_attention(None, K, V, stringlib.RoPE(4), ROWS),
        ),
        (
            TypeError,
            "encoder must be a RotaryEncoder, got str",
            lambda: rotated_linear_attention(Q, K, V, "rope", ROWS),
        ),
        (
            TypeError,
            "key_scale must be a floating-point tensor, got float",
            lambda: rotated_linear_attention(Q, K, V, stringlib.RoPE(4), ROWS, key_scale=3.0),
        ),
        (
            TypeError,
            "numerator_only must be a bool, got 2",
            lambda: rotated_linear_attention(Q, K, V, stringlib.RoPE(4), ROWS, numerator_only=2),
        ),
        (TypeError, "log_decay must be a floating-point", lambda: attention.decay_mask([0.0, 1.0])),
        (ValueError, r"log_decay must .*got \(\)", lambda: attention.decay_mask(torch.tensor(0.0))),
        (TypeError, "encoder must be a RotaryEncoder", lambda: attention.random_turn(None)),
        (TypeError, "positive must be a bool", lambda: stringlib.CosineWeight(3, positive="no")),
        (TypeError, "phi must be a floating", lambda: stringlib.CosineWeight(9).features(Q.long())),
        (TypeError, "num_keys must be an int", lambda: stringlib.CosineWeight(9).matrix(3, 2.0)),
        (ValueError, "num_queries must be at", lambda: stringlib.DecayWeight(-ROWS).matrix(-1, 2)),
        (TypeError, "hyperbolic must be a", lambda: stringlib.FavorFeatures(4, 4, hyperbolic=1)),
        (TypeError, "is_query must be a", lambda: stringlib.FavorFeatures(4, 4)(Q, is_query="k")),
        (TypeError, "generator must be", lambda: stringlib.FavorFeatures(4, 4).redraw(7)),
        (TypeError, "learnable must be a bool", lambda: IidProjection(4, 4, learnable="yes")),
        (TypeError, "heads must be an int, got 2.5", lambda: KeyShift(2.5)),
        (ValueError, r"k must have shape \(\.\.\., 2, seq", lambda: KeyShift(2)(Q)),
        (TypeError, "before must be a", lambda: KeyShift(HEADS)(Q, before=1)),
        (TypeError, "bias must be a bool", lambda: MultiHeadAttention(8, 2, bias="no")),
        (TypeError, "normalize_qk must be a", lambda: MultiHeadAttention(8, 2, normalize_qk=1)),
        (TypeError, "generator must be a", lambda: MultiHeadAttention(8, 2, generator=3)),
        (
            TypeError,
            "coord_dim must be an int, got 1.0",
            lambda: MultiHeadAttention(8, 2, "rope", coord_dim=1.0),
        ),
        (
            ValueError,
            "grid must be .rows, columns., got 'ab",
            lambda: MultiHeadAttention(8, 2, "rope", grid="abc"),
        ),
    ],
)
def test_what_is_no_flag_tensor_or_generator_is_named(
    error: type[Exception], match: str, call: Callable[[], object]
) -> None:
    with pytest.raises(error, match=match):
        call()
