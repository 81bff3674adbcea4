"""Layers and models take positions for the tokens that they are given, and return no others."""

import pytest
import torch

from stringlib import LanguageModel, MultiHeadAttention, RoPE, ViT
from stringlib.positions import grid_positions

NAMES = ("rope", "mixed", "alibi", "sinusoidal", "learned", None)
EXTRA = ((2, 1), (1, 3), (5, 3), (2,), (1, 1))


@pytest.mark.parametrize("lead", EXTRA)
@pytest.mark.parametrize("attention", ["softmax", "relu"])
def test_a_layer_refuses_positions_of_more_than_its_tokens(lead, attention) -> None:
    rotate = None if attention == "softmax" else "before"
    layer = MultiHeadAttention(12, 2, encoder="mixed", attention=attention, rotate=rotate)
    x, line = torch.randn(3, 5, 12), torch.arange(5.0)[:, None]
    for call in (layer, layer.attention_weights):
        with pytest.raises(
            ValueError, match=r"leading dimensions of positions must .* \(3,\), .*x; got"
        ):
            call(x, line.expand(*lead, 5, 1))
        for fits in (line, line[None], line.expand(3, 5, 1)):
            assert call(x, fits).shape == call(x).shape
        with pytest.raises(ValueError, match=r"must expand to \(\), .* got shape \(1, 5, 1\)"):
            call(x[0], line[None])
        with pytest.raises(TypeError, match="positions must be a tensor of real numbers, got list"):
            call(x, [[0.0]] * 5)


@pytest.mark.parametrize("lead", EXTRA)
@pytest.mark.parametrize("name", NAMES)
def test_models_refuse_positions_of_more_than_their_tokens(name, lead) -> None:
    text = LanguageModel(7, 12, 1, 2, name, length=5)
    tokens, line = torch.arange(15).view(3, 5) % 7, torch.arange(5)[:, None]
    with pytest.raises(ValueError, match=r"positions must expand to \(3,\), those of tokens; got"):
        text(tokens, line.expand(*lead, 5, 1))
    assert text(tokens, line.expand(1, 5, 1)).shape == text(tokens, line).shape == (3, 5, 7)
    if name == "rope":
        return
    for pool in ("cls", "mean"):
        vit = ViT((4, 6), 2, 4, 16, 1, 2, name, pool=pool)
        images, grid = torch.randn(3, 1, 4, 6), grid_positions(2, 3)
        with pytest.raises(
            ValueError, match=r"leading dimensions of positions .* images; got shape"
        ):
            vit(images, grid.expand(*lead, 6, 2))
        assert vit(images, grid.expand(3, 6, 2)).shape == vit(images, grid).shape == (3, 4)


def test_an_encoder_broadcasts_its_vectors_with_the_positions() -> None:
    q = torch.randn(3, 2, 5, 8)
    at = torch.randn(4, 1, 5, 1)
    encoded, _ = RoPE(8)(q, q, at)
    assert encoded.shape == (4, 3, 2, 5, 8)
    assert torch.equal(encoded[1], RoPE(8)(q, q, at[1])[0])
