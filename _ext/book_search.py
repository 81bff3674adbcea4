"""The search of the book's pages: what it can find. ``book/_assets/book-search.js`` finds it.

Every section of every page is written to ``_static/book-passages.js``, a script, so that the
search works from disk too: its heading, its paragraphs (short formulas between two word joiners,
others as dots; links that only have a number are left out), and its other names. Those are the
terms of the glossary whose entry links to it, so that ``GQA`` finds a section that does not say so
itself, and the arXiv numbers of the papers that it cites. A paper is a section of the bibliography,
and an entry of the glossary is a section whose other names are its further terms: the search takes
these as synonyms of the first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from book_math import formula
from docutils import nodes
from pybtex.backends.plaintext import Backend
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from tools.citations import ARXIV, entries

TERMS = "book/terms"
REPEATING = {"book/equations", "book/exercises"}
"""Pages that list what chapters say: of these, the first section alone."""
LISTS = re.compile(r'class="(?:[^"]* )?(?:book-formula|glossary)[" ]')
SILENT = (nodes.math_block, nodes.raw, nodes.comment, addnodes.index)
APPARATUS = re.compile(r"(You need|It takes|From stringlib|All symbols are|Alias for field)\b")
LONGEST = 24
"""Characters of a formula that is short."""
JOINER = "\u2060"
"""Stands before and after a formula: nobody sees it, and the search skips what is between."""
SPACED = re.compile(r"\s*([=<>≤≥≠≈≡∈→⊂∼⟂⊥])\s*")
SCRIPTS = {
    "msub": str.maketrans(
        "0123456789+−aehijklmnoprstuvxβγρφχ", "₀₁₂₃₄₅₆₇₈₉₊₋ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓᵦᵧᵨᵩᵪ"
    ),
    "msup": str.maketrans(
        "0123456789+−⊤′abcdehijklmnoprstuvxyz", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ᵀ′ᵃᵇᶜᵈᵉʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛˣʸᶻ"
    ),
}

Passage = tuple[str, str, str, str]
"""Anchor, heading, other names, and text: a line for each paragraph."""


def plain(element: ET.Element) -> str:
    """Return a formula of MathML as a line of text, or "…" in it where a line cannot say it."""
    tag = element.tag.rpartition("}")[2]
    if tag in ("mi", "mn", "mo", "mtext"):
        return {",": ", ", "\u2061": ""}.get(element.text or "", element.text or "")
    if tag in SCRIPTS:
        base, script = map(plain, element)
        moved = script.translate(SCRIPTS[tag])
        return base + moved if all(ord(c) in SCRIPTS[tag] for c in script) else "…"
    if tag in ("math", "semantics", "mrow", "mstyle", "mpadded"):
        return "".join(plain(child) for child in element if not child.tag.endswith("annotation"))
    return "" if tag == "mspace" else "…"


def short(made: str) -> str:
    """Return a formula of MathML as a few characters between two joiners, or dots."""
    line = SPACED.sub(r" \1 ", plain(ET.fromstring(made))).strip()
    return "…" if "…" in line or len(line) > LONGEST else f"{JOINER}{line}{JOINER}"


def is_citation(node: nodes.Node) -> bool:
    """Return whether a node cites a paper."""
    return isinstance(node, addnodes.pending_xref) and node["refdomain"] == "cite"


def said(node: nodes.Node) -> str:
    """Return the words of a node: long formulas as dots, and no links that only have a number."""
    if isinstance(node, nodes.math):
        return short(formula(node, display=False))
    if isinstance(node, SILENT):
        return ""
    if is_citation(node):
        names, year, _ = entries()[node["reftarget"]]
        return f"{names} [{year}]" if node["reftype"] == "t" else f"[{names}, {year}]"
    if isinstance(node, addnodes.pending_xref) and not node.get("refexplicit"):
        return node.astext() if node["refdomain"] == "py" else ""
    if isinstance(node, nodes.Text):
        return str(node)
    return "".join(map(said, node.children))


def heading(node: nodes.Node) -> str:
    """Return the heading of what has one: a section, a function or class; "" for all else.

    Theorems and exercises hold their text in sections without a heading.
    """
    if isinstance(node, addnodes.desc):
        return str(node[0].get("fullname", ""))
    if isinstance(node, nodes.section) and isinstance(node[0], nodes.title):
        return said(node[0]).strip()
    return ""


def leaves(node: nodes.Element) -> Iterator[nodes.Element]:
    """Yield the paragraphs of what has a heading, but not of what has one in it."""
    for child in node.children:
        if isinstance(child, SILENT) or heading(child) or (child is node[0] and heading(node)):
            continue
        if isinstance(child, nodes.container) and "book-question" in child["classes"]:
            continue  # asks what the chapter says, and would give its answer away
        if isinstance(child, nodes.paragraph | nodes.term | nodes.caption | nodes.title):
            yield child
        elif isinstance(child, nodes.Element):
            yield from leaves(child)


def arxiv_numbers(env: BuildEnvironment) -> dict[str, str]:
    """Return key → arXiv number of the papers that have one."""
    cited = env.get_domain("cite").citations  # type: ignore[attr-defined]
    found = {c.key: ARXIV.search(c.entry.fields.get("note", "")) for c in cited}
    return {key: number[1] for key, number in found.items() if number}


def papers(env: BuildEnvironment, page: str) -> Iterator[Passage]:
    """Yield the entries of a bibliography."""
    for citation in env.get_domain("cite").citations:  # type: ignore[attr-defined]
        if citation.bibliography_key.docname == page:
            entry = citation.formatted_entry
            yield citation.citation_id, entry.label, "", entry.text.render(Backend())


def entries_of_glossary(doctree: nodes.document) -> Iterator[Passage]:
    """Yield the entries of the glossary: the first term, the others, and the definition."""
    for item in doctree.findall(nodes.definition_list_item):
        first, *others = item.findall(nodes.term)
        lines = (re.sub(r"\s+", " ", said(leaf)).strip() for leaf in leaves(item[-1]))
        text = "\n".join(
            re.sub(r",? (?=[.,:;])", "", line) for line in lines if re.search(r"\w", line)
        )
        yield first["ids"][0], said(first), ", ".join(map(said, others)), text


def passages(
    doctree: nodes.document, names: dict[str, list[str]], numbers: dict[str, str]
) -> Iterator[Passage]:
    """Yield what can be found on a page.

    Args:
        doctree: The page.
        names: Anchor → other names of what stands there.
        numbers: Key of a paper → its arXiv number, if it has one.
    """
    for node in doctree.findall(heading):
        anchors = (node if isinstance(node, nodes.section) else node[0])["ids"]
        if anchors:
            found = list(leaves(node))
            lines = (re.sub(r"\s+", " ", said(leaf)).strip() for leaf in found)
            keys = {n["reftarget"] for leaf in found for n in leaf.findall(is_citation)}
            known = [name for anchor in anchors for name in names.get(anchor, [])]
            known += sorted(numbers[key] for key in keys & numbers.keys())
            text = [line for line in lines if line and not APPARATUS.match(line)]
            if isinstance(node, addnodes.desc):  # or the reference weighs as much as the chapters
                text = text[:1]
            yield anchors[0], heading(node), ", ".join(known), "\n".join(text)


def other_names(env: BuildEnvironment) -> dict[str, dict[str, list[str]]]:
    """Return page → anchor → the terms whose text on the page of terms links there."""
    found: dict[str, dict[str, list[str]]] = {}
    for item in env.get_doctree(TERMS).findall(nodes.definition_list_item):
        terms = [term.astext() for term in item.findall(nodes.term)]
        for link in item.findall(addnodes.pending_xref):
            page, slug = link["reftarget"], link.get("reftargetid")
            slugs = env.metadata.get(page, {}).get("myst_slugs", {})
            if slugs:  # the first is the page's own heading
                anchor = slugs[slug or next(iter(slugs))][1]
                found.setdefault(page, {}).setdefault(anchor, []).extend(terms)
    return found


def write(app: Sphinx, error: Exception | None) -> None:
    """Write what can be found, when all pages have been."""
    if error or app.builder.format != "html":
        return
    env = app.env
    names = other_names(env) if TERMS in env.found_docs else {}
    numbers = arxiv_numbers(env)
    pages, rows = [], []
    for page in sorted(env.found_docs):
        title = env.titles[page]
        number = ".".join(map(str, env.toc_secnumbers.get(page, {}).get("", ())))
        pages.append([page, f"{number}. {said(title)}" if number else said(title)])
        doctree = env.get_doctree(page)
        found = passages(doctree, names.get(page, {}), numbers)
        for passage in islice(found, 1 if page in {*REPEATING, TERMS} else None):
            rows.append([len(pages) - 1, *passage])
        if page == TERMS:
            rows[-1][-1] = rows[-1][-1].partition("\n")[0]  # what the page is
            rows += [[len(pages) - 1, *entry] for entry in entries_of_glossary(doctree)]
        rows += [[len(pages) - 1, *paper] for paper in papers(env, page)]
    text = json.dumps({"pages": pages, "passages": rows}, ensure_ascii=False, separators=(",", ":"))
    target = Path(app.outdir) / "_static" / "book-passages.js"
    target.write_text(f"window.bookPassages = {text};\n", encoding="utf8")


def without_index(app: Sphinx) -> None:
    """Let Sphinx write neither an index of its own nor its page."""
    app.builder.search = False  # type: ignore[attr-defined]


def page(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield the page of the search."""
    if app.builder.format == "html":
        yield "search", {"title": "Search"}, "search.html"


def add_filter(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Load the filter where there is a list for it."""
    if LISTS.search(context.get("body") or ""):
        app.add_js_file("book-filter.js", loading_method="defer")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register what is written, and the page."""
    app.connect("builder-inited", without_index)
    app.connect("html-collect-pages", page)
    app.connect("html-page-context", add_filter)
    app.connect("build-finished", write)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
