"""Measure softmax and linear attention against other libraries and published formulas.

Run with python -m benchmarks.attention. The command `make bench` runs it after python -m
benchmarks.encoders. All contestants of a family compute the same result. Where a family works on
features, the features are given. Maps with random features have the same random matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

import stringlib
from benchmarks import literal_attention as literal
from benchmarks import peers
from benchmarks.bounds import Work
from benchmarks.goals import BOUND, MODES, Goal
from benchmarks.harness import Contestant, Entry, Shape, Suite, compiled, main
from benchmarks.scaling import Ladder
from lab.theory.cost import linear_products, pair_products
from stringlib import linear_attention

FORWARD = "forward"


class Data(NamedTuple):
    """Random queries, keys and values, positive features of queries and keys, decays and biases."""

    q: Tensor
    k: Tensor
    v: Tensor
    phi_q: Tensor
    phi_k: Tensor
    log_decay: Tensor
    bias: Tensor

    @property
    def qkv(self) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values."""
        return self.q, self.k, self.v

    @property
    def features(self) -> tuple[Tensor, Tensor, Tensor]:
        """Features of queries and keys, and values."""
        return self.phi_q, self.phi_k, self.v


def make_data(shape: Shape, device: torch.device) -> Data:
    """Return random data for one shape.

    Queries, keys, values and features have shape ``(batch, heads, seq, head_dim)``. There is one
    logarithm of a decay per token and one bias per offset.
    """
    q, k, v = torch.randn(3, shape.batch, shape.heads, shape.seq, shape.head_dim)
    log_decay = -torch.rand(shape.batch, shape.heads, shape.seq) / 8
    bias = torch.randn(shape.heads, 2 * shape.seq - 1) / 2
    # no feature is 0, so that no denominator is
    made = (q, k, v, q.relu() + 0.1, k.relu() + 0.1, log_decay, bias)
    return Data(*(t.to(device) for t in made))


Build = Callable[[Shape, Data], Entry]
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


def _on(which: str, attend: Callable[[Shape], Attend]) -> Build:
    """Return a ``build`` function for attention that computes one tensor from three tensors.

    Args:
        which: Name of the three tensors of the data, ``"qkv"`` or ``"features"``.
        attend: Function that returns the attention for a shape.
    """

    def build(shape: Shape, data: Data) -> Entry:
        call = attend(shape)
        return Entry(lambda *x: (call(*x),), getattr(data, which))

    return build


def _plain(attend: Callable[..., Any]) -> Callable[[Shape], Attend]:
    return lambda shape: attend


def _sdpa(causal: bool) -> Build:
    attend = torch.nn.functional.scaled_dot_product_attention
    return _on("qkv", _plain(lambda q, k, v: attend(q, k, v, is_causal=causal)))


def _with_features(make: Callable[[Shape], stringlib.FeatureMap]) -> Build:
    """Return a ``build`` function for linear attention, not causal, including the feature map."""

    def build(shape: Shape, data: Data) -> Entry:
        phi = make(shape).to(data.q.device)

        def call(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor]:
            return (linear_attention(phi(q), phi(k, is_query=False), v),)

        return Entry(call, data.qkv)

    return build


def _linear(
    causal: bool, weight: Callable[[Shape], stringlib.PositionWeight] | None = None
) -> Build:
    """Return a ``build`` function for linear attention on given features.

    Args:
        causal: Whether attention is causal.
        weight: Function that returns the position weight for a shape. Default: None, no weight.
    """

    def attend(shape: Shape) -> Attend:
        made = None if weight is None else weight(shape)
        return lambda q, k, v: linear_attention(q, k, v, made, causal)

    return _on("features", attend)


def _cosine(shape: Shape) -> stringlib.PositionWeight:
    return stringlib.CosineWeight(shape.seq)


# --- random features ---


def _favor(
    shape: Shape, projection: str = "orthogonal", hyperbolic: bool = False
) -> stringlib.FavorFeatures:
    """Return FAVOR+ with as many features as channels, drawn with the same seed in each call."""
    generator = torch.Generator().manual_seed(1)
    return stringlib.FavorFeatures(
        shape.head_dim, shape.head_dim, projection, hyperbolic=hyperbolic, generator=generator
    )


class _Scaled(torch.nn.Module):
    """Features of x/d^(1/4), whose products estimate exp(qᵀk/√d), as in performer-pytorch."""

    def __init__(self, phi: stringlib.FavorFeatures) -> None:
        super().__init__()
        self.phi = phi

    def forward(self, x: Tensor, is_query: bool = True) -> Tensor:
        features: Tensor = self.phi(x * self.phi.head_dim**-0.25, is_query)
        return features


def _unit_rows(features: Tensor) -> Tensor:
    """Divide every row by its norm, because contestants leave out different factors that cancel."""
    return features / features.norm(dim=-1, keepdim=True)


def _map(projection: str, hyperbolic: bool = False) -> Build:
    def build(shape: Shape, data: Data) -> Entry:
        phi = _Scaled(_favor(shape, projection, hyperbolic)).to(data.q.device)
        return Entry(lambda q, k: (phi(q, True), phi(k, False)), (data.q, data.k), (), _unit_rows)

    return build


def _performer_map(shape: Shape, data: Data) -> Entry:
    matrix = _favor(shape).projection_matrix()[0].to(data.q.device)
    phi = peers.performer_features(matrix)
    return Entry(lambda q, k: (phi(q, True), phi(k, False)), (data.q, data.k), (), _unit_rows)


def _circulant_as_matrix(shape: Shape, data: Data) -> Entry:
    """Build the circulant feature map with a product by its matrix, to be compared with the FFT."""
    phi = _Scaled(_favor(shape)).to(data.q.device)
    matrix = _favor(shape, "circulant").projection_matrix().to(data.q.device)
    weight = phi.phi.projection.get_buffer("weight")
    assert weight.shape == matrix.shape
    weight.copy_(matrix)
    return Entry(lambda q, k: (phi(q, True), phi(k, False)), (data.q, data.k), (), _unit_rows)


def _performer(shape: Shape, data: Data) -> Entry:
    matrix = _favor(shape).projection_matrix()[0].to(data.q.device)
    phi, attend = peers.performer_features(matrix), peers.performer_attention(False)
    return Entry(lambda q, k, v: (attend(phi(q, True), phi(k, False), v),), data.qkv)


def _performer_causal(shape: Shape) -> Attend:
    return peers.performer_attention(causal=True)


# --- other libraries ---


def _fast_transformers(shape: Shape, data: Data) -> Entry:
    call = peers.fast_transformers_linear(data.q.device)
    inputs = [x.transpose(1, 2).contiguous() for x in data.qkv]
    return Entry(lambda *x: (call(*x),), inputs, (), lambda y: y.transpose(1, 2))


def _fast_transformers_causal(shape: Shape) -> Attend:
    return peers.fast_transformers_causal()


# --- Toeplitz ---


def _flex(shape: Shape, data: Data) -> Entry:
    call = peers.flex_attention(data.bias)
    return Entry(lambda q, k, v: (call(q, k, v),), data.qkv)


def _toeplitz(mode: str | None = None) -> Build:
    def build(shape: Shape, data: Data) -> Entry:
        bias = data.bias.clone().requires_grad_()

        def call(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor]:
            return (linear_attention(q, k, v, stringlib.ToeplitzWeight(bias), mode=mode),)

        return Entry(call, data.features, [bias])

    return build


def _toeplitz_fft(shape: Shape, data: Data) -> Entry:
    bias = data.bias.clone().requires_grad_()
    return Entry(lambda q, k, v: (literal.toeplitz_fft(q, k, v, bias),), data.features, [bias])


def _sdpa_bias(shape: Shape, data: Data) -> Entry:
    """Build softmax attention with a learned bias per offset, gathered to a matrix of all pairs."""
    bias, place = data.bias.clone().requires_grad_(), torch.arange(shape.seq, device=data.q.device)
    index = place - place[:, None] + shape.seq - 1
    attend = torch.nn.functional.scaled_dot_product_attention
    return Entry(lambda q, k, v: (attend(q, k, v, attn_mask=bias[:, index]),), data.qkv, [bias])


# --- decay ---


def _ssd(shape: Shape, data: Data) -> Entry:
    def call(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor) -> tuple[Tensor]:
        weight = stringlib.DecayWeight(log_decay)
        return (linear_attention(q, k, v, weight, causal=True, normalize=False),)

    return Entry(call, (*data.features, data.log_decay))


def _ssd_chunks(shape: Shape, data: Data) -> Entry:
    return Entry(lambda *x: (literal.decayed_chunks(*x),), (*data.features, data.log_decay))


def _ssd_minimal(shape: Shape, data: Data) -> Entry:
    c, b, x = (t.transpose(1, 2).contiguous() for t in data.features)
    a = data.log_decay.transpose(1, 2).contiguous()
    return Entry(
        lambda c, b, x, a: (literal.ssd(x, a, b, c),), (c, b, x, a), (), lambda y: y.transpose(1, 2)
    )


# --- a whole layer ---


def _tokens(shape: Shape, data: Data) -> Tensor:
    return data.q.transpose(1, 2).flatten(2).contiguous()


def _layer(shape: Shape, data: Data) -> Entry:
    layer = _seeded_layer(shape).to(data.q.device)
    return Entry(lambda x: (layer(x),), [_tokens(shape, data)], [*layer.parameters()])


def _performer_layer(shape: Shape, data: Data) -> Entry:
    """Build the layer of performer-pytorch with the weights and random matrix of our layer."""
    ours = _seeded_layer(shape)
    matrix = _favor(shape).projection_matrix()[0].to(data.q.device)
    layer = peers.performer_layer(ours.dim, ours.heads, matrix)
    with torch.no_grad():
        for name in ("to_q", "to_k", "to_v", "to_out"):
            layer.get_parameter(f"{name}.weight").copy_(ours.get_parameter(f"{name}.weight"))
        layer.get_parameter("to_out.bias").zero_()
    layer = layer.to(data.q.device)
    return Entry(lambda x: (layer(x),), [_tokens(shape, data)], [*layer.parameters()])


def _seeded_layer(shape: Shape) -> stringlib.MultiHeadAttention:
    torch.manual_seed(1)
    return stringlib.MultiHeadAttention(
        shape.heads * shape.head_dim, shape.heads, attention=_favor(shape), causal=True
    )


SLOW = 1024  # the longest sequence for those that hold a state for every token

CONTESTANTS: Sequence[Contestant] = (
    Contestant("FAVOR+", "map", _map("orthogonal")),
    Contestant("performer-pytorch map", "map", _performer_map),
    Contestant("circulant", "map-circulant", _map("circulant")),
    Contestant("circulant as a matrix", "map-circulant", _circulant_as_matrix),
    Contestant("hyperbolic", "map-hyperbolic", _map("orthogonal", hyperbolic=True)),
    Contestant("SDPA", "softmax", _sdpa(causal=False)),
    Contestant("ReLU", "relu", _with_features(lambda s: stringlib.ReLUFeatures())),
    Contestant("ELU", "elu", _with_features(lambda s: stringlib.ELUFeatures())),
    Contestant(
        "torch.compile ELU",
        "elu",
        compiled(_with_features(lambda s: stringlib.ELUFeatures())),
        only=("N1024",),
    ),
    Contestant("fast-transformers", "elu", _fast_transformers),
    Contestant("FAVOR+ attention", "favor", _with_features(lambda s: _Scaled(_favor(s)))),
    Contestant("performer-pytorch", "favor", _performer),
    Contestant("cosine", "cosine", _linear(False, _cosine)),
    Contestant("cosFormer", "cosine", _on("features", _plain(literal.cosformer))),
    Contestant("SDPA causal", "softmax-causal", _sdpa(causal=True)),
    Contestant("linear causal", "causal", _linear(causal=True)),
    Contestant(
        "torch.compile linear causal", "causal", compiled(_linear(causal=True)), only=("N1024",)
    ),
    Contestant("fast-transformers causal", "causal", _on("features", _fast_transformers_causal)),
    Contestant(
        "performer-pytorch causal", "causal", _on("features", _performer_causal), longest=SLOW
    ),
    Contestant("all chunks at once", "causal", _on("features", _plain(literal.chunked))),
    Contestant("cosine causal", "cosine-causal", _linear(True, _cosine)),
    Contestant(
        "cosFormer causal",
        "cosine-causal",
        _on("features", _plain(literal.cosformer_cumsum)),
        longest=SLOW,
    ),
    Contestant("Toeplitz", "toeplitz", _toeplitz()),
    Contestant("Toeplitz by rows", "toeplitz-modes", _toeplitz("parallel")),
    Contestant("Toeplitz by FFT", "toeplitz-modes", _toeplitz("fft")),
    Contestant("Toeplitz, literal FFT", "toeplitz", _toeplitz_fft, 4096),
    Contestant("SDPA with a bias", "softmax-bias", _sdpa_bias),
    Contestant("FlexAttention", "softmax-bias", _flex, only=("patches 512",), modes=MODES[:1]),
    Contestant("decay", "decay", _ssd),
    Contestant("SSD, literal", "decay", _ssd_minimal),
    Contestant("decay, literal chunks", "decay", _ssd_chunks),
    Contestant("layer", "layer", _layer),
    Contestant("performer-pytorch layer", "layer", _performer_layer),
)

# --- what each has to do at least ---


def _numbers(shape: Shape) -> int:
    """Return how many numbers the queries, keys, values and outputs of a shape have together."""
    return 4 * shape.batch * shape.heads * shape.seq * shape.head_dim


def _map_work(products: Callable[[int], float], features: int = 1) -> Callable[[Shape], Work]:
    """Return a function that computes the work of a feature map on queries and keys.

    Args:
        products: Function from ``head_dim`` to the number of multiplications in the projection of a
            vector.
        features: Number of features, divided by ``head_dim``. Default: 1.
    """

    def work(shape: Shape) -> Work:
        size, rows = shape.head_dim, 2 * shape.batch * shape.heads * shape.seq
        # of both signs of a row one exponential is the inverse of the other
        return Work(
            rows * size * (1 + features), fixed=rows * products(size), exponentials=rows * size
        )

    return work


def _pairs(part: float = 1.0) -> Callable[[Shape], Work]:
    """Return a function that computes the work of softmax attention.

    Args:
        part: Part of all pairs of tokens that is needed. Default: 1, all pairs.
    """

    def work(shape: Shape) -> Work:
        heads, n, d = shape.batch * shape.heads, shape.seq, shape.head_dim
        exponentials = int(part * heads * n * n)
        products = part * heads * pair_products(n, d, d)
        return Work(_numbers(shape), products, exponentials=exponentials)

    return work


def _sums(
    features: int = 1, exponentials: bool = False, projected: bool = False, divided: bool = True
) -> Callable[[Shape], Work]:
    """Return a function that computes the work of linear attention through a state.

    Args:
        features: Number of features, divided by ``head_dim``. Default: 1.
        exponentials: Whether the features need exponentials. Default: False.
        projected: Whether queries and keys are projected to features. Default: False.
        divided: Whether the outputs are divided by the sum of the weights. Default: True.
    """

    def work(shape: Shape) -> Work:
        heads, n, d = shape.batch * shape.heads, shape.seq, shape.head_dim
        return Work(
            _numbers(shape),
            products=heads * linear_products(n, features * d, d + divided),
            fixed=2 * heads * n * d * d * projected,
            exponentials=2 * heads * n * d * exponentials,
        )

    return work


def _toeplitz_work(shape: Shape) -> Work:
    """Return the work of the cheaper form of Toeplitz attention.

    One form computes all pairs of tokens. The second form computes two FFTs per feature and value
    channel.
    """
    heads, n, d = shape.batch * shape.heads, shape.seq, shape.head_dim
    by_fft = 5 * n * math.log2(2 * n) * d * (d + 1)  # an addition and a multiplication are one
    return Work(_numbers(shape), heads * min(pair_products(n, d, d + 1), by_fft))


def _layer_work(shape: Shape) -> Work:
    dim, tokens = shape.heads * shape.head_dim, shape.batch * shape.seq
    inner = _sums(exponentials=True, projected=True)(shape)
    products = 4 * tokens * dim**2 + inner.products
    return replace(inner, numbers=2 * tokens * dim, products=products)


WORK = {
    "map": _map_work(lambda d: d * d),
    "map-circulant": _map_work(lambda d: 2.5 * d * math.log2(d)),  # two FFTs
    "map-hyperbolic": _map_work(lambda d: d * d, features=2),
    "softmax": _pairs(),
    "softmax-causal": _pairs(1 / 2),
    "softmax-bias": _pairs(),
    "relu": _sums(),
    "elu": _sums(exponentials=True),
    "favor": _sums(exponentials=True, projected=True),
    "cosine": _sums(features=2),
    "causal": _sums(),
    "cosine-causal": _sums(features=2),
    "toeplitz": _toeplitz_work,
    "toeplitz-modes": _toeplitz_work,
    "decay": _sums(divided=False),
    "layer": _layer_work,
}

MAPS = ("map", "map-circulant", "map-hyperbolic")
BOTH_WAYS = ("softmax", "relu", "elu", "favor", "cosine")
CAUSAL = ("softmax-causal", "causal", "cosine-causal")
TOEPLITZ = ("toeplitz", "softmax-bias")
LENGTHS = tuple(
    Shape(f"N{n}", 1, 2, n, 64, (*BOTH_WAYS, *CAUSAL), rounds=5 if n > 10_000 else 1000)
    for n in (128, 256, 512, 1024, 2048, 4096, 8192, 16384)
)
SHAPES = (
    Shape("map 64", 2, 8, 1024, 64, MAPS),
    Shape("map 128", 2, 8, 1024, 128, MAPS),
    Shape("map 256", 2, 8, 1024, 256, MAPS),
    Shape("short", 8, 8, 128, 64, BOTH_WAYS),
    Shape("medium", 4, 8, 256, 64, BOTH_WAYS),
    Shape("patches", 2, 4, 197, 64, TOEPLITZ),
    Shape("patches 512", 2, 4, 512, 64, TOEPLITZ),
    Shape("offsets", 1, 1, 8192, 16, ("toeplitz", "toeplitz-modes")),
    Shape("decay", 1, 4, 4096, 64, ("decay",)),
    Shape("layer", 2, 4, 1024, 64, ("layer",)),
    *LENGTHS,
)

WITHIN = 5  # times the least: the passes over memory that separate operations make
GOALS = (
    Goal("performer-pytorch map", "FAVOR+", "map 64", at_least=1.5),
    *(Goal("circulant", BOUND, f"map {d}", at_most=WITHIN) for d in (128, 256)),
    *(Goal("circulant as a matrix", "circulant", f"map {d}", at_least=1) for d in (64, 128, 256)),
    Goal("SDPA", "ReLU", "short", at_least=1, mode=FORWARD),
    Goal("SDPA", "ReLU", "short", at_least=1),
    Goal("SDPA", "FAVOR+ attention", "medium", at_least=1, mode=FORWARD),
    Goal("SDPA", "FAVOR+ attention", "medium", at_least=1),
    Goal("fast-transformers", "ELU", "medium", at_least=1),
    *(
        Goal("ELU", "torch.compile ELU", "N1024", at_most=1.05, mode=mode, threads=threads)
        for mode in MODES
        for threads in (1, 2)
    ),
    Goal("cosine", BOUND, "medium", at_most=WITHIN),
    *(Goal("cosine", "cosFormer", f"N{n}", at_most=1, mode=FORWARD) for n in (128, 256, 512)),
    *(
        Goal("fast-transformers causal", "linear causal", "N1024", at_least=2, threads=threads)
        for threads in (1, 2)
    ),
    Goal("performer-pytorch causal", "linear causal", "N1024", at_least=10),
    Goal("linear causal", None, "N1024", at_most=16, of="peak_mb"),
    *(
        Goal("cosFormer causal", "cosine causal", "N1024", at_least=50, mode=mode, threads=threads)
        for mode in MODES
        for threads in (1, 2)
    ),
    Goal("Toeplitz, literal FFT", "Toeplitz", "patches", at_least=50),
    Goal("Toeplitz", "SDPA with a bias", "patches", at_most=1.2),
    Goal("Toeplitz", "SDPA with a bias", "patches 512", at_most=1.2),
    Goal("Toeplitz", "Toeplitz by rows", "offsets", at_most=1.1),
    Goal("Toeplitz", "Toeplitz by FFT", "offsets", at_most=1.1),
    Goal("decay", BOUND, "decay", at_most=WITHIN),
    Goal("decay, literal chunks", "decay", "decay", at_least=3),
    Goal("performer-pytorch layer", "layer", "layer", at_least=2),
)

LADDERS = (
    Ladder(
        "Not causal",
        tuple(shape.name for shape in LENGTHS),
        "SDPA",
        ("ReLU", "ELU", "FAVOR+ attention", "cosine", "performer-pytorch", "fast-transformers"),
    ),
    Ladder(
        "Causal",
        tuple(shape.name for shape in LENGTHS),
        "SDPA causal",
        (
            "linear causal",
            "cosine causal",
            "fast-transformers causal",
            "performer-pytorch causal",
            "cosFormer causal",
        ),
    ),
)

PEERS = ("performer-pytorch", "pytorch-fast-transformers")
SUITE = Suite("attention", CONTESTANTS, SHAPES, GOALS, make_data, WORK, PEERS, LADDERS)


def run(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the benchmark of attention with the options of the command line."""
    return main(SUITE, argv)


if __name__ == "__main__":
    run()
