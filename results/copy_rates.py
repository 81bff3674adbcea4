"""Copy text from 16 to 128 bytes back, at some learning rates: the rates of the study after it.

    python results/copy_rates.py      # writes results/copy_rates.json
    python results/copy_rates.py --seeds 1 --steps 20 --only 'softmax*' --output /tmp/try.json

A window of 256 bytes holds a piece of the language reference that comes with Python, again and
again. In training the piece has any number of bytes from 16 to 128, so that no distance can be
learned by heart. Two layers of 64 channels in two heads. "with the one before": a key takes in the
key of the byte before it; "and a head of softmax": one of the two heads is softmax with RoPE, in
both layers. "chosen by" is the mean of bits per byte of the second copies of pieces of 16, 32, 64
and 128 bytes from the end of the text that is trained on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from lab.mixed_heads import one_of_each
from lab.tasks.task import IGNORE
from lab.tasks.text import Text
from lab.theory.spread import mean
from lab.train import Settings, fit
from lab.train.checkpoint import Checkpoint
from lab.train.study import Study
from stringlib.models import LanguageModel

LENGTH, BATCH, WARMUP = 256, 8, 100
DIM, DEPTH, HEADS = 64, 2, 2
PERIODS = (16, 32, 64, 128)
GRID = (2.5e-3, 5e-3, 1e-2)

ROPE = {"encoder": "rope"}
KINDS: dict[str, dict[str, Any]] = {
    "softmax, RoPE": ROPE,
    "FAVOR+, RoPE": {"attention": "favor", **ROPE},
    "simplex rows, RoPE": {"attention": "favor-simplex-circulant", **ROPE},
    "SSD": {"attention": "elu", "weight": "ssd"},
    "GLA": {"attention": "elu", "weight": "gla"},
    "gated delta rule": {"attention": "identity", "weight": "gated-delta"},
}
"""Name → options of the attention."""
STATES = tuple(name for name in KINDS if name != "softmax, RoPE")
"""Those whose memory does not grow."""
KEYS = {"alone": False, "with the one before": True}
"""What a key takes in → whether the layers shift."""
BESIDE = "and a head of softmax"
METHODS = {
    f"{name}, {keys}": {**kind, "shift": shift}
    for keys, shift in KEYS.items()
    for name, kind in KINDS.items()
} | {f"{name} {BESIDE}, alone": {**KINDS[name], "shift": False, "beside": True} for name in STATES}
"""Name → options of the model."""
BEYOND = {
    "FAVOR+, RoPE, with the one before": 2e-2,
    "simplex rows, RoPE, with the one before": 2e-2,
    "GLA, with the one before": 2e-2,
    "simplex rows, RoPE, alone": 1.25e-3,
    f"simplex rows, RoPE {BESIDE}, alone": 1.25e-3,
}
"""Also tried, where an end of the grid was best."""
RATES = {name: [*GRID, *([BEYOND[name]] if name in BEYOND else [])] for name in METHODS}
CELLS = {
    f"{name}, rate {rate:g}": {**options, "rate": rate}
    for name, options in METHODS.items()
    for rate in RATES[name]
}


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


def make_model(shift: bool, beside: bool = False, heads: int = HEADS, **kind: Any) -> LanguageModel:
    """Return a model of the study; ``beside`` makes one of its heads softmax."""
    model = LanguageModel(256, DIM, DEPTH, heads, hidden=170, shift=shift, **kind)
    if beside:
        for block in model.blocks:
            block.attention = one_of_each(
                DIM, DEPTH, *({**each, "shift": shift} for each in (ROPE, kind))
            )
    return model


def run(
    seed: int, steps: int, rate: float, keep: Checkpoint | None = None, **options: Any
) -> dict[str, Any]:
    """Train one model; return its losses on the way, and what chooses its rate."""
    torch.manual_seed(seed)
    model, task = make_model(**options), Copies(length=LENGTH).validation()
    settings = Settings(steps, BATCH, rate, warmup=min(WARMUP, steps // 8), seed=seed, log_every=50)
    history = fit(model, task, settings, keep=keep)
    return {
        "losses": [round(x, 4) for x in history.losses],
        "chosen by": round(mean([history.scores[f"{period} second"] for period in PERIODS]), 5),
    }


STUDY = Study(__file__, __doc__, CELLS, run, steps=800, seeds=1)


if __name__ == "__main__":
    STUDY.main()
