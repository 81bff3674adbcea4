"""How alike the rows of a signed circulant look to one vector, and what averaging them brings."""

from __future__ import annotations

import math

import plotly.graph_objects as go
import torch
from torch import Tensor

from stringlib.explore.style import COLOURS, PALETTE, heading, layout
from stringlib.theory.structured_variance import (
    circulant_mean_mse,
    circulant_mse,
    cyclic_autocorrelation,
)

__all__ = ["CIRCULANT_SIGNS", "CIRCULANT_VECTORS", "row_correlation", "row_correlation_text"]

SIZE = 16
CIRCULANT_VECTORS = ("constant", "smooth", "random", "one channel")
"""The vectors z that :func:`row_correlation` knows."""
CIRCULANT_SIGNS = ("no signs", "signs 1", "signs 2", "signs 3")
"""The choices of s that :func:`row_correlation` knows."""


def _vector(name: str, square: float) -> Tensor:
    n = torch.arange(SIZE, dtype=torch.float64)
    draw = torch.Generator().manual_seed(4)
    shapes = {
        "constant": torch.ones_like(n),
        "smooth": torch.exp(-(((n - 6) / 3) ** 2)),
        "random": torch.randn(SIZE, generator=draw, dtype=torch.float64),
        "one channel": (n == 5).double(),
    }
    if name not in shapes:
        raise ValueError(f"vector must be one of {CIRCULANT_VECTORS}, got {name!r}")
    return shapes[name] / shapes[name].norm() * math.sqrt(square)


def _signs(name: str) -> Tensor:
    if name not in CIRCULANT_SIGNS:
        raise ValueError(f"signs must be one of {CIRCULANT_SIGNS}, got {name!r}")
    number = CIRCULANT_SIGNS.index(name)
    if number == 0:
        return torch.ones(SIZE, dtype=torch.float64)
    bits = torch.randint(2, (SIZE,), generator=torch.Generator().manual_seed(number))
    return (2 * bits - 1).double()


def _errors(vector: str, signs: str, square: float) -> dict[str, list[float]]:
    """Return the error for 1 to SIZE rows: independent, circulant, and circulant on average."""
    z, s = _vector(vector, square), _signs(signs)
    rows = range(1, SIZE + 1)
    return {
        "iid": [math.expm1(square) / m for m in rows],
        "mean": [circulant_mean_mse(z, m).item() for m in rows],
        "circulant": [circulant_mse(z, s, m).item() for m in rows],
    }


def row_correlation(vector: str, signs: str, square: float) -> go.Figure:
    r"""Draw s ⊙ z, its cyclic autocorrelation, and the error of m circulant rows.

    Above: the 16 channels of s ⊙ z, and :math:`A_\delta`, the covariance of the
    projections onto two rows that are δ apart.  Below: the relative error of the
    mean of m features, for independent rows, for a circulant with these signs, and
    for a circulant on average over all signs.

    Args:
        vector: One of ``CIRCULANT_VECTORS``.
        signs: One of ``CIRCULANT_SIGNS``.
        square: The squared length of z.

    Returns:
        A figure with three panels.

    Raises:
        ValueError: If a name is unknown.
    """
    u = _signs(signs) * _vector(vector, square)
    correlation = cyclic_autocorrelation(u).tolist()
    errors = _errors(vector, signs, square)
    places, rows = list(range(SIZE)), list(range(1, SIZE + 1))
    fig = go.Figure(
        [
            go.Bar(
                x=places, y=[round(v, 4) for v in u.tolist()], marker={"color": PALETTE["grey"]}
            ),
            go.Bar(
                x=places,
                y=[round(v, 4) for v in correlation],
                marker={"color": COLOURS["favor-circulant"]},
                xaxis="x2",
                yaxis="y2",
            ),
        ]
    )
    fig.update_traces(showlegend=False, hovertemplate="%{x}: %{y:.3f}<extra></extra>")
    lines = [
        ("iid", "independent rows", {"color": COLOURS["favor-iid"], "dash": "dash"}),
        ("mean", "circulant, all signs", {"color": COLOURS["favor-circulant"], "dash": "dot"}),
        ("circulant", "circulant, these signs", {"color": COLOURS["favor-circulant"], "width": 3}),
    ]
    for kind, name, line in lines:
        fig.add_scatter(
            x=rows,
            y=[round(v, 5) for v in errors[kind]],
            mode="lines",
            name=name,
            line=line,
            xaxis="x3",
            yaxis="y3",
            hovertemplate="m = %{x}: %{y:.3f}<extra></extra>",
        )
    reach = 1.1 * math.sqrt(square)
    titles = [
        ("s ⊙ z", "x", "y"),
        ("Aδ: rows δ apart", "x2", "y2"),
        ("error of the mean of m features", "x3", "y3"),
    ]
    return fig.update_layout(
        layout(
            height=560,
            margin={"l": 44, "r": 14, "t": 34, "b": 92},
            xaxis={"domain": [0, 0.45], "anchor": "y", "title": {"text": "channel n"}, "dtick": 5},
            yaxis={"domain": [0.64, 1], "anchor": "x", "range": [-reach, reach], "nticks": 5},
            xaxis2={"domain": [0.58, 1], "anchor": "y2", "title": {"text": "δ"}, "dtick": 5},
            yaxis2={
                "domain": [0.64, 1],
                "anchor": "x2",
                "range": [-1.1 * square, 1.1 * square],
                "nticks": 5,
            },
            xaxis3={"anchor": "y3", "title": {"text": "rows m"}, "range": [0.5, SIZE + 0.5]},
            yaxis3={
                "domain": [0, 0.42],
                "anchor": "x3",
                "type": "log",
                "nticks": 5,
                "range": [
                    math.log10(0.5 * math.expm1(square) / SIZE),
                    math.log10(1.6 * math.expm1(square)),
                ],
            },
            annotations=[
                heading(text, xref=f"{x} domain", yref=f"{y} domain") for text, x, y in titles
            ],
        )
    )


def row_correlation_text(vector: str, signs: str, square: float) -> str:
    """Say what :func:`row_correlation` shows in a state."""
    errors = _errors(vector, signs, square)
    correlation = cyclic_autocorrelation(_signs(signs) * _vector(vector, square))
    largest = correlation[1:].abs().max().item()
    last = {kind: row[-1] for kind, row in errors.items()}
    return (
        f"A {vector} vector of 16 channels and squared length {square:g}, {signs}: its entries, "
        f"its cyclic autocorrelation, at most {largest:.2f} in size away from 0, and the error of "
        f"the mean of 1 to 16 features. It starts at {errors['iid'][0]:.2f} and at 16 rows is "
        f"{last['iid']:.3f} for independent rows, {last['circulant']:.3f} for the circulant with "
        f"these signs and {last['mean']:.3f} for a circulant on average over all signs."
    )
