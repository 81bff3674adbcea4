"""Cayley-STRING: the learned basis is the Cayley transform of a skew-symmetric matrix."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stringlib.algebra.skew import cayley, sparse_skew, support_count, upper_support
from stringlib.by_name import by_name
from stringlib.encoders.mixed import MixedRoPE
from stringlib.encoders.rotary import RotaryEncoder
from stringlib.inputs import any_eager
from stringlib.kernels.rotation import geometric_frequencies
from stringlib.precision import wide_parameter, widen
from stringlib.spec import Share, checked


class CayleySTRING(RotaryEncoder):
    r"""Rotary encoder whose learned basis is the Cayley transform of a skew-symmetric matrix.

    The basis is :math:`P = (I - S)(I + S)^{-1}`, the Cayley transform of a skew-symmetric matrix S,
    :eq:`eq-cayley-transform`. S and the frequencies are learned. The transpose of P is applied
    before the rotation, :eq:`eq-cayley-before`. An orthogonal matrix that is applied after the
    rotation would cancel in every score. Each call solves one system of linear equations per head,
    in float64. The cost of this step does not depend on the number of tokens. At inference, merge P
    into the weights with :meth:`~stringlib.encoders.form.RotaryForm.fold` and use the encoder that
    :meth:`~stringlib.encoders.form.RotaryForm.folded` returns, which solves no system.

    Args:
        head_dim: Number of channels :math:`d` of a head. If d is odd, one direction never rotates.
        coord_dim: Number of coordinates of a position. Default: 1.
        heads: Number of heads, each with its own basis and frequencies. With 1 (default), any
            number of heads share them.
        density: Fraction of the d(d−1)/2 entries above the diagonal of S that are learned, from 0
            (no entry, so P = I) to 1 (default: all entries). The indices of the learned entries are
            drawn once from the global random generator of torch and are the same for all heads. A
            sparse S has fewer parameters, but P can be dense nevertheless.

    Attributes:
        entries: The learned entries of S, ``(heads, count)``.
        omega: The frequencies Ω in radians per unit of position, ``(heads, pairs, coord_dim)``.
        support: Row and column indices of the entries, integers, ``(2, count)``; part of the
            ``state_dict``.

    Source:
        Schenck et al. 2025, Cayley-STRING and theorem 3.4.
    """

    support: Tensor

    @by_name("heads", "density")
    @checked
    def __init__(
        self, head_dim: int, coord_dim: int = 1, *, heads: int = 1, density: Share = 1.0
    ) -> None:
        super().__init__(head_dim, coord_dim, heads=heads)
        count = support_count(head_dim, density)
        self.density = float(density)
        self.register_buffer("support", torch.empty(2, count, dtype=torch.int64))
        self.entries = wide_parameter(heads, count)
        self.omega = wide_parameter(heads, head_dim // 2, coord_dim)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        r"""Draw new indices and initial values, so that the encoder starts near a rotation by RoPE.

        With one coordinate the frequencies are those of RoPE with base 10000. With several
        coordinates the frequencies are drawn as in :class:`~stringlib.encoders.mixed.MixedRoPE`,
        with base 10. The learned entries of S are normal. Their standard deviation is chosen such
        that the root mean square of :math:`\|Sx\|` is 0.1 :math:`\|x\|`. So P moves a vector by
        about a fifth of its length, whatever the size and the density of S are. With density 0, S
        has no learned entries and P is the identity.
        """
        self.support.copy_(upper_support(self.head_dim, self.density))
        in_a_row = 2 * self.entries.shape[1] / self.head_dim
        if in_a_row:
            self.entries.normal_(std=0.1 / math.sqrt(in_a_row))
        pairs = self.omega.shape[1]
        if self.coord_dim == 1:
            self.omega.copy_(geometric_frequencies(pairs)[:, None])
        elif pairs:
            self.omega.copy_(MixedRoPE(2 * pairs, self.coord_dim, heads=self.heads).omega)

    def skew(self) -> Tensor:
        """Return the skew-symmetric matrix S, float64, ``(heads, head_dim, head_dim)``."""
        return sparse_skew(widen(self.entries), self.support, self.head_dim)

    def frequencies(self) -> Tensor:
        """Return the frequencies Ω, float64, ``(heads, pairs, coord_dim)``."""
        return widen(self.omega)

    def basis(self) -> Tensor:
        """Return the basis P, float64, ``(heads, head_dim, head_dim)``.

        Each call solves one system of linear equations per head, unless S has no learned entries.
        """
        return cayley(self.skew()) if self.entries.shape[1] else super().basis()

    def extra_repr(self) -> str:
        """Return the arguments that ``repr`` shows."""
        return f"{super().extra_repr()}, density={self.density:g}"

    def reset_non_persistent_buffers(self) -> None:
        """Draw the indices of the learned entries again if they are not valid.

        After ``to_empty`` the indices are arbitrary numbers. Whether indices are valid is checked
        on the CPU only.
        """

        def misplaced(support: Tensor) -> Tensor:
            rows, columns = support
            return (rows < 0) | (rows >= columns) | (columns >= self.head_dim)

        if any_eager(self.support, misplaced):
            self.support.copy_(upper_support(self.head_dim, self.density))

    def _own_basis(self) -> Tensor | None:
        return self.basis() if self.entries.shape[1] else None
