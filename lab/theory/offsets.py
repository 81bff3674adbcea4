"""The scores of a rotary encoder as a function of the offset from query to key."""

from __future__ import annotations

import math

from torch import Tensor

from stringlib.encoders.rotary import RotaryEncoder
from stringlib.precision import widen
from stringlib.spec import Floats, Positions, checked


@checked
def offset_scores(
    encoder: RotaryEncoder,
    q: Floats[Tensor, "... heads encoder.head_dim"],
    k: Floats[Tensor, "... heads encoder.head_dim"],
    offsets: Positions[Tensor, "n encoder.coord_dim"],
) -> Tensor:
    r"""Return the score of a query and a key at each offset, without scaling, :eq:`eq-grid-score`.

    With a relative encoder the score depends on the positions only through the offset:
    :math:`\langle R(r)q, R(r+\delta)k\rangle = q^\top R(\delta)k` for every position r of the
    query.

    Args:
        encoder: The encoder.
        q: Queries, ``(..., heads, head_dim)``.
        k: Keys, of the same shape and dtype.
        offsets: Offsets :math:`\delta` from the query to the key, ``(n, coord_dim)``.

    Returns:
        The scores, ``(..., heads, n)``.

    Raises:
        TypeError: If ``q`` and ``k`` have different dtypes.
        ValueError: If ``q`` and ``k`` have different shapes, or not the number of heads of the
            encoder.
    """
    if encoder.heads not in (1, q.shape[-2]):
        raise ValueError(f"q must have {encoder.heads} heads, got shape {tuple(q.shape)}")
    if k.shape != q.shape:
        raise ValueError(f"k must have the shape of q, {tuple(q.shape)}, got {tuple(k.shape)}")
    if k.dtype != q.dtype:
        raise TypeError(f"k must have the dtype of q, {q.dtype}, got {k.dtype}")
    moved = k.unsqueeze(-2).expand(*k.shape[:-1], offsets.shape[-2], -1)
    return (encoder.rotate(moved, offsets) @ q.unsqueeze(-1)).squeeze(-1)


@checked
def alias_gap(encoder: RotaryEncoder, offsets: Positions[Tensor, "n encoder.coord_dim"]) -> Tensor:
    r"""Return how far the rotation of each offset is from the identity, :eq:`eq-grid-alias`.

    Args:
        encoder: The encoder.
        offsets: Offsets :math:`\delta`, ``(n, coord_dim)``.

    Returns:
        The largest distance, over all pairs, of the angle :math:`\Omega\delta` from a multiple of a
        full turn, in radians, ``(heads, n)``. It is 0 if and only if :math:`R(\delta) = I`. For an
        encoder without pairs it is 0 everywhere.
    """
    angles = widen(offsets) @ encoder.frequencies().mT
    beyond = (angles - 2 * math.pi * (angles / (2 * math.pi)).round()).abs()
    return beyond.amax(-1) if beyond.shape[-1] else beyond.new_zeros(beyond.shape[:-1])
