"""The figures of the chapters on attention show what the package computes."""

from __future__ import annotations

import functools
import math
import re

import numpy as np
import pytest
import torch

from book.figures import favor_plus as favor
from book.figures import linear_attention as three_forms
from book.figures.associative_recall import RIGHT, TOKENS, VALUES
from book.figures.gating import START_SCORE
from book.figures.gating import VALUES as PLANE
from book.figures.length_extrapolation import beyond_training
from book.figures.rotations_meet_linear_attention import KERNEL_FEATURES, shifted_kernels
from book.figures.toeplitz_rpe import toeplitz_operations
from lab.explore import COLOURS
from lab.theory.extrapolation import seen_turns, unseen_share
from lab.theory.structured_variance import (
    circulant_mean_mse,
    circulant_mse,
    circulant_worst_ratio,
    structured_bias_bounds,
    unit_circulant_moments,
)
from lab.theory.variance import optimal_mse, orthogonal_mse, positive_mse
from stringlib import CosineWeight, RoPE, linear_attention, reference
from stringlib.attention.features import optimal_alpha
from stringlib.encoders.scaling import ntk_aware, position_interpolation, yarn
from stringlib.testing.properties import largest_difference
from tests.figure_cases import states

# --- one causal sum in three forms ---


def exact(values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_the_two_parts_add_up_to_what_the_package_computes() -> None:
    phi_q, phi_k, u = (x[None] for x in three_forms._example())
    for at, (fig, text) in states("linear_attention.three_forms"):
        token, chunk = at["token"], at["chunk"]
        seen, first = slice(token + 1), token - token % chunk
        sums, state = linear_attention(
            phi_q[:, seen],
            phi_k[:, seen],
            u[:, seen, :-1],
            causal=True,
            normalize=False,
            return_state=True,
        )
        _, by_state, own, row, before, now = fig.data
        both = exact(by_state.y) + exact(own.y)
        assert largest_difference(both, exact(row.y)) < 1e-12
        assert largest_difference(both[:-1], sums[0, token]) < 1e-12
        assert largest_difference(exact(now.z), state.sums[0]) < 1e-12
        assert largest_difference(exact(before.z), phi_k[0, :first].mT @ u[0, :first]) < 1e-12
        low, high = fig.layout.yaxis2.range
        assert low < min(*by_state.y, *own.y, *row.y)
        assert high > max(row.y)
        # the frames cover the keys that the token sees
        frames = fig.layout.shapes
        covered = [k for s in frames for k in range(round(s.x0 + 0.5), round(s.x1 + 0.5))]
        assert covered == list(range(token + 1))
        assert len(frames) == (2 if first else 1)
        parts = (
            f"keys 0 to {first - 1} come through the state, keys {first} to {token} one by one",
            f"No chunk is complete, so keys 0 to {token}",
        )
        assert parts[first == 0] in text


def test_outputs_are_those_of_a_turned_query_and_signed_features_have_no_bound() -> None:
    k, v = (exact(x)[None] for x in (three_forms.KEYS, three_forms.SPOKEN))
    for at, (figure, text) in states("linear_attention.turned_query"):
        turn = math.radians(at["angle"])
        q = exact([[[math.cos(turn), math.sin(turn)]]])
        signed = functools.partial(linear_attention, q, k, normalize=False)
        outputs = [
            reference.softmax_attention(q, k, v[..., None]),
            linear_attention(q.relu(), k.relu(), v[..., None]),
            signed(v[..., None]) / signed(torch.ones_like(v)[..., None]),
        ]
        assert list(figure.data[-1].y) == pytest.approx([x.item() for x in outputs])
        assert (outputs[1] == 0) == (at["angle"] == 200)
        soft, relu, line = figure.data[3:6]
        assert max(map(abs, [*soft.y, *relu.y])) <= 1
        gaps = [x for x, y in zip(line.x, line.y, strict=True) if y is None]
        zero = math.degrees(math.atan2(*k[0].sum(0).tolist()[::-1])) + 90
        assert {round(x / 180 - zero / 180) for x in gaps} == {0, 1}
        assert all(min(abs(x - zero), abs(x - zero - 180)) < 4 for x in gaps)
        assert f"return {outputs[2].item():.1f}: their line" in text


# --- random features ---


def test_lines_are_the_formulas_and_bars_are_all_draws() -> None:
    for at, (figure, text) in states("favor_plus.favor_error"):
        independent, own, measured, bars, median = figure.data
        square = exact(at["length"] ** 2)
        assert independent.y[2] == pytest.approx(positive_mse(square, 64).sqrt().item(), rel=5e-3)
        mse = {
            "iid": positive_mse(square, 64),
            "orthogonal": orthogonal_mse(square, 64, 64),
            "hyperbolic": orthogonal_mse(square, 32, 64, hyperbolic=True),
            "optimal": optimal_mse(square, 64, 64, optimal_alpha(square, 64)),
        }.get(at["kind"])
        assert own.y[2] == (mse if mse is None else pytest.approx(mse.sqrt().item(), rel=5e-3))
        assert sum(bars.y) == pytest.approx(100, abs=0.2)
        assert f"median is {median.x[0]:.2f}" in text
        if at["length"] == 1:  # small arguments, so that 1,000 draws hold the whole error
            assert mse is None or measured.y[2] == pytest.approx(mse.sqrt().item(), rel=0.1)
            assert 0.9 < median.x[0] < 1.05 or at["size"] < 64
        elif at["kind"] == "iid":
            assert median.x[0] < 0.9


def test_outputs_are_those_of_the_package_and_habits_let_the_last_key_move_them() -> None:
    q, k, rows, v = favor._causal_example()
    first = None
    for at, (figure, text) in states("favor_plus.causal_habits"):
        keys = torch.cat([k[:-1], at["factor"] * k[-1:]])
        phi_q, phi_k = (reference.positive_features(x, rows)[None] for x in (q, keys))

        def outputs(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
            return linear_attention(queries, keys, v[None, :, None], causal=True)[0, :, 0]

        def habit(x: torch.Tensor, top: torch.Tensor) -> torch.Tensor:
            half = x.square().sum(-1, keepdim=True) / 2
            return (((x @ rows.mT) - half - top).exp() + 1e-4)[None]

        habits = habit(q, (q @ rows.mT).amax(-1, keepdim=True)), habit(keys, (keys @ rows.mT).max())
        exact, average = outputs(phi_q, phi_k), v.cumsum(0) / torch.arange(1, 13)
        wanted = [average, exact, outputs(phi_q, phi_k / phi_k.amax(-1, keepdim=True))]
        for curve, numbers in zip(figure.data, [*wanted, outputs(*habits)], strict=True):
            assert list(curve.y) == pytest.approx(numbers.tolist(), abs=1e-3)
        first = exact if first is None else first
        assert largest_difference(first[:-1], exact[:-1]) < 1e-12
        off = (outputs(*habits) - exact)[:-1].abs().max().item()
        assert (off > 0.9) == (at["factor"] > 1)
        assert f"constant added by up to {off:.2f}" in text


def test_bars_and_lines_are_those_of_the_vector() -> None:
    for at, (figure, _) in states("circulant_favor.row_correlation"):
        bars, correlation, independent, average, circulant = figure.data
        u = torch.tensor(bars.y)
        for delta, value in enumerate(correlation.y):
            assert abs((u * u.roll(-delta)).sum() - value) < 2e-3
        assert abs(correlation.y[0] - at["square"]) < 1e-3
        for m in (1, 7, 16):
            assert abs(independent.y[m - 1] - math.expm1(at["square"]) / m) < 1e-4
            gaps = range(1 - m, m)
            wanted = sum((m - abs(k)) * math.expm1(correlation.y[k % 16]) for k in gaps) / m**2
            assert abs(circulant.y[m - 1] - wanted) < 1e-2
            mean = circulant_mean_mse(u.double(), m).item()
            assert average.y[m - 1] == pytest.approx(mean, abs=1e-5)


def test_two_rows_err_as_the_formula_of_circulants_says() -> None:
    both = torch.tensor([[1.0, 1.0], [1.0, -1.0]]).double()
    for at, (figure, text) in states("circulant_favor.two_rows"):
        turn = math.radians(at["direction"])
        z = exact([math.cos(turn), math.sin(turn)])
        equal, opposite, mean, worst, _ = figure.data[2:]
        for place in (0, 9, 39, 79):
            square = equal.x[place]
            errors = circulant_mse(math.sqrt(square) * z, both, 2) / (math.expm1(square) / 2)
            assert (equal.y[place], opposite.y[place]) == pytest.approx(errors.tolist())
            assert mean.y[place] == pytest.approx(errors.mean().item())
            bound = circulant_worst_ratio(exact(square)).item()
            assert worst.y[place] == pytest.approx(bound, abs=6e-4)
            assert 1 - 1e-9 < mean.y[place] < bound + 1e-9
        for pair, signs in zip(figure.data[:2], both, strict=True):
            u = (signs * z).tolist()
            ends = [(pair.x[0], pair.y[0]), (pair.x[2], pair.y[2])]
            assert ends == [pytest.approx(u), pytest.approx(u[::-1])]
        assert f"and {mean.y[9]:.2f} on average" in text


def test_the_bias_lies_between_its_bounds_and_nears_its_first_order() -> None:
    for at, (figure, text) in states("circulant_favor.structured_bias"):
        d = at["channels"]
        high, low, one, _ = figure.data
        square = exact(high.x)
        bounds = structured_bias_bounds(square, d)
        for curve, values in zip((low, high), bounds, strict=True):
            assert list(curve.y) == pytest.approx((100 * values).tolist(), abs=1e-9)
        z = torch.zeros(d, dtype=torch.float64)
        z[0] = math.sqrt(2)  # one channel, ζ = 2
        first = unit_circulant_moments(z, torch.ones_like(z), d)[0].item() - 1
        place = high.x.index(2.0)
        assert low.y[place] < 100 * first < high.y[place]
        assert one.y[place] == pytest.approx(100 * first, rel=12 / d)
        assert f"between {low.y[-1]:.1f}% and {high.y[-1]:.1f}%" in text


# --- positions as weights ---


def test_the_drawn_lengths_are_those_of_ptolemy_and_the_curve_is_the_weight() -> None:
    for at, (figure, text) in states("cosformer.ptolemy_circle"):
        drawn = {}
        for trace, names in zip(figure.data[:4], ("AC", "AB CD", "BC AD", "BD"), strict=True):
            for place, name in enumerate(names.split()):
                x, y = (v[3 * place : 3 * place + 2] for v in (trace.x, trace.y))
                drawn[name] = math.dist((x[0], y[0]), (x[1], y[1]))
        a, b = (math.pi / 24 * at[name] for name in ("query", "key"))
        cosines = {"AC": 1, "AB": math.cos(a), "CD": math.cos(b), "BD": math.cos(a - b)}
        assert drawn == pytest.approx({**cosines, "BC": math.sin(a), "AD": math.sin(b)}, abs=1e-12)
        row = CosineWeight(12).matrix(13, 13)[at["query"]].tolist()
        weight = pytest.approx(row[at["key"]], abs=1e-12)
        rim = figure.layout.shapes[0]
        assert [rim.x0, rim.x1, rim.y0, rim.y1] == [-0.5, 0.5, -0.5, 0.5]
        assert drawn["AB"] * drawn["CD"] + drawn["BC"] * drawn["AD"] == weight
        assert list(figure.data[6].y)[::4] == pytest.approx(row, abs=1e-12)
        assert (figure.data[7].x[1], figure.data[7].y[1]) == (at["key"], weight)
        parts = [float(x) for x in re.findall(r"-?\d\.\d\d", figure.layout.annotations[0].text)]
        assert parts[2] == pytest.approx(row[at["key"]], abs=0.0051)
        assert parts[0] + parts[1] == pytest.approx(parts[2], abs=0.0151)
        assert f"BD = {row[at['key']]:.2f}" in text


def test_the_curves_are_cosines_with_a_phase_and_the_dots_their_nearest_tenth() -> None:
    for at, (figure, text) in states("cosformer.phase_weights"):
        line, square, *curves = figure.data[:4]
        assert list(line.y) == pytest.approx([1 - x for x in line.x], abs=6e-4)
        assert list(square.y) == pytest.approx([(1 - x) ** 2 for x in line.x], abs=6e-4)
        dots = figure.data[6]
        for curve, end, limit, dot, constant in zip(
            curves, (math.pi / 2, math.pi), (line, square), dots.y, (0, 1), strict=True
        ):
            psi = end * min(at["phase"], 0.999)  # the limit is one for the formula too
            wave = [constant + math.cos(psi + (end - psi) * x / 2000) for x in range(2001)]
            drawn = [wave[round(2000 * x)] / wave[0] for x in curve.x]
            assert list(curve.y) == pytest.approx(drawn, abs=1e-3)
            assert all(y >= z - 1e-3 for y, z in zip(curve.y, limit.y, strict=True))
            assert dot == pytest.approx(sum(wave[:200]) / sum(wave), abs=1e-3)
        told = [float(x) / 100 for x in re.findall(r"([\d.]+)%", text)]
        assert told == pytest.approx(dots.y, abs=6e-4)
        assert set(dots.x) == {at["phase"]}
        for place, curve in enumerate(figure.data[4:6]):
            assert list(curve.y) == sorted(curve.y)  # more phase, nearer
            assert curve.y[-1] == pytest.approx(1 - 0.9 ** (place + 2), abs=1e-4)


def test_the_frame_holds_the_toeplitz_matrix_and_the_marks_lie_on_the_curves() -> None:
    for at, (fig, text) in states("toeplitz_rpe.toeplitz_circulant"):
        tokens, length, features = at.values()
        cells = fig.data[0].z
        whole = torch.tensor([[99 if c is None else c for c in row] for row in cells])
        assert all(row.count(None) == 1 for row in map(list, cells))
        index = torch.arange(2 * tokens)
        assert torch.equal(whole, whole[:, 0][(index[:, None] - index) % (2 * tokens)])
        corner = index[:tokens] - index[:tokens, None]  # j − i
        assert torch.equal(whole[:tokens, :tokens].long(), corner)
        shown = [["" if c is None else str(c) for c in row] for row in cells]
        assert [list(row) for row in fig.data[0].text] == shown
        frame, end = fig.layout.shapes[0], tokens - 0.5
        assert (frame.x0, frame.x1, frame.y0, frame.y1) == (-0.5, end, -0.5, end)
        assert sum(row[0] for row in fig.data[1].z) == tokens
        matrix, at_matrix, _, at_fft = fig.data[3:]
        assert [at_matrix.y[0], at_fft.y[0]] == list(toeplitz_operations(length, features))
        assert at_matrix.x[0] == at_fft.x[0] == length
        curve = dict(zip(matrix.x, matrix.y, strict=True))
        assert curve[1024] == toeplitz_operations(1024, features)[0]
        assert f"At {length} tokens and {features} features" in text
        title = fig.layout.annotations[-1].text
        for count in title.removeprefix("operations: matrix ").split(", FFT "):
            assert count in text


def test_the_curves_are_products_of_the_decays_below_and_the_words_give_the_stars() -> None:
    for at, (figure, text) in states("decay_and_state.decay_memory"):
        gamma, reset, kept = at.values()
        constant, gated, stars, *decays = figure.data
        for curve, decay, star in zip((constant, gated), decays, stars.y, strict=True):
            assert (curve.yaxis, decay.yaxis) == ("y", "y2")
            assert curve.line.color == decay.line.color
            for j, y in enumerate(curve.y):
                assert y == pytest.approx(math.prod(decay.y[j + 1 :]), abs=2e-4)
            assert star == curve.y[stars.x[0]]
            assert f"with {star:.2f} for token {stars.x[0]}" in text
            assert f"{star:.2f}" in figure.layout.annotations[0].text
        assert set(decays[0].y) == {gamma}
        assert [t for t, y in enumerate(decays[1].y) if y != 1] == ([reset] if kept < 1 else [])
        assert gated.y[0] == (1 if reset == 0 else kept)
        assert f"it is {gated.y[0]:.2f} before token {reset}" in text


def test_a_state_steps_onto_the_line_of_its_key_and_the_words_give_its_answers() -> None:
    for at, (figure, text) in states("delta_rule.written_twice"):
        beta, angle, decay = at.values()
        lines, *_, adds, replaces, _, a_adds, a_delta, _, b_adds, b_delta = figure.data
        assert {trace.line.color for trace in (adds, a_adds, b_adds)} == {COLOURS["identity"]}
        assert {trace.line.color for trace in (replaces, a_delta, b_delta)} == {COLOURS["delta"]}
        key = math.cos(math.radians(angle)), math.sin(math.radians(angle))
        assert lines.x[:2] == (2, 2)  # upright on A
        for path, first, second in ((adds, a_adds, b_adds), (replaces, a_delta, b_delta)):
            assert first.y == pytest.approx(path.x[1:], abs=2e-3)
            along = [key[0] * x + key[1] * y for x, y in zip(path.x, path.y, strict=True)]
            assert second.y == pytest.approx(along[1:], abs=2e-3)
        # the last write is of -1 under A: (1 - β) of the old answer is left
        old = decay * a_delta.y[1]
        assert a_delta.y[2] == pytest.approx((1 - beta) * old - beta, abs=2e-3)
        assert a_adds.y[2] == pytest.approx(decay * a_adds.y[1] - 1, abs=2e-3)
        for mine, other in ((a_adds, a_delta), (b_adds, b_delta)):
            assert f"{mine.y[2]:.2f} and {other.y[2]:.2f}" in text


# --- rotations and kernels ---


def maps(shift: float, features: str) -> list[np.ndarray]:
    """Return the kernel before, its change, the kernel after, its change."""
    before, after, *changes = shifted_kernels(shift, features).figure.data
    return [np.array(trace.z) for trace in (before, changes[0], after, changes[1])]


@pytest.mark.parametrize("features", KERNEL_FEATURES)
def test_a_shift_moves_what_is_turned_before_the_features_only(features: str) -> None:
    before, change_before, after, change_after = maps(16, features)
    start = maps(0, features)
    assert not start[1].any()
    assert not start[3].any()
    np.testing.assert_allclose(before - start[0], change_before, atol=0.011)
    assert abs(change_before).max() > 0.1
    assert not change_after.any()
    np.testing.assert_array_equal(after, start[2])
    assert before.min() >= 0
    assert after.min() < 0 or features == "random, 1024"


def test_kernels_have_mean_size_one_more_features_help_and_negative_entries_are_marked() -> None:
    errors = []
    for at, (figure, text) in states("rotations_meet_linear_attention.shifted_kernels"):
        before, after = (np.array(trace.z) for trace in figure.data[:2])
        marks = np.array(figure.data[1].text) != ""
        assert marks.any() or at["features"] == "random, 1024"
        assert (after[marks] <= 0).all()
        assert (after[~marks] >= 0).all()
        share = f"{marks.mean():.0%} "
        assert share in figure.layout.annotations[1].text
        assert share in text
        assert abs(abs(before).mean() - 1) < 0.01
        assert abs(abs(after).mean() - 1) < 0.01
        if at["shift"] == 64:
            errors.append(float(text.split("%")[0].split()[-1]))
    assert errors[1] > errors[2] > errors[3] > 0


def test_rolled_products_repeat_are_positive_and_those_of_the_features_shown() -> None:
    periods = {"12": 12, "5 + 7": 35, "3 + 4 + 5": 60}
    for at, (figure, text) in states("rotations_meet_linear_attention.rolled_features"):
        key, query, signed, products, marked = (np.array(trace.y) for trace in figure.data)
        offset, period = at["offset"], periods[at["cycles"]]
        assert products.min() >= 0 > signed.min()
        assert signed[0] == products[0]
        np.testing.assert_array_equal(products[period:], products[: len(products) - period])
        assert abs(marked[0] - products[offset]) < 0.0051
        assert abs(key @ query - marked[0]) < 0.05
        assert f"they repeat after {period}." in text
        assert len(set(figure.data[0].marker.color)) == at["cycles"].count("+") + 1


# --- gates ---


def test_the_points_are_attention_and_its_gate() -> None:
    for at, (fig, text) in states("gating.gated_query"):
        match, first, second, start = at.values()
        skipped = 0 if start else 1
        scores = [START_SCORE, 0, match, 0, 0, 0][skipped:]
        values = exact([[0.0, 0.0], *PLANE][skipped:])
        # q = 1 and one channel: the scores themselves are the keys
        keys = torch.tensor(scores)[None, :, None]
        said = reference.softmax_attention(torch.ones(1, 1, 1), keys, values[None])[0]
        gated = reference.gate(said, torch.ones(1, 1), torch.tensor([[first, second]]))
        weights, sigmoid, gates, *_, output = fig.data
        assert sigmoid.y == pytest.approx([1 / (1 + math.exp(-x)) for x in sigmoid.x], abs=1e-4)
        points = exact([output.x, output.y]).mT
        assert largest_difference(points, torch.cat([said, gated])) < 1e-3
        assert sum(weights.y) == pytest.approx(1, abs=3e-3)
        assert (weights.y[0] > 0) is start
        assert gates.y[0] == pytest.approx(1 / (1 + math.exp(-first)), abs=1e-3)
        assert f"({gated[0, 0]:.2f}, {gated[0, 1]:.2f})" in text
        assert ("start token" in text) is start
        (x0, x1), (y0, y1) = output.x, output.y
        if (match, first, second, start) == (0, -3, -3, False):  # the page's first state
            assert math.hypot(x0, y0) > 1.5
            assert math.hypot(x1, y1) < 0.1
        assert [len(trace.x) for trace in fig.data] == [6, 49, 2, 6, 5, 2]  # the same in all


# --- what is recalled, and how far ---


def test_the_map_is_attention_with_mixed_keys() -> None:
    names = sorted(set(TOKENS))
    x = torch.eye(len(names), dtype=torch.float64)[[names.index(t) for t in TOKENS]]
    for at, (fig, text) in states("associative_recall.recalled_value"):
        keys = (1 - at["share"]) * x
        keys[1:] += at["share"] * x[:-1]
        scale = at["sharpness"] * len(names) ** 0.5  # the reference divides by √d
        for query, drawn in enumerate(fig.data[0].z):
            seen = slice(0, query + 1)
            parts = scale * x[query][None, None], keys[None, seen], x[None, seen]
            said = reference.softmax_attention(*parts)[0, 0]
            assert sum(drawn) == pytest.approx(1, abs=6e-3)
            assert not any(drawn[query + 1 :])
            heard = torch.tensor(drawn, dtype=torch.float64) @ x
            assert largest_difference(heard, said) < 3e-3
        votes = said[[names.index(v) for v in VALUES]]
        assert list(fig.data[1].y) == pytest.approx((votes / votes.sum()).tolist(), abs=1e-3)
        assert f"{fig.data[1].text[2]} to {RIGHT}" in text


def scores(method: str, line: int = 1) -> dict[int, float]:
    drawn = beyond_training(method, 16).figure.data[line]
    return {x: y for x, y in zip(drawn.x, drawn.y, strict=True) if y is not None}


def test_the_fit_ends_with_training_and_interpolation_reads_it_more_slowly() -> None:
    shown, wish, slow = scores("rope"), scores("rope", 0), scores("pi")
    assert max(abs(shown[x] - wish[x]) for x in wish if x < 64) < 0.3
    assert shown[128] > shown[4] > wish[128] + 2
    assert max(shown) == 1024
    assert slow[16] == pytest.approx(shown[1], abs=2e-3)
    assert slow[512] == pytest.approx(shown[32], abs=2e-3)


def test_bars_are_the_circle_seen_and_new() -> None:
    turns = seen_turns(RoPE(16).frequencies(), 64)[0, :, 0]
    for at, (fig, text) in states("length_extrapolation.beyond_training"):
        seen, new = (torch.tensor(bar.y) for bar in fig.data[2:])
        assert torch.allclose(seen.double(), turns.clamp(max=1), atol=1e-4)
        waves, scale = RoPE(16).frequencies(), float(at["scale"])
        slowed = {
            "rope": lambda w: w,
            "pi": lambda w, s=scale: position_interpolation(w, s),
            "ntk": lambda w, s=scale: ntk_aware(w, s),
            "yarn": lambda w, s=scale: yarn(w, s, 64, fast=4),
        }[at["method"]](waves)
        share = unseen_share(waves, slowed, 64, 64 * scale)[0, :, 0]
        assert torch.allclose(new.double(), share, atol=1e-9)
        assert (seen + new).max() < 1.0001
        assert (new.max() < 1e-4).item() is (at["method"] in ("pi", "yarn"))
        assert f"{int((new > 0.005).sum())} of 8 pairs meet new ones" in text
