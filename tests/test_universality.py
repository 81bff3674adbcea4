"""Every STRING is RoPE in a basis: the basis and the frequencies are found to machine precision."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from stringlib import STRING, CirculantSTRING, DenseSTRING, RoPE, RotaryEncoder
from stringlib.algebra import haar_orthogonal, planar_skew, skew, universality
from stringlib.algebra.universality import universal_form
from stringlib.testing import properties
from stringlib.testing.properties import normal
from tests.draws import random
from tests.refusals import refused

SIZES = (1, 2, 3, 8, 15, 64)
KINDS = ("random", "integer", "repeated", "slow", "nearly repeated", "one plane", "scales", "zero")


def known_frequencies(kind: str, heads: int, pairs: int, coord_dim: int) -> Tensor:
    omega, first = normal(heads, pairs, coord_dim), torch.arange(pairs) == 0
    near = 10.0 ** -torch.randint(3, 16, (heads, pairs, 1))
    return {
        "random": omega,
        "integer": omega.round(),
        "repeated": omega[:, :1].expand_as(omega),
        # some planes stand still, some move very slowly
        "slow": omega * torch.tensor([1.0, 1e-9, 0.0]).repeat(pairs)[:pairs, None],
        "nearly repeated": omega[:, :1] + near * omega,
        "one plane": omega * first[:, None],
        "scales": omega * torch.tensor([1e-6, 1e6, 1.0])[:coord_dim],
        "zero": 0 * omega,
    }[kind]


def rebuilt(omega: Tensor, basis: Tensor) -> Tensor:
    return basis.unsqueeze(-3) @ planar_skew(omega.mT, basis.shape[-1]) @ basis.unsqueeze(-3).mT


def conjugated(omega: Tensor, basis: Tensor) -> Tensor:
    generators = rebuilt(omega, basis)
    return (generators - generators.mT) / 2


def relative_residual(generators: Tensor, omega: Tensor, basis: Tensor) -> float:
    """Return the largest error of any generator, relative to its own largest entry."""
    size = generators.abs().amax((-2, -1), keepdim=True)
    gap = (rebuilt(omega, basis) - generators).abs() / size.where(size > 0, 1.0)
    return gap.max().item()


def in_order(omega: Tensor) -> Tensor:
    """Return frequencies as ``universal_form`` does: oriented, the fastest first."""
    largest = omega.take_along_dim(omega.abs().argmax(-1, keepdim=True), -1)
    omega = torch.where(largest < 0, -omega, omega)
    order = omega.norm(dim=-1).argsort(dim=-1, descending=True)
    return omega.take_along_dim(order[..., None], -2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.proves("eq-universal-planes")
def test_planes_and_frequencies_are_found_again(size: int, kind: str) -> None:
    for coord_dim, heads in ((1, 3), (2, 1), (3, 3)):
        torch.manual_seed(100 * coord_dim + heads)
        known = known_frequencies(kind, heads, size // 2, coord_dim)
        generators = conjugated(known, haar_orthogonal(size, heads, dtype=torch.float64))
        omega, basis = universal_form(generators)
        assert omega.shape == known.shape
        assert omega.dtype == basis.dtype == torch.float64
        assert properties.orthogonality_error(basis) <= 1e-13
        assert relative_residual(generators, omega, basis) <= 3e-14
        if kind == "random":  # in the others the order hangs on rounding
            assert properties.largest_difference(omega, in_order(known)) <= 1e-12


def polynomials(size: int) -> Tensor:
    """Odd powers of one skew matrix are skew and commute."""
    matrix = skew(normal(size * (size - 1) // 2)) / size**0.5
    return torch.stack([matrix, matrix @ matrix @ matrix])


def kronecker(size: int) -> Tensor:
    """J ⊗ S and J ⊗ I: every frequency of the second is the same."""
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    symmetric = normal(size, size)
    return torch.stack(
        [torch.kron(turn, symmetric + symmetric.T), torch.kron(turn, torch.eye(size))]
    )


def two_factors(size: int) -> Tensor:
    """I ⊗ K and K ⊗ I: each frequency of one with each of the other, in both orientations."""
    matrix, eye = skew(normal(size * (size - 1) // 2)), torch.eye(size, dtype=torch.float64)
    return torch.stack([torch.kron(eye, matrix), torch.kron(matrix, eye)])


@pytest.mark.parametrize("size", [4, 8])
@pytest.mark.parametrize("make", [polynomials, kronecker, two_factors])
def test_families_with_many_equal_frequencies(make, size: int) -> None:
    torch.manual_seed(1)
    generators = make(size)
    omega, basis = universal_form(generators)  # without a dimension of heads
    assert omega.shape == (basis.shape[-1] // 2, len(generators))
    assert properties.orthogonality_error(basis) <= 1e-13
    assert relative_residual(generators, omega, basis) <= 1e-14
    batch = torch.stack([generators, generators.flip(0)]).expand(3, -1, -1, -1, -1)
    omega, basis = universal_form(batch)
    assert omega.shape[:2] == basis.shape[:2] == (3, 2)
    assert relative_residual(batch, omega, basis) <= 1e-14


def planes_alike(combinations: int, planes: int, seed: int) -> Tensor:
    """Return generators with planes that none of the first combinations tells apart."""
    draw, coord_dim = torch.Generator().manual_seed(0), combinations + 2
    rows = torch.randn(combinations, coord_dim, generator=draw, dtype=torch.float64)
    unseen = torch.linalg.svd(rows)[2][combinations:]
    torch.manual_seed(seed)
    omega = normal(coord_dim) + normal(planes, 2) @ unseen
    norms = omega.norm(dim=0)  # a plane more for each generator, which makes their norms equal
    omega = torch.cat([omega, torch.diag((2 * norms.max() ** 2 - norms**2).sqrt())])
    return conjugated(omega, haar_orthogonal(2 * len(omega), dtype=torch.float64))


@pytest.mark.parametrize("planes", [2, 3, 11])
@pytest.mark.parametrize("seed", [0, 1])
def test_planes_that_four_combinations_take_for_one(planes: int, seed: int) -> None:
    generators = planes_alike(4, planes, seed)
    assert relative_residual(generators, *universal_form(generators)) <= 3e-14
    rounded = generators.float()
    assert relative_residual(generators, *universal_form(rounded)) <= 1e-5
    mixed = torch.stack([generators, planes_alike(4, planes, seed + 7)])
    assert relative_residual(mixed, *universal_form(mixed)) <= 3e-14


def test_planes_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(universality, "ATTEMPTS", 3)
    generators = planes_alike(3, 6, 2)
    with pytest.raises(ValueError, match=r"common planes, .*, and 1.5e-08 ‖L‖ is allowed\."):
        universal_form(generators)
    with pytest.raises(ValueError, match="common planes"):
        DenseSTRING(generators[None])


def test_what_nearly_commutes_has_no_planes() -> None:
    """Equal planes, and noise on each: commutators are as its square, what is left as noise."""
    torch.manual_seed(8)
    turn = conjugated(torch.ones(3, 1).double(), haar_orthogonal(6, dtype=torch.float64))
    noise = skew(normal(2, 15))
    generators = turn + 3e-5 * (noise - turn @ noise @ turn)  # what commutes with the turn
    with pytest.raises(ValueError, match="common planes"):
        universal_form(generators)


def circulant() -> RotaryEncoder:
    encoder = CirculantSTRING(15, coord_dim=2, heads=3).double()
    torch.nn.init.normal_(encoder.coefficients)
    return encoder


def given() -> RotaryEncoder:
    return STRING(normal(2, 3, 2), haar_orthogonal(7, 2, dtype=torch.float64))


@pytest.mark.parametrize("make", [circulant, given, lambda: RoPE(64, heads=2)])
def test_from_the_definition_to_the_fast_form_of_an_encoder(make) -> None:
    torch.manual_seed(2)
    encoder = make()
    omega, basis = universal_form(encoder.generators())
    assert properties.largest_difference(omega, in_order(encoder.frequencies().detach())) <= 1e-12
    positions, fast = normal(5, encoder.coord_dim), STRING(omega, basis)
    slow = DenseSTRING(encoder.generators())
    for same in (encoder, slow):
        assert (
            properties.largest_difference(fast.matrix(positions), same.matrix(positions)) <= 1e-12
        )


def test_single_precision_is_enough_to_commute_and_nothing_is_written_to_the_input() -> None:
    torch.manual_seed(3)
    exact = conjugated(normal(1, 8, 2), haar_orthogonal(16, 1, dtype=torch.float64))
    rounded = exact.float().requires_grad_()
    before = rounded.detach().clone()
    omega, basis = universal_form(rounded)
    assert torch.equal(rounded.detach(), before)
    assert not omega.requires_grad
    assert relative_residual(exact, omega, basis) <= 1e-5
    with pytest.raises(ValueError, match="commute"):
        universal_form(rounded, tolerance=1e-12)


ONE, TWO = skew(random(2, 15))
BOTH, SYMMETRIC = torch.stack([ONE, TWO]), ONE + torch.eye(6) / 6
COMMUTATOR = torch.linalg.matrix_norm(ONE @ TWO - TWO @ ONE) / ONE.norm() / TWO.norm()
SKEWNESS = (SYMMETRIC + SYMMETRIC.T).norm() / SYMMETRIC.norm()


@pytest.mark.parametrize(
    ("generators", "match"),
    [
        (BOTH, rf"L_0 L_1 − L_1 L_0‖ = {COMMUTATOR:.1e} ‖L_0‖"),
        (torch.stack([0 * ONE, ONE, TWO]), "L_1 L_2"),
        (SYMMETRIC[None], f"skew-symmetric.* {SKEWNESS:.1e} ‖L‖"),
        (torch.full((1, 2, 2), torch.nan), "finite"),
        (BOTH[:0], r"got shape \(0, 6, 6\)"),
    ],
)
def test_what_is_refused(generators: Tensor, match: str) -> None:
    with refused(match):
        universal_form(generators)
