"""What is left at inference: folding a whole layer, low precision, and the ladder."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from book.figures.string_at_inference import operations
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


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_fused_projection_is_refused_or_its_heads_are_told(count: int) -> None:
    """Folded as a whole it would turn the values too; GPT-2 has it in columns."""
    encoder, dim = make_encoder("circulant", 6), 6 * count
    fused = torch.randn(3 * dim, dim)
    with pytest.raises(ValueError, match=rf"queries or to keys, .* got \({3 * dim}, {dim}\)"):
        encoder.fold(fused)
    with pytest.raises(ValueError, match=r"rows first, .* \(12, 36\) looks like"):
        encoder.fold(torch.randn(12, 36))
    for whole in (fused, fused[:, 0], torch.randn(3 * dim, dim + 1), torch.randn(2 * dim, dim)):
        with pytest.raises(ValueError, match=rf"weight must have shape \({count} \* 6, model_dim"):
            encoder.fold(whole, heads=count)
    for part in fused[: 2 * dim].split(dim):
        assert torch.equal(encoder.fold(part, heads=count), encoder.fold(part))
    assert encoder.fold(fused, heads=3 * count).shape == fused.shape  # it is said to be no such one
    with pytest.raises(ValueError, match="heads must be 3, those of the encoder, got 1"):
        CirculantSTRING(4, heads=3).fold(torch.randn(12, 4), heads=1)


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


@pytest.mark.parametrize("dim", [4, 64])
@pytest.mark.proves("eq-inference-cost")
def test_counts_of_operations(dim: int) -> None:
    """Products by PyTorch's own counter; the FFT by halves, as in a textbook."""
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

    def fft(n: int) -> int:  # a root times half of the entries, 6 each, and two sums of 2
        return 0 if n == 1 else 2 * fft(n // 2) + 10 * (n // 2)

    count = fft(dim)
    complex_product = 6
    assert counts["fft"] == (2 * count + complex_product * dim) / dim
    assert counts["rfft"] == (2 * count + complex_product * dim) / dim / 2
    assert counts["half"] == (count + complex_product * dim) / dim / 2
    assert counts["folded"] == counts["rope"] == complex_product / 2  # two channels a pair
