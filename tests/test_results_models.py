"""The small models of the studies: what each is asked, and what it can and cannot see."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from results import (
    cayley_string,
    circulant_block_size,
    circulant_training,
    cosformer,
    decay_and_state,
    delta_rule,
    gating,
    language,
    reflections,
    rope_2d,
    rope_decay,
    rope_shift,
    rotations_linear,
    string_commuting,
    toeplitz_rpe,
    why_positions,
)
from stringlib.reference import build_skew_symmetric, cayley_after_rope
from stringlib.testing.properties import largest_difference
from tests.draws import generator

Make = Callable[[str], nn.Module]


def seeded(make: Make, name: str) -> nn.Module:
    torch.manual_seed(0)
    return make(name).double()


# --- what is asked ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("study", "down", "left"), [(circulant_block_size, 3, 2), (string_commuting, 2, 1)]
)
def test_the_neighbour_stands_below_and_to_the_left(
    study: ModuleType, down: int, left: int
) -> None:
    cells, neighbours = study.asking_cells()
    assert len(cells) == (study.SIDE - down) * (study.SIDE - left)
    for cell, neighbour in zip(cells.tolist(), neighbours.tolist(), strict=True):
        row, column = divmod(cell, study.SIDE)
        assert divmod(neighbour, study.SIDE) == (row + down, column - left)


@pytest.mark.parametrize("side", [8, 12])
def test_the_answers_of_rope_2d_stand_on_the_diagonals(side: int) -> None:
    asking = rope_2d.asking_cells(side).tolist()
    assert len(asking) == (side - 2) ** 2
    for task in rope_2d.TASKS:
        symbols, answers = rope_2d.batch(task, side, 3, generator())
        table = symbols.view(3, side, side)
        for column, cell in enumerate(asking):
            y, x = divmod(cell, side)
            below_left, above_left = table[:, y + 1, x - 1], table[:, y - 1, x - 1]
            expected = below_left if task == "one" else above_left + table[:, y + 1, x + 1]
            assert torch.equal(answers[:, column], expected)


def test_the_answer_stands_three_places_back() -> None:
    tokens, answers = rope_shift.batch(4, generator())
    for place in range(3, rope_shift.LENGTH):
        assert torch.equal(answers[:, place - rope_shift.BACK], tokens[:, place - 3])
    model = rotations_linear.LookBack("relu none")
    model.forward = lambda symbols, start: nn.functional.one_hot(
        symbols.roll(3, -1), rotations_linear.SYMBOLS
    )
    assert rotations_linear.accuracy(model) == 1
    symbols = torch.arange(cayley_string.LENGTH)[None] % cayley_string.SYMBOLS
    oracle = cayley_string.LookBack("frozen", "0")
    oracle.forward = lambda symbols: (
        50.0 * nn.functional.one_hot(symbols.roll(3, -1), cayley_string.SYMBOLS)
    )
    assert cayley_string.cross_entropy(oracle, symbols) < 1e-12


@pytest.mark.parametrize(("task", "back"), [("near", 3), ("far", 40)])
def test_the_answer_stands_where_the_task_of_rope_decay_says(task: str, back: int) -> None:
    tokens, answers = rope_decay.batch(task, 50, generator())
    assert tokens.shape == (50, rope_decay.LENGTH)
    assert torch.equal(answers, tokens[:, back - 1])  # the nearest token is at distance 1


def test_anywhere_marks_one_symbol_and_asks_for_it() -> None:
    tokens, answers = rope_decay.batch("anywhere", 2000, generator())
    marked = tokens >= rope_decay.SYMBOLS
    assert marked.sum(1).eq(1).all()
    assert torch.equal(tokens[marked] - rope_decay.SYMBOLS, answers)
    assert marked.any(0).all()  # at every distance


@pytest.mark.parametrize("task", why_positions.TASKS)
def test_the_answer_stands_as_far_back_as_the_token_asks(task: str) -> None:
    tokens, back, answers = why_positions.batch(task, 8, 20, generator())
    assert set(back.flatten().tolist()) == set(range(1, why_positions.TASKS[task] + 1))
    for row in range(8):
        for place in range(why_positions.FARTHEST, 20):
            answer = tokens[row, place - back[row, place]]
            assert answers[row, place - why_positions.FARTHEST] == answer


def test_the_tasks_of_toeplitz_rpe_ask_what_they_say() -> None:
    tokens = toeplitz_rpe.batch(3, generator())
    offset, kind = (toeplitz_rpe.answers(task, tokens).tolist() for task in toeplitz_rpe.TASKS)
    for row, line in enumerate(tokens.tolist()):
        for i, token in enumerate(line):
            assert offset[row][i] == (line[i - 5] % 8 if i >= 5 else -100)
            alike = [t for t in line[:i] if t // 8 == token // 8]
            assert kind[row][i] == (alike[-1] % 8 if alike else -100)


def test_what_a_key_held_is_its_last_value() -> None:
    keys, values, held = cosformer.batch(3, generator())
    for row in zip(keys.tolist(), values.tolist(), held.tolist(), strict=True):
        memory: dict[int, int] = {}
        for key, value, wanted in zip(*row, strict=True):
            assert memory.get(key, -100) == wanted
            memory[key] = value


@pytest.mark.parametrize("task", delta_rule.KEYS)
def test_what_is_asked_for_was_written_and_is_the_latest(task: str) -> None:
    length = delta_rule.LENGTHS[task]
    tokens, answers = delta_rule.batch(task, 30, length, generator())
    for row, said in zip(tokens.tolist(), answers.tolist(), strict=True):
        memory: dict[int, int] = {}
        for (key, value, asked), answer in zip(row, said, strict=True):
            assert task != "distinct" or key not in memory
            memory[key] = value
            assert memory[asked] == answer
    assert set(tokens[..., 2].flatten().tolist()) == set(range(delta_rule.KEYS[task]))


def test_parity_is_that_of_the_bits_so_far() -> None:
    bits, answers = delta_rule.batch("parity", 5, 9, generator())
    for row, said in zip(bits[..., 0].tolist(), answers.tolist(), strict=True):
        assert said == [sum(row[: t + 1]) % 2 for t in range(9)]


@pytest.mark.parametrize("task", decay_and_state.TASKS)
def test_what_was_seen_since_a_marker_is_that_of_a_plain_search(task: str) -> None:
    tokens, answers = decay_and_state.batch(task, 20, 40, generator())
    kinds = set(tokens[tokens >= decay_and_state.SYMBOLS].tolist())
    assert kinds == ({16} if task == "one marker" else {16, 17})
    for row, said in zip(tokens.tolist(), answers.tolist(), strict=True):
        for t, (token, answer) in enumerate(zip(row, said, strict=True)):
            if token >= decay_and_state.SYMBOLS:
                assert math.isnan(answer)
                continue
            own = 16 if task == "one marker" or token < 8 else 17
            past = row[:t]
            since = past[len(past) - past[::-1].index(own) :] if own in past else past
            assert answer == (token in since)


def test_each_kind_of_query_gets_its_answer() -> None:
    (keys, values, asked, kinds), answers = gating.batch(64, generator())
    assert (kinds.sum(0) == 64 * torch.tensor([0, 1, 2] * 4)).all()
    for row in range(64):
        pairs = dict(zip(keys[row].tolist(), values[row].tolist(), strict=True))
        assert len(pairs) == len(set(pairs.values())) == gating.PAIRS
        for key, kind, answer in zip(asked[row].tolist(), kinds[row], answers[row], strict=True):
            if kind == 0:
                assert answer.argmax() == pairs[key]
                assert answer.norm() == 1
            else:
                assert answer.abs().max() == 0
            assert kind != 1 or key not in pairs


# --- what a model sees -----------------------------------------------------------------------


def reader(cell: str) -> nn.Module:
    return language.text_task().model(**language.CELLS[cell])


PAIRS = cosformer.batch(2, generator())[:2]
ASKED = why_positions.batch("asked", 2, 12, generator())[:2]
TOKENS = torch.randint(16, (2, reflections.LENGTH), generator=generator())
BYTES = torch.randint(256, (1, 40), generator=generator())
CAUSAL: list[tuple[Make, str, tuple[Tensor, ...], int, int, float]] = [
    *(
        (cosformer.Memory, method, PAIRS, 31, cosformer.VALUES, 1e-12)
        for method in cosformer.METHODS
    ),
    *((why_positions.OneLayer, method, ASKED, 8, 16, 1e-12) for method in why_positions.METHODS),
    (reflections.OneLayer, "mirrors", (TOKENS,), 10, 16, 0),
    (reader, "softmax, RoPE", (BYTES,), 30, 256, 1e-12),
    (reader, "C-CosGate", (BYTES,), 30, 256, 1e-12),
    (reader, "learned circulant, RoPE", (BYTES,), 30, 256, 1e-12),
]
"""A model, what it reads, the first output that may change, number of tokens, what is rounding."""


@pytest.mark.parametrize(("make", "name", "inputs", "first", "count", "rounding"), CAUSAL)
def test_no_token_sees_what_comes_after_it(
    make: Make, name: str, inputs: tuple[Tensor, ...], first: int, count: int, rounding: float
) -> None:
    model, others = seeded(make, name), [x.clone() for x in inputs]
    written = make is cosformer.Memory  # its last input is seen by the tokens behind it alone
    changed = others[-1][:, first - 1 :] if written else others[0][:, first:]
    changed.copy_((changed + 1) % count)
    gap = (model(*inputs) - model(*others)).abs().amax((0, 2))
    assert gap[:first].max() <= rounding
    assert gap[first:].min() > 1e-6


@pytest.mark.parametrize("method", toeplitz_rpe.METHODS)
def test_only_a_weight_or_bias_knows_the_order(method: str) -> None:
    model = seeded(toeplitz_rpe.Layer, method)
    nn.init.normal_(model.bias)
    tokens = toeplitz_rpe.batch(1, generator())
    there = model(tokens.flip(1)).flip(1)
    blind = method in ("favor", "favor cosine", "favor kerple", "softmax temperature")
    assert (largest_difference(model(tokens), there) < 1e-9) is blind


# --- what one study claims -------------------------------------------------------------------


def test_the_misplaced_form_is_the_literal_one() -> None:
    torch.manual_seed(0)
    encoder = cayley_string.AfterRotation(16).double()
    q, positions = torch.randn(1, 7, 16).double(), torch.arange(7)[:, None]
    skew = build_skew_symmetric(encoder.entries[0].detach(), 16)
    literal = cayley_after_rope(q, positions, skew, encoder.omega[0].detach())
    assert largest_difference(encoder(q, q, positions)[0], literal) < 1e-12


def test_the_ceiling_names_the_value_of_the_largest_weight() -> None:
    """By hand, for the decay: every token asks what came before it, at distances 0, 1, 2, …."""
    keys, values, held = cosformer.batch(256, generator(10_000))
    right = asked = 0
    for row in range(256):
        totals = torch.zeros(cosformer.KEYS, cosformer.VALUES, dtype=torch.float64)
        for t in range(cosformer.LENGTH):
            key, value = keys[row, t], values[row, t]
            if held[row, t] >= 0:
                asked += 1
                right += int(totals[key].argmax() == held[row, t])
            totals *= 7 / 8
            totals[key, value] += 1
    assert cosformer.ceiling("retnet") == pytest.approx(right / asked, abs=1e-9)
    assert cosformer.ceiling("relu") == cosformer.ceiling("softmax") < cosformer.ceiling("cosine")
    steeper = ("cosine", "cosine-positive", "cosine-phase", "ramp-squared", "retnet")
    allowed = [cosformer.ceiling(method) for method in steeper]
    assert allowed == sorted(allowed)


def test_equal_scores_share_the_answer() -> None:
    scores = torch.tensor([[[1.0, 1, 0, 0], [0, 0, 3, 0], [1, 1, 1, 1], [2, 0, 0, 0]]])
    assert cosformer._right(scores, torch.tensor([[1, 2, 0, -100]])) == pytest.approx(1.75 / 3)


# --- Circulant-STRING in every recommended way -----------------------------------------------


def test_the_inert_part_turns_nothing_and_the_rest_is_all_frequencies() -> None:
    encoder = circulant_training.encoder(16, "normal", shared=False).double()
    with torch.no_grad():
        c = encoder.coefficients
        even, frequencies = circulant_training.inert(c), encoder.frequencies()
        squares = frequencies.square().sum() / 32 + even.square().sum()
        assert squares.item() == pytest.approx(c.square().sum().item(), rel=1e-12)
        c.copy_(even)
        assert encoder.frequencies().abs().max() < 1e-14
