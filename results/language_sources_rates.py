"""Train small language models on the sources of Python's library, at four learning rates.

    python results/language_sources_rates.py      # writes results/language_sources_rates.json
    python results/language_sources_rates.py --seeds 1 --steps 20 --only "ELU*" --output /tmp/a.json

The models are six of ``results/language_rates.py``, and so are their batches. The text is the
source of Python's standard library: 8.2 million bytes to train on, and whole files beside them for
the choice of a rate and for the test. Recorded for each seed: bits per byte of both, and of as much
of the training text.
"""

from __future__ import annotations

import hashlib
import sysconfig
from functools import cache
from pathlib import Path
from typing import Any

import torch

from lab.tasks.text import Text
from lab.train import Settings, evaluate, fit
from lab.train.checkpoint import Checkpoint
from lab.train.study import Study
from results.language import BATCH, LENGTH, WARMUP
from results.language_rates import METHODS, make_model

NAMES = (
    "softmax, RoPE",
    "FAVOR+, RoPE",
    "C-CosGate, RoPE",
    "circulant, SSD",
    "ELU, GLA",
    "gated delta rule",
)
RATES = (2.5e-3, 5e-3, 1e-2, 2e-2)
CELLS = {
    f"{name}, rate {rate:g}": {**METHODS[name], "rate": rate} for name in NAMES for rate in RATES
}
WINDOWS, HELD_OUT = 256, 400_000
"""Windows that are read for a score; bytes of whole files for validation, and for the test."""

LEFT_OUT = {"encodings", "idlelib", "pydoc_data", "test", "tests", "site-packages"}
"""Folders of tables, of an editor, of texts that other studies read, of tests, and of others."""


@cache
def sources() -> tuple[bytes, bytes, bytes]:
    """Return the sources of the standard library: to train on, for validation and for the test.

    Files stand in the order of a digest of their names, so that each part has files of all kinds.
    They differ a little from one version of Python to the next; a record names the version.
    """
    root = Path(sysconfig.get_path("stdlib"))
    found = {path.relative_to(root).as_posix(): path for path in root.rglob("*.py")}
    names = [
        name
        for name in sorted(found, key=lambda name: hashlib.sha256(name.encode()).digest())
        if not LEFT_OUT & set(name.split("/")) and not name.startswith("_sysconfigdata")
    ]
    parts: list[list[bytes]] = [[], [], []]
    for name in names:
        read = [sum(map(len, part)) for part in parts]
        part = 2 if read[2] < HELD_OUT else 1 if read[1] < HELD_OUT else 0
        parts[part].append(found[name].read_bytes())
    test, validation, train = (b"\n".join(part) for part in reversed(parts))
    return train, validation, test


def run(
    seed: int, steps: int, rate: float, keep: Checkpoint | None = None, **options: Any
) -> dict[str, Any]:
    """Train one model; return its losses on the way, and bits per byte of three texts."""
    torch.manual_seed(seed)
    train, validation, test = sources()
    model, warmup = make_model(**options), min(WARMUP, steps // 8)
    settings = Settings(steps, BATCH, rate, warmup=warmup, seed=seed, log_every=max(1, steps // 40))
    history = fit(model, _read(train, validation), settings, keep=keep)
    texts = {"bits": test, "bits of what was read": train}
    return {
        "losses": [round(x, 4) for x in history.losses],
        "chosen by": _bits(history.scores),
        **{name: _bits(evaluate(model, _read(train, text))) for name, text in texts.items()},
    }


def _read(train: bytes, test: bytes) -> Text:
    return Text(train, length=LENGTH, test=test, windows=WINDOWS)


def _bits(scores: dict[str, float]) -> float:
    return round(scores[str(LENGTH)], 5)


STUDY = Study(__file__, __doc__, CELLS, run, steps=1000, seeds=2)


if __name__ == "__main__":
    STUDY.main()
