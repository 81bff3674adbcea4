"""Rolled features: permuted by position, exactly relative and never negative."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from stringlib.algebra.circulant import fourier_basis
from stringlib.encoders.string import STRING
from stringlib.inputs import common_shape
from stringlib.spec import Floats, Positions, checked


class Roll(nn.Module):
    r"""Move features on by their position, in circles: :math:`\phi(q_i)^\top \Pi^{j-i}\,\phi(k_j)`.

    Equation :eq:`eq-rotation-roll`. Π is a permutation: it moves each feature to the next place of
    its cycle, and the last to the first. So products see the offset alone, exactly, and features
    that are not negative stay so. Offsets that differ by a multiple of :attr:`period` look alike:
    cycles of coprime lengths make it their product.

    Positions are whole numbers, of an integer dtype: of all orthogonal matrices, permutations alone
    keep every feature from being negative.

    Args:
        cycles: Lengths of the cycles, which lie side by side; their sum is the number of features.

    Attributes:
        cycles: The lengths, a tuple.

    Raises:
        ValueError: If there is no cycle.

    Source:
        Chen 2021 (PermuteFormer), without its factor :math:`r^{i-j}`, which a
        :class:`~stringlib.attention.decay.DecayWeight` is.

    Example:
        >>> from stringlib.attention import ReLUFeatures, linear_attention
        >>> roll, phi, (q, k, v) = Roll((31, 33)), ReLUFeatures(), torch.randn(3, 8, 6, 196, 64)
        >>> phi_q, phi_k = roll(phi(q), phi(k), torch.arange(196)[:, None])
        >>> linear_attention(phi_q, phi_k, v, causal=True).shape
        torch.Size([8, 6, 196, 64])
    """

    @checked
    def __init__(self, cycles: Sequence[int]) -> None:
        super().__init__()
        if not cycles:
            raise ValueError("cycles must have at least one length, got none")
        self.cycles = tuple(int(length) for length in cycles)
        self.num_features = sum(self.cycles)

    @property
    def period(self) -> int:
        """Return the smallest offset above 0 that moves no feature, a least common multiple."""
        return math.lcm(*self.cycles)

    @checked
    def forward(
        self,
        phi_q: Floats[Tensor, "... heads n self.num_features"],
        phi_k: Floats[Tensor, "...k kv_heads n self.num_features"],
        positions: Positions[Tensor, "... n 1"],
    ) -> tuple[Tensor, Tensor]:
        """Roll the features of queries and keys.

        Args:
            phi_q: ``(..., heads, seq, m)``.
            phi_k: Of the same shape.
            positions: Whole numbers, ``(..., seq, 1)``, their leading dimensions broadcasting with
                those of the features.

        Returns:
            Both, rolled, in the shape and dtype that they had.

        Raises:
            TypeError: If positions are not of an integer dtype.
        """
        origins = self._origins(positions)  # once for both
        return _taken(phi_q, origins), _taken(phi_k, origins)

    @checked
    def rotate(
        self,
        x: Floats[Tensor, "... heads n self.num_features"],
        positions: Positions[Tensor, "... n 1"],
    ) -> Tensor:
        """Return Πʳx, for shapes as in :meth:`forward`.

        Raises:
            TypeError: If positions are not of an integer dtype.
        """
        return _taken(x, self._origins(positions))

    def as_string(self) -> STRING:
        r"""Return the rotation that is the same at whole positions, :eq:`eq-roll-string`.

        A cycle of length n turns planes of its real Fourier basis at :math:`2\pi j/n`. The last
        direction of an even cycle changes its sign with every step; two of them are a plane
        that turns at :math:`\pi`.

        Raises:
            ValueError: If the number of even cycles is odd: then det Π = −1, and Π is no rotation.
        """
        turning: list[int] = []
        alternating: list[int] = []
        still: list[int] = []
        frequencies: list[float] = []
        for length in self.cycles:
            start, pairs = len(turning) + len(alternating) + len(still), (length - 1) // 2
            turning += range(start, start + 2 * pairs)
            still.append(start + 2 * pairs)
            alternating += range(start + 2 * pairs + 1, start + length)
            frequencies += [2 * math.pi * j / length for j in range(1, pairs + 1)]
        if len(alternating) % 2:
            raise ValueError(
                "cycles must have an even number of even lengths to be a rotation, "
                f"got {self.cycles}"
            )
        frequencies += [math.pi] * (len(alternating) // 2)
        basis = torch.block_diag(*(fourier_basis(length) for length in self.cycles))
        omega = torch.tensor(frequencies, dtype=basis.dtype)
        return STRING(omega[None, :, None], basis[None, :, turning + alternating + still])

    def extra_repr(self) -> str:
        """Describe the arguments in ``repr``."""
        return f"cycles={self.cycles}"

    def _origins(self, positions: Tensor) -> Tensor:
        """Return from which place each feature comes: ``(..., 1, seq, m)``."""
        if positions.is_floating_point():
            raise TypeError(
                "positions must be whole numbers of an integer dtype for features to be rolled, "
                f"got {positions.dtype}"
            )
        moved, start = positions.unsqueeze(-3), 0
        parts = []
        for length in self.cycles:
            parts.append(start + (torch.arange(length, device=moved.device) - moved) % length)
            start += length
        return torch.cat(parts, -1)


def _taken(x: Tensor, origins: Tensor) -> Tensor:
    """Return the features from their places, for leading dimensions that broadcast."""
    lead = common_shape(x.shape[:-1], origins.shape[:-1])
    return x.expand(*lead, -1).gather(-1, origins.expand(*lead, -1))
