"""What every model must hold, of text and of images: every composition, moved, rounded, folded."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from stringlib import (
    ALiBi,
    CirculantSTRING,
    LanguageModel,
    MixedRoPE,
    MultiHeadAttention,
    RoPE,
    ViT,
)
from stringlib.positions import grid_positions
from stringlib.testing import properties
from tests.model_cases import CASES, CLASSES, COVERING, LENGTH, VOCAB, model_and_input

kinds = pytest.mark.parametrize("kind", ["text", "images"])


@kinds
@pytest.mark.parametrize("name", CASES)
def test_all_that_can_learn_does(kind: str, name: str) -> None:
    model, given = model_and_input(kind, name)
    scores = model(given)
    assert scores.shape == ((3, LENGTH, VOCAB) if kind == "text" else (3, CLASSES))
    scores = scores.flatten(0, -2)
    loss = nn.functional.cross_entropy(scores, torch.arange(len(scores)) % CLASSES)
    assert loss.isfinite()
    loss.backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key
        assert (parameter.grad != 0).any(), key


@kinds
@pytest.mark.parametrize("name", COVERING)
def test_half_precision_stays_near(kind: str, name: str) -> None:
    model, given = model_and_input(kind, name)
    seen: list[Tensor] = []
    model.blocks[0].register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    with torch.autocast("cpu", torch.bfloat16):
        scores = model(given)
    assert seen[0].dtype == torch.float32  # tokens are summed in full precision
    assert scores.isfinite().all()
    # ReLU features may leave a query next to nothing to divide by: not the largest, the median
    assert (scores.float() - model(given)).abs().median() <= 0.02


@pytest.mark.parametrize(
    ("kind", "encoder", "number"),
    [
        *(("text", name, 1) for name in ("alibi", "t5", "kerple-log", "rope")),
        *(("text", given, 1) for given in (ALiBi(2), RoPE(8), CirculantSTRING(8))),
        *(("text", name, 2) for name in ("mixed", "reflection", "cayley")),  # which learn
        *(("images", given, 1) for given in ("alibi", "t5", "axial", MixedRoPE(12, 2, heads=2))),
        *(("images", name, 2) for name in ("circulant", "mixed")),
    ],
)
def test_who_shares_an_encoder(kind: str, encoder: Any, number: int) -> None:
    model, _ = model_and_input(kind, "gate", encoder=encoder)
    assert len({block.attention.encoder for block in model.blocks}) == number


FOLDED = [("text", {}), ("text", {"shift": True})]
FOLDED += [("images", {"pool": pool}) for pool in ("cls", "mean")]


@pytest.mark.parametrize(("kind", "options"), FOLDED)
@pytest.mark.parametrize("encoder", ["axial", "mixed", "reflection", "circulant", "cayley"])
def test_a_folded_model_says_the_same(encoder: str, kind: str, options: dict[str, Any]) -> None:
    model, given = model_and_input(kind, "gate", encoder=encoder, **options)
    model = model.double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    folded = model.folded()
    given = given if kind == "text" else given.double()
    assert properties.largest_difference(model(given), folded(given)) <= 1e-10
    encoders = [{block.attention.encoder for block in m.blocks} for m in (model, folded)]
    assert len(encoders[0]) == len(encoders[1])  # shared as before
    assert encoders[0].isdisjoint(encoders[1])  # the model itself is left as it was
    assert not any(list(encoder.parameters()) for encoder in encoders[1])
    if kind == "text":
        drawn = (m.generate(given, 3, temperature=0) for m in (model, folded))
        assert torch.equal(*drawn)


@kinds
@pytest.mark.parametrize(
    "name", ["softmax-None", "softmax-alibi", "softmax-sinusoidal", "favor-rope"]
)
def test_what_cannot_be_folded_says_so(kind: str, name: str) -> None:
    with pytest.raises(ValueError, match="attention must be softmax with a rotary encoder"):
        model_and_input(kind, name)[0].folded()


@pytest.mark.parametrize("lead", [(2, 1), (1, 3), (5, 3), (2,)])
@pytest.mark.parametrize("name", ["mixed", "alibi", "sinusoidal", None])
def test_models_refuse_positions_of_more_than_their_tokens(name, lead) -> None:
    text = LanguageModel(7, 12, 1, 2, name, length=5)
    tokens, line = torch.arange(15).view(3, 5) % 7, torch.arange(5)[:, None]
    with pytest.raises(
        ValueError, match=r"positions must .* expand to \(3,\), got .* dimensions of tokens are"
    ):
        text(tokens, line.expand(*lead, 5, 1))
    assert text(tokens, line.expand(1, 5, 1)).shape == text(tokens, line).shape == (3, 5, 7)
    vit, images, grid = ViT((4, 6), 2, 4, 16, 1, 2, name), torch.randn(3, 1, 4, 6), (2, 3)
    with pytest.raises(
        ValueError, match=r"positions must have leading dimensions .* of images are"
    ):
        vit(images, grid_positions(*grid).expand(*lead, 6, 2))
    assert vit(images, grid_positions(*grid).expand(3, 6, 2)).shape == (3, 4)
    layer, x = MultiHeadAttention(12, 2, encoder="mixed"), torch.randn(3, 5, 12)
    with pytest.raises(ValueError, match=r"positions must have leading dimensions .* \(3,\)"):
        layer(x, line.expand(*lead, 5, 1))
