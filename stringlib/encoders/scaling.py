"""Frequencies for texts longer than those in training: interpolation, NTK, YaRN, LongRoPE.

Most functions take the frequencies Ω of an encoder, ``(heads, pairs, coord_dim)``, and return
scaled frequencies, from which you make a new encoder:
``STRING(yarn(RoPE(64).frequencies(), scale=4, length=2048))``.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from stringlib.derived import Derived
from stringlib.encoders.rotary import RotaryEncoder
from stringlib.precision import widen
from stringlib.spec import Floats, Positive, Scale, checked


@checked
def position_interpolation(
    frequencies: Floats[Tensor, "heads pairs coord_dim"], scale: Scale
) -> Tensor:
    r"""Return all frequencies divided by the same factor, equation :eq:`eq-scale-interpolation`.

    Dividing all frequencies has the same effect as dividing all positions by ``scale``.

    Args:
        frequencies: The frequencies Ω, ``(heads, pairs, coord_dim)``.
        scale: The factor :math:`s \ge 1`: the new length divided by the length in training.

    Returns:
        The frequencies divided by s, float64, of the same shape.

    Source:
        Chen et al. 2023.
    """
    return widen(frequencies) / scale


@checked
def ntk_aware(frequencies: Floats[Tensor, "heads pairs 1"], scale: Scale) -> Tensor:
    r"""Return the frequencies of RoPE with a larger base (NTK-aware scaling), :eq:`eq-scale-ntk`.

    The highest frequency does not change, and the lowest is divided by ``scale``. The function does
    not need the base: it divides the frequency of pair i of n pairs by :math:`s^{i/(n-1)}`. For
    scaling that depends on the length of the text, see :class:`DynamicNTK`.

    Args:
        frequencies: Frequencies in one coordinate, in descending order, ``(heads, pairs, 1)``, with
            at least two pairs.
        scale: The factor :math:`s \ge 1`: the new length divided by the length in training.

    Returns:
        The scaled frequencies, float64, of the same shape. For RoPE with base b and d
        channels, the scaled frequencies are those of base :math:`b\,s^{d/(d-2)}`.

    Raises:
        ValueError: If ``frequencies`` have fewer than two pairs.

    Source:
        Peng et al. 2024 (YaRN), on NTK-aware interpolation.
    """
    _require_two_pairs(frequencies, "NTK-aware scaling")
    pairs = frequencies.shape[1]
    index = torch.arange(pairs, device=frequencies.device)
    return widen(frequencies) * float(scale) ** -(widen(index)[:, None] / (pairs - 1))


@checked
def yarn(
    frequencies: Floats[Tensor, "heads pairs coord_dim"],
    scale: Scale,
    length: Positive,
    *,
    slow: Positive = 1.0,
    fast: Positive = 32.0,
) -> Tensor:
    r"""Return frequencies scaled by YaRN, :eq:`eq-scale-yarn`.

    Within the length T of training, a pair with the frequency vector ω makes
    :math:`r = T\,\|\omega\| / 2\pi` full turns. If r is at least ``fast``, the frequency does not
    change. If r is at most ``slow``, the frequency is divided by ``scale``. Between these limits,
    the factor of the frequency is linear in r. In most released code, this factor is linear in the
    index of the pair instead, see :func:`yarn_by_index`. YaRN also scales the logits, see
    :func:`yarn_attention_factor`.

    The scaling of Llama 3.1 is this function with ``slow=1`` and ``fast=4`` (``low_freq_factor``
    and ``high_freq_factor`` in the configuration), without the scaling of the logits.

    Args:
        frequencies: The frequencies Ω, ``(heads, pairs, coord_dim)``. With several coordinates,
            :math:`\|\omega\|` is the norm of the frequency vector of a pair, whose direction does
            not change.
        scale: The factor :math:`s \ge 1`: the new length divided by the length in training.
        length: The length T in training, in units of position.
        slow: Number of full turns up to which a frequency is divided by ``scale``. Default: 1.
        fast: Number of full turns from which a frequency does not change. Default: 32.

    Returns:
        The scaled frequencies, float64, of the same shape.

    Raises:
        ValueError: If ``fast`` is not above ``slow``.

    Source:
        Peng et al. 2024 (YaRN). The default values are those of the paper for the Llama family.
    """
    _require_ramp(slow, fast)
    wide = widen(frequencies)
    turns = wide.norm(dim=-1, keepdim=True) * (length / (2 * math.pi))
    keep = ((turns - slow) / (fast - slow)).clamp(0, 1)
    return wide * (keep + (1 - keep) / scale)


@checked
def yarn_by_index(
    frequencies: Floats[Tensor, "heads pairs 1"],
    scale: Scale,
    length: Positive,
    *,
    slow: Positive = 1.0,
    fast: Positive = 32.0,
    truncate: bool = True,
) -> Tensor:
    r"""Return frequencies scaled by YaRN in the form of most released code.

    The result differs from that of :func:`yarn` for the pairs that make between ``slow`` and
    ``fast`` full turns in training. For these pairs, the factor of the frequency is linear in the
    *index* of the pair, :eq:`eq-model-index`. By default the ends of this range of pairs are
    rounded outwards to whole pairs. With base 10,000, 128 channels, T = 4096 and s = 8, the results
    of the two functions differ by more than 1 % in 25 of 64 frequencies. Use the function that
    agrees with the code with which a checkpoint was trained.

    Args:
        frequencies: Frequencies in one coordinate, a geometric sequence in descending order,
            ``(heads, pairs, 1)``, with at least two pairs.
        scale: The factor :math:`s \ge 1`: the new length divided by the length in training.
        length: The length T in training, in units of position.
        slow: Number of full turns at which the range ends (``beta_slow``). Default: 1.
        fast: Number of full turns at which the range begins (``beta_fast``). Default: 32.
        truncate: If True (default), the ends of the range are rounded outwards to whole pairs.

    Returns:
        The scaled frequencies, float64, of the same shape.

    Raises:
        ValueError: If ``fast`` is not above ``slow``, or if there are fewer than two pairs.

    Source:
        Peng et al. 2024 (YaRN), their code.
    """
    _require_ramp(slow, fast)
    _require_two_pairs(frequencies, "YaRN by index")
    wide = widen(frequencies)
    pairs = wide.shape[1]
    turns = (wide * (length / (2 * math.pi))).log()
    # the logarithm of the turns is linear in the index: solve for the indices of the two ends
    step = (turns[:, -1:] - turns[:, :1]) / (pairs - 1)
    first, last = ((math.log(ends) - turns[:, :1]) / step for ends in (fast, slow))
    if truncate:
        first, last = first.floor(), last.ceil()
    first, last = first.clamp(min=0), last.clamp(max=2 * pairs - 1)
    index = widen(torch.arange(pairs, device=wide.device))[:, None]
    ramp = ((index - first) / torch.where(last == first, 1e-3, last - first)).clamp(0, 1)
    return wide * (1 - ramp + ramp / scale)


@checked
def long_rope(
    frequencies: Floats[Tensor, "heads pairs coord_dim"], factors: Floats[Tensor, "pairs"]
) -> Tensor:
    """Return the frequencies of pairs, each divided by a factor of its own (LongRoPE).

    The authors of a checkpoint find the factors by a search.

    Args:
        frequencies: The frequencies Ω, ``(heads, pairs, coord_dim)``.
        factors: One factor for each pair, ``(pairs,)``. A checkpoint has a list ``short_factor``
            for texts up to the length in training, and a list ``long_factor`` for longer texts.

    Returns:
        The scaled frequencies, float64, of the same shape.

    Source:
        Ding et al. 2024 (LongRoPE).
    """
    return widen(frequencies) / widen(factors)[:, None]


class Beyond(nn.Module):
    """Choice between two sets of frequencies by the length of the text, as in LongRoPE's code.

    Args:
        encoder: Encoder whose frequencies are used for texts longer than ``length``.
        length: The length T in training, in tokens.
        scale: Factor of the cosines and sines for texts longer than ``length``. Default: 1.

    Source:
        Ding et al. 2024 (LongRoPE).
    """

    @checked
    def __init__(self, encoder: RotaryEncoder, length: int, scale: Positive = 1.0) -> None:
        super().__init__()
        self.encoder, self.length, self.scale = encoder, int(length), float(scale)

    def forward(self, frequencies: Tensor, scale: float, length: Tensor) -> tuple[Tensor, Any]:
        """Return the frequencies and the factor of cosines and sines for a text.

        Args:
            frequencies: The frequencies Ω for short texts, with all pairs,
                ``(heads, head_dim // 2, coord_dim)``.
            scale: Factor of cosines and sines for short texts.
            length: Number of tokens of the text, an integer tensor.

        Returns:
            The frequencies for the text, in the shape of ``frequencies``, and the factor for the
            text.

        Raises:
            ValueError: If the frequencies for longer texts have another shape than those for short
                texts.
        """
        longer = length > self.length
        own = self.encoder._all_frequencies().to(frequencies)
        if own.shape != frequencies.shape:
            raise ValueError(
                f"encoder must have frequencies of shape {tuple(frequencies.shape)}, got "
                f"{tuple(own.shape)}. Pass an encoder with as many heads, pairs and coordinates as "
                "the frequencies for short texts."
            )
        return torch.where(longer, own, frequencies), torch.where(longer, self.scale, scale)

    def extra_repr(self) -> str:
        """Return the arguments that ``repr`` shows."""
        return f"length={self.length}, scale={self.scale:g}"


class DynamicNTK(Derived):
    r"""NTK-aware frequencies that depend on the length of the text (dynamic NTK scaling).

    Let T be the length in training and s the argument ``scale``. The frequencies are those of
    :func:`ntk_aware` with the scale :math:`s\,L/T - s + 1`. Here L is T at first, and grows to the
    length of each text that is longer than L. As in released code, a text shorter than T sets L
    back to T. So texts shorter than T have the original frequencies. A text of exactly T tokens has
    the original frequencies unless L is larger because of an earlier text. In decoding, the
    frequencies change whenever the text becomes longer than L. Keys that are already in a cache
    were then rotated with other frequencies than the new queries.

    Args:
        scale: The factor s, called ``factor`` in configurations.
        length: The length T in training, in tokens.

    Source:
        Peng et al. 2024 (YaRN), on dynamic scaling.
    """

    longest: Tensor

    @checked
    def __init__(self, scale: Positive, length: int) -> None:
        super().__init__()
        self.scale, self.length = float(scale), int(length)
        self.register_buffer("longest", torch.tensor(self.length), persistent=False)

    def reset_non_persistent_buffers(self) -> None:
        """Set the greatest length of a text to the length in training."""
        self.longest.fill_(self.length)

    def forward(self, frequencies: Tensor, scale: float, length: Tensor) -> tuple[Tensor, Any]:
        """Return the frequencies for a text, and the unchanged factor of cosines and sines.

        Args:
            frequencies: The frequencies Ω for short texts in one coordinate, ``(heads, pairs, 1)``.
            scale: Factor of cosines and sines.
            length: Number of tokens of the text, an integer tensor.

        Returns:
            The frequencies for the text, in the shape of ``frequencies``, and ``scale`` unchanged.
        """
        longest = torch.maximum(self.longest, length)
        self.longest.copy_(torch.where(length < self.length, self.length, longest))
        stretch = self.scale * widen(self.longest) / self.length - self.scale + 1
        index = torch.arange(frequencies.shape[-2], device=frequencies.device)
        return frequencies * stretch ** -(widen(index)[:, None] / (len(index) - 1)), scale

    def extra_repr(self) -> str:
        """Return the arguments that ``repr`` shows."""
        return f"scale={self.scale:g}, length={self.length}"


@checked
def long_rope_attention_factor(scale: Scale, length: Positive) -> float:
    r"""Return LongRoPE's attention factor, which multiplies **both** q and k.

    The factor is :math:`\sqrt{1 + \ln s/\ln T}`, with s the ``scale`` and T the ``length``. In
    released code the factor multiplies only the rotating channels.

    Args:
        scale: The factor :math:`s \ge 1`: the new length divided by the length in training.
        length: The length T in training, in units of position; must be above 1.

    Raises:
        ValueError: If ``length`` is not above 1.

    Source:
        Ding et al. 2024 (LongRoPE).
    """
    if length <= 1:
        raise ValueError(f"length must be above 1, got {length}")
    return math.sqrt(1 + math.log(scale) / math.log(length))


@checked
def yarn_attention_factor(scale: Scale, weight: Positive = 1.0) -> float:
    r"""Return YaRN's attention factor, which multiplies **both** q and k.

    The factor is :math:`0.1\,c \ln s + 1`, with s the ``scale`` and c the ``weight``. So scores are
    multiplied by the square of the factor. The paper divides scores by a temperature t and sets
    :math:`\sqrt{1/t} = 0.1 \ln s + 1`.

    Args:
        scale: The factor :math:`s \ge 1`: the new length divided by the length in training.
        weight: The number c. Default: 1, the value of the paper. A checkpoint may have two values
            of c, ``mscale`` and ``mscale_all_dim``. Its code multiplies q and k by the factor of
            ``mscale`` divided by that of ``mscale_all_dim``, and multiplies the scale of softmax by
            the square of the latter factor.

    Source:
        Peng et al. 2024 (YaRN), the section on attention scaling.
    """
    return 0.1 * weight * math.log(scale) + 1


def _require_two_pairs(frequencies: Tensor, what: str) -> None:
    if frequencies.shape[1] < 2:
        raise ValueError(
            f"frequencies must have at least 2 pairs for {what}, got shape "
            f"{tuple(frequencies.shape)}"
        )


def _require_ramp(slow: float, fast: float) -> None:
    if fast <= slow:
        raise ValueError(f"fast must be above slow = {slow}, got {fast}")
