r"""The Cayley transform: every skew-symmetric matrix becomes a rotation."""

from __future__ import annotations

import torch
from torch import Tensor


def cayley(skew: Tensor) -> Tensor:
    r"""Return :math:`P = (I - S)(I + S)^{-1}`, equation :eq:`eq-cayley-transform`.

    The eigenvalues of S are imaginary, so I + S is invertible for every S,
    :eq:`eq-cayley-determinant`. P is orthogonal, has determinant 1 and no eigenvalue −1; of two
    channels it turns the plane, :eq:`eq-cayley-plane`. One solve for all matrices, no inverse.

    Args:
        skew: Skew-symmetric, float64 for an exact result, ``(..., d, d)``.

    Returns:
        Orthogonal to rounding, however large S is, ``(..., d, d)``.

    Source:
        Cayley 1846; Schenck et al. 2025, section on Cayley-STRING.
    """
    eye = torch.eye(skew.shape[-1], dtype=skew.dtype, device=skew.device)
    # the two factors commute, so one solve does; solve_ex because solve waits for the device
    # to learn that I + S is regular, which it is
    solution = torch.linalg.solve_ex(eye + skew, eye - skew).result
    # The solve loses up to ‖S‖ ε (1e-11 at ‖S‖ = 1e5). One Newton step towards the nearest
    # orthogonal matrix takes that to ε. It fixes every orthogonal matrix, so it needs no gradient.
    exact = solution.detach()
    return solution + 0.5 * (exact - exact @ (exact.mT @ exact))
