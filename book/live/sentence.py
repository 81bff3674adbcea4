"""The front page: a sentence moves, and who attends to whom, with positions turned or added."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lab.explore.style import COLOURS
from lab.program import Traced, traced
from stringlib import RoPE, Sinusoidal, softmax_attention

HALF = False
ALT = {
    "": 'The words "the cat sat on the mat" at positions 30 to 35, and two maps of who attends to '
    "whom. Where positions rotate queries and keys, the map is the same as at position 0; where "
    'they are added to the words, weights changed by up to 13 points. Below, the hands of "the" '
    'and "mat" on three dials, one for each pair of channels, and a slider that moves the '
    "sentence by 30 tokens.",
}
"""What the poster shows: state in which the instrument begins → text."""
WORDS = ("the", "cat", "sat", "on", "the", "mat")
HEAD_DIM, SHARPNESS, FARTHEST = 64, 2.0, 100
HANDS = (4, 8, 12)
"""Pairs whose hands are shown: one turn in 20, 63 and 199 tokens."""


class Sentence(nn.Module):
    """Two maps of attention over the words, which are random vectors, wherever they stand."""

    words: Tensor

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(7)
        drawn = torch.randn(len(WORDS), HEAD_DIM, generator=generator)
        same = [WORDS.index(word) for word in WORDS]
        self.register_buffer("words", nn.functional.normalize(drawn[same], dim=-1)[None])
        self.encoder, self.added = RoPE(HEAD_DIM), Sinusoidal(HEAD_DIM)

    def forward(self, moved: Tensor) -> dict[str, Tensor]:
        """Return two maps, ``(words, words)``, of a sentence moved on by ``(1,)`` tokens."""
        places = torch.arange(len(WORDS))[:, None] + moved.double()
        q, k = self.encoder(self.words, self.words, places)
        size = (HEAD_DIM / 2) ** 0.5  # of the vector of a position; words are as long
        x = self.added(size * self.words, places) / size
        return {"turned": self._map(q, k), "added": self._map(x, x)}

    def _map(self, q: Tensor, k: Tensor) -> Tensor:
        unit = torch.eye(len(WORDS), dtype=q.dtype)[None]
        return softmax_attention(SHARPNESS * HEAD_DIM**0.5 * q, k, unit)[0]


def programs() -> dict[str, Traced]:
    """Return what the page runs, by name."""
    return {"maps": traced(Sentence(), moved=torch.tensor([20.0]))}


def data() -> dict[str, Any]:
    """Return what the page has to know besides: words, colours, and how fast hands turn."""
    frequencies = RoPE(HEAD_DIM).frequencies().flatten()
    return {
        "words": WORDS,
        "farthest": FARTHEST,
        "hands": [frequencies[pair].item() for pair in HANDS],
        "turned": COLOURS["rope"],
        "added": COLOURS["sinusoidal"],
    }
