"""The figures on what a STRING may do, and where: what the package and its literal twins say."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import normalize

from book.figures.cayley_string import solve_error
from stringlib import STRING, CayleySTRING, CirculantSTRING, DenseSTRING, MixedRoPE, RoPE
from stringlib.algebra import cayley, planar_skew, skew
from stringlib.reference import (
    cayley_after_rope,
    cayley_string,
    liere_first_error,
    liere_matrix,
)
from stringlib.testing import properties
from tests.figure_cases import exact, states


def _above(d: int) -> torch.Tensor:
    return torch.triu_indices(d, d, offset=1)


def test_lines_count_directions_in_which_generators_move() -> None:
    for at, (figure, told) in states("liere.numbers_of_an_encoder"):
        d, c = at["channels"], int(at["coordinates"])
        free, whole, table, circulant = (dot.y[0] for dot in figure.data[1::2])
        assert free == DenseSTRING(torch.zeros(1, c, d, d)).generators()[0, :, *_above(d)].numel()
        assert table == MixedRoPE(d - d % 2, c, heads=1).frequencies().numel()
        assert circulant == CirculantSTRING(d, c).frequencies().numel()
        assert f"{whole:,.0f} for a full STRING" in told
        if d > 8:
            continue
        encoder = CayleySTRING(d, c).double()
        parameters = [*encoder.parameters()]
        rows = []
        for entry in encoder.generators()[0, :, *_above(d)].flatten():
            row = torch.autograd.grad(entry, parameters, retain_graph=True)
            rows.append(torch.cat([part.flatten() for part in row]))
        assert whole == torch.linalg.matrix_rank(torch.stack(rows), rtol=1e-9)


def test_bars_are_the_error_of_liere_and_its_leading_term() -> None:
    generator = torch.Generator().manual_seed(4)
    free = skew(torch.randn(2, 6, dtype=torch.float64, generator=generator) / 2.5)
    for at, (figure, _) in states("liere.area_error"):
        a = exact([at["query"], 0.0])
        b = exact([at["first"], at["second"]])
        one, other, between = liere_matrix(torch.stack([a, b, b - a]), free)
        error, leading = figure.data[-1].y
        assert error == pytest.approx((one.mT @ other - between).norm().item(), abs=1e-9)
        assert leading == pytest.approx(liere_first_error(a, b, free).norm().item(), abs=1e-9)


def test_far_out_liere_is_near_its_limit_in_eigenvectors() -> None:
    free = torch.zeros(2, 3, 3, dtype=torch.float64)
    for k, (x, y, z) in enumerate(((0.9, 0.1, 0.3), (-0.2, 0.4, 0.9))):
        free[k] = exact([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    delta = exact([1.2, 0.0])
    for at, (figure, _) in states("liere.far_out"):
        angle, s = math.radians(at["direction"]), 10 ** at["distance"]
        u = exact([math.cos(angle), math.sin(angle)])
        along, across = (torch.einsum("k,kij->ij", x, free) + 0j for x in (u, delta))
        _, V = torch.linalg.eigh(1j * along)
        limit = ((V * torch.diagonal(V.mH @ across @ V).exp()) @ V.mH).real
        one, other, origin = liere_matrix(torch.stack([s * u, s * u + delta, delta]), free)
        for dot, end in zip(figure.data[1::2], (origin, limit), strict=True):
            assert dot.x[0] == pytest.approx(s)
            assert dot.y[0] == pytest.approx((one.mT @ other - end).norm().item(), abs=1e-9)


@pytest.mark.parametrize("d", [64, 65])
@pytest.mark.parametrize("power", [-1, 3, 5])
def test_the_condition_is_that_of_identity_plus_s(d: int, power: int) -> None:
    solved = {"inverse": (1e-15, 4e-12), "solve": (1e-15, 3e-12), "package": (1e-15, 1e-15)}
    figure, told = solve_error(str(d), power, recorded={str(d): solved}, sizes=(0.1, 1e5))
    generator = torch.Generator().manual_seed(6)
    S = skew(torch.randn(d * (d - 1) // 2, dtype=torch.float64, generator=generator))
    values = torch.linalg.svdvals(
        torch.eye(d).double() + 10**power * S / torch.linalg.matrix_norm(S, 2)
    )
    found = exact([v for v in figure.data[0].y if v])
    assert (found / values[::2] - 1).abs().max() < 6e-3  # three digits
    assert f"{values[0] / values[-1]:,.0f} times the smallest" in told
    for trace, errors in zip(figure.data[1:4], solved.values(), strict=True):
        assert list(trace.y) == pytest.approx([math.log10(v) for v in errors], abs=6e-4)


def test_only_the_sum_of_heads_is_level_after_rope() -> None:
    omega = RoPE(16).double().frequencies()[0]
    generator = torch.Generator().manual_seed(3)
    shapes = (16,), (16,), (120,)
    q, k, entries = (torch.randn(*s, generator=generator, dtype=torch.float64) for s in shapes)
    for at, (figure, told) in states("cayley_places.heads_behind"):
        twin = cayley_after_rope if at["stands"].startswith("after") else cayley_string
        S, shifts = at["size"] * skew(entries) / 4, torch.arange(41.0).double()[:, None]
        one, other = (
            twin(x.expand(41, 16), shifts + by, S, omega) for x, by in ((q, 0.0), (k, 3.0))
        )
        want = (one * other).view(41, 4, 4).sum(-1).mT / 4**0.5
        found = exact([trace.y for trace in figure.data])
        assert (found[:4] - want).abs().max() < 1e-10
        assert (found[4] - want.sum(0)).abs().max() < 1e-10
        assert found[4].max() - found[4].min() < 1e-10
        level = (found[:4].amax(-1) - found[:4].amin(-1)).max() < 1e-9
        assert level == (at["size"] == 0 or at["stands"] == "before RoPE")
        assert ("up to 0.00" in told) == level
        if at["stands"].startswith("after"):
            assert (found[4] - found[5]).abs().max() < 1e-10


def test_bars_are_singular_values_of_the_generator_in_the_entries() -> None:
    above = torch.triu_indices(6, 6, offset=1)
    for at, (figure, told) in states("cayley_places.acting_directions"):
        omega = exact([at["first"], at["second"], at["third"]])

        def entries(values: torch.Tensor, omega: torch.Tensor = omega) -> torch.Tensor:
            P = cayley(skew(values))
            return (P @ planar_skew(omega, 6) @ P.mT)[*above]

        moved = torch.autograd.functional.jacobian(entries, torch.zeros(15).double())
        want = torch.linalg.svdvals(moved).sort().values
        bars = exact(figure.data[0].y)
        found = torch.cat([bars.repeat_interleave(2), torch.zeros(3)]).sort().values
        assert (found - want).abs().max() < 1e-9
        assert f"{(want > 1e-9).sum()} of the 15" in told


def test_a_fold_moves_scores_after_scales_only() -> None:
    for at, (figure, _) in states("cayley_places.folded_scores"):
        direct, folded = figure.data[1].x, figure.data[1].y
        gap = max(abs(a - b) for a, b in zip(direct, folded, strict=True))
        assert (gap < 1e-10) == (at["spread"] == 0 or at["size"] == 0)
        generator = torch.Generator().manual_seed(5)
        shapes = (9, 16), (9, 16), (120,), (16,)
        q, k, entries, logs = (
            torch.randn(*s, generator=generator, dtype=torch.float64) for s in shapes
        )
        # the weights are queries and keys themselves: token n is channel n of nine
        encoder = STRING(
            RoPE(16).double().frequencies(), cayley(at["size"] * skew(entries) / 2)[None]
        )
        scales, places = (at["spread"] * logs).exp(), torch.arange(9)[:, None]

        found = []
        for by, pair in (
            (encoder, (q.mT, k.mT)),
            (encoder.folded(), (encoder.fold(q.mT), encoder.fold(k.mT))),
        ):
            one, other = (normalize(W.mT, dim=-1)[None] * scales for W in pair)
            found.append(properties.logits(by, one, other, places))
        for drawn, scored in zip((direct, folded), found, strict=True):
            scaled = (scored / found[0].square().mean().sqrt()).flatten()
            assert (exact(drawn) - scaled).abs().max() < 1e-6
