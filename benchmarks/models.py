"""Whole models: what attention and encoder leave of their lead when everything else is paid too.

python -m benchmarks.models, or `make bench`. A call reads a batch and returns its mean loss; with
gradients it is a step of training but for the optimiser. Tokens or images a second are the shape's
batch × seq, or its batch, over the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isqrt
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.harness import Contestant, Entry, Shape, Suite, main
from stringlib import LanguageModel, ViT

VOCAB, CLASSES, DEPTH, PATCH = 256, 10, 4, 4


class Data(NamedTuple):
    """Texts with one token more than is read, and images with a patch for each token, labelled."""

    text: Tensor
    images: Tensor
    labels: Tensor


def make_data(shape: Shape, device: torch.device) -> Data:
    """Return random ``(batch, seq + 1)``, ``(batch, 3, side, side)`` and ``(batch,)``."""
    side = PATCH * isqrt(shape.seq)
    text = torch.randint(VOCAB, (shape.batch, shape.seq + 1))
    images = torch.randn(shape.batch, 3, side, side)
    labels = torch.randint(CLASSES, (shape.batch,))
    return Data(*(t.to(device) for t in (text, images, labels)))


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
CONTESTANTS: Sequence[Contestant] = (
    *(Contestant(name, name, _text(**options)) for name, options in TEXT.items()),
    *(Contestant(name, name, _image(**options)) for name, options in IMAGES.items()),
)
SHAPES = (Shape("text", 2, 4, 512, 64, tuple(TEXT)), Shape("images", 4, 4, 196, 64, tuple(IMAGES)))
SUITE = Suite("models", CONTESTANTS, SHAPES, (), make_data, ())


def run(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure as the command line says."""
    return main(SUITE, argv)


if __name__ == "__main__":
    run()
