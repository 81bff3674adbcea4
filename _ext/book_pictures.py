"""Matplotlib's pictures as part of the page: SVG in the page's own colours and font.

A notebook saves them as SVG on white (``lab.explore.use_matplotlib_style``). Here white
becomes nothing, and what is drawn in the style's colours for text, axes and grid takes those of the
page, so that one picture serves light and dark. Several pictures of one cell stand side by side
where there is room, and below each other on a phone, above one caption.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from docutils import nodes
from myst_nb import sphinx_
from myst_nb.core import render
from sphinx.application import Sphinx

from lab.explore.style import GRID, MUTED, TEXT

SVG = "image/svg+xml"
THEME = {
    "#ffffff": "none",
    "#000000": "currentColor",
    TEXT: "currentColor",
    MUTED: "var(--pst-color-text-muted)",
    GRID: "var(--book-grid)",
}
PIXELS = 4 / 3  # of a point


def themed(svg: str, key: str, alt: str) -> str:
    """Return a picture as an element of the page.

    Args:
        svg: What matplotlib wrote.
        key: Goes before every id: those of two pictures of a page may be the same.
        alt: What it shows, in words.
    """
    head, body = svg[svg.index("<svg") :].split(">", 1)
    view = re.search(r'viewBox="[\d.]+ [\d.]+ ([\d.]+) ([\d.]+)"', head)
    if view is None:
        raise ValueError(f"svg must have a viewBox, got {head!r}")
    for drawn, own in THEME.items():
        body = body.replace(drawn, own)
    # a style of its own would hold for the whole page
    body = re.sub(r"<style.*?</style>\s*", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="', f'id="{key}-', body)
    body = re.sub(r'(url\(#|href="#)', rf"\g<1>{key}-", body)
    width = round(float(view[1]) * PIXELS)
    return (
        f'<div class="book-picture" style="--width:{width}px">'
        f'<svg {view[0]} role="img" aria-label="{html.escape(alt)}" fill="currentColor" '
        f'xmlns:xlink="http://www.w3.org/1999/xlink">{body}</div>'
    )


class SvgMime:
    """MyST-NB mime render plug-in for pictures."""

    mime_priority_overrides: ClassVar = [("html", SVG, -5)]

    @staticmethod
    def handle_mime(renderer: Any, data: Any, inline: bool) -> list[nodes.Element] | None:
        """Return the node of a picture, or None to leave an output to MyST-NB."""
        if data.mime_type != SVG:
            return None
        # each of several pictures has its own text, given by forest() or tools/notebook_form.py
        alt = data.output_metadata.get(SVG, {}).get("alt", "")
        alt = alt or data.cell_metadata.get("mystnb", {}).get("image", {}).get("alt", "")
        picture = themed(data.content, f"p{data.cell_index}-{data.output_index}", alt)
        return [nodes.raw(text=picture, format="html")]


@contextmanager
def one_figure(renderer: Any, options: Any, line: int) -> Iterator[None]:
    """Wrap an output in its figure: MyST-NB would give each picture of a cell one of the same name.

    Args:
        renderer: MyST-NB's, at the outputs of a cell.
        options: The cell's ``mystnb.figure``, if it has any.
        line: The cell's.
    """
    before = renderer.current_node.children[-1:]
    if options and before and isinstance(before[0], nodes.figure):
        caption = before[0].pop()
        with renderer.current_node_context(before[0]):
            yield
        before[0].append(caption)
    else:
        with render.create_figure_context(renderer, options, line):
            yield


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the plug-in."""
    sphinx_.create_figure_context = one_figure
    plugins = render.load_mime_renders()
    if SvgMime not in plugins:
        plugins.append(SvgMime)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
