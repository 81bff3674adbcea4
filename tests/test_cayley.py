"""What is particular to Cayley-STRING: the solve, the support, what is inert or misplaced."""

import copy
import math

import pytest
import torch

from stringlib import CayleySTRING
from stringlib.algebra import (
    cayley,
    connected_parts,
    haar_orthogonal,
    skew,
    sparse_skew,
    upper_support,
)
from stringlib.encoders.string import RotaryEncoder
from stringlib.reference import (
    apply_rope,
    build_skew_symmetric,
    build_sparse_skew_symmetric,
    cayley_after_rope,
    cayley_apply,
    cayley_before_split,
    cayley_string,
)
from stringlib.testing import properties
from tests.draws import random
from tests.watched import Watched


def encoder(head_dim, coord_dim=1, heads=1, density=1.0, seed=0, std=0.5):
    torch.manual_seed(seed)
    made = CayleySTRING(head_dim, coord_dim, heads=heads, density=density).double()
    with torch.no_grad():
        made.entries.copy_(std * random(*made.entries.shape, seed=seed + 1))
        made.omega.copy_(random(*made.omega.shape, seed=seed + 2))
    return made


def eye(size):
    return torch.eye(size, dtype=torch.float64)


class Operations(Watched):
    """Names of all operations that reach the backend."""

    def __enter__(self):
        self.names = []
        return super().__enter__()

    def saw(self, operation, made):
        self.names.append(operation.overloadpacket._qualified_op_name)

    def count(self, *parts):
        return sum(any(part in name for part in parts) for name in self.names)


@pytest.mark.proves("eq-cayley-transform")
@pytest.mark.parametrize("d", [1, 2, 17, 64])
def test_the_transform_is_the_literal_one(d):
    for norm in (0.1, 1.0, 30.0):
        made = skew(random(2, d * (d - 1) // 2)) * (norm / max(1, d) ** 0.5)
        for matrix, got in zip(made, cayley(made), strict=True):
            columns = cayley_apply(matrix, eye(d))  # row i is P e_i
            assert properties.largest_difference(got, columns.T) <= 1e-12
            assert properties.largest_difference(got @ (eye(d) + matrix), eye(d) - matrix) <= 1e-11


@pytest.mark.parametrize("d", [2, 5, 64])
@pytest.mark.parametrize("norm", [1e-8, 1.0, 1e5])
@pytest.mark.parametrize("spread", [False, True])
def test_orthogonal_with_determinant_one_however_long_s_is(d, norm, spread):
    planes = torch.logspace(-4, 0, d // 2).double() if spread else torch.ones(d // 2).double()
    basis = haar_orthogonal(d, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    diagonal = torch.zeros(d, d).double()
    for i, s in enumerate(planes):
        diagonal[2 * i, 2 * i + 1], diagonal[2 * i + 1, 2 * i] = s, -s
    s = basis @ diagonal @ basis.mT
    p = cayley(norm * (s - s.mT) / 2)
    assert properties.orthogonality_error(p) <= 1e-14
    assert properties.largest_difference(torch.linalg.det(p), torch.ones(8).double()) <= 1e-12


@pytest.mark.proves("eq-cayley-plane")
@pytest.mark.parametrize("t", [-1e4, -0.2, 0.0, 1e-9, 3.0])
def test_a_plane_turns_anticlockwise_by_twice_the_arc_tangent(t):
    angle = 2 * math.atan(t)
    cos, sin = math.cos(angle), math.sin(angle)
    expected = torch.tensor([[cos, -sin], [sin, cos]], dtype=torch.float64)
    got = cayley(torch.tensor([[0.0, t], [-t, 0.0]], dtype=torch.float64))
    assert properties.largest_difference(got, expected) <= 1e-14


@pytest.mark.parametrize("std", [0.1, 1.0, 1e3])
def test_gradients_are_those_of_the_plain_solve(std):
    """The Newton step is the identity on orthogonal matrices: it must not change a derivative."""
    upper, upstream = std * random(2, 10), random(2, 5, 5, seed=1)
    gradients = []
    for transform in (cayley, lambda s: torch.linalg.solve(eye(5) + s, eye(5) - s)):
        leaf = upper.clone().requires_grad_()
        (gradient,) = torch.autograd.grad((transform(skew(leaf)) * upstream).sum(), leaf)
        gradients.append(gradient)
    scale = gradients[1].abs().max().item()
    assert properties.largest_difference(*gradients) <= 1e-11 * scale
    assert torch.autograd.gradcheck(lambda u: cayley(skew(u)), upper.div(std).requires_grad_())
    assert torch.autograd.gradgradcheck(lambda u: cayley(skew(u)), upper.div(std).requires_grad_())


@pytest.mark.parametrize("d", [2, 3, 5, 8])
def test_signs_reach_every_orthogonal_matrix_with_entries_up_to_one(d):
    """Some signs of the columns of any orthogonal Q give a transform of S, |S_ij| <= 1."""
    for seed in range(5):
        q = haar_orthogonal(d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        signs = torch.cartesian_prod(*[torch.tensor([1.0, -1.0], dtype=torch.float64)] * d)
        determinants = torch.linalg.det(eye(d) + q * signs.view(-1, 1, d))
        p = q * signs.view(-1, d)[determinants.abs().argmax()]
        s = torch.linalg.solve(eye(d) + p, eye(d) - p)
        assert properties.skew_error(s) <= 1e-12
        assert s.abs().max() <= 1 + 1e-12
        assert properties.largest_difference(cayley(s), p) <= 1e-12


@pytest.mark.parametrize("d", [1, 2, 7, 16])
@pytest.mark.parametrize("density", [0, 0.1, 0.5, 0.99, 1])
def test_the_support_lies_above_the_diagonal_without_repetition(d, density):
    rows, columns = upper_support(d, density)
    assert len(rows) == round(density * d * (d - 1) / 2)
    assert (rows < columns).all()
    assert len(set(zip(rows.tolist(), columns.tolist(), strict=True))) == len(rows)


@pytest.mark.proves("eq-cayley-sparse")
@pytest.mark.parametrize("density", [0.0, 0.3, 1.0])
def test_s_is_filled_as_the_literal_form_fills_it(density):
    made = encoder(9, heads=2, density=density)
    for entries, got in zip(made.entries.detach(), made.skew(), strict=True):
        literal = build_sparse_skew_symmetric(entries, made.support.T, 9)
        assert torch.equal(got, literal)
        assert properties.skew_error(got) == 0
    full = random(36)
    assert torch.equal(build_skew_symmetric(full, 9), skew(full))
    assert torch.equal(sparse_skew(full, upper_support(9, 1), 9), skew(full))


@pytest.mark.parametrize("assign", [False, True])
def test_the_support_travels_with_the_state(assign):
    one, other = encoder(12, 2, 2, 0.3, seed=0), encoder(12, 2, 2, 0.3, seed=9)
    assert not torch.equal(one.support, other.support)
    other.load_state_dict(copy.deepcopy(one.state_dict()), assign=assign)
    assert torch.equal(other.basis(), one.basis())
    for moved in (other.to(torch.bfloat16), other.half().float()):
        assert moved.support.dtype == torch.int64
        assert torch.equal(moved.support, one.support)


def test_the_basis_is_filled_within_the_connected_parts_of_the_support():
    chain = torch.tensor([[4, 0, 1, 6], [5, 4, 2, 7]])
    assert connected_parts(chain, 9).tolist() == [0, 1, 1, 3, 0, 0, 6, 6, 8]
    assert connected_parts(chain[:, :0], 3).tolist() == [0, 1, 2]
    line = torch.stack([torch.arange(49), torch.arange(1, 50)])
    assert connected_parts(line, 50).max() == 0
    torch.manual_seed(0)
    support = upper_support(40, 0.04)
    parts = connected_parts(support, 40)
    assert 1 < len(parts.unique()) < 40
    basis = cayley(sparse_skew(random(support.shape[1]), support, 40))
    assert torch.equal(basis.abs() > 1e-14, parts[:, None] == parts)


@pytest.mark.parametrize("tokens", [1, 7, 300])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_one_solve_a_call_and_no_inverse(tokens, elsewhere):
    made, positions = encoder(8, heads=3), torch.arange(tokens)[:, None]
    q, k = random(2, 2, 3, tokens, 8)
    key_positions = positions + 1 if elsewhere else None
    calls = (
        lambda: made(q, k, positions, key_positions),
        lambda: made.rotate(q, positions),
        lambda: made.fold(random(24, 5)),
    )
    for call in calls:
        with Operations() as operations:
            call()
        assert operations.count("solve") == 1
        assert operations.count("inv") == 0
    without = encoder(8, heads=3, density=0)
    with Operations() as operations:
        without(q, k, positions, key_positions)
        without.rotate(q, positions)
    assert operations.count("solve") == 0
    folded = made.folded()
    with Operations() as operations:
        folded(q, k, positions, key_positions)
    assert operations.count("solve") == 0


@pytest.mark.proves("eq-cayley-after")
def test_behind_rope_the_transform_cancels_and_learns_nothing():
    d, positions = 16, torch.arange(9.0).double()[:, None]
    q, k = random(2, 9, d)
    omega, entries = random(d // 2, 1), 0.5 * random(d * (d - 1) // 2, seed=4)
    entries.requires_grad_()

    def scores(literal, s):
        encoded_q, encoded_k = (literal(x, positions, s, omega) for x in (q, k))
        return encoded_q @ encoded_k.mT

    plain_q, plain_k = (apply_rope(x, positions[:, 0], omega[:, 0]) for x in (q, k))
    plain = plain_q @ plain_k.mT
    behind, before = scores(cayley_after_rope, skew(entries)), scores(cayley_string, skew(entries))
    assert properties.relative_logit_error(behind.detach(), plain, q, k) <= 1e-14
    assert properties.relative_logit_error(before.detach(), plain, q, k) >= 1e-2
    gradients = [torch.autograd.grad(x.softmax(-1).square().sum(), entries)[0]
                 for x in (behind, before)]  # fmt: skip
    assert gradients[0].abs().max() <= 1e-13
    assert gradients[1].abs().max() >= 1e-3


def test_over_all_heads_behind_rope_only_the_sum_of_heads_is_relative():
    width, heads = 32, 4
    places = torch.arange(9.0).double()[:, None]
    q, k = random(2, 9, width)
    omega, s = random(width // 2, 1), skew(random(width * (width - 1) // 2, seed=4))

    def scores(shift):
        q_heads, k_heads = (cayley_before_split(x, places + shift, s, omega, heads) for x in (q, k))
        return q_heads @ k_heads.mT

    change = scores(17.0) - scores(0.0)
    assert change.sum(0).abs().max() <= 1e-11
    assert change.abs().max() >= 0.5 * scores(0.0).square().mean().sqrt()


@pytest.mark.parametrize(("d", "coord_dim"), [(6, 1), (7, 1), (8, 1), (6, 2), (7, 3)])
def test_one_direction_for_each_plane_is_inert(d, coord_dim):
    """The rank of (S, Ω) ↦ generators: turning the vectors of a plane within it changes nothing."""
    made = encoder(d, coord_dim)
    pairs, count = d // 2, d * (d - 1) // 2

    def generators(entries, omega):
        state = {"entries": entries, "omega": omega}
        return torch.func.functional_call(
            _Generators(made), {f"of.{n}": v for n, v in state.items()}, ()
        )

    values = made.entries.detach(), made.omega.detach()
    jacobians = torch.autograd.functional.jacobian(generators, values)
    joined = torch.cat([j.flatten(-2 if i == 0 else -3).reshape(coord_dim * d * d, -1)
                        for i, j in enumerate(jacobians)], 1)  # fmt: skip
    values = torch.linalg.svdvals(joined)
    rank = count + pairs * coord_dim - pairs
    assert (values > 1e-9 * values[0]).sum() == rank
    assert values[rank - 1] > 1e-4 * values[0]


class _Generators(torch.nn.Module):
    def __init__(self, of: RotaryEncoder) -> None:
        super().__init__()
        self.of = of

    def forward(self):
        return self.of.generators()
