"""Train one layer of attention to recall values by key, with each feature map.

    python results/recall_maps.py      # writes results/recall_maps.json
    python results/recall_maps.py --seeds 1 --steps 50 --output /tmp/try.json

A sequence k1 v1 k2 v2 … lists pairs of a key and a value, one token each; the keys are all
different, the values random among eight. One more key follows, and the model is to name its value.
The model is one layer of one head with 32 channels and without positions. With a shift, the key of
a token is made of the token before it as well, in a learned proportion. Random features are drawn
once, m of them, and stay as they are, but for "favor-learned".
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from stringlib import linear_attention, make_features, softmax_attention
from stringlib.inputs import require_name
from stringlib.tasks import recall as tasks
from stringlib.train.learn import Training
from stringlib.train.study import Study

DIM, VALUES, BATCH, RATE = 32, 8, 64, 1e-2
MAPS = (
    "softmax",
    "relu",
    "elu",
    "favor-iid",
    "favor",
    "favor-circulant",
    "favor-unit-circulant",
    "favor-learned",
)
# name: pairs, keys to choose from, shift, features
TASKS = {
    "8 pairs, no shift": (8, 8, False, 32),
    "8 pairs": (8, 8, True, 32),
    "32 pairs": (32, 64, True, 32),
    "32 pairs, m = 128": (32, 64, True, 128),
}


def batch(task: str, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return sequences, ``(size, 2 * pairs + 1)``, and the values asked for, ``(size,)``.

    Keys are the tokens from ``VALUES`` on.
    """
    pairs, count, _, _ = TASKS[task]
    tokens, targets = tasks.Recall(pairs, count, VALUES).batch(size, generator)
    return tokens, targets[:, -1]


class Recall(nn.Module):
    """Embedding, one layer of attention from the last token to those before, and a readout.

    Args:
        method: One of ``MAPS``.
        task: One of ``TASKS``.
    """

    def __init__(self, method: str, task: str) -> None:
        super().__init__()
        require_name("method", method, MAPS)
        require_name("task", task, TASKS)
        _, keys, self.shifted, features = TASKS[task]
        self.embed = nn.Embedding(VALUES + keys, DIM)
        self.to_q, self.to_k, self.to_v = (nn.Linear(DIM, DIM, bias=False) for _ in range(3))
        self.out = nn.Linear(DIM, DIM, bias=False)
        self.before = nn.Parameter(torch.zeros(()))
        self.readout = nn.Linear(DIM, VALUES)
        self.phi = None
        if method != "softmax":
            size = features if method.startswith("favor") else None
            self.phi = make_features(method, DIM, size)

    def forward(self, sequence: Tensor) -> Tensor:
        """Return a score for each value, ``(batch, VALUES)``."""
        x = self.embed(sequence)
        source = x
        if self.shifted:
            earlier = nn.functional.pad(x[:, :-1], (0, 0, 1, 0))
            share = self.before.sigmoid()
            source = share * earlier + (1 - share) * x
        q = self.to_q(x[:, -1:])
        k, v = self.to_k(source[:, :-1]), self.to_v(x[:, :-1])
        q, k, v = (t.unsqueeze(1) for t in (q, k, v))  # one head
        if self.phi is None:
            found = softmax_attention(q, k, v)
        else:
            scale = DIM**-0.25
            phi_q, phi_k = self.phi(scale * q), self.phi(scale * k, is_query=False)
            found = linear_attention(phi_q, phi_k, v)
        return self.readout(self.out(found[:, 0, 0]) + x[:, -1])


def loss(model: Recall, generator: torch.Generator, task: str) -> Tensor:
    """Return the cross-entropy on new random sequences."""
    sequence, answer = batch(task, BATCH, generator)
    return nn.functional.cross_entropy(model(sequence), answer)


@torch.no_grad()
def accuracy(model: Recall, task: str, count: int = 2000) -> float:
    """Return how often the best guess is right on new sequences."""
    sequence, answer = batch(task, count, torch.Generator().manual_seed(10_000))
    return (model(sequence).argmax(-1) == answer).double().mean().item()


def commonest(task: str, count: int = 2000) -> float:
    """Return the accuracy of naming the commonest value of the sequence."""
    sequence, answer = batch(task, count, torch.Generator().manual_seed(10_000))
    guess = sequence[:, 1:-1:2].mode(-1).values
    return (guess == answer).double().mean().item()


def measure(model: Recall, task: str) -> dict[str, float]:
    """Return the accuracy."""
    return {"accuracy": round(accuracy(model, task), 4)}


CELLS = {
    f"{task}: {method}": {"task": task, "method": method}
    for task, (_, _, _, features) in TASKS.items()
    for method in MAPS
    if features == DIM or method.startswith("favor")
}
TRAINING = Training(Recall, loss, measure, rates=RATE, cosine=True, wide=False)
STUDY = Study(
    __file__,
    __doc__,
    CELLS,
    TRAINING,
    steps=400,
    seeds=3,
    beside={
        "parameters": lambda: sum(p.numel() for p in Recall("relu", "8 pairs").parameters()),
        "commonest": lambda: {task: round(commonest(task), 4) for task in TASKS},
    },
)
train = TRAINING.train


if __name__ == "__main__":
    STUDY.main()
