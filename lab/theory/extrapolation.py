"""Longer texts than in training: angles not seen, weight beyond the trained length, dilution."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stringlib.encoders.relative_bias import RelativeBias
from stringlib.precision import widen
from stringlib.spec import Floats, Positive, checked


@checked
def seen_turns(frequencies: Floats[Tensor, "..."], length: Positive) -> Tensor:
    r"""Return the turns each pair makes in training, :math:`r_i = T\theta_i/2\pi`.

    A pair with less than one turn leaves part of the circle unseen. For RoPE with base b these
    are the pairs behind :math:`i^* = \frac d2 \log_b \frac{T}{2\pi}`, equation
    :eq:`eq-extra-turns`.

    Args:
        frequencies: Radians per position, any shape.
        length: T, tokens of a text in training.

    Returns:
        float64, of the shape of ``frequencies``.
    """
    return widen(frequencies).abs() * (length / (2 * math.pi))


@checked
def unseen_share(
    frequencies: Floats[Tensor, "..."],
    scaled: Floats[Tensor, "..."],
    length: Positive,
    longer: Positive,
) -> Tensor:
    r"""Return the share of the circle that a pair meets for the first time at test.

    A causal score sees the angles from 0 to :math:`T\theta_i` in training and to
    :math:`T'\theta_i'` at test, equation :eq:`eq-extra-unseen`.

    Args:
        frequencies: :math:`\theta` in training, radians per position, any shape.
        scaled: :math:`\theta'` at test, of the same shape; without scaling the same again.
        length: T, tokens of a text in training.
        longer: :math:`T'`, tokens at test.

    Returns:
        Between 0 and 1, float64, of the shape of ``frequencies``.

    Raises:
        ValueError: If the shapes differ.
    """
    if frequencies.shape != scaled.shape:
        raise ValueError(
            f"scaled must have the shape of frequencies, {tuple(frequencies.shape)}, "
            f"got {tuple(scaled.shape)}"
        )
    seen, met = seen_turns(frequencies, length).clamp(max=1), seen_turns(scaled, longer)
    return (met.clamp(max=1) - seen).clamp(min=0)


@torch.no_grad()
@checked
def effective_window(bias: RelativeBias, length: int) -> Tensor:
    r"""Return :math:`N(n) = \sum_{\Delta<n} e^{b(\Delta)-b(0)}`: how many tokens a head hears.

    Where all contents score alike, the nearest token has the weight 1 before normalisation, and
    the sum of all n is that of so many near tokens. For ALiBi with slope m it stays below
    :math:`1/(1-e^{-m})`, equation :eq:`eq-extra-alibi`. For KERPLE's logarithm it stays bounded if
    and only if :math:`r_1 > 1`, equation :eq:`eq-extra-kerple`.

    Args:
        bias: The bias.
        length: n, tokens up to and including the query's own.

    Returns:
        float64, ``(heads,)``.
    """
    device = next(iter((*bias.parameters(), *bias.buffers()))).device
    rows = widen(bias.at(torch.arange(length, device=device)))
    return (rows - rows[:, :1]).exp().sum(-1)


@checked
def tail_share(bias: RelativeBias, length: int, longer: int) -> Tensor:
    r"""Return the share of the weight that lies farther away than training reached.

    It is :math:`1 - N(T)/N(T')` with :func:`effective_window` N, for contents that score alike.
    For ALiBi it is at most :math:`e^{-mT}`, equation :eq:`eq-extra-alibi`.

    Args:
        bias: The bias.
        length: T, tokens of a text in training.
        longer: :math:`T'`, tokens at test.

    Returns:
        Between 0 and 1, float64, ``(heads,)``.

    Raises:
        ValueError: If ``longer`` is below ``length``.
    """
    if longer < length:
        raise ValueError(f"longer must be at least length = {length}, got {longer}")
    return 1 - effective_window(bias, length) / effective_window(bias, longer)


@checked
def match_weight(gap: float, length: int) -> float:
    r"""Return the softmax weight of one key whose score is higher than all others by a gap.

    :math:`1/(1 + (n-1)e^{-g})`, equation :eq:`eq-extra-dilution`.

    Args:
        gap: g, the score of the right key less that of each other one.
        length: n, number of keys.
    """
    return 1 / (1 + (length - 1) * math.exp(-gap))
