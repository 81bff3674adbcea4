"""From the column of a circulant matrix to its rotation, a shifted wave, and Adam's step."""

from __future__ import annotations

import math
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import axis, bars, circle, dots, line, listed, rounded
from lab.explore import PALETTE, Drawn, Panel, computed, layout, panels, pick
from stringlib.algebra import circulant_frequencies, fourier_basis

__all__ = ["WAVES", "circulant_spectrum", "first_steps", "moved_wave"]

COLOURS = [PALETTE[name] for name in ("orange", "blue", "teal", "magenta", "sky", "red", "brown")]
RADIUS = 1.5  # of the unit circle's panel
DIM = 16  # channels of the moved wave, and of Adam's steps
WAVES = {"constant": 0, "1 wave": 1, "2 waves": 2, "4 waves": 4, "7 waves": 7, "alternating": 8}
"""Name of a vector of the real Fourier basis → its number j."""

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
    # the small step keeps rounding from deciding on which side an integer falls
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

    C has the first column c.  Its eigenvalues are the Fourier transform of c.
    Those of L are twice their imaginary parts, and exp(rL) moves them around the
    unit circle.  A pair of conjugate eigenvalues has one colour; those that are
    real, and so never move, are grey.

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
    first_column = bars(shown, c, grey, "c, first column of C", hover=HOVER)
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
    column = Panel([first_column, kept], "first columns of C and of L", x={"dtick": 1}, y=entries)
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
    pairs = listed([f"{found['speeds'][k]:.2f}" for k in range(1, (d + 1) // 2)])
    return Drawn(
        fig,
        f"Four panels describe the circulant matrix C with the first column {first}. The first "
        "panel is a bar chart against the row, in which bars show the first column of C and "
        "diamonds show the first column of L = C − Cᵀ. The other three panels show eigenvalues "
        "as numbered dots in the complex plane. The second panel shows those of C. The third "
        "panel shows the eigenvalues of L on the imaginary axis, where their conjugate pairs are "
        f"at plus and minus {pairs}, and all other eigenvalues are at 0. The fourth panel shows "
        f"the eigenvalues of exp(rL) at r = {r:g}, which are on the unit circle.",
    )


@computed
def _moved(position: Tensor, wave: int) -> dict[str, Tensor]:
    """Return exp(rL) f_j, for L = S − Sᵀ, and the angle by which its plane is rotated."""
    basis, shift = fourier_basis(DIM), torch.eye(DIM).double()[1]
    planes = (DIM - 1) // 2
    omega = circulant_frequencies(shift)
    if 0 < wave <= planes:
        f, g = basis[:, 2 * wave - 2], basis[:, 2 * wave - 1]
        angle = omega[wave - 1] * position
    else:
        f = g = basis[:, 2 * planes + (wave > 0)]
        angle = 0 * position.abs()  # not −0
    return {"now": angle.cos() * f + angle.sin() * g, "angle": angle}


def moved_wave(position: float, vector: str) -> Drawn:
    """Draw exp(rL) applied to a vector of the Fourier basis, :eq:`eq-circulant-frequencies`.

    L is S − Sᵀ, with sixteen channels.

    Args:
        position: r.
        vector: One of ``WAVES``: f_j, the constant or the alternating one.

    Returns:
        A figure with the sixteen channels before and after.
    """
    j = WAVES[str(vector)]
    found = _moved(position, j)
    angle, channels = found["angle"], list(range(DIM))
    moves = (
        f"The vector is rotated by {angle:.2f} radians, which shifts its wave along the channels "
        "and keeps the height and the length of the wave"
        if 0 < j < DIM // 2
        else f"The {vector} vector does not depend on the position, so bars and diamonds agree"
    )
    drawn = [
        bars(channels, found["now"], PALETTE["blue"], "at position r",
             hover="channel %{x}: %{y:.2f}"),
        dots(channels, rounded(_moved(0, j)["now"]), PALETTE["grey"], "at position 0", size=9,
             symbol="diamond"),
    ]  # fmt: skip
    axes = layout(
        height=330,
        title_text=f"{vector}, r = {position:g}: rotated by {angle:.2f} radians",
        xaxis=axis("channel n", -0.6, DIM - 0.4, dtick=2, showgrid=False),
        yaxis=axis("entry of the vector", -0.4, 0.4, dtick=0.2),
    )
    return Drawn(
        go.Figure(drawn, axes),
        f"A bar chart shows the entries of a vector of the Fourier basis ({vector}) against the "
        f"channel, from 0 to {DIM - 1}, at position {position:g}. Diamonds show the same vector "
        f"at position 0. {moves}.",
    )


@computed
def _steps(direction: Tensor) -> dict[str, Tensor]:
    """Return unit arrows of the first steps, in two of the seven frequencies, and their cosines."""
    j, m = torch.arange(1, DIM // 2).double(), torch.arange(DIM).double()
    M = 2 * (2 * math.pi * j[:, None] * m / DIM).sin()
    angle = direction.deg2rad()
    gradient = torch.cat(
        [torch.stack([angle.cos(), angle.sin()]), torch.zeros(len(j) - 2).double()]
    )

    def adam(of: Tensor) -> Tensor:
        return torch.where(of.abs() > 1e-9, of.sign(), 0.0)  # 0 stays 0, whatever the rounding

    steps = torch.stack([gradient, adam(gradient), M @ adam(M.mT @ gradient)])
    steps = steps / (steps**2).sum(-1, keepdim=True).sqrt()
    both = (direction > 0) & (direction < 90)  # frequencies have a gradient
    return {"ends": steps[:, :2], "cosines": steps @ gradient, "both": both.double()}


def first_steps(direction: float) -> Drawn:
    """Draw the first step of Adam on frequencies and on c, beside steepest descent.

    Only the first two of seven frequencies have a gradient. All steps have the same length. Adam
    on c moves the other frequencies too, so its arrow in these two is shorter.

    Args:
        direction: Degrees of steepest descent in the plane of the two frequencies.

    Returns:
        A figure with three arrows.
    """
    found = _steps(direction)
    looks = {"steepest descent": "grey", "Adam on ω": "orange", "Adam on c": "blue"}
    drawn = [circle()]
    arrows = [
        line([0, x], [0, y], PALETTE[colour], name, width=3, mode="lines+markers",
             marker={"size": [0, 11], "opacity": 1})
        for (name, colour), (x, y) in zip(looks.items(), found["ends"], strict=True)
    ]  # fmt: skip
    _, omega, through_c = found["cosines"]
    along = pick(found["both"], "the axis of this frequency", "the diagonal")
    which = pick(found["both"], "Only one frequency has", "Both frequencies have")
    reach = axis(low=-1.15, high=1.15, dtick=0.5, constrain="domain")
    axes = layout(
        height=400,
        title_text=f"cosine with steepest descent:<br>Adam on ω {omega:.2f}, "
        f"Adam on c {through_c:.2f}",
        shapes=drawn,
        xaxis={**reach, "title": {"text": "step of ω₁"}},
        yaxis={**reach, "scaleanchor": "x", "title": {"text": "step of ω₂"}},
    )
    return Drawn(
        go.Figure(arrows, axes),
        "A diagram shows the plane of two frequencies, with the step of ω₁ on the horizontal "
        "axis and that of ω₂ on the vertical axis. Three arrows from the origin to the unit "
        "circle show the directions of the first steps of three methods. The arrow of steepest "
        f"descent points at {direction:g} degrees. {which} a gradient, so the arrow of Adam on "
        f"the frequencies lies on {along}. The cosine of the angle to steepest descent is "
        f"{omega:.2f} for the step of Adam on the frequencies and {through_c:.2f} for the step of "
        "Adam on c.",
    )
