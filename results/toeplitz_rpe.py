"""Train one attention layer on two positional tasks, with a learned bias for every offset or not.

    python results/toeplitz_rpe.py      # writes results/toeplitz_rpe.json
    python results/toeplitz_rpe.py --seeds 2 --steps 50 --output /tmp/try.json

Sequences of 48 tokens, each a random symbol of a random kind. In "offset" every token names the
symbol five places before it; in "kind" it names the symbol of the last token before it that is of
its own kind. The first task is of position alone, the second of position and content. Attention is
not causal: left and right have to be told apart by what is learned.

Queries and keys have norm 1, as Luo et al. 2021 want it, except where a temperature is learned.
The bias of all methods that have one starts near 0 and learns at the same rate.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from lab.train.learn import Training
from lab.train.study import Study
from stringlib import (
    CosineWeight,
    FavorFeatures,
    PositionWeight,
    ReLUFeatures,
    ToeplitzWeight,
    linear_attention,
    softmax_attention,
)
from stringlib.algebra import toeplitz
from stringlib.encoders.bias import KerpleLog
from stringlib.inputs import require_name

TASKS = ("offset", "kind")
METHODS = {
    "favor": "FAVOR+",
    "favor cosine": "FAVOR+, cosine",
    "favor kerple": "FAVOR+, KERPLE",
    "favor toeplitz": "FAVOR+, Toeplitz",
    "favor toeplitz temperature": "FAVOR+, Toeplitz, temperature",
    "relu toeplitz": "ReLU, Toeplitz",
    "softmax temperature": "softmax, temperature",
    "softmax toeplitz": "softmax, same bias",
    "softmax toeplitz temperature": "softmax, same bias, temperature",
}
LENGTH, SYMBOLS, KINDS, BACK = 48, 8, 4, 5
DIM, HEAD_DIM, FEATURES = 32, 16, 64
RATE, BIAS_RATE = 1e-2, 5e-2


class Layer(nn.Module):
    """Embedding, one head of attention over all tokens, and a readout.

    Args:
        method: One of ``METHODS``.
    """

    def __init__(self, method: str) -> None:
        super().__init__()
        require_name("method", method, METHODS)
        self.parts = method.split()
        self.embed = nn.Embedding(KINDS * SYMBOLS, DIM)
        self.to_q = nn.Linear(DIM, HEAD_DIM)
        self.to_k = nn.Linear(DIM, HEAD_DIM)
        self.to_v = nn.Linear(DIM, DIM)
        self.readout = nn.Linear(DIM, SYMBOLS)
        self.phi = ReLUFeatures() if "relu" in self.parts else FavorFeatures(HEAD_DIM, FEATURES)
        self.bias = nn.Parameter(0.02 * torch.randn(1, 2 * LENGTH - 1))
        self.kerple = KerpleLog(1)
        self.log_temperature = nn.Parameter(torch.zeros(()))

    def weight(self) -> PositionWeight | None:
        """Return the position weight of the method."""
        if "toeplitz" in self.parts:
            return ToeplitzWeight(self.bias)
        if "kerple" in self.parts:
            return ToeplitzWeight.from_bias(self.kerple, LENGTH)
        return CosineWeight(LENGTH) if "cosine" in self.parts else None

    def forward(self, tokens: Tensor) -> Tensor:
        """Return a score for each symbol: ``(batch, LENGTH, SYMBOLS)``."""
        x = self.embed(tokens).unsqueeze(1)  # one head
        q, k = (functional.normalize(to(x), dim=-1) for to in (self.to_q, self.to_k))
        if "temperature" in self.parts:
            q, k = (y * self.log_temperature.exp().sqrt() for y in (q, k))
        if "softmax" in self.parts:
            bias = toeplitz(self.bias) if "toeplitz" in self.parts else None
            # softmax_attention divides by sqrt(d), FAVOR+ estimates exp(q·k)
            found = softmax_attention(q * HEAD_DIM**0.5, k, self.to_v(x), bias)
        else:
            features = self.phi(q), self.phi(k, is_query=False)
            found = linear_attention(*features, self.to_v(x), self.weight())
        return self.readout(found.squeeze(1))


def batch(size: int, generator: torch.Generator) -> Tensor:
    """Return random tokens, symbol + SYMBOLS · kind: ``(size, LENGTH)``."""
    return torch.randint(KINDS * SYMBOLS, (size, LENGTH), generator=generator)


def answers(task: str, tokens: Tensor) -> Tensor:
    """Return the symbol that each token should name, -100 where there is none."""
    symbols, kinds, places = tokens % SYMBOLS, tokens // SYMBOLS, torch.arange(tokens.shape[-1])
    if task == "offset":
        last = (places - BACK).expand(tokens.shape)
    else:
        alike = kinds[:, :, None] == kinds[:, None]
        last = torch.where(alike.tril(-1), places, -1).amax(-1)
    return symbols.gather(-1, last.clamp(min=0)).masked_fill(last < 0, -100)


def loss(model: Layer, generator: torch.Generator, task: str) -> Tensor:
    """Return the cross-entropy on 16 random sequences."""
    tokens = batch(16, generator)
    scores, wanted = model(tokens), answers(task, tokens)
    return functional.cross_entropy(scores.flatten(0, 1), wanted.flatten())


def rates(model: Layer) -> dict[str, float]:
    """Return the rate of the weights and that of the biases."""
    return {"": RATE, "bias": BIAS_RATE, "kerple": BIAS_RATE}


@torch.no_grad()
def accuracy(model: Layer, task: str, sequences: int = 256) -> float:
    """Return how often the best guess is right on new sequences."""
    tokens = batch(sequences, torch.Generator().manual_seed(10_000))
    wanted = answers(task, tokens)
    asked = wanted >= 0
    return (model(tokens).argmax(-1) == wanted)[asked].double().mean().item()


def measure(model: Layer, task: str) -> dict[str, float]:
    """Return the accuracy."""
    return {"accuracy": round(accuracy(model, task), 5)}


CELLS = {f"{task}: {m}": {"task": task, "method": m} for task in TASKS for m in METHODS}
TRAINING = Training(Layer, loss, measure, rates)
STUDY = Study(__file__, __doc__, CELLS, TRAINING, steps=300, seeds=8)
train = TRAINING.train


if __name__ == "__main__":
    STUDY.main()
