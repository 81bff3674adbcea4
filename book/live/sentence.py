"""The front page: a sentence moves, and who attends to whom, with positions rotated or added."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from lab.explore.style import COLOURS
from lab.program import Traced, traced
from stringlib import RoPE, Sinusoidal, softmax_attention

HALF = False
ALT = {
    "": 'The sentence "the cat sat on the mat" at positions 30 to 35, and two maps of the '
    "attention weights among its words. If queries and keys are rotated, the map is the same as "
    "for the sentence at position 0. If position vectors are added to the words, weights have "
    "changed by up to 10 percentage points. Below are three dials, one for each of three pairs of "
    'channels, with a hand for "the" and a hand for "mat", and a slider that has moved the '
    "sentence by 30 tokens.",
}
"""What the poster shows: the state in which the instrument begins → text."""
WORDS = ("the", "cat", "sat", "on", "the", "mat")
HEAD_DIM, SHARPNESS, FARTHEST, MOST = 64, 2.0, 100, 8
HANDS = (4, 8, 12)
"""Pairs whose hands are shown: one turn in 20, 63 and 199 tokens."""


class Sentence(nn.Module):
    """Two maps of attention over words, which are random vectors, at any positions."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.added = RoPE(HEAD_DIM), Sinusoidal(HEAD_DIM)

    def forward(self, words: Tensor, mask: Tensor, moved: Tensor) -> dict[str, Tensor]:
        """Return two maps, ``(MOST, MOST)``.

        Args:
            words: Unit vectors, ``(MOST, head_dim)``.
            mask: 1 for a word, 0 for an empty place after the last, ``(MOST,)``.
            moved: By how many tokens the sentence is moved, ``(1,)``.
        """
        places = torch.arange(MOST)[:, None] + moved.double()
        q, k = self.encoder(words[None], words[None], places)
        size = (HEAD_DIM / 2) ** 0.5  # of the vector of a position; words are as long
        x = self.added(size * words[None], places) / size
        far = torch.where(mask > 0, 0.0, -math.inf).expand(1, MOST, MOST)
        return {"turned": self._map(q, k, far), "added": self._map(x, x, far)}

    def _map(self, q: Tensor, k: Tensor, far: Tensor) -> Tensor:
        unit = torch.eye(MOST, dtype=q.dtype)[None]
        return softmax_attention(SHARPNESS * HEAD_DIM**0.5 * q, k, unit, far.to(q.dtype))[0]


def programs() -> dict[str, Traced]:
    """Return what the page runs, by name."""
    words = nn.functional.normalize(torch.randn(MOST, HEAD_DIM), dim=-1)
    given = {"words": words, "mask": torch.ones(MOST), "moved": torch.tensor([20.0])}
    return {"maps": traced(Sentence(), **given)}


def data() -> dict[str, Any]:
    """Return what the page has to know besides: words, colours, and how fast hands turn."""
    frequencies = RoPE(HEAD_DIM).frequencies().flatten()
    return {
        "words": WORDS,
        "most": MOST,
        "channels": HEAD_DIM,
        "farthest": FARTHEST,
        "hands": [frequencies[pair].item() for pair in HANDS],
        "turned": COLOURS["rope"],
        "added": COLOURS["sinusoidal"],
    }
