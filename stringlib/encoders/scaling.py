"""Frequencies for texts longer than those in training: interpolation, NTK, YaRN, LongRoPE.

Each function takes Ω, ``(heads, pairs, coord_dim)``, as ``encoder.frequencies()`` gives it, and
returns another: ``STRING(yarn(RoPE(64).frequencies(), scale=4, length=2048))``.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from stringlib.derived import Derived
from stringlib.encoders.string import RotaryEncoder
from stringlib.precision import widen
from stringlib.spec import Floats, Positive, Scale, checked


@checked
def position_interpolation(
    frequencies: Floats[Tensor, "heads pairs coord_dim"], scale: Scale
) -> Tensor:
    r"""Slow every pair down by the same factor, equation :eq:`eq-scale-interpolation`.

    The same as dividing all positions by ``scale``.

    Args:
        frequencies: Ω, ``(heads, pairs, coord_dim)``.
        scale: :math:`s \ge 1`, the new length over the length in training.

    Returns:
        :math:`\theta_i / s`, float64, of the same shape.

    Source:
        Chen et al. 2023.
    """
    return widen(frequencies) / scale


@checked
def ntk_aware(frequencies: Floats[Tensor, "heads pairs 1"], scale: Scale) -> Tensor:
    r"""Raise the base: the fastest pair stays, the slowest is divided by ``scale``.

    Equation :eq:`eq-scale-ntk`, in a form that does not need the base: pair i of n is divided by
    :math:`s^{i/(n-1)}`.

    Args:
        frequencies: Those of one coordinate, fastest pair first: ``(heads, pairs, 1)`` with at
            least two pairs. One pair alone cannot be the fastest and the slowest.
        scale: :math:`s \ge 1`, the new length over the length in training.

    Returns:
        For RoPE with base b the frequencies of base :math:`b\,s^{d/(d-2)}`; float64, of the
        same shape. What released code calls *dynamic* is this with
        :math:`s' = s\,L/T - s + 1` for the present length L, above the length T of training.

    Source:
        Peng et al. 2024 (YaRN), on NTK-aware interpolation.
    """
    _require_two_pairs(frequencies, "NTK-aware scaling")
    pairs = frequencies.shape[1]
    place = torch.arange(pairs, device=frequencies.device)
    return widen(frequencies) * float(scale) ** -(widen(place)[:, None] / (pairs - 1))


@checked
def yarn(
    frequencies: Floats[Tensor, "heads pairs coord_dim"],
    scale: Scale,
    length: Positive,
    *,
    slow: Positive = 1.0,
    fast: Positive = 32.0,
) -> Tensor:
    r"""Slow down the pairs that hardly turned in training, equation :eq:`eq-scale-yarn`.

    A pair makes :math:`r = T\,\|\omega\| / 2\pi` turns in training. With ``fast`` turns or more
    it stays; with ``slow`` turns or fewer it is divided by ``scale``; between the two the factor
    is linear in r. Released code makes it linear in the number of the pair instead.
    See also :func:`yarn_attention_factor`, the other half of the method. Without it, and with
    ``slow`` and ``fast`` the two frequency factors of a Llama 3 checkpoint, 1 and 4, this is the
    scaling of Llama 3.

    Args:
        frequencies: Ω, ``(heads, pairs, coord_dim)``. With several coordinates
            :math:`\|\omega\|` is the norm of a row, so that no pair changes its direction.
        scale: :math:`s \ge 1`, the new length over the length in training.
        length: T, the length in training, in units of position.
        slow: Turns up to which a pair is interpolated.
        fast: Turns from which a pair is left alone.

    Returns:
        Float64, of the same shape.

    Raises:
        ValueError: If ``fast`` is not above ``slow``.

    Source:
        Peng et al. 2024 (YaRN), with the values for the Llama family.
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
    r"""Slow down the pairs that hardly turned in training, as released code does.

    As :func:`yarn`, but between the pairs that make ``fast`` and ``slow`` turns in training the
    factor is linear in the *number* of the pair, :eq:`eq-model-index`, and these ends are rounded
    outwards. At base 10,000, d = 128 and s = 8 the two forms differ by more than 1 % in 25 of 64
    pairs; a checkpoint needs the one that it was trained with.

    Args:
        frequencies: Those of one coordinate, a geometric sequence with the fastest pair first:
            ``(heads, pairs, 1)`` with at least two pairs.
        scale: :math:`s \ge 1`, the new length over the length in training.
        length: T, the length in training, in units of position.
        slow: Turns at which the ramp ends: ``beta_slow``.
        fast: Turns at which it begins: ``beta_fast``.
        truncate: Whether its ends are rounded to whole pairs.

    Returns:
        Float64, of the same shape.

    Raises:
        ValueError: If ``fast`` is not above ``slow``.

    Source:
        Peng et al. 2024 (YaRN), their code.
    """
    _require_ramp(slow, fast)
    _require_two_pairs(frequencies, "YaRN by index")
    wide = widen(frequencies)
    pairs = wide.shape[1]
    turns = (wide * (length / (2 * math.pi))).log()
    # log turns fall linearly from pair to pair: where they are those of the two ends
    step = (turns[:, -1:] - turns[:, :1]) / (pairs - 1)
    first, last = ((math.log(ends) - turns[:, :1]) / step for ends in (fast, slow))
    if truncate:
        first, last = first.floor(), last.ceil()
    first, last = first.clamp(min=0), last.clamp(max=2 * pairs - 1)
    place = widen(torch.arange(pairs, device=wide.device))[:, None]
    ramp = ((place - first) / torch.where(last == first, 1e-3, last - first)).clamp(0, 1)
    return wide * (1 - ramp + ramp / scale)


@checked
def long_rope(
    frequencies: Floats[Tensor, "heads pairs coord_dim"], factors: Floats[Tensor, "pairs"]
) -> Tensor:
    """Divide each pair by a factor of its own, found by a search for a checkpoint.

    Args:
        frequencies: Those of one coordinate, ``(heads, pairs, 1)``.
        factors: ``(pairs,)``: a checkpoint's ``short_factor`` up to the length in training, its
            ``long_factor`` beyond.

    Returns:
        Float64, of the shape of ``frequencies``.

    Source:
        Ding et al. 2024 (LongRoPE).
    """
    return widen(frequencies) / widen(factors)[:, None]


class Beyond(nn.Module):
    """Other frequencies, and another factor, beyond a length: LongRoPE in released code.

    Args:
        encoder: Of texts that are longer.
        length: T, the length in training, in tokens.
        scale: Multiplies cosines and sines of longer texts.

    Source:
        Ding et al. 2024 (LongRoPE).
    """

    @checked
    def __init__(self, encoder: RotaryEncoder, length: int, scale: Positive = 1.0) -> None:
        super().__init__()
        self.encoder, self.length, self.scale = encoder, int(length), float(scale)

    def forward(self, frequencies: Tensor, scale: float, length: Tensor) -> tuple[Tensor, Any]:
        """Return Ω and the factor for a text of ``length`` tokens, given those of short texts."""
        longer = length > self.length
        own = self.encoder._all_frequencies().to(frequencies)
        if own.shape != frequencies.shape:
            raise ValueError(
                "encoder must have as many heads, pairs and coordinates as that of short texts, "
                f"{tuple(frequencies.shape)}, got {tuple(own.shape)}"
            )
        return torch.where(longer, own, frequencies), torch.where(longer, self.scale, scale)

    def extra_repr(self) -> str:
        """Describe the arguments in ``repr``."""
        return f"length={self.length}, scale={self.scale:g}"


class DynamicNTK(Derived):
    r"""The frequencies of :func:`ntk_aware`, by the length of the text: *dynamic* in released code.

    For a text of L tokens, longer than the T in training, the scale is
    :math:`s\,L/T - s + 1`. As in released code the longest text is remembered until one comes that
    is shorter than T, so that keys in a cache and new queries agree for a little longer.

    Args:
        scale: s, ``factor`` of the configuration.
        length: T, in tokens.

    Source:
        Peng et al. 2024 (YaRN), on dynamic scaling.
    """

    longest: Tensor

    @checked
    def __init__(self, scale: Positive, length: int) -> None:
        super().__init__()
        self.scale, self.length = float(scale), int(length)
        self.register_buffer("longest", torch.tensor(self.length), persistent=False)

    def _refill(self) -> None:
        self.longest.fill_(self.length)

    def forward(self, frequencies: Tensor, scale: float, length: Tensor) -> tuple[Tensor, Any]:
        """Return Ω and the factor for a text of ``length`` tokens, given those of short texts."""
        longest = torch.maximum(self.longest, length)
        self.longest.copy_(torch.where(length < self.length, self.length, longest))
        stretch = self.scale * widen(self.longest) / self.length - self.scale + 1
        place = torch.arange(frequencies.shape[-2], device=frequencies.device)
        return frequencies * stretch ** -(widen(place)[:, None] / (len(place) - 1)), scale

    def extra_repr(self) -> str:
        """Describe the arguments in ``repr``."""
        return f"scale={self.scale:g}, length={self.length}"


@checked
def long_rope_attention_factor(scale: Scale, length: Positive) -> float:
    r"""Return LongRoPE's factor :math:`\sqrt{1 + \ln s/\ln T}`, which multiplies **both** q and k.

    Channels that never turn escape it in released code.

    Args:
        scale: :math:`s \ge 1`, the new length over the length in training.
        length: T, the length in training, in units of position, above 1.

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
    r"""Return YaRN's factor :math:`0.1\,c \ln s + 1`, which multiplies **both** q and k.

    So it multiplies scores by its square: YaRN divides scores by a temperature t and sets
    :math:`\sqrt{1/t} = 0.1 \ln s + 1`.

    Args:
        scale: :math:`s \ge 1`, the new length over the length in training.
        weight: c, 1 in the paper. A checkpoint with ``mscale`` and ``mscale_all_dim`` has the
            quotient of the two factors here and the square of the latter in its softmax scale.

    Source:
        Peng et al. 2024 (YaRN), the section on attention scaling.
    """
    return 0.1 * weight * math.log(scale) + 1


def _require_two_pairs(frequencies: Tensor, what: str) -> None:
    if frequencies.shape[1] < 2:
        raise ValueError(
            f"frequencies must be of at least 2 pairs for {what}, got {tuple(frequencies.shape)}"
        )


def _require_ramp(slow: float, fast: float) -> None:
    if fast <= slow:
        raise ValueError(f"fast must be above slow={slow}, got {fast}")
