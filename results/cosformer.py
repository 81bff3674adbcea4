"""Train one layer of attention to tell what a key held last, under weights of different reach.

    python results/cosformer.py      # writes results/cosformer.json
    python results/cosformer.py --seeds 2 --steps 50 --output /tmp/try.json

A sequence of 64 tokens writes random values under 8 keys, again and again, and each token asks
what its key held last. Without positions attention cannot tell the last value from earlier ones:
the best it can do is to name the commonest. A position weight that falls with distance lets it
count recent values more. No method has any other position encoding.

Beside what training reaches stands what the weight allows: the accuracy of naming the value with
the largest total weight, when no other key interferes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lab.train.learn import Training
from lab.train.study import Study
from stringlib import CosineWeight, DecayWeight, RampWeight, linear_attention, softmax_attention
from stringlib.attention import PositionWeight
from stringlib.attention.weights import Factors
from stringlib.inputs import require_name

LENGTH, KEYS, VALUES, DIM = 64, 8, 4, 16
RATE, BATCH = 1e-2, 32


class OneMinusSine(PositionWeight):
    """The positive cosine with a phase of π/2: its queries stand a horizon, LENGTH, further on."""

    causal_only = True

    def matrix(self, num_queries: int, num_keys: int) -> Tensor:
        """Return the weights, 0 for later keys."""
        places = [torch.arange(n, dtype=torch.float64) for n in (num_queries, num_keys)]
        distance = places[0][:, None] - places[1]
        return (1 - torch.sin(distance * (torch.pi / 2 / LENGTH))).tril() / 2

    def factors(self, phi_q: Tensor, phi_k: Tensor, start: int = 0) -> Factors:
        """Return 3m features."""
        cosine = CosineWeight(LENGTH, positive=True)
        return Factors(cosine.features(phi_q, start + LENGTH), cosine.features(phi_k, start))


# None is a constant weight. All others but the last reach 0 at the far end of the sequence: with a
# shorter horizon they would rise again, or be refused. The last one forgets an eighth a token.
WEIGHTS: dict[str, PositionWeight | None] = {
    "softmax": None,
    "relu": None,
    "cosine": CosineWeight(LENGTH),
    "ramp": RampWeight(LENGTH),
    "cosine-positive": CosineWeight(LENGTH / 2, positive=True),
    "cosine-phase": OneMinusSine(),
    "ramp-squared": RampWeight(LENGTH, power=2),
    "retnet": DecayWeight(torch.tensor([7 / 8], dtype=torch.float64).log()),
}
METHODS = tuple(WEIGHTS)


def batch(size: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Return the keys and values of random sequences, and what each key held before.

    Returns:
        Three integer tensors ``(size, LENGTH)``; the last is -100 where a key is new.
    """
    keys = torch.randint(KEYS, (size, LENGTH), generator=generator)
    values = torch.randint(VALUES, (size, LENGTH), generator=generator)
    same = (keys[:, :, None] == keys[:, None]).tril(-1)  # an earlier token with this key
    places = torch.where(same, torch.arange(LENGTH), -1).amax(-1)
    held = torch.where(places < 0, -100, values.gather(1, places.clamp(min=0)))
    return keys, values, held


class Memory(nn.Module):
    """One head of causal attention from each token's key to the pairs written before it.

    Args:
        method: One of ``METHODS``.
    """

    def __init__(self, method: str) -> None:
        super().__init__()
        require_name("method", method, METHODS)
        self.method = method
        self.to_q = nn.Embedding(KEYS, DIM)
        self.to_k = nn.Embedding(KEYS + 1, DIM)  # one more: nothing has been written yet
        self.to_v = nn.Embedding(VALUES + 1, DIM)
        self.readout = nn.Linear(DIM, VALUES)

    def forward(self, keys: Tensor, values: Tensor) -> Tensor:
        """Return a score for each value, ``(size, LENGTH, VALUES)``."""
        written = nn.functional.pad(keys[:, :-1], (1, 0), value=KEYS)
        held = nn.functional.pad(values[:, :-1], (1, 0), value=VALUES)
        q, k, v = self.to_q(keys), self.to_k(written), self.to_v(held)
        q, k, v = (x.unsqueeze(1) for x in (q, k, v))
        if self.method == "softmax":
            out = softmax_attention(q, k, v, causal=True)
        else:
            out = linear_attention(q.relu(), k.relu(), v, WEIGHTS[self.method], causal=True)
        assert isinstance(out, Tensor)
        scores: Tensor = self.readout(out.squeeze(1))
        return scores


def loss(model: Memory, generator: torch.Generator) -> Tensor:
    """Return the cross-entropy on random sequences."""
    keys, values, held = batch(BATCH, generator)
    return nn.functional.cross_entropy(model(keys, values).flatten(0, 1), held.flatten())


@torch.no_grad()
def accuracy(model: Memory, size: int = 256) -> float:
    """Return how often the best guess is right on new sequences."""
    keys, values, held = batch(size, torch.Generator().manual_seed(10_000))
    return _right(model(keys, values), held)


def ceiling(method: str, size: int = 256) -> float:
    """Return the accuracy of naming the value of the largest weight, with keys told apart."""
    keys, values, held = batch(size, torch.Generator().manual_seed(10_000))
    weight = WEIGHTS[method]
    matrix = torch.ones(LENGTH, LENGTH) if weight is None else weight.matrix(LENGTH, LENGTH)
    # the pair of token j is seen from i = j + 1 on, at distance i - 1 - j
    seen = nn.functional.pad(matrix.tril().squeeze(0)[:-1].double(), (0, 0, 1, 0))
    same = (keys[:, :, None] == keys[:, None]).double()
    return _right(seen * same @ nn.functional.one_hot(values, VALUES).double(), held)


def _right(scores: Tensor, held: Tensor) -> float:
    """Return how often the largest score is that of the answer; n equal ones count 1/n each."""
    asked = held >= 0
    best = (scores == scores.amax(-1, keepdim=True)).double()
    named = best.gather(-1, held.clamp(min=0).unsqueeze(-1)).squeeze(-1) / best.sum(-1)
    return named[asked].mean().item()


def measure(model: Memory) -> dict[str, float]:
    """Return the accuracy."""
    return {"accuracy": round(accuracy(model), 5)}


CELLS = {method: {"method": method} for method in METHODS}
TRAINING = Training(Memory, loss, measure, rates=RATE)
STUDY = Study(
    __file__,
    __doc__,
    CELLS,
    TRAINING,
    steps=500,
    seeds=8,
    beside={"ceiling": lambda: {m: round(ceiling(m), 5) for m in METHODS}},
)
train = TRAINING.train


if __name__ == "__main__":
    STUDY.main()
