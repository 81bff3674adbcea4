"""Skew-symmetric and random orthogonal matrices, and positions."""

import pytest
import torch

from stringlib import CayleySTRING, MixedRoPE, RoPE, random_turn
from stringlib.algebra import (
    circulant,
    haar_orthogonal,
    layout_permutation,
    nearest_orthogonal_circulant,
    planar_skew,
    skew,
    upper_support,
)
from stringlib.positions import grid_positions
from stringlib.reference import make_sparse_mask
from stringlib.testing import properties
from stringlib.testing.properties import normal
from tests.refusals import refusals


def test_haar_matrices_are_orthogonal_and_unbiased():
    """QR without the signs of R gives a mean far from 0 in the first column."""
    draws = haar_orthogonal(
        4, 20_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    assert properties.orthogonality_error(draws) <= 1e-13
    # entries have variance 1/d: five standard errors
    assert draws.mean(0).abs().max() <= 5 * (0.25 / 20_000) ** 0.5
    traces = draws.diagonal(dim1=-2, dim2=-1).sum(-1)
    assert traces.mean().abs() <= 5 / 20_000**0.5
    assert (traces**2).mean().item() == pytest.approx(1.0, abs=0.05)  # E tr² = 1 for Haar
    raw = torch.linalg.qr(torch.randn(20_000, 4, 4, generator=torch.Generator().manual_seed(0)))[0]
    assert raw.mean(0).abs().max() > 0.1


@pytest.mark.proves("eq-nearest-circulant")
@pytest.mark.parametrize("d", [1, 2, 3, 8, 9])
def test_the_nearest_orthogonal_circulant_is_the_polar_factor(d):
    """U Vᵀ of the singular values: the nearest of all orthogonal matrices."""
    c = normal(3, d)
    found = circulant(nearest_orthogonal_circulant(c))
    u, _, v = torch.linalg.svd(circulant(c))
    assert properties.largest_difference(found, u @ v) <= 1e-12


def test_the_nearest_orthogonal_circulant_of_itself_of_a_multiple_and_of_nothing():
    q = nearest_orthogonal_circulant(normal(1, 6))
    assert properties.largest_difference(nearest_orthogonal_circulant(3 * q), q) <= 1e-14
    nothing = nearest_orthogonal_circulant(torch.zeros(2, 5))
    assert properties.largest_difference(nothing, torch.eye(5)[0].expand(2, 5)) <= 1e-7
    assert nearest_orthogonal_circulant(torch.ones(4)).dtype == torch.float32
    # the constant column has one eigenvalue that is not 0
    assert nearest_orthogonal_circulant(torch.ones(4)).isfinite().all()


@pytest.mark.parametrize("d", [5, 6])
def test_the_gradient_turns_eigenvalues_and_never_stretches_them(d):
    c = normal(d).requires_grad_()
    assert torch.autograd.gradcheck(nearest_orthogonal_circulant, c)
    (slope,) = torch.autograd.grad((nearest_orthogonal_circulant(c) * normal(d)).sum(), c)
    radial = (torch.fft.fft(c.detach()).conj() * torch.fft.fft(slope)).real
    assert radial.abs().max() <= 1e-13


@pytest.mark.parametrize(
    "draw",
    [
        lambda: haar_orthogonal(3, 2),
        lambda: haar_orthogonal(3, 2, generator=torch.default_generator),
        lambda: upper_support(12, 0.3),
        lambda: CayleySTRING(12, density=0.3).support,
        lambda: MixedRoPE(8, 2, heads=3).omega,
        lambda: make_sparse_mask(12, 0.3),
        lambda: random_turn(RoPE(8)),
        lambda: random_turn(RoPE(8), torch.default_generator),
    ],
)
def test_a_draw_repeats_with_its_seed_alone(draw):
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(draw())
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


@pytest.mark.parametrize("sizes", [(5,), (2, 3), (1, 4), (4, 1), (1, 1), (2, 3, 4), (0, 3)])
def test_grids_count_cells_in_reading_order(sizes):
    got = grid_positions(*sizes)
    expected = torch.cartesian_prod(*[torch.arange(s) for s in sizes]).reshape(-1, len(sizes))
    assert torch.equal(got, expected.float())
    assert got.isfinite().all()


test_bad_arguments_are_named = refusals(
    (lambda: skew(torch.zeros(4)), r"d\(d-1\)/2 entries .* got 4"),
    (lambda: planar_skew(torch.ones(2), 3), "size must be at least .* = 4, got 3"),
    (lambda: layout_permutation(7), "head_dim must be even .*got 7"),
    (lambda: grid_positions(), "sizes must contain at least one number"),
    (lambda: grid_positions(2.5), r"TypeError: sizes must be an int, got 2\.5"),
)
