"""Recall, MQAR and ListOps, each beside a slow reading of its definition."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
import torch
from torch import Tensor

from lab.tasks.listops import PADDING, TOKENS, ListOps, draw
from lab.tasks.mqar import MQAR
from lab.tasks.recall import Recall
from lab.tasks.task import IGNORE
from tests.draws import generator

# --- associative recall ---


@pytest.mark.parametrize(("pairs", "keys", "values"), [(8, None, 8), (32, 64, 8), (1, None, 3)])
def test_recall_asks_for_the_value_of_a_listed_key(
    pairs: int, keys: int | None, values: int
) -> None:
    task = Recall(pairs, keys, values)
    tokens, targets = task.batch(200, generator())
    assert tokens.shape == (200, 2 * pairs + 1)
    for sequence, wanted in zip(tokens.tolist(), targets.tolist(), strict=True):
        told = dict(zip(sequence[:-1:2], sequence[1::2], strict=True))
        assert len(told) == pairs, "a key stands twice"
        assert all(values <= key < values + (keys or pairs) for key in told)
        assert all(0 <= value < values for value in told.values())
        assert wanted == [IGNORE] * (2 * pairs) + [told[sequence[-1]]]


def test_recall_has_eight_pairs_in_seventeen_tokens() -> None:
    tokens, targets = Recall().batch(64, generator(5))
    assert tokens.shape == (64, 17)
    # the first batch of every recorded run hangs on these draws
    draws = generator(5)
    keys = torch.rand(64, 8, generator=draws).argsort(-1) + 8
    values = torch.randint(8, (64, 8), generator=draws)
    asked = torch.randint(8, (64,), generator=draws)
    assert torch.equal(tokens[:, 0:-1:2], keys)
    assert torch.equal(tokens[:, 1::2], values)
    assert torch.equal(targets[:, -1], values[torch.arange(64), asked])


# --- multi-query associative recall ---


def answers(tokens: list[int], pairs: int) -> list[int]:
    """Return what the definition asks of a sequence whose filler is 0, token by token."""
    told = {tokens[2 * i]: tokens[2 * i + 1] for i in range(pairs)}
    wanted = []
    for place, token in enumerate(tokens):
        wanted.append(IGNORE if place < 2 * pairs or token == 0 else told[token])
    return wanted


@pytest.mark.parametrize(
    ("pairs", "length", "vocab"), [(8, 64, 128), (4, 16, 10), (1, 4, 4), (16, 256, 8192)]
)
def test_mqar_is_what_its_definition_says(pairs: int, length: int, vocab: int) -> None:
    tokens, targets = MQAR(pairs, length, vocab).batch(40, generator())
    assert tokens.shape == targets.shape == (40, length)
    for sequence, wanted in zip(tokens.tolist(), targets.tolist(), strict=True):
        keys, values = sequence[: 2 * pairs : 2], sequence[1 : 2 * pairs : 2]
        assert len(set(keys)) == len(set(values)) == pairs
        assert all(1 <= key < vocab // 2 for key in keys)
        assert all(vocab // 2 <= value < vocab for value in values)
        assert wanted == answers(sequence, pairs)
        asked = [place for place, token in enumerate(sequence) if place >= 2 * pairs and token]
        assert sorted(sequence[place] for place in asked) == sorted(keys)
        assert all((place - 2 * pairs) % 2 == 0 for place in asked)


@pytest.mark.parametrize("power", [0.01, 1.0, 2.5])
def test_slots_are_drawn_one_after_another_by_the_power_law(power: float) -> None:
    count, slots = 40_000, 4
    tokens, _ = MQAR(2, 4 + 2 * slots, 16, power).batch(count, generator())
    places = [
        (tokens[:, 4::2] == tokens[:, key : key + 1]).long().argmax(-1).tolist() for key in (0, 2)
    ]
    seen = Counter(zip(*places, strict=True))
    law = [k ** (power - 1) for k in range(1, slots + 1)]
    law = [p / sum(law) for p in law]
    for first in range(slots):
        for second in range(slots):
            chance = 0.0 if first == second else law[first] * law[second] / (1 - law[first])
            spread = (count * chance * (1 - chance)) ** 0.5
            assert abs(seen[first, second] - count * chance) <= 5 * spread


# --- ListOps ---

SMALL = {"train_size": 2000, "test_size": 500}


def texts(tokens: Tensor) -> list[str]:
    """Return expressions as text; padding has none."""
    return [" ".join(TOKENS[t] for t in row if t != PADDING) for row in tokens.tolist()]


def evaluate(text: str) -> tuple[int, int, list[int]]:
    """Return the value of an expression, how many levels it has, and its numbers of arguments."""
    words = text.split()

    def read() -> tuple[int, int, list[int]]:
        word = words.pop(0)
        if word.isdigit():
            return int(word), 1, []
        values, levels, counts = [], 0, []
        while words[0] != "]":
            value, level, inner = read()
            values.append(value)
            levels = max(levels, level)
            counts += inner
        words.pop(0)
        found = {"[MIN": np.min, "[MAX": np.max, "[MED": np.median, "[SM": np.sum}[word](values)
        return int(found) % 10, levels + 1, [*counts, len(values)]

    found = read()
    assert not words, "tokens are left over"
    return found


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"min_length": 0, "max_length": 12, "depth": 3, "arguments": 3},
        {"min_length": 40, "max_length": 90, "depth": 6, "arguments": 8},
    ],
)
def test_listops_asks_for_the_value_at_the_last_token(options: dict) -> None:
    task = ListOps(**{**SMALL, "train_size": 300, "test_size": 100, **options})
    low, high = options.get("min_length", 8), options.get("max_length", 64)
    batches = [task.batch(100, generator()), *task.held_out()["test"]]
    assert sum(len(tokens) for tokens, _ in batches) == 200
    for tokens, targets in batches:
        for row, wanted, text in zip(tokens, targets.tolist(), texts(tokens), strict=True):
            value, levels, counts = evaluate(text)
            length = len(text.split())
            assert low < length < high
            assert levels <= options.get("depth", 5)
            assert all(2 <= count <= options.get("arguments", 5) for count in counts)
            assert (row[length:] == PADDING).all()
            assert (row[:length] != PADDING).all()
            asked = [place for place, target in enumerate(wanted) if target != IGNORE]
            assert asked == [length - 1]
            assert wanted[length - 1] == value
        assert tokens.shape[1] == max(len(text.split()) for text in texts(tokens))


def test_expressions_are_all_different_and_those_tested_are_not_trained_on() -> None:
    task = ListOps(**SMALL)
    train, test = texts(task.train[0]), texts(task.test[0])
    assert len(train) == len(set(train)) == 2000
    assert len(test) == len(set(test)) == 500
    assert not set(train) & set(test)
    assert texts(ListOps(**SMALL, seed=1).train[0]) != train


def literal(rng: random.Random, level: int, deepest: int, most: int) -> str:
    """Return an expression by the rule of the source: its random numbers in its order."""
    chance = rng.random() if level < deepest else 1.0
    if chance > 0.25:
        return str(rng.choice(range(10)))
    parts = [literal(rng, level + 1, deepest, most) for _ in range(rng.randint(2, most))]
    return " ".join([rng.choice(["[MIN", "[MAX", "[MED", "[SM"]), *parts, "]"])


def test_expressions_are_those_of_the_rule_of_the_source() -> None:
    ours, theirs = random.Random(0), random.Random(0)
    for _ in range(500):
        tokens, value = draw(ours, 10, 10)
        text = literal(theirs, 1, 10, 10)
        assert " ".join(TOKENS[t] for t in tokens) == text
        if len(tokens) < 3000:  # the slow reading takes its time
            assert evaluate(text)[0] == value
