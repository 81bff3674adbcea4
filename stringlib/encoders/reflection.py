"""Reflection-STRING: two mirrors in every plane turn with the position, and make a rotation."""

from __future__ import annotations

import torch
from torch import Tensor

from stringlib.by_name import by_name
from stringlib.encoders.string import RotaryEncoder
from stringlib.positions import geometric_frequencies
from stringlib.precision import wide_parameter, widen, widest
from stringlib.spec import Even, checked


class ReflectionSTRING(RotaryEncoder):
    r"""Reflect every pair of channels in two mirrors whose angles grow with the position.

    The mirrors' normals stand at the angles :math:`\omega_1 r` and :math:`\omega_2 r`. Both
    reflections together are the rotation by :math:`2(\omega_2 - \omega_1) r`: this is RoPE with
    learned frequencies, each written as a difference of two parameters, equation
    :eq:`eq-reflection-rotation`. What differs is the rate of learning: gradient descent on the
    angles moves the frequencies 8 times as far, :eq:`eq-reflection-rate`, Adam 4 times.

    Args:
        head_dim: Even number of channels :math:`d` of a head.
        coord_dim: Number of coordinates of a position.
        heads: Heads with angles of their own; 1 serves any number of heads.

    Attributes:
        angles: :math:`\omega_1` and :math:`\omega_2` in radians per unit of position:
            ``(2, heads, pairs, coord_dim)``. In the beginning :math:`\omega_2 = -\omega_1` and the
            frequencies have RoPE's sizes :math:`b^{-2i/d}`, where pair i sees coordinate
            i modulo ``coord_dim`` and :math:`b = 10000^{1/d_c}`, as n tokens of a grid in
            :math:`d_c` dimensions are only :math:`n^{1/d_c}` apart. Directions along the axes,
            unlike those of :class:`~stringlib.encoders.mixed.MixedRoPE` and
            :class:`~stringlib.encoders.cayley.CayleySTRING`, which start with base 10 and turn
            them at random.
    """

    @by_name("heads")
    @checked
    def __init__(self, head_dim: Even, coord_dim: int = 1, *, heads: int = 1) -> None:
        super().__init__(head_dim, coord_dim, heads=heads)
        self.angles = wide_parameter(2, heads, head_dim // 2, coord_dim)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Start as RoPE, with both mirrors turning at the same speed in opposite directions."""
        pairs = self.head_dim // 2
        pair = torch.arange(pairs)
        frequencies = torch.zeros(pairs, self.coord_dim, dtype=widest())
        base = 10000.0 ** (1 / self.coord_dim)
        frequencies[pair, pair % self.coord_dim] = geometric_frequencies(pairs, base)
        self.angles.copy_(torch.stack([-frequencies, frequencies])[:, None] / 4)

    def frequencies(self) -> Tensor:
        """Return Ω = 2(ω₂ − ω₁): float64, ``(heads, pairs, coord_dim)``."""
        first, second = widen(self.angles)
        return 2 * (second - first)
