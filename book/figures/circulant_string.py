"""From the first column of a circulant matrix to the rotation that it generates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from book.figures.marks import axis, bars, circle, dots
from lab.explore import PALETTE, Drawn, Panel, panels
from stringlib.algebra.circulant import circulant_eigenvalues

__all__ = ["circulant_spectrum"]

COLOURS = [PALETTE[name] for name in ("orange", "blue", "teal", "magenta", "sky", "red", "brown")]
RADIUS = 1.5  # of the unit circle's panel
HOVER = "%{x:.2f}, %{y:.2f}"


def _column(coefficients: dict[str, float]) -> Tensor:
    names = [f"c{m}" for m in range(len(coefficients))]
    if sorted(coefficients) != sorted(names):
        raise ValueError(
            f"coefficients: expected c0 to c{len(names) - 1}, got {list(coefficients)}"
        )
    return torch.tensor([coefficients[n] for n in names], dtype=torch.float64)


def _reach(values: Sequence[float]) -> int:
    """Return half the width of a panel that holds ``values``."""
    # the small step keeps rounding from deciding where a whole number falls
    return max(1, math.ceil(1.15 * max(abs(v) for v in values) - 1e-9))


def circulant_spectrum(r: float, **coefficients: float) -> Drawn:
    r"""Draw c, the eigenvalues of C and of L = C − Cᵀ, and those of exp(rL).

    C has the first column c.  Its eigenvalues are the Fourier transform of c;
    L keeps twice their imaginary parts, and exp(rL) winds those around the unit
    circle.  A pair of conjugate
    eigenvalues has one colour; what is real, and so never turns, is grey.

    Args:
        r: The position.
        **coefficients: c0, c1, … to c(d−1).

    Returns:
        A figure with four panels.

    Raises:
        ValueError: If the coefficients are not named c0, c1, ….
    """
    c = _column(coefficients)
    d = len(c)
    skew = c - c.roll(-1).flip(0)  # the first column of L: c_m − c_{d−m}
    values = circulant_eigenvalues(c)
    turns = 2 * values.imag
    angles = r * turns
    shown = list(range(d))
    colour = [PALETTE["grey"] if k in (0, d / 2) else COLOURS[min(k, d - k) - 1] for k in shown]

    def plane(head: str, x: Tensor, y: Tensor, reach: float, *shapes: dict[str, Any]) -> Panel:
        eigenvalues = dots(
            x.tolist(),
            y.tolist(),
            colour,
            size=10,
            text=[str(k) for k in shown],
            textfont={"size": 10.5},
            textposition=["middle right" if k < d / 2 else "middle left" for k in shown],
            hover=HOVER,
        )
        both = axis(low=-reach, high=reach, nticks=5)
        return Panel([eigenvalues], head, x=both, y=both, shapes=list(shapes), square=True)

    blue, grey = PALETTE["blue"], PALETTE["grey"]
    first_column = bars(shown, c.tolist(), grey, "first column of C", hover=HOVER)
    kept = dots(
        shown,
        skew.tolist(),
        blue,
        "first column of L = C − Cᵀ",
        size=10,
        symbol="diamond",
        hover=HOVER,
    )
    high = 1.15 * _reach([*c.tolist(), *skew.tolist()])
    wide = _reach([*values.real.tolist(), *values.imag.tolist()])
    entries = axis(low=-high, high=high)
    column = Panel([first_column, kept], "c, and what L keeps of it", x={"dtick": 1}, y=entries)
    fig = panels(
        [column, plane("eigenvalues of C", values.real, values.imag, wide)],
        [
            plane("eigenvalues of L", torch.zeros_like(turns), turns, _reach(turns.tolist())),
            plane(
                f"eigenvalues of exp({r:g} L)",
                angles.cos(),
                angles.sin(),
                RADIUS,
                {**circle(), "layer": "below"},
            ),
        ],
        across=0.11,
        down=0.14,
        height=600,
        margin={"l": 36, "r": 14, "t": 34, "b": 64},
    )
    first = ", ".join(f"{v:g}" for v in c.tolist())
    pairs = ", ".join(f"{abs(turns[k]):.2f}" for k in range(1, (d + 1) // 2))
    return Drawn(
        fig,
        f"Four panels for the circulant matrix C with first column {first}: the column, the "
        "eigenvalues of C in the complex plane, those of L = C − Cᵀ on the imaginary axis at plus "
        f"and minus {pairs} and at 0, and those of exp({r:g} L) on the unit circle.",
    )
