"""Train small language models at three learning rates: which attention names bytes best?

    python results/language_rates.py      # writes results/language_rates.json
    python results/language_rates.py --seeds 1 --steps 20 --only "softmax*" --output /tmp/try.json

Two layers of two heads with 64 channels read windows of 256 bytes of the language reference that
comes with Python, as in ``results/language.py``. The last tenth of the text is the test, the tenth
before it chooses the rate. Recorded for each seed: bits per byte on both, on the test also for
bytes that have at least so many bytes before them, and the tokens per second of the training.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from lab.mixed_heads import one_of_each
from lab.records import read_record
from lab.theory.spread import mean
from lab.train import Settings, evaluate, fit
from lab.train.checkpoint import Checkpoint
from lab.train.study import Study
from results.language import (
    BATCH,
    CIRCULANT,
    GATE,
    LENGTH,
    ROPE,
    WARMUP,
    context_task,
    text_task,
)
from stringlib.models import LanguageModel

RATES = (5e-3, 1e-2, 2e-2)
ELU, HORIZON = {"attention": "elu"}, {"horizon": LENGTH}

METHODS: dict[str, dict[str, Any]] = {
    "softmax, RoPE": ROPE,
    "softmax, KERPLE": {"encoder": "kerple-log"},
    "softmax, T5": {"encoder": "t5"},
    "half softmax, half circulant, RoPE": {**ROPE, "split": True},
    "FAVOR+, RoPE": {"attention": "favor", **ROPE},
    "C-CosGate": {**CIRCULANT, "weight": "cosine", **HORIZON, **GATE},
    "C-CosGate, RoPE": {**CIRCULANT, **ROPE, "weight": "cosine", **HORIZON, **GATE},
    "C-CosGate, RoPE, ramp": {**CIRCULANT, **ROPE, "weight": "ramp-squared", **HORIZON, **GATE},
    "circulant, SSD": {**CIRCULANT, "weight": "ssd"},
    "circulant, GLA": {**CIRCULANT, "weight": "gla"},
    "ELU, SSD": {**ELU, "weight": "ssd"},
    "ELU, GLA": {**ELU, "weight": "gla"},
    "gated delta rule": {"attention": "identity", "weight": "gated-delta"},
}
"""Name → options of the model; ``split`` makes a head of softmax and one of circulant FAVOR+."""

CELLS = {
    f"{name}, rate {rate:g}": {**options, "rate": rate}
    for name, options in METHODS.items()
    for rate in RATES
}


def make_model(split: bool = False, **options: Any) -> LanguageModel:
    """Return a model of the study."""
    model = text_task().model(**options)
    assert isinstance(model, LanguageModel)
    if split:
        for block in model.blocks:
            block.attention = one_of_each(64, len(model.blocks), ROPE, {**CIRCULANT, **ROPE})
    return model


def run(
    seed: int, steps: int, rate: float, keep: Checkpoint | None = None, **options: Any
) -> dict[str, Any]:
    """Train one model; return its size, its losses on the way, and bits per byte."""
    torch.manual_seed(seed)
    model, task = make_model(**options), text_task().validation()
    warmup = min(WARMUP, steps // 8)
    settings = Settings(steps, BATCH, rate, warmup=warmup, seed=seed, log_every=max(1, steps // 40))
    history = fit(model, task, settings, keep=keep)
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "losses": [round(x, 4) for x in history.losses],
        "chosen by": round(history.scores[str(LENGTH)], 5),
        "bits": round(evaluate(model, text_task())[str(LENGTH)], 5),
        "context": {n: round(b, 5) for n, b in evaluate(model, context_task()).items()},
        "tokens_per_s": round(steps * BATCH * LENGTH / history.wall_s),
    }


def chosen_rates(study: str, names: Iterable[str], rates: Iterable[float]) -> dict[str, float]:
    """Return for each method the rate with the fewest bits per byte on the validation text.

    Args:
        study: Whose record tells; its cells are called ``"name, rate 0.01"``.
        names: The methods.
        rates: Those that were tried.
    """
    cells = read_record(Path(__file__).with_name(f"{study}.json"))["data"]["cells"]

    def bits(name: str, rate: float) -> float:
        return mean([run["chosen by"] for run in cells[f"{name}, rate {rate:g}"]["runs"]])

    return {name: min(rates, key=lambda rate, name=name: bits(name, rate)) for name in names}


STUDY = Study(__file__, __doc__, CELLS, run, steps=1000)


if __name__ == "__main__":
    STUDY.main()
