"""What stands between a chapter's question and its first experiment, in one line.

What a chapter needs and imports, and its setup, fold under the sentence that says how long it
takes. A figure to try stands below that sentence. A notebook has them in order, as any notebook
does.
"""

from __future__ import annotations

import html
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

TAKES = "It takes"
NEEDS = "You need"
"""How the first paragraph begins that folds; what stands before it is the opening."""
TRY = "Try it"
"""How a paragraph begins that introduces the figure to try."""
SETUP = "what you need, imports and setup"


class FoldBefore(SphinxPostTransform):
    """Fold what precedes the first section of a chapter, but for its question."""

    default_priority = 197  # before code cells fold
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        """Fold one chapter."""
        chapter = next(iter(self.document.findall(nodes.section)), None)
        if chapter is None or not self.env.docname.startswith("notebooks/"):
            return
        takes = next((p for p in paragraphs(chapter) if p.astext().startswith(TAKES)), None)
        if takes is None:
            return
        needs = next((p for p in paragraphs(chapter) if p.astext().startswith(NEEDS)), takes)
        question = chapter.index(needs) - 1
        end = next(
            i
            for i, child in enumerate(chapter)
            if i > question and (isinstance(child, nodes.section) or tries(child))
        )
        chapter.remove(takes)
        line = html.escape(takes.astext().replace("\n", " "))
        chapter.insert(end - 1, nodes.raw("", "</details>", format="html"))
        opening = (
            f'<details class="book-before"><summary><span>{line}</span> '
            f'<span class="book-note">{SETUP}</span></summary>'
        )
        chapter.insert(question + 1, nodes.raw("", opening, format="html"))


def tries(node: nodes.Node) -> bool:
    """Return whether a paragraph introduces the figure to try."""
    return isinstance(node, nodes.paragraph) and node.astext().startswith(TRY)


def paragraphs(section: nodes.Element) -> list[nodes.paragraph]:
    """Return the paragraphs that stand directly in a section."""
    return [child for child in section if isinstance(child, nodes.paragraph)]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the transform."""
    app.add_post_transform(FoldBefore)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
