"""What an encoder does without being told its basis is what it does with it."""

from __future__ import annotations

import pytest
import torch

from stringlib.testing.encoders import heads_of
from stringlib.testing.properties import largest_difference
from tests.encoder_cases import CASES, make


@pytest.mark.parametrize("name", CASES)
def test_a_basis_is_found_where_none_is_given(name: str) -> None:
    encoder = make(name)
    basis = encoder.basis()
    x = torch.randn(2, heads_of(encoder), 3, encoder.head_dim, dtype=torch.float64)
    there, back = encoder.to_basis(x), encoder.from_basis(x)
    assert largest_difference(there, x @ basis) <= 1e-12
    assert largest_difference(back, x @ basis.mT) <= 1e-12
    assert largest_difference(encoder.to_basis(x, basis), there) <= 1e-12
    assert largest_difference(encoder.from_basis(x, basis), back) <= 1e-12
