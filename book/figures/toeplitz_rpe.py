"""A Toeplitz matrix inside a circulant one, and what the product costs by either."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from book.figures.marks import CELLS, axis, box, dots, downwards, heat, line, tokens_axis
from lab.explore import COLOURS, PALETTE, Drawn, Panel, computed, panels, pick
from lab.explore.style import DIVERGING

__all__ = ["toeplitz_circulant", "toeplitz_operations"]

CHANNELS = 64  # of the values
LENGTHS = [2**k for k in range(4, 18)]


def toeplitz_operations(
    length: int, features: int, channels: int = CHANNELS
) -> tuple[float, float]:
    r"""Count additions and multiplications of one head's sums, equation :eq:`eq-toeplitz-cost`.

    A real FFT of length L counts as :math:`\tfrac52 L \log_2 L`.

    Args:
        length: Number of tokens n.
        features: Number of features m.
        channels: Number of channels of the values, to which the column of ones is added.

    Returns:
        Those of the n × n matrix, and those of two FFTs of length 2n for each feature and column.
    """
    columns = channels + 1
    by_matrix = 2.0 * length**2 * (features + columns)
    by_fft = features * columns * 2 * 2.5 * 2 * length * math.log2(2 * length)
    return by_matrix, by_fft


@computed
def _counted(length: Tensor, features: Tensor) -> dict[str, Tensor]:
    """Return the operations of both ways, at all lengths and at one, and that one's thousands."""
    lengths = torch.cat([torch.tensor(LENGTHS, dtype=torch.float64), length[None]])
    columns = CHANNELS + 1
    by_matrix = 2 * lengths**2 * (features + columns)
    by_fft = 10 * features * columns * lengths * (2 * lengths).log2()
    both = torch.stack([by_matrix, by_fft])
    power = (both[:, -1].log10() / 3).floor().clamp(max=4)
    return {
        "curves": both[:, :-1],
        "here": both[:, -1],
        "power": power,
        "short": both[:, -1] / 1000**power,
    }


def toeplitz_circulant(tokens: int, length: int, features: int) -> Drawn:
    """Draw the circulant matrix around a Toeplitz matrix, and two curves of operations.

    Args:
        tokens: Size of the matrix that is drawn.
        length: Number of tokens whose operations are marked.
        features: Number of features; values have 64 channels.

    Returns:
        A figure with the matrices above and the curves below.
    """
    size = 2 * tokens
    column = [-k for k in range(tokens)] + [None] + list(range(tokens - 1, 0, -1))
    cells = [[column[(i - j) % size] for j in range(size)] for i in range(size)]
    bare = {**CELLS, "showticklabels": False}
    rows = downwards(size, showticklabels=False)

    def table(
        head: str, z: list[list[Any]], text: list[list[str]], scale: Any, **more: Any
    ) -> Panel:
        letters = {"size": 14}
        drawn = heat(z, scale, text=text, texttemplate="%{text}", textfont=letters, xgap=1, ygap=1)
        return Panel([drawn], head, x=bare, y=rows, **more)

    known = [[1]] * tokens + [[0]] * tokens
    marked = ([[0, "#c9ced4"], [1, PALETTE["teal"]]], 0, 1)
    frame = box(-0.5, tokens - 0.5, -0.5, tokens - 0.5, width=3, color=PALETTE["red"])
    matrix = table(
        "offset j − i of each weight; C is framed",
        cells,
        [["" if c is None else str(c) for c in row] for row in cells],
        (DIVERGING, -tokens, tokens),
        shapes=[frame],
        width=0.8,
    )
    given = [[f"x<sub>{i}</sub>" if i < tokens else "0"] for i in range(size)]
    found = [[f"y<sub>{i}</sub>" if i < tokens else ""] for i in range(size)]
    counted = _counted(length, features)
    here = counted["here"]
    by_matrix, by_fft = (
        f"{short:.3g}{pick(power, '', ' thousand', ' million', ' billion', ' trillion')}"
        for short, power in zip(counted["short"], counted["power"], strict=True)
    )
    colour, hover = COLOURS["toeplitz"], "n = %{x:,}: %{y:.2s}"
    curves = []
    for way, (name, dash) in enumerate((("n × n matrix", "solid"), ("FFT", "dash"))):
        curves += [
            line(LENGTHS, counted["curves"][way], colour, name, width=2, dash=dash, hover=hover),
            dots([length], [here[way]], colour, hover=hover),
        ]
    below = Panel(
        curves,
        f"operations: matrix {by_matrix}, FFT {by_fft}",
        x=tokens_axis([16, 128, 1024, 8192, 65536], math.log10(13), math.log10(160_000)),
        y=axis(low=4, high=13, type="log", dtick=3, exponentformat="power"),
    )
    fig = panels(
        [
            matrix,
            table("x", known, given, marked, width=0.08),
            table("y", known, found, marked, width=0.08),
        ],
        below,
        heights=(0.51, 0.38),
        across=0.03,
        down=0.11,
        height=680,
        margin={"l": 54, "r": 14, "t": 34, "b": 70},
    )
    return Drawn(
        fig,
        f"A circulant matrix of size {size} whose top left block of size {tokens} is a "
        f"Toeplitz matrix with the weights of offsets {1 - tokens} to {tokens - 1}; it multiplies "
        f"{tokens} numbers x and as many zeros, and the first {tokens} results are the product y. "
        "Below, operations against the number of tokens, two curves that cross. At "
        f"{length:g} tokens and {features:g} features the matrix takes {by_matrix} and the "
        f"FFT {by_fft}.",
    )
