"""What is particular to Circulant-STRING: its columns, its frequencies, its gradients."""

import math

import pytest
import scipy.linalg
import torch

from stringlib import CirculantSTRING
from stringlib.algebra import (
    circulant,
    circulant_eigenvalues,
    circulant_frequencies,
    fourier_basis,
    planar_skew,
)
from stringlib.encoders.circulant import LARGEST_PRODUCT
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


@pytest.mark.proves("eq-circulant-eigenvalues")
@pytest.mark.parametrize("d", SIZES)
def test_eigenvalues_belong_to_the_fourier_modes(d):
    c, n = random(d), torch.arange(d, dtype=torch.float64)
    modes = torch.exp(2j * math.pi * n[:, None] * n / d)
    turned = circulant(c).to(modes) @ modes
    assert properties.largest_difference(turned, modes * circulant_eigenvalues(c)) <= 1e-12 * d


@pytest.mark.proves("eq-fourier-basis")
@pytest.mark.parametrize("d", SIZES)
def test_the_fourier_basis_is_orthogonal_and_ordered(d):
    n, columns = torch.arange(d, dtype=torch.float64), []
    for j in range(1, (d + 1) // 2):
        angle = 2 * math.pi * j * n / d
        columns += [math.sqrt(2 / d) * angle.cos(), math.sqrt(2 / d) * angle.sin()]
    columns.append(torch.full_like(n, d**-0.5))
    if d % 2 == 0:
        columns.append((-1) ** n / math.sqrt(d))
    basis = fourier_basis(d)
    assert properties.largest_difference(basis, torch.stack(columns, 1)) <= 1e-13
    assert properties.orthogonality_error(basis) <= 1e-14 * d


@pytest.mark.proves("eq-circulant-frequencies")
@pytest.mark.parametrize("d", SIZES)
def test_the_generator_turns_each_fourier_plane_at_its_frequency(d):
    c, m = random(d), torch.arange(d, dtype=torch.float64)
    generator, basis = circulant(c) - circulant(c).T, fourier_basis(d)
    frequencies = circulant_frequencies(c)
    waves = [(2 * math.pi * j * m / d).sin() for j in range(1, (d + 1) // 2)]
    literal = [2 * (c @ wave).item() for wave in waves]
    assert frequencies.tolist() == pytest.approx(literal, abs=1e-12)
    planes = planar_skew(frequencies, d)
    assert properties.largest_difference(generator @ basis, basis @ planes) <= 1e-12


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
