"""What a shift of all positions does to a kernel that is turned before or after its features."""

from __future__ import annotations

from functools import lru_cache, partial

import plotly.graph_objects as go
import torch
from torch import Tensor, nn

from stringlib.attention.features import FavorFeatures, ReLUFeatures
from stringlib.checks import shift_error
from stringlib.encoders.rope import RoPE
from stringlib.explore.style import DIVERGING, heading, layout

__all__ = ["KERNEL_FEATURES", "shifted_kernels", "shifted_kernels_text"]

TOKENS, CHANNELS, BASE, LIMIT = 12, 16, 20.0, 3.0
KERNEL_FEATURES = ("ReLU, 16", "random, 16", "random, 64", "random, 1024")
"""The feature maps of :func:`shifted_kernels`, with their numbers of features."""


@lru_cache
def _features(features: str) -> tuple[nn.Module, Tensor, Tensor, RoPE]:
    if features not in KERNEL_FEATURES:
        raise ValueError(f"features must be one of {KERNEL_FEATURES}, got {features!r}")
    kind, count = features.split(", ")
    draw = torch.Generator().manual_seed(1)
    q, k = torch.randn(2, 1, TOKENS, CHANNELS, generator=draw, dtype=torch.float64)
    q, k = (nn.functional.normalize(x, dim=-1) * 1.2 for x in (q, k))
    favor = FavorFeatures(CHANNELS, int(count), "orthogonal", stabilize=False, generator=draw)
    phi = ReLUFeatures() if kind == "ReLU" else favor.double()
    return phi, q, k, RoPE(int(count), BASE)


def _kernel(positions: Tensor, features: str, before: bool) -> Tensor:
    """Return the products of turned queries and keys over their mean size, ``(tokens, tokens)``."""
    phi, q, k, after = _features(features)
    if before:
        q, k = RoPE(CHANNELS, BASE)(q, k, positions)
    a, b = phi(q), phi(k)
    if not before:
        a, b = after(a, b, positions)
    kernel: Tensor = (a @ b.mT)[0]
    return kernel / kernel.abs().mean()


def _facts(shift: float, features: str) -> list[tuple[Tensor, Tensor, float, float]]:
    """Return for before and after: kernel, its change, the error, the share of negative ones."""
    start = torch.arange(TOKENS, dtype=torch.float64)[:, None]
    facts = []
    for before in (True, False):
        kernel = partial(_kernel, features=features, before=before)
        here, there = kernel(start), kernel(start + shift)
        error = shift_error(kernel, start, shift)
        facts.append((there, there - here, error, (there < 0).double().mean().item()))
    return facts


def shifted_kernels(shift: float, features: str) -> go.Figure:
    """Draw the kernel of twelve tokens at moved positions, turned before and after its features.

    Above, the products of the features of query (row) and key (column), over their mean size; a
    minus marks the negative ones. Below, what the shift has changed.

    Args:
        shift: Added to all positions.
        features: One of ``KERNEL_FEATURES``.

    Returns:
        A figure of four heat-maps with one colour scale.

    Raises:
        ValueError: If the features are unknown.
    """
    fig, heads = go.Figure(), []
    for column, (kernel, change, error, negative) in enumerate(_facts(shift, features)):
        for row, values in enumerate((kernel, change)):
            number = 2 * row + column + 1
            marked = row == 0 and column == 1
            fig.add_heatmap(
                z=[[round(v, 2) for v in line] for line in values.tolist()],
                text=[["−" if marked and v < 0 else "" for v in line] for line in values.tolist()],
                texttemplate="%{text}",
                coloraxis="coloraxis",
                hovertemplate="query %{y}, key %{x}: %{z:.2f}<extra></extra>",
                xaxis=f"x{number}",
                yaxis=f"y{number}",
            )
        name = "before" if column == 0 else "after"
        below = f", {negative:.0%} negative" if column else ""
        size = f"{error:.0%}" if error > 1e-9 else "nothing"
        heads += [
            (f"turned {name} φ{below}", column + 1),
            (f"the shift changed {size}", column + 3),
        ]
    plain = {"constrain": "domain", "showgrid": False, "zeroline": False, "dtick": 4}
    axes = {}
    for number in range(1, 5):
        left, top = number % 2 == 1, number < 3
        wide, high = ([0, 0.46] if left else [0.54, 1]), ([0.56, 1] if top else [0, 0.44])
        axes[f"xaxis{number}"] = {"domain": wide, "anchor": f"y{number}", **plain}
        axes[f"yaxis{number}"] = {
            "domain": high,
            "anchor": f"x{number}",
            "scaleanchor": f"x{number}",
            "range": [TOKENS - 0.5, -0.5],
            **plain,
        }
    bar = {"orientation": "h", "y": -0.08, "yanchor": "top", "len": 0.8, "thickness": 14}
    colours = {"colorscale": DIVERGING, "cmin": -LIMIT, "cmax": LIMIT, "colorbar": bar}
    return fig.update_layout(
        layout(
            height=600,
            margin={"l": 30, "r": 10, "t": 34, "b": 74},
            coloraxis=colours,
            annotations=[
                heading(
                    text,
                    xref=f"x{number} domain".replace("x1 ", "x "),
                    yref=f"y{number} domain".replace("y1 ", "y "),
                )
                for text, number in heads
            ],
            **axes,
        )
    )


def shifted_kernels_text(shift: float, features: str) -> str:
    """Say what :func:`shifted_kernels` shows in a state."""
    before, after = _facts(shift, features)
    moved = f"{before[2]:.0%} of its size" if before[2] > 1e-9 else "nothing"
    return (
        f"Two kernels of 12 tokens, features {features}, all positions moved by {shift:g}. Turned "
        f"before the features the kernel is nowhere negative, and the shift changed {moved}. "
        "Turned after them the shift changed nothing, and "
        f"{after[3]:.0%} of the entries are negative."
    )
