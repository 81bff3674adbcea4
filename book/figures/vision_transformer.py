"""Where a digit is named, by what reads its patches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from book.figures.marks import CELLS, box, downwards, heat
from lab.explore import PALETTE, Drawn, Panel, panels
from lab.explore.style import SEQUENTIAL

__all__ = ["READERS", "accuracy_places"]

CANVAS, KNOWN = 5, 3  # places of a digit in a row, and those of the training
READERS = ("mean", "class token")

Places = Sequence[Sequence[float]]
"""The accuracy at each place of the canvas."""


def accuracy_places(encoder: str, *, recorded: Mapping[str, Mapping[str, Places]]) -> Drawn:
    """Draw the accuracy at each place of a canvas, read by the mean and by a class token.

    Args:
        encoder: A name in ``recorded``.
        recorded: Encoder → one of ``READERS`` → accuracies, row by row; what is not there was
            not trained.

    Returns:
        A figure of two maps; a frame holds the places of the training.
    """
    bare: dict[str, Any] = {"showticklabels": False}
    frame = box(-0.5, KNOWN - 0.5, -0.5, KNOWN - 0.5, width=3, color=PALETTE["red"])
    row, told = [], []
    for reader in READERS:
        places = recorded[str(encoder)].get(reader)
        if places is None:
            z: Any = [[None] * CANVAS] * CANVAS
            said = "not trained"
        else:
            z = places
            known, new = _means(places)
            said = f"{known:.2f} known, {new:.2f} new"
        drawn = heat(
            z,
            (SEQUENTIAL, 0, 1),
            "%{z:.2f}",
            text=[["" if v is None else f"{v:.2f}" for v in line] for line in z],
            texttemplate="%{text}",
            xgap=1,
            ygap=1,
        )
        own: dict[str, Any] = {"x": {**CELLS, **bare}, "y": downwards(CANVAS, **bare)}
        row.append(Panel([drawn], f"{reader}:<br>{said}", shapes=[frame], square=True, **own))
        told.append(f"by the {reader} {said}")
    fig = panels(row, across=0.08, height=330, margin={"l": 12, "r": 12, "t": 56, "b": 12})
    return Drawn(
        fig,
        f"Maps of the accuracy at 25 places of the canvas, encoder {encoder}; a frame holds the "
        f"nine of the training. Means, read {', '.join(told)}.",
    )


def _means(places: Places) -> tuple[float, float]:
    """Return the mean accuracy at the places of the training, and at the others."""
    known = [v for line in places[:KNOWN] for v in line[:KNOWN]]
    rest = [v for line in places[:KNOWN] for v in line[KNOWN:]] + [
        v for line in places[KNOWN:] for v in line
    ]
    return sum(known) / len(known), sum(rest) / len(rest)
