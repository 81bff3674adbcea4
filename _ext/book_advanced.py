"""Sections for specialists are folded under a heading that says what is inside.

A section whose title begins with "Advanced: " folds under that title, with its cells and all
sections in it. Links into it open it (``book-form.js``), and paper shows it.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

MARK = "Advanced: "


class FoldAdvanced(SphinxPostTransform):
    """Fold the sections whose title begins with the mark."""

    default_priority = 199
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        """Fold the sections of one page."""
        for section in list(self.document.findall(nodes.section)):
            if not section[0].astext().startswith(MARK):
                continue
            section.insert(1, nodes.raw("", "</summary>", format="html"))
            section.insert(
                0, nodes.raw("", '<details class="book-advanced"><summary>', format="html")
            )
            section.append(nodes.raw("", "</details>", format="html"))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the transform."""
    app.add_post_transform(FoldAdvanced)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
