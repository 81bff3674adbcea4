"""Train one layer to attend to the current sentence: which positions and biases can do it?

    python results/sentences.py      # writes results/sentences.json
    python results/sentences.py --seeds 2 --steps 50 --output /tmp/try.json

A text consists of words 0 and 1 and of full stops; each token is a full stop with probability 1/8.
The model says at each word whether ones or zeros are the majority of the current sentence so far,
that is, of the words after the last full stop. Words at which the two are equally frequent do not
count. Texts of training have 64 tokens, and longer texts of 256 tokens are tried too.

The model is an embedding, one causal layer of softmax attention with four heads, whose output is
added to the embedding, and a linear readout. Embedding, projections and readout start alike for a
seed whatever the method. All methods have the same learning rate. Recorded: the accuracy at the
last quarter of the tokens, at both lengths.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lab.tasks.task import IGNORE
from lab.train.learn import Training
from lab.train.study import Study
from stringlib import MultiHeadAttention

DIM, HEADS, LENGTH, LONG = 32, 4, 64, 256
STOP, SHARE = 2, 1 / 8
"""The full stop, and its probability."""

METHODS: dict[str, dict[str, Any]] = {
    "none": {},
    "ALiBi": {"position_bias": "alibi"},
    "RoPE": {"encoder": "rope"},
    "RoPE, learned steps": {"encoder": "rope", "position_steps": "learned"},
    "FoX": {"position_bias": "fox"},
    "PaTH": {"position_bias": "path"},
    "CoPE": {"position_bias": "cope", "cope_positions": 16},
}
"""Name → options of the layer."""


def batch(size: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return texts and answers, both ``(size, length)``; an answer that does not count is IGNORE.

    Args:
        size: Number of texts.
        length: Tokens of each.
        generator: Of the random numbers.
    """
    words = torch.randint(2, (size, length), generator=generator)
    stops = torch.rand(size, length, generator=generator) < SHARE
    tokens = words.masked_fill(stops, STOP)
    votes = (2 * words - 1).masked_fill(stops, 0).cumsum(1)
    at_stop = torch.where(stops, torch.arange(length), -1).cummax(1).values
    before = votes.gather(1, at_stop.clamp(min=0)).masked_fill(at_stop < 0, 0)
    lead = votes - before
    answers = (lead > 0).long().masked_fill((lead == 0) | stops, IGNORE)
    return tokens, answers


class Reader(nn.Module):
    """Embedding, one causal layer of softmax attention with four heads, and a linear readout.

    Args:
        method: One of ``METHODS``.
    """

    def __init__(self, method: str) -> None:
        super().__init__()
        self.embed = nn.Embedding(3, DIM)
        self.readout = nn.Linear(DIM, 2)
        self.attention = MultiHeadAttention(DIM, HEADS, causal=True, **METHODS[method])

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits for each token, ``(batch, seq, 2)``."""
        x = self.embed(tokens)
        return self.readout(x + self.attention(x))


def loss(model: Reader, generator: torch.Generator, method: str) -> Tensor:
    """Return the cross-entropy on 16 random texts."""
    tokens, answers = batch(16, LENGTH, generator)
    return cross_entropy(model(tokens).mT, answers, ignore_index=IGNORE)


@torch.no_grad()
def accuracy(model: Reader, length: int, size: int = 256) -> float:
    """Return how often the model is right at the last quarter of new texts."""
    tokens, answers = batch(size, length, torch.Generator().manual_seed(10_000))
    last = slice(length - length // 4, None)
    right = model(tokens)[:, last].argmax(-1) == answers[:, last]
    return right[answers[:, last] != IGNORE].double().mean().item()


def measure(model: Reader, method: str) -> dict[str, float]:
    """Return the accuracy at the length of training, and at four times this length."""
    found = {"short": accuracy(model, LENGTH), "long": accuracy(model, LONG)}
    return {name: round(value, 5) for name, value in found.items()}


CELLS = {name: {"method": name} for name in METHODS}
TRAINING = Training(Reader, loss, measure, rates=1e-2, cosine=True, clip=1.0)
STUDY = Study(__file__, __doc__, CELLS, TRAINING, steps=400, seeds=5)
train = TRAINING.train


if __name__ == "__main__":
    STUDY.main()
