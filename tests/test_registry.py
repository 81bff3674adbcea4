"""Encoders by name, and all their properties in one line."""

import pytest
import torch

from stringlib import ENCODERS, ALiBi, checks, make_encoder
from stringlib.explore.style import COLOURS
from tests.encoder_cases import CASES, make
from tests.test_checks import Broken


@pytest.mark.parametrize("coord_dim", [1, 2, 3])
@pytest.mark.parametrize("name", ENCODERS)
def test_every_name_makes_an_encoder_of_the_shape_asked_for(name, coord_dim):
    if name == "rope" and coord_dim > 1:
        with pytest.raises(ValueError, match="coord_dim must be 1 for rope, got"):
            make_encoder(name, 16, coord_dim)
        return
    encoder = make_encoder(name, 16, coord_dim, heads=3)
    assert (encoder.head_dim, encoder.coord_dim, encoder.heads) == (16, coord_dim, 3)
    assert name.split("-")[0] in COLOURS


def test_the_sparse_one_learns_a_tenth_of_the_entries():
    dense, sparse = (make_encoder(n, 16, heads=3).entries for n in ("cayley", "cayley-sparse"))
    assert (dense.shape, sparse.shape) == ((3, 120), (3, 12))


def test_an_unknown_name_is_told_the_known_ones():
    with pytest.raises(ValueError, match=r"name must be one of rope, axial, .*, got 'alibi'"):
        make_encoder("alibi", 16)


@pytest.mark.parametrize("name", CASES)
def test_one_line_measures_every_property(name):
    assert max(checks.properties(make(name)).values()) <= 1e-11


def test_properties_are_those_of_rotary_encoders():
    with pytest.raises(TypeError, match="encoder must be a RotaryEncoder, got ALiBi"):
        checks.properties(ALiBi(2))


def test_properties_leave_the_encoder_as_it_was():
    encoder = make_encoder("mixed", 8, 2)
    state = torch.random.get_rng_state()
    checks.properties(encoder)
    assert encoder.omega.dtype == torch.float32
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize(
    ("fault", "seen"),
    [
        ("clip", {"relative"}),
        ("fold", {"fold"}),
        ("matrix", {"orthogonal", "group law", "generators"}),
    ],
)
def test_properties_see_each_fault(fault, seen):
    errors = checks.properties(Broken(fault))
    assert {name for name, error in errors.items() if error > 1e-11} == seen
