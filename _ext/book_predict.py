"""Predictions: what follows a box of class ``predict`` waits until the reader has chosen.

The box has a list of choices. ``<!-- answered: 2 -->`` stands where its answer ends and says which
choice is right; readers of the notebook do not see it. What lies between the first cell behind the
box and this mark goes into one container. ``book-predict.js`` hides it, in such a way that a search
in the page and a link find it, and tells the reader; without a script nothing is hidden.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging

ANSWERED = re.compile(r"<!-- answered: (\d+) -->")
logger = logging.getLogger(__name__)


class HoldAnswers(SphinxPostTransform):
    """Put the answer of every prediction into a container, and say which choice is right."""

    default_priority = 197  # MyST-NB has picked an output's form, and nothing is folded yet
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        """Hold the answers of one page."""
        for box in list(self.document.findall(nodes.admonition)):
            if "predict" in box["classes"]:
                self.hold(box)
        for node in self.document.findall(nodes.raw):
            if ANSWERED.search(node.astext()):
                logger.warning("a mark <!-- answered: … --> ends no answer", location=node.parent)

    def hold(self, box: nodes.admonition) -> None:
        """Hold the answer of one box."""
        parent = box.parent
        behind = parent[parent.index(box) + 1 :]
        marks = [node for node in behind if ANSWERED.search(_raw(node))]
        choices = next(iter(box.findall(nodes.bullet_list)), ())
        if not marks or not choices:
            logger.warning(
                "a prediction needs a list, and a mark <!-- answered: 2 --> where its answer "
                "ends, in the same section",
                location=box,
            )
            return
        mark = marks[0]
        right = int(ANSWERED.search(_raw(mark))[1])  # type: ignore[index]
        if not 1 <= right <= len(choices):
            logger.warning(f"answered must be 1 to {len(choices)}, got {right}", location=box)
        held = behind[: behind.index(mark)]
        cells = [i for i, node in enumerate(held) if isinstance(node, nodes.container)]
        held = held[cells[0] if cells else 0 :]
        answer = nodes.container(classes=["book-answer"])
        parent.insert(parent.index(mark), answer)
        for node in held:
            parent.remove(node)
            answer += node
        parent.remove(mark)
        choices[right - 1]["classes"].append("book-right")


def _raw(node: nodes.Node) -> str:
    return node.astext() if isinstance(node, nodes.raw) else ""


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the transform and the script."""
    app.add_post_transform(HoldAnswers)
    app.add_js_file("book-predict.js", loading_method="defer")
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
