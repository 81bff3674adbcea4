"""Measure whole models and layers, where differences between encoders are a part of all costs.

Run with python -m benchmarks.models or `make bench`. A model reads a batch and returns its mean
loss. With gradients this is a training step without the optimizer. The number of tokens per second
is batch × seq, divided by the time. The number of images per second is batch, divided by the time.
A layer is softmax attention with its four projections. The goal for layers is that a learned
encoder costs no more in training than RoPE.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isqrt
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.bounds import Work
from benchmarks.goals import Goal
from benchmarks.harness import Contestant, Entry, Shape, Suite, main
from stringlib import LanguageModel, MultiHeadAttention, ViT

VOCAB, CLASSES, DEPTH, PATCH = 256, 10, 4, 4


class Data(NamedTuple):
    """Texts with one token more than the models read, images, labels, and inputs of a layer."""

    text: Tensor
    images: Tensor
    labels: Tensor
    tokens: Tensor


def make_data(shape: Shape, device: torch.device) -> Data:
    """Return random data for one shape.

    The texts have shape ``(batch, seq + 1)``, the images ``(batch, 3, side, side)``, the labels
    ``(batch,)``. An image has one patch per token.
    """
    side = PATCH * isqrt(shape.seq)
    text = torch.randint(VOCAB, (shape.batch, shape.seq + 1))
    images = torch.randn(shape.batch, 3, side, side)
    labels = torch.randint(CLASSES, (shape.batch,))
    tokens = torch.randn(shape.batch, shape.seq, shape.heads * shape.head_dim)
    return Data(*(t.to(device) for t in (text, images, labels, tokens)))


def _text(**options: Any) -> Callable[[Shape, Data], Entry]:
    def build(shape: Shape, data: Data) -> Entry:
        torch.manual_seed(1)
        model = LanguageModel(VOCAB, shape.heads * shape.head_dim, DEPTH, shape.heads, **options)
        return _entry(model, data.text[:, :-1], data.text[:, 1:])

    return build


def _image(**options: Any) -> Callable[[Shape, Data], Entry]:
    def build(shape: Shape, data: Data) -> Entry:
        torch.manual_seed(1)
        sizes = data.images.shape[-1], PATCH, CLASSES, shape.heads * shape.head_dim, DEPTH
        # the mean of the patches: a class token has no place in the plane of a Toeplitz bias
        model = ViT(*sizes, shape.heads, channels=3, pool="mean", **options)
        return _entry(model, data.images, data.labels)

    return build


def _entry(model: nn.Module, x: Tensor, wanted: Tensor) -> Entry:
    model = model.to(x.device)

    def call() -> tuple[Tensor]:
        return (cross_entropy(model(x).flatten(0, -2), wanted.flatten()),)

    return Entry(call, (), [*model.parameters()])


def _layer(encoder: str) -> Callable[[Shape, Data], Entry]:
    def build(shape: Shape, data: Data) -> Entry:
        torch.manual_seed(1)
        side = isqrt(shape.seq)
        image = shape.name.startswith("ViT")
        where: dict[str, Any] = {"grid": (side, side)} if image else {"causal": True}
        name = "axial" if image and encoder == "rope" else encoder
        dim = shape.heads * shape.head_dim
        layer = MultiHeadAttention(dim, shape.heads, encoder=name, **where).to(data.tokens.device)
        return Entry(lambda x: (layer(x),), (data.tokens,), [*layer.parameters()])

    return build


# Each is a family of its own: no two of them compute the same.
TEXT = {
    "softmax, RoPE": {"encoder": "rope"},
    "FAVOR+, RoPE": {"encoder": "rope", "attention": "favor"},
    "circulant, RoPE": {"encoder": "rope", "attention": "favor-circulant"},
    "elu, SSD": {"attention": "elu", "weight": "ssd"},
    "GLA": {"attention": "identity", "weight": "gla"},
    "delta rule": {"attention": "identity", "weight": "delta"},
}
IMAGES = {
    "ViT softmax, RoPE": {"encoder": "axial"},
    "ViT FAVOR+, RoPE": {"encoder": "axial", "attention": "favor"},
    "ViT circulant, RoPE": {"encoder": "axial", "attention": "favor-circulant"},
    "ViT FAVOR+": {"attention": "favor"},
    "ViT FAVOR+, Toeplitz": {"attention": "favor", "weight": "toeplitz"},
}
LEARNED = {"Mixed": "mixed", "Circulant": "circulant", "Cayley": "cayley"}
LAYERS = {f"layer, {name}": encoder for name, encoder in {"RoPE": "rope", **LEARNED}.items()}
CONTESTANTS: Sequence[Contestant] = (
    *(Contestant(name, name, _text(**options)) for name, options in TEXT.items()),
    *(Contestant(name, name, _image(**options)) for name, options in IMAGES.items()),
    *(Contestant(name, name, _layer(encoder)) for name, encoder in LAYERS.items()),
)
LAYER_SHAPES = (
    Shape("ViT layer", 16, 6, 196, 64, tuple(LAYERS)),
    Shape("text layer", 2, 8, 1024, 64, tuple(LAYERS)),
    Shape("long layer", 1, 8, 4096, 64, tuple(LAYERS)),
)
SHAPES = (
    Shape("text", 2, 4, 512, 64, tuple(TEXT)),
    Shape("images", 4, 4, 196, 64, tuple(IMAGES)),
    *LAYER_SHAPES,
)

GOALS = (
    *(
        Goal(f"layer, {name}", "layer, RoPE", shape.name, at_most=ratio, threads=threads)
        for name in LEARNED
        for shape in LAYER_SHAPES
        for threads, ratio in ((1, 1.05), (2, 1.08))
    ),
    *(
        Goal(f"layer, {name}", "layer, Mixed", shape.name, at_most=1.1, threads=1, of="saved_mb")
        for name in LEARNED
        if name != "Mixed"
        for shape in LAYER_SHAPES
    ),
)


def _model_work(shape: Shape) -> Work:
    """Return the work of the products of tokens with the weights of blocks, without attention."""
    width = shape.heads * shape.head_dim
    weights = DEPTH * (4 * width**2 + 3 * width * (8 * width // 3))
    return Work(weights, shape.batch * shape.seq * weights)


def _layer_work(shape: Shape) -> Work:
    """Return the work of four projections and of softmax over all pairs, or half of all pairs."""
    width, tokens = shape.heads * shape.head_dim, shape.batch * shape.seq
    pairs = shape.batch * shape.heads * shape.seq**2
    part = 1.0 if shape.name.startswith("ViT") else 0.5
    products = part * pairs * 2 * shape.head_dim + 4 * tokens * width**2
    return Work(2 * tokens * width, products, exponentials=int(part * pairs))


WORK = dict.fromkeys((*TEXT, *IMAGES), _model_work) | dict.fromkeys(LAYERS, _layer_work)
SUITE = Suite("models", CONTESTANTS, SHAPES, GOALS, make_data, WORK, ())


def run(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the benchmark of models with the options of the command line."""
    return main(SUITE, argv)


if __name__ == "__main__":
    run()
