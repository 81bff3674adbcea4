"""Train one attention layer to answer some queries and to say nothing to the others.

    python results/gating.py      # writes results/gating.json
    python results/gating.py --seeds 2 --steps 50 --output /tmp/try.json

A sequence holds eight pairs of a key and a value, one token per pair, and twelve queries. A query
asks for a key that is there, asks for a key that is not there, or is mute: it asks for nothing.
The answer to the first is the value's vector, to the other two the zero vector. Queries see the
pairs and, in half of the runs, a start token. One head, no residual, no readout: the squared error
of what the layer itself says. Attention is softmax, ReLU, or circulant FAVOR+ with the cosine
weight or, in its place, the squared ramp; the gate behind it is none, headwise (one number for a
token) or elementwise.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lab.train.learn import adam
from lab.train.loop import minimise
from lab.train.settings import half_cosine
from lab.train.study import Study
from stringlib import MultiHeadAttention
from stringlib.inputs import require_name

ATTENTIONS: dict[str, dict[str, Any]] = {
    "softmax": {"attention": "softmax"},
    "relu": {"attention": "relu"},
    "c-cosgate": {"attention": "favor-circulant", "weight": "cosine", "horizon": 64},
    # it looks back only; queries stand behind the pairs, so they see as much
    "c-cosgate, ramp": {
        "attention": "favor-circulant",
        "weight": "ramp-squared",
        "horizon": 64,
        "causal": True,
    },
}
GATES = ("none", "headwise", "elementwise")
KINDS = ("match", "no match", "mute")
DIM, KEYS, VALUES, PAIRS, QUERIES = 32, 16, 16, 8, 12
RATE, BATCH = 5e-3, 32


class Recall(nn.Module):
    """Embeddings and one layer of attention.

    Args:
        attention: One of ``ATTENTIONS``.
        gate: One of ``GATES``.
        start: Whether queries see a start token as well.
        generator: Draws the random features.
    """

    def __init__(self, attention: str, gate: str, start: bool, generator: torch.Generator) -> None:
        super().__init__()
        require_name("attention", attention, ATTENTIONS)
        require_name("gate", gate, GATES)
        self.key = nn.Embedding(KEYS, DIM)
        self.value = nn.Embedding(VALUES, DIM)
        self.role = nn.Embedding(3, DIM)  # a query that asks, a mute one, the start token
        self.layer = MultiHeadAttention(
            DIM,
            1,
            gate=None if gate == "none" else gate,
            generator=generator,
            **ATTENTIONS[attention],
        )
        seen = torch.arange(1 + PAIRS + QUERIES) < 1 + PAIRS
        self.register_buffer("seen", seen & (torch.arange(len(seen)) >= (0 if start else 1)))

    def embed(self, keys: Tensor, values: Tensor, asked: Tensor, kinds: Tensor) -> Tensor:
        """Return the tokens: the start, the pairs, the queries, ``(batch, 21, DIM)``."""
        start = self.role.weight[2].expand(len(keys), 1, DIM)
        pairs = self.key(keys) + self.value(values)
        return torch.cat([start, pairs, self.key(asked) + self.role((kinds == 2).long())], 1)

    def forward(self, keys: Tensor, values: Tensor, asked: Tensor, kinds: Tensor) -> Tensor:
        """Return what the layer says to each query, ``(batch, QUERIES, DIM)``."""
        x = self.embed(keys, values, asked, kinds)
        return self.layer(x, key_mask=self.seen)[:, 1 + PAIRS :]


def batch(size: int, generator: torch.Generator) -> tuple[tuple[Tensor, ...], Tensor]:
    """Return keys, values, asked keys and kinds of queries, and the answers.

    All keys and all values of a sequence differ. The vectors of the values are unit vectors.
    """
    order = torch.rand(size, KEYS, generator=generator).argsort(-1)
    keys, absent = order[:, :PAIRS], order[:, PAIRS:]
    values = torch.rand(size, VALUES, generator=generator).argsort(-1)[:, :PAIRS]
    kinds = torch.arange(QUERIES).remainder(3).expand(size, -1)
    which = torch.randint(PAIRS, (size, QUERIES), generator=generator)
    there, missing = keys.gather(1, which), absent.gather(1, which)
    anything = torch.randint(KEYS, (size, QUERIES), generator=generator)
    asked = torch.where(kinds == 0, there, torch.where(kinds == 1, missing, anything))
    answers = torch.eye(VALUES, DIM, dtype=torch.float64)[values.gather(1, which)]
    return (keys, values, asked, kinds), answers * (kinds == 0)[..., None]


def loss(model: Recall, generator: torch.Generator) -> Tensor:
    """Return the mean squared distance to the answers of random sequences."""
    inputs, answers = batch(BATCH, generator)
    return (model(*inputs) - answers).square().sum(-1).mean()


def train(*, seed: int, steps: int, attention: str, gate: str, start: bool) -> Recall:
    """Return a trained model; one generator draws its features and then the sequences."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = Recall(attention, gate, start, generator).double()
    minimise(
        model,
        lambda step: loss(model, generator),
        adam(model, RATE),
        steps,
        factor=partial(half_cosine, steps=steps, warmup=0),
    )
    return model


@torch.no_grad()
def measure(model: Recall, sequences: int = 256) -> dict[str, list[float]]:
    """Return error, mean gate and weight on the start token for each kind of query.

    The error is the mean squared distance to the answer, on new sequences: 1 for saying nothing
    to a query whose answer is there.
    """
    inputs, answers = batch(sequences, torch.Generator().manual_seed(10_000))
    kinds, x = inputs[3], model.embed(*inputs)
    error = (model(*inputs) - answers).square().sum(-1)
    weights = model.layer.attention_weights(x, key_mask=model.seen)[:, 0, 1 + PAIRS :, 0]
    found = {"error": error, "start": weights}
    if model.layer.gate is not None:
        found["gate"] = model.layer.gate.values(x)[:, 0, 1 + PAIRS :].mean(-1)
    return {
        name: [round(v[kinds == kind].mean().item(), 5) for kind in range(len(KINDS))]
        for name, v in found.items()
    }


def run(seed: int, steps: int, **cell: Any) -> dict[str, list[float]]:
    """Train one model and measure it."""
    return measure(train(seed=seed, steps=steps, **cell))


CELLS = {
    f"{attention}, {gate}{', start' * start}": {
        "attention": attention,
        "gate": gate,
        "start": start,
    }
    for attention in ATTENTIONS
    for gate in GATES
    for start in (False, True)
}
STUDY = Study(__file__, __doc__, CELLS, run, steps=600)


if __name__ == "__main__":
    STUDY.main()
