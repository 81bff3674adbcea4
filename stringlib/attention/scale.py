r"""Keys whose scale is kept apart, as a logarithm: sums that neither overflow nor look ahead.

Key j stands for :math:`e^{s_j}\phi(k_j)`. A sum is divided by the largest factor that it sees,
which cancels when numerator and denominator are divided by each other. A causal sum has seen
:math:`c_i = \max_{j \le i} s_j`. When c grows, what the state holds shrinks by
:math:`e^{c_{i-1} - c_i} \le 1`: this is a decay, and the kernels of decay serve it.
"""

from __future__ import annotations

import torch
from torch import Tensor

LEAST = -1e30
"""Where no key has been seen, in place of −∞, which has no difference from itself."""


def running_maximum(key_scale: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return c and the logarithm of the decay that its growth means, both ``(..., n)``.

    Args:
        key_scale: s, ``(..., n)`` with n ≥ 1; −∞ for a key that is not there.
        before: c of the token before the first, ``(...)``; None if there was none.
    """
    largest = key_scale.cummax(-1).values.clamp(min=LEAST)
    if before is None:
        first = largest[..., :1]
    else:
        first = before[..., None]
        largest = torch.maximum(largest, first)
    previous = torch.cat([first.expand_as(largest[..., :1]), largest[..., :-1]], -1)
    # before the first key there is nothing to shrink, and so long a step would cost later digits
    return largest, (previous - largest).masked_fill(previous <= LEAST, 0)
