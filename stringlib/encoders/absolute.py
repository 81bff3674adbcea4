"""Absolute position encodings: a vector for each position, which is added to the token."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from stringlib.by_name import by_name
from stringlib.encoders.rope import RoPE
from stringlib.kernels.rotation import unit_phases
from stringlib.precision import at_least_float32
from stringlib.spec import Even, Floats, Positions, Positive, checked


class Sinusoidal(nn.Module):
    r"""Absolute encoding by sines and cosines, equations :eq:`eq-abs-sum` and :eq:`eq-abs-gram`.

    With D channels and the base b, the vector of position t has :math:`\sin(t\,b^{-2j/D})` in
    channel 2j and the cosine of the same angle in channel 2j + 1. The angles are those of
    :class:`~stringlib.encoders.rope.RoPE`. Positions need not be integers. The module has no
    learned parameters, and it adds nothing to the ``state_dict``. Attention scores of tokens with
    added vectors do not depend on the offset alone, equation :eq:`eq-abs-terms`.

    Args:
        dim: Number of channels :math:`D` of a token; must be even.
        base: The base :math:`b` in the frequencies. A larger base gives lower frequencies.
            Default: 10000.

    Source:
        Vaswani et al. 2017, section 3.5.
    """

    @by_name("base")
    @checked
    def __init__(self, dim: Even, *, base: Positive = 10000.0) -> None:
        super().__init__()
        self.dim = int(dim)
        # RoPE keeps its frequencies in float64 when a model is converted to half precision
        self.rope = RoPE(self.dim, base=base)

    @checked
    def forward(
        self, x: Floats[Tensor, "... n self.dim"], positions: Positions[Tensor, "... n 1"]
    ) -> Tensor:
        """Return tokens plus the encoding of their positions.

        Args:
            x: Tokens, ``(..., seq, dim)``.
            positions: Positions of the tokens, integer or floating-point, ``(..., seq, 1)``. Their
                leading dimensions broadcast with those of ``x``.

        Returns:
            The sum, in the dtype of ``x``. Angles are computed in float64.
        """
        phases = unit_phases(positions, self.rope.frequencies()).squeeze(-4)
        return _add(x, phases.flip(-1).flatten(-2))  # sine before cosine


class LearnedAbsolute(nn.Module):
    r"""Absolute encoding by one learned vector for each position, equation :eq:`eq-abs-sum`.

    The vectors are the rows of a table for the positions 0 to ``num_positions - 1``. Positions
    may be integers, or floating-point numbers with integer values, such as those of
    :func:`~stringlib.positions.grid_positions`. For any other position the table has no row, and
    nothing is interpolated, rounded or wrapped. On the CPU a position
    without a row raises a ``ValueError``. On a GPU it triggers the device-side assertion of
    ``torch.nn.Embedding``, because a check in this module would synchronise with the GPU in every
    step.

    Args:
        num_positions: Number of rows of the table.
        dim: Number of channels of a token.

    Attributes:
        weight: The table, ``(num_positions, dim)``. Its initial values are normal with a standard
            deviation of 0.02.

    Source:
        Vaswani et al. 2017, section 3.5, where learned vectors are compared with sinusoids.
    """

    @checked
    def __init__(self, num_positions: int, dim: int) -> None:
        super().__init__()
        self.num_positions, self.dim = int(num_positions), int(dim)
        self.weight = nn.Parameter(torch.empty(self.num_positions, self.dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values for the table."""
        nn.init.normal_(self.weight, std=0.02)

    @checked
    def forward(
        self, x: Floats[Tensor, "... n self.dim"], positions: Positions[Tensor, "... n 1"]
    ) -> Tensor:
        """Return tokens plus the rows of the table for their positions.

        Args:
            x: Tokens, ``(..., seq, dim)``.
            positions: Positions of the tokens, ``(..., seq, 1)``, integers or floating-point
                numbers with integer values. Their leading dimensions broadcast with those of ``x``.

        Returns:
            The sum, in the dtype of ``x``.

        Raises:
            ValueError: If the table has no row for a position. This is checked on the CPU only.
        """
        coordinates = positions[..., 0]
        rows = coordinates.long()
        if coordinates.is_floating_point():
            rows = torch.where(rows == coordinates, rows, -1)  # no integer: the lookup raises at −1
        try:
            return _add(x, nn.functional.embedding(rows, self.weight))
        except IndexError:
            known = (rows >= 0) & (rows < self.num_positions)
            raise ValueError(
                f"positions must be integers from 0 to {self.num_positions - 1}, got "
                f"{coordinates[~known][0].item():g}. The table has {self.num_positions} rows."
            ) from None

    def extra_repr(self) -> str:
        """Return the arguments that ``repr`` shows."""
        return f"num_positions={self.num_positions}, dim={self.dim}"


def _add(x: Tensor, encoding: Tensor) -> Tensor:
    """Return tokens plus their encoding, computed in at least float32, in the tokens' dtype."""
    return (x + encoding.to(at_least_float32(x.dtype))).to(x.dtype)
