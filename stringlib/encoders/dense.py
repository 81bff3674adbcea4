"""DenseSTRING: the definition itself, by the exponential of a matrix for every token."""

from __future__ import annotations

from torch import Tensor

from stringlib.algebra.skew import turned_by
from stringlib.algebra.universality import require_generators, universal_form
from stringlib.encoders.string import STRING, Phases
from stringlib.precision import widen
from stringlib.spec import Floats, checked


class DenseSTRING(STRING):
    r"""Rotate by :math:`\exp(\sum_k r_k L_k)`, literally, equation :eq:`eq-string-generators`.

    Slow on purpose, :math:`O(d^3)` a token, and nothing is left out: ``forward`` returns R(r)q and
    R(r)k. Any encoder can be held against ``DenseSTRING(encoder.generators())``. Basis and
    frequencies are those of :func:`~stringlib.algebra.universality.universal_form`, so
    ``STRING(dense.frequencies(), dense.basis())`` turns alike at :math:`O(d^2)` a token, and
    ``fold`` with ``folded`` at :math:`O(d)`. The generators are fixed; nothing is learned.

    Args:
        generators: Commuting skew-symmetric :math:`L_k`, in radians per unit of position:
            ``(heads, coord_dim, d, d)``. Values are checked here, once, and not on the meta device.

    Raises:
        ValueError: If the matrices are not skew-symmetric or do not commute; the message says by
            how much.

    Source:
        Schenck et al. 2025, definition 3.1.
    """

    _generators: Tensor

    @checked
    def __init__(self, generators: Floats[Tensor, "heads coord_dim d d"]) -> None:
        require_generators(generators)
        heads, coord_dim, size, _ = generators.shape
        if generators.is_meta:  # no values to look at
            shapes = (heads, size // 2, coord_dim), (heads, size, size)
            frequencies, basis = (generators.new_empty(shape) for shape in shapes)
        else:
            frequencies, basis = universal_form(generators)
        super().__init__(frequencies, basis)
        exact = widen(generators.detach())
        self.register_buffer("_generators", (exact - exact.mT) / 2)

    def generators(self) -> Tensor:
        """Return the given :math:`L_k`, not to be changed in place: float64."""
        return self._generators

    def _turns(self, positions: Tensor) -> Tensor:
        """Return whole matrices where other encoders return the phases of their planes."""
        return turned_by(self._generators, widen(positions))

    def _basis_of_turns(self) -> None:
        return None  # they turn whole vectors

    def _matrices(self, positions: Tensor) -> Tensor:
        return self._turns(positions)

    def _turn_shape(self) -> tuple[int, int]:
        return self.head_dim, self.head_dim

    def _encode(self, x: Tensor, phases: Phases, whole: bool = False) -> Tensor:
        """Return R(r)x in both uses: nothing is left out."""
        return (widen(phases.turns) @ widen(x).unsqueeze(-1)).squeeze(-1).to(x.dtype)
