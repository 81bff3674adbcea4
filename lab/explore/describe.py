"""Description of a matplotlib figure in words and numbers.

Saved images cannot be compared byte by byte, because other fonts give other pixels. So an image is
saved with this text, which contains for each panel its titles, its scales, and the position of
everything that is drawn.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import matplotlib.figure
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from numpy.typing import ArrayLike

__all__ = ["describe"]

BLOCKS = 8


def describe(figure: matplotlib.figure.Figure) -> str:
    """Return the description, with one line for each panel and for each object drawn in it.

    Points are given as shares of the width and the height of the panel with three decimals, so that
    they mean the same on every scale. If there are many points, the means of ``BLOCKS`` groups
    represent them.

    Args:
        figure: The figure.
    """
    lines = [_words("figure", figure.get_suptitle())]
    for axes in figure.axes:
        lines += [_panel(axes), *(f"  {line}" for line in _drawn(axes))]
    return "\n".join(lines)


def _words(*texts: str) -> str:
    return " | ".join(" ".join(text.split()) for text in texts if text.strip())


def _panel(axes: Axes) -> str:
    """Return titles, labels and scales of a panel."""
    scales = [
        _words(label, scale if scale != "linear" else "", f"{low:.4g} to {high:.4g}")
        for label, scale, (low, high) in (
            (axes.get_xlabel(), axes.get_xscale(), axes.get_xlim()),
            (axes.get_ylabel(), axes.get_yscale(), axes.get_ylim()),
        )
    ]
    ticks = [tick.get_text() for tick in (*axes.get_xticklabels(), *axes.get_yticklabels())]
    legend = axes.get_legend()
    names = [text.get_text() for text in legend.get_texts()] if legend else []
    words = (tick for tick in ticks if tick[:1] != "$" and any(map(str.isalpha, tick)))
    return _words("panel", axes.get_title(), *scales, *names, *words)


def _drawn(axes: Axes) -> Iterator[str]:
    """Yield a line for each thing in a panel."""
    from matplotlib.colors import to_hex

    for line in axes.lines:
        points = _places(axes, line, line.get_xydata())
        yield _words("line", to_hex(line.get_color()), _label(line), _digest(points))
    for patch in axes.patches:
        points = _places(axes, patch, patch.get_path().vertices)
        yield _words("patch", to_hex(patch.get_facecolor()), _label(patch), _digest(points))
    for group in axes.collections:
        offsets = group.get_offset_transform().transform(group.get_offsets())
        if len(offsets) > 1 or offsets.any():  # markers; everything else has its own place
            points = axes.transAxes.inverted().transform(offsets)
        else:
            shapes = [_places(axes, group, path.vertices) for path in group.get_paths()]
            points = np.concatenate([np.empty((0, 2)), *shapes])
        yield _words(type(group).__name__, _label(group), _digest(points), _colours(group))
    for image in axes.images:
        yield _words("image", _label(image), _colours(image))
    for text in axes.texts:
        yield _words("text", text.get_text(), " ".join(f"{v:.4g}" for v in text.get_position()))


def _colours(mappable: ScalarMappable) -> str:
    """Return the values that colours show, as shares of their range."""
    values = mappable.get_array()
    if values is None:
        return ""
    low, high = mappable.get_clim()
    shares = (np.asarray(values, dtype=float) - low) / ((high - low) or 1)
    shape = " × ".join(str(size) for size in shares.shape)
    return f"{shape} values from {low:.3g} to {high:.3g}: {_digest(shares.reshape(-1, 1))}"


def _label(artist: Artist) -> str:
    """Return the name in the legend, if there is one."""
    label = str(artist.get_label())
    return "" if label.startswith("_") else label


def _places(axes: Axes, artist: Artist, points: ArrayLike) -> np.ndarray:
    """Return where data points stand, as shares of the panel."""
    return axes.transAxes.inverted().transform(artist.get_transform().transform(points))


def _digest(points: np.ndarray) -> str:
    """Return how many points there are, and the means of up to ``BLOCKS`` groups of them."""
    near = np.clip(points, -1, 2)  # what is far outside of the panel is not seen
    blocks = np.array_split(near, min(BLOCKS, len(near))) if len(near) else []
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # nothing but gaps
        means = [np.nanmean(block, axis=0) for block in blocks]
    return "; ".join([str(len(points)), *(" ".join(f"{v:.3f}" for v in m) for m in means)])
