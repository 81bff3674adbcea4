"""Rotary position embedding (RoPE) in one or several coordinates, with fixed frequencies.

This file chooses the frequencies. The angles, their cosines and sines, and the rotation of pairs
are computed in :mod:`stringlib.kernels.rotation`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from stringlib.by_name import by_name
from stringlib.encoders.rotary import Phases
from stringlib.encoders.string import STRING
from stringlib.inputs import Layout
from stringlib.kernels.rotation import geometric_frequencies
from stringlib.precision import widen, widest
from stringlib.spec import Even, Floats, Positive, checked


class GeometricRoPE(STRING):
    """Base class of RoPE and AxialRoPE: a geometric sequence of frequencies for each coordinate.

    Each pair of channels depends on one coordinate only.

    Args:
        head_dim: Number of channels of a head; must be even.
        coord_dim: Number of coordinates of a position, at most one for each pair.
        base: Base of each geometric sequence.
        heads: Number of heads; all have the same frequencies. With 1, the encoder can be used with
            any number of heads.
        layout: ``"interleaved"`` (default) pairs (2i, 2i + 1), ``"half"`` pairs (i, i + pairs).

    Raises:
        ValueError: If there are fewer pairs than coordinates.
    """

    @by_name("base", "heads", "layout")
    @checked
    def __init__(
        self,
        head_dim: Even,
        coord_dim: int,
        *,
        base: Positive,
        heads: int,
        layout: Layout = "interleaved",
    ) -> None:
        if head_dim < 2 * coord_dim:
            raise ValueError(
                f"head_dim must be at least 2 * coord_dim = {2 * coord_dim}, got {head_dim}. "
                "Each coordinate needs a pair of channels."
            )
        frequencies = _frequencies(head_dim // 2, coord_dim, base).repeat(heads, 1, 1)
        super().__init__(frequencies, layout=layout, persistent=False)
        self._base = float(base)

    @property
    def base(self) -> float:
        """The base of the frequencies, which cannot be changed after construction."""
        return self._base

    def frequencies(self) -> Tensor:
        """Return the frequencies Ω, float64, ``(heads, pairs, coord_dim)``.

        Do not change Ω in place. Ω is stored in a buffer. If a wrapper casts buffers, such as FSDP
        with ``buffer_dtype=torch.bfloat16``, Ω is computed from the base again in each call,
        because the stored frequencies are rounded.
        """
        stored = self._frequencies
        if stored.dtype == torch.float64 or stored.dtype == widest(stored.device):
            return stored
        exact = _frequencies(self.head_dim // 2, self.coord_dim, self._base)
        return exact.to(stored.device, widest(stored.device)).expand(self.heads, -1, -1)

    def reset_non_persistent_buffers(self) -> None:
        """Compute the frequencies again."""
        self._frequencies.copy_(_frequencies(self.head_dim // 2, self.coord_dim, self._base))


class RoPE(GeometricRoPE):
    r"""Rotary position embedding in one coordinate, :eq:`eq-rope-pair`, :eq:`eq-rope-frequencies`.

    The encoder has no learned parameters, and it adds nothing to the ``state_dict``.

    Args:
        head_dim: Number of channels :math:`d` of a head; must be even.
        base: The base :math:`b` in the frequencies :math:`\theta_i = b^{-2i/d}`, in radians per
            position. Default: 10000.
        heads: Number of heads; all have the same frequencies. With 1 (default), the encoder can be
            used with any number of heads.
        layout: ``"interleaved"`` (default) pairs channels (2i, 2i + 1) as in the paper, ``"half"``
            pairs (i, i + d/2) as in the code of most language models.

    Source:
        Su et al. 2024 (RoFormer), equations 14, 15 and 34.

    Example:
        >>> q, k = torch.randn(2, 8, 6, 196, 64)  # batch 8, 6 heads, 196 tokens
        >>> q, k = RoPE(64)(q, k, torch.arange(196)[:, None])
        >>> q.shape
        torch.Size([8, 6, 196, 64])
    """

    @by_name("base", "heads", "layout")
    def __init__(
        self,
        head_dim: Even,
        *,
        base: Positive = 10000.0,
        heads: int = 1,
        layout: Layout = "interleaved",
    ) -> None:
        super().__init__(head_dim, 1, base=base, heads=heads, layout=layout)

    def extra_repr(self) -> str:
        """Return the arguments that ``repr`` shows."""
        return f"{self.head_dim}, base={self.base:g}, heads={self.heads}, layout={self.layout!r}"


class AxialRoPE(GeometricRoPE):
    r"""Rotary position embedding with separate pairs for each coordinate, :eq:`eq-grid-axial`.

    The pairs are distributed over the coordinates as evenly as possible, in contiguous blocks of
    channels. If this leaves a remainder, each of the first coordinates has one pair more than the
    others. With one coordinate and the same base this is :class:`RoPE`. A score is a sum of
    functions, each of which depends on the offset in one coordinate, :eq:`eq-grid-separable`. The
    encoder has no learned parameters, and it adds nothing to the ``state_dict``.

    Args:
        head_dim: Number of channels :math:`d` of a head; must be even.
        coord_dim: Number of coordinates of a position, at most one for each pair.
        base: The base :math:`b` in the frequencies :math:`b^{-i/n}` of a coordinate with n pairs,
            in radians per unit of that coordinate. Default: 100.
        heads: Number of heads; all have the same frequencies. With 1 (default), the encoder can be
            used with any number of heads.

    Raises:
        ValueError: If there are fewer pairs than coordinates.

    Source:
        Heo et al. 2024, RoPE-Axial, for two coordinates with d/4 pairs each.
    """

    @by_name("base", "heads")
    def __init__(
        self, head_dim: Even, coord_dim: int, *, base: Positive = 100.0, heads: int = 1
    ) -> None:
        super().__init__(head_dim, coord_dim, base=base, heads=heads)

    def extra_repr(self) -> str:
        """Return the arguments that ``repr`` shows."""
        return f"{self.head_dim}, {self.coord_dim}, base={self.base:g}, heads={self.heads}"


class SelectiveRoPE(STRING):
    r"""RoPE in which every pair of channels of every head has a coordinate of its own.

    Pair p of head h rotates by :math:`\omega_p r_{hp}`, where ω are the frequencies of RoPE and the
    position r has ``heads * head_dim // 2`` coordinates. With
    :class:`~stringlib.attention.path.PositionSteps` the angle by which a token rotates each pair is
    computed from this token, :eq:`eq-path-rotation`, as in Selective RoPE and in Mamba-3.

    Args:
        head_dim: Number of channels of a head, an even number.
        heads: Number of heads.
        base: The base of the frequencies. Default: 10,000.

    Source:
        Movahedi et al. 2025; Lahoti et al. 2026 for Mamba-3.

    Example:
        >>> from stringlib import MultiHeadAttention
        >>> layer = MultiHeadAttention(64, 4, encoder="selective-rope", causal=True)
        >>> layer(torch.randn(2, 10, 64)).shape
        torch.Size([2, 10, 64])
    """

    @checked
    def __init__(self, head_dim: int, heads: int, base: Positive = 10000.0) -> None:
        frequencies = RoPE(head_dim, base=base).frequencies()[0, :, 0]
        every = torch.diag(frequencies.repeat(heads)).unflatten(0, (heads, -1))
        super().__init__(every, head_dim=head_dim)

    def _phases(self, positions: Tensor, basis: Tensor | None = None) -> Phases:
        """Return the phases of positions. Each pair has one coordinate, so no product is needed."""
        own = widen(self.frequencies().flatten(0, 1).diagonal()).unflatten(0, (self.heads, -1))
        angles = widen(positions).unflatten(-1, own.shape).transpose(-3, -2) * own.unsqueeze(-2)
        return Phases(torch.stack([angles.cos(), angles.sin()], -1), None)


@checked
def mrope(
    frequencies: Floats[Tensor, "heads pairs 1"],
    sections: Sequence[int],
    *,
    interleaved: bool = False,
) -> Tensor:
    """Return M-RoPE frequencies: each pair depends on one of several coordinates.

    M-RoPE is equation :eq:`eq-grid-axial` with another choice of frequencies. All pairs keep the
    frequencies of RoPE, which are one geometric sequence. In contrast, :class:`AxialRoPE` has one
    sequence for each coordinate. A token whose coordinates all equal t is rotated as by RoPE at
    position t.

    Args:
        frequencies: Frequencies of RoPE in one coordinate, ``(heads, pairs, 1)``.
        sections: Number of pairs for each coordinate (``mrope_section`` in configurations). Their
            sum must be the number of pairs.
        interleaved: If False (default), the pairs of each coordinate are contiguous. If True,
            coordinate k ≥ 1 of n coordinates has the first ``sections[k]`` of the pairs k, k + n,
            k + 2n, … Coordinate 0 has all other pairs.

    Returns:
        The frequencies Ω, ``(heads, pairs, len(sections))``, float64.

    Raises:
        ValueError: If the sections do not add up to the number of pairs. With
            ``interleaved=True`` also if a pair k, k + n, k + 2n, … of a coordinate does not exist.

    Source:
        Wang et al. 2024 (Qwen2-VL), section 2.1. The interleaved form: Bai et al. 2025 (Qwen3-VL).

    Example:
        >>> omega = mrope(RoPE(128, base=1_000_000).frequencies(), (16, 24, 24))
        >>> STRING(omega, layout="half").coord_dim
        3
    """
    pairs, count = frequencies.shape[1], len(sections)
    if sum(sections) != pairs:
        raise ValueError(
            f"sections must add up to the number of pairs, {pairs}, got {tuple(sections)} with "
            f"the sum {sum(sections)}"
        )
    for k in range(1, count if interleaved else 0):
        most = len(range(k, pairs, count))
        if sections[k] > most:
            raise ValueError(
                f"sections[{k}] must be at most {most} with interleaved=True, got {sections[k]} in "
                f"{tuple(sections)}. Coordinate {k} has the pairs {k}, {k + count}, "
                f"{k + 2 * count}, …, of which {most} exist."
            )
    axes = torch.arange(count).repeat_interleave(torch.tensor(sections))
    if interleaved:
        axes.zero_()
        for k, own in enumerate(sections[1:], 1):
            axes[k : count * own : count] = k
    return widen(frequencies) * nn.functional.one_hot(axes, count).to(frequencies.device)


def _frequencies(pairs: int, coord_dim: int, base: float) -> Tensor:
    """Return frequencies with one non-zero coordinate for each pair, ``(pairs, coord_dim)``."""
    shares = torch.arange(pairs).tensor_split(coord_dim)
    return torch.block_diag(*(geometric_frequencies(len(s), base)[:, None] for s in shares))
