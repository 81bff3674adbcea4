"""Random orthogonal matrices from the Haar measure (the uniform distribution)."""

from __future__ import annotations

import torch
from torch import Tensor

from stringlib.precision import at_least_float32
from stringlib.spec import checked


@checked
def haar_orthogonal(
    size: int,
    *batch: int,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    r"""Draw orthogonal matrices from the Haar measure.

    The result is the factor Q of the QR decomposition of a Gaussian matrix, with each column
    multiplied by the sign of the diagonal entry of R. This correction is necessary: the
    decomposition is unique only up to these signs, and the signs that LAPACK returns are not
    random. Without the correction the mean of Q is not zero, and random features made from Q
    are biased.

    Args:
        size: The size :math:`d`.
        *batch: Leading dimensions of the result.
        generator: Random generator. Default: the global generator of torch.
        dtype: Floating-point dtype of the result. Default: the default dtype of torch.

    Returns:
        Orthogonal matrices, ``(*batch, size, size)``.

    Source:
        Mezzadri, "How to generate random matrices from the classical compact groups" (2007).
    """
    dtype = torch.get_default_dtype() if dtype is None else dtype
    exact = at_least_float32(dtype)  # LAPACK has no half precision
    q, r = torch.linalg.qr(torch.randn(*batch, size, size, generator=generator, dtype=exact))
    return (q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)).to(dtype)
