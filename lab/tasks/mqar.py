"""Multi-query associative recall (MQAR): every key is queried once, most keys soon."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from lab.tasks.task import IGNORE, Task
from stringlib.models.language import LanguageModel
from stringlib.spec import Positive, at_least, require


class MQAR(Task):
    """Pairs, followed by every key once more, at which the model predicts the value of the key.

    With two pairs, 16 tokens and a vocabulary of 12::

        inputs    2  8  4  7  0  0  4  0  0  0  0  0  2  0  0  0
        targets   .  .  .  .  .  .  7  .  .  .  .  .  8  .  .  .

    Keys are from 1 … ``vocab // 2 − 1``, values from ``vocab // 2`` … ``vocab − 1``. All keys of a
    sequence are different, and so are its values. The tokens after the pairs form slots of two
    tokens each, and a key is queried at the first token of its slot. Slots are drawn without
    replacement. Slot k = 1, 2, … has a probability proportional to :math:`k^{power - 1}`, so a
    smaller ``power`` means that keys are queried sooner.

    Args:
        pairs: Number of pairs in a sequence.
        length: Number of tokens in a sequence, an even number of at least ``4 * pairs``.
        vocab: Size of the vocabulary. The source uses 8192.
        power: Exponent of the power law. With 1 the distribution is uniform.
        random_filler: If True, unused tokens are random instead of 0.

    Source:
        Arora et al. 2024 (Zoology), appendix E, and its ``multiquery_ar``.
    """

    test_seed = 10_000

    def __init__(
        self,
        pairs: int = 8,
        length: int = 64,
        vocab: int = 128,
        power: float = 0.01,
        *,
        random_filler: bool = False,
    ) -> None:
        require("pairs", pairs, int)
        require("length", length, at_least(4 * pairs))
        require("vocab", vocab, at_least(2 * pairs + 2))
        require("power", power, Positive)
        if length % 2:
            raise ValueError(f"length must be even (slots of two tokens), got {length}")
        self.pairs, self.length, self.vocab, self.power = pairs, length, vocab, power
        self.random_filler = random_filler

    def batch(self, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return tokens and targets, both ``(size, length)``."""
        require("size", size, int)
        half = self.vocab // 2
        keys = self._choose(size, half - 1, generator) + 1
        values = self._choose(size, self.vocab - half, generator) + half
        slots = (self.length - 2 * self.pairs) // 2
        chance = torch.arange(1, slots + 1, dtype=torch.float64) ** (self.power - 1)
        chosen = torch.multinomial(chance.expand(size, -1), self.pairs, generator=generator)
        places = 2 * self.pairs + 2 * chosen
        tokens = torch.zeros(size, self.length, dtype=torch.long)
        if self.random_filler:
            tokens = torch.randint(self.vocab, tokens.shape, generator=generator)
        tokens[:, : 2 * self.pairs] = torch.stack([keys, values], -1).flatten(1)
        tokens.scatter_(1, places, keys)
        targets = torch.full_like(tokens, IGNORE).scatter_(1, places, values)
        return tokens, targets

    def _choose(self, size: int, count: int, generator: torch.Generator) -> Tensor:
        """Return ``pairs`` different numbers below ``count`` in each row."""
        return torch.rand(size, count, generator=generator).topk(self.pairs).indices

    def held_out(self) -> dict[str, Iterator[tuple[Tensor, Tensor]]]:
        """Return ``"test"``: 1,000 sequences, each with ``pairs`` queries."""
        generator = torch.Generator().manual_seed(self.test_seed)
        return {"test": iter([self.batch(250, generator) for _ in range(4)])}

    def model(self, **options: Any) -> nn.Module:
        """Return a model with two layers of two heads and 64 channels."""
        sizes = {"dim": 64, "depth": 2, "heads": 2, "mlp": None, "tied": False}
        return LanguageModel(self.vocab, **{**sizes, "length": self.length, **options})
