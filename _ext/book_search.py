"""What the search of the book's pages finds, and what it shows first.

* British and American spellings are one word, both in the index and in a query: the stemmer turns
  ``normalize`` into ``normalise`` before it cuts the ending off.
* Every term of the page of terms, with its other names, finds the sections that its text links to,
  also where the section itself does not say it so (``GQA``).
* ``book/_assets/book-scorer.js`` puts chapters before all else.
* ``book/_assets/book-filter.js`` narrows the long lists, terms and formulas, to what is typed.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.search import languages
from sphinx.search.en import SearchEnglish

TERMS = "book/terms"
LISTS = re.compile(r'class="(?:[^"]* )?(?:book-formula|glossary)[" ]')
# American to British, as the book writes. The same patterns serve Python and JavaScript.
SPELLINGS = (
    (r"^([a-z]{4,})iz(?=(?:e|es|ed|er|ers|ing|able|ations?)$)", r"\1is"),
    (r"^([a-z]+)lyz(?=(?:e|es|ed|er|ing)$)", r"\1lys"),
    (r"^(behavi|col|neighb)or", r"\1our"),
    (r"^center(?=s?$)", "centre"),
)
JS_FOLD = """
const porterStemmer = Stemmer;
Stemmer = function () {
  const porter = new porterStemmer();
  this.stemWord = word => porter.stemWord(word%s);
};
"""


def british(word: str) -> str:
    """Return a word, in small letters, in the book's spelling."""
    for pattern, spelling in SPELLINGS:
        word = re.sub(pattern, spelling, word)
    return word


class BookEnglish(SearchEnglish):
    """English in which both spellings of a word have one stem."""

    js_stemmer_code = SearchEnglish.js_stemmer_code + JS_FOLD % "".join(
        f'.replace(/{pattern}/, "{spelling.replace(chr(92), "$")}")'
        for pattern, spelling in SPELLINGS
    )

    def stem(self, word: str) -> str:
        """Return the stem of a word in the book's spelling."""
        return super().stem(british(word.lower()))


def sections(env: BuildEnvironment) -> dict[str, list[tuple[str, str]]]:
    """Return, for every page, the names on the page of terms and the anchors of their sections."""
    found: dict[str, list[tuple[str, str]]] = {}
    if TERMS not in env.found_docs:
        return found
    for item in env.get_doctree(TERMS).findall(nodes.definition_list_item):
        names = [term.astext() for term in item.findall(nodes.term)]
        for link in item.findall(addnodes.pending_xref):
            page, slug = link["reftarget"], link.get("reftargetid")
            if slug:
                anchor = env.metadata[page]["myst_slugs"][slug][1]
                found.setdefault(page, []).extend((name, anchor) for name in names)
    return found


def read_terms(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Return the pages whose terms have changed: they are written again."""
    before, env.book_terms = getattr(env, "book_terms", {}), sections(env)  # type: ignore[attr-defined]
    now = env.book_terms  # type: ignore[attr-defined]
    return [p for p in before.keys() | now.keys() if before.get(p) != now.get(p)]


def add_terms(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Give a page the names of what its sections explain: as index entries and as keywords."""
    terms = app.env.book_terms.get(page)  # type: ignore[attr-defined]
    if terms:
        entries = [("single", name, anchor, "main", None) for name, anchor in terms]
        words = ", ".join(dict.fromkeys(re.findall(r"\w+", " ".join(name for name, _ in terms))))
        doctree += addnodes.index(entries=entries)
        doctree += nodes.meta(name="keywords", content=words)


def add_filter(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Load the filter where there is a list for it."""
    if LISTS.search(context.get("body") or ""):
        app.add_js_file("book-filter.js", loading_method="defer")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the language and the hook."""
    languages["en"] = BookEnglish
    app.connect("env-updated", read_terms)
    app.connect("doctree-resolved", add_terms)
    app.connect("html-page-context", add_filter)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
