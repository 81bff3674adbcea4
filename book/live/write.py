"""The instrument "Write a text": the bits that five language models need for each byte."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from book.live.steps import Seen, Stepped, about, trained
from book.names import display
from book.recorded import about as told
from book.recorded import measured
from lab.explore.style import COLOURS
from lab.program import Traced, traced
from results import page_text as study

HALF = True
ALT = {
    "": "Five language models have read a text in which the sentence "
    '"A silver moth crossed the harbour at noon, and sang." occurs twice. The more bits a model '
    "needs for a byte, the more strongly the byte is marked. The models need the following bits "
    "per byte in the first and in the second copy: Softmax + RoPE 4.33 and 0.42, FAVOR+ with RoPE "
    "3.77 and 1.90, SSD decay 4.50 and 2.23, GLA decay 4.16 and 2.68, gated delta rule 3.99 and "
    "3.92. Below each text are the most probable next bytes and the memory that the model uses "
    "per layer.",
}
"""Alternative texts of the posters, by the state of the instrument."""
WRITTEN = 64
"""Number of bytes that a model generates."""

PASSAGE = "A silver moth crossed the harbour at noon, and sang. "
"""Sentence that occurs twice in the initial text.

It is not in the training text, so only the first copy helps to predict the second copy.
"""

SHOWN = {
    "softmax, RoPE": "softmax",
    "FAVOR+, RoPE": "favor",
    "SSD": "ssd",
    "GLA": "gla",
    "gated delta rule": "gated-delta",
}
"""Name of a model → name of its colour."""


@cache
def models() -> dict[str, Stepped]:
    """Return the models, by name."""
    return trained(study, room=study.LENGTH + WRITTEN)


def programs() -> dict[str, Traced]:
    """Return the programs that the page runs.

    For each model these are a step that reads one token, and the attention weights of a text.
    """
    tokens, found = torch.zeros(study.LENGTH + WRITTEN, dtype=torch.long), {}
    for name, one in models().items():
        found[f"{name} step"] = one.program(1)
        found[f"{name} seen"] = traced(Seen(one.model), tokens=tokens)
    return found


def spent(kind: str) -> Callable[[Any], float]:
    """Return the function that gives the bits per byte of a run."""
    return lambda run: float(run["bits"][kind])


def data() -> dict[str, Any]:
    """Return the constants of the page: initial text, names, shapes of states and bits per byte."""
    bits = {kind: measured("page_text", spent(kind)) for kind in ("plain", "first", "second")}
    blocks: Any = models()["GLA"].model.blocks
    return {
        "layers": len(blocks),
        "heads": blocks[0].attention.heads,
        "most": study.LENGTH,
        "written": WRITTEN,
        "text": 2 * PASSAGE,
        "seeds": len(bits["plain"]["GLA"]),
        "models": {
            name: {"title": display(name)}
            | about(one, COLOURS[SHOWN[name]])
            | {kind: told(by_name[name]) for kind, by_name in bits.items()}
            for name, one in models().items()
        },
    }
