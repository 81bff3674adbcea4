"""Links that are plain words in a notebook.

A chapter writes ``linear_attention`` as code, which any editor can show. Where that is the name of
one thing that the pages of the package describe, or the end of one dotted name, the book links it.
A name that begins with ``stringlib.`` has to be one.

It writes ``[chapter 7](07_cayley_string.ipynb)``; the number on the page is that of the table of
contents, whatever was written.

It writes ``<span data-figure="phase-clocks?seconds=2">at 2</span>``: in the book a link that sets
that figure of the page to that state.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.domains.python import PythonDomain
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.nodes import make_refnode

TWINS = "stringlib.reference."  # bear the names of what they are compared with


CHAPTER = re.compile(r"^([Cc]hapter )\d+$")
STATE = re.compile(r'^<span data-figure="([^"?]+)\??([^"]*)">$')


class MendLinks(SphinxPostTransform):
    """Give links to chapters the numbers of the table of contents, and make those to states."""

    default_priority = 5  # before links are resolved

    def run(self, **kwargs: Any) -> None:
        """Mend the links of one page."""
        for link in self.document.findall(addnodes.pending_xref):
            word = CHAPTER.match(link.astext())
            number = self.env.toc_secnumbers.get(link.get("reftarget"), {}).get("")
            if word and number:
                text = next(iter(link.findall(nodes.Text)))
                text.parent.replace(text, nodes.Text(f"{word[1]}{number[0]}"))
        for start in [*self.document.findall(nodes.raw)]:
            state = STATE.match(start.astext())
            if state:
                self.link_state(start, f"#fig={state[1]}&{state[2]}")

    @staticmethod
    def link_state(start: nodes.raw, address: str) -> None:
        """Make a link of what stands between a span's start and its end."""
        rest = start.parent.children[start.parent.index(start) + 1 :]
        words = []
        for node in rest:
            if isinstance(node, nodes.raw) and node.astext() == "</span>":
                break
            words.append(node)
        end = rest[len(words)]
        for node in [*words, end]:
            node.parent.remove(node)
        start.replace_self(nodes.reference("", "", *words, refuri=address, classes=["book-state"]))


class LinkNames(SphinxPostTransform):
    """Link what inline code names."""

    default_priority = 200

    def run(self, **kwargs: Any) -> None:
        """Link the names of one chapter."""
        if not self.env.docname.startswith("notebooks/"):
            return
        domain: PythonDomain = self.env.get_domain("py")  # type: ignore[assignment]
        known = endings(domain)
        for literal in list(self.document.findall(nodes.literal)):
            name = re.sub(r"\(.*\)$", "", literal.astext())
            full = known.get(name, "")
            inside = literal.parent
            while inside is not None and not isinstance(
                inside, nodes.reference | addnodes.pending_xref
            ):
                inside = inside.parent
            if full and inside is None:
                entry = domain.objects[full]
                link = make_refnode(
                    self.app.builder,
                    self.env.docname,
                    entry.docname,
                    entry.node_id,
                    literal.deepcopy(),
                    full,
                )
                literal.replace_self(link)
            elif name.startswith("stringlib.") and not full:
                logging.getLogger(__name__).warning("no page describes %s", name, location=literal)


def endings(domain: PythonDomain) -> dict[str, str]:
    """Return for each name, and each end of a dotted one, the one thing that it can mean."""
    meant = defaultdict(set)
    for full, entry in domain.objects.items():
        parts = full.split(".")
        # a module, a method or a field alone may be any word
        first = 0 if entry.objtype in ("function", "class", "exception", "data") else 1
        for length in range(first + 1, len(parts)):
            meant[".".join(parts[-length:])].add(full)
        if len(parts) > 1:
            meant[full] = {full}
    own = {
        name: {f for f in found if not f.startswith(TWINS)} or found
        for name, found in meant.items()
    }
    return {name: next(iter(found)) for name, found in own.items() if len(found) == 1}


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the transforms."""
    app.add_post_transform(MendLinks)
    app.add_post_transform(LinkNames)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
