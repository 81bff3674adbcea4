"""What stands for a figure where plotly cannot draw it: its poster, and its words.

GitHub's preview, nbconvert and a JupyterLab without plotly's extension show an output's
``text/html``. A picture in ``src`` passes every one of them, and a sanitiser too, where an
``<svg>`` of its own would not.
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
    """Return what tells whether a poster is of this figure as it stands: what is drawn, no words.

    Args:
        figure: A figure as plain JSON, in its first state.
    """
    layout = {key: value for key, value in figure["layout"].items() if key != "meta"}
    drawn = json.dumps([figure["data"], layout], sort_keys=True)
    return hashlib.sha256(drawn.encode()).hexdigest()[:16]


def poster(figure: Mapping[str, Any], name: str) -> str:
    """Return the poster of a figure as SVG, or nothing where no poster is of it as it stands.

    Args:
        figure: The figure as plain JSON, in its first state.
        name: The name of the explorer, and of its poster.
    """
    path = POSTERS / f"{name}.svg"
    svg = path.read_text(encoding="utf8") if path.exists() else ""
    return svg if digest(figure) in svg else ""


def poster_html(figure: Mapping[str, Any], name: str, said: str) -> str:
    """Return a figure's poster as HTML; its words where no poster is of the figure as it stands.

    Args:
        figure: The figure as plain JSON, in its first state.
        name: The name of the explorer, and of its poster.
        said: What the figure shows, in words.
    """
    svg = poster(figure, name)
    if not svg:
        return f"<p>{html.escape(said)}</p>"
    head, end, rest = svg.partition(">")
    picture = base64.b64encode(f"{head}{end}{GROUND}{rest}".encode()).decode()
    return f'<img alt="{html.escape(said)}" src="data:image/svg+xml;base64,{picture}">'


def drawn_by(draw: Callable[..., Any]) -> tuple[str, str] | None:
    """Return the function that draws, and its file in the repository; None without such a file."""
    draw = inspect.unwrap(draw)
    file = inspect.getsourcefile(draw) if inspect.isfunction(draw) else None
    if file is None or not Path(file).is_relative_to(ROOT):
        return None
    return draw.__name__, Path(file).relative_to(ROOT).as_posix()
