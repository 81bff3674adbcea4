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
ROPE = (
    "The figure at stop 3, RoPE, has three panels. Above the words of the moved sentence, at "
    'positions 40 to 45, bars show the attention weights of the second "the". The weight is 63% '
    'for "mat", 19% for "cat", and at most 6% for each of the others. Below on the left, squares '
    "show the 6 × 6 attention weights. They fill their outlines, because the move has changed no "
    "weight. Below on the right are four dials, in which a thick hand for the query and a thin "
    "one for the key are rotated together."
)
ALT = {
    "": ROPE,
    "stop=rope": ROPE,
    "stop=set": "The figure at stop 1, attention over a set of words, has three panels. Above the "
    'six words "the cat sat on the mat", at positions 0 to 5, bars show the attention weights of '
    'the second "the". The weight is 38% for "mat", 34% for "cat", 12% for "sat", and at most 7% '
    "for each of the others. Below on the left, squares show the 6 × 6 attention weights, and the "
    'rows of both "the" are equal. Below on the right, bars show the eight channels of the output '
    'of the second "the".',
    "stop=frequencies": "The figure at stop 4, frequencies, has three panels. Above the six "
    'words, bars show the attention weights of the second "the". The weight is 63% for "mat", 19% '
    'for "cat", and at most 6% for each of the others. Below on the left, squares show the 6 × 6 '
    'attention weights. Below on the right, a line chart shows the score of the second "the" with '
    '"mat" against their distance, from −30 to 30 tokens. A thick wave between 0.2 and 2 is the '
    "sum of four dashed waves. Sliders set the frequencies of the four pairs, which are 1, 0.1, "
    "0.01 and 0.001.",
    "stop=frequencies&span=3000": "The figure at stop 4, frequencies, has three panels and shows "
    "distances up to 3,000 tokens. Above the six words, bars show the attention weights of the "
    'second "the". The weight is 63% for "mat", 19% for "cat", and at most 6% for each of the '
    "others. Below on the left, squares show the 6 × 6 attention weights. Below on the right, a "
    'band shows between which values the score of the second "the" with "mat" lies, against their '
    "distance, from −3,000 to 3,000 tokens. The band rises and falls nine times, and at both ends "
    "it lies lower than at distance 0. Sliders set the frequencies of the four pairs, which are "
    "1, 0.1, 0.01 and 0.001.",
    "stop=grid": "The figure at stop 5, two coordinates, has three panels. Above six patches of a "
    "digit, in three rows and two columns, bars show the attention weights of patch 2. The weight "
    "is 56% for patch 4, 26% for patch 2 itself, 12% for patch 6, and at most 3% for each of the "
    "others. Below on the left, squares show the 6 × 6 attention weights. Below on the right is "
    "the image of a 7 under a grid, with lines from patch 2 to the patches that it attends to.",
    "stop=string": "The figure at stop 6, STRING, has three panels. Above the six words, bars "
    'show the attention weights of the second "the". The weight is 63% for "mat", 19% for "cat", '
    "and at most 6% for each of the others. Below on the left, squares show the 6 × 6 attention "
    "weights. They fill the outlines of RoPE, and the largest difference is 0.0 percentage "
    "points. Below on the right is the 8 × 8 matrix of the STRING for distance 1, none of whose "
    '64 entries is 0. Sliders set the basis, at 60%, and the distance. The box "q and k follow '
    'the basis" is ticked.',
    "stop=linear": "The figure at stop 7, linear attention, has three panels. Above the six "
    'words, bars show the softmax weights of the second "the". The weight is 38% for "mat", 34% '
    'for "cat", 12% for "sat", and at most 7% for each of the others. Below are two maps of 24 '
    "queries and 24 keys, for the sentence repeated four times. On the left are the 576 weights "
    "of softmax, with clear columns and rows. On the right are the weights of linear attention, "
    "whose state has 72 numbers. These weights are nearly equal.",
    "stop=favor": "The figure at stop 8, FAVOR+, has three panels. Above the six words, bars show "
    'the estimated weights of the second "the". The weight is 46% for "cat", 38% for "mat", and '
    "at most 7% for each of the others. Dashes mark the softmax weights. Below on the left, "
    "filled squares show the estimated 6 × 6 weights. Some are smaller and some are larger than "
    "the outlines, which are the weights of softmax. Below on the right, a dot for each draw of "
    "random features shows its mean error per weight against the number of features. The error "
    "falls from about 8 percentage points with 4 features to about 2 with 1,024. The marked draw "
    "has 16 features and an error of 6.6 points.",
    'stop=decay&weight="cosine"': "The figure at stop 10, with a cosine of the distance, has "
    'three panels. Under the six words are the factors for the last word, "mat". The factor is '
    '0.56 for the first "the", and for the later words it is 0.71, 0.83, 0.92, 0.98 and 1. Below '
    "on the left, squares show the weights of every word with itself and the words before it, and "
    'outlines show the weights without the cosine. Below on the right is the state as "mat" reads '
    "it. The horizon M is 8 tokens.",
    'stop=decay&weight="none"': "The figure at stop 10, without position weights, has three "
    "panels. Under each of the six words is the factor 1. Above the words, bars show the "
    'attention weights of the last word, "mat". The weight is 21% for "cat" and for "mat" itself, '
    "and 13 to 16% for each of the others. Below on the left, squares show the weights of every "
    "word with itself and the words before it. Below on the right is the state after six words, "
    "which has 72 numbers.",
    'stop=decay&weight="decay"': "The figure at stop 10, with a decay of 0.70 per word, has three "
    'panels. Under the six words are the factors for the last word, "mat". The factor is 0.17 for '
    'the first "the", and for the later words it is 0.24, 0.34, 0.49, 0.70 and 1. Above the '
    'words, bars show the attention weights of "mat", which rise from 4% for the first "the" to '
    '41% for "mat". Below on the left, squares show the weights of every word with itself and the '
    "words before it, and outlines show the weights without the decay. The squares of distant "
    "words are smaller than their outlines. Below on the right is the state after six words, "
    "which still has 72 numbers.",
    "stop=delta": "The figure at stop 11, the delta rule, has three panels. Two states have "
    "stored five pairs of words. Below each of the first five words is the word that follows it. "
    'Above the six words, bars show the values that the key of "the" retrieves from the state of '
    'the delta rule. The value is 1.01 for "mat" and at most 0.01 for each of the others. Dashes '
    'mark the values from the state of the sum, which are about 1 for "cat" and for "mat" and 0.6 '
    'for "on" and "the". Below, 8 × 8 maps show both states, that of the sum on the left and that '
    "of the delta rule on the right.",
}
"""Alternative texts of the posters, by the state of the figure."""
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
"""Queries, keys and values of the words.

Pair 1 of queries and keys determines which offsets get a high score, pairs 3 and 4 which words. The
values of different words are orthonormal to two decimals, so that the coefficients of the values
in the output of a state are close to 0 and 1.
"""

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
"""The transposed basis of the STRING, as a sequence of rotations of two channels by an angle."""

DIGIT, CORNER, PATCH, ROWS, COLUMNS = 7, (1, 3), 6, 3, 2
"""Class of the digit, corner of the cut in pixels, side of a patch, rows and columns of patches."""


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

    The head attends to patches with much ink one row below. All queries are the same. The first
    pair of channels for the rows is rotated by 1 radian in the query, which encodes the offset of
    one row. The pairs with low frequencies contain in each key the amount of ink of the patch.
    """
    ink = patches().double().mean((1, 2))
    ink = (2 * ink / ink.max()).round(decimals=1)
    q = torch.tensor([[2.2, 3.4, 1.5, 0, 4, 0, 1.5, 0]], dtype=torch.float64).repeat(len(ink), 1)
    k = torch.zeros_like(q)
    k[:, [0, 4]] = 2
    k[:, [2, 6]] = ink[:, None]
    return q, k


def programs() -> dict[str, Traced]:
    """Return no programs, because the page computes everything in JavaScript."""
    return {}


def data() -> dict[str, Any]:
    """Return the constants of the page: words, vectors, frequencies, a basis and a digit."""
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
