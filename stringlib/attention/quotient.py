"""The quotient of numerator and denominator in linear attention, with gradients that stay finite.

The numerator and the denominator of a query may be so small that the gradient of the quotient
overflows although the quotient itself is of usual size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stringlib.inputs import NO_VALUE, any_eager, common_shape, per_head
from stringlib.precision import at_least_float32

SMALLEST = {dtype: torch.finfo(dtype).tiny ** 0.8 for dtype in (torch.float32, torch.float64)}
"""The smallest denominator whose gradient cannot overflow, 5e-31 in float32."""


def moderate_rows(phi_q: Tensor) -> Tensor:
    """Return the features of queries, with each row divided by a power of 2 near its maximum.

    This factor cancels in the quotient of numerator and denominator. Without the factor, numerator
    and denominator could be so small that the gradient of the quotient overflows. If the features
    of a row are so small that the gradient would overflow nevertheless, the row is detached.
    """
    if not phi_q.shape[-1]:
        return phi_q
    wide = phi_q.to(at_least_float32(phi_q.dtype))
    largest = wide.detach().abs().amax(-1, keepdim=True)
    wide = torch.where(largest < SMALLEST[wide.dtype], wide.detach(), wide)
    return wide * torch.exp2(-largest.clamp(min=torch.finfo(wide.dtype).tiny).log2().round())


def has_moderate_rows(phi_q: Tensor) -> Tensor:
    """Return True for each query whose features are all 0, or whose largest feature is above 1e-3.

    The rows of these queries need no scaling by :func:`moderate_rows`.
    """
    largest = phi_q.abs().amax(-1) if phi_q.shape[-1] else phi_q.new_zeros(())
    return (largest == 0) | (largest > 1e-3)


def all_have_gradient(total: Tensor) -> bool:
    """Return whether the gradients of all quotients with the denominators ``total`` are finite.

    If the values cannot be read, because of ``vmap`` or because there are none, return False.
    """
    try:
        return total.detach().abs().min().item() >= SMALLEST[total.dtype]
    except NO_VALUE:
        return False


def where_has_gradient(sums: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
    """Return numerator and denominator, detached where the gradient of the quotient overflows.

    A denominator of 0 is replaced by 1.
    """
    kept = total.detach().abs() >= SMALLEST[total.dtype]
    sums, total = (torch.where(kept, x, x.detach()) for x in (sums, total))
    return sums, total.masked_fill(total == 0, 1)


def require_no_signs(phi_q: Tensor, phi_k: Tensor, v: Tensor, key_mask: Tensor | None) -> None:
    """Raise ``ValueError`` if a feature on the CPU is negative, unless its key is padding."""
    if key_mask is not None:
        lead = common_shape(*(x.shape[:-2] for x in (phi_q, phi_k, v)))
        padding = ~per_head(key_mask, (*lead, phi_k.shape[-2])).unsqueeze(-1)
        phi_k = phi_k.detach().masked_fill(padding, 0)
    for name, phi in (("phi_q", phi_q), ("phi_k", phi_k)):
        if any_eager(phi, lambda x: x.amin() < 0):
            raise ValueError(
                f"{name} must not be negative, got {phi.min().item():g}. The denominator is a "
                "sum of products of features, so negative features can make it 0. Apply a feature "
                "map such as ELUFeatures, or pass normalize=False to linear_attention."
            )
