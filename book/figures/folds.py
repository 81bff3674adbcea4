"""The rounding error of folded weights, and what folding allows: norms and feature maps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import at_one_place, axis, rounded, significant
from lab.explore import COLOURS, PALETTE, Drawn, computed, layout
from stringlib import STRING

__all__ = ["ERRORS", "ORDERS", "PLACES", "mirrored_basis", "outlier_errors"]

ORDERS = {
    "rounded, not folded": PALETTE["grey"],
    "folded, then rounded": COLOURS["circulant"],
    "rounded, folded, rounded again": PALETTE["magenta"],
}
"""What is done to the weights → its colour."""

ERRORS = {
    "bfloat16": [
        [0.298, 0.302, 0.337, 0.505, 0.891, 1.56, 2.49, 3.57, 5.14],
        [0.298, 0.3, 0.302, 0.318, 0.375, 0.487, 0.671, 0.873, 1.24],
        [0.422, 0.422, 0.452, 0.596, 0.964, 1.61, 2.6, 3.68, 5.23],
    ],
    "int8": [
        [1.3, 1.32, 1.48, 2.22, 3.95, 6.73, 10.6, 15.5, 22],
        [1.31, 1.31, 1.32, 1.39, 1.64, 2.13, 2.87, 3.98, 5.48],
        [1.84, 1.87, 2, 2.63, 4.27, 7.08, 11, 15.9, 22.6],
    ],
}
"""Rounding → a row for each of ``ORDERS`` → thousandths, as measured with four seeds.

At sizes of the outlier from 1 to 100 whose logarithms are evenly spaced.
"""

MOST = 100.0  # times as large, the weights of an outlier


@computed
def _between(outlier: Tensor, errors: Tensor) -> dict[str, Tensor]:
    """Return the errors at one size of the outlier, on the lines between those measured."""
    last = errors.shape[-1] - 1
    place = outlier.log() * (last / math.log(MOST))
    near = (1 - (place - torch.arange(last + 1, dtype=torch.float64)).abs()).clamp(min=0)
    here = (near * errors.log()).sum(-1).exp()
    return {"here": here, "ratio": here / here[0]}


def outlier_errors(weights: str, outlier: float) -> Drawn:
    """Draw the error of scores whose weights are rounded, folded by :eq:`eq-fold` or not.

    Args:
        weights: What they are rounded to, a name in ``ERRORS``.
        outlier: How many times as large the weights of one channel of each head are.

    Returns:
        A figure of three lines and their dots at one size.
    """
    errors = ERRORS[str(weights)]
    found = _between(outlier, [[*row] for row in errors])
    sizes = [MOST ** (n / (len(errors[0]) - 1)) for n in range(len(errors[0]))]
    first, twice = found["ratio"][1], found["ratio"][2]
    traces = at_one_place(significant(sizes), outlier, ORDERS, [significant(row) for row in errors],
                          found["here"], "%{x:.3g} times: %{y:.3g} thousandths")  # fmt: skip
    axes = layout(
        height=380,
        margin={"l": 54, "r": 14, "t": 44, "b": 106},
        title_text=f"Error: × {first:.2f} if folded, then rounded;<br>"
        f"× {twice:.2f} if rounded before and after",
        xaxis=axis("weights of the outlier relative to the others", -0.06, 2.06, type="log",
                   tickvals=[1, 3, 10, 30, 100]),
        yaxis=axis("rms error, thousandths of |q||k|", type="log",
                   tickvals=[0.3, 1, 3, 10, 30]),
    )  # fmt: skip
    return Drawn(
        go.Figure(traces, axes),
        f"A line chart shows the root mean square error of scores with weights in {weights}, in "
        "thousandths of |q||k|, against the size of an outlier relative to the other weights, on "
        "logarithmic axes. The three lines are for weights that are rounded but not folded, "
        "folded and then rounded, and rounded before and after folding. All of them rise. Dots "
        f"mark the outlier size {outlier:.3g}. At this size, folding the weights and then "
        f"rounding them gives {first:.2f} times the error of rounding without folding. Rounding "
        f"before and after folding gives {twice:.2f} times the error of rounding without folding.",
    )


def _rms(z: Tensor) -> Tensor:
    return z / z.square().mean(-1, keepdim=True).sqrt()


SCALES = (1.0, 0.5, 2.0, 1.5)
PLACES: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "nothing": ("before", lambda z: z),
    "RMS norm": ("before", _rms),
    "RMS norm, scales": ("before", lambda z: torch.tensor(SCALES, dtype=z.dtype) * _rms(z)),
    "layer norm": ("before", lambda z: _rms(z - z.mean(-1, keepdim=True))),
    "ReLU, then rotate": ("before", torch.relu),
    "rotate, then ReLU": ("after", torch.relu),
}
"""Name of an operation → whether it is applied before or after the encoder, and its function."""

SPELLED = {
    "nothing": "Nothing comes before or after the encoder",
    "RMS norm": "An RMS norm comes before the encoder",
    "RMS norm, scales": "An RMS norm with learned scales comes before the encoder",
    "layer norm": "A layer norm comes before the encoder",
    "ReLU, then rotate": "A ReLU comes before the encoder",
    "rotate, then ReLU": "A ReLU comes after the encoder",
}
"""What stands between, in the alternative texts."""

TOKENS, MIRRORS = 32, [*range(91)]


def _errors(mirror: Tensor, between: str) -> Tensor:
    """Return the rms errors, ``(2, mirrors)``: the inner P folded, and the outer P dropped."""
    generator = torch.Generator().manual_seed(0)
    z, w = torch.randn(2, TOKENS, 4, generator=generator, dtype=torch.float64)
    places = torch.arange(TOKENS, dtype=torch.float64)[:, None]
    turns = STRING(torch.tensor([[[0.7], [0.2]]], dtype=torch.float64)).matrix(places)[0]
    twice = (2 * mirror).deg2rad()
    e = torch.eye(4, dtype=torch.float64)
    one, swap = (torch.outer(e[a], e[b]) for a, b in ((1, 1), (1, 2)))
    two = torch.outer(e[2], e[2])
    still = e - one - two
    cos, sin = twice.cos()[:, None, None], twice.sin()[:, None, None]
    P = still + cos * (one - two) + sin * (swap + swap.mT)
    where, f = PLACES[between]
    before, after = (f, PLACES["nothing"][1]) if where == "before" else (PLACES["nothing"][1], f)

    def scores(x: Tensor, y: Tensor) -> Tensor:
        return after(x) @ after(y).mT

    def turned(x: Tensor) -> Tensor:  # RoPE of what has been multiplied by Pᵀ
        return (turns @ x[..., None])[..., 0]

    exact, dropped, folded = [], [], []
    for x in (z, w):
        inner = turned(before(x) @ P)
        exact.append(inner @ P.mT)
        dropped.append(inner)
        folded.append(turned(before(x @ P)) @ P.mT)
    right = scores(*exact)
    errors = torch.stack([scores(*x) - right for x in (folded, dropped)])
    return (errors.square().mean((-1, -2)) / right.square().mean((-1, -2))).sqrt()


@computed
def _permitted(mirror: Tensor, between: str) -> dict[str, Tensor]:
    """Return both errors for one mirror."""
    here = _errors(mirror.view(1), between)[:, 0]
    # rounding is not an error
    return {"here": torch.where(here < 1e-9, 0 * here, here)}


def _zeros(errors: Sequence[float]) -> str:
    """Say at which of the mirrors errors are 0."""
    at = [str(mirror) for mirror, error in zip(MIRRORS, errors, strict=True) if not error]
    return "0 at every angle" if len(at) > 2 else f"0 only at {' and '.join(at)} degrees"


def mirrored_basis(between: str, mirror: float) -> Drawn:
    """Draw what folding the inner P, :eq:`eq-fold`, and dropping the outer do to scores.

    Four channels in two planes; P mirrors channel 2 of the first and channel 1 of the second.

    Args:
        between: What stands beside the encoder, one of ``PLACES``.
        mirror: Degrees from channel 2 to the mirror: at 45 P swaps the two channels, at 0 and 90 it
            changes the sign of one.

    Returns:
        A figure of both root mean square errors, over that of the scores, against the mirror.
    """
    found = _permitted(mirror, str(between))["here"]
    looks = {"inner Pᵀ folded": COLOURS["circulant"], "outer P dropped": PALETTE["blue"]}
    curves = rounded(_errors(torch.tensor(MIRRORS, dtype=torch.float64), str(between)), 3)
    traces = at_one_place(MIRRORS, mirror, looks, curves, found, "%{x}°: %{y:.2f}")
    traces[2].line.update(dash="dash")
    axes = layout(
        height=360,
        title_text=f"Error: {found[0]:.2f} if Pᵀ is folded, {found[1]:.2f} if P is dropped",
        xaxis=axis("what P does to the two channels", -6, 96, tickvals=[0, 45, 90],
                   ticktext=["changes a sign", "swaps", "changes a sign"]),
        yaxis=axis("rms error / rms of the scores", -0.05, 1.3, dtick=0.5),
    )  # fmt: skip
    folded, dropped = map(_zeros, curves)
    return Drawn(
        go.Figure(traces, axes),
        "A line chart shows the relative root mean square error of the scores, against the angle "
        "of the mirror in which P reflects two channels, one from each plane, from 0 to 90 "
        f"degrees. {SPELLED[str(between)]}. If the inner Pᵀ is folded, the error, a solid line, "
        f"is {folded}. If the outer P is dropped, the error, a dashed line, is {dropped}. Dots "
        f"mark the chosen angle, {mirror:g} degrees, where the error is {found[0]:.2f} if the "
        f"inner Pᵀ is folded and {found[1]:.2f} if the outer P is dropped.",
    )
