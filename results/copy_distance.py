"""Copy text from 16 to 128 bytes back: what decides, the attention, its key or the distance?

    python results/copy_distance.py      # writes results/copy_distance.json
    python results/copy_distance.py --seeds 1 --steps 20 --only 'softmax*' --output /tmp/try.json

A window of 256 bytes holds a piece of the language reference that comes with Python, again and
again. In training the piece has any number of bytes from 16 to 128, so that no distance can be
learned by heart. "first" and "second" are bits a byte of the first two copies of pieces from the
end of the text, of 16, 32, 64 and 128 bytes. Two layers of two heads with 64 channels; "with the
one before" has a shift: a key takes in the key of the byte before it. Rates are those that
``results/language_rates.py`` chose for plain text.
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

LENGTH, BATCH, WARMUP = 256, 8, 100
PERIODS = (16, 32, 64, 128)

ROPE = {"encoder": "rope"}
METHODS: dict[str, dict[str, Any]] = {
    "softmax, RoPE": {**ROPE, "rate": 5e-3},
    "FAVOR+, RoPE": {"attention": "favor", **ROPE, "rate": 1e-2},
    "SSD": {"attention": "elu", "weight": "ssd", "rate": 1e-2},
    "gated delta rule": {"attention": "identity", "weight": "gated-delta", "rate": 1e-2},
}
CELLS = {
    f"{name}, {word}": {**options, "shift": shift}
    for word, shift in (("with the one before", True), ("alone", False))
    for name, options in METHODS.items()
}
"""Name → rate and options of the model."""


class Copies(Text):
    """Windows that say one piece of text again and again."""

    def batch(self, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return bytes, ``(size, length)``, and those that follow them."""
        shortest, longest = PERIODS[0], PERIODS[-1]
        start = torch.randint(len(self.train) - longest, (size, 1), generator=generator)
        drawn = torch.rand(size, 1, generator=generator)  # so that all scales are met as often
        period = (shortest * (longest / shortest) ** drawn).round().long()
        window = self.train[start + torch.arange(self.length + 1) % period].long()
        return window[:, :-1], window[:, 1:]

    def held_out(self) -> dict[str, Iterator[tuple[Tensor, Tensor]]]:
        """Return each copy of pieces of each length, by its name: ``"16 first"``, for instance."""
        return {
            f"{period} {name}": self._copies(period, count)
            for period in PERIODS
            for count, name in enumerate(("first", "second"))
        }

    def _copies(self, period: int, count: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield windows of two copies that ask for one of them."""
        starts = torch.linspace(0, len(self.test) - period, 256).long()
        pieces = self.test[starts[:, None] + torch.arange(period)].long()
        for some in pieces.split(64):
            window = torch.cat([some, some], 1)
            targets = torch.full_like(window[:, 1:], IGNORE)
            asked = slice(max(0, count * period - 1), (count + 1) * period - 1)
            targets[:, asked] = window[:, 1:][:, asked]
            yield window[:, :-1], targets


def run(
    seed: int, steps: int, rate: float, keep: Checkpoint | None = None, **options: Any
) -> dict[str, Any]:
    """Train one model; return its losses on the way, and bits a byte of each copy."""
    torch.manual_seed(seed)
    task = Copies(length=LENGTH)
    model, warmup = task.model(**options), min(WARMUP, steps // 8)
    settings = Settings(steps, BATCH, rate, warmup=warmup, seed=seed, log_every=50)
    history = fit(model, task, settings, keep=keep)
    return {
        "losses": [round(x, 4) for x in history.losses],
        "bits": {copy: round(b, 5) for copy, b in history.scores.items()},
    }


STUDY = Study(__file__, __doc__, CELLS, run, steps=2000, seeds=3)


if __name__ == "__main__":
    STUDY.main()
