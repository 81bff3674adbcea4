"""Six words, one head: the vectors and constants of the page, as data.

The page computes every number by itself, in plain JavaScript. ``tests/site/test_walk.py`` compares
what it shows with ``stringlib``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from book.live.move import digits
from lab.explore.style import PALETTE
from lab.program import Traced
from stringlib import AxialRoPE, RoPE

HALF = False
WORDS = ("the", "cat", "sat", "on", "the", "mat")
HEAD_DIM = 8

QUERIES = {
    "the": (0.9, 1.5, 0.5, 0, 1.6, 0.4, 1.4, 0.4),
    "cat": (0.9, 1.4, 0.6, 0, -0.5, 1.2, 0, 1.4),
    "sat": (0.9, -1.4, 0.6, -0.1, 1.6, 0.3, 1.4, 0.4),
    "on": (-0.8, 1.6, 0.6, 0, 1.4, 0.5, 1.2, 0.6),
    "mat": (-0.7, -1.6, 0.5, 0, -0.4, -1.3, 0.1, -1.5),
}
KEYS = {
    "the": (1.1, 0.3, 0.4, 0, -0.9, -0.2, -0.9, 0.2),
    "cat": (1.2, 0, 0.5, 0.1, 1, 0.4, 1, 0.2),
    "sat": (1.2, 0.1, 0.6, -0.2, -0.4, 0.9, -0.2, 1.3),
    "on": (1, 0.1, 0.5, 0, -0.4, -0.8, 0, -0.9),
    "mat": (1.2, 0.2, 0.6, 0, 1.1, 0.2, 0.8, 0.6),
}
VALUES = {
    "the": (-0.11, -0.09, 0.04, 0.05, 0.46, -0.87, -0.03, -0.11),
    "cat": (0.26, -0.28, 0.16, -0.07, -0.6, -0.37, -0.31, 0.48),
    "sat": (0.12, -0.88, -0.05, 0.15, 0.05, 0.11, 0.4, -0.14),
    "on": (0.04, 0.03, -0.63, -0.61, 0.06, -0.1, 0.33, 0.33),
    "mat": (-0.63, 0.13, 0.1, 0.14, -0.48, -0.2, 0.54, 0.01),
}
"""Pair 1 of a query and a key says which offset fits, pairs 3 and 4 which words. Values of
different words are orthonormal to two decimals, so that what a state answers reads as numbers
near 0 and 1."""

PLANES = (
    (0, 2, 0.9),
    (1, 4, 0.7),
    (3, 6, 1.1),
    (5, 7, 0.8),
    (0, 5, 0.6),
    (2, 7, 1.0),
    (1, 3, 0.9),
    (4, 6, 0.7),
)
"""The transposed basis of the STRING: rotations of two channels by an angle, one after another."""

DIGIT, CORNER, PATCH, ROWS, COLUMNS = 7, (1, 3), 6, 3, 2
"""Six patches cut from the first digit of this class, from this row and column of its pixels."""


def vectors() -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values of the words, ``(words, channels)``, in double precision."""
    tables = (QUERIES, KEYS, VALUES)
    q, k, v = (torch.tensor([t[w] for w in WORDS], dtype=torch.float64) for t in tables)
    return q, k, v


def patches() -> Tensor:
    """Return the patches of the digit, ``(patches, side, side)`` of bytes, row by row."""
    images, labels = digits()
    image = images[int((labels == DIGIT).nonzero()[0])]
    top, left = CORNER
    cut = image[top : top + ROWS * PATCH, left : left + COLUMNS * PATCH]
    return cut.unfold(0, PATCH, PATCH).unfold(1, PATCH, PATCH).reshape(-1, PATCH, PATCH)


def patch_vectors() -> tuple[Tensor, Tensor]:
    """Return queries and keys of the patches, ``(patches, channels)``, in double precision.

    The head looks for ink one row below: every query is the same, its first pair of the rows is
    ahead by 1 radian, and the slow pairs of a key hold how much ink the patch has.
    """
    ink = patches().double().mean((1, 2))
    ink = (2 * ink / ink.max()).round(decimals=1)
    q = torch.tensor([[2.2, 3.4, 1.5, 0, 4, 0, 1.5, 0]], dtype=torch.float64).repeat(len(ink), 1)
    k = torch.zeros_like(q)
    k[:, [0, 4]] = 2
    k[:, [2, 6]] = ink[:, None]
    return q, k


def programs() -> dict[str, Traced]:
    """Return nothing: the page has its own arithmetic."""
    return {}


def data() -> dict[str, Any]:
    """Return what the page has to know: words, vectors, frequencies, a basis and a digit."""
    q, k, v = vectors()
    patch_q, patch_k = patch_vectors()
    axial = AxialRoPE(HEAD_DIM, 2).frequencies()
    return {
        "words": WORDS,
        "q": q.tolist(),
        "k": k.tolist(),
        "v": v.tolist(),
        "frequencies": RoPE(HEAD_DIM).frequencies().flatten().tolist(),
        "axial": axial.flatten()[axial.flatten() > 0].tolist()[: HEAD_DIM // 4],
        "planes": PLANES,
        "patches": patches().flatten(1).tolist(),
        "patchQ": patch_q.tolist(),
        "patchK": patch_k.tolist(),
        "palette": PALETTE,
    }
