"""A given basis is orthogonal, or refused."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from stringlib import STRING
from stringlib.algebra import cayley, fourier_basis, haar_orthogonal, skew


def entries(size: int) -> torch.Tensor:
    return torch.randn(size * (size - 1) // 2, generator=torch.Generator().manual_seed(size))


@pytest.mark.parametrize("size", [1, 2, 7, 64, 512])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_orthogonal_matrices_of_any_making_are_taken(size: int, dtype: torch.dtype) -> None:
    eye, s = torch.eye(size, dtype=dtype), skew(entries(size).to(dtype))
    for basis in (
        eye.flip(0),
        haar_orthogonal(size, dtype=dtype),
        fourier_basis(size).to(dtype),
        torch.linalg.solve(eye + s, eye - s),
        cayley(s),
        torch.matrix_exp(s),
    ):
        taken = STRING(torch.ones(1, size // 2, 2), basis[None], size)
        assert torch.equal(taken.basis()[0], basis.double())


@pytest.mark.parametrize("size", [1, 2, 9, 65])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_others_are_refused_and_the_message_says_by_how_much(size, dtype) -> None:
    basis = haar_orthogonal(size, 3, dtype=dtype)
    frequencies = torch.ones(3, size // 2, 1)
    one = basis.clone()
    one[2] *= 1.004  # in one head: the diagonal of PᵀP is 1.004²
    with pytest.raises(ValueError, match=r"basis must be orthogonal, .* off by 8\.0e-03"):
        STRING(frequencies, one, size)
    for wrong in (torch.zeros_like(basis), basis.clone().fill_(torch.nan), basis + 2e-3):
        with pytest.raises(ValueError, match=r"basis must be orthogonal, PᵀP = I .* off by"):
            STRING(frequencies, wrong, size)


def test_where_there_are_no_values_none_are_looked_at() -> None:
    frequencies, basis = torch.ones(2, 2, 1), torch.zeros(2, 5, 5)
    assert STRING(frequencies.to("meta"), basis.to("meta")).basis().shape == (2, 5, 5)
    with FakeTensorMode():
        STRING(torch.ones(2, 2, 1), torch.zeros(2, 5, 5))
