"""Train small language models on one text: softmax against each kind of linear attention.

    python results/language.py      # writes results/language.json
    python results/language.py --seeds 1 --steps 20 --only "softmax*" --output /tmp/try.json

Two layers of two heads with 64 channels read windows of 256 bytes of the language reference that
comes with Python, and name each next byte. Every model has the same sizes, steps, batches and
learning rate; what differs is the attention, its weight, its encoder and its gate. Recorded for
each seed: bits per byte on the end of the text; the same for bytes that have at least so many bytes
before them in the window, always the same bytes; and bits per byte of the second copy, where a
window holds the same 128 bytes twice.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lab.tasks.text import Text
from lab.train import Settings, evaluate, fit
from lab.train.checkpoint import Checkpoint
from lab.train.study import Study

LENGTH, BATCH, RATE, WARMUP = 256, 8, 5e-3, 50
LAST, WINDOWS = 16, 256
CONTEXTS = (16, 32, 64, 128, 256)
ROPE = {"encoder": "rope"}
CIRCULANT = {"attention": "favor-circulant"}
COSINE = {"weight": "cosine", "horizon": LENGTH}
GATE = {"gate": "elementwise"}

CELLS: dict[str, dict[str, Any]] = {
    "softmax, RoPE": ROPE,
    "softmax, RoPE, elementwise gate": {**ROPE, **GATE},
    "softmax": {},
    "FAVOR+": {"attention": "favor"},
    "C-CosGate": {**CIRCULANT, **COSINE, **GATE},
    "FAVOR+, RoPE": {"attention": "favor", **ROPE},
    "circulant, RoPE": {**CIRCULANT, **ROPE},
    "learned circulant, RoPE": {"attention": "favor-learned", **ROPE},
    "circulant, RoPE, cosine": {**CIRCULANT, **ROPE, **COSINE},
    "circulant, RoPE, elementwise gate": {**CIRCULANT, **ROPE, **GATE},
    "C-CosGate, RoPE": {**CIRCULANT, **ROPE, **COSINE, **GATE},
    "circulant, SSD": {**CIRCULANT, "weight": "ssd"},
    "ReLU, cosine": {"attention": "relu", **COSINE},
    "ReLU, Toeplitz": {"attention": "relu", "weight": "toeplitz"},
    "ELU, RetNet": {"attention": "elu", "weight": "retnet"},
    "ELU, GLA": {"attention": "elu", "weight": "gla"},
    "ELU, SSD": {"attention": "elu", "weight": "ssd"},
}
"""Name → options of :class:`~stringlib.models.LanguageModel`."""


def text_task() -> Text:
    """Return what is trained on, and scored without overlap."""
    return Text(length=LENGTH)


def context_task() -> Text:
    """Return the same bytes to name, with more and more of the text before them."""
    return Text(length=LENGTH, test_lengths=CONTEXTS, last=LAST, windows=WINDOWS)


@torch.no_grad()
def second_copy(model: nn.Module, test: Tensor) -> float:
    """Return the bits per byte of the second copy, where a window holds a piece of text twice.

    Args:
        model: A language model of bytes.
        test: Bytes of a text, ``(count,)``.
    """
    half = LENGTH // 2
    pieces = test[: len(test) // half * half].long().view(-1, half)
    bits, model_mode = 0.0, model.training
    model.eval()
    for some in pieces.split(32):
        scores = model(torch.cat([some, some], 1))[:, half - 1 : -1]
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), some.flatten(), reduction="sum")
        bits += loss.item() / torch.log(torch.tensor(2.0)).item()
    model.train(model_mode)
    return bits / pieces.numel()


def train(
    seed: int, steps: int, on_log: Any = None, keep: Checkpoint | None = None, **options: Any
) -> tuple[nn.Module, Any]:
    """Train one model; return it and its history.

    Args:
        seed: Of weights, random features and batches.
        steps: Updates, of ``BATCH`` windows each.
        on_log: As for :func:`lab.train.fit`.
        keep: As for :func:`lab.train.fit`.
        **options: Those of the model, such as one of ``CELLS``.
    """
    torch.manual_seed(seed)
    task = text_task()
    model = task.model(**options)
    warmup = min(WARMUP, steps // 8)
    settings = Settings(steps, BATCH, RATE, warmup=warmup, seed=seed, log_every=20)
    return model, fit(model, task, settings, on_log=on_log, keep=keep)


def run(seed: int, steps: int, keep: Checkpoint | None = None, **options: Any) -> dict[str, Any]:
    """Train one model; return its size, its loss on the way and what is measured at the end."""
    model, history = train(seed, steps, keep=keep, **options)
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "losses": [round(x, 4) for x in history.losses],
        "bits": round(history.scores[str(LENGTH)], 5),
        "context": {n: round(b, 5) for n, b in evaluate(model, context_task()).items()},
        "second copy": round(second_copy(model, text_task().test), 5),
    }


STUDY = Study(__file__, __doc__, CELLS, run, steps=1000)


if __name__ == "__main__":
    STUDY.main()
