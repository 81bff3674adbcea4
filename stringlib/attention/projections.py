r"""The random matrices of FAVOR+: one class each, made from a generator."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from stringlib.algebra import circulant, haar_orthogonal

Draw = Callable[[int, int, int, torch.Generator | None], Tensor]


class DenseProjection(nn.Module):
    """A projection kept as its matrix ``(heads, m, d)``."""

    def __init__(self, draw: Draw, d: int, m: int, heads: int, generator=None) -> None:  # type: ignore
        super().__init__()
        self.draw, self.d, self.m, self.heads = draw, d, m, heads
        self.register_buffer("weight", draw(d, m, heads, generator))

    def matrix(self) -> Tensor:
        """Return W, ``(heads, m, d)``."""
        return self.weight

    def forward(self, x: Tensor) -> Tensor:
        """Return Wx for each token, ``(..., heads, n, m)``."""
        return x @ self.matrix().mT.to(x)

    def redraw(self, generator: torch.Generator | None = None) -> None:
        """Draw afresh."""
        self.weight.copy_(self.draw(self.d, self.m, self.heads, generator))


def draw_iid(d: int, m: int, heads: int, generator: torch.Generator | None) -> Tensor:
    """Gaussian rows."""
    return torch.randn(heads, m, d, generator=generator)


def draw_orthogonal(d: int, m: int, heads: int, generator: torch.Generator | None) -> Tensor:
    """Haar blocks with χ_d row norms."""
    blocks = [haar_orthogonal(d, heads, generator=generator) for _ in range(-(-m // d))]
    w = torch.cat(blocks, -2)[:, :m]
    return w * torch.randn(heads, m, d, generator=generator).norm(dim=-1, keepdim=True)


def draw_circulant(d: int, m: int, heads: int, generator: torch.Generator | None) -> Tensor:
    """circ(r) diag(s)."""
    blocks = []
    for _ in range(-(-m // d)):
        r = torch.randn(heads, d, generator=generator)
        s = torch.randint(0, 2, (heads, 1, d), generator=generator) * 2.0 - 1
        blocks.append(circulant(r) * s)
    return torch.cat(blocks, -2)[:, :m]


PROJECTIONS: dict[str, Draw] = {
    "iid": draw_iid,
    "orthogonal": draw_orthogonal,
    "hadamard": draw_orthogonal,  # skeleton
    "circulant": draw_circulant,
    "unit-circulant": draw_orthogonal,  # skeleton
}
