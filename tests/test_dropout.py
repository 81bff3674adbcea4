"""Dropout of attention weights and of what a block adds: in training only, and nothing at 0."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from stringlib import LanguageModel, MultiHeadAttention, SoftmaxAttention, ViT, softmax_attention
from stringlib.models.blocks import Block
from stringlib.testing.properties import largest_difference
from tests.draws import random

P = 0.3
LAYERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "rope": {"encoder": "rope", "causal": True, "bias": True},
    "alibi": {"encoder": "alibi"},
    "grouped": {"encoder": "circulant", "kv_heads": 2},
    "window": {"window": 3, "causal": True, "kv_heads": 1},
}
MODELS: dict[str, tuple[Any, Any]] = {
    "text": (
        lambda **options: LanguageModel(11, 16, 2, 2, encoder="rope", **options),
        torch.arange(18).view(3, 6) % 11,
    ),
    "images": (
        lambda **options: ViT((6, 8), (3, 2), 5, 16, 2, 2, encoder="mixed", **options),
        torch.randn(3, 1, 6, 8, generator=torch.Generator().manual_seed(0)),
    ),
}
models = pytest.mark.parametrize("kind", MODELS)
BOTH = {"attention_dropout": P, "residual_dropout": P}


def layer_of(name: str, **options: Any) -> MultiHeadAttention:
    torch.manual_seed(0)
    return MultiHeadAttention(24, 4, **LAYERS[name], **options).double()


def model_of(kind: str, **options: Any) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    make, given = MODELS[kind]
    return make(**options), given


def seeded(module: nn.Module, *args: Any) -> Any:
    torch.manual_seed(1)
    return module(*args)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("n", [1, 2, 7])
def test_weights_are_dropped_or_scaled_up(name: str, n: int) -> None:
    layer, x = layer_of(name, attention_dropout=P), random(2, n, 24).requires_grad_()
    kept = layer.eval().attention_weights(x)
    torch.manual_seed(1)
    dropped = layer.train().attention_weights(x)
    factor = dropped.detach() / kept.detach().masked_fill(kept == 0, 1)
    assert ((factor == 0) | ((factor - 1 / (1 - P)).abs() < 1e-12)).all()
    v = layer.to_v(x).unflatten(-1, (-1, 6)).transpose(-3, -2)
    v = v.repeat_interleave(layer.group, -3)
    expected = layer.to_out((factor * kept @ v).transpose(-3, -2).flatten(-2))
    found = seeded(layer, x)
    assert largest_difference(found, expected) <= 1e-12
    leaves = [x, *layer.parameters()]
    for got, want in zip(
        *(torch.autograd.grad(y.square().sum(), leaves) for y in (found, expected)), strict=True
    ):
        assert largest_difference(got, want) <= 1e-11


@pytest.mark.parametrize("p", [0.1, 0.5, 1.0])
def test_as_many_weights_are_dropped_as_asked(p: float) -> None:
    torch.manual_seed(0)
    q, k = torch.randn(2, 2, 60, 4)
    weights = softmax_attention(q, k, torch.eye(60).expand(2, 60, 60), dropout=p)
    share = (weights == 0).float().mean().item()
    assert abs(share - p) <= 4 * (p * (1 - p) / 7200) ** 0.5


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_without_training_drops_nothing(name: str) -> None:
    plain, layer, x = layer_of(name), layer_of(name, attention_dropout=P).eval(), random(3, 7, 24)
    before = torch.get_rng_state()
    assert torch.equal(layer(x), plain(x))
    assert torch.equal(torch.get_rng_state(), before)


@models
def test_dropout_of_0_is_none(kind: str) -> None:
    plain, given = model_of(kind)
    model, _ = model_of(kind, attention_dropout=0.0, residual_dropout=0.0)
    assert not any(isinstance(m, nn.Dropout) for m in model.modules())
    assert torch.equal(model(given), plain(given))


@models
@pytest.mark.parametrize("option", BOTH)
def test_models_drop_in_training_only(kind: str, option: str) -> None:
    plain, given = model_of(kind)
    model, _ = model_of(kind, **{option: P})
    assert not torch.equal(seeded(model, given), plain(given))
    assert not torch.equal(model(given), model(given))
    assert torch.equal(seeded(model, given), seeded(model, given))
    assert torch.equal(model.eval()(given), plain(given))


def test_a_state_is_continued_in_training() -> None:
    core = SoftmaxAttention(causal=True, dropout=1.0)
    q, k, v = random(3, 2, 5, 4)
    _, state = core(q, k, v)
    out, state = core(q, k, v, state=state)
    assert state.length == 10
    assert (out == 0).all()


@pytest.mark.parametrize("mlp", [None, "mlp", "swiglu"])
def test_a_block_drops_what_it_adds(mlp: str | None) -> None:
    torch.manual_seed(0)
    block, x = Block(8, 2, mlp=mlp, residual_dropout=P).double(), random(5, 40, 8)
    if mlp is not None:  # the feed-forward layer alone
        nn.init.zeros_(block.attention.to_out.weight)
    added = block.eval()(x)[0] - x
    found = (block.train()(x)[0] - x) / added
    dropped = found.abs() < 1e-12
    assert (dropped | ((found - 1 / (1 - P)).abs() < 1e-6)).all()
    assert abs(dropped.double().mean().item() - P) <= 4 * (P * (1 - P) / 1600) ** 0.5


@models
def test_checkpointing_drops_the_same_again(kind: str) -> None:
    model, given = model_of(kind, **BOTH)
    leaves, outs = [*model.parameters()], []
    for run in (model, lambda x: checkpoint(model, x, use_reentrant=False)):
        torch.manual_seed(2)
        outs.append(torch.autograd.grad(run(given).square().sum(), leaves))
    assert all(torch.equal(a, b) for a, b in zip(*outs, strict=True))


@pytest.mark.parametrize("name", LAYERS)
def test_rows_of_a_batched_function_are_dropped_apart(name: str) -> None:
    layer, x = layer_of(name, attention_dropout=P), random(7, 24)
    rows = torch.func.vmap(layer, randomness="different")(x.expand(4, 1, 7, 24))
    assert largest_difference(rows[0], rows[1]) > 1e-3
    same = torch.func.vmap(layer, randomness="same")(x.expand(4, 1, 7, 24))
    assert torch.equal(same[0], same[1])
    with pytest.raises(RuntimeError, match="randomness"):
        torch.func.vmap(layer)(x.expand(4, 1, 7, 24))


@models
def test_a_model_is_one_graph_in_training(kind: str) -> None:
    model, given = model_of(kind, **BOTH)
    plain, _ = model_of(kind)
    model.blocks, plain.blocks = model.blocks[:1], plain.blocks[:1]
    program = torch.compile(model, fullgraph=True, backend="aot_eager")
    out = program(given)
    out.sum().backward()
    assert all(x.grad is not None and x.grad.isfinite().all() for x in model.parameters())
    assert not torch.equal(out, program(given))
    model.eval()
    assert largest_difference(program(given), plain(given)) <= 1e-5


@models
def test_an_exported_model_drops_nothing(kind: str) -> None:
    model, given = model_of(kind, **BOTH)
    plain, _ = model_of(kind)
    program = torch.export.export(model.eval(), (given,))
    assert largest_difference(program.module()(given), plain(given)) <= 1e-5
