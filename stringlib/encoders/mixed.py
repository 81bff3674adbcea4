"""RoPE-Mixed: RoPE on grids with a learned frequency vector for every pair of channels."""

from __future__ import annotations

import torch
from torch import Tensor

from stringlib.algebra.haar import haar_orthogonal
from stringlib.by_name import by_name
from stringlib.encoders.rotary import RotaryEncoder
from stringlib.kernels.rotation import geometric_frequencies
from stringlib.precision import wide_parameter, widen, widest
from stringlib.spec import Even, Positive, checked


class MixedRoPE(RotaryEncoder):
    r"""Rotary position embedding with learned frequency vectors, :eq:`eq-grid-mixed`.

    The matrix Ω has one frequency vector :math:`\omega_i` in each row. At position r, pair i
    rotates by the angle :math:`\omega_i^\top r`, which is entry i of :math:`\Omega r`. So the angle
    is proportional to the component of the position along :math:`\omega_i`. Heo et al. learn Ω
    separately for every head of every layer. To do the same, give each layer an encoder of its own,
    with as many ``heads`` as the layer has. Heo et al. also exclude Ω from weight decay, which
    would reduce all frequencies.

    Args:
        head_dim: Number of channels :math:`d` of a head; must be even.
        coord_dim: Number of coordinates :math:`d_c` of a position.
        heads: Number of heads, each with its own frequencies. With 1, any number of heads share
            them.
        base: Base :math:`b` of the geometric sequence of initial magnitudes of the frequency
            vectors, see :meth:`reset_parameters`. Default: 10.

    Attributes:
        omega: The frequencies Ω in radians per unit of position, ``(heads, pairs, coord_dim)``.

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
        r"""Draw initial frequencies along random perpendicular directions, :eq:`eq-grid-start`.

        The magnitudes are :math:`b^{-i/n}` with :math:`0 \le i < n = \lceil d / 2d_c \rceil`. The
        pairs are split into :math:`d_c` contiguous blocks, and each block has one of :math:`d_c`
        perpendicular directions. A block contains one pair for each magnitude. If there are not
        enough pairs for this, the last blocks have no pair with the smallest magnitude.

        The directions of a head are the rows of an orthogonal matrix drawn from the Haar measure.
        The matrix contains a reflection (determinant −1) with probability ½. With one coordinate,
        the directions are 1 or −1, and the default base is still 10, not 10000 as in RoPE.
        """
        pairs = self.head_dim // 2
        magnitudes = geometric_frequencies(-(-pairs // self.coord_dim), self.base)
        shares = torch.arange(pairs).tensor_split(self.coord_dim)
        along_the_axes = torch.block_diag(*(magnitudes[: len(s), None] for s in shares))
        directions = haar_orthogonal(self.coord_dim, self.heads, dtype=widest())
        self.omega.copy_(along_the_axes @ directions)

    def frequencies(self) -> Tensor:
        """Return the frequencies Ω, float64, ``(heads, pairs, coord_dim)``."""
        return widen(self.omega)

    def extra_repr(self) -> str:
        """Return the arguments that ``repr`` shows."""
        return f"{super().extra_repr()}, base={self.base:g}"
