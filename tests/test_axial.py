"""What is particular to axial RoPE: who gets which pairs, and what a separable score cannot do."""

import pytest
import torch

from stringlib import AxialRoPE, RoPE, checks
from stringlib.positions import geometric_frequencies, grid_positions
from stringlib.reference import apply_axial_rope


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.proves("eq-grid-axial")
@pytest.mark.parametrize(
    ("head_dim", "shares"),
    [
        (8, [4]),
        (64, [16, 16]),
        (64, [11, 11, 10]),
        (10, [3, 2]),
        (8, [1, 1, 1, 1]),
        (14, [3, 2, 2]),
    ],
)
def test_pairs_are_shared_as_evenly_as_possible_in_contiguous_blocks(head_dim, shares):
    omega = AxialRoPE(head_dim, len(shares), base=30.0, heads=2).frequencies()
    assert omega.shape == (2, head_dim // 2, len(shares))
    for head in omega:
        first = 0
        for k, own in enumerate(shares):
            block = head[first : first + own]
            expected = [30.0 ** (-i / own) for i in range(own)]
            assert block[:, k].tolist() == pytest.approx(expected, rel=1e-15)
            assert block.count_nonzero() == own  # nothing of the other coordinates
            first += own


@pytest.mark.parametrize(("head_dim", "base"), [(2, 10.0), (10, 100.0), (64, 10_000.0)])
def test_with_one_coordinate_it_is_rope(head_dim, base):
    axial, rope = AxialRoPE(head_dim, 1, base), RoPE(head_dim, base)
    assert torch.equal(axial.frequencies(), rope.frequencies())
    x, positions = random(2, 3, 9, head_dim), 50 * random(9, 1, seed=1)
    assert torch.equal(axial.rotate(x, positions), rope.rotate(x, positions))


@pytest.mark.proves("eq-grid-axial")
@pytest.mark.parametrize(("head_dim", "coord_dim"), [(6, 1), (8, 2), (10, 2), (64, 3), (14, 3)])
def test_equals_the_literal_form(head_dim, coord_dim):
    x, positions = random(2, 3, 5, head_dim), 30 * random(5, coord_dim, seed=1)
    for base in (10.0, 100.0):
        literal = apply_axial_rope(x, positions, base)
        turned = AxialRoPE(head_dim, coord_dim, base).rotate(x, positions)
        assert checks.largest_difference(turned, literal) <= 1e-13


@pytest.mark.proves("eq-grid-separable")
def test_the_score_is_a_sum_of_one_function_of_each_coordinate():
    """The table of scores over a grid has no interaction: second differences across axes are 0."""
    q, k = random(2, 1, 1, 16)
    encoder = AxialRoPE(16, 2)
    offsets = grid_positions(7, 9, dtype=torch.float64)
    turned = encoder.rotate(k.expand(1, 63, -1), offsets)
    table = (turned @ q[0, 0]).view(7, 9)
    mixed_difference = table.diff(dim=0).diff(dim=1)
    assert mixed_difference.abs().max() <= 1e-13
    assert table.std() > 0.1


def test_base_is_fixed_and_shown():
    encoder = AxialRoPE(8, 2, base=50)
    assert encoder.base == 50.0
    with pytest.raises(AttributeError):
        encoder.base = 10.0
    assert repr(encoder) == "AxialRoPE(8, 2, base=50, heads=1)"
    assert encoder.state_dict() == {}
    assert list(encoder.parameters()) == []


def test_to_empty_fills_the_frequencies_again():
    encoder = AxialRoPE(10, 2, heads=3)
    before = encoder.frequencies().clone()
    emptied = encoder.to("meta").to_empty(device="cpu")
    assert torch.equal(emptied.frequencies(), before)
    assert torch.equal(before[2, :3, 0], geometric_frequencies(3, 100.0))


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ((7, 2), ValueError, "head_dim must be even .* got 7"),
        ((4, 3), ValueError, "head_dim must be at least 6, .* 3 coordinates, got 4"),
        ((8, 0), ValueError, "coord_dim must be at least 1, got 0"),
        ((8, 2.0), TypeError, "coord_dim must be an int, got 2.0"),
        ((8, 2, 0.0), ValueError, "base must be positive"),
        ((8, 2, "100"), TypeError, "base must be a number"),
        ((8, 2, 100.0, 0), ValueError, "heads must be at least 1, got 0"),
    ],
)
def test_bad_arguments_are_named(arguments, error, match):
    with pytest.raises(error, match=match):
        AxialRoPE(*arguments)


@pytest.mark.parametrize(("head_dim", "coord_dim"), [(7, 2), (2, 2)])
def test_the_literal_form_refuses_what_it_cannot_share(head_dim, coord_dim):
    with pytest.raises(ValueError, match="x must have an even last dimension"):
        apply_axial_rope(torch.zeros(1, 3, head_dim), torch.zeros(3, coord_dim))
