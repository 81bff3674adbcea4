"""The page "Six words, one head": sections beside a figure that stays on screen while one scrolls.

    (walk-rope)=
    ## RoPE: rotate queries and keys

    ```{walk-stop} rope
    ```

A section with ``{walk-stop}`` shows that stop of the figure while it is read. ``{walk}``, at the
end of the page, is the figure: an instrument (``{live}``) with a style sheet of its own. A page
that has it loses its sidebars, for room. In the opening of a chapter ``{walk-here} rope``
shows the figure at one stop; its content is the sentence that introduces it.
"""

from __future__ import annotations

import html
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from _ext.book_live import LiveDirective, instrument

STYLE = "live-walk.css"


class WalkStop(SphinxDirective):
    """Say which stop of the figure belongs to the section."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return a mark that the script finds."""
        stop = html.escape(self.arguments[0])
        return [nodes.raw(text=f'<span data-stop="{stop}"></span>', format="html")]


class Walk(LiveDirective):
    """Put the figure into the page."""

    required_arguments = 0

    def run(self) -> list[nodes.Node]:
        """Return the instrument's box, marked as the one that stays."""
        self.arguments = ["walk"]
        [box] = super().run()
        assert isinstance(box, nodes.container)
        box["classes"].append("walk-figure")
        return [box]


class WalkHere(SphinxDirective):
    """Put the figure at one stop into a chapter, after the sentence that introduces it."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the sentence and the instrument's box."""
        self.assert_has_content()
        here = nodes.container(classes=["walk-here"])
        self.state.nested_parse(self.content, self.content_offset, here)
        return [here, instrument(self.env, "walk", f"stop={self.arguments[0]}")]


def figures(doctree: nodes.document) -> list[nodes.container]:
    """Return the figure of the page, if it has one."""
    return [box for box in doctree.findall(nodes.container) if "walk-figure" in box["classes"]]


def beside(app: Sphinx, doctree: nodes.document) -> None:
    """Move the figure out of the last section, so that it stands beside them all."""
    for box in figures(doctree):
        box.parent.remove(box)
        page = next(iter(doctree.findall(nodes.section)))
        page["classes"].append("walk-page")
        page.append(box)


def make_room(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Load the style sheet where the figure is; where it stays on screen, take sidebars away."""
    if not doctree:
        return
    stays = bool(figures(doctree))
    if stays or any("walk-here" in box["classes"] for box in doctree.findall(nodes.container)):
        app.add_css_file(STYLE)
    if stays:
        context["sidebars"] = []


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives."""
    app.add_directive("walk", Walk)
    app.add_directive("walk-here", WalkHere)
    app.add_directive("walk-stop", WalkStop)
    app.connect("doctree-read", beside)
    app.connect("html-page-context", make_room)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
