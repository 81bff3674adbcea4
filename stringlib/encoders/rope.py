"""Rotary position embedding (RoPE): the identity basis and a geometric sequence of frequencies."""

from __future__ import annotations

from stringlib.encoders.string import STRING
from stringlib.inputs import require_count, require_even
from stringlib.positions import geometric_frequencies


class RoPE(STRING):
    r"""Rotary position embedding in one coordinate, :eq:`eq-rope-pair`, :eq:`eq-rope-frequencies`.

    Nothing is learned and nothing is in the ``state_dict``.

    Args:
        head_dim: Even number of channels :math:`d` of a head.
        base: :math:`b` in the frequencies :math:`\theta_i = b^{-2i/d}`, radians per position.
        heads: 1 serves any number of heads, all with the same frequencies.
        layout: ``"interleaved"`` pairs channels (2i, 2i+1) as in the paper, ``"half"``
            pairs (i, i + d/2) as in most language models' code.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If ``head_dim`` is odd, ``base`` not positive or the layout unknown.

    Source:
        Su et al. 2024 (RoFormer), equations 14, 15 and 34.
    """

    def __init__(
        self, head_dim: int, base: float = 10000.0, heads: int = 1, layout: str = "interleaved"
    ) -> None:
        require_even("head_dim", head_dim)
        require_count("heads", heads)
        frequencies = geometric_frequencies(head_dim // 2, base)
        super().__init__(frequencies[:, None].repeat(heads, 1, 1), layout=layout, persistent=False)
        self._base = float(base)

    def _refill(self) -> None:
        """Compute the frequencies anew, after ``to_empty``."""
        row = geometric_frequencies(self.head_dim // 2, self._base)
        self._frequencies.copy_(row[:, None])

    @property
    def base(self) -> float:
        """The base, fixed at construction because the frequencies depend on it."""
        return self._base

    def extra_repr(self) -> str:
        """Describe the arguments in ``repr``."""
        return f"{self.head_dim}, base={self.base:g}, heads={self.heads}, layout={self.layout!r}"
