"""Train one head to look up the latest value of a key, and to count, with every kind of state.

    python results/delta_rule.py      # writes results/delta_rule.json
    python results/delta_rule.py --seeds 2 --steps 50 --output /tmp/try.json

In three tasks every token writes a value under a key and asks for the latest value of a key written
so far. The 64 tokens of "rewritten" share 16 keys, as many as the head has features, and those of
"crowded" 32. In "distinct" 32 tokens write 32 keys, each once. In "parity" a token is a bit and
asks whether the number of ones so far is odd; the model is trained on 16 bits and tried on 16 and
on 64.

The model is an embedding, one head without positions and a linear readout. Queries and keys have
norm 1. The state of 16 by 16 numbers only adds, forgets as SSD or GLA do, or follows the delta
rule: with rates up to 1, with rates up to 2, with rates up to 2 and SSD's decay, or with rates up
to 2 and KDA's decay of each feature. Embedding, head and readout start alike for a seed whatever
the state.

The state "angles" only adds, too, but queries and keys are rotated, as in Selective RoPE and
Mamba-3: each token adds a learned angle to each of 8 pairs of channels. The angle is a linear
function of the token, with the initial weights of ``nn.Linear``. All frequencies are 1, so that
each pair can reach the angle π by which a bit can change the sign. RoPE's frequencies fall to
1/3,000 here, and in a first try with these initial weights the state then failed to learn parity on
one of two seeds.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from lab.train.learn import Training
from lab.train.study import Study
from stringlib import STRING, linear_attention
from stringlib.attention.delta import DeltaWeight
from stringlib.attention.learned import GLADecay, SSDDecay
from stringlib.attention.learned_delta import LearnedDelta, LearnedKDA
from stringlib.attention.path import path_positions
from stringlib.inputs import require_name

VALUES, HEAD_DIM, PART = 16, 16, 16
KEYS = {"rewritten": 16, "crowded": 32, "distinct": 32}
LENGTHS = {"rewritten": 64, "crowded": 64, "distinct": 32, "parity": 16}
LONG = 64  # bits


class SmallDelta(LearnedDelta):
    """The delta rule with rates up to 1, under which nothing changes its sign."""

    def forward(self, x: Tensor, key_mask: Tensor | None = None) -> DeltaWeight:
        """Return the rule for tokens ``x``, ``(..., seq, dim)``."""
        return DeltaWeight(super().forward(x, key_mask).beta / 2)


class Angles(nn.Module):
    """Rotations of queries and keys by sums of angles that the tokens decide.

    Args:
        dim: Number of channels of a token.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.to_steps = nn.Linear(dim, HEAD_DIM // 2)
        self.encoder = STRING(torch.eye(HEAD_DIM // 2)[None])  # each pair has its own position

    def forward(self, x: Tensor, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Return queries and keys ``(..., 1, seq, HEAD_DIM)``, rotated as the tokens ``x`` say."""
        positions, _ = path_positions(self.to_steps(x))
        q, k = self.encoder(q, k, positions)
        return q, k


STATES = {
    "linear": lambda dim: None,
    "ssd": lambda dim: SSDDecay(dim, 1),
    "gla": lambda dim: GLADecay(dim, 1, HEAD_DIM),
    "delta to 1": lambda dim: SmallDelta(dim, 1),
    "delta": lambda dim: LearnedDelta(dim, 1),
    "gated-delta": lambda dim: LearnedDelta(dim, 1, gated=True),
    "kda": lambda dim: LearnedKDA(dim, 1, HEAD_DIM),
    "angles": Angles,
}


def batch(task: str, size: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return sequences and answers.

    Args:
        task: One of ``LENGTHS``.
        size: Number of sequences.
        length: Tokens of each.
        generator: Of the random numbers.

    Returns:
        Tokens ``(size, length, 3)``: key, value and the key that is asked for, or ``(size, length,
        1)``, a bit. Answers ``(size, length)``: a value, or 1 if the number of ones is odd.
    """
    if task == "parity":
        bits = torch.randint(2, (size, length), generator=generator)
        return bits[..., None], bits.cumsum(1) % 2
    drawn = torch.rand(size, KEYS[task], generator=generator)
    keys = torch.randint(KEYS[task], (size, length), generator=generator)
    keys = drawn.argsort(-1)[:, :length] if task == "distinct" else keys
    values = torch.randint(VALUES, (size, length), generator=generator)
    place = torch.rand(size, length, generator=generator) * torch.arange(1, length + 1)
    asked = keys.gather(1, place.long())
    written = (keys[:, None] == asked[..., None]).tril()
    latest = (written * torch.arange(length)).amax(-1)
    return torch.stack([keys, values, asked], -1), values.gather(1, latest)


class Memory(nn.Module):
    """Embedding, one head with a state, and a linear readout.

    Args:
        state: One of ``STATES``.
        task: One of ``LENGTHS``.
    """

    def __init__(self, state: str, task: str) -> None:
        super().__init__()
        require_name("state", state, STATES)
        sizes = (2,) if task == "parity" else (KEYS[task], VALUES, KEYS[task])
        self.embed = nn.ModuleList(nn.Embedding(size, PART) for size in sizes)
        dim = PART * len(sizes)
        self.to_qkv = nn.Linear(dim, 3 * HEAD_DIM)
        self.readout = nn.Linear(HEAD_DIM, 2 if task == "parity" else VALUES)
        self.weight = STATES[state](dim)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits for each token, ``(batch, seq, answers)``."""
        x = torch.cat([part(tokens[..., i]) for i, part in enumerate(self.embed)], -1)
        q, k, v = self.to_qkv(x)[:, None].chunk(3, -1)  # one head
        q, k = normalize(q, dim=-1), normalize(k, dim=-1)
        weight = None
        if isinstance(self.weight, Angles):
            q, k = self.weight(x, q, k)
        elif self.weight is not None:
            weight = self.weight(x)
        found = linear_attention(q, k, v, weight, causal=True, normalize=False)
        return self.readout(found[:, 0])


def loss(model: Memory, generator: torch.Generator, task: str) -> Tensor:
    """Return the cross-entropy on 32 random sequences."""
    tokens, answers = batch(task, 32, LENGTHS[task], generator)
    return cross_entropy(model(tokens).mT, answers)


@torch.no_grad()
def accuracy(model: Memory, task: str, length: int, size: int = 256) -> float:
    """Return how often the model is right at the last quarter of new sequences."""
    tokens, answers = batch(task, size, length, torch.Generator().manual_seed(10_000))
    last = slice(length - length // 4, None)
    return (model(tokens)[:, last].argmax(-1) == answers[:, last]).double().mean().item()


def measure(model: Memory, task: str) -> dict[str, float]:
    """Return the accuracy at the length of training, and for bits at four times as much."""
    found = {"short": accuracy(model, task, LENGTHS[task])}
    if task == "parity":
        found["long"] = accuracy(model, task, LONG)
    return {name: round(value, 5) for name, value in found.items()}


CELLS = {f"{task}, {state}": {"task": task, "state": state} for task in LENGTHS for state in STATES}
TRAINING = Training(Memory, loss, measure, rates=5e-3, cosine=True, clip=1.0)
STUDY = Study(__file__, __doc__, CELLS, TRAINING, steps=800, seeds=5)
train = TRAINING.train


if __name__ == "__main__":
    STUDY.main()
