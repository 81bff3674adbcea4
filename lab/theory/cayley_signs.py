"""Signs with which an orthogonal matrix becomes the Cayley transform of a matrix of small entries.

Everything is computed in float64.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stringlib.spec import Floats, Positive, checked


@checked
def first_signs(matrix: Floats[Tensor, "d d"]) -> Tensor:
    r"""Return signs E with :math:`|\det(I + QE)| \ge 1`, chosen one after the other.

    The function applies Gaussian elimination to :math:`Q + E`. Each sign is chosen when its row is
    eliminated: it is the sign of the pivot without it, so that no pivot is below 1 in absolute
    value.

    Args:
        matrix: The orthogonal matrix Q, ``(d, d)``.

    Returns:
        The signs 1 or −1, float64, ``(d,)``.

    Source:
        As Biborski 2026 (arXiv:2601.16271), who bounds S in this way.
    """
    rest = matrix.double().clone()
    signs = torch.ones(len(rest), dtype=torch.float64, device=rest.device)
    for i in range(len(rest)):
        if rest[i, i] < 0:
            signs[i] = -1.0
        pivot = rest[i, i] + signs[i]
        rest = rest - torch.outer(rest[:, i], rest[i]) / pivot
    return signs


@checked
def cayley_signs(matrix: Floats[Tensor, "d d"], excess: Positive = 0.01) -> tuple[Tensor, int]:
    r"""Return signs E for which no entry of the S of QE exceeds :math:`1 + \varepsilon`.

    The function starts from :func:`first_signs`. As long as the largest entry of S in absolute
    value exceeds the limit, the two signs of its row and column change. Each change multiplies the
    determinant by the square of this entry, so there are at most :func:`most_swaps` changes,
    equation :eq:`eq-cayley-swaps`.

    Args:
        matrix: The orthogonal matrix Q, ``(d, d)``.
        excess: The number :math:`\varepsilon > 0`.

    Returns:
        The signs, float64, ``(d,)``, for which QE is the Cayley transform of a skew-symmetric S,
        and the number of swaps.

    Raises:
        ValueError: If ``matrix`` is empty.

    Source:
        O'Dorney 2014 uses the growth of the determinant, and takes the largest of all determinants.
    """
    if not len(matrix):
        raise ValueError(f"matrix must not be empty, got shape {tuple(matrix.shape)}")
    wide = matrix.double()
    signs, swaps = first_signs(wide), 0
    while True:
        skew = inverse_cayley(wide * signs)
        largest = int(skew.abs().argmax())
        if skew.flatten()[largest].abs() <= 1 + excess:
            return signs, swaps
        signs[[*divmod(largest, len(wide))]] *= -1
        swaps += 1


@checked
def most_swaps(size: int, excess: Positive) -> int:
    r"""Return the largest number of swaps, :math:`d \ln 2 / 2\ln(1 + \varepsilon)` rounded down.

    Equation :eq:`eq-cayley-swaps`.

    Args:
        size: Number d of rows.
        excess: The number :math:`\varepsilon > 0`.
    """
    return int(size * math.log(2) / (2 * math.log1p(excess)))


@checked
def hard_matrix(size: int, excess: Positive) -> Tensor:
    r"""Return a matrix that needs at least as many swaps as :eq:`eq-cayley-swaps-worst` states.

    Its blocks have :math:`3 + \lfloor 2\log_2(1 + \varepsilon)\rfloor` channels, and the S of each
    block has an entry above :math:`1 + \varepsilon`. The first signs are all 1.

    Args:
        size: Number d of rows. If channels remain after the last block, their diagonal entries are
            1.
        excess: The number :math:`\varepsilon > 0`.

    Returns:
        An orthogonal matrix, float64, ``(d, d)``.
    """
    channels = 3 + int(2 * math.log2(1 + excess))
    theta = 0.5
    while theta * (1 + theta**2) ** (channels / 2 - 1) <= 1 + excess:
        theta = (1 + theta) / 2
    skew = torch.zeros(1, 1, dtype=torch.float64)
    for n in range(1, channels):
        sheared = torch.eye(n, dtype=torch.float64) + skew
        row = theta * sheared @ (sheared[-1] / sheared[-1].norm())
        skew = torch.cat(
            [torch.cat([row.new_zeros(1), row])[None], torch.cat([-row[:, None], skew], 1)]
        )
    block = inverse_cayley(skew)  # the transform is its own inverse
    blocks = [block] * (size // channels)
    return torch.block_diag(*blocks, torch.eye(size % channels, dtype=torch.float64))


@checked
def inverse_cayley(matrix: Floats[Tensor, "d d"]) -> Tensor:
    r"""Return the matrix S whose Cayley transform is P, :eq:`eq-cayley-transform`.

    The result is :math:`S = (I - P)(I + P)^{-1}`.

    Args:
        matrix: An orthogonal matrix P without the eigenvalue −1, ``(d, d)``.

    Returns:
        The matrix S, float64, of the same shape.
    """
    wide = matrix.double()
    eye = torch.eye(len(wide), dtype=wide.dtype, device=wide.device)
    return torch.linalg.solve(eye + wide, eye - wide)  # the two factors commute
