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
"""Smallest, largest, median (rounded down), and sum modulo 10."""
TOKENS = (*"0123456789", *(f"[{name}" for name in OPERATORS), "]", "")
"""Token → its text; the last is padding."""
CLOSE, PADDING = 14, 15
NEST = 0.25
"""Probability that an argument is an expression in its turn."""


def apply(operator: int, arguments: list[int]) -> int:
    """Return the digit that an operator, an index of ``OPERATORS``, makes of digits."""
    if operator == 0:
        return min(arguments)
    if operator == 1:
        return max(arguments)
    return int(median(arguments)) if operator == 2 else sum(arguments) % 10


def draw(rng: random.Random, depth: int, arguments: int, level: int = 1) -> tuple[list[int], int]:
    """Return the tokens of a random expression, and its value.

    Above the deepest level it is an operator with probability ``NEST``, else a digit.

    Args:
        rng: Where randomness comes from.
        depth: Deepest level; only digits stand there.
        arguments: Most arguments of an operator; the fewest are 2.
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
    """Nested operators over digits; the model names the value, a digit, at the last token.

    ::

        inputs    [MAX  2  [SM  4  9  ]  1  ]
        targets     .   .   .   .  .  .  .  3

    Expressions are drawn once from ``seed``, all different, as in the source, which has fixed sets
    too; a batch is a sample of the training set. Shorter ones are padded behind the last token,
    where a causal model does not look.

    Args:
        min_length: Expressions are longer than that, in tokens; ``[MAX`` is one, ``]`` another.
        max_length: Expressions are shorter than that.
        depth: Deepest level; the outermost is 1, and at the deepest stand only digits.
        arguments: Most arguments of an operator.
        train_size: Expressions to train on.
        test_size: Expressions to test on, none of them trained on.
        seed: Seed of the expressions.

    ``ListOps(500, 2000, depth=10, arguments=10, train_size=96_000, test_size=2_000)`` is the task
    of the source; drawing it takes about ten minutes.

    Raises:
        ValueError: If almost no expression has such a length.

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
        """Return ``"test"``: the expressions that are not trained on."""
        tokens, values = self.test
        batches = zip(tokens.split(250), values.split(250), strict=True)
        return {"test": (_sequences(*some) for some in batches)}

    def validation(self) -> Self:
        """Return the task with the last tenth of the training expressions to test on."""
        other = copy.copy(self)
        (tokens, others), (values, answers) = map(without_end, self.train)
        other.train, other.test = (tokens, values), (others, answers)
        return other

    def chance(self) -> float:
        """Return the accuracy of always naming the commonest digit of training."""
        guess = self.train[1].mode().values
        return (self.test[1] == guess).double().mean().item()

    def outermost(self) -> float:
        """Return the accuracy of naming the commonest digit for the outermost operator.

        A large list mostly has 9 as its maximum and 0 as its minimum: that much a model gets right
        that reads the first token alone.
        """
        (tokens, values), (test_tokens, test_values) = self.train, self.test
        right = 0
        for operator in range(10, 14):
            guess = values[tokens[:, 0] == operator].mode().values
            right += int((test_values[test_tokens[:, 0] == operator] == guess).sum())
        return right / len(test_values)

    def model(self, **options: Any) -> nn.Module:
        """Return two layers of four heads with 64 channels."""
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
