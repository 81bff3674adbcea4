"""Orthogonal matrices drawn uniformly (from the Haar measure)."""

from __future__ import annotations

import torch
from torch import Tensor

from stringlib.spec import checked


@checked
def haar_orthogonal(
    size: int,
    *batch: int,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    r"""Draw orthogonal matrices from the Haar measure.

    The QR factors of a Gaussian matrix are unique only up to the signs of R's
    diagonal, and the signs that LAPACK happens to return are not random: without
    the correction by ``sign(diag R)`` the mean of Q is not zero and features built
    from it are biased.

    Args:
        size: The size :math:`d`.
        *batch: Leading dimensions of the result.
        generator: Source of randomness; the global one if omitted.
        dtype: A floating dtype; PyTorch's default if omitted.

    Returns:
        A tensor of shape ``(*batch, size, size)``.

    Source:
        Mezzadri, "How to generate random matrices from the classical compact groups" (2007).
    """
    gaussian = torch.randn(*batch, size, size, generator=generator, dtype=dtype)
    q, r = torch.linalg.qr(gaussian)
    return q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
