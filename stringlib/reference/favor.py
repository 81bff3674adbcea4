"""Random features as they are printed: one feature at a time, in float64.

``matrix`` holds the random vectors, one a row. None of these is stabilised.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def positive_features(x: Tensor, matrix: Tensor) -> Tensor:
    r"""Return FAVOR+'s features :math:`e^{\omega_i^\top x - \|x\|^2/2}/\sqrt m`.

    Equation :eq:`eq-favor-features`.

    Args:
        x: ``(..., d)``.
        matrix: The rows :math:`\omega_i`, ``(m, d)``.

    Returns:
        float64, ``(..., m)``.

    Source:
        Choromanski et al. 2021, lemma 1.
    """
    x, matrix = x.double(), matrix.double()
    front = torch.exp(-(x * x).sum(-1) / 2) / math.sqrt(len(matrix))
    return torch.stack([front * torch.exp((x * omega).sum(-1)) for omega in matrix], -1)


def hyperbolic_features(x: Tensor, matrix: Tensor) -> Tensor:
    r"""Return the features of both signs: all :math:`\omega_i`, then all :math:`-\omega_i`.

    Equation :eq:`eq-favor-hyperbolic`.

    Args:
        x: ``(..., d)``.
        matrix: The rows :math:`\omega_i`, ``(m, d)``.

    Returns:
        float64, ``(..., 2m)``.

    Source:
        Choromanski et al. 2021, lemma 1.
    """
    x, matrix = x.double(), matrix.double()
    front = torch.exp(-(x * x).sum(-1) / 2) / math.sqrt(2 * len(matrix))
    plus = [front * torch.exp((x * omega).sum(-1)) for omega in matrix]
    minus = [front * torch.exp(-(x * omega).sum(-1)) for omega in matrix]
    return torch.stack(plus + minus, -1)


def trigonometric_features(x: Tensor, matrix: Tensor) -> Tensor:
    r"""Return the features of sines and cosines, whose products may be negative.

    Equation :eq:`eq-favor-trigonometric`.

    Args:
        x: ``(..., d)``.
        matrix: The rows :math:`\omega_i`, ``(m, d)``.

    Returns:
        float64, ``(..., 2m)``, all cosines first.

    Source:
        Choromanski et al. 2021, section 2.3.
    """
    x, matrix = x.double(), matrix.double()
    front = torch.exp((x * x).sum(-1) / 2) / math.sqrt(len(matrix))
    cosines = [front * torch.cos((x * omega).sum(-1)) for omega in matrix]
    sines = [front * torch.sin((x * omega).sum(-1)) for omega in matrix]
    return torch.stack(cosines + sines, -1)
