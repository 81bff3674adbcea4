r"""Rotary position embedding (RoPE): frequencies, angles, cosines and sines, rotated pairs.

Pair i of the token at position t is rotated by the angle :math:`t\,\theta_i`, equations
:eq:`eq-rope-frequencies` and :eq:`eq-rope-pair`::

    frequencies = geometric_frequencies(head_dim // 2)[None, :, None]  # (heads, pairs, coord_dim)
    phases = unit_phases(positions, frequencies)  # positions (seq, 1)
    q, k = rotate_pairs(q, phases), rotate_pairs(k, phases)

Every rotary encoder of the package except DenseSTRING uses :func:`unit_phases` and
:func:`rotate_pairs`. :mod:`stringlib.kernels.fast_rotation` rotates the same pairs in fewer passes
over memory.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stringlib.kernels import fast_rotation
from stringlib.precision import widest
from stringlib.spec import Count0, Positive, checked


@checked
def geometric_frequencies(pairs: Count0, base: Positive = 10000.0) -> Tensor:
    r"""Return the geometric frequencies of RoPE, equation :eq:`eq-rope-frequencies`.

    Args:
        pairs: Number :math:`d/2` of pairs of channels.
        base: Base :math:`b` of the frequencies. Default: 10000.

    Returns:
        The frequencies :math:`\theta_i = b^{-i/(d/2)}` for :math:`0 \le i < d/2`, in radians per
        unit of position, float64, ``(pairs,)``.

    Source:
        Su et al. 2024 (RoFormer), section 3.2.2, with :math:`b = 10000`.
    """
    return float(base) ** -(torch.arange(pairs, dtype=widest()) / max(pairs, 1))


def unit_phases(positions: Tensor, frequencies: Tensor) -> Tensor:
    r"""Return cosine and sine of frequency times position for every head, token and pair.

    The cosine and sine of the angle :math:`\Omega r` are the real and imaginary part of the unit
    phase :math:`e^{\mathrm{i}\,\Omega r}`, :eq:`eq-rope-complex`. Angles are computed in float64,
    or in float32 on devices without float64. At position 10⁶ a float32 angle can be wrong by
    several hundredths of a radian.

    Args:
        positions: Positions r, ``(..., seq, coord_dim)``.
        frequencies: Frequencies :math:`\Omega` in radians per unit of position,
            ``(heads, pairs, coord_dim)``.

    Returns:
        Cosines and sines in the last dimension, ``(..., heads, seq, pairs, 2)``.
    """
    exact = widest(positions.device)
    angles = positions.to(exact).unsqueeze(-3) @ frequencies.to(exact).mT
    return torch.stack([angles.cos(), angles.sin()], -1)


def rotate_pairs(x: Tensor, phases: Tensor, layout: str = "interleaved") -> Tensor:
    r"""Return vectors of which every pair of channels is rotated by its phase, :eq:`eq-rope-pair`.

    Channels after the pairs are returned unchanged.

    Args:
        x: Vectors in float32 or float64, ``(..., channels)`` with ``channels >= 2 * pairs``.
        phases: Cosines and sines, ``(..., pairs, 2)``. Their leading dimensions broadcast with
            those of ``x``.
        layout: ``"interleaved"`` (default) pairs channels 2i and 2i + 1. ``"half"`` pairs channels
            i and i + pairs.

    Returns:
        The rotated vectors, with the dtype of ``x`` and the broadcast shape.
    """
    pairs = phases.shape[-2]
    if 2 * pairs < x.shape[-1]:
        rotated = rotate_pairs(x[..., : 2 * pairs], phases, layout)
        return torch.cat([rotated, x[..., 2 * pairs :].expand(*rotated.shape[:-1], -1)], -1)
    phases = phases.to(x.dtype)
    if not (torch.compiler.is_compiling() or torch._C._is_tracing()):
        return fast_rotation.rotate(x, phases, layout)
    cos, sin = phases.unbind(-1)
    pair = -1 if layout == "interleaved" else -2  # the dimension of the two channels of a pair
    a, b = x.unflatten(-1, (pairs, 2) if layout == "interleaved" else (2, pairs)).unbind(pair)
    return torch.stack([a * cos - b * sin, a * sin + b * cos], pair).flatten(-2)


def interleave(channels: Tensor, layout: str) -> Tensor:
    """Return channels grouped into pairs along the first dimension, ``(pairs, 2, ...)``.

    Args:
        channels: An even number of channels, ``(2 * pairs, ...)``.
        layout: ``"interleaved"`` pairs channels 2i and 2i + 1. ``"half"`` pairs channels i and
            i + pairs.
    """
    if layout == "interleaved":
        return channels.unflatten(0, (-1, 2))
    return channels.unflatten(0, (2, -1)).transpose(0, 1)


def deinterleave(pairs: Tensor, layout: str) -> Tensor:
    """Return pairs of channels as single channels, ``(2 * pairs, ...)``.

    This function is the inverse of :func:`interleave`.

    Args:
        pairs: Pairs of channels, ``(pairs, 2, ...)``.
        layout: ``"interleaved"`` pairs channels 2i and 2i + 1. ``"half"`` pairs channels i and
            i + pairs.
    """
    return (pairs if layout == "interleaved" else pairs.transpose(0, 1)).flatten(0, 1)
