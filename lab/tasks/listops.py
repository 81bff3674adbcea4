"""ListOps: the value of a nested expression over lists of digits."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from functools import lru_cache
from statistics import median
from typing import Any, Self

import torch
from torch import Tensor, nn

from lab.tasks.task import IGNORE, Task, without_end
from stringlib.models.language import LanguageModel
from stringlib.spec import Count0, at_least, require

OPERATORS = ("MIN", "MAX", "MED", "SM")
"""Smallest digit, largest digit, median (rounded down), and sum modulo 10."""
TOKENS = (*"0123456789", *(f"[{name}" for name in OPERATORS), "]", "")
"""Text of each token. The last token is padding."""
CLOSE, PADDING = 14, 15
NEST = 0.25
"""Probability that an argument is an expression instead of a digit."""


def apply(operator: int, arguments: list[int]) -> int:
    """Return the result of an operator, given as an index of ``OPERATORS``, for some digits."""
    if operator == 0:
        return min(arguments)
    if operator == 1:
        return max(arguments)
    return int(median(arguments)) if operator == 2 else sum(arguments) % 10


def draw(rng: random.Random, depth: int, arguments: int, level: int = 1) -> tuple[list[int], int]:
    """Return the tokens of a random expression, and its value.

    At every level above the deepest, an expression is an operator with probability ``NEST``, and
    otherwise a digit.

    Args:
        rng: Random generator.
        depth: Deepest level, which contains only digits.
        arguments: Largest number of arguments of an operator. The smallest number is 2.
        level: Level of this expression.
    """
    if level >= depth or rng.random() > NEST:
        digit = rng.randrange(10)
        return [digit], digit
    tokens, values = [], []
    for _ in range(rng.randint(2, arguments)):
        found, value = draw(rng, depth, arguments, level + 1)
        tokens += found
        values.append(value)
    operator = rng.randrange(4)
    return [10 + operator, *tokens, CLOSE], apply(operator, values)


class ListOps(Task):
    """Nested operators over digits: the model predicts the value, a digit, at the last token.

    ::

        inputs    [MAX  2  [SM  4  9  ]  1  ]
        targets     .   .   .   .  .  .  .  3

    All expressions are different and are drawn once from ``seed``, because the source has fixed
    sets too. A batch is a sample of the training set. Shorter expressions are padded after their
    last token, where they have no effect on a causal model.

    Args:
        min_length: Expressions have more than this number of tokens. ``[MAX`` is one token, and so
            is ``]``.
        max_length: Expressions have fewer than this number of tokens.
        depth: Deepest level. The outermost level is 1, and the deepest level contains only digits.
        arguments: Largest number of arguments of an operator.
        train_size: Number of training expressions.
        test_size: Number of test expressions, which are not in the training set.
        seed: Seed of the expressions.

    ``ListOps(500, 2000, depth=10, arguments=10, train_size=96_000, test_size=2_000)`` is the task
    of the source. Drawing its expressions takes about ten minutes.

    Raises:
        ValueError: If too few random expressions have such a length.

    Source:
        Tay et al. 2021 (Long Range Arena), section 2.2.1, and its generator; the task is Nangia and
        Bowman's (2018).
    """

    def __init__(
        self,
        min_length: int = 8,
        max_length: int = 64,
        *,
        depth: int = 5,
        arguments: int = 5,
        train_size: int = 20_000,
        test_size: int = 2_000,
        seed: int = 0,
    ) -> None:
        require("min_length", min_length, Count0)
        require("max_length", max_length, at_least(min_length + 2))
        require("depth", depth, at_least(2))
        require("arguments", arguments, at_least(2))
        require("train_size", train_size, int)
        require("test_size", test_size, int)
        self.max_length = max_length
        tokens, values = _pool(
            min_length, max_length, depth, arguments, train_size + test_size, seed
        )
        self.train = tokens[:train_size], values[:train_size]
        self.test = tokens[train_size:], values[train_size:]

    def batch(self, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return tokens and targets, both ``(size, longest expression of the batch)``."""
        require("size", size, int)
        tokens, values = self.train
        rows = torch.randint(len(tokens), (size,), generator=generator)
        return _sequences(tokens[rows], values[rows])

    def held_out(self) -> dict[str, Iterator[tuple[Tensor, Tensor]]]:
        """Return ``"test"``: expressions that are not in the training set."""
        tokens, values = self.test
        batches = zip(tokens.split(250), values.split(250), strict=True)
        return {"test": (_sequences(*some) for some in batches)}

    def validation(self) -> Self:
        """Return the task with the last tenth of the training expressions as the test set."""
        other = copy.copy(self)
        (tokens, others), (values, answers) = map(without_end, self.train)
        other.train, other.test = (tokens, values), (others, answers)
        return other

    def chance(self) -> float:
        """Return the accuracy of always predicting the most frequent value of the training set."""
        guess = self.train[1].mode().values
        return (self.test[1] == guess).double().mean().item()

    def outermost(self) -> float:
        """Return the accuracy of predicting the most frequent value of the outermost operator.

        The maximum of a long list is usually 9, and its minimum 0. So a model that reads only the
        first token reaches this accuracy.
        """
        (tokens, values), (test_tokens, test_values) = self.train, self.test
        right = 0
        for operator in range(10, 14):
            guess = values[tokens[:, 0] == operator].mode().values
            right += int((test_values[test_tokens[:, 0] == operator] == guess).sum())
        return right / len(test_values)

    def model(self, **options: Any) -> nn.Module:
        """Return a model with two layers of four heads and 64 channels."""
        sizes = {"dim": 64, "depth": 2, "heads": 4, "mlp": "mlp", "hidden": 128, "tied": False}
        return LanguageModel(len(TOKENS), **{**sizes, "length": self.max_length - 1, **options})


def _sequences(tokens: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    last = (tokens != PADDING).sum(-1, keepdim=True) - 1
    tokens = tokens[:, : int(last.max()) + 1].long()
    targets = torch.full_like(tokens, IGNORE)
    return tokens, targets.scatter_(1, last, values.long()[:, None])


@lru_cache(maxsize=4)
def _pool(
    min_length: int, max_length: int, depth: int, arguments: int, count: int, seed: int
) -> tuple[Tensor, Tensor]:
    """Return different expressions, ``(count, max_length - 1)`` bytes, and their values."""
    rng = random.Random(seed)
    found: dict[bytes, int] = {}
    tried = 0
    while len(found) < count:
        tokens, value = draw(rng, depth, arguments)
        if min_length < len(tokens) < max_length:
            found.setdefault(bytes(tokens), value)
        tried += 1
        if tried > 10_000 + 1000 * len(found):
            raise ValueError(
                f"min_length={min_length}, max_length={max_length}, depth={depth} and "
                f"arguments={arguments} must allow {count} different expressions, got {len(found)} "
                f"in {tried} draws. Allow more lengths, a larger depth or more arguments."
            )
    width = max_length - 1
    rows = b"".join(tokens.ljust(width, bytes([PADDING])) for tokens in found)
    table = torch.frombuffer(bytearray(rows), dtype=torch.uint8).view(count, width)
    return table, torch.tensor(list(found.values()), dtype=torch.uint8)
