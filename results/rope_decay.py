"""Train a head with RoPE to look near, far or anywhere, and read its score against distance.

    python results/rope_decay.py            # writes results/rope_decay.json
    python results/rope_decay.py --seeds 2 --steps 100 --output /tmp/try.json

A query stands behind ``LENGTH`` random symbols. In the tasks ``near`` and ``far`` it asks for the
symbol 3 or 40 places back. In the task ``anywhere`` one symbol is marked, at a random place, and
the query asks for that one. Then, without further training, the frequencies are scaled for texts
up to ``LONG / LENGTH`` times as long, and the models are tested again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from lab.train.learn import Training
from lab.train.study import Study
from stringlib import STRING, RoPE
from stringlib.encoders.scaling import (
    ntk_aware,
    position_interpolation,
    yarn,
    yarn_attention_factor,
)

TASKS = {"near": 3, "far": 40, "anywhere": None}  # how far back the answer stands
SYMBOLS, LENGTH, LONG, DIM = 8, 64, 256, 64
BASE = 100.0  # the slowest pair makes a tenth of a turn in training, as with 10000 and 4096 tokens
SCALE = LONG // LENGTH
QUERY = 2 * SYMBOLS  # the token that asks; symbol s is marked as s + SYMBOLS
METHODS: dict[str, Callable[[Tensor], Tensor]] = {
    "rope": lambda theta: theta,
    "pi": lambda theta: position_interpolation(theta, SCALE),
    "ntk": lambda theta: ntk_aware(theta, SCALE),
    "yarn": lambda theta: yarn(theta, SCALE, LENGTH, fast=4),  # no pair makes 32 turns
}


class OneHead(nn.Module):
    """Embedding, one attention head that reads all tokens for the last one, and a readout."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(2 * SYMBOLS + 1, DIM)
        self.to_q, self.to_k, self.to_v = (nn.Linear(DIM, DIM) for _ in range(3))
        self.readout = nn.Linear(DIM, SYMBOLS)
        self.encoder: STRING = RoPE(DIM, base=BASE)
        self.factor = 1.0  # of q and of k

    def extend(self, method: str) -> None:
        """Scale the frequencies as one of ``METHODS`` does."""
        self.encoder = STRING(METHODS[method](RoPE(DIM, base=BASE).frequencies()))
        self.factor = yarn_attention_factor(SCALE) if method == "yarn" else 1.0

    def score_table(self, length: int) -> Tensor:
        """Return the query's score over √d with each token at distance 1 ... ``length``.

        Every sequence asks with the same query, so all its scores stand in this table.

        Returns:
            ``(length, 2 * SYMBOLS + 1)``.
        """
        q, k = self.to_q(self.embed.weight[QUERY]), self.to_k(self.embed.weight)
        distances = torch.arange(1, length + 1, dtype=torch.float64)[:, None]
        turned = self.encoder.rotate(q.expand(1, length, DIM), distances)[0]  # ⟨R(Δ)q, k⟩
        return turned @ k.mT * (self.factor**2 / DIM**0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return a score for each symbol that may be the answer.

        Args:
            tokens: The tokens before the query, nearest first, ``(batch, length)``.

        Returns:
            ``(batch, SYMBOLS)``.
        """
        length = tokens.shape[1]
        scores = self.score_table(length)[torch.arange(length), tokens]
        values = self.readout(self.to_v(self.embed.weight))
        return (scores.softmax(-1)[:, None] @ values[tokens])[:, 0]


def batch(
    task: str, size: int, generator: torch.Generator, length: int = LENGTH
) -> tuple[Tensor, Tensor]:
    """Return tokens ``(size, length)``, the nearest first, and the answers ``(size,)``."""
    tokens = torch.randint(SYMBOLS, (size, length), generator=generator)
    back = TASKS[task]
    if back is not None:
        return tokens, tokens[:, back - 1]
    rows, place = torch.arange(size), torch.randint(length, (size,), generator=generator)
    answers = tokens[rows, place]
    tokens[rows, place] += SYMBOLS
    return tokens, answers


def loss(model: OneHead, generator: torch.Generator, task: str) -> Tensor:
    """Return the cross-entropy on 128 sequences of ``LENGTH`` symbols."""
    tokens, answers = batch(task, 128, generator)
    return nn.functional.cross_entropy(model(tokens), answers)


@torch.no_grad()
def profile(model: OneHead, task: str, length: int = LENGTH) -> Tensor:
    """Return the mean score of the keys that matter at each distance 1 ... ``length``.

    These are the marked symbols in the task ``anywhere``, all symbols in the others.
    """
    table = model.score_table(length)
    return table[:, SYMBOLS:QUERY].mean(1) if TASKS[task] is None else table[:, :SYMBOLS].mean(1)


@torch.no_grad()
def accuracy(model: OneHead, task: str, length: int = LENGTH) -> float:
    """Return how often the best guess is right on 512 sequences."""
    tokens, answers = batch(task, 512, torch.Generator().manual_seed(10_000), length)
    return (model(tokens).argmax(-1) == answers).double().mean().item()


def measure(model: OneHead, task: str) -> dict[str, Any]:
    """Return the profile, and the accuracies of each method at both lengths."""
    found: dict[str, Any] = {"profile": [round(s, 4) for s in profile(model, task, LONG).tolist()]}
    found["accuracy"] = {}
    for method in METHODS:
        model.extend(method)
        found["accuracy"][method] = [round(accuracy(model, task, n), 5) for n in (LENGTH, LONG)]
    return found


CELLS = {task: {"task": task} for task in TASKS}
TRAINING = Training(OneHead, loss, measure, rates=5e-3, cosine=True)
STUDY = Study(__file__, __doc__, CELLS, TRAINING, steps=2000, seeds=8)
train = TRAINING.train


if __name__ == "__main__":
    STUDY.main()
