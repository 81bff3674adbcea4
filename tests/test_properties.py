"""The checks themselves: each must see the fault that it is there for; encoders by name."""

import json

import pytest
import sympy as sp
import torch

from lab import symbolic
from lab.explore.style import COLOURS
from lab.records import read_record, write_record
from stringlib import ENCODERS, CirculantSTRING, RoPE, make_encoder
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


def test_matrix_errors():
    assert properties.skew_error(torch.tensor([[0.0, 1.0], [-1.0, 0.5]])) == 1.0
    generators = torch.stack([torch.eye(2), torch.tensor([[0.0, 1.0], [0.0, 0.0]])])
    assert properties.commutator_error(generators) == 0
    generators[0, 0, 0] = 3
    assert properties.commutator_error(generators) == 2
    assert properties.largest_difference(torch.zeros(0), torch.zeros(0)) == 0


def test_relative_logit_error_is_relative():
    q, k = 10 * torch.ones(1, 1, 4), 100 * torch.ones(1, 2, 4)
    logits = q @ k.mT
    assert properties.relative_logit_error(logits, logits + 4.0, q, k) == pytest.approx(
        4 / (20 * 200)
    )


def test_symbolic_matrices():
    a, b = sp.symbols("a b", real=True)
    assert symbolic.vanishes(symbolic.rotation(a) * symbolic.rotation(b) - symbolic.rotation(a + b))
    assert not symbolic.vanishes(symbolic.rotation(a) - symbolic.rotation(b))
    c = sp.symbols("c0:6", real=True)
    matrix = symbolic.circulant(c)
    assert list(matrix.col(0)) == list(c)
    assert matrix[0, 1] == c[5]
    mode = symbolic.fourier_vector(6, 1)
    eigenvalue = sum(c[m] * sp.exp(-sp.I * sp.pi * m / 3) for m in range(6))
    assert symbolic.vanishes(matrix * mode - eigenvalue * mode)
    assert not symbolic.vanishes(matrix * mode + eigenvalue * mode)


def test_a_proof_needs_equal_sides_and_a_mutant_that_differs():
    a, b = sp.symbols("a b", real=True)
    sides = (
        (sp.cos(a) ** 2, 1 - sp.sin(a) ** 2, 1 + sp.sin(a) ** 2),
        (
            symbolic.rotation(a) * symbolic.rotation(b),
            symbolic.rotation(a + b),
            symbolic.rotation(a - b),
        ),
        (sp.MatrixSymbol("P", 3, 3).T, sp.MatrixSymbol("P", 3, 3).T, sp.MatrixSymbol("P", 3, 3)),
        (sp.Integral(a, (a, 0, b)), sp.Integral(a, (a, 0, b)), sp.Integral(b, (b, 0, a))),
        (sp.eye(2), sp.eye(2), sp.eye(3)),
        (  # a matrix symbol written out is both: its entries are compared
            sp.MatrixSymbol("P", 2, 2).as_explicit() * (a + b),
            sp.Matrix(2, 2, lambda i, j: sp.expand(sp.MatrixSymbol("P", 2, 2)[i, j] * (a + b))),
            sp.MatrixSymbol("P", 2, 2).as_explicit() * (a - b),
        ),
        (sp.Function("f")(a), sp.Function("f")(a), sp.Function("f")(b)),
    )
    for left, right, wrong in sides:
        symbolic.proves("eq-x", left, right, wrong=wrong)
        with pytest.raises(AssertionError, match="eq-x: the two sides differ"):
            symbolic.proves("eq-x", left, wrong, wrong=right)
        with pytest.raises(AssertionError, match="eq-x: the wrong variant passes too"):
            symbolic.proves("eq-x", left, right, wrong=right)


def test_orthogonal_matrix_symbols_cancel_and_others_stay():
    d = sp.symbols("d", integer=True, positive=True)
    U, P, X = (sp.MatrixSymbol(name, d, d) for name in "UPX")
    assert symbolic.cancelled((U * P * X).T * (U * P * X), U, P) == X.T * X
    assert symbolic.cancelled(U.T * P * P.T * U, U, P) == sp.Identity(d)
    assert symbolic.cancelled((P * X).T * (P * X), U) == X.T * P.T * P * X
    assert symbolic.cancelled(P * X * P, P) == P * X * P


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
    with pytest.raises(FileNotFoundError, match=r"record: .* Did you mean 'rope_shift'\?"):
        read_record("rope-shift")
    with pytest.raises(FileNotFoundError, match=r"got .*none\.json\. Run the command"):
        read_record(tmp_path / "none.json")
    (tmp_path / "none.py").touch()
    with pytest.raises(FileNotFoundError, match=r"Make it with python .*none\.py"):
        read_record(tmp_path / "none.json")


def test_the_learned_encoder_can_be_trained():
    """A few steps of gradient descent find a given frequency."""
    torch.manual_seed(0)
    encoder = CirculantSTRING(3).double()
    q = k = torch.randn(1, 9, 3).double()
    positions = torch.arange(9.0).double()[:, None]
    target = CirculantSTRING(3).double()
    with torch.no_grad():
        target.coefficients[..., 1] = 0.15
        encoder.coefficients.zero_()[..., 1] = 0.08
    wanted = properties.logits(target, q, k, positions).detach()
    optimizer = torch.optim.Adam(encoder.parameters(), 0.01)
    for _ in range(200):
        optimizer.zero_grad()
        ((properties.logits(encoder, q, k, positions) - wanted) ** 2).mean().backward()
        optimizer.step()
    assert properties.largest_difference(encoder.frequencies(), target.frequencies()) <= 1e-3


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


@pytest.mark.parametrize("name", CASES)
def test_one_line_measures_every_property(name):
    assert max(properties.all_errors(make(name)).values()) <= 1e-11


def test_properties_leave_the_encoder_as_it_was():
    encoder = make_encoder("mixed", 8, 2)
    state = torch.random.get_rng_state()
    properties.all_errors(encoder)
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
    errors = properties.all_errors(Broken(fault))
    assert {name for name, error in errors.items() if error > 1e-11} == seen
    large = 5e-4 if fault == "matrix" else 0.1
    assert min(errors[name] for name in seen) > large
