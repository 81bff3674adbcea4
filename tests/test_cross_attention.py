"""Cross-attention: queries of some tokens, keys and values of others, against dense formulas."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from stringlib import (
    ALiBi,
    CirculantSTRING,
    LinearAttention,
    MultiHeadAttention,
    ReLUFeatures,
    RoPE,
    SoftmaxAttention,
    T5Bias,
)
from stringlib.encoders.relative_bias import RelativeBias
from stringlib.positions import grid_positions
from stringlib.testing.properties import largest_difference
from tests import attention_cases
from tests.draws import random

D, OTHER = 4, 10
GROUPED = {"heads": 6, "kv_heads": 2}
CASES: dict[str, dict[str, Any]] = {
    "softmax": {"bias": True, "gate": "elementwise"},
    "rope": {"encoder": "rope", "gate": "headwise"},
    "other-dim": {"encoder": "rope", "context_dim": OTHER, "bias": True},
    "alibi": {"encoder": ALiBi(3)},
    "t5": {"encoder": T5Bias(3, num_buckets=8, max_distance=6)},
    "shift": {"encoder": CirculantSTRING(D, heads=3), "normalize_qk": True, "shift": True},
    "grouped": {**GROUPED, "encoder": "circulant", "gate": "headwise", "normalize_qk": True},
    "grouped-alibi": {**GROUPED, "encoder": ALiBi(6)},
    "relu": {"attention": "relu"},
    "elu-before": {"attention": "elu", "encoder": "cayley", "rotate": "before", "bias": True},
    "relu-after": {"attention": "relu", "encoder": "rope", "rotate": "after"},
    "relu-roll": {"attention": "relu", "rotate": "roll", "cycles": (1, 3)},
    "favor": {**GROUPED, "attention": "favor", "encoder": "circulant", "num_features": 7},
    "cosine": {"attention": "elu", "weight": "cosine", "horizon": 20, "shift": True},
}
SIZES = [(5, 7), (7, 5), (1, 3), (3, 1), (2, 2), (1, 1)]


def make(name: str) -> MultiHeadAttention:
    torch.manual_seed(0)
    options = {"heads": 3, **copy.deepcopy(CASES[name])}
    layer = MultiHeadAttention(D * options["heads"], **options).double()
    with torch.no_grad():
        for parameter in layer.parameters():  # nothing symmetric, nothing near its start
            parameter.add_(0.3 * torch.randn(parameter.shape, dtype=torch.float64))
    return layer


def inputs(layer: MultiHeadAttention, n: int, m: int, *batch: int) -> tuple[Tensor, Tensor]:
    return random(*batch, n, layer.dim), random(*batch, m, layer.context_dim, seed=1)


def projected(linear: nn.Linear, x: Tensor, heads: int) -> Tensor:
    y = x @ linear.weight.mT
    y = y if linear.bias is None else y + linear.bias
    return y.unflatten(-1, (heads, D)).transpose(-3, -2)


def turned(encoder: Any, y: Tensor, positions: Tensor) -> Tensor:
    matrices = encoder.matrix(positions)
    matrices = matrices.repeat_interleave(y.shape[-3] // matrices.shape[-4], -4)
    return torch.einsum("...hnij,...hnj->...hni", matrices, y)


def rolled(phi: Tensor, cycles: tuple[int, ...], positions: Tensor) -> Tensor:
    rows = [
        torch.cat([torch.roll(part, int(t), -1) for part in row.split(cycles, -1)], -1)
        for t, row in zip(positions[:, 0], phi.unbind(-2), strict=True)
    ]
    return torch.stack(rows, -2)


def dense_weights(
    layer: MultiHeadAttention,
    name: str,
    x: Tensor,
    context: Tensor,
    r: Tensor | None = None,
    s: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    asked, (n, m) = CASES[name], (x.shape[-2], context.shape[-2])
    heads = asked.get("heads", 3)
    group = heads // asked.get("kv_heads", heads)
    r, s = (torch.arange(len_)[:, None] if t is None else t for t, len_ in ((r, n), (s, m)))
    q = projected(layer.to_q, x, heads)
    k = projected(layer.to_k, context, heads // group).repeat_interleave(group, -3)
    if asked.get("shift"):
        share = layer.shift.logit.sigmoid()[:, None, None]
        k = (1 - share) * k + share * nn.functional.pad(k, (0, 0, 1, 0))[..., :-1, :]
    if asked.get("normalize_qk"):
        tau = layer.log_temperature.exp().repeat_interleave(group)[:, None, None]
        q, k = (y / y.norm(dim=-1, keepdim=True) * tau.sqrt() * D**0.25 for y in (q, k))
    biased = isinstance(asked.get("encoder"), RelativeBias)
    side = asked.get("rotate", "before" if "encoder" in asked and not biased else None)
    if side == "before":
        q, k = turned(layer.encoder, q, r), turned(layer.encoder, k, s)
    if "attention" not in asked:
        logits = q @ k.mT / D**0.5
        if biased:
            rows = [layer.encoder.at(i - torch.arange(m)) for i in range(n)]
            logits = logits + torch.stack(rows, 1)
        above = below = logits.exp()
    else:
        case = attention_cases.FEATURES[asked["attention"]]
        if case.exponential:
            q, k = q * D**-0.25, k * D**-0.25
        q, k = (case.plain(layer.features, y) for y in (q, k))
        if side == "roll":
            q, k = rolled(q, asked["cycles"], r), rolled(k, asked["cycles"], s)
        above = below = q @ k.mT
        if side == "after":
            above = turned(layer.encoder, q, r) @ turned(layer.encoder, k, s).mT
        if "weight" in asked:
            distance = torch.arange(n)[:, None] - torch.arange(m).double()
            above = below = below * torch.cos(distance * (math.pi / 2 / 20))
    if mask is not None:
        above, below = (y.masked_fill(~mask[..., None, :], 0) for y in (above, below))
    total = below.sum(-1, keepdim=True)
    return above.masked_fill(total == 0, 0) / torch.where(total == 0, 1, total)


def dense(layer: MultiHeadAttention, name: str, x: Tensor, context: Tensor, *args: Any) -> Tensor:
    weights = dense_weights(layer, name, x, context, *args)
    heads = weights.shape[-3]
    kv_heads = CASES[name].get("kv_heads", heads)
    v = projected(layer.to_v, context, kv_heads).repeat_interleave(heads // kv_heads, -3)
    y = weights @ v
    if "gate" in CASES[name]:
        gates = (x @ layer.gate.to_gate.weight.mT).sigmoid()
        y = y * gates.unflatten(-1, (heads, -1)).transpose(-3, -2)
    y = torch.cat(y.unbind(-3), -1) @ layer.to_out.weight.mT
    return y if layer.to_out.bias is None else y + layer.to_out.bias


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("batch", [(), (2,), (2, 1)])
def test_equals_its_formula(name: str, batch: tuple[int, ...]) -> None:
    layer = make(name)
    for n, m in SIZES:
        x, c = inputs(layer, n, m, *batch)
        assert largest_difference(layer(x, context=c), dense(layer, name, x, c)) <= 1e-11
        weights = dense_weights(layer, name, x, c)
        assert largest_difference(layer.attention_weights(x, context=c), weights) <= 1e-11


@pytest.mark.parametrize("name", CASES)
def test_no_tokens_and_no_context(name: str) -> None:
    layer = make(name)
    for n, m in ((0, 0), (0, 3), (3, 0)):
        x, c = inputs(layer, n, m, 2)
        out = layer(x, context=c)
        bias = torch.zeros(()) if layer.to_out.bias is None else layer.to_out.bias
        assert out.shape == x.shape
        assert (out == bias).all()


@pytest.mark.parametrize("name", CASES)
def test_gradients_equal_those_of_the_formula(name: str) -> None:
    layer = make(name)
    leaves = [*inputs(layer, 5, 7, 2), *layer.parameters()]
    x, c, *_ = (leaf.requires_grad_() for leaf in leaves)
    found, expected = (
        torch.autograd.grad((out * random(2, 5, layer.dim, seed=4)).sum(), leaves)
        for out in (layer(x, context=c), dense(layer, name, x, c))
    )
    for got, want in zip(found, expected, strict=True):
        assert largest_difference(got, want) <= 1e-9 * max(1, want.abs().max().item())


@pytest.mark.parametrize("name", [n for n in CASES if n not in ("relu", "softmax", "cosine")])
def test_positions_of_both(name: str) -> None:
    layer = make(name)
    x, c = inputs(layer, 5, 7, 2)
    r, s = torch.arange(5)[:, None] + 3, 2 * torch.arange(7)[:, None] - 4
    for positions, others in ((r, s), (None, s), (r, None)):
        found = layer(x, positions, context=c, context_positions=others)
        assert largest_difference(found, dense(layer, name, x, c, positions, others)) <= 1e-11
    encoder = layer.encoder
    if encoder is not None and not isinstance(encoder, RelativeBias):
        phases = encoder.phases(r), encoder.phases(s)
        found = layer(x, phases[0], context=c, context_positions=phases[1])
        assert largest_difference(found, dense(layer, name, x, c, r, s)) <= 1e-11
        each = torch.stack([s, s**2]).double() / 3  # of each text
        found = layer(x, r, context=c, context_positions=each)
        rows = [dense(layer, name, x[i], c[i], r, each[i]) for i in range(2)]
        assert largest_difference(found, torch.stack(rows)) <= 1e-11


@pytest.mark.parametrize("name", CASES)
def test_padding_of_the_context_is_never_read(name: str) -> None:
    layer = make(name)
    x, c = inputs(layer, 5, 7, 2)
    mask = torch.tensor([[True] * 7, [True, True, True, True, False, False, False]])
    padded = c.masked_fill(~mask[..., None], math.nan)
    found = layer(x, context=padded, context_mask=mask)
    rows = [dense(layer, name, x[0], c[0]), dense(layer, name, x[1], c[1, :4])]
    assert largest_difference(found, torch.stack(rows)) <= 1e-11
    if "shift" not in CASES[name] and "kv_heads" not in CASES[name]:
        mask = random(2, layer.heads, 7, seed=3) > -0.5
        found = layer.attention_weights(x, context=c, context_mask=mask)
        weights = dense_weights(layer, name, x, c, None, None, mask)
        assert largest_difference(found, weights) <= 1e-11


@pytest.mark.parametrize("name", CASES)
def test_one_context_for_a_batch(name: str) -> None:
    layer = make(name)
    x, c = inputs(layer, 5, 7, 3)
    one = layer(x, context=c[0])
    assert largest_difference(one, layer(x, context=c[:1].expand(3, -1, -1))) <= 1e-12
    mask = torch.arange(7) < torch.tensor([[7], [2], [5]])
    masked = layer(x, context=c[0], context_mask=mask)
    rows = [layer(x[i], context=c[0], context_mask=mask[i]) for i in range(3)]
    assert largest_difference(masked, torch.stack(rows)) <= 1e-12


@pytest.mark.parametrize("name", ["softmax", "rope", "alibi", "grouped", "favor", "cosine"])
def test_the_same_tokens_as_context_are_no_context(name: str) -> None:
    layer = make(name)
    x, _ = inputs(layer, 7, 7, 2)
    assert largest_difference(layer(x, context=x), layer(x)) <= 1e-12


@pytest.mark.parametrize("name", ["rope", "shift", "grouped"])
def test_a_folded_layer_says_the_same(name: str) -> None:
    layer = make(name)
    x, c = inputs(layer, 5, 7, 30)  # more tokens than channels: a layer would fold by itself
    folded = layer.folded()
    for one in (layer, folded):
        assert largest_difference(one(x, context=c), dense(layer, name, x, c)) <= 1e-11


@pytest.mark.parametrize("attention", ["softmax", "favor"])
def test_positions_of_a_grid(attention: str) -> None:
    options = {"attention": attention, "encoder": "axial", "grid": (2, 3)}
    layer, x, c = MultiHeadAttention(8, 1, **options).double(), random(6, 8), random(6, 8, seed=1)
    r = grid_positions(2, 3)
    found = layer(x, context=c)
    assert torch.equal(found, layer(x, r, context=c, context_positions=r))
    layer(x, context=c[:5], context_positions=r[:5])
    with pytest.raises(ValueError, match="context_positions must be given for 5 tokens"):
        layer(x, context=c[:5])


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of softmax under vmap
@pytest.mark.parametrize("name", ["rope", "grouped", "grouped-alibi", "favor", "relu-after"])
def test_compiled_exported_and_batched(name: str) -> None:
    layer, dim = make(name), torch.export.Dim("keys", min=2, max=100)
    x, c = inputs(layer, 5, 7, 2)
    want = layer(x, context=c)
    program = torch.compile(lambda x, c: layer(x, context=c), fullgraph=True, backend="eager")
    assert largest_difference(program(x, c), want) <= 1e-12
    rows = torch.func.vmap(lambda x, c: layer(x, context=c))(x, c)
    assert largest_difference(rows, want) <= 1e-12

    class Cross(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Tensor, c: Tensor) -> Tensor:
            return self.layer(x, context=c)

    program = torch.export.export(Cross(), (x, c), dynamic_shapes=({}, {1: dim})).module()
    for m in (7, 2, 12):
        x, c = inputs(layer, 5, m, 2)
        assert largest_difference(program(x, c), layer(x, context=c)) <= 1e-12


def test_a_core_takes_positions_of_keys() -> None:
    q, k, v = random(2, 5, 4), random(2, 7, 4, seed=1), random(2, 7, 3, seed=2)
    r, s = torch.arange(5)[:, None] + 2, torch.arange(7)[:, None] * 3
    encoder = RoPE(4)
    turns = turned(encoder, q, r), turned(encoder, k, s)
    out, state = SoftmaxAttention(encoder)(q, k, v, r, key_positions=s)
    expected = (turns[0] @ turns[1].mT / 2).softmax(-1) @ v
    assert state is None
    assert largest_difference(out, expected) <= 1e-12
    core = LinearAttention(ReLUFeatures(), encoder, rotate="before")
    out, _ = core(q, k, v, r, key_positions=s)
    products = turns[0].relu() @ turns[1].relu().mT
    total = products.sum(-1, keepdim=True)
    assert largest_difference(out, products @ v / total.masked_fill(total == 0, 1)) <= 1e-12
    with pytest.raises(ValueError, match="got None for 5 queries and 7 keys"):
        core(q, k, v)
    with pytest.raises(ValueError, match="key_positions must be None in causal"):
        SoftmaxAttention(encoder, causal=True)(q, q, q, r, key_positions=r)


X, C = random(2, 5, 12), random(2, 7, 12, seed=1)
KEPT = torch.ones(2, 7, dtype=torch.bool)
LINE = torch.arange(7)[:, None]
REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"causal": True}, {}, "context must be None for a causal layer"),
    ({"window": 3}, {}, "context must be None for a layer with a window"),
    ({"attention": "elu", "encoder": "alibi"}, {}, "linear attention with the relative bias"),
    ({"attention": "elu", "weight": "toeplitz", "length": 9}, {}, "the weight LearnedToeplitz"),
    ({}, {"key_mask": KEPT[:, :5]}, "key_mask must be None if context is given.* Pass context_m"),
    ({}, {"return_state": True}, "need a layer with causal=True"),
    ({}, {"context_mask": KEPT[:, :6]}, "context_mask must have shape"),
    ({}, {"context": C[..., :5]}, "context must have shape .* with context_dim = 12"),
    ({}, {"context": C[[0, 1, 0]]}, "context must .* leading dimensions that expand to"),
    ({}, {"context": None, "context_mask": KEPT}, "context_mask must be None if context is None"),
    ({}, {"context": None, "context_positions": LINE}, "context_positions must be None if context"),
    ({"context_dim": 9}, {"context": None}, "context must be given, got None. The layer"),
    ({"encoder": "rope"}, {"context_positions": LINE[:6]}, "context_positions must have one row"),
    ({"encoder": "rope"}, {"context_positions": LINE.expand(-1, 2)},
     r"context_positions must have shape .* with coord_dim = 1, got \(7, 2\)"),
    ({"encoder": "rope"}, {"context_positions": LINE.expand(3, 7, 1)},
     "context_positions must .* leading dimensions that expand to"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "given", "match"), REFUSED)
def test_what_does_not_fit(options: dict[str, Any], given: dict[str, Any], match: str) -> None:
    layer = MultiHeadAttention(12, 3, **options).double()
    with pytest.raises(ValueError, match=match):
        layer(X, **{"context": C, **given})


def test_a_causal_layer_has_no_channels_of_a_context() -> None:
    with pytest.raises(ValueError, match="context_dim must be None if causal"):
        MultiHeadAttention(12, 3, causal=True, context_dim=9)
    with pytest.raises(TypeError, match=r"context must be torch\.float64"):
        MultiHeadAttention(12, 3).double()(X, context=C.float())
