"""Ask for values from far back: how much memory does it take, softmax's or a state's?

    python results/lookup.py      # writes results/lookup.json
    python results/lookup.py --seeds 1 --steps 50 --only 'softmax*' --output /tmp/try.json

A sequence lists 32 pairs of one of 64 keys and one of 16 values; tokens follow that mean nothing;
then sixteen of the keys are asked, and the model names the value of each. Training has 0, 64 or 256
such tokens, drawn for each batch, testing up to 2,048. The model is one layer of attention with 64
channels, in two heads unless a name says otherwise; a key takes in the one before it. "bytes" are
what a layer keeps of a sequence in float32 when the first key is asked. In "half softmax" one of
two heads is softmax; "window" is softmax over the last 64 tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from lab.mixed_heads import MixedHeads
from lab.tasks.task import IGNORE, Task
from lab.train import Settings, fit
from lab.train.checkpoint import Checkpoint
from lab.train.study import Study
from stringlib import MultiHeadAttention
from stringlib.encoders.relative_bias import RelativeBias
from stringlib.models import LanguageModel

PAIRS, KEYS, VALUES, FILLERS, ASKED = 32, 64, 16, 16, 16
TRAINED = (0, 64, 256)
DISTANCES = (64, 128, 256, 512, 1024, 2048)
DIM, BATCH, WINDOW = 64, 16, 64
RATES = (3e-3, 1e-2)
LOWER = 1e-3
"""Also tried where the lower of the rates was the better one, or both failed."""

ELU = {"attention": "elu"}
DELTA = {"attention": "identity", "weight": "delta"}
GATED = {"attention": "identity", "weight": "gated-delta"}
METHODS: dict[str, dict[str, Any]] = {
    "softmax": {},
    "window": {"window": True},
    "ELU": ELU,
    "ELU, four heads": {**ELU, "heads": 4},
    "ELU, eight heads": {**ELU, "heads": 8},
    "FAVOR+, m = 32": {"attention": "favor", "normalize_qk": True},
    "FAVOR+, m = 128": {"attention": "favor", "normalize_qk": True, "num_features": 128},
    "SSD": {**ELU, "weight": "ssd"},
    "GLA": {**ELU, "weight": "gla"},
    "delta rule": DELTA,
    "delta rule, four heads": {**DELTA, "heads": 4},
    "delta rule, eight heads": {**DELTA, "heads": 8},
    "gated delta rule, four heads": {**GATED, "heads": 4},
    "gated delta rule": GATED,
    "half softmax, half gated delta rule": {"halves": [{}, GATED]},
    "half window, half gated delta rule": {"halves": [{"window": True}, GATED]},
}
"""Name → options of the model."""
SLOWER = ("FAVOR+, m = 32", "SSD", "gated delta rule", "half window, half gated delta rule")
CELLS = {
    f"{name}, rate {rate:g}": {**options, "rate": rate}
    for name, options in METHODS.items()
    for rate in (*RATES, *[LOWER] * (name in SLOWER))
}


class Lookup(Task):
    """Pairs, then a stretch that means nothing, then some of the keys: name the value of each."""

    test_seed = 10_000

    def batch(self, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return tokens and targets, at a distance that is drawn."""
        which = int(torch.randint(len(TRAINED), (), generator=generator))
        return self.lists(size, TRAINED[which], generator)

    def lists(self, size: int, distance: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return tokens and targets, ``(size, 2 * PAIRS + distance + ASKED)``."""
        keys = torch.rand(size, KEYS, generator=generator).argsort(-1)[:, :PAIRS]
        values = torch.randint(VALUES, (size, PAIRS), generator=generator)
        asked = torch.rand(size, PAIRS, generator=generator).argsort(-1)[:, :ASKED]
        fillers = torch.randint(FILLERS, (size, distance), generator=generator)
        names = keys + VALUES
        pairs = torch.stack([names, values], -1).flatten(1)
        tokens = torch.cat([pairs, fillers + VALUES + KEYS, names.gather(1, asked)], 1)
        targets = torch.full_like(tokens, IGNORE)
        targets[:, -ASKED:] = values.gather(1, asked)
        return tokens, targets

    def held_out(self) -> dict[str, Iterator[tuple[Tensor, Tensor]]]:
        """Return for each distance, by its name, 128 sequences."""
        generator = torch.Generator().manual_seed(self.test_seed)
        return {
            str(distance): iter([self.lists(32, distance, generator) for _ in range(4)])
            for distance in DISTANCES
        }

    def model(
        self, heads: int = 2, halves: list[Mapping[str, Any]] | None = None, **options: Any
    ) -> LanguageModel:
        """Return a model of the study."""
        kinds = options_of(heads, **options)
        vocab = VALUES + KEYS + FILLERS
        model = LanguageModel(vocab, DIM, 1, heads, mlp=None, tied=False, shift=True, **kinds)
        if halves is not None:
            model.blocks[0].attention = MixedHeads(Half(kind) for kind in halves)
        return model


class Window(RelativeBias):
    """Softmax sees the last tokens alone."""

    def at(self, distances: Tensor) -> Tensor:
        """Return 0 within the window, −∞ beyond."""
        bias = torch.zeros(self.heads, len(distances))
        return bias.masked_fill(distances >= WINDOW, -torch.inf)


class Half(nn.Module):
    """A head of one kind that reads and writes all channels through half as many.

    Args:
        kind: Options of the head.
    """

    def __init__(self, kind: Mapping[str, Any]) -> None:
        super().__init__()
        self.into = nn.Linear(DIM, DIM // 2, bias=False)
        self.head = MultiHeadAttention(
            DIM // 2, 1, causal=True, shift=True, **options_of(1, **kind)
        )
        self.out = nn.Linear(DIM // 2, DIM, bias=False)

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return what the head adds to the tokens, ``(..., seq, dim)``."""
        return self.out(self.head(self.into(x), *args, **kwargs))


def options_of(heads: int, window: bool = False, **options: Any) -> dict[str, Any]:
    """Return the options of a layer of attention."""
    return {**options, "encoder": Window(heads)} if window else options


def kept_bytes(
    distance: int, heads: int = 2, halves: list[Mapping[str, Any]] | None = None, **options: Any
) -> int:
    """Return what a layer keeps of a sequence, in bytes, when the first key is asked."""
    if halves is not None:
        return sum(_kept(distance, DIM // 2, 1, **kind) for kind in halves)
    return _kept(distance, DIM, heads, **options)


def _kept(
    distance: int,
    dim: int,
    heads: int,
    attention: str = "softmax",
    window: bool = False,
    weight: str | None = None,
    num_features: int | None = None,
    **_: Any,
) -> int:
    if attention == "softmax":
        tokens = WINDOW if window else 2 * PAIRS + distance
        return 4 * 2 * tokens * dim
    width = dim // heads
    features = width if num_features is None else num_features
    sums = 0 if attention == "identity" else features  # the denominator
    return 4 * heads * (features * width + sums)


def run(
    seed: int, steps: int, rate: float, keep: Checkpoint | None = None, **options: Any
) -> dict[str, Any]:
    """Train one model; return its losses, its accuracy at each distance, and its memory."""
    torch.manual_seed(seed)
    task = Lookup()
    settings = Settings(steps, BATCH, rate, warmup=steps // 20, seed=seed, log_every=50)
    history = fit(task.model(**options), task, settings, keep=keep)
    return {
        "losses": [round(x, 4) for x in history.losses],
        "scores": {name: round(score, 4) for name, score in history.scores.items()},
        "bytes": {str(n): kept_bytes(n, **options) for n in DISTANCES},
    }


STUDY = Study(__file__, __doc__, CELLS, run, steps=1000)


if __name__ == "__main__":
    STUDY.main()
