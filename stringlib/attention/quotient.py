"""The quotient of numerator and denominator in linear attention, with gradients that stay finite.

The numerator and the denominator of a query may be so small that the gradient of the quotient
overflows although the quotient itself is of usual size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stringlib.inputs import any_eager, common_shape, per_head
from stringlib.precision import at_least_float32


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
    wide = torch.where(largest < _least(wide.dtype), wide.detach(), wide)
    return wide * torch.exp2(-largest.clamp(min=torch.finfo(wide.dtype).tiny).log2().round())


def has_moderate_rows(phi_q: Tensor) -> Tensor:
    """Return True for each query whose features are all 0, or whose largest feature is above 1e-3.

    The rows of these queries need no scaling by :func:`moderate_rows`.
    """
    largest = phi_q.abs().amax(-1) if phi_q.shape[-1] else phi_q.new_zeros(())
    return (largest == 0) | (largest > 1e-3)


def has_gradient(total: Tensor) -> Tensor:
    """Return True where the gradient of a quotient with the denominator ``total`` is finite."""
    return total.abs() >= _least(total.dtype)


def where_has_gradient(sums: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
    """Return numerator and denominator, detached where the gradient of the quotient overflows.

    A denominator of 0 is replaced by 1.
    """
    kept = has_gradient(total.detach())
    sums, total = (torch.where(kept, x, x.detach()) for x in (sums, total))
    return sums, total.masked_fill(total == 0, 1)


def _least(dtype: torch.dtype) -> float:
    """Return the least denominator of a quotient with a finite gradient, 5e-31 in float32."""
    return float(torch.finfo(dtype).tiny ** 0.8)


def require_no_signs(phi_q: Tensor, phi_k: Tensor, v: Tensor, key_mask: Tensor | None) -> None:
    """Raise ``ValueError`` if a feature on the CPU is negative, unless its key is padding."""
    if key_mask is not None:
        lead = common_shape(*(x.shape[:-2] for x in (phi_q, phi_k, v)))
        padding = ~per_head(key_mask, (*lead, phi_k.shape[-2])).unsqueeze(-1)
        phi_k = phi_k.detach().masked_fill(padding, 0)
    for name, phi in (("phi_q", phi_q), ("phi_k", phi_k)):
        if any_eager(phi, lambda x: x.amin() < 0):
            raise ValueError(
                f"{name} must not be negative, got {phi.min().item():g}, because the denominator "
                "is a sum of products of features. Apply a feature map such as ELUFeatures. In "
                "linear_attention, normalize=False also accepts negative features."
            )
