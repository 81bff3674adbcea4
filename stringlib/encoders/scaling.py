"""Frequencies for texts longer than those in training: interpolation, NTK-aware scaling, YaRN.

Each function takes Ω, ``(heads, pairs, coord_dim)``, as ``encoder.frequencies()`` gives it, and
returns another: ``STRING(yarn(RoPE(64).frequencies(), scale=4, length=2048))``.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stringlib.inputs import require_floats, require_positive
from stringlib.precision import widen


def position_interpolation(frequencies: Tensor, scale: float) -> Tensor:
    r"""Slow every pair down by the same factor, equation :eq:`eq-scale-interpolation`.

    The same as dividing all positions by ``scale``.

    Args:
        frequencies: Ω, ``(heads, pairs, coord_dim)``.
        scale: :math:`s \ge 1`, the new length over the length in training.

    Returns:
        :math:`\theta_i / s`, float64, of the same shape.

    Raises:
        TypeError: If ``frequencies`` is not a floating-point tensor or ``scale`` not a number.
        ValueError: If a shape does not fit or ``scale`` is below 1.

    Source:
        Chen et al. 2023.
    """
    _require(frequencies, scale)
    return widen(frequencies) / scale


def ntk_aware(frequencies: Tensor, scale: float) -> Tensor:
    r"""Raise the base: the fastest pair stays, the slowest is divided by ``scale``.

    Equation :eq:`eq-scale-ntk`, in a form that does not need the base: pair i of n is divided by
    :math:`s^{i/(n-1)}`.

    Args:
        frequencies: Those of one coordinate, fastest pair first: ``(heads, pairs, 1)`` with at
            least two pairs. One pair alone cannot be the fastest and the slowest.
        scale: :math:`s \ge 1`, the new length over the length in training.

    Returns:
        For RoPE with base b the frequencies of base :math:`b\,s^{d/(d-2)}`; float64, of the
        same shape.

    Raises:
        TypeError: If ``frequencies`` is not a floating-point tensor or ``scale`` not a number.
        ValueError: If a shape does not fit or ``scale`` is below 1.

    Source:
        Peng et al. 2024 (YaRN), on NTK-aware interpolation.
    """
    _require(frequencies, scale)
    _, pairs, coord_dim = frequencies.shape
    if coord_dim != 1 or pairs < 2:
        raise ValueError(
            "frequencies must have shape (heads, at least 2 pairs, 1) for NTK-aware scaling, "
            f"got {tuple(frequencies.shape)}"
        )
    place = torch.arange(pairs, device=frequencies.device)
    return widen(frequencies) * float(scale) ** -(widen(place)[:, None] / (pairs - 1))


def yarn(
    frequencies: Tensor, scale: float, length: float, *, slow: float = 1.0, fast: float = 32.0
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
        TypeError: If ``frequencies`` is not a floating-point tensor or a number is none.
        ValueError: If a shape does not fit, ``scale`` is below 1, ``length`` or ``slow`` not
            positive, or ``fast`` not above ``slow``.

    Source:
        Peng et al. 2024 (YaRN), with the values for the Llama family.
    """
    _require(frequencies, scale)
    for name, value in (("length", length), ("slow", slow), ("fast", fast)):
        require_positive(name, value)
    if fast <= slow:
        raise ValueError(f"fast must be above slow={slow}, got {fast}")
    wide = widen(frequencies)
    turns = wide.norm(dim=-1, keepdim=True) * (length / (2 * math.pi))
    keep = ((turns - slow) / (fast - slow)).clamp(0, 1)
    return wide * (keep + (1 - keep) / scale)


def yarn_attention_factor(scale: float) -> float:
    r"""Return YaRN's factor :math:`0.1 \ln s + 1`, which multiplies **both** q and k.

    So it multiplies scores by its square: YaRN divides scores by a temperature t and sets
    :math:`\sqrt{1/t} = 0.1 \ln s + 1`.

    Args:
        scale: :math:`s \ge 1`, the new length over the length in training.

    Raises:
        TypeError: If ``scale`` is not a number.
        ValueError: If it is below 1.

    Source:
        Peng et al. 2024 (YaRN), the section on attention scaling.
    """
    _require_scale(scale)
    return 0.1 * math.log(scale) + 1


def _require(frequencies: Tensor, scale: float) -> None:
    require_floats("frequencies", frequencies)
    if frequencies.ndim != 3:
        raise ValueError(
            f"frequencies must have shape (heads, pairs, coord_dim), got {tuple(frequencies.shape)}"
        )
    _require_scale(scale)


def _require_scale(scale: float) -> None:
    require_positive("scale", scale)
    if scale < 1:
        raise ValueError(f"scale must be at least 1, got {scale}")
