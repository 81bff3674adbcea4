"""What a bias adds to the logit of a key, against the key's distance."""

from __future__ import annotations

import math

import plotly.graph_objects as go
import torch
from torch import Tensor

from stringlib import ALiBi, KerpleLog, KerplePower, T5Bias
from stringlib.explore.style import COLOURS, layout

__all__ = ["bias_curves", "bias_curves_text"]

FARTHEST = 128


@torch.no_grad()
def _curves(slope: int, r1: float, r2: float, power: float) -> dict[str, Tensor]:
    """Return method → bias at the distances 0 … FARTHEST."""
    distances = torch.arange(FARTHEST + 1)
    log, powers = KerpleLog(1).double(), KerplePower(1).double()
    log.log_r1.fill_(math.log(r1))
    log.log_r2.fill_(math.log(r2))
    powers.log_r1.fill_(math.log(r1))
    powers.logit_r2.fill_(math.log(power / (2 - power)))
    curve = log.at(distances)[0]
    t5 = T5Bias(1, bidirectional=False).double()
    of = t5.buckets(distances)
    t5.weight[:, 0] = of.bincount(curve) / of.bincount()
    return {
        "alibi": ALiBi(8).double().at(distances)[slope - 1],
        "kerple-power": powers.at(distances)[0],
        "t5": t5.at(distances)[0],
        "kerple-log": curve,
    }


def bias_curves(slope: int, r1: float, r2: float, power: float) -> go.Figure:
    """Draw four biases against the distance of the key.

    ALiBi is a line, KERPLE a power or a logarithm.  T5 learns one number for
    each bucket of distances: here each is the mean of KERPLE's logarithm over
    its bucket, to show the buckets.

    Args:
        slope: ALiBi's slope is 1 over 2 to this power.
        r1: Factor of both KERPLE biases.
        r2: KERPLE's logarithm is −r1 log(1 + r2 Δ).
        power: KERPLE's power is −r1 Δ to this power, between 0 and 2.

    Returns:
        A figure with one line a method.
    """
    names = {
        "alibi": "ALiBi",
        "kerple-power": "KERPLE power",
        "t5": "T5 buckets, following log",
        "kerple-log": "KERPLE log",
    }
    fig = go.Figure(
        [
            go.Scatter(
                y=curve.round(decimals=3).tolist(),
                name=names[method],
                mode="lines",
                line={
                    "color": COLOURS[method],
                    "width": 7 if method == "t5" else 2.5,
                    "shape": "hv" if method == "t5" else "linear",
                },
                hovertemplate="distance %{x}: %{y:.2f}",
            )
            for method, curve in _curves(slope, r1, r2, power).items()
        ]
    )
    return fig.update_layout(
        layout(
            height=400,
            margin={"t": 14, "b": 104},
            xaxis={"title": {"text": "distance |Δ| (tokens)", "standoff": 4}, "range": [0, 128]},
            yaxis={"title": "bias", "range": [-10, 0.3]},
        )
    )


def bias_curves_text(slope: int, r1: float, r2: float, power: float) -> str:
    """Say what :func:`bias_curves` shows in a state."""
    curves = _curves(slope, r1, r2, power)
    alibi, powers, log = (curves[m][64].item() for m in ("alibi", "kerple-power", "kerple-log"))
    return (
        f"Bias against distance from 0 to 128. At distance 64 ALiBi, a line, is {alibi:.1f}, "
        f"KERPLE's power {powers:.1f} and its logarithm {log:.1f}. T5's staircase follows the "
        "logarithm in steps of one token up to 16, then in longer ones; the last begins at 113."
    )
