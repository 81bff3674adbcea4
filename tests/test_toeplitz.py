"""Toeplitz matrices and the learned bias for every distance, against their literal twins."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from stringlib import ToeplitzWeight, linear_attention, reference
from stringlib.algebra import toeplitz, toeplitz_product
from stringlib.encoders.bias import ALiBi, KerpleLog, KerplePower, T5Bias
from stringlib.encoders.relative_bias import RelativeBias
from stringlib.kernels import toeplitz as kernel
from stringlib.kernels.fft import fast_length
from stringlib.testing.properties import largest_difference
from tests.draws import random
from tests.refusals import refusals
from tests.watched import LargestTensor

SIZES = [1, 2, 7, 131]
GRIDS = [(1, 1), (1, 6), (5, 1), (3, 5), (14, 14)]
MODES = ("parallel", "fft")


def tokens(*lead: int, m: int = 3, d: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """Return positive features of queries and keys, and values: ``(*lead, m or d)``."""
    q, k = (random(*lead, m, seed=seed).abs() for seed in (1, 2))
    return q, k, random(*lead, d, seed=3)


def by_matrix(q: Tensor, k: Tensor, v: Tensor, matrix: Tensor, causal: bool = False) -> Tensor:
    a = torch.einsum("...im,...jm->...ij", q, k) * matrix
    a = a.tril() if causal else a
    return a @ v / a.sum(-1, keepdim=True)


def by_offset(table: Tensor, n: int) -> Tensor:
    """Return what a table of 2n − 1 numbers says of each query and key, ``(..., n, n)``."""
    return table[..., n - 1 + torch.arange(n) - torch.arange(n)[:, None]]


def by_logarithms(
    q: Tensor, k: Tensor, v: Tensor, logits: Tensor, causal: bool
) -> tuple[Tensor, Tensor]:
    """Return attention, and that to |v|, by logarithms: no weight of any size is lost."""
    products = q @ k.mT
    if causal:
        logits = logits.masked_fill(torch.ones_like(products).triu(1).bool(), -math.inf)
    logits = torch.where(products > 0, logits + products.clamp(min=1e-300).log(), -math.inf)
    weights = logits.softmax(-1).nan_to_num(0)  # a query that finds nothing gets 0
    return weights @ v, weights @ v.abs()


@pytest.mark.proves("eq-toeplitz-fft")
@pytest.mark.parametrize("batch", [(), (2, 3)])
@pytest.mark.parametrize("n", SIZES)
def test_the_fft_of_the_sources_multiplies_by_the_matrix(n: int, batch: tuple[int, ...]) -> None:
    x = random(*batch, n, 4, seed=1)
    for c in (random(2 * n - 1), random(*batch, 2 * n - 1, seed=3)):
        assert largest_difference(reference.fft_toeplitz_matmul(c, x), toeplitz(c) @ x) < 1e-11


@pytest.mark.proves("eq-toeplitz-matrix")
@pytest.mark.parametrize("n", SIZES)
def test_toeplitz_fills_the_matrix(n: int) -> None:
    values = random(2, 2 * n - 1)
    for got, row in zip(toeplitz(values), values, strict=True):
        assert torch.equal(got, reference.toeplitz_matrix(row))


@pytest.mark.parametrize("sizes", [*((n,) for n in SIZES), *GRIDS])
def test_the_fast_product_equals_that_with_the_matrix(sizes: tuple[int, ...]) -> None:
    n, axes = math.prod(sizes), len(sizes)
    values, x = random(*(2 * size - 1 for size in sizes)), random(2, 3, n, 4, seed=1)
    matrix = (reference.toeplitz_matrix if axes == 1 else reference.grid_toeplitz_matrix)(values)
    assert largest_difference(toeplitz_product(values, x, axes=axes), matrix @ x) < 1e-11
    with pytest.raises(ValueError, match=f"x must have {n} rows"):
        toeplitz_product(values, random(n + 1, 4), axes=axes)


@pytest.mark.proves("eq-toeplitz-attention", "eq-toeplitz-algorithm")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("n", SIZES)
def test_attention_and_algorithm_1_equal_the_sums(n: int, causal: bool) -> None:
    (q, k, v), bias = tokens(2, n), random(2, 2 * n - 1)
    heads = list(zip(q, k, v, bias, strict=True))
    exact = torch.stack([reference.toeplitz_attention(*head, causal) for head in heads])
    for mode in (None, *MODES):
        got = linear_attention(q, k, v, ToeplitzWeight(bias), causal, mode=mode)
        assert largest_difference(got, exact) < 1e-11, mode
    if not causal:
        algorithm = torch.stack([reference.nprf_attention(*head) for head in heads])
        assert largest_difference(algorithm, exact) < 1e-11


@pytest.mark.parametrize("grid", [*GRIDS, (40, 30), (3, 150)])
def test_attention_on_a_grid(grid: tuple[int, int]) -> None:
    n, bias = math.prod(grid), random(2, *(2 * size - 1 for size in grid))
    q, k, v = tokens(3, 2, n)
    matrix = torch.stack([toeplitz(head.exp(), axes=2) for head in bias])
    if n < 200:
        assert torch.equal(
            matrix, torch.stack([reference.grid_toeplitz_matrix(h.exp()) for h in bias])
        )
    for causal in (False, True):
        exact = by_matrix(q, k, v, matrix, causal)
        # an FFT errs by a part of the largest sum, and the first of a causal grid are small
        for mode, limit in (("parallel", 1e-12), ("fft", 1e-10)):
            got = linear_attention(q, k, v, ToeplitzWeight(bias), causal, mode=mode)
            assert largest_difference(got, exact) < limit, (mode, causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("n", [127, 128, 129, 300, kernel.KEPT + 5])
def test_values_and_gradients_across_the_edges_of_tiles(n: int, mode: str, causal: bool) -> None:
    leaves = [x.requires_grad_() for x in (*tokens(2, 2, n), random(2, 2 * n - 1))]
    q, k, v, bias = leaves
    exact = by_matrix(q, k, v, by_offset(bias, n).exp(), causal)
    got = linear_attention(q, k, v, ToeplitzWeight(bias), causal, mode=mode)
    assert largest_difference(got, exact) < 1e-11
    probe = random(*v.shape, seed=9)
    wanted = torch.autograd.grad((exact * probe).sum(), leaves)
    found = torch.autograd.grad((got * probe).sum(), leaves)
    for one, other in zip(found, wanted, strict=True):
        assert largest_difference(one, other) < 1e-10 * (1 + other.abs().max().item())


@pytest.mark.parametrize("mode", MODES)
def test_gradcheck_on_a_grid(mode: str) -> None:
    leaves = [x.requires_grad_() for x in (*tokens(2, 6), random(2, 3, 5))]
    assert torch.autograd.gradcheck(
        lambda *x: linear_attention(*x[:3], ToeplitzWeight(x[3]), mode=mode), leaves
    )


@pytest.mark.parametrize("mode", [None, *MODES])
@pytest.mark.parametrize("top", [-80.0, -60.0, 0.0, 60.0, 80.0])
def test_unnormalised_sums_are_those_of_the_matrix_at_any_scale(
    top: float, mode: str | None
) -> None:
    (q, k, v), bias = tokens(2, 9), random(2, 17) + top
    matrix = torch.stack([reference.toeplitz_matrix(row.exp()) for row in bias])
    exact = (torch.einsum("him,hjm->hij", q, k) * matrix) @ v
    weight = ToeplitzWeight(bias)
    torch.testing.assert_close(weight.matrix(9, 9), matrix, rtol=1e-14, atol=0)
    got = linear_attention(q, k, v, weight, mode=mode, normalize=False)
    torch.testing.assert_close(got, exact, rtol=1e-11, atol=0)
    narrow = [x.float() for x in (q, k, v)]
    got = linear_attention(*narrow, ToeplitzWeight(bias.float()), mode=mode, normalize=False)
    torch.testing.assert_close(got.double(), exact, rtol=1e-4, atol=0)
    beyond = ToeplitzWeight((bias - top + 120).float())
    above = linear_attention(*narrow, beyond, mode=mode, normalize=False)
    assert above.isinf().all()  # as the true sums in float32 are


@pytest.mark.parametrize("mode", MODES)
def test_minus_infinity_hides_an_offset(mode: str) -> None:
    n = 9
    (q, k, v), bias = tokens(1, n), random(1, 2 * n - 1)
    band = torch.arange(1 - n, n).abs() <= 2
    bias = bias.masked_fill(~band, -math.inf).requires_grad_()
    out = linear_attention(q, k, v, ToeplitzWeight(bias), mode=mode)
    matrix = reference.toeplitz_matrix(bias[0].detach().exp())
    assert int((matrix == 0).sum()) == (n - 3) * (n - 2)
    assert largest_difference(out, by_matrix(q, k, v, matrix)) < 1e-11
    (grad,) = torch.autograd.grad(out.sum(), bias)
    assert grad.isfinite().all()
    assert (grad[0, ~band] == 0).all()
    nothing = ToeplitzWeight(torch.full((1, 2 * n - 1), -math.inf).double())
    assert (linear_attention(q, k, v, nothing, mode=mode) == 0).all()


@pytest.mark.parametrize("make", [ALiBi, KerpleLog, KerplePower, T5Bias])
def test_a_bias_of_softmax_attention_becomes_a_weight(make: type[RelativeBias]) -> None:
    torch.manual_seed(0)
    bias = make(2).double()
    if isinstance(bias, T5Bias):
        torch.nn.init.normal_(bias.weight)  # so that past and future differ
    matrix = bias(11, 11).exp()
    weight = ToeplitzWeight.from_bias(bias, 11)
    assert largest_difference(weight.matrix(11, 11), matrix) < 1e-14
    q, k, v = tokens(2, 11)
    got = linear_attention(q, k, v, weight)
    assert largest_difference(got, by_matrix(q, k, v, matrix)) < 1e-13
    if list(bias.parameters()):
        grads = torch.autograd.grad(got.square().sum(), list(bias.parameters()))
        assert all(grad.abs().max() > 0 for grad in grads)
    assert (largest_difference(matrix, matrix.mT) > 0.1) == (make is T5Bias)


def wide_bias(kind: str, n: int) -> Tensor:
    delta = torch.arange(1.0 - n, n, dtype=torch.float64)
    if kind == "spike":
        return torch.stack([-57.0 * (delta != n // 2), -4e3 * (delta != -n // 3)])
    if kind == "steep":
        return torch.stack([-1.9 * delta, 43.0 * delta.abs()])
    return {"noise": 150.0, "much": 2.0e4}[kind] * random(2, 2 * n - 1, seed=6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("features", ["positive", "sparse", "masked", "scaled"])
@pytest.mark.parametrize("kind", ["spike", "steep", "noise", "much"])
def test_biases_of_any_range(kind: str, features: str, causal: bool, dtype: torch.dtype) -> None:
    n = 141
    (q, k, v), bias = tokens(2, n), wide_bias(kind, n)
    options: dict[str, Tensor] = {}
    if features == "sparse":  # the key with the largest bias often says nothing
        q, k = (q - 0.9).relu(), (k - 0.9).relu()
    if features == "masked":
        options["key_mask"] = torch.arange(n) % 5 == 0
    if features == "scaled":
        options["key_scale"] = 60 * random(2, n, seed=8)
    narrow = [x.to(dtype).requires_grad_() for x in (q, k, v, bias)]
    options = {a: x.to(dtype) if x.is_floating_point() else x for a, x in options.items()}
    got = linear_attention(*narrow[:3], ToeplitzWeight(narrow[3]), causal, **options)  # type: ignore
    wide = [x.detach().double().requires_grad_() for x in narrow]
    logits = by_offset(wide[3], n)
    if "key_mask" in options:
        logits = logits.masked_fill(~options["key_mask"], -math.inf)
    if "key_scale" in options:
        logits = logits + options["key_scale"].double()[:, None]
    exact, size = by_logarithms(*wide[:3], logits, causal)
    limit = 1e-4 if dtype == torch.float32 else 1e-10
    assert isinstance(got, Tensor)
    assert ((got - exact).abs() <= limit * size).all()
    probe = random(*v.shape, seed=9)
    found = torch.autograd.grad((got * probe.to(dtype)).sum(), narrow)
    for one, other in zip(found, torch.autograd.grad((exact * probe).sum(), wide), strict=True):
        assert largest_difference(one, other) <= 10 * limit * (1 + other.abs().max().item())


@pytest.mark.parametrize("n", [kernel.KEPT // 2, 2 * kernel.KEPT])
def test_the_matrix_never_stands_whole(n: int) -> None:
    leaves = [x.requires_grad_() for x in (*tokens(2, 1, n, m=16, d=16), random(1, 2 * n - 1))]
    q, k, v, bias = leaves
    # a whole A1 would have 2 · 17 · 16 n numbers; one feature has a complex spectrum a channel
    most = {"parallel": 2 * kernel.TILE * n, "fft": 2 * 17 * 2 * fast_length(2 * n - 1)}
    for mode in MODES:
        with LargestTensor() as largest:
            linear_attention(q, k, v, ToeplitzWeight(bias), mode=mode).sum().backward()
        assert largest.elements <= most[mode], mode


def attend(heads: int = 2, n: int = 8, bias: tuple[int, ...] = (2, 15), **options: object):
    return linear_attention(*tokens(heads, n), ToeplitzWeight(random(*bias)), **options)


test_bad_arguments_are_named = refusals(
    (lambda: ToeplitzWeight(torch.zeros(2, 16)), r"bias must have shape \(heads, 2n - 1\)"),
    (lambda: attend(n=9), "at most 8 for a bias of shape .*, got 9"),
    (lambda: attend(heads=3), "bias must have a first dimension of size 1 or 3"),
    (lambda: attend(n=4, bias=(2, 3, 5)), "tokens must be 6 for a bias of shape .*, got 4"),
    (
        lambda: attend(causal=True, mode="chunk"),
        r"mode must be None or one of .*fft for .* got 'chunk'",
    ),
    (lambda: attend(causal=True, return_state=True), "no state"),
)
