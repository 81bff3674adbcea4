"""DenseSTRING: the reference implementation of STRING, a matrix exponential for every token."""

from __future__ import annotations

from torch import Tensor

from stringlib.algebra.skew import turned_by
from stringlib.algebra.universality import require_generators, universal_form
from stringlib.encoders.rotary import Phases
from stringlib.encoders.string import STRING
from stringlib.precision import widen, without_autocast
from stringlib.spec import Floats, checked


class DenseSTRING(STRING):
    r"""Rotary encoder that computes the matrix exponential of its generators for every token.

    Position r has the rotation :math:`R(r) = \exp(\sum_k r_k L_k)` with generators :math:`L_k`.
    This formula is the definition of STRING, :eq:`eq-string-generators`. The class is a reference
    for other encoders: ``DenseSTRING(encoder.generators())`` rotates as ``encoder`` does. The other
    encoders have the form :math:`R(r) = P\,\mathrm{RoPE}(\Omega r)\,P^\top`, and their ``forward``
    leaves out the outer factor P. In contrast, ``forward`` of this class returns R(r)q and R(r)k
    themselves. The generators are fixed; nothing is learned.

    The cost is :math:`O(d^3)` per token for d channels. ``frequencies()`` and ``basis()`` are found
    by :func:`~stringlib.algebra.universality.universal_form`. So
    ``STRING(dense.frequencies(), dense.basis())`` rotates in the same way at :math:`O(d^2)` per
    token. After ``fold()``, the encoder that ``folded()`` returns costs :math:`O(d)` per token.

    Args:
        generators: Commuting skew-symmetric matrices :math:`L_k`, in radians per unit of position,
            ``(heads, coord_dim, d, d)``. Their values are checked once, when the encoder is made.
            On the meta device there are no values to check.

    Raises:
        ValueError: If there is no matrix or no channel, if the matrices are not finite, are not
            skew-symmetric or do not commute, or if no common planes are found.

    Source:
        Schenck et al. 2025, definition 3.1.
    """

    _generators: Tensor

    @checked
    def __init__(self, generators: Floats[Tensor, "heads coord_dim d d"]) -> None:
        heads, coord_dim, size, _ = generators.shape
        if generators.is_meta:  # there are no values to compute with
            require_generators(generators)
            shapes = (heads, size // 2, coord_dim), (heads, size, size)
            frequencies, basis = (generators.new_empty(shape) for shape in shapes)
        else:
            frequencies, basis = universal_form(generators)
        super().__init__(frequencies, basis)
        exact = widen(generators.detach())
        self.register_buffer("_generators", (exact - exact.mT) / 2)

    def generators(self) -> Tensor:
        """Return the generators :math:`L_k` in float64, made exactly skew-symmetric.

        Do not change the generators in place.
        """
        return self._generators

    def _phases(self, positions: Tensor, basis: Tensor | None = None) -> Phases:
        """Return the rotations R(r) of the positions in the form of phases.

        Other encoders return the cosines and sines of their planes. R(r) already contains the
        basis, so ``Phases.basis`` is None.
        """
        return Phases(self._matrices(positions))

    def _matrices(self, positions: Tensor) -> Tensor:
        return turned_by(self._generators, widen(positions))

    def _phase_shape(self) -> tuple[int, int]:
        return self.head_dim, self.head_dim

    def _encode(self, x: Tensor, phases: Phases, whole: bool = False) -> Tensor:
        """Return R(r)x, the vectors ``x`` multiplied by the rotations of their positions.

        ``whole`` has no effect, because the phases of this encoder are the matrices R(r)
        themselves, from which no factor is left out.
        """
        with without_autocast(x):
            return (widen(phases.cos_sin) @ widen(x).unsqueeze(-1)).squeeze(-1).to(x.dtype)
