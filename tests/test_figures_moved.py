"""What the figures of weights, states and gates compute is what the package and the theory say."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import pytest
import torch
from torch import nn

from book.figures import circulant_favor, decay_and_state, rotation_signs, toeplitz_rpe
from lab.theory import capacity
from lab.theory import structured_variance as theory
from results import cosformer as recall
from results import toeplitz_rpe as study
from stringlib import (
    CosineWeight,
    DecayWeight,
    FallingWeight,
    RampWeight,
    linear_attention,
    reference,
    softmax_attention,
)
from stringlib.algebra import circulant, nearest_orthogonal_circulant
from stringlib.attention import decayed_sums, delta_rule, rotated_linear_attention
from stringlib.encoders.string import STRING
from stringlib.testing.properties import largest_difference
from tests.figure_cases import states


def exact(values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


# --- circulant rows ---


def test_the_nearest_orthogonal_circulant_is_the_packages() -> None:
    for at, (fig, told) in states("circulant_favor.nearest_orthogonal"):
        column = exact([1, at["weight"], 0, 0, 0, 0, 0, 0])
        nearest = nearest_orthogonal_circulant(column)
        _, far, near, bars, first = fig.data
        assert list(bars.y) == pytest.approx(nearest.tolist(), abs=1e-12)
        assert list(first.y) == column[:2].tolist()
        for dots, of in ((far, column), (near, nearest)):
            spectrum = torch.fft.fft(of)
            assert list(dots.x) == pytest.approx(spectrum.real.tolist(), abs=1e-12)
            assert list(dots.y) == pytest.approx(spectrum.imag.tolist(), abs=1e-12)
        distance = (circulant(column) - circulant(nearest)).square().sum().item()
        assert f"add up to {distance:.2f}" in told


def test_errors_with_two_strong_channels_are_the_limits() -> None:
    d = 512
    for at, (fig, _) in states("circulant_favor.two_strong_channels"):
        rest = (1 - at["share"]) / d
        shares = torch.full((d,), rest).double()
        shares[[0, d // 2]] += at["share"] / 2
        _, signed, unit, simplex = (exact(trace.y) for trace in fig.data)
        for square in (1.0, 4.0):
            z = (square * shares).sqrt()
            here = circulant_favor.SQUARES.index(square)
            errors = [theory.circulant_mean_mse(z, d)]
            errors += [theory.spectral_mse(z, simplex) for simplex in (False, True)]
            for curve, error in zip((signed, unit, simplex), errors, strict=True):
                assert curve[here] == pytest.approx(
                    (error * d).item() / math.expm1(square), abs=0.03
                )
    (_, (fig, _)), _, (_, (worst, _)) = states("circulant_favor.two_strong_channels")
    squares = exact(circulant_favor.SQUARES)
    for curve, ratio in zip(
        fig.data[1:],
        (theory.circulant_ratio, theory.unit_circulant_ratio, theory.simplex_ratio),
        strict=True,
    ):
        assert list(curve.y) == pytest.approx(ratio(squares).tolist())
    assert list(worst.data[1].y) == pytest.approx(theory.circulant_worst_ratio(squares).tolist())


# --- turned features ---


def test_a_drift_is_that_of_the_packages_features() -> None:
    turn = STRING(torch.ones(1, 1, 1).double())
    places = torch.arange(60).double()[:, None] * (2 * math.pi / 60)
    pair = exact([[1, 0], [0.5, 0.75**0.5]])
    unit = [turn.rotate(x.expand(1, 60, 2), places)[0] for x in pair]
    maps = {"ReLU": torch.relu, "elu + 1": lambda x: nn.functional.elu(x) + 1}
    for at, (fig, _) in states("rotation_signs.drifting_kernel"):
        name, m = at["features"], at["rows"]
        q, k = (at["length"] * x for x in unit)
        rows = exact(rotation_signs._rows(name))[:m]
        if name == "random, exp":
            features = [(x @ rows.mT - x.square().sum(-1, keepdim=True) / 2).exp() for x in (q, k)]
        elif name == "random, ReLU":
            features = [(x @ rows.mT).relu() for x in (q, k)]
        else:
            features = [maps[name](x) for x in (q, k)]
        kernel = (features[0] * features[1]).sum(-1)
        curve, law, drawn, dot = fig.data
        assert list(curve.y[:60]) == pytest.approx((kernel / kernel.mean()).tolist(), abs=1e-9)
        drift = 100 * (kernel.std(unbiased=False) / kernel.mean()).item()
        assert dot.y[0] == pytest.approx(drift)
        assert drawn.y[drawn.x.index(m)] == pytest.approx(drift)
        if name == "random, exp":  # E f(t) f(t') of positive features, by completing the square
            square = (q[0] + k[0]).square().sum()
            one = 100 * (square.exp() - torch.special.i0(square)).sqrt().item()
            assert law.y[drawn.x.index(m)] == pytest.approx(one / m**0.5, rel=1e-6)


def test_a_turn_of_both_slides_the_curve_and_keeps_its_mean() -> None:
    plane, turn = torch.eye(2, dtype=torch.float64), STRING(torch.ones(1, 1, 1).double())
    means = {}
    for at, (fig, _) in states("rotation_signs.turned_product"):
        curve, mean, here = fig.data
        for i in (0, 17, 60):
            places = exact([[at["position"]], [at["position"] + at["offset"]]]) + math.radians(
                3 * i
            )
            q, k = (turn.rotate(x[None, None], p[None])[0, 0].relu()
                    for x, p in zip(plane, places, strict=True))  # fmt: skip
            assert curve.y[i] == pytest.approx((q @ k).item(), abs=1e-12)
        assert here.y[0] == curve.y[0]
        means.setdefault(at["offset"], []).append(mean.y[0])
    for same in means.values():
        assert same == pytest.approx([same[0]] * len(same), abs=2e-3)
    assert means[0.0][0] == pytest.approx(1 / (2 * math.pi), abs=1e-3)


def test_a_band_is_as_wide_as_its_fastest_frequency_allows() -> None:
    for at, (fig, told) in states("rotation_signs.fastest_frequency"):
        waves = at["fastest"] * (torch.arange(32).double() + 0.5) / 32
        half = 1.8955 / at["fastest"]
        assert (half * waves).cos().mean() == pytest.approx(0.5, abs=1e-3)
        assert f"one half at {half:.1f} tokens" in told
        assert fig.data[2].y[85] == pytest.approx(waves.cos().mean().item())  # at offset 1


def test_the_pole_is_the_packages_output() -> None:
    k = exact([[[1, 0], [1, 0]]])
    values, places = exact([[[1], [-1]]]), exact([[0], [1]])
    for at, (fig, told) in states("rotation_signs.near_the_pole"):
        turn = STRING(exact([[[math.radians(at["angle"])]]]))
        own, alone = (
            rotated_linear_attention(k, k, values, turn, places, numerator_only=only)[
                0, 0, 0
            ].item()
            for only in (False, True)
        )
        assert f"the output {own:,.1f}," in told
        assert fig.data[3].y[1] == pytest.approx(alone, abs=1e-12)


# --- biases and decays ---


def test_the_form_of_a_power_is_negative_beyond_two() -> None:
    x, a = exact([0, 1, 2]), exact([1, -2, 1])
    for at, (fig, _) in states("toeplitz_rpe.power_bias"):
        bias = -((x[:, None] - x).abs() ** at["power"])
        assert fig.data[3].y[0] == pytest.approx((a @ bias @ a).item(), abs=1e-12)
        assert list(fig.data[1].y) == pytest.approx([fig.data[0].y[i] for i in range(0, 41, 10)])


def test_votes_are_those_of_attention_in_the_study() -> None:
    tokens = study.batch(128, torch.Generator().manual_seed(3))
    wanted, kinds = study.answers("kind", tokens), tokens // study.SYMBOLS
    v = torch.nn.functional.one_hot(tokens % study.SYMBOLS, study.SYMBOLS).double()
    q = torch.nn.functional.one_hot(kinds, study.KINDS).double()
    back = torch.arange(study.LENGTH)[:, None] - torch.arange(study.LENGTH)
    for at, (fig, told) in states("toeplitz_rpe.own_kind_votes"):
        best = 0.0
        for decay in toeplitz_rpe.DECAYS:
            bias = torch.where(back > 0, back * math.log(decay), -1e4).double()
            own = q * (math.log(at["factor"]) * study.KINDS**0.5)
            votes = softmax_attention(own, q, v, bias).argmax(-1)
            best = max(best, (votes == wanted)[wanted >= 0].double().mean().item())
        others, own, _, mark, *diamonds = fig.data
        assert mark.y[0] == pytest.approx(best, abs=0.025)
        weights = {
            name: sum(
                (at["factor"] if i in toeplitz_rpe.OWN else 1) * toeplitz_rpe.DECAY**i
                for i, seen in enumerate(toeplitz_rpe.SEEN)
                if seen == name
            )
            for name in set(toeplitz_rpe.SEEN)
        }
        total = sum(weights.values())
        assert sum(others.y) + sum(own.y) == pytest.approx(1)
        assert f"all A get {weights['A'] / total:.2f}, all B {weights['B'] / total:.2f}" in told
        right = max(weights, key=weights.get) == "A"
        assert fig.layout.annotations[0].text.endswith("right" if right else "wrong")
        for name, dot in zip(toeplitz_rpe.RECORDED, diamonds, strict=True):
            assert (dot.x[0], dot.y[0]) == toeplitz_rpe.RECORDED[name]


def cut_of(query: int, key: int) -> tuple[int, int]:
    """Return the last token before the cut that parts a pair, and how many cuts came to it."""
    low, high, times = 0, 64, 1
    while not key < (middle := (low + high) // 2) <= query:
        low, high = (middle, high) if key >= middle else (low, middle)
        times += 1
    return middle - 1, times


def test_a_pair_is_computed_at_the_cut_that_parts_it() -> None:
    decays = exact(decay_and_state.DECAYS)
    w = reference.semiseparable_mask(decays)
    for at, (fig, told) in states("decay_and_state.halved_chunk"):
        levels, frame, ring, *sides = fig.data
        query, key = round(ring.y[0]), round(ring.x[0])
        assert (query, key) == (at["query"], min(at["key"], at["query"] - 1))
        cut, times = cut_of(query, key)
        assert f"{decay_and_state.ORDINALS[times - 1]} halving, behind token {cut}." in told
        of_query, of_key, weight = w[query, cut], w[cut, key], w[query, key]
        assert of_query * of_key == pytest.approx(weight)
        head = f"w = {of_query:.3f} · {of_key:.3f} = {weight:.3f}"
        assert fig.layout.annotations[1].text == head
        blue, orange, grey = (exact(side.y) for side in sides)
        assert blue[cut + 1 : query + 1].prod() == pytest.approx(of_query)
        assert orange[key + 1 : cut + 1].prod() == pytest.approx(of_key)
        assert largest_difference(blue + orange + grey, decays) < 1e-12
        for i, row in enumerate(levels.z):  # up to the diagonal
            assert list(row) == ([cut_of(i, j)[1] for j in range(i)] or [None])
        inside = {  # of the frame: the pairs of the same level about the ring
            (i, j) for i in range(64) for j in range(i) if cut_of(i, j) == (cut, times)
        }
        rows, columns = ({pair[k] for pair in inside} for k in (0, 1))
        assert (min(frame.y), max(frame.y)) == (min(rows) - 0.5, max(rows) + 0.5)
        assert (min(frame.x), max(frame.x)) == (min(columns) - 0.5, max(columns) + 0.5)


def test_a_vector_parts_what_no_number_does() -> None:
    marked = decay_and_state.MARKED
    known = [
        None if t in "|‖" else t in marked[:i].rsplit("|" if t.islower() else "‖", 1)[-1]
        for i, t in enumerate(marked)
    ]
    keys = exact([[t == s for s in "abAB"] for t in marked])
    for at, (fig, told) in states("decay_and_state.markers_and_decays"):
        plain, small, large = (at[name] for name in ("symbol", "own", "other"))
        vectors = {"|": [small] * 2 + [large] * 2, "‖": [large] * 2 + [small] * 2}
        numbers = {"|": [at["number"]] * 4, "‖": [at["number"]] * 4}
        for given, (yes, no) in zip((numbers, vectors), (fig.data[:2], fig.data[2:]), strict=True):
            logs = exact([given.get(t, [plain] * 4) for t in marked]).log()
            sums, _ = decayed_sums(keys[None], keys[None], keys.sum(-1)[None, :, None], logs[None])
            found = sums[0, :, 0] - keys.sum(-1)  # without the token itself
            for trace, answer in ((yes, True), (no, False)):
                shown = {x: y for x, y in zip(trace.x, trace.y, strict=True) if y is not None}
                assert set(shown) == {t for t, a in enumerate(known) if a is answer}
                assert all(found[t].item() == pytest.approx(y, abs=1e-12) for t, y in shown.items())
        if (small, large, plain) == (0, 1, 1):
            assert "a vector seen ones find 1.00 or more and others 0.00 or less" in told
    for number, symbol in itertools.product(range(0, 101, 5), range(50, 101, 5)):
        told = decay_and_state.markers_and_decays(number / 100, 0, 1, symbol / 100).figure
        assert told.layout.annotations[0].text.startswith("a number: mixed")


# --- the delta rule ---


def test_writes_of_a_chunk_are_those_token_by_token() -> None:
    for at, (fig, told) in states("delta_rule.chunk_of_writes"):
        below, inverse, alone, written = fig.data
        turns = exact([0, at["angle"]] * 3).deg2rad()
        keys = torch.stack([turns.cos(), turns.sin()], -1)
        values, beta = exact(alone.y) / at["rate"], exact([[at["rate"]] * 6])
        logs = exact([[at["decay"]] * 6]).log()
        _, state = delta_rule(keys[None], keys[None], values[None, :, None], beta, logs)
        before = exact([[0.0], [0.0]])
        for t in range(6):  # what the package's state gains along the key
            first = (x[:, : t + 1] for x in (keys[None], keys[None], values[None, :, None], beta))
            _, now = delta_rule(*first, logs[:, : t + 1], mode="recurrent")
            gain = (now[0] - at["decay"] * before)[:, 0] @ keys[t]
            assert written.y[t] == pytest.approx(gain.item(), abs=1e-12)
            before = now[0]
        assert largest_difference(before, state[0]) < 1e-12
        system = torch.eye(6).double() + exact(below.z)
        assert largest_difference(torch.linalg.inv(system), exact(inverse.z)) < 1e-12
        low, high = fig.layout.yaxis3.range
        assert low < min(*alone.y, *written.y) < max(*alone.y, *written.y) < high
        assert f"{written.y[-1]:.2f}." in told
        if at == {"rate": 1.0, "angle": 90, "decay": 1.0}:  # only the last value of the same key
            same = [[-1.0 if i - j == 2 else float(i == j) for j in range(6)] for i in range(6)]
            assert largest_difference(exact(inverse.z), exact(same)) < 1e-12


def test_the_wrong_order_of_decay_and_error_is_the_wrong_recurrence() -> None:
    for at, (fig, told) in states("delta_rule.order_of_decay"):
        right, wrong = fig.data
        one, beta = torch.ones(1, 12, 1).double(), exact([[at["rate"]] * 12])
        outs, _ = delta_rule(
            one, one, 0 * one, beta, exact([[at["decay"]] * 12]).log(), state=one[:, :1]
        )
        assert list(right.y) == pytest.approx([1, *outs.flatten().tolist()], abs=1e-12)
        held = 1.0
        for answer in wrong.y:
            assert answer is None if abs(held) > 4 else answer == pytest.approx(held)
            held = at["decay"] * held + at["rate"] * (0 - held)
        assert ("runs away" in told) == (abs(at["decay"] - at["rate"]) > 1 + 1e-9)


# --- gates and sinks ---


def test_a_sink_is_a_token_of_value_zero() -> None:
    for at, (fig, _) in states("gating.sink_of_keys"):
        for n, kept in zip(fig.data[1].x, fig.data[1].y, strict=True):
            scores = torch.cat([exact([at["score"]]), torch.zeros(n).double()])
            assert kept == pytest.approx(scores.softmax(0)[1:].sum().item())
    for at, (fig, _) in states("gating.gate_and_sink"):
        sunk, gated, both = (exact(trace.y) for trace in fig.data)
        scores = torch.stack([exact([at["sink"], best] + [0] * 7) for best in fig.data[0].x])
        assert (sunk - 1 + scores.softmax(-1)[:, 0]).abs().max() < 1e-12
        assert (gated - exact(at["gate"]).sigmoid()).abs().max() < 1e-12
        assert (both - sunk * gated).abs().max() < 1e-12


# --- cosine weights ---


def test_shares_of_the_nearest_are_those_of_the_packages_weights() -> None:
    for at, (fig, _) in states("cosine_reach.nearest_share"):
        found = fig.data[5].y
        for number, weight in ((1, CosineWeight(1000)), (2, CosineWeight(500, positive=True))):
            row = weight.matrix(1000, 1000)[-1].flip(0)
            assert found[number] == pytest.approx(
                (row[: at["nearest"]].sum() / row.sum()).item(), abs=2e-3
            )
        row = (63 / 64) ** torch.arange(1000).double()
        assert found[3] == pytest.approx((row[: at["nearest"]].sum() / row.sum()).item())


def test_heights_and_tenths_are_those_of_the_packages_weights() -> None:
    for at, (fig, told) in states("cosine_reach.more_copies"):
        power = int(at["copies"]) - 1
        for trace, weight in zip(
            fig.data, (RampWeight(1000, power), FallingWeight(1000, power)), strict=True
        ):
            row = weight.matrix(1000, 1000)[-1].flip(0)
            assert trace.y[0] == pytest.approx((row[0] / row.mean()).item(), rel=0.02)
            assert f"{row[:100].sum() / row.sum():.0%}" in told


METHODS = ("relu", "cosine", "ramp", "cosine-positive", "cosine-phase", "ramp-squared", "retnet")


def test_values_weigh_what_linear_attention_gives_them() -> None:
    weights = {
        "none (1)": None,
        "cosine (2)": CosineWeight(64),
        "1 − sine (3)": recall.WEIGHTS["cosine-phase"],
        "decay 7/8": DecayWeight(exact([7 / 8]).log()),
    }
    draw = torch.Generator().manual_seed(5)  # that of the figure's stream
    keys, values = (torch.randint(n, (64,), generator=draw) for n in (8, 4))
    phi, v = (torch.nn.functional.one_hot(x, n).double() for x, n in ((keys, 8), (values, 4)))
    for at, (fig, told) in states("cosine_reach.weighed_values"):
        asked = phi.roll(-1, 0)[None]  # a token asks before it writes
        out = linear_attention(asked, phi[None], v[None], weights[at["weight"]], causal=True)[0]
        shares = out[at["token"] - 1]
        others, last, allows, seeds = fig.data
        assert (exact(others.y) + exact(last.y) - shares).abs().max() < 1e-9
        held = values[: at["token"]][keys[: at["token"]] == keys[at["token"]]][-1].item()
        assert [y > 0 for y in last.y] == [value == held for value in range(4)]
        assert f"held {'ABCD'[held]} last" in told
        assert ("outvoted" in told) == (shares[held] < shares.max() - 1e-9).item()
        record = json.loads(
            (Path(__file__).parents[1] / "results/cosformer.json").read_text(encoding="utf8")
        )["data"]
        assert list(allows.x[::3]) == [record["ceiling"][name] for name in METHODS]
        found = [run["accuracy"] for name in METHODS for run in record["cells"][name]["runs"]]
        assert list(seeds.x) == pytest.approx(found, abs=6e-4)


# --- the delta rule ---


def test_repeated_writes_are_the_packages() -> None:
    for at, (fig, told) in states("delta_rule.repeated_writes"):
        k = at["length"] * exact([[[1.0, 0.0]]]).expand(1, 24, 2)
        rates = torch.full((1, 24), at["rate"], dtype=torch.float64)
        out = delta_rule(k, k, torch.ones(1, 24, 1).double(), rates)[0][0, :, 0].tolist()
        for drawn, want in zip(fig.data[1].y, [0.0, *out], strict=True):
            left_out = drawn is None and abs(1 - want) > 3.99
            assert left_out or drawn == pytest.approx(want, abs=1e-9)
        factor = 1 - at["rate"] * at["length"] ** 2
        assert ("runs away" in told) == (abs(factor) > 1)
        assert ("jumps across" in told) == (-1 <= factor < 0)


def test_the_noise_of_a_rate_is_the_limit_and_its_least_is_at_the_best_rate() -> None:
    for at, (fig, told) in states("delta_rule.noise_of_rates"):
        load = at["load"]
        _, curve, marked = fig.data
        want = [capacity.delta_noise(load, rate) / load for rate in curve.x]
        assert list(curve.y) == pytest.approx(want)
        best, worse = marked.x
        assert best == pytest.approx(capacity.best_delta_rate(load), abs=0.006)
        assert capacity.delta_noise(load, worse - 0.01) < load < capacity.delta_noise(load, worse)
        assert f"from {worse:.2f} on" in told


def test_two_keys_in_turn_are_the_packages_delta_rule() -> None:
    for at, (fig, told) in states("delta_rule.two_keys_count"):
        angles = exact([0.0, math.radians(at["angle"])] * 24)
        k = torch.stack([angles.cos(), angles.sin()], -1)[None]
        state, back = exact([[[1.0], [0.0]]]), []
        for pair in range(24):
            keys = k[:, 2 * pair : 2 * pair + 2]
            rates = torch.full((1, 2), 2.0).double()
            state = delta_rule(keys, keys, 0 * keys[..., :1], rates, state=state)[1]
            x, y = state[0, :, 0].tolist()
            drawn = (fig.data[1].x[pair + 1], fig.data[1].y[pair + 1])
            assert drawn == pytest.approx((x, y), abs=1e-9)
            if math.hypot(x - 1, y) < 1e-6:
                back.append(pair + 1)
        assert f"is back after {back[0]} pairs" in told if back else "not back after 24" in told
