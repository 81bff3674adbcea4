"""Train small language models on text that repeats itself: which attention copies from afar?

    python results/repeats.py      # writes results/repeats.json
    python results/repeats.py --seeds 1 --steps 20 --only "softmax*" --output /tmp/try.json

A window holds the same 128 bytes of text twice. Who finds the place of the last bytes in the first
copy can read off the next one: what a byte of the second copy costs says how well. Seven of
the models of ``results/language_rates.py``, each at the rate that its record chose for plain text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from lab.tasks.task import IGNORE
from lab.tasks.text import Text
from lab.train import Settings, fit
from lab.train.checkpoint import Checkpoint
from lab.train.study import Study
from results.language_long import CELLS as CHOSEN
from results.language_rates import BATCH, LENGTH, WARMUP, make_model

HALF = LENGTH // 2

CELLS: dict[str, dict[str, Any]] = {
    name: CHOSEN[name]
    for name in (
        "softmax, RoPE",
        "half softmax, half circulant, RoPE",
        "FAVOR+, RoPE",
        "C-CosGate, RoPE",
        "circulant, SSD",
        "ELU, GLA",
        "gated delta rule",
    )
}


class Repeats(Text):
    """Windows that hold a piece of text twice; tested on each copy by itself."""

    def batch(self, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return bytes, ``(size, LENGTH - 1)``, and those that follow them."""
        start = torch.randint(len(self.train) - HALF, (size, 1), generator=generator)
        return _twice(self.train[start + torch.arange(HALF)])

    def held_out(self) -> dict[str, Iterator[tuple[Tensor, Tensor]]]:
        """Return ``"first"`` and ``"second"``: the pieces of the test text, copy by copy."""
        pieces = self.test[: len(self.test) // HALF * HALF].view(-1, HALF)
        windows = [_twice(some) for some in pieces.split(32)]
        first, second = ([(x, t.clone()) for x, t in windows] for _ in range(2))
        for _, targets in first:
            targets[:, HALF - 1 :] = IGNORE
        for _, targets in second:
            targets[:, : HALF - 1] = IGNORE
        return {"first": iter(first), "second": iter(second)}


def _twice(pieces: Tensor) -> tuple[Tensor, Tensor]:
    window = torch.cat([pieces, pieces], 1).long()
    return window[:, :-1], window[:, 1:]


def run(
    seed: int, steps: int, rate: float, keep: Checkpoint | None = None, **options: Any
) -> dict[str, Any]:
    """Train one model; return its losses on the way, and bits per byte of each copy."""
    torch.manual_seed(seed)
    model, warmup = make_model(**options), min(WARMUP, steps // 8)
    settings = Settings(steps, BATCH, rate, warmup=warmup, seed=seed, log_every=50)
    history = fit(model, Repeats(length=LENGTH), settings, keep=keep)
    return {
        "losses": [round(x, 4) for x in history.losses],
        "bits": {copy: round(b, 5) for copy, b in history.scores.items()},
    }


STUDY = Study(__file__, __doc__, CELLS, run, steps=2000)


if __name__ == "__main__":
    STUDY.main()
