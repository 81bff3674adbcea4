"""What is left at inference: folding a whole layer, and the ladder."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from stringlib import CirculantSTRING, MultiHeadAttention, make_encoder, reference
from stringlib.reference import ladder
from stringlib.testing import properties
from stringlib.testing.encoders import heads_of
from tests.draws import random
from tests.encoder_cases import CASES, make

SMALL = [name for name in CASES if "rfft" not in name]


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("causal", [False, True])
def test_folding_leaves_the_output_of_a_layer_and_the_gradients_of_its_tokens(
    name: str, causal: bool
) -> None:
    encoder = make(name)
    heads, d = heads_of(encoder), encoder.head_dim
    layer = MultiHeadAttention(heads * d, heads, encoder, bias=True, causal=causal).double()
    for linear in (layer.to_q, layer.to_k, layer.to_v, layer.to_out):
        nn.init.normal_(linear.bias)
    folded = layer.folded()
    assert torch.equal(folded.encoder.basis()[0], torch.eye(d, dtype=torch.float64))
    x, positions = random(2, 7, heads * d).requires_grad_(), 10 * random(7, encoder.coord_dim)
    out, served = layer(x, positions), folded(x, positions)
    assert properties.largest_difference(served, out) <= 1e-11
    gradients = [torch.autograd.grad(y.square().sum(), x)[0] for y in (out, served)]
    assert properties.largest_difference(*gradients) <= 1e-10


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_fused_projection_is_refused_or_its_heads_are_told(count: int) -> None:
    """Folded as a whole it would turn the values too; GPT-2 has it in columns."""
    encoder, dim = make_encoder("circulant", 6), 6 * count
    fused = torch.randn(3 * dim, dim)
    with pytest.raises(ValueError, match=rf"queries or to keys, got \({3 * dim}, {dim}\)"):
        encoder.fold(fused)
    with pytest.raises(ValueError, match=r"layout of nn.Linear, .* \(12, 36\), which looks like"):
        encoder.fold(torch.randn(12, 36))
    for whole in (fused, fused[:, 0], torch.randn(3 * dim, dim + 1), torch.randn(2 * dim, dim)):
        with pytest.raises(ValueError, match=rf"weight must have shape \({count} \* 6, model_dim"):
            encoder.fold(whole, heads=count)
    for part in fused[: 2 * dim].split(dim):
        assert torch.equal(encoder.fold(part, heads=count), encoder.fold(part))
    assert encoder.fold(fused, heads=3 * count).shape == fused.shape  # it is said to be no such one
    with pytest.raises(
        ValueError, match="heads must be None or 3, the number of heads of the encoder, got 1"
    ):
        CirculantSTRING(4, heads=3).fold(torch.randn(12, 4), heads=1)


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
    c, positions = random(3, 2, d) / (2 * d) ** 0.5, 10 * random(6, 2)  # heads, coordinates
    q, k = random(2, 2, 3, 6, d)
    matrix = reference.circulant_string_matrix(positions, c)
    want_q, want_k = (torch.einsum("hnij,bhnj->bhni", matrix, x) for x in (q, k))
    scores = encode(q, positions, c) @ encode(k, positions, c).mT
    assert properties.relative_logit_error(scores, want_q @ want_k.mT, q, k) <= 1e-12
    if encode is not ladder.encode_by_half_spectrum:
        assert properties.largest_difference(encode(q, positions, c), want_q) <= 1e-12
