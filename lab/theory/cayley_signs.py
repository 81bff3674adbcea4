r"""Signs that bring an orthogonal matrix within reach of the Cayley transform, and how many swaps.

Everything is computed in float64.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stringlib.spec import Floats, Positive, checked


@checked
def first_signs(matrix: Floats[Tensor, "d d"]) -> Tensor:
    r"""Return signs E with :math:`|\det(I + QE)| \ge 1`, one after the other.

    Gauss eliminates :math:`Q + E`. Before row i goes, its pivot is some a and a sign is still to be
    added: that of a, so that no pivot is below 1.

    Args:
        matrix: Q, orthogonal, ``(d, d)``.

    Returns:
        1 or −1, float64, ``(d,)``.

    Source:
        As Biborski 2026 (arXiv:2601.16271), who bounds S by it.
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
    r"""Return signs E for which the S of QE has no entry above :math:`1 + \varepsilon` in size.

    From :func:`first_signs` on, the two signs of the largest entry change as long as it is larger.
    Each time the determinant grows by its square, so there are no more swaps than
    :func:`most_swaps`, equation :eq:`eq-cayley-swaps`.

    Args:
        matrix: Q, orthogonal, ``(d, d)``.
        excess: :math:`\varepsilon > 0`.

    Returns:
        The signs, float64, ``(d,)``, with QE the Cayley transform of a skew-symmetric S, and the
        number of swaps.

    Raises:
        ValueError: If ``matrix`` has no entry.

    Source:
        The determinant that grows: O'Dorney 2014, who takes the largest of all.
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
    r"""Return the most swaps, :math:`d \ln 2 / 2\ln(1 + \varepsilon)` rounded down.

    Equation :eq:`eq-cayley-swaps`.

    Args:
        size: d.
        excess: :math:`\varepsilon > 0`.
    """
    return int(size * math.log(2) / (2 * math.log1p(excess)))


@checked
def hard_matrix(size: int, excess: Positive) -> Tensor:
    r"""Return a matrix that needs at least as many swaps as :eq:`eq-cayley-swaps-worst` says.

    Its blocks have :math:`3 + \lfloor 2\log_2(1 + \varepsilon)\rfloor` channels, and the S of each
    block has an entry above :math:`1 + \varepsilon`. The first signs are all 1.

    Args:
        size: d. The channels that are left after the last block get 1 on the diagonal.
        excess: :math:`\varepsilon > 0`.

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
    r"""Return :math:`S = (I - P)(I + P)^{-1}`, whose transform P is, :eq:`eq-cayley-transform`.

    Args:
        matrix: P, orthogonal without the eigenvalue −1, ``(d, d)``.

    Returns:
        float64, of the same shape.
    """
    wide = matrix.double()
    eye = torch.eye(len(wide), dtype=wide.dtype, device=wide.device)
    return torch.linalg.solve(eye + wide, eye - wide)  # the two factors commute
