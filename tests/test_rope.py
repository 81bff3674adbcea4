"""What is particular to RoPE, on a line and along axes: its frequencies, layouts and scores."""

import pytest
import torch

from stringlib import AxialRoPE, RoPE
from stringlib.encoders.rope import mrope
from stringlib.kernels.rotation import geometric_frequencies
from stringlib.reference import rope_matrix
from stringlib.testing import properties
from tests.refusals import refusals


@pytest.mark.proves("eq-rope-frequencies")
@pytest.mark.parametrize(("head_dim", "base"), [(2, 10.0), (6, 100.0), (64, 10000.0), (8, 1)])
def test_frequencies_are_geometric(head_dim, base):
    expected = [base ** (-2 * i / head_dim) for i in range(head_dim // 2)]
    got = RoPE(head_dim, base=base, heads=3).frequencies()
    assert got.shape == (3, head_dim // 2, 1)
    for head in got:
        assert head[:, 0].tolist() == pytest.approx(expected, rel=1e-15)
    assert geometric_frequencies(head_dim // 2, base).tolist() == pytest.approx(expected, rel=1e-15)
    assert torch.equal(AxialRoPE(head_dim, 1, base=base, heads=3).frequencies(), got)


@pytest.mark.proves("eq-telescope")
@pytest.mark.parametrize("head_dim", [2, 10])
def test_matrix_is_a_power_of_one_step(head_dim):
    rope, step = RoPE(head_dim, base=100.0), rope_matrix(1, head_dim, 100.0)
    for t in (0, 1, 2, 13):
        power = torch.linalg.matrix_power(step, t)
        assert properties.largest_difference(rope_matrix(t, head_dim, 100.0), power) <= 1e-13
        at_t = rope.matrix(torch.tensor([[float(t)]]).double())[0, 0]
        assert properties.largest_difference(at_t, power) <= 1e-13


@pytest.mark.proves("eq-grid-axial")
@pytest.mark.parametrize("shares", [[4], [16, 16], [11, 11, 10], [3, 2], [1, 1, 1, 1], [3, 2, 2]])
def test_pairs_are_shared_as_evenly_as_possible_in_contiguous_blocks(shares):
    pairs = sum(shares)
    omega = AxialRoPE(2 * pairs, len(shares), base=30.0, heads=2).frequencies()
    assert omega.shape == (2, pairs, len(shares))
    for head in omega:
        first = 0
        for k, own in enumerate(shares):
            block = head[first : first + own]
            expected = [30.0 ** (-i / own) for i in range(own)]
            assert block[:, k].tolist() == pytest.approx(expected, rel=1e-15)
            assert block.count_nonzero() == own  # nothing of the other coordinates
            first += own


MROPE = {
    "blocks": ((2, 3, 1), False, [0, 0, 1, 1, 1, 2]),
    "in turns": ((2, 2, 2), True, [0, 1, 2, 0, 1, 2]),
    "the first has the rest": ((4, 2, 1), True, [0, 1, 2, 0, 1, 0, 0]),
    "the last does not wait": ((3, 1, 2), True, [0, 1, 2, 0, 0, 2]),
    "one coordinate": ((3,), True, [0, 0, 0]),
    "two": ((2, 2), True, [0, 1, 0, 1]),
}


@pytest.mark.proves("eq-grid-axial")
@pytest.mark.parametrize(("sections", "interleaved", "axes"), MROPE.values(), ids=MROPE)
def test_in_mrope_each_pair_reads_one_coordinate(sections, interleaved, axes):
    plain = RoPE(2 * len(axes), heads=2).frequencies()
    omega = mrope(plain, sections, interleaved=interleaved)
    assert omega.dtype == torch.float64
    assert omega.shape == (2, len(axes), len(sections))
    assert omega.argmax(-1).tolist() == [axes, axes]
    assert torch.equal(omega.sum(-1, keepdim=True), plain)
    assert (omega.count_nonzero(-1) == 1).all()


OMEGA = torch.ones(1, 6, 1)


test_sections_that_cannot_be_are_named = refusals(
    (lambda: mrope(OMEGA, (2, 2)), r"sections must add up to the number of pairs, 6, got \(2, 2\)"),
    (
        lambda: mrope(OMEGA, (1, 4, 1), interleaved=True),
        r"sections\[1\] must be at most 2 .* got 4 in \(1, 4, 1\)",
    ),
    (lambda: mrope(OMEGA, (6, 0)), "sections must be at least 1, got 0"),
    (lambda: mrope(OMEGA, (3.0, 3)), "TypeError: sections must be an int, got 3.0"),
)
