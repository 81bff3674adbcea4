"""The mean square error of circulant features, in closed form and for every choice of signs."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor


def circulant_error(z: Tensor) -> float:
    r"""Return :math:`\frac1d \sum_\delta (e^{A_\delta} - 1)` for a full circulant of Gaussian rows.

    Equation :eq:`eq-torus-circulant-error`: the mean square error of the estimate of
    :math:`e^{x^\top y}`, relative to its square, with z = x + y and the cyclic autocorrelation
    :math:`A_\delta = \sum_n z_n z_{n+\delta}`. With signs, z is what they make of x + y.

    Args:
        z: ``(d,)``.
    """
    values = [float(entry) for entry in z]
    d, total = len(values), 0.0
    for delta in range(d):
        total += math.exp(sum(values[n] * values[(n + delta) % d] for n in range(d))) - 1
    return total / d


def signed_circulant_error(z: Tensor) -> float:
    """Return the mean of :func:`circulant_error` over all signs, 2^d of them.

    Equation :eq:`eq-torus-circulant-error`.

    Args:
        z: ``(d,)``, for small d.
    """
    choices = itertools.product((1.0, -1.0), repeat=len(z))
    errors = [circulant_error(z * torch.tensor(signs, dtype=z.dtype)) for signs in choices]
    return sum(errors) / len(errors)
