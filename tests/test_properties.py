"""The checks themselves, each of which must see its fault; records; encoders by name."""

import json

import pytest
import sympy as sp

from lab import symbolic
from lab.explore.style import COLOURS
from lab.records import read_record, write_record
from stringlib import ENCODERS, RoPE, make_encoder
from stringlib.testing import properties
from tests.encoder_cases import CASES, make


class Broken(RoPE):
    """A rotary encoder with one planted fault."""

    def __init__(self, fault):
        super().__init__(8)
        self.fault = fault

    def matrix(self, positions):
        return super().matrix(positions) * (1.001 if self.fault == "matrix" else 1)

    def forward(self, q, k, positions, key_positions=None):
        if self.fault == "clip":
            positions = positions.clamp(max=20)
        return super().forward(q, k, positions, key_positions)

    def fold(self, weight):
        return super().fold(weight).roll(1, 0) if self.fault == "fold" else super().fold(weight)


def test_a_proof_needs_equal_sides_and_a_mutant_that_differs():
    a, b = sp.symbols("a b", real=True)
    sides = (
        (sp.cos(a) ** 2, 1 - sp.sin(a) ** 2, 1 + sp.sin(a) ** 2),
        (sp.MatrixSymbol("P", 3, 3).T, sp.MatrixSymbol("P", 3, 3).T, sp.MatrixSymbol("P", 3, 3)),
        (sp.Integral(a, (a, 0, b)), sp.Integral(a, (a, 0, b)), sp.Integral(b, (b, 0, a))),
        (sp.eye(2), sp.eye(2), sp.eye(3)),
        (  # a matrix symbol written out is both: its entries are compared
            sp.MatrixSymbol("P", 2, 2).as_explicit() * (a + b),
            sp.Matrix(2, 2, lambda i, j: sp.expand(sp.MatrixSymbol("P", 2, 2)[i, j] * (a + b))),
            sp.MatrixSymbol("P", 2, 2).as_explicit() * (a - b),
        ),
    )
    for left, right, wrong in sides:
        symbolic.proves("eq-x", left, right, wrong=wrong)
        with pytest.raises(AssertionError, match="right must equal left in eq-x"):
            symbolic.proves("eq-x", left, wrong, wrong=right)
        with pytest.raises(AssertionError, match="wrong must differ from left in eq-x"):
            symbolic.proves("eq-x", left, right, wrong=right)


def test_records_are_whole_and_complete(tmp_path):
    path = tmp_path / "new" / "run.json"
    write_record(path, command="python x.py", seeds=[0, 1], wall_s=1.23, data={"a": [1.5]})
    record = read_record(path)
    assert record["data"] == {"a": [1.5]}
    assert record["wall_s"] == 1.2
    assert record["versions"]["torch"]
    before = path.read_text()
    with pytest.raises(ValueError, match="nan"):
        write_record(path, command="", seeds=[], wall_s=0, data=float("nan"))
    assert path.read_text() == before
    assert [p.name for p in path.parent.iterdir()] == ["run.json"]
    path.write_text(json.dumps({"command": ""}))
    with pytest.raises(ValueError, match="seeds"):
        read_record(path)


def test_a_record_is_found_by_name_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert read_record("rope_shift")["command"].startswith("python results/rope_shift.py")
    with pytest.raises(FileNotFoundError, match=r"record must .* Did you mean 'rope_shift'\?"):
        read_record("rope-shift")
    with pytest.raises(FileNotFoundError, match=r"got .*none\.json\. Run the command"):
        read_record(tmp_path / "none.json")
    (tmp_path / "none.py").touch()
    with pytest.raises(FileNotFoundError, match=r"Make it with python .*none\.py"):
        read_record(tmp_path / "none.json")


@pytest.mark.parametrize("coord_dim", [1, 2, 3])
@pytest.mark.parametrize("name", ENCODERS)
def test_every_name_makes_an_encoder_of_the_shape_asked_for(name, coord_dim):
    if name == "rope" and coord_dim > 1:
        with pytest.raises(ValueError, match="coord_dim must be 1 for encoder 'rope', got"):
            make_encoder(name, 16, coord_dim)
        return
    encoder = make_encoder(name, 16, coord_dim, heads=3)
    assert (encoder.head_dim, encoder.coord_dim, encoder.heads) == (16, coord_dim, 3)
    assert name.split("-")[0] in COLOURS


@pytest.mark.parametrize("name", CASES)
def test_one_line_measures_every_property(name):
    assert max(properties.all_errors(make(name)).values()) <= 1e-11


@pytest.mark.parametrize(
    ("fault", "seen"),
    [
        ("clip", {"relative"}),
        ("fold", {"fold"}),
        ("matrix", {"orthogonal", "group law", "generators"}),
    ],
)
def test_properties_see_each_fault(fault, seen):
    errors = properties.all_errors(Broken(fault))
    assert {name for name, error in errors.items() if error > 1e-11} == seen
    large = 5e-4 if fault == "matrix" else 0.1
    assert all(errors[name] > large for name in seen)
