"""A Toeplitz matrix inside a circulant one, and what the product costs by either."""

from __future__ import annotations

import math

import plotly.graph_objects as go

from stringlib.explore.style import COLOURS, DIVERGING, PALETTE, heading, layout

__all__ = ["toeplitz_circulant", "toeplitz_circulant_text", "toeplitz_operations"]

LENGTHS = [2**k for k in range(4, 18)]


def toeplitz_operations(length: int, features: int, channels: int = 64) -> tuple[float, float]:
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


def toeplitz_circulant(tokens: int, length: int, features: int) -> go.Figure:
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
    heat = {"colorscale": DIVERGING, "showscale": False, "hoverinfo": "skip", "xgap": 1, "ygap": 1}
    given = {**heat, "colorscale": [[0, "#c9ced4"], [1, PALETTE["teal"]]], "zmin": 0, "zmax": 1}
    counts = [[toeplitz_operations(n, features)[way] for n in LENGTHS] for way in (0, 1)]
    here = toeplitz_operations(length, features)
    known = [1] * tokens + [0] * tokens
    fig = go.Figure(
        [
            go.Heatmap(
                z=cells,
                text=[["" if c is None else str(c) for c in row] for row in cells],
                texttemplate="%{text}",
                textfont={"size": 14},
                **heat,
                zmid=0,
                zmin=-tokens,
                zmax=tokens,
            ),
            go.Heatmap(
                z=[[k] for k in known],
                text=[[f"x<sub>{i}</sub>" if k else "0"] for i, k in enumerate(known)],
                texttemplate="%{text}",
                xaxis="x2",
                **given,
            ),
            go.Heatmap(
                z=[[k] for k in known],
                text=[[f"y<sub>{i}</sub>" if k else ""] for i, k in enumerate(known)],
                texttemplate="%{text}",
                xaxis="x3",
                **given,
            ),
        ]
    )
    colour, below = COLOURS["toeplitz"], {"xaxis": "x4", "yaxis": "y4"}
    for name, ways, dash in (("n × n matrix", 0, "solid"), ("FFT", 1, "dash")):
        fig.add_scatter(
            x=LENGTHS,
            y=counts[ways],
            name=name,
            line={"color": colour, "dash": dash},
            **below,
        )
        fig.add_scatter(
            x=[length],
            y=[here[ways]],
            mode="markers",
            marker={"color": colour, "size": 12},
            showlegend=False,
            **below,
        )
    fig.update_traces(
        hovertemplate="n = %{x:,}: %{y:.2s}<extra></extra>", selector={"type": "scatter"}
    )
    top = [0.47, 0.96]
    bare = {"showticklabels": False, "showgrid": False, "zeroline": False}
    return fig.update_layout(
        layout(
            height=680,
            margin={"l": 54, "r": 14, "t": 10, "b": 70},
            xaxis={"domain": [0, 0.78], "anchor": "y", **bare},
            yaxis={"domain": top, "anchor": "x", "range": [len(known) - 0.5, -0.5], **bare},
            xaxis2={"domain": [0.81, 0.88], "anchor": "y", **bare},
            xaxis3={"domain": [0.93, 1], "anchor": "y", **bare},
            xaxis4={
                "domain": [0, 1],
                "anchor": "y4",
                "type": "log",
                "title": {"text": "tokens n"},
                "tickvals": [16, 128, 1024, 8192, 65536],
                "ticktext": ["16", "128", "1,024", "8,192", "65,536"],
            },
            yaxis4={
                "domain": [0, 0.36],
                "anchor": "x4",
                "type": "log",
                "range": [4, 13],
                "dtick": 3,
                "exponentformat": "power",
            },
            shapes=[
                {
                    "type": "rect",
                    "x0": -0.5,
                    "x1": tokens - 0.5,
                    "y0": -0.5,
                    "y1": tokens - 0.5,
                    "line": {"width": 3, "color": PALETTE["red"]},
                }
            ],
            annotations=[
                _head("offset j − i of each weight; C is framed", "x", "y"),
                _head("x", "x2", "y"),
                _head("y", "x3", "y"),
                _head(f"operations: matrix {_short(here[0])}, FFT {_short(here[1])}", "x4", "y4"),
            ],
        )
    )


def toeplitz_circulant_text(tokens: int, length: int, features: int) -> str:
    """Say what :func:`toeplitz_circulant` shows in a state."""
    by_matrix, by_fft = toeplitz_operations(length, features)
    return (
        f"A circulant matrix of size {2 * tokens} whose top left block of size {tokens} is a "
        f"Toeplitz matrix with the weights of offsets {1 - tokens} to {tokens - 1}; it multiplies "
        f"{tokens} numbers x and as many zeros, and the first {tokens} results are the product y. "
        "Below, operations against the number of tokens, two curves that cross. At "
        f"{length} tokens and {features} features the matrix takes {_short(by_matrix)} and the "
        f"FFT {_short(by_fft)}."
    )


def _head(text: str, x: str, y: str) -> dict[str, object]:
    return heading(text, xref=f"{x} domain", yref=f"{y} domain")


def _short(count: float) -> str:
    """Return a count in thousands, millions and so on."""
    power = min(int(math.log10(count)) // 3, 4)
    return f"{count / 1000**power:.3g} {['', 'thousand', 'million', 'billion', 'trillion'][power]}"
