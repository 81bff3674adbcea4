r"""Keys whose scale is kept apart, as a logarithm: sums that neither overflow nor look ahead.

Key j stands for :math:`e^{s_j}\phi(k_j)`. A sum is divided by the largest factor that it sees,
which cancels when numerator and denominator are divided by each other. A causal sum has seen
:math:`c_i = \max_{j \le i} s_j`. When c grows, what the state holds shrinks by
:math:`e^{c_{i-1} - c_i} \le 1`: this is a decay, and the kernels of decay serve it.
"""

from __future__ import annotations

import torch
from torch import Tensor


def hide(key_scale: Tensor, kept: Tensor) -> Tensor:
    """Return scales in which a hidden key has the least of the others: it is never a maximum."""
    if not key_scale.numel():
        return key_scale
    least = key_scale.masked_fill(~kept, float("inf")).amin(-1, keepdim=True)
    return torch.where(kept, key_scale, least.masked_fill(least == float("inf"), 0))


def running_maximum(key_scale: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return c and the logarithm of the decay that its growth means, both ``(..., n)``.

    Args:
        key_scale: s, ``(..., n)`` with n ≥ 1.
        before: c of the token before the first, ``(...)``; None if there was none.
    """
    first = key_scale[..., :1] if before is None else before[..., None]
    largest = torch.maximum(key_scale.cummax(-1).values, first)
    return largest, torch.cat([first.expand_as(largest[..., :1]), largest[..., :-1]], -1) - largest
