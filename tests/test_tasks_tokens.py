"""Recall, MQAR and ListOps, each beside a slow reading of its definition."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
import torch
from torch import Tensor

from lab.tasks.listops import NEST, OPERATORS, PADDING, TOKENS, ListOps, draw
from lab.tasks.mqar import MQAR
from lab.tasks.recall import Recall
from lab.tasks.task import IGNORE
from lab.theory.capacity import guess_accuracy
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


@pytest.mark.parametrize("pairs", [1, 8, 32])
def test_naming_the_commonest_value_scores_what_it_should(pairs: int) -> None:
    expected = float(guess_accuracy(pairs, 8))
    assert Recall(pairs).chance() == pytest.approx(expected, abs=0.04)
    if pairs == 8:
        assert expected == pytest.approx(0.32, abs=0.005)


# --- multi-query associative recall ---


def answers(tokens: list[int], pairs: int) -> list[int]:
    """Return what the definition asks of a sequence whose filler is 0, token by token."""
    told = {tokens[2 * i]: tokens[2 * i + 1] for i in range(pairs)}
    wanted = []
    for place, token in enumerate(tokens):
        wanted.append(IGNORE if place < 2 * pairs or token == 0 else told[token])
    return wanted


def test_the_slow_reading_of_mqar_agrees_with_the_example_of_its_source() -> None:
    example = [2, 8, 4, 7, 0, 0, 4, 0, 0, 0, 0, 0, 2, 0, 0]
    wanted = [IGNORE] * 15
    wanted[6], wanted[12] = 7, 8
    assert answers(example, 2) == wanted


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


def test_random_filler_leaves_pairs_questions_and_answers() -> None:
    task = MQAR(8, 64, 128, random_filler=True)
    tokens, targets = task.batch(400, generator())
    filler = []
    for sequence, wanted in zip(tokens.tolist(), targets.tolist(), strict=True):
        told = dict(zip(sequence[:16:2], sequence[1:16:2], strict=True))
        asked = [place for place, target in enumerate(wanted) if target != IGNORE]
        assert sorted(sequence[place] for place in asked) == sorted(told)
        assert all(wanted[place] == told[sequence[place]] for place in asked)
        filler += [sequence[place] for place in range(16, 64) if place not in asked]
    counts = torch.tensor(filler).bincount(minlength=128)
    assert len(counts) == 128
    mean = len(filler) / 128
    assert (counts - mean).abs().max() < 5 * mean**0.5


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


def test_every_key_and_value_of_mqar_is_drawn_equally_often() -> None:
    tokens, _ = MQAR(4, 16, 32).batch(6000, generator())
    for start, low, high in ((0, 1, 16), (1, 16, 32)):
        counts = tokens[:, start:8:2].flatten().bincount(minlength=32)[low:high]
        mean = 6000 * 4 / (high - low)
        assert (counts - mean).abs().max() < 5 * mean**0.5


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


def test_the_slow_reading_of_listops() -> None:
    assert evaluate("[MAX 2 [SM 4 9 ] 1 ]") == (3, 3, [2, 3])
    assert evaluate("[MED 1 4 ]")[0] == 2, "two and a half is rounded down"
    assert evaluate("[MIN 7 [SM 5 5 ] ]")[0] == 0


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


def test_operators_digits_and_numbers_of_arguments_are_equally_frequent() -> None:
    rng = random.Random(0)
    drawn = [draw(rng, 2, 5)[0] for _ in range(40_000)]
    nested = [tokens for tokens in drawn if len(tokens) > 1]
    assert len(nested) / len(drawn) == pytest.approx(NEST, abs=0.01)
    heads = Counter(tokens[0] for tokens in nested)
    sizes = Counter(len(tokens) - 2 for tokens in nested)
    digits = Counter(t for tokens in nested for t in tokens[1:-1])
    assert set(heads) == {10, 11, 12, 13}
    assert set(sizes) == {2, 3, 4, 5}
    assert set(digits) == set(range(10))
    for found in (heads, sizes, digits):
        mean = found.total() / len(found)
        assert max(abs(n - mean) for n in found.values()) < 5 * mean**0.5


def test_the_sizes_of_the_source_are_possible() -> None:
    task = ListOps(500, 2000, depth=10, arguments=10, train_size=20, test_size=5)
    lengths = [len(text.split()) for text in texts(task.train[0])]
    assert 500 < min(lengths) <= max(lengths) < 2000
    assert task.train[0].dtype == torch.uint8, "96,000 of them would not fit"


def test_guessing_without_reading_the_list_scores_what_is_counted() -> None:
    task = ListOps(**SMALL)
    train = [(text.split()[0], evaluate(text)[0]) for text in texts(task.train[0])]
    test = [(text.split()[0], evaluate(text)[0]) for text in texts(task.test[0])]
    commonest = Counter(value for _, value in train).most_common(1)[0][0]
    right = sum(value == commonest for _, value in test) / len(test)
    assert task.chance() == pytest.approx(right)
    guess = {
        f"[{name}": Counter(v for head, v in train if head == f"[{name}").most_common(1)[0][0]
        for name in OPERATORS
    }
    right = sum(value == guess[head] for head, value in test) / len(test)
    assert task.outermost() == pytest.approx(right)
    assert task.outermost() > task.chance() + 0.05


def test_a_causal_model_never_sees_the_padding() -> None:
    task = ListOps(**SMALL)
    torch.manual_seed(0)
    model = task.model(encoder="rope")
    tokens, targets = task.batch(8, generator())
    filled = torch.where(tokens == PADDING, 3, tokens)
    assert (filled != tokens).any()
    asked = targets != IGNORE
    torch.testing.assert_close(model(tokens)[asked], model(filled)[asked], rtol=0, atol=0)
