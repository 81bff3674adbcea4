"""What is particular to RoPE: its frequencies, its layouts, its literal twin."""

import pytest
import torch

from stringlib import RoPE, checks
from stringlib.algebra import layout_permutation
from stringlib.positions import geometric_frequencies
from stringlib.reference import apply_rope, rope_matrix, sinusoidal_table


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.proves("eq-rope-frequencies")
@pytest.mark.parametrize(("head_dim", "base"), [(2, 10.0), (6, 100.0), (64, 10000.0), (8, 1)])
def test_frequencies_are_geometric(head_dim, base):
    expected = [base ** (-2 * i / head_dim) for i in range(head_dim // 2)]
    got = RoPE(head_dim, base, heads=3).frequencies()
    assert got.shape == (3, head_dim // 2, 1)
    assert got.dtype == torch.float64
    for head in got:
        assert head[:, 0].tolist() == pytest.approx(expected, rel=1e-15)
    assert geometric_frequencies(head_dim // 2, base).tolist() == pytest.approx(expected, rel=1e-15)


@pytest.mark.proves("eq-rope-pair")
@pytest.mark.parametrize("head_dim", [2, 6, 64])
def test_interleaved_equals_the_literal_form(head_dim):
    rope = RoPE(head_dim)
    x, positions = random(2, 3, 7, head_dim), 50 * random(7, 1, seed=1)
    literal = apply_rope(x, positions[:, 0], rope.frequencies()[0, :, 0])
    assert checks.largest_difference(rope.rotate(x, positions), literal) <= 1e-13


@pytest.mark.proves("eq-telescope")
@pytest.mark.parametrize("head_dim", [2, 10])
def test_matrix_is_a_power_of_one_step(head_dim):
    rope = RoPE(head_dim, base=100.0)
    step = rope.matrix(torch.ones(1, 1).double())[0, 0]
    for t in (0, 1, 2, 13):
        power = torch.linalg.matrix_power(step, t)
        at_t = rope.matrix(torch.tensor([[float(t)]]).double())[0, 0]
        assert checks.largest_difference(at_t, power) <= 1e-13
        assert checks.largest_difference(at_t, rope_matrix(t, head_dim, 100.0)) <= 1e-13


@pytest.mark.proves("eq-rope-complex")
def test_pairs_are_complex_numbers_times_a_phase():
    rope, x, t = RoPE(8), random(1, 5, 8), torch.arange(5.0).double()
    phase = torch.exp(1j * t[:, None] * rope.frequencies()[0, :, 0])
    expected = (x[..., 0::2] + 1j * x[..., 1::2]) * phase
    got = rope.rotate(x, t[:, None])
    assert checks.largest_difference(got[..., 0::2], expected.real) <= 1e-14
    assert checks.largest_difference(got[..., 1::2], expected.imag) <= 1e-14


@pytest.mark.proves("eq-layout")
@pytest.mark.parametrize("head_dim", [2, 6, 64])
def test_one_permutation_turns_interleaved_into_half(head_dim):
    x, positions = random(2, 4, 7, head_dim), 100 * random(7, 1, seed=1)
    order = layout_permutation(head_dim)
    assert sorted(order.tolist()) == list(range(head_dim))
    assert order.tolist() == [*range(0, head_dim, 2), *range(1, head_dim, 2)]
    interleaved, half = RoPE(head_dim), RoPE(head_dim, layout="half")
    permuted = interleaved.rotate(x, positions)[..., order]
    assert checks.largest_difference(half.rotate(x[..., order], positions), permuted) <= 1e-14
    if head_dim > 2:  # without the permutation they are different encoders
        gap = half.rotate(x, positions) - interleaved.rotate(x, positions)
        assert gap.abs().max() > 0.1


@pytest.mark.proves("eq-rope-generator")
def test_the_generator_is_block_diagonal():
    generator = RoPE(6, base=100.0).generators()[0, 0]
    expected = torch.zeros(6, 6, dtype=torch.float64)
    for i in range(3):
        theta = 100 ** (-2 * i / 6)
        expected[2 * i, 2 * i + 1], expected[2 * i + 1, 2 * i] = -theta, theta
    assert checks.largest_difference(generator, expected) <= 1e-15


@pytest.mark.proves("eq-sinusoidal")
def test_the_sinusoidal_table_is_the_diagonal_of_the_rotation():
    """Sine and cosine of pair j are the imaginary and the real part of Θᵗ's entry j."""
    table, rope = sinusoidal_table(20, 16), RoPE(16)
    matrices = rope.matrix(torch.arange(20)[:, None])[0]
    for j in range(8):
        assert checks.largest_difference(table[:, 2 * j], matrices[:, 2 * j + 1, 2 * j]) <= 1e-13
        assert checks.largest_difference(table[:, 2 * j + 1], matrices[:, 2 * j, 2 * j]) <= 1e-13


def test_nothing_is_learned_stored_or_shared():
    rope = RoPE(8)
    assert list(rope.parameters()) == []
    assert rope.state_dict() == {}
    with pytest.raises(AttributeError):
        rope.base = 500.0
    assert RoPE(8, base=500.0).base == 500.0
    assert checks.largest_difference(RoPE(8).frequencies(), rope.frequencies()) == 0


def test_fold_changes_nothing():
    weight = random(16, 5)
    assert torch.equal(RoPE(8).fold(weight), weight)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"head_dim": 7}, ValueError, "head_dim must be even .*got 7"),
        ({"head_dim": 0}, ValueError, "head_dim must be at least 2, got 0"),
        ({"head_dim": 8.0}, TypeError, "head_dim must be an int, got 8.0"),
        ({"head_dim": 8, "base": 0}, ValueError, "base must be positive"),
        ({"head_dim": 8, "base": float("inf")}, ValueError, "base must be positive and finite"),
        ({"head_dim": 8, "base": "10000"}, TypeError, "base must be a number"),
        ({"head_dim": 8, "heads": 0}, ValueError, "heads must be at least 1, got 0"),
        ({"head_dim": 8, "layout": "neox"}, ValueError, "layout must be one of .*got 'neox'"),
    ],
)
def test_bad_arguments_are_named(arguments, error, match):
    with pytest.raises(error, match=match):
        RoPE(**arguments)
