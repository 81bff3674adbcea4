"""What is left at inference: folding a whole layer, low precision, and the ladder."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from book.figures.string_at_inference import encoding_cost, operations
from stringlib import (
    CirculantSTRING,
    MixedRoPE,
    MultiHeadAttention,
    make_encoder,
    reference,
)
from stringlib.reference import ladder
from stringlib.testing import properties
from stringlib.testing.encoders import heads_of
from tests.encoder_cases import CASES, make

SMALL = [name for name in CASES if "rfft" not in name]


def layer_of(
    name: str, seed: int = 3, causal: bool = False
) -> tuple[MultiHeadAttention, Tensor, Tensor]:
    """Return a layer with large biases, tokens (2, 7, dim) and their positions."""
    encoder = make(name)
    torch.manual_seed(seed)
    heads = heads_of(encoder)
    dim = heads * encoder.head_dim
    layer = MultiHeadAttention(dim, heads, encoder, bias=True, causal=causal).double()
    with torch.no_grad():
        for linear in (layer.to_q, layer.to_k, layer.to_v, layer.to_out):
            linear.weight.normal_(std=dim**-0.5)
            linear.bias.normal_()
    x = torch.randn(2, 7, dim, dtype=torch.float64)
    return layer, x, 10 * torch.randn(7, encoder.coord_dim, dtype=torch.float64)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("causal", [False, True])
def test_folding_leaves_the_output_of_a_layer_and_the_gradients_of_its_tokens(
    name: str, causal: bool
) -> None:
    layer, x, positions = layer_of(name, causal=causal)
    folded, loaded = layer.folded(), copy.deepcopy(layer)
    eye = torch.eye(layer.encoder.head_dim, dtype=torch.float64)
    assert torch.equal(folded.encoder.basis(), eye.expand(layer.encoder.heads, -1, -1))
    loaded.encoder = layer.encoder.folded()
    loaded.load_state_dict(folded.state_dict())
    found = []
    for which, shift in ((layer, 0), (folded, 0), (folded, 17), (loaded, 0)):
        leaf = x.clone().requires_grad_()
        out = which(leaf, positions + shift)
        out.square().sum().backward()
        found.append((out, leaf.grad))
    for out, gradient in found[1:]:
        assert properties.largest_difference(out, found[0][0]) <= 1e-11
        assert properties.largest_difference(gradient, found[0][1]) <= 1e-10


def test_a_fixed_basis_folds_before_training_and_leaves_mixed_rope() -> None:
    layer, x, positions = layer_of("circulant-8-2d")
    folded, frequencies = layer.folded(), layer.encoder.frequencies()
    folded.encoder = mixed = MixedRoPE(8, 2, heads=2).double()
    with torch.no_grad():
        mixed.omega.zero_()[:, :3] = frequencies
    assert properties.largest_difference(folded(x, positions), layer(x, positions)) <= 1e-11
    folded(x, positions).square().sum().backward()
    assert (mixed.omega.grad[:, :3].abs() > 0).all()


def test_values_turned_there_and_back_fold_into_two_other_weights() -> None:
    """out_i = R(r_i)ᵀ Σ_j w_ij R(r_j) v_j: P goes into W_v by rows and into W_o by columns."""
    layer, x, positions = layer_of("string-7")
    encoder = layer.encoder

    def output(layer: MultiHeadAttention, w_v: Tensor, w_out: Tensor, literal: bool) -> Tensor:
        def heads(projected: Tensor) -> Tensor:
            return projected.unflatten(-1, (-1, encoder.head_dim)).transpose(-3, -2)

        def rotate(v: Tensor, r: Tensor) -> Tensor:
            return encoder.rotate(v, r) if literal else layer.encoder(v, v, r)[0]

        q, k = layer.encoder(heads(layer.to_q(x)), heads(layer.to_k(x)), positions)
        mixed = (q @ k.mT).softmax(-1) @ rotate(heads(x @ w_v.mT), positions)
        return rotate(mixed, -positions).transpose(-3, -2).flatten(-2) @ w_out

    w_v, w_out = layer.to_v.weight.detach(), layer.to_out.weight.detach().mT
    want = output(layer, w_v, w_out, literal=True)
    got = output(layer.folded(), encoder.fold(w_v), encoder.fold(w_out), literal=False)
    assert properties.largest_difference(got, want) <= 1e-11


@pytest.mark.parametrize("name", ["circulant", "rope", "cayley"])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_fused_projection_is_refused_or_its_heads_are_told(name: str, count: int) -> None:
    """Folded as a whole it would turn the values too."""
    encoder, dim = make_encoder(name, 6), 6 * count
    fused = torch.randn(3 * dim, dim)
    with pytest.raises(ValueError, match=rf"queries or to keys, .* got \({3 * dim}, {dim}\)"):
        encoder.fold(fused)
    for whole in (fused, fused[:, 0], torch.randn(3 * dim, dim + 1), torch.randn(2 * dim, dim)):
        with pytest.raises(
            ValueError, match=rf"weight must have shape \({count} \* 6, model_dim\)"
        ):
            encoder.fold(whole, heads=count)
    for part in fused[: 2 * dim].split(dim):
        assert torch.equal(encoder.fold(part, heads=count), encoder.fold(part))
        assert torch.equal(encoder.fold(part[:, 0], count), encoder.fold(part[:, 0]))
    both = torch.cat([encoder.fold(part) for part in fused[: 2 * dim].split(dim)])
    assert torch.allclose(encoder.fold(fused[: 2 * dim]), both, atol=1e-6)
    assert encoder.fold(fused, heads=3 * count).shape == fused.shape  # it is said to be no such one
    if count % 3:  # narrow projections are what they were
        assert encoder.fold(torch.randn(6, 2)).shape == (6, 2)


def test_columns_of_queries_keys_and_values_are_no_rows() -> None:
    """GPT-2's Conv1D has them as ``(inputs, 3 · inputs)``; a linear layer as many columns less."""
    encoder = make_encoder("circulant", 6)
    with pytest.raises(ValueError, match=r"rows first, .* \(12, 36\) looks like"):
        encoder.fold(torch.randn(12, 36))
    assert encoder.fold(torch.randn(12, 36), heads=2).shape == (12, 36)
    for columns in (4, 35, 37, 48):
        assert encoder.fold(torch.randn(12, columns)).shape == (12, columns)


def test_the_heads_of_an_encoder_are_the_heads_of_a_weight() -> None:
    encoder = CirculantSTRING(4, heads=3)
    weight = torch.randn(12, 4)  # three heads of four channels, and no fused projection
    assert torch.equal(encoder.fold(weight, heads=3), encoder.fold(weight))
    with pytest.raises(ValueError, match="heads must be 3, those of the encoder, got 1"):
        encoder.fold(weight, heads=1)


@pytest.mark.parametrize("name", ["circulant-8-2d", "circulant-15-block-5", "string-7", "rope-8"])
def test_rounding_folded_weights_costs_what_rounding_weights_costs(name: str) -> None:
    errors = []
    for seed in range(20):
        layer, x, positions = layer_of(name, seed)
        exact = layer(x, positions).detach()
        for rounded in (layer, layer.folded()):
            with torch.no_grad():
                for p in (*rounded.to_q.parameters(), *rounded.to_k.parameters()):
                    p.copy_(p.bfloat16())
            errors.append((rounded(x, positions) - exact).square().mean().item())
    ratio = math.sqrt(sum(errors[1::2]) / sum(errors[::2]))
    assert (ratio == 1.0) if name == "rope-8" else (0.8 < ratio < 1.25)


@pytest.mark.parametrize("name", SMALL)
def test_a_layer_in_bfloat16_folded_from_double(name: str) -> None:
    layer, x, positions = layer_of(name)
    exact = layer(x, positions)
    half = layer.folded().to(torch.bfloat16)
    got = half(x.bfloat16(), positions)
    assert got.dtype == torch.bfloat16
    assert half.encoder.frequencies().dtype == torch.float64
    assert properties.largest_difference(got.double(), exact) <= 0.1 * exact.abs().max()


LADDER = [
    ladder.encode_by_matrix_exp,
    ladder.encode_by_fft,
    ladder.encode_by_rfft,
    ladder.encode_by_half_spectrum,
]


@pytest.mark.parametrize("d", [1, 2, 5, 8, 15, 16, 64])
@pytest.mark.parametrize("encode", LADDER)
@pytest.mark.proves("eq-inference-half-spectrum")
def test_every_rung_gives_the_scores_of_the_definition(d: int, encode) -> None:
    torch.manual_seed(0)
    encoder = CirculantSTRING(d, coord_dim=2, heads=3).double()
    torch.nn.init.normal_(encoder.coefficients, std=(2 * d) ** -0.5)
    q, k = torch.randn(2, 2, 3, 6, d, dtype=torch.float64)
    positions = 10 * torch.randn(6, 2, dtype=torch.float64)
    c = encoder.coefficients[:, :, 0]
    matrix = reference.circulant_string_matrix(positions, c)
    want_q, want_k = (torch.einsum("hnij,bhnj->bhni", matrix, x) for x in (q, k))
    scores = encode(q, positions, c) @ encode(k, positions, c).mT
    assert properties.relative_logit_error(scores, want_q @ want_k.mT, q, k) <= 1e-12
    package = properties.logits(encoder, q, k, positions)
    assert properties.relative_logit_error(scores, package, q, k) <= 1e-12
    if encode is not ladder.encode_by_half_spectrum:
        assert properties.largest_difference(encode(q, positions, c), want_q) <= 1e-12


@pytest.mark.parametrize("encode", LADDER)
def test_every_rung_keeps_float32_and_has_the_same_gradients(encode) -> None:
    torch.manual_seed(0)
    encoder = CirculantSTRING(8, heads=2)
    q, k = torch.randn(2, 2, 5, 8)
    positions = torch.arange(5.0)[:, None]
    assert encode(q, positions, encoder.coefficients[:, :, 0]).dtype == torch.float32
    encoder, q, k = encoder.double(), q.double(), k.double()
    c = encoder.coefficients[:, :, 0]
    (encode(q, positions, c) @ encode(k, positions, c).mT).square().sum().backward()
    got, encoder.coefficients.grad = encoder.coefficients.grad, None
    properties.logits(encoder, q, k, positions).square().sum().backward()
    assert properties.largest_difference(got, encoder.coefficients.grad) <= 1e-9


@pytest.mark.parametrize("dim", [4, 64])
@pytest.mark.proves("eq-inference-cost")
def test_counts_of_operations(dim: int) -> None:
    """Products by PyTorch's own counter; the FFT by a textbook program that counts."""
    tokens, batch, heads = 5, 3, 6
    channels = 2 * batch * heads * tokens * dim
    counts = operations(dim, tokens, batch)
    q, k = torch.randn(2, batch, heads, tokens, dim)

    def flops(call) -> int:
        with FlopCounterMode(display=False) as counter:
            call()
        return counter.get_total_flops()

    encoder, x = CirculantSTRING(dim, heads=heads), torch.randn(batch, tokens, heads * dim)
    folded, here = encoder.folded(), torch.zeros(tokens, 1)
    # what both do once for the whole batch: angles; and what only the encoder does: frequencies
    shared = flops(lambda: folded(q, k, here)) + flops(encoder.frequencies)
    product = flops(lambda: encoder(q, k, here)) - shared
    assert product / channels == counts["basis"] - counts["rope"]
    project = nn.Linear(heads * dim, 2 * heads * dim)
    assert flops(lambda: project(x)) / channels == counts["projections"]
    assert flops(lambda: (q @ k.mT) @ q) / channels == counts["attention"]

    def fft(x: list[complex]) -> tuple[list[complex], int]:
        n = len(x)
        if n == 1:
            return x, 0
        (even, a), (odd, b) = fft(x[::2]), fft(x[1::2])
        root = [
            complex(math.cos(2 * math.pi * j / n), -math.sin(2 * math.pi * j / n))
            for j in range(n // 2)
        ]
        turned = [w * o for w, o in zip(root, odd, strict=True)]  # 6 operations each
        both = list(zip(even, turned, strict=True))  # and two sums of 2
        return [e + o for e, o in both] + [e - o for e, o in both], a + b + 10 * (n // 2)

    column = torch.randn(dim, dtype=torch.float64)
    spectrum, count = fft(column.tolist())
    wanted = torch.fft.fft(column)
    assert (
        properties.largest_difference(torch.tensor(spectrum, dtype=wanted.dtype), wanted) <= 1e-12
    )
    complex_product = 6
    assert counts["fft"] == (2 * count + complex_product * dim) / dim
    assert counts["rfft"] == (2 * count + complex_product * dim) / dim / 2
    assert counts["half"] == (count + complex_product * dim) / dim / 2
    assert counts["folded"] == counts["rope"] == complex_product / 2  # two channels a pair


def test_the_largest_bar_of_the_cost_stays_within_its_axis() -> None:
    figure = encoding_cost(1024, 4096, 1).figure  # the ends of the sliders
    assert (
        math.log10(max(figure.data[0].x)) < figure.layout.xaxis.range[1] - 0.3
    )  # room for a label


def test_cost_figure_says_what_it_draws() -> None:
    figure, text = encoding_cost(64, 197, 32)
    shown = dict(zip(figure.data[0].y, figure.data[0].x, strict=True))
    assert shown["<b>folded</b>"] == shown["RoPE"] == 3
    assert shown["attention itself"] == 394
    assert "product with P 131" in text
    assert "attention itself 394" in text
