"""Signs for the Cayley transform: what they reach, and in how many swaps."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from lab.theory.cayley_signs import (
    cayley_signs,
    first_signs,
    hard_matrix,
    inverse_cayley,
    most_swaps,
)
from stringlib.algebra import cayley
from stringlib.testing import properties


def haar(size: int, seed: int) -> Tensor:
    return torch.from_numpy(
        np.linalg.qr(np.random.default_rng(seed).standard_normal((size, size)))[0]
    )


def hard(size: int) -> dict[str, Tensor]:
    eye, line = torch.eye(size, dtype=torch.float64), torch.arange(1.0, size + 1).double()
    return {
        "minus the identity": -eye,
        "a cycle": eye.roll(1, 0),
        "a mirror": eye - 2 * torch.outer(line, line) / line.square().sum(),
        "random": haar(size, 0),
        "another": haar(size, 1),
    }


@pytest.mark.proves("eq-cayley-swaps")
@pytest.mark.parametrize("size", [1, 2, 3, 7, 16, 65])
@pytest.mark.parametrize("excess", [1e-9, 0.01, 0.5])
def test_the_signs_bring_every_matrix_within_reach(size: int, excess: float) -> None:
    for name, matrix in hard(size).items():
        signs, swaps = cayley_signs(matrix, excess)
        assert set(signs.tolist()) <= {1.0, -1.0}
        skew = inverse_cayley(matrix * signs)
        assert properties.skew_error(skew) < 1e-10, name
        assert skew.abs().max() <= 1 + excess
        assert properties.largest_difference(cayley(skew), matrix * signs) < 1e-10
        assert swaps <= most_swaps(size, excess)


@pytest.mark.proves("eq-cayley-swaps")
@pytest.mark.parametrize("size", [2, 5, 12])
def test_the_first_signs_leave_a_determinant_of_1_and_a_swap_multiplies_by_a_square(
    size: int,
) -> None:
    for matrix in hard(size).values():
        signs = first_signs(matrix)
        eye = np.eye(size)
        before = abs(np.linalg.det(eye + (matrix * signs).numpy()))
        assert 1 - 1e-12 <= before <= 2**size * (1 + 1e-12)
        skew = inverse_cayley(matrix * signs)
        for i, j in itertools.combinations(range(size), 2):
            swapped = signs.clone()
            swapped[[i, j]] *= -1
            after = abs(np.linalg.det(eye + (matrix * swapped).numpy()))
            assert after == pytest.approx(before * skew[i, j].item() ** 2, rel=1e-8, abs=1e-9)


@pytest.mark.proves("eq-cayley-swaps-worst")
@pytest.mark.parametrize("excess", [1e-9, 0.01, 0.41, 0.42, 1.0, 5.0])
@pytest.mark.parametrize("size", [1, 3, 7, 48])
def test_a_hard_matrix_needs_a_swap_in_each_block(size: int, excess: float) -> None:
    matrix = hard_matrix(size, excess)
    eye = torch.eye(size, dtype=torch.float64)
    assert properties.largest_difference(matrix @ matrix.mT, eye) < 1e-12
    assert (first_signs(matrix) == 1).all()
    channels = 1
    while 2 ** ((channels - 2) / 2) <= 1 + excess:  # the largest entry of S that a block can have
        channels += 1
    assert size // channels <= cayley_signs(matrix, excess)[1] <= most_swaps(size, excess)
