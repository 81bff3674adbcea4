"""Train the memories that run in the page: a list of keys and values, some of them overwritten.

    python results/page_recall.py      # writes results/page_recall.json
    python results/page_recall.py --seeds 1 --steps 50 --only 'softmax*' --output /tmp/try.json

A sequence lists up to twelve pairs of one of eight keys and one of eight values; a key may come
again with another value. One of its keys follows, and the model names the value that it had last.
Model and training are those of ``results/recall.py``: one head with 32 channels, where a key takes
in the one before it. "once" asks for keys that came once in twelve pairs, "overwritten" for keys
whose value changed. The rates are the best of 0.003, 0.01 and 0.03 for one seed; FAVOR+ alone cares
much. The weights of seed 0 are kept in the record, in half precision.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from lab.tasks.recall import Recall
from lab.tasks.task import IGNORE
from lab.train import Settings, fit
from lab.train.checkpoint import Checkpoint
from lab.train.study import Study
from lab.weights import packed

PAIRS, KEYS, VALUES, FEWEST = 12, 8, 8, 2

CELLS: dict[str, dict[str, Any]] = {
    "softmax, RoPE": {"encoder": "rope", "rate": 1e-2},
    "sum": {"attention": "elu", "rate": 1e-2},
    "FAVOR+": {"attention": "favor", "normalize_qk": True, "rate": 3e-3},
    "SSD": {"attention": "elu", "weight": "ssd", "rate": 1e-2},
    "GLA": {"attention": "elu", "weight": "gla", "rate": 1e-2},
    "delta rule": {"attention": "identity", "weight": "delta", "rate": 1e-2},
}
"""Name → rate and options of the model."""


class Overwritten(Recall):
    """Recall of keys that may come several times: the last value counts."""

    def __init__(self) -> None:
        super().__init__(PAIRS, PAIRS, VALUES)
        self.keys = KEYS

    def batch(self, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return tokens and targets, ``(size, 2 * pairs + 1)``, of a random number of pairs."""
        pairs = int(torch.randint(FEWEST, PAIRS + 1, (), generator=generator))
        return self.lists(size, pairs, generator)[:2]

    def lists(
        self, size: int, pairs: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return tokens, targets, and how many values the key that is asked for has had."""
        keys = torch.randint(KEYS, (size, pairs), generator=generator)
        values = torch.randint(VALUES, (size, pairs), generator=generator)
        place = torch.randint(pairs, (size, 1), generator=generator)
        asked = keys.gather(1, place)
        same = keys == asked
        last = pairs - 1 - same.flip(1).int().argmax(1, keepdim=True)
        pairs_of_tokens = torch.stack([keys + VALUES, values], -1).flatten(1)
        tokens = torch.cat([pairs_of_tokens, asked + VALUES], 1)
        targets = torch.full_like(tokens, IGNORE)
        targets[:, -1:] = values.gather(1, last)
        changed = (same & (values != values.gather(1, last))).any(1)
        return tokens, targets, torch.where(changed, 2, torch.where(same.sum(1) == 1, 1, 0))

    def held_out(self) -> dict[str, Iterator[tuple[Tensor, Tensor]]]:
        """Return ``"once"`` and ``"overwritten"``, of twelve pairs."""
        generator = torch.Generator().manual_seed(self.test_seed)
        tokens, targets, values = self.lists(6000, PAIRS, generator)
        kinds = {"once": values == 1, "overwritten": values == 2}
        return {name: iter([(tokens[of], targets[of])]) for name, of in kinds.items()}


def make_model(**options: Any) -> nn.Module:
    """Return a model of the study."""
    return Overwritten().model(shift=True, **options)


def run(
    seed: int, steps: int, rate: float, keep: Checkpoint | None = None, **options: Any
) -> dict[str, Any]:
    """Train one model; return its losses, its accuracy, and perhaps its weights."""
    torch.manual_seed(seed)
    model = make_model(**options)
    settings = Settings(steps, rate=rate, seed=seed, warmup=steps // 20, log_every=50)
    history = fit(model, Overwritten(), settings, keep=keep)
    found: dict[str, Any] = {
        "losses": [round(x, 4) for x in history.losses],
        "scores": {name: round(score, 4) for name, score in history.scores.items()},
    }
    return found | ({"weights": packed(model)} if seed == 0 else {})


STUDY = Study(__file__, __doc__, CELLS, run, steps=1500, seeds=3)


if __name__ == "__main__":
    STUDY.main()
