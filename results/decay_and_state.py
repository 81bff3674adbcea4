"""Train one head of linear attention to forget at a marker, with every kind of decay.

    python results/decay_and_state.py      # writes results/decay_and_state.json
    python results/decay_and_state.py --seeds 2 --steps 50 --output /tmp/try.json

A sequence holds 16 symbols, eight of each of two classes, and markers. Every symbol asks: has this
symbol stood here before, since the last marker that counts for it? In the task "one marker" every
marker counts for all symbols. In "two markers" each class has a marker of its own, so that a model
has to drop one half of what it knows and to keep the other.

The model is an embedding, one head without positions and a small readout. Its state of 16 by 16
numbers decays not at all, by a learned constant, by a number for each token, or by a vector for
each token. The weights start alike for a seed whatever the decay.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

from lab.train.learn import Training
from lab.train.study import Study
from stringlib.attention import decayed_sums
from stringlib.inputs import require_name

DECAYS = ("none", "constant", "scalar", "vector")
TASKS = ("one marker", "two markers")
SYMBOLS, LENGTH, LONG = 16, 64, 256
OFTEN = {"one marker": 1 / 12, "two markers": 1 / 6}  # how often a token is a marker
DIM, HEAD_DIM, RATE = 32, 16, 5e-3


def batch(task: str, size: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return sequences and answers.

    Args:
        task: One of ``TASKS``.
        size: Number of sequences.
        length: Tokens of each.
        generator: Of the random numbers.

    Returns:
        Tokens ``(size, length)``: symbols below ``SYMBOLS``, and ``SYMBOLS`` or the number after
        it for a marker. Answers of the same shape: 1 or 0, and NaN at markers.
    """
    tokens = torch.randint(SYMBOLS, (size, length), generator=generator)
    marked = torch.rand(size, length, generator=generator) < OFTEN[task]
    kinds = torch.randint(TASKS.index(task) + 1, (size, length), generator=generator)
    tokens = torch.where(marked, SYMBOLS + kinds, tokens)
    answers = torch.full((size, length), torch.nan, dtype=torch.float64)
    seen = torch.zeros(size, SYMBOLS, dtype=torch.bool)
    classes = torch.arange(SYMBOLS) * 2 // SYMBOLS  # the first half is class 0
    for t in range(length):
        token = tokens[:, t]
        symbol = token.clamp(max=SYMBOLS - 1)[:, None]
        here = ~marked[:, t]
        answers[here, t] = seen.gather(1, symbol)[here, 0].double()
        cleared = (task == "one marker") | (classes == (token - SYMBOLS)[:, None])
        seen = torch.where(marked[:, t, None], seen & ~cleared, seen.scatter(1, symbol, True))
    return tokens, answers


class Memory(nn.Module):
    """Embedding, one head with a state that decays, and a readout.

    Args:
        decay: One of ``DECAYS``.
    """

    def __init__(self, decay: str) -> None:
        super().__init__()
        require_name("decay", decay, DECAYS)
        self.decay = decay
        self.embed = nn.Embedding(SYMBOLS + len(TASKS), DIM)
        self.to_qkv = nn.Linear(DIM, 3 * HEAD_DIM, bias=False)
        self.readout = nn.Sequential(nn.Linear(HEAD_DIM + DIM, 32), nn.ReLU(), nn.Linear(32, 1))
        width = {"scalar": 1, "vector": HEAD_DIM}.get(decay, 0)
        self.gate = nn.Linear(DIM, width) if width else None
        self.rate = nn.Parameter(torch.tensor(-2.0)) if decay == "constant" else None
        if self.gate is not None:
            nn.init.constant_(self.gate.bias, -2.0)  # softplus(-2) = 0.13: a memory of 8 tokens

    def log_decay(self, x: Tensor) -> Tensor:
        """Return the logarithms of the decay, for tokens ``(batch, 1, n, DIM)``."""
        if self.gate is not None:
            return -softplus(self.gate(x))
        if self.rate is not None:
            return -softplus(self.rate).expand(1)
        return x.new_zeros(1)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return a logit for each token: has it been seen since the last marker?"""
        x = self.embed(tokens).unsqueeze(1)  # one head
        q, k, v = self.to_qkv(x).chunk(3, -1)
        found, _ = decayed_sums(q, k, v, self.log_decay(x))
        return self.readout(torch.cat([found, x], -1))[:, 0, :, 0]


def loss(model: Memory, generator: torch.Generator, task: str) -> Tensor:
    """Return the cross-entropy on 32 random sequences."""
    tokens, answers = batch(task, 32, LENGTH, generator)
    asked = ~answers.isnan()
    return binary_cross_entropy_with_logits(model(tokens)[asked], answers[asked])


@torch.no_grad()
def accuracy(model: Memory, task: str, length: int = LENGTH, size: int = 128) -> float:
    """Return how often the model is right on new sequences."""
    tokens, answers = batch(task, size, length, torch.Generator().manual_seed(10_000))
    asked = ~answers.isnan()
    return ((model(tokens) > 0)[asked] == answers[asked].bool()).double().mean().item()


def by_age(task: str, length: int = LENGTH, size: int = 128) -> float:
    """Return the accuracy of the best rule that knows only how long ago a symbol was last seen.

    It says yes up to some age and no beyond; the age is the best for the very sequences that it
    is tried on.
    """
    tokens, answers = batch(task, size, length, torch.Generator().manual_seed(10_000))
    age = torch.full_like(tokens, length)
    for back in range(length - 1, 0, -1):
        same = tokens[:, back:] == tokens[:, :-back]
        age[:, back:] = torch.where(same, back, age[:, back:])
    asked = ~answers.isnan()
    right = [
        ((age <= limit)[asked] == answers[asked].bool()).double().mean().item()
        for limit in range(length)
    ]
    return max(right)


def measure(model: Memory, task: str) -> dict[str, float]:
    """Return the accuracy at the length of training and at four times as much."""
    long = accuracy(model, task, LONG, 32)
    return {"short": round(accuracy(model, task), 5), "long": round(long, 5)}


CELLS = {f"{task}, {decay}": {"task": task, "decay": decay} for task in TASKS for decay in DECAYS}
TRAINING = Training(Memory, loss, measure, rates=RATE)
STUDY = Study(
    __file__,
    __doc__,
    CELLS,
    TRAINING,
    steps=300,
    seeds=6,
    beside={"by_age": lambda: {task: round(by_age(task), 5) for task in TASKS}},
)
train = TRAINING.train


if __name__ == "__main__":
    STUDY.main()
