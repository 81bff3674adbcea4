"""DenseSTRING against SciPy's exponential, the literal LieRE, and every other encoder."""

from __future__ import annotations

import math

import pytest
import scipy.linalg
import torch
from torch import Tensor

from stringlib import STRING, DenseSTRING, checks
from stringlib.algebra import haar_orthogonal, skew
from stringlib.reference import liere_first_error, liere_matrix
from tests.encoder_cases import CASES, inputs, make


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def generators(size: int, coord_dim: int, heads: int) -> Tensor:
    basis = haar_orthogonal(size, heads, dtype=torch.float64)
    return STRING(normal(heads, size // 2, coord_dim), basis).generators()


@pytest.mark.parametrize("name", CASES)
def test_every_encoder_is_its_literal_definition(name: str) -> None:
    encoder = make(name)
    literal = DenseSTRING(encoder.generators())
    q, k, positions = inputs(encoder)
    gap = encoder.matrix(positions) - literal.matrix(positions)
    assert gap.abs().max().item() <= 1e-11
    fast = checks.logits(encoder, q, k, positions)
    slow = checks.logits(literal, q, k, positions)
    assert checks.relative_logit_error(fast, slow, q, k) <= 1e-11


@pytest.mark.parametrize("size", [1, 2, 5, 16])
@pytest.mark.parametrize("distance", [0.01, 0.02, 1.0, 100.0])
@pytest.mark.proves("eq-string-generators")
def test_it_is_the_exponential_of_the_sum(size: int, distance: float) -> None:
    """Also for one small matrix alone, where torch's own exponential loses digits."""
    torch.manual_seed(size)
    given = generators(size, 2, 1)
    encoder = DenseSTRING(given)
    for r in (normal(1, 2), normal(4, 2)):
        r = distance * r
        exponents = torch.einsum("nk,kij->nij", r, given[0]).numpy()
        expected = torch.from_numpy(scipy.linalg.expm(exponents))
        tolerance = 1e-13 * (1 + 10 * distance)
        assert checks.largest_difference(encoder.matrix(r)[0], expected) <= tolerance
        literal = liere_matrix(r, given[0])
        assert checks.largest_difference(encoder.matrix(r)[0], literal) <= tolerance
        x = normal(2, 3, len(r), size)
        by_hand = (expected @ x[..., None])[..., 0]
        assert checks.largest_difference(encoder(x, x, r)[1], by_hand) <= 10 * tolerance


@pytest.mark.parametrize("angle", [0.01, 0.02, 0.045])
def test_one_small_turn_alone_keeps_its_digits(angle: float) -> None:
    """At these angles torch's exponential of a single matrix is wrong by 1e-13 to 2e-10."""
    quarter = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    position = torch.tensor([[angle]], dtype=torch.float64)
    (turn,) = DenseSTRING(quarter[None, None]).matrix(position)[0]
    expected = math.cos(angle) * torch.eye(2, dtype=torch.float64) + math.sin(angle) * quarter
    assert checks.largest_difference(turn, expected) <= 1e-15
    (literal,) = liere_matrix(position, quarter[None])
    assert checks.largest_difference(literal, expected) <= 1e-15


def test_rounded_generators_still_rotate() -> None:
    """What rounding adds that is not skew-symmetric would stretch."""
    torch.manual_seed(5)
    given = generators(6, 1, 2).float()
    given[..., 0, 1] *= 1 + 1e-5
    encoder = DenseSTRING(given)
    assert checks.skew_error(encoder.generators()) == 0
    assert checks.orthogonality_error(encoder.matrix(100 * normal(3, 1))) <= 1e-12


def test_nothing_is_left_out() -> None:
    torch.manual_seed(0)
    encoder = DenseSTRING(generators(6, 2, 2))
    q, k, r = normal(2, 5, 6), normal(2, 5, 6), normal(5, 2)
    encoded_q, encoded_k = encoder(q, k, r)
    assert torch.equal(encoded_q, encoder.rotate(q, r))
    assert torch.equal(encoded_k, encoder.rotate(k, r))


def test_the_generators_are_the_given_ones_and_its_own() -> None:
    torch.manual_seed(1)
    given = generators(5, 2, 3)
    encoder = DenseSTRING(given)
    before = given.clone()
    given.zero_()
    assert checks.largest_difference(encoder.generators(), before) <= 1e-15
    assert encoder.generators().dtype == DenseSTRING(before.float()).generators().dtype


def test_the_meta_device_builds_the_same_shapes() -> None:
    torch.manual_seed(2)
    given = generators(7, 2, 3)
    skeleton, encoder = DenseSTRING(given.to("meta")), DenseSTRING(given)
    for name, value in encoder.state_dict().items():
        assert skeleton.state_dict()[name].shape == value.shape
    filled = skeleton.to_empty(device="cpu")
    filled.load_state_dict(encoder.state_dict())
    r = normal(4, 2)
    assert torch.equal(filled.matrix(r), encoder.matrix(r))


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\(heads, coord_dim, d, d\), got \(1, 4, 4\)"):
        DenseSTRING(torch.zeros(1, 4, 4))
    with pytest.raises(ValueError, match=r"generators must commute: .* of the product"):
        DenseSTRING(skew(normal(1, 2, 6)))
    with pytest.raises(ValueError, match=r"skew-symmetric.* 2.0e\+00 of that of L"):
        DenseSTRING(torch.eye(4)[None, None])
    with pytest.raises(TypeError, match="generators must be a floating-point tensor, got list"):
        DenseSTRING([[0.0]])  # type: ignore[arg-type]


# --- generators that do not commute ----------------------------------------------------------


@pytest.mark.proves("eq-universal-liere")
def test_liere_is_relative_along_lines_through_the_origin_and_nowhere_else() -> None:
    torch.manual_seed(3)
    pair = skew(normal(2, 15))
    a, b = normal(2), normal(2)
    line = torch.stack([a, 2.5 * a, 1.5 * a])
    first, second, difference = liere_matrix(line, pair)
    assert checks.largest_difference(first.T @ second, difference) <= 1e-12
    first, second, difference = liere_matrix(torch.stack([a, b, b - a]), pair)
    assert checks.largest_difference(first.T @ second, difference) > 0.1
    assert checks.orthogonality_error(first) <= 1e-13
    with pytest.raises(ValueError, match="positions must have 2 coordinates"):
        liere_matrix(normal(3, 3), pair)
    assert liere_matrix(normal(0, 2), pair).shape == (0, *pair.shape[1:])


@pytest.mark.parametrize("coord_dim", [2, 3])
@pytest.mark.proves("eq-universal-area")
def test_the_first_error_of_liere_is_an_area_times_a_commutator(coord_dim: int) -> None:
    torch.manual_seed(4)
    given, (a, b) = skew(normal(coord_dim, 15)), normal(2, coord_dim)
    errors = []
    for step in (1e-2, 1e-3):
        first, second, difference = liere_matrix(step * torch.stack([a, b, b - a]), given)
        predicted = liere_first_error(step * a, step * b, given)
        errors.append(checks.largest_difference(first.T @ second - difference, predicted))
        assert predicted.abs().max() > 1e-7
    assert errors[1] < 2e-3 * errors[0]  # what is left is of third order
    commuting = generators(6, coord_dim, 1)[0]
    assert liere_first_error(a, b, commuting).abs().max() <= 1e-13
