"""Train the language models that run in the page: bytes, many of them said again and again.

    python results/page_text.py      # writes results/page_text.json
    python results/page_text.py --seeds 1 --steps 20 --only 'softmax*' --output /tmp/try.json

Two layers of two heads with 64 channels read windows of 128 bytes of the language reference that
comes with Python; a key takes in the one before it. Three windows of four in training say a piece
of 16 to 64 bytes again and again, so that there is something to learn from what was said before.
"plain" are bits per byte of the end of the text, "first" and "second" those of the two copies of
its pieces of 64 bytes. Rates are those of ``results/copy_distance.py``. The weights of seed 0 are
kept in the record, in half precision.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from lab.tasks.task import IGNORE
from lab.tasks.text import Text
from lab.train import Settings, fit
from lab.train.checkpoint import Checkpoint
from lab.train.study import Study
from lab.weights import packed

LENGTH, HIDDEN, BATCH, WARMUP, SHORTEST = 128, 64, 16, 100, 16
HALF = LENGTH // 2

CELLS: dict[str, dict[str, Any]] = {
    "softmax, RoPE": {"encoder": "rope", "rate": 5e-3},
    "FAVOR+, RoPE": {"attention": "favor", "encoder": "rope", "rate": 1e-2},
    "SSD": {"attention": "elu", "weight": "ssd", "rate": 1e-2},
    "GLA": {"attention": "elu", "weight": "gla", "rate": 1e-2},
    "gated delta rule": {"attention": "identity", "weight": "gated-delta", "rate": 1e-2},
}
"""Name → rate and options of the model."""


class Often(Text):
    """Windows of which three of four say a piece of text again and again."""

    def batch(self, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return bytes, ``(size, LENGTH)``, and those that follow them."""
        start = torch.randint(len(self.train) - LENGTH, (size, 1), generator=generator)
        period = torch.randint(SHORTEST, HALF + 1, (size, 1), generator=generator)
        period[::4] = LENGTH + 1  # these windows repeat nothing
        window = self.train[start + torch.arange(LENGTH + 1) % period].long()
        return window[:, :-1], window[:, 1:]

    def held_out(self) -> dict[str, Iterator[tuple[Tensor, Tensor]]]:
        """Return ``"plain"``, and ``"first"`` and ``"second"``: the copies of the test's pieces."""
        plain = super().held_out()[str(LENGTH)]
        pieces = self.test[: len(self.test) // HALF * HALF].view(-1, HALF).long()
        copies: dict[str, list[tuple[Tensor, Tensor]]] = {"first": [], "second": []}
        for some in pieces.split(64):
            window = torch.cat([some, some], 1)
            inputs, targets = window[:, :-1], window[:, 1:]
            late = torch.arange(LENGTH - 1) >= HALF - 1
            copies["first"].append((inputs, targets.masked_fill(late, IGNORE)))
            copies["second"].append((inputs, targets.masked_fill(~late, IGNORE)))
        return {"plain": plain} | {name: iter(windows) for name, windows in copies.items()}


def make_model(**options: Any) -> nn.Module:
    """Return a model of the study."""
    return Text(length=LENGTH).model(hidden=HIDDEN, shift=True, **options)


def run(
    seed: int, steps: int, rate: float, keep: Checkpoint | None = None, **options: Any
) -> dict[str, Any]:
    """Train one model; return its losses, bits per byte, and perhaps its weights."""
    torch.manual_seed(seed)
    model, warmup = make_model(**options), min(WARMUP, steps // 8)
    settings = Settings(steps, BATCH, rate, warmup=warmup, seed=seed, log_every=50)
    history = fit(model, Often(length=LENGTH), settings, keep=keep)
    found: dict[str, Any] = {
        "losses": [round(x, 4) for x in history.losses],
        "bits": {name: round(bits, 4) for name, bits in history.scores.items()},
    }
    return found | ({"weights": packed(model)} if seed == 0 else {})


STUDY = Study(__file__, __doc__, CELLS, run, steps=2000, seeds=3)


if __name__ == "__main__":
    STUDY.main()
