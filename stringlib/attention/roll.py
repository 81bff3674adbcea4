"""Rolled features: a position encoding by permutation, whose similarities are never negative."""

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
    r"""Position encoding for linear attention that shifts features cyclically by their position.

    The similarity of query i and key j is :math:`\phi(q_i)^\top \Pi^{j-i}\,\phi(k_j)`, equation
    :eq:`eq-rotation-roll`. The permutation Π moves each feature to the next index of its cycle, and
    the last feature of a cycle to the first index. So the positions enter the similarity only by
    their offset, and nonnegative features remain nonnegative. Offsets that differ by a multiple
    of :attr:`period` give the same similarity. The period is the product of the lengths of the
    cycles if the lengths are pairwise coprime.

    Positions are integers, because the only orthogonal matrices that keep all features nonnegative
    are permutations.

    Args:
        cycles: Lengths of the cycles, each at least 1. A cycle consists of consecutive features,
            and the sum of the lengths is the number of features.

    Attributes:
        cycles: The lengths, a tuple.
        num_features: The sum of the lengths.

    Raises:
        ValueError: If there is no cycle, or if a length is less than 1.

    Source:
        Chen 2021 (PermuteFormer), without the decay factor :math:`r^{i-j}`. A
        :class:`~stringlib.attention.decay.DecayWeight` adds this factor.

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
            raise ValueError(
                f"cycles must contain the length of at least one cycle, got {cycles!r}. For one "
                "cycle of all features pass (num_features,)."
            )
        self.cycles = tuple(int(length) for length in cycles)
        self.num_features = sum(self.cycles)

    @property
    def period(self) -> int:
        """The smallest positive offset that moves no feature, the lcm of the cycle lengths."""
        return math.lcm(*self.cycles)

    @checked
    def forward(
        self,
        phi_q: Floats[Tensor, "... heads n self.num_features"],
        phi_k: Floats[Tensor, "...k kv_heads n self.num_features"],
        positions: Positions[Tensor, "... n 1"],
    ) -> tuple[Tensor, Tensor]:
        """Return the features of queries and keys, shifted cyclically by their positions.

        Args:
            phi_q: Features of the queries, ``(..., heads, seq, m)``.
            phi_k: Features of the keys, ``(..., kv_heads, seq, m)``.
            positions: Integers, ``(..., seq, 1)``, whose leading dimensions broadcast with those
                of the features.

        Returns:
            Shifted features of queries and keys, in their shape and dtype.

        Raises:
            TypeError: If positions do not have an integer dtype.
        """
        origins = self._origins(positions)
        return _taken(phi_q, origins), _taken(phi_k, origins)

    @checked
    def rotate(
        self,
        x: Floats[Tensor, "... heads n self.num_features"],
        positions: Positions[Tensor, "... n 1"],
    ) -> Tensor:
        """Return features shifted cyclically by their positions r, Πʳx with the permutation Π.

        Args:
            x: Features, ``(..., heads, seq, m)``.
            positions: Integers r, ``(..., seq, 1)``.

        Raises:
            TypeError: If positions do not have an integer dtype.
        """
        return _taken(x, self._origins(positions))

    def as_string(self) -> STRING:
        r"""Return the STRING that equals the roll at integer positions, :eq:`eq-roll-string`.

        In the real Fourier basis, a cycle of length n rotates planes with the frequencies
        :math:`2\pi j/n`, :math:`1 \le j < n/2`, in radians per position. If n is even, one further
        direction changes its sign at every step. The directions that change their sign form pairs
        from different cycles. Each pair is a plane with the frequency :math:`\pi`.

        Raises:
            ValueError: If an odd number of cycles has an even length. Then the permutation has the
                determinant −1 and is not a rotation.
        """
        rotating: list[int] = []
        alternating: list[int] = []
        constant: list[int] = []
        frequencies: list[float] = []
        for length in self.cycles:
            start, pairs = len(rotating) + len(alternating) + len(constant), (length - 1) // 2
            rotating += range(start, start + 2 * pairs)
            constant.append(start + 2 * pairs)
            alternating += range(start + 2 * pairs + 1, start + length)
            frequencies += [2 * math.pi * j / length for j in range(1, pairs + 1)]
        if len(alternating) % 2:
            raise ValueError(
                "cycles must have an even number of even lengths for as_string(), got "
                f"{self.cycles}. With an odd number of even lengths the roll is not a rotation."
            )
        frequencies += [math.pi] * (len(alternating) // 2)
        basis = torch.block_diag(*(fourier_basis(length) for length in self.cycles))
        omega = torch.tensor(frequencies, dtype=basis.dtype)
        return STRING(omega[None, :, None], basis[None, :, rotating + alternating + constant])

    def extra_repr(self) -> str:
        """Return the arguments that ``repr`` shows."""
        return f"cycles={self.cycles}"

    def _origins(self, positions: Tensor) -> Tensor:
        """Return the index from which each feature is taken, ``(..., 1, seq, m)``."""
        if positions.is_floating_point():
            raise TypeError(
                f"positions must have an integer dtype, got {positions.dtype}. Features are "
                "shifted by whole indices. Pass positions.long()."
            )
        moved, start = positions.unsqueeze(-3), 0
        parts = []
        for length in self.cycles:
            parts.append(start + (torch.arange(length, device=moved.device) - moved) % length)
            start += length
        return torch.cat(parts, -1)


def _taken(x: Tensor, origins: Tensor) -> Tensor:
    """Return the features of ``x`` at the indices ``origins``; leading dimensions broadcast."""
    lead = common_shape(x.shape[:-1], origins.shape[:-1])
    return x.expand(*lead, -1).gather(-1, origins.expand(*lead, -1))
