"""Train one layer of attention to recall values by key: every feature map, and what it takes.

    python results/recall.py      # writes results/recall.json
    python results/recall.py --seeds 1 --steps 50 --only '*t5: softmax' --output /tmp/try.json

A sequence k1 v1 k2 v2 … lists pairs of a key and a value, one token each; one of its keys follows,
and the model names its value, one of eight. The model is one head with 32 channels; a norm stands
before attention and before the readout; there is no feed-forward part and, unless said otherwise,
no position. With a shift, a key takes in the key of the token before it. FAVOR+ has m = 32 features
unless said otherwise, "hyperbolic" twice as many; "unit" gives all queries and keys one length,
with a learned temperature. Models of two layers train twice as long, at a lower rate.

Beside the accuracy on new sequences of the same kind ("test"), each run measures: for random
features that are not learned the accuracy with another draw of them ("redrawn"); of circulants,
learned or not, with 32 pairs the accuracy with 64; of models that saw the same 5,000 sequences
again and again the accuracy on these ("seen"); and with a shift the share of the earlier key.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from lab.tasks.recall import Recall
from lab.train import Settings, evaluate, fit
from lab.train.checkpoint import Checkpoint
from lab.train.study import Study

MAPS = (
    "softmax",
    "relu",
    "elu",
    "favor",
    "favor-iid",
    "favor-hadamard",
    "favor-circulant",
    "favor-unit-circulant",
    "favor-learned",
    "hyperbolic",
)
RANDOM = tuple(name for name in MAPS if name not in ("softmax", "relu", "elu"))
FIXED = tuple(name for name in RANDOM if name != "favor-learned")
RATE = 1e-2

EIGHT: dict[str, Any] = {"pairs": 8, "keys": 8}
MANY: dict[str, Any] = {"pairs": 32, "keys": 64}
SHIFT, UNIT = {"shift": True}, {"normalize_qk": True}
TWO: dict[str, Any] = {"encoder": "t5", "depth": 2, "rate": 3e-3, "longer": 2}
SETS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "8 pairs, no shift": (MAPS, EIGHT),
    "32 pairs, no shift": (("softmax", "relu", "favor"), MANY),
    "32 pairs, shift, unit, 5,000 sequences": (
        ("favor", "favor-circulant", "favor-learned"),
        MANY | SHIFT | UNIT | {"examples": 5000},
    ),
    "8 pairs, rope": (("softmax",), EIGHT | {"encoder": "rope"}),
    "8 pairs, t5": (("softmax",), EIGHT | {"encoder": "t5"}),
    "8 pairs, t5, mlp": (("softmax",), EIGHT | {"encoder": "t5", "mlp": "mlp"}),
    "8 pairs, t5, two layers": (("softmax", "relu"), EIGHT | TWO),
    "8 pairs, t5, two layers, unit": (("favor", "favor-circulant"), EIGHT | TWO | UNIT),
    "8 pairs, t5, two layers, mlp": (("softmax",), EIGHT | TWO | {"mlp": "mlp"}),
}
"""What the models of a set share, and the feature maps that they differ in."""

CELLS = {
    f"{name}: {attention}": {**options, "attention": attention}
    for name, (attentions, options) in SETS.items()
    for attention in attentions
}


class SeenRecall(Recall):
    """Recall that trains on the same sequences again and again, and is tested on new ones too."""

    def __init__(self, examples: int, **sizes: int) -> None:
        super().__init__(**sizes)
        generator = torch.Generator().manual_seed(20_000)
        self.inputs, self.targets = super().batch(examples, generator)

    def batch(self, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return some of the sequences."""
        rows = torch.randint(len(self.inputs), (size,), generator=generator)
        return self.inputs[rows], self.targets[rows]

    def held_out(self) -> dict[str, Iterator[tuple[Tensor, Tensor]]]:
        """Return new sequences, and those of training."""
        new = Recall(self.pairs, self.keys, self.values).held_out()
        return new | {"seen": iter([(self.inputs[:2000], self.targets[:2000])])}


def run(
    seed: int,
    steps: int,
    pairs: int,
    keys: int,
    attention: str,
    examples: int | None = None,
    rate: float = RATE,
    longer: int = 1,
    keep: Checkpoint | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Train one model; return its losses on the way and its scores."""
    sizes = {"pairs": pairs, "keys": keys}
    task = Recall(**sizes) if examples is None else SeenRecall(examples, **sizes)
    torch.manual_seed(seed)
    model = task.model(attention=attention, **options)
    settings = Settings(longer * steps, rate=rate, seed=seed, log_every=50)
    history = fit(model, task, settings, keep=keep)
    scores = dict(history.scores)
    if pairs == 32 and attention in ("favor-circulant", "favor-learned"):
        scores["64 pairs"] = evaluate(model, Recall(64, keys))["test"]
    layer = model.blocks[0].attention
    found = {"losses": [round(x, 4) for x in history.losses]}
    if options.get("shift"):
        found["share"] = round(layer.shift.logit.sigmoid().item(), 4)
    if attention in FIXED and options.get("depth", 1) == 1:
        layer.features.redraw(torch.Generator().manual_seed(30_000 + seed))
        scores["redrawn"] = evaluate(model, Recall(**sizes))["test"]
    return {"scores": {name: round(score, 4) for name, score in scores.items()}, **found}


STUDY = Study(__file__, __doc__, CELLS, run, steps=400)


if __name__ == "__main__":
    STUDY.main()
