"""Random matrices of FAVOR+: their laws, their fast products, and what a draw keeps."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from stringlib.algebra import circular_convolution, fast_hadamard, hadamard
from stringlib.attention import projections
from stringlib.attention.projections import PROJECTIONS, Projection
from stringlib.reference import hadamard_projection_matrix
from stringlib.testing import properties
from tests.draws import generator, random

SHAPES = [(1, 1, 1), (1, 3, 2), (2, 5, 1), (5, 3, 2), (8, 8, 3), (7, 20, 1), (16, 40, 2)]
ORTHOGONAL = ("orthogonal", "hadamard", "unit-circulant")
SIMPLEX = ("simplex", "simplex-hadamard", "simplex-circulant")


def make(name: str, d: int, m: int, heads: int = 1, learnable: bool = False) -> Projection:
    return PROJECTIONS[name](d, m, heads, learnable, generator(1)).double()


@pytest.fixture(params=["product", "transform"])
def route(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Force the dense product or the fast transform at every size."""
    rows = 10**6 if request.param == "product" else 1
    monkeypatch.setattr(projections, "FEWEST_ROWS", {"fft": rows, "hadamard": rows})


@pytest.mark.usefixtures("route")
@pytest.mark.parametrize("learnable", [False, True])
@pytest.mark.parametrize(("d", "m", "heads"), SHAPES)
@pytest.mark.parametrize("name", PROJECTIONS)
def test_the_product_is_that_with_the_matrix(
    name: str, d: int, m: int, heads: int, learnable: bool
) -> None:
    made = make(name, d, m, heads, learnable)
    matrix = made.matrix()
    assert matrix.shape == (heads, m, d)
    x = random(2, max(heads, 4) if heads == 1 else heads, 6, d).requires_grad_()
    inputs = [x, *made.parameters()]
    got, expected = made(x), x @ matrix.mT
    assert properties.largest_difference(got, expected) <= 1e-13 * d
    probe = random(*got.shape, seed=2)
    for one, other in zip(
        torch.autograd.grad((got.sin() * probe).sum(), inputs),
        torch.autograd.grad((expected.sin() * probe).sum(), inputs),
        strict=True,
    ):
        assert properties.largest_difference(one, other) <= 1e-11
    assert made(x.detach()[:, :, :0]).shape == (2, x.shape[1], 0, m)


@pytest.mark.proves("eq-simplex-gram")
@pytest.mark.parametrize("name", [*ORTHOGONAL, *SIMPLEX])
@pytest.mark.parametrize(
    ("d", "m"), [(1, 1), (1, 2), (2, 2), (5, 5), (8, 8), (16, 40), (8, 5), (9, 20)]
)
def test_rows_of_a_block_are_orthogonal_or_corners_of_a_simplex(name: str, d: int, m: int) -> None:
    if "hadamard" in name:
        d = 2 ** (d - 1).bit_length()  # padded rows are parts of others
    product = -1 / max(d - 1, 1) if name in SIMPLEX else 0.0
    matrix = make(name, d, m, 3).matrix()
    rows = matrix / matrix.norm(dim=-1, keepdim=True)
    for start in range(0, m, d):
        block = rows[:, start : start + d]
        wanted = torch.full((block.shape[1],) * 2, product).fill_diagonal_(1)
        assert properties.largest_difference(block @ block.mT, wanted) <= 1e-6  # drawn in float32


@pytest.mark.parametrize("d", [1, 2, 3, 8, 9, 64])
def test_the_unit_spectrum_keeps_its_modulus_in_double_precision(d: int) -> None:
    made = make("unit-circulant", d, d)
    rows = made.matrix()[0] / made.lengths[0, :, None]
    assert properties.orthogonality_error(rows) <= 1e-13
    made.bfloat16()
    rounded = made.double().matrix()[0] / made.lengths[0, :, None]
    # lengths are rounded, the modulus is not
    assert properties.orthogonality_error(rounded) <= 1e-2
    assert properties.orthogonality_error(rounded / rounded.norm(dim=-1, keepdim=True)) <= 1e-13


@pytest.mark.parametrize("name", PROJECTIONS)
@pytest.mark.parametrize("d", [2, 6, 16])
def test_rows_have_mean_zero_and_unit_covariance(name: str, d: int) -> None:
    draws = 40_000
    w = PROJECTIONS[name](d, 2, draws, generator=generator()).matrix().double()
    assert w.mean(0).abs().max() <= 5 / math.sqrt(draws)
    covariance = torch.einsum("hmi,hmj->mij", w, w) / draws
    assert properties.largest_difference(covariance, torch.eye(d)) <= 6 * math.sqrt(2 / draws)


@pytest.mark.parametrize("name", PROJECTIONS)
def test_a_generator_decides_the_draw(name: str) -> None:
    first, second = (PROJECTIONS[name](6, 9, 2, generator=generator(3)) for _ in range(2))
    drawn = first.matrix().clone()
    assert torch.equal(drawn, second.matrix())
    kept = [t.data_ptr() for t in first.state_dict().values()]
    first.redraw(generator(4))
    assert properties.largest_difference(first.matrix(), drawn) > 0.1
    assert [t.data_ptr() for t in first.state_dict().values()] == kept
    first.redraw(generator(3))
    assert torch.equal(first.matrix(), drawn)
    torch.manual_seed(5)
    without = PROJECTIONS[name](6, 9).matrix()
    torch.manual_seed(5)
    assert torch.equal(PROJECTIONS[name](6, 9).matrix(), without)


@pytest.mark.parametrize("name", PROJECTIONS)
def test_what_was_drawn_is_saved_and_only_learned_if_asked(name: str) -> None:
    fixed, learned = make(name, 6, 9, 2), make(name, 6, 9, 2, learnable=True)
    assert not list(fixed.parameters())
    (parameter,) = learned.parameters()
    assert parameter.numel() > 0
    other = PROJECTIONS[name](6, 9, 2, learnable=True, generator=generator(9)).double()
    other.load_state_dict(learned.state_dict())
    assert torch.equal(other.matrix(), learned.matrix())
    before = learned.matrix().clone()
    learned.redraw(generator(8))
    assert (learned.matrix() != before).any()
    assert parameter.requires_grad


@pytest.mark.parametrize(
    ("name", "product"), [("unit-circulant", 0), ("simplex-circulant", -1 / 7)]
)
def test_what_learns_keeps_the_angles_between_its_rows(name: str, product: float) -> None:
    made = make(name, 8, 8, learnable=True)
    (phases,) = made.parameters()
    made(random(1, 5, 8)).exp().sum().backward()
    with torch.no_grad():
        phases -= 0.3 * phases.grad
    rows = made.matrix()[0] / made.lengths[0, :, None]
    wanted = torch.full((8, 8), product, dtype=torch.float64).fill_diagonal_(1)
    assert properties.largest_difference(rows @ rows.mT, wanted) <= 1e-12


@pytest.mark.proves("eq-hadamard")
@pytest.mark.parametrize("size", [1, 2, 4, 8, 32, 128])
def test_the_fast_hadamard_transform_is_the_matrix(size: int) -> None:
    matrix = hadamard(size)
    assert torch.equal(matrix @ matrix.mT, size * torch.eye(size, dtype=torch.float64))
    if size > 1:
        smaller = hadamard(size // 2)
        rows = [torch.cat([smaller, smaller], 1), torch.cat([smaller, -smaller], 1)]
        assert torch.equal(matrix, torch.cat(rows))
    x = random(3, 5, size)
    assert properties.largest_difference(fast_hadamard(x), x @ matrix) <= 1e-13 * size
    assert fast_hadamard(x[:0]).shape == (0, 5, size)


@pytest.mark.proves("eq-hadamard-projection")
@pytest.mark.parametrize(("d", "m"), [(1, 1), (4, 4), (6, 11), (8, 20), (3, 2)])
def test_hadamard_rows_are_those_of_the_literal_product(d: int, m: int) -> None:
    made = make("hadamard", d, m, 2)
    size = made.block_size
    for head in range(2):
        blocks = [hadamard_projection_matrix(diagonals) for diagonals in made.diagonals[head]]
        assert all(b.shape == (size, size) for b in blocks)
        rows = torch.cat(blocks)[:m, :d] * made.lengths[head, :, None]
        assert properties.largest_difference(made.matrix()[head], rows) <= 1e-13


@pytest.mark.parametrize("d", [1, 2, 3, 5, 8, 16])
def test_convolution_has_first_and_second_derivatives(d: int) -> None:
    x, r = random(2, 3, d).requires_grad_(), random(2, 1, d, seed=1).requires_grad_()

    def convolve(x: Tensor, r: Tensor) -> Tensor:
        return circular_convolution(x, torch.fft.rfft(r))

    assert torch.autograd.gradcheck(convolve, (x, r))
    assert torch.autograd.gradgradcheck(convolve, (x, r))
    batched = torch.func.vmap(convolve, in_dims=(0, None))(x.detach(), r.detach()[0])
    assert properties.largest_difference(batched, convolve(x, r[:1])) <= 1e-14
