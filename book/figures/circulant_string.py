"""From the first column of a circulant matrix to the rotation that it generates."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from book.figures.marks import axis, bars, circle, dots
from lab.explore import PALETTE, Drawn, Panel, computed, panels

__all__ = ["circulant_spectrum"]

COLOURS = [PALETTE[name] for name in ("orange", "blue", "teal", "magenta", "sky", "red", "brown")]
RADIUS = 1.5  # of the unit circle's panel
HOVER = "%{x:.2f}, %{y:.2f}"


def _column(coefficients: dict[str, float]) -> list[float]:
    names = [f"c{m}" for m in range(len(coefficients))]
    if sorted(coefficients) != sorted(names):
        raise ValueError(
            f"coefficients: expected c0 to c{len(names) - 1}, got {list(coefficients)}"
        )
    return [coefficients[n] for n in names]


def _reach(*values: Tensor) -> Tensor:
    """Return half the width of a panel that holds ``values``."""
    # the small step keeps rounding from deciding where a whole number falls
    return (1.15 * torch.cat(values).abs().amax() - 1e-9).ceil().clamp(min=1)


@computed
def _spectrum(r: Tensor, c: Tensor) -> dict[str, Tensor]:
    """Return what L keeps of c, the eigenvalues of C, L and exp(rL), and the ends of panels."""
    k = torch.arange(len(c), dtype=torch.float64)
    turn = 2 * math.pi * k[:, None] * k / len(c)
    real, imag = turn.cos() @ c, -turn.sin() @ c  # the Fourier transform
    skew = c - c.roll(-1).flip(0)  # the first column of L: c_m − c_{d−m}
    turns = 2 * imag
    ends = torch.tensor([-1.0, 1], dtype=torch.float64)
    return {
        "skew": skew,
        "real": real,
        "imag": imag,
        "turns": turns,
        "speeds": turns.abs(),
        "x": (r * turns).cos(),
        "y": (r * turns).sin(),
        "bars": 1.15 * _reach(c, skew) * ends,
        "plane": _reach(real, imag) * ends,
        "line": _reach(turns) * ends,
    }


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
    found = _spectrum(r, c)
    shown = list(range(d))
    colour = [PALETTE["grey"] if k in (0, d / 2) else COLOURS[min(k, d - k) - 1] for k in shown]

    def plane(head: str, x: Any, y: Any, ends: Any, *shapes: dict[str, Any]) -> Panel:
        eigenvalues = dots(
            x,
            y,
            colour,
            size=10,
            text=[str(k) for k in shown],
            textfont={"size": 10.5},
            textposition=["middle right" if k < d / 2 else "middle left" for k in shown],
            hover=HOVER,
        )
        both = axis(low=ends[0], high=ends[1], nticks=5)
        return Panel([eigenvalues], head, x=both, y=both, shapes=list(shapes), square=True)

    blue, grey = PALETTE["blue"], PALETTE["grey"]
    first_column = bars(shown, c, grey, "first column of C", hover=HOVER)
    kept = dots(
        shown,
        found["skew"],
        blue,
        "first column of L = C − Cᵀ",
        size=10,
        symbol="diamond",
        hover=HOVER,
    )
    low, high = found["bars"]
    entries = axis(low=low, high=high)
    column = Panel([first_column, kept], "c, and what L keeps of it", x={"dtick": 1}, y=entries)
    fig = panels(
        [column, plane("eigenvalues of C", found["real"], found["imag"], found["plane"])],
        [
            plane("eigenvalues of L", [0.0] * d, found["turns"], found["line"]),
            plane(
                f"eigenvalues of exp({r:g} L)",
                found["x"],
                found["y"],
                [-RADIUS, RADIUS],
                {**circle(), "layer": "below"},
            ),
        ],
        across=0.11,
        down=0.14,
        height=600,
        margin={"l": 36, "r": 14, "t": 34, "b": 64},
    )
    first = ", ".join(f"{v:g}" for v in c)
    pairs = ", ".join(f"{found['speeds'][k]:.2f}" for k in range(1, (d + 1) // 2))
    return Drawn(
        fig,
        f"Four panels for the circulant matrix C with first column {first}: the column, the "
        "eigenvalues of C in the complex plane, those of L = C − Cᵀ on the imaginary axis at plus "
        f"and minus {pairs} and at 0, and those of exp({r:g} L) on the unit circle.",
    )
