"""Reflection-STRING: rotations that are products of two reflections in every plane."""

from __future__ import annotations

import torch
from torch import Tensor

from stringlib.by_name import by_name
from stringlib.encoders.rotary import RotaryEncoder
from stringlib.kernels.rotation import geometric_frequencies
from stringlib.precision import wide_parameter, widen, widest
from stringlib.spec import Even, checked


class ReflectionSTRING(RotaryEncoder):
    r"""Rotary encoder that reflects every pair of channels in two mirrors.

    The mirrors rotate with the position r: their normals have the angles
    :math:`\omega_1^\top r` and :math:`\omega_2^\top r`. The product of the two reflections is the
    rotation by :math:`2(\omega_2 - \omega_1)^\top r`, equation :eq:`eq-reflection-rotation`. So
    this is RoPE with learned frequencies, each of which is twice the difference of two parameters.
    The encoder differs from one that learns its frequencies directly only in training. With the
    same learning rate,
    gradient descent changes a frequency 8 times as much, :eq:`eq-reflection-rate`, and Adam changes
    it 4 times as much.

    Args:
        head_dim: Number of channels :math:`d` of a head; must be even.
        coord_dim: Number of coordinates :math:`d_c` of a position. Default: 1.
        heads: Number of heads, each with its own angles. With 1 (default), any number of heads
            share them.

    Attributes:
        angles: The angles :math:`\omega_1` and :math:`\omega_2` in radians per unit of position,
            ``(2, heads, pairs, coord_dim)``. See :meth:`reset_parameters` for the initial values.
    """

    @by_name("heads")
    @checked
    def __init__(self, head_dim: Even, coord_dim: int = 1, *, heads: int = 1) -> None:
        super().__init__(head_dim, coord_dim, heads=heads)
        self.angles = wide_parameter(2, heads, head_dim // 2, coord_dim)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        r"""Set the frequencies to a geometric sequence, with opposite angles of the two mirrors.

        Pair i depends on coordinate i modulo :math:`d_c` only, with the frequency
        :math:`b^{-2i/d}` and the base :math:`b = 10000^{1/d_c}`. With one coordinate, the
        frequencies are those of RoPE. The base falls with the number of coordinates, because in a
        cubic grid of n tokens in :math:`d_c` dimensions, coordinates differ by less than
        :math:`n^{1/d_c}`. In contrast, :class:`~stringlib.encoders.mixed.MixedRoPE` starts with
        base 10 and random directions. So does :class:`~stringlib.encoders.cayley.CayleySTRING` with
        several coordinates.
        """
        pairs = self.head_dim // 2
        pair = torch.arange(pairs)
        frequencies = torch.zeros(pairs, self.coord_dim, dtype=widest())
        base = 10000.0 ** (1 / self.coord_dim)
        frequencies[pair, pair % self.coord_dim] = geometric_frequencies(pairs, base)
        self.angles.copy_(torch.stack([-frequencies, frequencies])[:, None] / 4)

    def frequencies(self) -> Tensor:
        """Return the frequencies Ω = 2(ω₂ − ω₁), float64, ``(heads, pairs, coord_dim)``."""
        first, second = widen(self.angles)
        return 2 * (second - first)
