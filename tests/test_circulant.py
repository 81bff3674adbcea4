"""What is particular to Circulant-STRING: its columns, its still channels, its gradients."""

import math

import pytest
import scipy.linalg
import torch

from stringlib import CirculantSTRING
from stringlib.algebra import circulant, circulant_eigenvalues, circulant_frequencies, fourier_basis
from stringlib.encoders.circulant import LARGEST_PRODUCT
from stringlib.positions import grid_positions
from stringlib.reference import (
    circulant_string_matrix,
    circulant_string_rotate,
    get_eigenvalues,
    parseval_logits,
)
from stringlib.testing import properties
from tests.draws import random

SIZES = [1, 2, 3, 5, 8, 15, 16, 64]


def encoder(head_dim, coord_dim=1, heads=1, block_size=None, seed=0):
    made = CirculantSTRING(head_dim, coord_dim, heads=heads, block_size=block_size).double()
    with torch.no_grad():
        made.coefficients.copy_(random(*made.coefficients.shape, seed=seed))
    return made


@pytest.mark.proves("eq-circulant")
@pytest.mark.parametrize("d", SIZES)
def test_the_column_convention_is_scipys(d):
    c = random(d)
    assert torch.equal(circulant(c), torch.from_numpy(scipy.linalg.circulant(c.numpy())))
    assert torch.equal(circulant(c)[:, 0], c)


@pytest.mark.proves("eq-circulant-eigenvalues")
@pytest.mark.parametrize("d", SIZES)
def test_eigenvalues_belong_to_the_fourier_modes(d):
    c = random(d)
    matrix, n = circulant(c).to(torch.complex128), torch.arange(d, dtype=torch.float64)
    for j, eigenvalue in enumerate(circulant_eigenvalues(c)):
        mode = torch.exp(2j * math.pi * j * n / d)
        assert properties.largest_difference(matrix @ mode, eigenvalue * mode) <= 1e-12 * d


@pytest.mark.proves("eq-fourier-basis")
@pytest.mark.parametrize("d", SIZES)
def test_the_fourier_basis_is_orthogonal_and_ordered(d):
    basis = fourier_basis(d)
    assert basis.shape == (d, d)
    assert properties.orthogonality_error(basis) <= 1e-14 * d
    n = torch.arange(d, dtype=torch.float64)
    for j in range(1, (d + 1) // 2):
        cosine = math.sqrt(2 / d) * torch.cos(2 * math.pi * j * n / d)
        sine = math.sqrt(2 / d) * torch.sin(2 * math.pi * j * n / d)
        assert properties.largest_difference(basis[:, 2 * j - 2], cosine) <= 1e-13
        assert properties.largest_difference(basis[:, 2 * j - 1], sine) <= 1e-13
    constant = basis[:, 2 * ((d - 1) // 2)]
    assert properties.largest_difference(constant, torch.full_like(constant, d**-0.5)) <= 1e-15
    if d % 2 == 0:
        assert properties.largest_difference(basis[:, -1], (-1) ** n / math.sqrt(d)) <= 1e-15


@pytest.mark.proves("eq-circulant-frequencies")
@pytest.mark.parametrize("d", SIZES)
def test_the_generator_turns_each_fourier_plane_at_its_frequency(d):
    c = random(d)
    generator, basis = circulant(c) - circulant(c).T, fourier_basis(d)
    frequencies = circulant_frequencies(c)
    m = torch.arange(d, dtype=torch.float64)
    assert frequencies.shape == ((d - 1) // 2,)
    for j, omega in enumerate(frequencies, start=1):
        assert abs(omega - 2 * (c * torch.sin(2 * math.pi * j * m / d)).sum()) <= 1e-12
        cosine, sine = basis[:, 2 * j - 2], basis[:, 2 * j - 1]
        assert properties.largest_difference(generator @ cosine, omega * sine) <= 1e-12
        assert properties.largest_difference(generator @ sine, -omega * cosine) <= 1e-12
    still = basis[:, 2 * ((d - 1) // 2) :]
    assert properties.largest_difference(generator @ still, torch.zeros_like(still)) <= 1e-12


@pytest.mark.parametrize("d", SIZES[2:])
def test_the_map_from_column_to_frequencies_is_half_a_rotation(d):
    """M Mᵀ = 2d·I: gradient descent on c at rate η is descent on ω at rate 2dη."""
    jacobian = torch.autograd.functional.jacobian(circulant_frequencies, random(d))
    pairs = (d - 1) // 2
    expected = 2 * d * torch.eye(pairs, dtype=torch.float64)
    assert properties.largest_difference(jacobian @ jacobian.T, expected) <= 1e-12 * d
    assert torch.linalg.matrix_rank(jacobian) == pairs


@pytest.mark.proves("eq-circulant-generator")
@pytest.mark.parametrize("d", [5, 8, 15, 16, 64])
@pytest.mark.parametrize("r", [0.3, -7.0, 25.0])
def test_matrix_is_the_exponential_of_scipys_circulant(d, r):
    made, r = encoder(d), torch.tensor([[r]], dtype=torch.float64)
    columns = made.coefficients[:, :, 0].detach()
    assert get_eigenvalues(columns).real.abs().max() == 0
    c = scipy.linalg.circulant(columns.flatten().numpy())
    expected = torch.from_numpy(scipy.linalg.expm(r.item() * (c - c.T)))
    for got in (made.matrix(r), circulant_string_matrix(r, columns)):
        assert properties.largest_difference(got[0, 0], expected) <= 1e-11


@pytest.mark.proves("eq-circulant-parseval")
@pytest.mark.parametrize("d", [1, 2, 5, 8, 15, 64, LARGEST_PRODUCT + 4])
def test_logits_agree_without_an_inverse_transform(d):
    made, positions = encoder(d, heads=2), 5 * random(6, 1, seed=1)
    q, k = random(2, 2, 6, d, seed=2)
    columns = made.coefficients[:, :, 0].detach()
    rotated = [circulant_string_rotate(x, positions, columns) for x in (q, k)]
    literal = rotated[0] @ rotated[1].mT
    for logits in (
        parseval_logits(q, k, positions, columns),
        properties.logits(made, q, k, positions),
    ):
        assert properties.relative_logit_error(logits, literal, q, k) <= 1e-11


@pytest.mark.parametrize(
    ("d", "block_size", "still"),
    [(64, 4, 32), (64, 16, 8), (64, 64, 2), (64, 2, 64), (64, 1, 64), (15, 5, 3), (15, 15, 1)],
)
def test_still_channels(d, block_size, still):
    made = encoder(d, block_size=block_size)
    assert d - 2 * made.frequencies().shape[1] == still
    fixed = made.matrix(torch.tensor([[0.7]], dtype=torch.float64))[0, 0] - torch.eye(d).double()
    assert d - torch.linalg.matrix_rank(fixed, tol=1e-9) == still


@pytest.mark.parametrize("block_size", [5, 8, 16, 30, 79])
def test_half_of_the_coefficients_do_nothing(block_size):
    made = encoder(2 * block_size, 2, 2, block_size)
    q, k = random(2, 2, 6, made.head_dim, seed=1)
    loss = (properties.logits(made, q, k, random(6, 2, seed=2)) ** 2).sum()  # large: 1e4 and more
    (gradient,) = torch.autograd.grad(loss, made.coefficients)
    assert gradient.abs().max() > 0.1
    assert gradient[..., 0].abs().max() == 0
    mirrored = gradient[..., 1:].flip(-1)
    assert properties.largest_difference(gradient[..., 1:], -mirrored) == 0
    if block_size % 2 == 0:
        assert gradient[..., block_size // 2].abs().max() == 0


def test_one_small_exponent_is_exact():
    """A batch of one matrix of small norm is where torch.matrix_exp loses digits."""
    made = encoder(6)
    with torch.no_grad():
        made.coefficients.mul_(0.005)
    r = torch.ones(1, 1, dtype=torch.float64)
    literal = circulant_string_matrix(r, made.coefficients[:, :, 0].detach())
    assert properties.largest_difference(made.matrix(r), literal) <= 1e-15
    assert properties.generator_error(made, r) <= 1e-15


def test_a_start_at_zero_changes_nothing_and_learns() -> None:
    still = CirculantSTRING(8, coord_dim=2, heads=3, zero=True).double()
    torch.manual_seed(0)
    q, k, target = torch.randn(3, 3, 5, 8).double()
    positions = grid_positions(2, 2, num_prefix=1, dtype=torch.float64)
    found = still(q, k, positions)
    assert properties.largest_difference(found[0] @ found[1].mT, q @ k.mT) < 1e-14
    (found[0] * target).sum().backward()
    assert still.coefficients.grad[:, 0].abs().max() > 1e-3
    still.reset_parameters()
    assert not still.coefficients.any()
