"""What is left at inference: folding a whole layer, caches, low precision, and the ladder."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from book.figures.string_at_inference import encoding_cost, operations
from stringlib import (
    STRING,
    CirculantSTRING,
    MixedRoPE,
    RoPE,
    RotaryEncoder,
    checks,
    make_encoder,
    reference,
)
from stringlib.algebra import haar_orthogonal
from stringlib.reference import ladder
from tests.encoder_cases import CASES, heads_of, make

encoders = pytest.mark.parametrize("name", CASES)
MODEL_DIM = 10


class Attention(nn.Module):
    """Multi-head softmax attention with biases everywhere; positions rotate q and k."""

    def __init__(self, encoder: RotaryEncoder) -> None:
        super().__init__()
        rows = heads_of(encoder) * encoder.head_dim
        self.to_q, self.to_k, self.to_v = (nn.Linear(MODEL_DIM, rows) for _ in range(3))
        self.to_out = nn.Linear(rows, MODEL_DIM)
        self.encoder = encoder

    def heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.encoder.head_dim)).transpose(-3, -2)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
        scores = q @ k.mT / math.sqrt(self.encoder.head_dim)
        if causal:
            future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(future, -torch.inf)
        out = scores.softmax(-1) @ v
        return self.to_out(out.transpose(-3, -2).flatten(-2))

    def forward(self, x: Tensor, positions: Tensor, causal: bool = False) -> Tensor:
        q, k = self.encoder(self.heads(self.to_q(x)), self.heads(self.to_k(x)), positions)
        return self.attend(q, k, self.heads(self.to_v(x)), causal)


def layer_of(name: str, seed: int = 3) -> tuple[Attention, Tensor, Tensor]:
    """Return a layer with large biases, tokens (2, 7, MODEL_DIM) and their positions."""
    encoder = make(name)
    torch.manual_seed(seed)
    layer = Attention(encoder).double()
    with torch.no_grad():
        for linear in (layer.to_q, layer.to_k, layer.to_v, layer.to_out):
            linear.weight.normal_(std=MODEL_DIM**-0.5)
            linear.bias.normal_()
    x = torch.randn(2, 7, MODEL_DIM, dtype=torch.float64)
    return layer, x, 10 * torch.randn(7, encoder.coord_dim, dtype=torch.float64)


@torch.no_grad()
def fold(layer: Attention, biases: bool = True, keys: bool = True) -> Attention:
    """Return a copy with folded projections and no basis left."""
    folded = copy.deepcopy(layer)
    for linear in (folded.to_q, folded.to_k)[: 2 if keys else 1]:
        linear.weight.copy_(layer.encoder.fold(linear.weight))
        if biases:
            linear.bias.copy_(layer.encoder.fold(linear.bias))
    folded.encoder = layer.encoder.folded()
    return folded


# --- a whole layer ---------------------------------------------------------------------------


@encoders
@pytest.mark.parametrize("causal", [False, True])
def test_folding_leaves_the_output_of_a_layer(name: str, causal: bool) -> None:
    layer, x, positions = layer_of(name)
    folded = fold(layer)
    want = layer(x, positions, causal)
    assert checks.largest_difference(folded(x, positions, causal), want) <= 1e-11
    assert list(folded.encoder.parameters()) == []
    eye = torch.eye(layer.encoder.head_dim, dtype=torch.float64)
    assert torch.equal(folded.encoder.basis(), eye.expand(layer.encoder.heads, -1, -1))
    moved = folded(x, positions + 17, causal)
    assert checks.largest_difference(moved, want) <= 1e-11


@pytest.mark.parametrize("name", ["circulant-8-2d", "circulant-64", "string-7", "string-half-7"])
@pytest.mark.parametrize("left_out", ["biases", "keys"])
def test_a_half_folded_layer_is_another_layer(name: str, left_out: str) -> None:
    layer, x, positions = layer_of(name)
    wrong = fold(layer, **{left_out: False})
    assert checks.largest_difference(wrong(x, positions), layer(x, positions)) > 1e-3


@pytest.mark.parametrize("name", ["circulant-64", "circulant-8-2d"])
def test_a_fixed_basis_folds_before_training_and_leaves_mixed_rope(name: str) -> None:
    layer, x, positions = layer_of(name)
    folded, circulant = fold(layer), layer.encoder
    mixed = MixedRoPE(circulant.head_dim, circulant.coord_dim, circulant.heads).double()
    pairs = circulant.frequencies().shape[1]
    with torch.no_grad():
        mixed.omega.zero_()[:, :pairs] = circulant.frequencies()
    folded.encoder = mixed
    assert checks.largest_difference(folded(x, positions), layer(x, positions)) <= 1e-11
    folded(x, positions).square().sum().backward()
    assert (mixed.omega.grad[:, :pairs].abs() > 0).all()


@encoders
def test_a_folded_state_dict_loads_into_a_layer_with_the_folded_encoder(name: str) -> None:
    layer, x, positions = layer_of(name)
    state = {k: v for k, v in layer.state_dict().items() if not k.startswith("encoder.")}
    for key in ("to_q.weight", "to_q.bias", "to_k.weight", "to_k.bias"):
        state[key] = layer.encoder.fold(state[key])
    other = Attention(layer.encoder).double()
    other.encoder = layer.encoder.folded()
    missing, unexpected = other.load_state_dict(state, strict=False)
    assert unexpected == []
    assert all(key.startswith("encoder.") for key in missing)
    assert checks.largest_difference(other(x, positions), layer(x, positions)) <= 1e-11


@encoders
def test_gradients_of_the_tokens_survive_the_fold(name: str) -> None:
    layer, x, positions = layer_of(name)
    grads = []
    for which in (layer, fold(layer)):
        leaf = x.clone().requires_grad_()
        which(leaf, positions).square().sum().backward()
        grads.append(leaf.grad)
    assert checks.largest_difference(*grads) <= 1e-10


def test_values_turned_there_and_back_fold_into_two_other_weights() -> None:
    """out_i = R(r_i)ᵀ Σ_j w_ij R(r_j) v_j: P goes into W_v by rows and into W_o by columns."""
    layer, x, positions = layer_of("string-7")

    def output(layer: Attention, literal: bool) -> Tensor:
        encoder, (q, k, v) = layer.encoder, map(layer.heads, (layer.to_q(x), layer.to_k(x), x @ w))
        rotate = encoder.rotate if literal else lambda v, r: encoder(v, v, r)[0]
        turned_q, turned_k = encoder(q, k, positions)
        mixed = (turned_q @ turned_k.mT).softmax(-1) @ rotate(v, positions)
        return rotate(mixed, -positions).transpose(-3, -2).flatten(-2) @ out

    encoder = layer.encoder
    w, out = layer.to_v.weight.detach().mT, layer.to_out.weight.detach().mT
    want = output(layer, literal=True)
    w, out = encoder.fold(w.mT).mT, encoder.fold(out)
    assert checks.largest_difference(output(fold(layer), literal=False), want) <= 1e-11


def test_grouped_queries_share_one_basis_a_group() -> None:
    groups, queries, d = 2, 3, 8
    encoder = STRING(torch.randn(groups, 4, 1), haar_orthogonal(d, groups, dtype=torch.float64))
    w_q = torch.randn(queries, groups * d, 5, dtype=torch.float64)  # query heads: (queries, groups)
    w_k = torch.randn(groups * d, 5, dtype=torch.float64)
    x, positions = torch.randn(6, 5, dtype=torch.float64), torch.arange(6.0)[:, None]

    def scores(encoder: RotaryEncoder, w_q: Tensor, w_k: Tensor) -> Tensor:
        q = (x @ w_q.mT).unflatten(-1, (groups, d)).transpose(-3, -2)
        k = (x @ w_k.mT).unflatten(-1, (groups, d)).transpose(-3, -2)
        q, k = encoder(q, k, positions)
        return q @ k.mT

    folded = scores(
        encoder.folded(), torch.stack([encoder.fold(w) for w in w_q]), encoder.fold(w_k)
    )
    assert checks.largest_difference(folded, scores(encoder, w_q, w_k)) <= 1e-12
    own = STRING(torch.randn(6, 4, 1), haar_orthogonal(d, 6, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"weight must have shape \(6 \* 8, model_dim\)"):
        own.fold(w_k)  # a basis for each query head: the shared keys have no one basis to move to


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
    for wrong, error in ((0, ValueError), (1.0, TypeError), (True, TypeError)):
        with pytest.raises(error, match=f"heads must be .* got {wrong}"):
            encoder.fold(fused, heads=wrong)


def test_the_heads_of_an_encoder_are_the_heads_of_a_weight() -> None:
    encoder = CirculantSTRING(4, heads=3)
    weight = torch.randn(12, 4)  # three heads of four channels, and no fused projection
    assert torch.equal(encoder.fold(weight, heads=3), encoder.fold(weight))
    with pytest.raises(ValueError, match="heads must be 3, those of the encoder, got 1"):
        encoder.fold(weight, heads=1)


# --- decoding --------------------------------------------------------------------------------


@encoders
@pytest.mark.parametrize("cache", ["turned", "plain"])
def test_decoding_with_a_cache_repeats_the_causal_pass(name: str, cache: str) -> None:
    layer, x, positions = layer_of(name)
    layer = fold(layer)
    want, keys, values = layer(x, positions, causal=True), [], []
    for t in range(x.shape[1]):
        token, here = x[:, t : t + 1], positions[t : t + 1]
        q, k = layer.heads(layer.to_q(token)), layer.heads(layer.to_k(token))
        values.append(layer.heads(layer.to_v(token)))
        if cache == "turned":  # once, when written
            q, k = layer.encoder(q, k, here)
            keys.append(k)
            all_keys = torch.cat(keys, -2)
        else:  # all of them, each time
            keys.append(k)
            q, all_keys = layer.encoder(
                q, torch.cat(keys, -2), here, key_positions=positions[: t + 1]
            )
        out = layer.attend(q, all_keys, torch.cat(values, -2))
        assert checks.largest_difference(out, want[:, t : t + 1]) <= 1e-12


@encoders
def test_a_cache_can_be_moved_to_new_positions(name: str) -> None:
    layer, x, positions = layer_of(name)
    encoder, k = layer.encoder.folded(), layer.heads(layer.to_k(x)).detach()
    _, cached = encoder(k, k, positions)
    shift = torch.full_like(positions[:1], -3.5)
    _, moved = encoder(cached, cached, shift.expand_as(positions))
    assert checks.largest_difference(moved, encoder(k, k, positions + shift)[1]) <= 1e-11


# --- low precision ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["circulant-64", "circulant-15-block-5", "string-7", "rope-8"])
def test_rounding_folded_weights_costs_what_rounding_weights_costs(name: str) -> None:
    def error(layer: Attention, exact: Tensor) -> float:
        rounded = copy.deepcopy(layer)
        with torch.no_grad():
            for linear in (rounded.to_q, rounded.to_k):
                for p in linear.parameters():
                    p.copy_(p.bfloat16())
        return (rounded(x, positions) - exact).square().mean().item()

    plain, folded = [], []
    for seed in range(20):
        layer, x, positions = layer_of(name, seed)
        exact = layer(x, positions).detach()
        plain.append(error(layer, exact))
        folded.append(error(fold(layer), exact))
    ratio = math.sqrt(sum(folded) / sum(plain))
    assert (ratio == 1.0) if name == "rope-8" else (0.8 < ratio < 1.25)


@encoders
def test_a_layer_in_bfloat16_folded_from_double(name: str) -> None:
    layer, x, positions = layer_of(name)
    exact = layer(x, positions)
    half = fold(layer).to(torch.bfloat16)
    got = half(x.bfloat16(), positions)
    assert got.dtype == torch.bfloat16
    assert half.encoder.frequencies().dtype == torch.float64
    assert checks.largest_difference(got.double(), exact) <= 0.1 * exact.abs().max()


# --- the ladder ------------------------------------------------------------------------------

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
    assert checks.relative_logit_error(scores, want_q @ want_k.mT, q, k) <= 1e-12
    package = checks.logits(encoder, q, k, positions)
    assert checks.relative_logit_error(scores, package, q, k) <= 1e-12
    if encode is not ladder.encode_by_half_spectrum:
        assert checks.largest_difference(encode(q, positions, c), want_q) <= 1e-12


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
    checks.logits(encoder, q, k, positions).square().sum().backward()
    assert checks.largest_difference(got, encoder.coefficients.grad) <= 1e-9


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
    assert checks.largest_difference(torch.tensor(spectrum, dtype=wanted.dtype), wanted) <= 1e-12
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


def test_rope_has_nothing_to_fold() -> None:
    weight = torch.randn(16, 5)
    assert torch.equal(RoPE(8).fold(weight), weight)
