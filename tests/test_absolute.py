"""Absolute encodings: their values, their ends, and what their sum can be."""

import math

import pytest
import torch

from stringlib import LearnedAbsolute, Sinusoidal
from stringlib.models.absolute import GridSinusoidal, GridTable
from stringlib.positions import grid_positions
from stringlib.reference import add_rows, sinusoidal_table
from stringlib.testing import properties
from tests.draws import random

BOTH = {"sinusoidal": lambda: Sinusoidal(8), "learned": lambda: LearnedAbsolute(50, 8)}
both = pytest.mark.parametrize("make", BOTH.values(), ids=BOTH)
X, AT = torch.zeros(2, 6, 8), grid_positions(6)


@pytest.mark.proves("eq-abs-sum")
@pytest.mark.parametrize(("dim", "base"), [(2, 10000.0), (6, 100.0), (64, 10000.0)])
def test_the_sinusoids_are_those_of_the_printed_table(dim, base):
    module, x = Sinusoidal(dim, base=base), random(2, 40, dim)
    expected = torch.stack(
        [add_rows(one, torch.arange(40), sinusoidal_table(40, dim, base)) for one in x]
    )
    got = module(x, grid_positions(40))
    assert properties.largest_difference(got, expected) <= 1e-12
    assert properties.largest_difference(module(x, torch.arange(40)[:, None]), expected) <= 1e-12


def test_any_real_position_has_a_vector():
    at = torch.tensor([[0.5], [-3.25], [1e6 + 0.125]], dtype=torch.float64)
    got = Sinusoidal(4, base=100.0)(torch.zeros(3, 4).double(), at)
    for row, (t,) in zip(got.tolist(), at.tolist(), strict=True):
        expected = [math.sin(t), math.cos(t), math.sin(t / 10), math.cos(t / 10)]
        assert row == pytest.approx(expected, abs=1e-9)


@pytest.mark.proves("eq-abs-sum")
def test_a_learned_table_adds_its_rows():
    module, x = LearnedAbsolute(50, 8).double(), random(3, 6, 8)
    at = torch.tensor([0, 49, 7, 7, 3, 1])
    expected = torch.stack([add_rows(one, at, module.weight.detach()) for one in x])
    for positions in (at[:, None], at[:, None].float(), at[:, None].to(torch.uint8)):
        assert torch.equal(module(x, positions), expected)


@both
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtype_out_is_dtype_in_with_one_rounding(make, dtype):
    module, x, at = make(), random(6, 8).to(dtype), grid_positions(6)
    got = module(x, at)
    assert got.dtype == dtype
    exact = module.double()(x.double(), at)
    half_a_unit = torch.finfo(dtype).eps / 2 * exact.abs()
    of_the_vector = torch.finfo(torch.promote_types(dtype, torch.float32)).eps
    assert ((got.double() - exact).abs() <= half_a_unit + of_the_vector).all()


@both
def test_gradients_reach_tokens_positions_and_table(make):
    module = make().double()
    x, at = random(3, 8).requires_grad_(), torch.tensor([[0.0], [2.0], [2.0]]).double()
    if isinstance(module, Sinusoidal):
        assert torch.autograd.gradcheck(module, (x, at.requires_grad_()))
        return
    module(x, at).sum().backward()
    rows = module.weight.grad[:, 0]
    assert rows[:4].tolist() == [1, 0, 2, 0]
    assert torch.equal(x.grad, torch.ones_like(x))


@both
def test_it_is_one_graph(make):
    module, x, at = make(), random(2, 6, 8), grid_positions(6)
    compiled = torch.compile(module, fullgraph=True, backend="eager")
    assert properties.largest_difference(compiled(x, at), module(x, at)) <= 1e-12


@pytest.mark.parametrize(
    ("position", "match"),
    [
        *((at, f"must be integers from 0 to 49.* got {at:g}") for at in (50, -1, 2.5, 1e7)),
        (1e30, "must be within ±16777216"),
        (float("nan"), "must be finite"),
        (float("inf"), "must be finite"),
    ],
)
def test_a_position_without_a_row_is_named(position, match):
    at = torch.tensor([[0], [position], [3]])
    with pytest.raises(ValueError, match=f"positions {match}".replace("+", r"\+")):
        LearnedAbsolute(50, 8)(torch.zeros(3, 8), at)


def test_sinusoids_of_each_coordinate():
    x, places = torch.randn(2, 6, 24), grid_positions(2, 3)
    found = GridSinusoidal(24, 2)(x, places)
    line = Sinusoidal(12)
    assert torch.equal(found[..., :12], line(x[..., :12], places[:, :1]))
    assert torch.equal(found[..., 12:], line(x[..., 12:], places[:, 1:]))
    x = torch.randn(6, 8)
    assert torch.equal(GridSinusoidal(8, 1)(x, places[:, :1]), Sinusoidal(8)(x, places[:, :1]))


@pytest.mark.parametrize("sizes", [(5,), (2, 3), (2, 3, 4)])
def test_a_table_adds_its_row(sizes):
    table, places = GridTable(sizes, 8), grid_positions(*sizes)
    x = torch.randn(2, len(places), 8)
    rows = x + table.weight.flatten(0, -2)
    assert torch.equal(table(x, places), rows)
    assert torch.equal(table.places(*sizes), places)
    if len(sizes) == 1:
        line = LearnedAbsolute(5, 8)
        line.weight.data = table.weight.data
        assert torch.equal(table(x, places), line(x, places))


@pytest.mark.parametrize(("sizes", "kind"), [((5,), "linear"), ((4, 3), "bilinear")])
def test_a_table_over_another_grid_is_interpolated(sizes, kind):
    table = GridTable(sizes, 8).double()
    for other in ([2 * n for n in sizes], [n + 1 for n in sizes], [1 for _ in sizes]):
        image = table.weight.movedim(-1, 0)[None]
        expected = torch.nn.functional.interpolate(image, other, mode=kind, align_corners=False)
        places = table.places(*other)
        found = table(torch.zeros(len(places), 8).double(), places)
        assert properties.largest_difference(found, expected[0].flatten(1).mT) <= 1e-6


def test_a_table_between_and_beyond_its_cells():
    table = GridTable((2, 3), 8)
    at = torch.tensor([[0.5, 1.25], [-3.0, 9.0]])
    found = table(torch.zeros(2, 8), at)
    w = table.weight
    between = 0.5 * (0.75 * w[0, 1] + 0.25 * w[0, 2]) + 0.5 * (0.75 * w[1, 1] + 0.25 * w[1, 2])
    assert torch.allclose(found, torch.stack([between, w[0, 2]]), atol=1e-7)
