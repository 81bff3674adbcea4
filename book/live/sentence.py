"""The figure of the front page: attention maps of a sentence that moves."""

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
    "for the sentence at position 0. If position vectors are added to the words, attention "
    "weights differ from those at position 0 by up to 10 percentage points. Below are three dials, "
    'one for each of three pairs of channels, with a hand for "the" and a hand for "mat", and a '
    "slider that has moved the sentence by 30 tokens.",
}
"""Alternative texts of the posters, by the state of the instrument."""
WORDS = ("the", "cat", "sat", "on", "the", "mat")
HEAD_DIM, SHARPNESS, FARTHEST, MOST = 64, 2.0, 100, 8
HANDS = (4, 8, 12)
"""Pairs that are drawn as dials. They make a full turn in 20, 63 and 199 tokens."""


class Sentence(nn.Module):
    """Two attention maps of words at any positions. The words are random vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.added = RoPE(HEAD_DIM), Sinusoidal(HEAD_DIM)

    def forward(self, words: Tensor, mask: Tensor, moved: Tensor) -> dict[str, Tensor]:
        """Return the maps with rotated and with added positions, each ``(MOST, MOST)``.

        Args:
            words: Unit vectors of the words, ``(MOST, head_dim)``.
            mask: 1 for a word, 0 for padding after the last word, ``(MOST,)``.
            moved: Number of tokens by which the sentence is moved, ``(1,)``.
        """
        places = torch.arange(MOST)[:, None] + moved.double()
        q, k = self.encoder(words[None], words[None], places)
        size = (HEAD_DIM / 2) ** 0.5  # the length of a position vector; words have the same length
        x = self.added(size * words[None], places) / size
        far = torch.where(mask > 0, 0.0, -math.inf).expand(1, MOST, MOST)
        return {"turned": self._map(q, k, far), "added": self._map(x, x, far)}

    def _map(self, q: Tensor, k: Tensor, far: Tensor) -> Tensor:
        unit = torch.eye(MOST, dtype=q.dtype)[None]
        return softmax_attention(SHARPNESS * HEAD_DIM**0.5 * q, k, unit, far.to(q.dtype))[0]


def programs() -> dict[str, Traced]:
    """Return the programs that the page runs, by name."""
    words = nn.functional.normalize(torch.randn(MOST, HEAD_DIM), dim=-1)
    given = {"words": words, "mask": torch.ones(MOST), "moved": torch.tensor([20.0])}
    return {"maps": traced(Sentence(), **given)}


def data() -> dict[str, Any]:
    """Return the constants of the page: words, colours, and the frequencies of the dials."""
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
