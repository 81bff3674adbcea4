"""What a rotary encoder makes of the offset between a query and a key."""

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
    r"""Return the score of a query with a key at each offset, unscaled, :eq:`eq-grid-score`.

    Relative encoders know nothing else: :math:`\langle R(r)q, R(r+\delta)k\rangle =
    q^\top R(\delta)k` wherever the query stands.

    Args:
        encoder: The encoder.
        q: Queries, ``(..., heads, head_dim)``.
        k: Keys, of the same shape and dtype.
        offsets: :math:`\delta`, from the query to the key: ``(n, coord_dim)``.

    Returns:
        ``(..., heads, n)``.

    Raises:
        TypeError: If ``q`` and ``k`` are not of one dtype.
        ValueError: If they have not one shape, or not the encoder's heads.
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
    r"""Return how far each offset is from one that the encoder cannot see, :eq:`eq-grid-alias`.

    Args:
        encoder: The encoder.
        offsets: :math:`\delta`, ``(n, coord_dim)``.

    Returns:
        The largest distance, over all pairs, of the angle :math:`\Omega\delta` from a whole
        number of turns, in radians: ``(heads, n)``. It is 0 if and only if
        :math:`R(\delta) = I`; an encoder without pairs has 0 everywhere.
    """
    angles = widen(offsets) @ encoder.frequencies().mT
    beyond = (angles - 2 * math.pi * (angles / (2 * math.pi)).round()).abs()
    return beyond.amax(-1) if beyond.shape[-1] else beyond.new_zeros(beyond.shape[:-1])
