"""The poster and the text of a figure, for programs that cannot draw plotly figures.

GitHub's preview, nbconvert and a JupyterLab without plotly's extension show the ``text/html`` of an
output. All of them show an image in ``src``, also after a sanitiser, which would remove an
``<svg>`` element.
"""

from __future__ import annotations

import base64
import hashlib
import html
import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["POSTERS", "digest", "drawn_by", "poster", "poster_html"]

ROOT = Path(__file__).resolve().parents[2]
POSTERS = ROOT / "book" / "_assets" / "posters"
GROUND = '<rect width="100%" height="100%" fill="#fff"/>'


def digest(figure: Mapping[str, Any]) -> str:
    """Return a digest of what a figure draws, by which its poster is recognised.

    Words of the figure do not change the digest.

    Args:
        figure: A figure as plain JSON, in its first state.
    """
    layout = {key: value for key, value in figure["layout"].items() if key != "meta"}
    drawn = json.dumps([figure["data"], layout], sort_keys=True)
    return hashlib.sha256(drawn.encode()).hexdigest()[:16]


def poster(figure: Mapping[str, Any], name: str) -> str:
    """Return the poster of a figure as SVG, or "" if no poster shows its present state.

    Args:
        figure: The figure as plain JSON, in its first state.
        name: Name of the explorer and of its poster.
    """
    path = POSTERS / f"{name}.svg"
    svg = path.read_text(encoding="utf8") if path.exists() else ""
    return svg if digest(figure) in svg else ""


def poster_html(figure: Mapping[str, Any], name: str, said: str) -> str:
    """Return the poster of a figure as HTML, or its text if no poster shows its present state.

    Args:
        figure: The figure as plain JSON, in its first state.
        name: Name of the explorer and of its poster.
        said: The alternative text of the figure.
    """
    svg = poster(figure, name)
    if not svg:
        return f"<p>{html.escape(said)}</p>"
    head, end, rest = svg.partition(">")
    picture = base64.b64encode(f"{head}{end}{GROUND}{rest}".encode()).decode()
    return f'<img alt="{html.escape(said)}" src="data:image/svg+xml;base64,{picture}">'


def drawn_by(draw: Callable[..., Any]) -> tuple[str, str] | None:
    """Return the function that draws and its file in the repository, or None without a file."""
    draw = inspect.unwrap(draw)
    file = inspect.getsourcefile(draw) if inspect.isfunction(draw) else None
    if file is None or not Path(file).is_relative_to(ROOT):
        return None
    return draw.__name__, Path(file).relative_to(ROOT).as_posix()
