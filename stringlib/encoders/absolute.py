"""Absolute position encodings: a vector for every position, added to the token."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from stringlib.by_name import by_name
from stringlib.encoders.rope import RoPE
from stringlib.kernels.rotation import unit_phases
from stringlib.precision import at_least_float32
from stringlib.spec import Even, Floats, Positions, Positive, checked


class Sinusoidal(nn.Module):
    r"""Add sines and cosines of the position, equations :eq:`eq-abs-sum` and :eq:`eq-abs-gram`.

    Channel 2j gets :math:`\sin(t\,b^{-2j/D})` and channel 2j + 1 the cosine: the phases of
    :class:`~stringlib.encoders.rope.RoPE`, whose exact angles are used. Nothing is learned,
    nothing is in the ``state_dict``, and any real position has a vector. Scores of tokens with
    added vectors are not relative, equation :eq:`eq-abs-terms`.

    Args:
        dim: Even number of channels :math:`D` of a token.
        base: :math:`b`, as RoPE has it.

    Source:
        Vaswani et al. 2017, section 3.5.
    """

    @by_name("base")
    @checked
    def __init__(self, dim: Even, *, base: Positive = 10000.0) -> None:
        super().__init__()
        self.dim = int(dim)
        # its frequencies stay float64 in a half-precision model
        self.rope = RoPE(self.dim, base=base)

    @checked
    def forward(
        self, x: Floats[Tensor, "... n self.dim"], positions: Positions[Tensor, "... n 1"]
    ) -> Tensor:
        """Return ``x`` plus the encoding of its positions.

        Args:
            x: Tokens, ``(..., seq, dim)``.
            positions: ``(..., seq, 1)``, integer or floating; leading dimensions broadcast.

        Returns:
            The sum, in the dtype of ``x``; angles are computed in float64.
        """
        phases = unit_phases(positions, self.rope.frequencies()).squeeze(-4)
        return _add(x, phases.flip(-1).flatten(-2))  # sine before cosine


class LearnedAbsolute(nn.Module):
    r"""Add one learned vector for each position, equation :eq:`eq-abs-sum`.

    The table has an end: it knows the whole numbers from 0 to ``num_positions - 1``. Positions
    may be integers or floats that hold whole numbers (:func:`~stringlib.positions.grid_positions`
    returns floats). Anything else has no row. On the CPU it is a ``ValueError``; a GPU stops
    with the assertion of ``torch.nn.Embedding``, because to look at the values here would make
    every step wait for it. Nothing is interpolated, rounded or wrapped.

    Args:
        num_positions: Number of rows.
        dim: Number of channels of a token.

    Attributes:
        weight: The table, ``(num_positions, dim)``. Starts normal with a standard deviation of
            0.02.

    Source:
        Vaswani et al. 2017, section 3.5, who compare it with the sinusoids.
    """

    @checked
    def __init__(self, num_positions: int, dim: int) -> None:
        super().__init__()
        self.num_positions, self.dim = int(num_positions), int(dim)
        self.weight = nn.Parameter(torch.empty(self.num_positions, self.dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the table anew."""
        nn.init.normal_(self.weight, std=0.02)

    @checked
    def forward(
        self, x: Floats[Tensor, "... n self.dim"], positions: Positions[Tensor, "... n 1"]
    ) -> Tensor:
        """Return ``x`` plus the rows of its positions.

        Args:
            x: Tokens, ``(..., seq, dim)``.
            positions: Whole numbers, ``(..., seq, 1)``; leading dimensions broadcast.

        Returns:
            The sum, in the dtype of ``x``.

        Raises:
            ValueError: If, on the CPU, a position has no row.
        """
        places = positions[..., 0]
        rows = places.long()
        if places.is_floating_point():
            rows = torch.where(rows == places, rows, -1)  # the lookup refuses it
        try:
            return _add(x, nn.functional.embedding(rows, self.weight))
        except IndexError:
            known = (rows >= 0) & (rows < self.num_positions)
            raise ValueError(
                f"positions must be whole numbers from 0 to {self.num_positions - 1}, "
                f"the rows of the table, got {places[~known][0].item():g}"
            ) from None

    def extra_repr(self) -> str:
        """Describe the arguments in ``repr``."""
        return f"num_positions={self.num_positions}, dim={self.dim}"


def _add(x: Tensor, encoding: Tensor) -> Tensor:
    """Add in float32 or better, and round once."""
    return (x + encoding.to(at_least_float32(x.dtype))).to(x.dtype)
