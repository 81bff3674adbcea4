"""Encoders that are given: a basis and frequencies, or generators; held against SciPy and LieRE."""

from __future__ import annotations

import math

import pytest
import scipy.linalg
import torch
from torch import Tensor

from stringlib import STRING, DenseSTRING
from stringlib.algebra import cayley, fourier_basis, haar_orthogonal, skew
from stringlib.reference import liere_matrix
from stringlib.testing import properties
from stringlib.testing.properties import normal


def generators(size: int, coord_dim: int, heads: int) -> Tensor:
    basis = haar_orthogonal(size, heads, dtype=torch.float64)
    return STRING(normal(heads, size // 2, coord_dim), basis).generators()


@pytest.mark.parametrize("size", [1, 2, 7, 64, 512])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_orthogonal_matrices_of_any_making_are_taken(size: int, dtype: torch.dtype) -> None:
    eye, s = torch.eye(size, dtype=dtype), skew(normal(size * (size - 1) // 2).to(dtype))
    for basis in (
        eye.flip(0),
        haar_orthogonal(size, dtype=dtype),
        fourier_basis(size).to(dtype),
        torch.linalg.solve(eye + s, eye - s),
        cayley(s),
        torch.matrix_exp(s),
    ):
        taken = STRING(torch.ones(1, size // 2, 2), basis[None], head_dim=size)
        assert torch.equal(taken.basis()[0], basis.double())


@pytest.mark.parametrize("size", [1, 2, 9, 65])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_others_are_refused_and_the_message_says_by_how_much(size, dtype) -> None:
    basis = haar_orthogonal(size, 3, dtype=dtype)
    frequencies = torch.ones(3, size // 2, 1)
    one = basis.clone()
    one[2] *= 1.004  # in one head: the diagonal of PᵀP is 1.004²
    with pytest.raises(ValueError, match=r"basis must be orthogonal, .* off by 8\.0e-03"):
        STRING(frequencies, one, head_dim=size)
    for wrong in (torch.zeros_like(basis), basis.clone().fill_(torch.nan), basis + 2e-3):
        with pytest.raises(ValueError, match=r"basis must be orthogonal, PᵀP = I .* off by"):
            STRING(frequencies, wrong, head_dim=size)


def test_what_is_given_is_copied() -> None:
    given = torch.ones(1, 2, 1, dtype=torch.float64, requires_grad=True)
    basis, turns = torch.eye(4, dtype=torch.float64)[None], generators(5, 2, 3)
    encoder, dense, before = STRING(given, basis), DenseSTRING(turns), turns.clone()
    with torch.no_grad():
        for tensor in (given, basis, turns):
            tensor.zero_()
    assert encoder.frequencies().sum() == 2
    assert encoder.basis().sum() == 4
    assert not encoder.frequencies().requires_grad
    assert properties.largest_difference(dense.generators(), before) <= 1e-15


@pytest.mark.parametrize("size", [1, 2, 5, 16])
@pytest.mark.parametrize("distance", [0.01, 0.02, 1.0, 100.0])
@pytest.mark.proves("eq-string-generators")
def test_it_is_the_exponential_of_the_sum(size: int, distance: float) -> None:
    """Also for one small matrix alone, where torch's own exponential loses digits."""
    torch.manual_seed(size)
    given = generators(size, 2, 1)
    encoder = DenseSTRING(given)
    assert liere_matrix(normal(0, 2), given[0]).shape == (0, size, size)
    for r in (normal(1, 2), normal(4, 2)):
        r = distance * r
        exponents = torch.einsum("nk,kij->nij", r, given[0]).numpy()
        expected = torch.from_numpy(scipy.linalg.expm(exponents))
        tolerance = 1e-13 * (1 + 10 * distance)
        assert properties.largest_difference(encoder.matrix(r)[0], expected) <= tolerance
        literal = liere_matrix(r, given[0])
        assert properties.largest_difference(encoder.matrix(r)[0], literal) <= tolerance
        x = normal(2, 3, len(r), size)
        by_hand = (expected @ x[..., None])[..., 0]
        assert properties.largest_difference(encoder(x, x, r)[1], by_hand) <= 10 * tolerance


@pytest.mark.parametrize("angle", [0.01, 0.02, 0.045])
def test_one_small_turn_alone_keeps_its_digits(angle: float) -> None:
    """At these angles torch's exponential of a single matrix is wrong by 1e-13 to 2e-10."""
    quarter = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    position = torch.tensor([[angle]], dtype=torch.float64)
    (turn,) = DenseSTRING(quarter[None, None]).matrix(position)[0]
    expected = math.cos(angle) * torch.eye(2, dtype=torch.float64) + math.sin(angle) * quarter
    assert properties.largest_difference(turn, expected) <= 1e-15
    (literal,) = liere_matrix(position, quarter[None])
    assert properties.largest_difference(literal, expected) <= 1e-15


def test_rounded_generators_still_rotate() -> None:
    """What rounding adds that is not skew-symmetric would stretch."""
    torch.manual_seed(5)
    given = generators(6, 1, 2).float()
    given[..., 0, 1] *= 1 + 1e-5
    encoder = DenseSTRING(given)
    assert properties.skew_error(encoder.generators()) == 0
    assert properties.orthogonality_error(encoder.matrix(100 * normal(3, 1))) <= 1e-12


def test_liere_refuses_positions_of_another_number_of_coordinates() -> None:
    with pytest.raises(ValueError, match="positions must have a last dimension of size 2"):
        liere_matrix(normal(3, 3), skew(normal(2, 15)))
