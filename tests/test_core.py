"""The two cores of a layer by themselves: formulas written out, states, positions, old weights."""

from __future__ import annotations

import io
import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from stringlib import (
    ALiBi,
    AxialRoPE,
    CayleySTRING,
    CosineWeight,
    DecayWeight,
    ELUFeatures,
    FavorFeatures,
    LanguageModel,
    LinearAttention,
    LinearState,
    MultiHeadAttention,
    ReLUFeatures,
    Roll,
    RoPE,
    SoftmaxAttention,
    ViT,
)
from stringlib.attention import ForgettingBias, PathBias
from stringlib.attention.projections import PROJECTIONS

HEADS, N, D = 6, 7, 8


def draw(kv_heads: int = HEADS) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    heads = (HEADS, kv_heads, kv_heads)
    q, k, v = (torch.randn(2, h, N, D, dtype=torch.float64) for h in heads)
    return q, k, v


def rotated(encoder: RoPE | CayleySTRING, x: Tensor) -> Tensor:
    matrices = encoder.matrix(torch.arange(N)[:, None])
    return torch.einsum("hnij,...hnj->...hni", matrices.expand(x.shape[-3], -1, -1, -1), x)


def averaged(weights: Tensor, v: Tensor) -> Tensor:
    return weights @ v / weights.sum(-1, keepdim=True)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kv_heads", [6, 3, 1])
def test_softmax_attends_to_rotated_keys(causal: bool, kv_heads: int) -> None:
    q, k, v = draw(kv_heads)
    encoder = CayleySTRING(D).double()
    with torch.no_grad():
        encoder.entries.normal_()
    out, cache = SoftmaxAttention(encoder, causal=causal)(q, k, v)
    assert cache.keys.shape == k.shape if causal else cache is None
    k, v = (x.repeat_interleave(HEADS // kv_heads, -3) for x in (k, v))
    weights = (rotated(encoder, q) @ rotated(encoder, k).mT / math.sqrt(D)).exp()
    expected = averaged(weights.tril() if causal else weights, v)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)


def test_softmax_adds_a_bias() -> None:
    q, k, v = draw()
    bias = ALiBi(HEADS)
    out, _ = SoftmaxAttention(bias, causal=True)(q, k, v)
    gaps = torch.arange(N)[:, None] - torch.arange(N)
    # of the published slopes for a number of heads that is no power of 2
    slopes = torch.tensor([2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-1, 2.0**-3])
    logits = q @ k.mT / math.sqrt(D) - slopes[:, None, None] * gaps
    torch.testing.assert_close(out, averaged(logits.exp().tril(), v), rtol=0, atol=1e-6)


@pytest.mark.parametrize("rotate", ["before", "after"])
def test_linear_attention_rotates_on_the_side_that_it_is_told(rotate: str) -> None:
    q, k, v = draw()
    encoder = RoPE(D)
    core = LinearAttention(ELUFeatures(), encoder, CosineWeight(20), rotate=rotate)
    out, state = core(q, k, v)
    assert state is None  # not causal

    def phi(x: Tensor) -> Tensor:
        return torch.where(x > 0, x + 1, x.exp())

    gaps = torch.arange(N, dtype=torch.float64)[:, None] - torch.arange(N)
    w = (math.pi * gaps / 40).cos()
    plain = phi(q) @ phi(k).mT
    if rotate == "before":
        above = below = w * (phi(rotated(encoder, q)) @ phi(rotated(encoder, k)).mT)
    else:
        above, below = w * (rotated(encoder, phi(q)) @ rotated(encoder, phi(k)).mT), w * plain
    expected = above @ v / below.sum(-1, keepdim=True)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)


def test_linear_attention_estimates_the_exponential_of_scaled_products() -> None:
    """As many features as make the estimate close: the scale of q and k is the core's to apply."""
    torch.manual_seed(0)
    q, k, v = (x / 2 for x in draw())
    out, _ = LinearAttention(FavorFeatures(D, 60_000))(q, k, v)
    expected = averaged((q @ k.mT / math.sqrt(D)).exp(), v)
    assert (out - expected).abs().max() < 0.02
    unscaled = averaged((q @ k.mT).exp(), v)
    assert (unscaled - expected).abs().max() > 0.02  # or the check could not tell


def test_linear_attention_rolls_features_by_position() -> None:
    q, k, v = draw()
    out, _ = LinearAttention(ReLUFeatures(), roll=Roll((D,)))(q, k, v)
    shifts = range(N)
    phi_q, phi_k = (
        torch.stack([x.relu()[..., i, :].roll(i, -1) for i in shifts], -2) for x in (q, k)
    )
    torch.testing.assert_close(out, averaged(phi_q @ phi_k.mT, v), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "core",
    [
        SoftmaxAttention(RoPE(D), causal=True),
        SoftmaxAttention(ALiBi(HEADS), causal=True),
        LinearAttention(ELUFeatures(), RoPE(D), rotate="before", causal=True),
        LinearAttention(ELUFeatures(), None, DecayWeight(torch.full((HEADS,), -0.1)), causal=True),
        LinearAttention(ReLUFeatures(), roll=Roll((3, 5)), causal=True),
    ],
)
def test_a_state_continues(core: SoftmaxAttention | LinearAttention) -> None:
    q, k, v = draw()
    whole, _ = core(q, k, v)
    state, parts = None, []
    for i, j in ((0, 3), (3, 4), (4, N)):
        out, state = core(*(x[..., i:j, :] for x in (q, k, v)), state=state)
        parts.append(out)
    torch.testing.assert_close(torch.cat(parts, -2), whole, rtol=0, atol=1e-12)


def test_a_core_takes_only_a_state_of_its_own() -> None:
    q, k, v = draw()
    cosine = LinearAttention(ELUFeatures(), None, CosineWeight(20), causal=True)
    _, state = cosine(q, k, v)
    _, cache = SoftmaxAttention(RoPE(D), causal=True)(q, k, v)
    other = LinearAttention(ELUFeatures(), None, CosineWeight(30), causal=True)
    with pytest.raises(ValueError, match=r"CosineWeight\(30.*CosineWeight\(20"):
        other(q, k, v, state=state)
    with pytest.raises(TypeError, match="state must be a LinearState, got KeyValueCache"):
        cosine(q, k, v, state=cache)
    with pytest.raises(TypeError, match="state must be a KeyValueCache, got LinearState"):
        SoftmaxAttention(RoPE(D), causal=True)(q, k, v, state=state)
    with pytest.raises(ValueError, match="softmax with ALiBi"):
        SoftmaxAttention(ALiBi(HEADS), causal=True)(q, k, v, state=cache)
    for core, given in (
        (SoftmaxAttention(RoPE(D)), cache),
        (LinearAttention(ELUFeatures(), None, CosineWeight(20)), state),
    ):
        with pytest.raises(ValueError, match="need a layer with causal=True"):
            core(q, k, v, state=given)
    other.weight = CosineWeight(20)  # the same parts as those that made the state
    other(q, k, v, state=state)


@pytest.mark.parametrize("projection", [*PROJECTIONS])
@pytest.mark.parametrize("heads", [1, HEADS])
def test_a_state_belongs_to_its_random_features(projection: str, heads: int) -> None:
    q, k, v = (x.float() for x in draw())
    make = partial(FavorFeatures, D, 16, projection, heads)
    core, other = (LinearAttention(make(), causal=True) for _ in range(2))
    _, state = core(q, k, v)
    core(q, k, v, state=state)
    with pytest.raises(ValueError, match="random features"):
        other(q, k, v, state=state)
    other.load_state_dict(core.state_dict())
    _, later = other(q, k, v, state=state)
    chosen = later._replace(  # beams: entries of a batch selected from every tensor
        sums=later.sums[[1, 1, 0]],
        log_scale=later.log_scale[[1, 1, 0]],
        drawn=later.drawn[[1, 1, 0]],
    )
    core(*(x[[1, 1, 0]] for x in (q, k, v)), state=chosen)
    core.half()(*(x.half() for x in (q, k, v)), state=state)
    other.features.redraw()
    with pytest.raises(ValueError, match="random features"):
        other(q, k, v, state=later)


def test_a_grid_gives_the_positions() -> None:
    q, k, v = (x[..., :6, :] for x in draw())
    by_default, _ = SoftmaxAttention(AxialRoPE(D, 2), grid=(2, 3))(q, k, v)
    rows, columns = torch.meshgrid(torch.arange(2), torch.arange(3), indexing="ij")
    positions = torch.stack([rows.flatten(), columns.flatten()], -1)
    given, _ = SoftmaxAttention(AxialRoPE(D, 2))(q, k, v, positions)
    assert torch.equal(by_default, given)
    with pytest.raises(ValueError, match="positions must be given"):
        SoftmaxAttention(AxialRoPE(D, 2))(q, k, v)
    with pytest.raises(ValueError, match="one row for each of the 6 tokens of the queries"):
        SoftmaxAttention(AxialRoPE(D, 2))(q, k, v, positions[:5])


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"encoder": "cayley"}, "encoder"),
        ({"attention": "favor-learned", "encoder": "circulant", "weight": "gla"}, "features"),
        ({"attention": "elu", "weight": "ssd"}, "weight"),
        ({"attention": "elu", "encoder": "kerple-log"}, "weight"),
    ],
)
def test_weights_of_version_0_1_are_loaded(options: dict[str, str], part: str) -> None:
    """There the layer itself held the parts of its core."""
    layer, other = (MultiHeadAttention(24, 3, causal=True, **options) for _ in range(2))
    old = {name.replace("core.", ""): x for name, x in layer.state_dict().items()}
    assert any(name.startswith(f"{part}.") for name in old)
    other.load_state_dict(old)
    x = torch.randn(2, 5, 24)
    assert torch.equal(layer(x), other(x))


def test_a_part_is_replaced_in_the_core() -> None:
    layer = MultiHeadAttention(16, 2, encoder="rope")
    layer.encoder = RoPE(8, base=7.0)
    assert layer.core.encoder is layer.encoder
    assert [name for name, _ in layer.named_modules() if "encoder" in name] == ["core.encoder"]
    x = torch.randn(1, 5, 16)
    other = MultiHeadAttention(16, 2, encoder=RoPE(8, base=7.0))
    other.load_state_dict(layer.state_dict())
    assert torch.equal(layer(x), other(x))


def test_a_bias_of_the_logits_is_replaced_in_the_core() -> None:
    layer = MultiHeadAttention(16, 2, encoder="rope", position_bias="fox", causal=True)
    x = torch.randn(1, 5, 16)
    state = layer(x, return_state=True)[1]
    layer.position_bias = ALiBi(2)
    other = MultiHeadAttention(16, 2, encoder="rope", position_bias="alibi", causal=True)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(layer(x), other(x))
    layer.position_bias = None
    plain = MultiHeadAttention(16, 2, encoder="rope", causal=True)
    plain.load_state_dict(layer.state_dict())
    assert torch.equal(layer(x), plain(x))
    with pytest.raises(ValueError, match=r"softmax with a rotary encoder, got .* ForgettingBias"):
        layer(x, state=state)


def test_a_bias_of_the_logits_that_does_not_fit_is_refused_at_any_time() -> None:
    causal, other = SoftmaxAttention(RoPE(D), causal=True), SoftmaxAttention(RoPE(D))
    with pytest.raises(ValueError, match=r"^encoder must be None for a PathBias, got a RoPE"):
        causal.position_bias = PathBias(16, HEADS, D)
    with pytest.raises(ValueError, match=r"^causal must be True if position_bias is a Forgetting"):
        other.position_bias = ForgettingBias(16, HEADS)
    causal.position_bias = ALiBi(HEADS)
    with pytest.raises(ValueError, match=r"^position_bias must be None if encoder is a relative"):
        causal.encoder = ALiBi(HEADS)
    with pytest.raises(TypeError, match=r"^position_bias must be None, got ForgettingBias"):
        LinearAttention(ELUFeatures()).position_bias = ForgettingBias(16, HEADS)


def test_key_heads_is_the_old_name_of_kv_heads() -> None:
    with pytest.warns(DeprecationWarning, match="now called kv_heads"):
        layer = MultiHeadAttention(16, 4, key_heads=2)
    assert layer.kv_heads == 2
    with pytest.warns(DeprecationWarning, match="now called kv_heads"):
        assert layer.key_heads == 2


@pytest.mark.parametrize("encoder", ["circulant", "cayley", "mixed", "reflection"])
def test_a_learned_encoder_is_read_inside_its_block(encoder: str) -> None:
    """A wrapper that shards parameters gathers those of a block only while it runs."""
    running: list[Any] = []
    for model, x in (
        (LanguageModel(11, 16, 2, 2, encoder=encoder), torch.randint(11, (2, 5))),
        (ViT(8, 4, classes=3, dim=16, depth=2, heads=2, encoder=encoder), torch.randn(2, 1, 8, 8)),
    ):
        for block in model.blocks:
            block.register_forward_pre_hook(lambda block, _: running.append(block))
            block.register_forward_hook(lambda *_: running.clear())
            encoder_of = block.attention.encoder
            frequencies = encoder_of.frequencies

            def read(block: Any = block, frequencies: Any = frequencies) -> Tensor:
                assert running == [block]
                return frequencies()

            encoder_of.frequencies = read
        model(x)


def test_softmax_attention_takes_no_roll() -> None:
    core = SoftmaxAttention(RoPE(D))
    with pytest.raises(TypeError, match="roll must be None"):
        core.roll = Roll((D,))


def test_a_state_saved_before_its_class_moved_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    _, state = LinearAttention(ELUFeatures(), causal=True)(*draw())
    file = io.BytesIO()
    with monkeypatch.context() as patch:
        patch.setattr(LinearState, "__module__", "stringlib.attention.weights")
        torch.save(state, file)
    file.seek(0)
    loaded = torch.load(file)
    assert type(loaded) is LinearState
    assert torch.equal(loaded.sums, state.sums)
