"""Formulas as MathML in the pages: a browser sets them without a script.

Temml (``_ext/temml``, MIT licence) turns TeX into MathML while the book is built; V8, in the wheel
``mini-racer``, runs it. The letters are those of Latin Modern Math (``_ext/latin_modern``, GUST
font licence), cut to what stands in the pages. What Temml cannot read is a warning with its place.
``book-math.css`` lays the formulas out, ``book-copy.js`` copies them as TeX.
"""

from __future__ import annotations

import atexit
import functools
import html
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from docutils import nodes
from fontTools import subset
from py_mini_racer import JSEvalException, MiniRacer
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number

HERE = Path(__file__).parent
TEMML = HERE / "temml" / "temml.min.js"
FONT = HERE / "latin_modern" / "latinmodern-math.woff2"

MACROS = {"\\R": "\\mathbb{R}"}
OPTIONS = {"annotate": True, "throwOnError": True, "macros": MACROS}

# TeX sets no space around these in an index or an exponent, MathML does
TIGHT = set("+−-=<>≤≥±∓×⋅∗∈∉∼≈≠≡→←↦∘⊙⊗∣")
SCRIPTS = {"msub", "msup", "msubsup", "munder", "mover", "munderover"}
# Firefox would draw these as large as a sum
NOT_LARGE = set("⊙⊗⊕")
# accents as the font has them: a line that is no sign of its own, a tilde as wide as a hat
ACCENTS = {"‾": "¯", "~": "˜"}

FORMULA = re.compile(r"<math\b.*?</math>", re.DOTALL)
ANNOTATION = re.compile(r"<annotation\b.*?</annotation>", re.DOTALL)
# the letters of a variable stand upright in the source, a browser takes the slanted ones
SLANTED = (("a", "z", 0x1D44E), ("A", "Z", 0x1D434), ("α", "ω", 0x1D6FC), ("Α", "Ω", 0x1D6E2))
# a root and the slanted letters that have places of their own: ℎ ∂ ϵ ϑ ϕ ϱ
ALSO = {0x221A, 0x210E, 0x1D715, 0x1D716, 0x1D717, 0x1D719, 0x1D71A}

# what no space parts from a formula: a comma, a bracket, the end of "k-th"
BEFORE = re.compile(r"[^\s–—/]+$")
AFTER = re.compile(r"^[^\s–—/]+")

logger = logging.getLogger(__name__)


@functools.cache
def temml() -> MiniRacer:
    """Return the machine that runs Temml."""
    machine = MiniRacer()
    atexit.register(machine.close)  # its thread would keep Python from ending
    if hasattr(os, "register_at_fork"):  # and is not there in a child, which starts its own
        os.register_at_fork(after_in_child=temml.cache_clear)
    machine.eval(f"{TEMML.read_text(encoding='utf8')}; null")
    return machine


@functools.cache
def mathml(tex: str, display: bool) -> str:
    r"""Return a formula as MathML, with its TeX in an annotation.

    Args:
        tex: The formula, without dollars. Several lines (``\\``) are split as Sphinx splits them.
        display: Whether it stands on a line of its own.

    Raises:
        ValueError: If Temml cannot read it.
    """
    if display and "\\\\" in tex and "\\begin{" not in tex:
        tex = f"\\begin{{split}}{tex}\\end{{split}}"
    asked = json.dumps(tex), json.dumps({**OPTIONS, "displayMode": display})
    try:
        made = temml().eval("temml.renderToString({}, {})".format(*asked))
    except JSEvalException as error:
        raise ValueError(str(error).partition("ParseError:")[2].strip()) from error
    root = ET.fromstring(str(made))
    mend(root)
    return ET.tostring(root, encoding="unicode", short_empty_elements=False)


def mend(element: ET.Element, script: bool = False) -> None:
    """Space operators as TeX does, and draw accents as it does, in an element and all it holds.

    Args:
        element: Part of a formula.
        script: Whether it stands in an index or an exponent.
    """
    if element.tag == "mo":
        mend_operator(element, script)
    for place, child in enumerate(element):
        if child.tag == "annotation":
            continue
        mend(child, script or (place > 0 and element.tag in SCRIPTS))
        if element.tag == "mover" and place == 1:
            child.text = ACCENTS.get(child.text or "", child.text)


def mend_operator(element: ET.Element, script: bool) -> None:
    """Set the spaces of one operator, unless Temml has."""
    text = element.text or ""
    if text in NOT_LARGE:
        element.set("largeop", "false")
    if "lspace" in element.attrib or element.get("form") == "prefix":
        return
    space = None
    if text == "mod" and script:
        space = ".278em"
    elif (text in TIGHT and script) or "minsize" in element.attrib:  # as of "\\big|"
        space = "0"
    if space is not None:
        element.attrib |= {"lspace": space, "rspace": space}


def formula(node: nodes.Element, display: bool) -> str:
    """Return a node's formula as MathML, or its TeX as code with a warning."""
    if "mathml" not in node:
        tex = node.astext()
        try:
            node["mathml"] = mathml(tex, display)
        except ValueError as error:
            logger.warning("a formula cannot be read: %s", error, location=node)
            node["mathml"] = f"<code>{html.escape(tex)}</code>"
    return str(node["mathml"])


class SetFormulas(SphinxTransform):
    """Turn a page's formulas into MathML where it is read, which several processes do."""

    default_priority = 800

    def apply(self, **kwargs: Any) -> None:
        """Turn those of one page."""
        for math in self.document.findall(lambda n: isinstance(n, nodes.math | nodes.math_block)):
            formula(math, isinstance(math, nodes.math_block))


def visit_math(self: Any, node: nodes.math) -> None:
    """Write a formula of the text."""
    start = self.starttag(node, "span", "", CLASS="math notranslate nohighlight")
    self.body.append(f"{start}{formula(node, False)}</span>")
    raise nodes.SkipNode


def visit_display(self: Any, node: nodes.math_block) -> None:
    """Write a formula that has a line of its own, and its number."""
    self.body.append(self.starttag(node, "div", CLASS="math notranslate nohighlight"))
    if node["number"]:
        self.body.append(f'<span class="eqno">({get_node_equation_number(self, node)})')
        self.add_permalink_ref(node, "Link to this equation")
        self.body.append("</span>")
    self.body.append(f"{formula(node, True)}</div>\n")
    raise nodes.SkipNode


class KeepTogether(SphinxPostTransform):
    """Keep on a formula's line what no space parts from it."""

    default_priority = 900
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        """Keep what belongs to the formulas of one page."""
        for math in list(self.document.findall(nodes.math)):
            parent = math.parent
            place = parent.index(math)
            before = cut(parent, place - 1, BEFORE)
            after = cut(parent, place + 1, AFTER)
            if before or after:
                kept = nodes.inline(classes=["book-together"])
                parent.replace(math, kept)
                kept += [*before, math, *after]


def cut(parent: nodes.Element, place: int, pattern: re.Pattern[str]) -> list[nodes.Text]:
    """Cut from the text at a place of an element what a pattern finds, and return it."""
    text = parent[place] if 0 <= place < len(parent) else None
    found = pattern.search(text) if isinstance(text, nodes.Text) else None
    if not found:
        return []
    parent[place] = nodes.Text(pattern.sub("", text))
    return [nodes.Text(found[0])]


def characters(pages: Iterable[str]) -> set[int]:
    """Return the characters that the formulas of some pages need."""
    said = {c for page in pages for one in FORMULA.findall(page) for c in bare(one)}
    return {*map(ord, said), *slanted(said), *range(32, 127), *ALSO}


def bare(one: str) -> str:
    """Return a formula's letters and signs alone."""
    return html.unescape(re.sub("<[^>]*>", "", ANNOTATION.sub("", one)))


def slanted(letters: Iterable[str]) -> Iterator[int]:
    """Yield the characters that a browser draws for letters that are variables."""
    for letter in letters:
        for first, last, place in SLANTED:
            if first <= letter <= last:
                yield place + ord(letter) - ord(first)


def write_font(app: Sphinx, exception: Exception | None) -> None:
    """Write the font with the characters of all pages, whichever this build has written."""
    if exception is not None or app.builder.format != "html":
        return
    out = Path(app.outdir)
    pages = (path.read_text(encoding="utf8") for path in out.rglob("*.html"))
    options = subset.Options()
    options.flavor = "woff2"
    options.hinting = False
    options.desubroutinize = True  # packs better
    options.layout_features = ["ssty"]  # primes, and letters for indices
    options.drop_tables += ["FFTM"]  # a time stamp
    font = subset.load_font(FONT, options)
    cutter = subset.Subsetter(options)
    cutter.populate(unicodes=characters(pages))
    cutter.subset(font)
    subset.save_font(font, out / "_static" / "book-math.woff2", options)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer, the transform and the font."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_display, None))
    app.add_transform(SetFormulas)
    app.add_post_transform(KeepTogether)
    app.connect("build-finished", write_font)
    app.add_js_file("book-copy.js", loading_method="defer")
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
