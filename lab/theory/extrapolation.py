"""Texts longer than in training: new angles, weight beyond the training length, and dilution."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stringlib.encoders.relative_bias import RelativeBias
from stringlib.precision import widen
from stringlib.spec import Floats, Positive, checked


@checked
def seen_turns(frequencies: Floats[Tensor, "..."], length: Positive) -> Tensor:
    r"""Return the number of full turns of each pair in training, :math:`r_i = T\theta_i/2\pi`.

    If a pair makes less than one turn, some angles do not occur in training. For RoPE with base b
    these are the pairs with an index above :math:`i^* = \frac d2 \log_b \frac{T}{2\pi}`, equation
    :eq:`eq-extra-turns`.

    Args:
        frequencies: Frequencies in radians per position, of any shape.
        length: Number T of tokens of a text in training.

    Returns:
        The numbers of turns, float64, of the shape of ``frequencies``.
    """
    return widen(frequencies).abs() * (length / (2 * math.pi))


@checked
def unseen_share(
    frequencies: Floats[Tensor, "..."],
    scaled: Floats[Tensor, "..."],
    length: Positive,
    longer: Positive,
) -> Tensor:
    r"""Return the share of the circle whose angles occur at test but not in training.

    The angles of causal attention go from 0 to :math:`T\theta_i` in training, and to
    :math:`T'\theta_i'` at test, equation :eq:`eq-extra-unseen`.

    Args:
        frequencies: Frequencies :math:`\theta` in training, in radians per position, of any shape.
        scaled: Frequencies :math:`\theta'` at test, of the same shape. Without scaling, pass
            ``frequencies`` again.
        length: Number T of tokens of a text in training.
        longer: Number :math:`T'` of tokens at test.

    Returns:
        Shares between 0 and 1, float64, of the shape of ``frequencies``.

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
    r"""Return the effective window :math:`N(n) = \sum_{\Delta<n} e^{b(\Delta)-b(0)}` of each head.

    If the content of all keys gives the same score and the nearest token has weight 1 before
    normalisation, the n tokens together have the weight N(n). For ALiBi with slope m, N stays below
    :math:`1/(1-e^{-m})`, equation :eq:`eq-extra-alibi`. For KERPLE's logarithmic bias, N is bounded
    if and only if :math:`r_1 > 1`, equation :eq:`eq-extra-kerple`.

    Args:
        bias: The bias.
        length: Number n of tokens, including that of the query.

    Returns:
        The windows, float64, ``(heads,)``.
    """
    device = next(iter((*bias.parameters(), *bias.buffers()))).device
    rows = widen(bias.at(torch.arange(length, device=device)))
    return (rows - rows[:, :1]).exp().sum(-1)


@checked
def tail_share(bias: RelativeBias, length: int, longer: int) -> Tensor:
    """Return the share of the weight on keys that are further away than the training length.

    The share is :math:`1 - N(T)/N(T')` with the :func:`effective_window` N, if the content of all
    keys gives the same score. For ALiBi it is at most :math:`e^{-mT}`, equation
    :eq:`eq-extra-alibi`.

    Args:
        bias: The bias.
        length: Number T of tokens of a text in training.
        longer: Number :math:`T'` of tokens at test.

    Returns:
        Shares between 0 and 1, float64, ``(heads,)``.

    Raises:
        ValueError: If ``longer`` is less than ``length``.
    """
    if longer < length:
        raise ValueError(f"longer must be at least length = {length}, got {longer}")
    return 1 - effective_window(bias, length) / effective_window(bias, longer)


@checked
def match_weight(gap: float, length: int) -> float:
    """Return the softmax weight of one key whose score exceeds all other scores by a gap.

    The weight is :math:`1/(1 + (n-1)e^{-g})`, equation :eq:`eq-extra-dilution`.

    Args:
        gap: The gap g, the score of this key minus that of each other key.
        length: Number n of keys.
    """
    return 1 / (1 + (length - 1) * math.exp(-gap))
