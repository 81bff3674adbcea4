"""What the figures of weights, states and gates compute is what the package and the theory say."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import nn

from book.figures import circulant_favor, decay_and_state, path_positions, rotation_signs
from lab.theory import structured_variance as theory
from results import cosformer as recall
from stringlib import CosineWeight, DecayWeight, linear_attention
from stringlib.algebra import nearest_orthogonal_circulant
from stringlib.attention import decayed_sums, delta_rule, path, rotated_linear_attention
from stringlib.attention.token_bias import ForgettingBias
from stringlib.encoders.string import STRING
from stringlib.testing.properties import largest_difference
from tests.figure_cases import exact, states


def test_the_nearest_orthogonal_circulant_is_the_packages() -> None:
    for at, (fig, told) in states("circulant_favor.nearest_orthogonal"):
        column = exact([1, at["weight"], 0, 0, 0, 0, 0, 0])
        nearest = nearest_orthogonal_circulant(column)
        assert list(fig.data[3].y) == pytest.approx(nearest.tolist(), abs=1e-12)
        distance = 8 * (column - nearest).square().sum().item()  # of the matrices
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
            errors = (
                theory.circulant_mean_mse(z, d),
                *(theory.spectral_mse(z, x) for x in (False, True)),
            )
            found = torch.stack([signed[here], unit[here], simplex[here]])
            assert largest_difference(found, exact(errors) * d / math.expm1(square)) < 0.03


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
        curve, law, drawn, _ = fig.data
        assert list(curve.y[:60]) == pytest.approx((kernel / kernel.mean()).tolist(), abs=1e-9)
        drift = 100 * (kernel.std(unbiased=False) / kernel.mean()).item()
        assert drawn.y[drawn.x.index(m)] == pytest.approx(drift)
        if name == "random, exp":  # E f(t) f(t') of positive features, by completing the square
            square = (q[0] + k[0]).square().sum()
            one = 100 * (square.exp() - torch.special.i0(square)).sqrt().item()
            assert law.y[drawn.x.index(m)] == pytest.approx(one / m**0.5, rel=1e-6)


def test_the_pole_is_the_packages_output() -> None:
    k = exact([[[1, 0], [1, 0]]])
    values, places = exact([[[1], [-1]]]), exact([[0], [1]])
    for at, (fig, told) in states("rotation_signs.near_the_pole"):
        turn = STRING(exact([[[math.radians(at["angle"])]]]))
        own, alone = (
            rotated_linear_attention(k, k, values, turn, places, numerator_only=only)
            for only in (False, True)
        )
        assert f"the output is {own[0, 0, 0]:,.1f}." in told
        assert fig.data[3].y[1] == pytest.approx(alone[0, 0, 0].item(), abs=1e-12)


def test_a_vector_parts_what_no_number_does() -> None:
    marked = decay_and_state.MARKED
    known = [
        None if t in "|‖" else t in marked[:i].rsplit("|" if t.islower() else "‖", 1)[-1]
        for i, t in enumerate(marked)
    ]
    keys = exact([[t == s for s in "abAB"] for t in marked])
    for at, (fig, _) in states("decay_and_state.markers_and_decays"):
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
    for number, symbol in itertools.product(range(0, 101, 5), range(50, 101, 5)):
        told = decay_and_state.markers_and_decays(number / 100, 0, 1, symbol / 100).figure
        assert told.layout.annotations[0].text.startswith("scalar decay: mixed")


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
        assert f"{written.y[-1]:.2f}." in told


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
        assert ("diverges" in told) == (abs(at["decay"] - at["rate"]) > 1 + 1e-9)


def test_shares_of_the_nearest_are_those_of_the_packages_weights() -> None:
    for at, (fig, _) in states("cosine_reach.nearest_share"):
        weights = CosineWeight(1000), CosineWeight(500, positive=True)
        rows = [weight.matrix(1000, 1000)[-1].flip(0) for weight in weights]
        rows.append((63 / 64) ** torch.arange(1000).double())
        shares = [(row[: at["nearest"]].sum() / row.sum()).item() for row in rows]
        assert list(fig.data[5].y[1:4]) == pytest.approx(shares, abs=2e-3)


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
        others, last, *_ = fig.data
        assert (exact(others.y) + exact(last.y) - shares).abs().max() < 1e-9
        held = values[: at["token"]][keys[: at["token"]] == keys[at["token"]]][-1].item()
        assert [y > 0 for y in last.y] == [value == held for value in range(4)]
        assert f"last value of the key is {'ABCD'[held]}" in told
        assert ("not the highest" in told) == (shares[held] < shares.max() - 1e-9).item()


def test_repeated_writes_are_the_packages() -> None:
    for at, (fig, told) in states("delta_rule.repeated_writes"):
        k = at["length"] * exact([[[1.0, 0.0]]]).expand(1, 24, 2)
        rates = torch.full((1, 24), at["rate"], dtype=torch.float64)
        out = delta_rule(k, k, torch.ones(1, 24, 1).double(), rates)[0][0, :, 0].tolist()
        for drawn, want in zip(fig.data[1].y, [0.0, *out], strict=True):
            left_out = drawn is None and abs(1 - want) > 3.99
            assert left_out or drawn == pytest.approx(want, abs=1e-9)
        factor = 1 - at["rate"] * at["length"] ** 2
        assert ("diverges" in told) == (abs(factor) > 1)
        assert ("alternates" in told) == (-1 <= factor < 0)


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
        assert f"is back after {back[0]} pair" in told if back else "not back after 24" in told


def fox(gates: torch.Tensor) -> torch.Tensor:
    """Return the bias of the Forgetting Transformer for given gates of one head."""
    zeros = torch.zeros(1, len(gates), 1).double()
    return ForgettingBias(1, 1)(zeros, zeros, gates.log()[None, :, None])[0]


def test_a_sentence_is_stretched_by_the_packages_positions() -> None:
    words, rate = path_positions.WORDS, path_positions.RATE
    one, index = torch.ones(1, 10, 2).double(), torch.arange(1, 11).double()[:, None]
    for at, (fig, told) in states("path_positions.stretched_sentence"):
        own = {".": at["stop"], "the": at["article"]}
        steps = exact([[own.get(word, at["other"])] for word in words])
        positions, last = path.path_positions(steps)
        assert list(fig.data[6].x) == pytest.approx(positions[:, 0].tolist(), abs=1e-12)
        assert f"The last token is at position {last.item():.2f}." in told
        pieces = [t.x for t in fig.data[3:6]]
        drawn = [(p[i], p[i + 1]) for p in pieces for i in range(0, 30, 3) if p[i] is not None]
        assert len(drawn) == 10
        ends = positions[:, 0].tolist()
        assert sorted(end for _, end in drawn) == pytest.approx(ends, abs=1e-12)
        total = sum(end - start for start, end in drawn)
        assert total == pytest.approx(last.item(), abs=1e-12)
        for trace, places, steps_of in (
            (fig.data[7], positions, steps),
            (fig.data[8], index, torch.ones_like(steps)),
        ):
            if at["use"] == "bias":  # a forget gate of each token is the same bias
                want = fox((-rate * steps_of[:, 0]).exp())[-1].softmax(-1)
            else:
                rotated = STRING(exact([[[rate]]])).rotate(one, places)[0]
                want = rotated @ rotated[-1] / 2
            assert list(trace.y) == pytest.approx(want.tolist(), abs=1e-12)
        if at["use"] == "bias":
            assert f"get {sum(fig.data[7].y[-4:]):.2f} of the weight" in told


def test_sentences_are_gated_as_the_forgetting_bias_does() -> None:
    for at, (fig, told) in states("path_positions.gated_sentences"):
        stops = torch.tensor([word == "." for word in path_positions.WORDS])
        want = fox(torch.where(stops, exact(at["closes"]), exact(at["keeps"]))).exp()
        for i, row in enumerate(fig.data[0].z):
            assert list(row[: i + 1]) == pytest.approx(want[i, : i + 1].tolist(), abs=1e-12)
            assert set(row[i + 1 :]) <= {None}
        assert ("triangle" in told) == (at["closes"] < at["keeps"])
        assert f"full stop, to the last token is {want[-1, 5]:.2f}." in told
