"""The figures of the chapters on attention show what the package computes."""

from __future__ import annotations

import functools
import math
from typing import Any

import pytest
import torch

from book.figures import favor_plus as favor
from book.figures import linear_attention as three_forms
from book.figures import trained_heads
from book.figures.associative_recall import TOKENS, VALUES
from book.figures.gating import START_SCORE
from book.figures.gating import VALUES as PLANE
from lab.theory.extrapolation import seen_turns, unseen_share
from stringlib import CosineWeight, RoPE, linear_attention, reference
from stringlib.encoders.scaling import ntk_aware, position_interpolation, yarn
from stringlib.testing.properties import largest_difference
from tests.figure_cases import exact, states


def test_outputs_are_those_of_a_turned_query() -> None:
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
        assert f"the output is {outputs[2].item():.1f}. The curve" in text


def test_weights_of_a_trained_head_are_those_that_the_layer_uses() -> None:
    used: list[torch.Tensor] = []
    model = trained_heads.model()

    def look(layer: Any, args: tuple[torch.Tensor, ...]) -> None:
        used.extend(layer.attention_weights(*args)[0])

    hooks = [block.attention.register_forward_pre_hook(look) for block in model.blocks]
    model(trained_heads.tokens())
    for hook in hooks:
        hook.remove()
    for head, want in zip(trained_heads.HEADS, used, strict=True):
        assert largest_difference(trained_heads.weights(head), want.double()) < 1e-5
    for at, (figure, text) in states("trained_heads.trained_heads"):
        exact = used[trained_heads.HEADS.index(at["head"])][trained_heads.AT]
        shown = list(figure.data[0].y)
        assert shown == pytest.approx(exact[: len(shown)].tolist(), abs=6e-4)
        assert f"{exact.max():.2f}, to position {exact.argmax()}," in text


def test_scores_of_a_trained_head_by_distance_and_the_part_of_its_fastest_pair() -> None:
    for at, (figure, text) in states("trained_heads.scores_by_distance"):
        core, q, k = trained_heads.seen(trained_heads.model())[1]
        n, which = q.shape[-2], int(at["head"][-1]) - 1
        positions = torch.arange(n)[:, None].to(q)
        q, k = (x[which].double() for x in core.encoder(q, k, positions))
        scores = q @ k.T
        means = [scores[range(t, n), range(n - t)].mean().item() for t in range(81)]
        assert list(figure.data[0].y) == pytest.approx(means, abs=6e-3)
        without = scores - (q[:, 2:] @ k[:, 2:].T)  # what the fastest pair adds
        deviation = without[torch.ones(n, n).tril() == 1].std().item()
        assert figure.data[2].y[0] == pytest.approx(deviation, abs=6e-3)
        assert f"at distance {max(range(81), key=means.__getitem__)}. Below" in text


def test_states_of_trained_keys_answer_as_the_update_says() -> None:
    for at, (figure, text) in states("trained_heads.states_of_trained_keys"):
        keys, n = trained_heads.trained_keys(at["head"]), at["written"]
        adds, replaces = torch.zeros(2, 32, n).double()
        for t, value in enumerate(torch.eye(n).double()):
            adds += torch.outer(keys[t], value)
            replaces += at["rate"] * torch.outer(keys[t], value - keys[t] @ replaces)
        for row, name in enumerate(("gold", "blue")):
            key = keys[trained_heads.WRITTEN.index(name)]
            for place, state in enumerate((adds, replaces)):
                want = (key @ state).tolist()
                assert list(figure.data[2 * row + place].y) == pytest.approx(want, abs=6e-4)
        assert f"{figure.data[4].y[1]:.2f} is left with trained keys" in text
        own = (keys[:-1] * keys[1:]).sum(-1).square()  # the part that the next write removes
        left = at["rate"] * (1 - at["rate"] * own.mean()).item()
        assert figure.data[4].y[1] == pytest.approx(left, abs=6e-4)


def test_habits_let_the_last_key_move_outputs() -> None:
    q, k, rows, v = favor._causal_example()
    for at, (figure, text) in states("favor_plus.causal_habits"):
        keys = torch.cat([k[:-1], at["factor"] * k[-1:]])
        phi_q, phi_k = (reference.positive_features(x, rows)[None] for x in (q, keys))

        def outputs(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
            return linear_attention(queries, keys, v[None, :, None], causal=True)[0, :, 0]

        def habit(x: torch.Tensor, top: torch.Tensor) -> torch.Tensor:
            half = x.square().sum(-1, keepdim=True) / 2
            return (((x @ rows.mT) - half - top).exp() + 1e-4)[None]

        habits = habit(q, (q @ rows.mT).amax(-1, keepdim=True)), habit(keys, (keys @ rows.mT).max())
        right, average = outputs(phi_q, phi_k), v.cumsum(0) / torch.arange(1, 13)
        wanted = [average, right, outputs(phi_q, phi_k / phi_k.amax(-1, keepdim=True))]
        for curve, numbers in zip(figure.data, [*wanted, outputs(*habits)], strict=True):
            assert list(curve.y) == pytest.approx(numbers.tolist(), abs=1e-3)
        off = (outputs(*habits) - right)[:-1].abs().max().item()
        assert (off > 0.9) == (at["factor"] > 1)
        assert f"constant is added, the 11 outputs are wrong by up to {off:.2f}" in text


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
        assert list(figure.data[6].y)[::4] == pytest.approx(row, abs=1e-12)
        said = f"diagonal BD is the weight of this key for this query, {row[at['key']]:.2f}."
        assert said in text


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
        weights, *_, output = fig.data
        points = exact([output.x, output.y]).mT
        assert largest_difference(points, torch.cat([said, gated])) < 1e-3
        assert (weights.y[0] > 0) is start
        assert f"({gated[0, 0]:.2f}, {gated[0, 1]:.2f})" in text
        assert ("start token" in text) is start


def test_the_map_is_attention_with_mixed_keys() -> None:
    names = sorted(set(TOKENS))
    x = torch.eye(len(names), dtype=torch.float64)[[names.index(t) for t in TOKENS]]
    for at, (fig, _) in states("associative_recall.recalled_value"):
        keys = (1 - at["share"]) * x
        keys[1:] += at["share"] * x[:-1]
        scale = at["sharpness"] * len(names) ** 0.5  # the reference divides by √d
        for query, drawn in enumerate(fig.data[0].z):
            seen = slice(0, query + 1)
            parts = scale * x[query][None, None], keys[None, seen], x[None, seen]
            said = reference.softmax_attention(*parts)[0, 0]
            assert not any(drawn[query + 1 :])
            assert largest_difference(exact(drawn) @ x, said) < 3e-3
        votes = said[[names.index(v) for v in VALUES]]
        assert list(fig.data[1].y) == pytest.approx((votes / votes.sum()).tolist(), abs=1e-3)


def test_bars_are_the_circle_seen_and_new() -> None:
    turns = seen_turns(RoPE(16).frequencies(), 64)[0, :, 0]
    for at, (fig, text) in states("length_extrapolation.beyond_training"):
        seen, new = (exact(bar.y) for bar in fig.data[2:])
        assert torch.allclose(seen, turns.clamp(max=1), atol=1e-4)
        waves, scale = RoPE(16).frequencies(), float(at["scale"])
        slowed = {
            "rope": waves,
            "pi": position_interpolation(waves, scale),
            "ntk": ntk_aware(waves, scale),
            "yarn": yarn(waves, scale, 64, fast=4),
        }[at["method"]]
        share = unseen_share(waves, slowed, 64, 64 * scale)[0, :, 0]
        assert torch.allclose(new, share, atol=1e-9)
        assert f"{int((new > 0.005).sum())} of 8 pairs meet new angles" in text
