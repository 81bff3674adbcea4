"""RoPE on grids: every pair of channels turns with a learned direction of its own."""

from __future__ import annotations

import torch
from torch import Tensor

from stringlib.algebra.haar import haar_orthogonal
from stringlib.by_name import by_name
from stringlib.encoders.string import RotaryEncoder
from stringlib.positions import geometric_frequencies
from stringlib.precision import wide_parameter, widen, widest
from stringlib.spec import Even, Positive, checked


class MixedRoPE(RotaryEncoder):
    r"""Rotary position embedding with learned frequency vectors, :eq:`eq-grid-mixed`.

    Pair i turns by :math:`\omega_i^\top r`, row i of :math:`\Omega r`: it reads the position
    along a direction of its own. Heo et al. learn Ω for every head of every layer: give each
    layer an encoder of its own with as many ``heads`` as the layer has. They keep it out of
    weight decay, which would slow all rotations down.

    Args:
        head_dim: Even number of channels :math:`d` of a head.
        coord_dim: Number of coordinates :math:`d_c` of a position.
        heads: Heads with frequencies of their own; 1 serves any number of heads.
        base: :math:`b` in the magnitudes at the start, see :meth:`reset_parameters`.

    Attributes:
        omega: Ω in radians per unit of position: ``(heads, pairs, coord_dim)``.

    Source:
        Heo et al. 2024, RoPE-Mixed, for two coordinates.
    """

    @by_name("heads", "base")
    @checked
    def __init__(
        self, head_dim: Even, coord_dim: int, *, heads: int, base: Positive = 10.0
    ) -> None:
        super().__init__(head_dim, coord_dim, heads=heads)
        self.base = float(base)
        self.omega = wide_parameter(heads, head_dim // 2, coord_dim)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        r"""Start with perpendicular directions, turned at random in each head, :eq:`eq-grid-start`.

        Each magnitude :math:`b^{-i/n}`, :math:`0 \le i < n = \lceil d / 2d_c \rceil`, serves
        :math:`d_c` pairs with perpendicular directions, the same for all magnitudes. The pairs
        stand in :math:`d_c` blocks, one for each direction; when they do not suffice, the last
        blocks lack the smallest magnitude. The directions of a head are the rows of an
        orthogonal matrix from the Haar measure, so half of the heads are mirrored. One
        coordinate has the directions 1 and -1 only, and the base is the same: RoPE has 10000.
        """
        pairs = self.head_dim // 2
        magnitudes = geometric_frequencies(-(-pairs // self.coord_dim), self.base)
        shares = torch.arange(pairs).tensor_split(self.coord_dim)
        along_the_axes = torch.block_diag(*(magnitudes[: len(s), None] for s in shares))
        turn = haar_orthogonal(self.coord_dim, self.heads, dtype=widest())
        self.omega.copy_(along_the_axes @ turn)

    def frequencies(self) -> Tensor:
        """Return Ω: float64, ``(heads, pairs, coord_dim)``."""
        return widen(self.omega)

    def extra_repr(self) -> str:
        """Describe the arguments in ``repr``."""
        return f"{super().extra_repr()}, base={self.base:g}"
