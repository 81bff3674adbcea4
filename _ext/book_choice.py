"""What a reader chooses by: the list of chapters, and numbers in the text.

    ```{chapters} Part I: Rotations
    01_why_positions: Attention sees a set.
    ```

stands for the chapters of that part of ``_toc.yml``, each with its number, its title and the
sentence that is given here. ``{{ bits["ELU, GLA"] }}`` in a page is a number that ``book.recorded``
reads from a record.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx_external_toc.parsing import parse_toc_yaml

from book import facts

FOLDER = "notebooks/"


def parts(root: Path) -> dict[str, list[str]]:
    """Return caption → documents, of the parts of the book whose chapters are numbered."""
    tree = parse_toc_yaml(root / "_toc.yml").root.subtrees
    return {part.caption: [str(item) for item in part.items] for part in tree if part.numbered}


def numbers(root: Path) -> dict[str, int]:
    """Return the number of each chapter: they are counted on from part to part."""
    documents = [document for part in parts(root).values() for document in part]
    return {document: number for number, document in enumerate(documents, 1)}


def told(lines: Iterable[str]) -> dict[str, str]:
    """Return name → words, of lines ``name: words``; what is indented goes on with the last."""
    found: dict[str, str] = {}
    for line in filter(str.strip, lines):
        if line[0] == " " and found:
            found[[*found][-1]] += " " + line.strip()
        else:
            name, _, words = line.partition(":")
            found[name] = words.strip()
    return found


class Chapters(SphinxDirective):
    """List the chapters of a part, each with its sentence."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the list, which starts with the number of the part's first chapter."""
        root = Path(self.env.srcdir)
        self.env.note_dependency(str(root / "_toc.yml"))
        try:
            text = listed(self.arguments[0], list(self.content), root)
        except ValueError as error:
            raise self.error(str(error)) from error
        found: list[nodes.Node] = self.parse_text_to_nodes(text)
        return found


def listed(part: str, lines: list[str], root: Path) -> str:
    """Return the chapters of a part as a list in Markdown.

    Args:
        part: Its caption in ``_toc.yml``.
        lines: ``notebook: sentence``.
        root: Where ``_toc.yml`` is.

    Raises:
        ValueError: If there is no such part, or the lines are not of its chapters.
    """
    known = parts(root)
    if part not in known:
        raise ValueError(f"chapters must name a part, {', '.join(known)}, got {part}")
    found = {FOLDER + name: sentence for name, sentence in told(lines).items()}
    if found.keys() != set(known[part]) or not all(found.values()):
        wanted, got = (", ".join(names) for names in (known[part], found))
        raise ValueError(f"chapters of {part} must have a sentence each: {wanted}; got {got}")
    count = numbers(root)
    return "\n".join(f"{count[name]}. {{doc}}`/{name}`\\\n   {found[name]}" for name in known[part])


def substitute(app: Sphinx, config: Any) -> None:
    """Give the pages the numbers of the records."""
    config.myst_substitutions = {**(config.myst_substitutions or {}), **facts.facts()}


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive and the numbers."""
    app.add_directive("chapters", Chapters)
    app.connect("config-inited", substitute)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
