"""Private words do not come back: ``private_words.toml`` lists them, and the terms to use.

What is read: markdown without code, formulas, addresses and the targets of roles, and of chapters
also the captions and alternative texts of figures, and the titles of tables and cells.
"""

from __future__ import annotations

import html
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[1]
WORDS = tomllib.loads((ROOT / "tests" / "private_words.toml").read_text("utf8"))["word"]
PAGES = [
    *sorted((ROOT / "notebooks").glob("*.ipynb")),
    *sorted((ROOT / "book").glob("*.md")),
]
GAP = "⌷"
"""Stands for a formula or code that was left out."""
TEXT = {"glossary", "admonition", "methods", "chapters", "live", "grid", "rubric", "table"}
"""Directives with text in fences of backticks; others with a name in braces hold code or data."""


def without(pattern: str, text: str, to: str | Callable[[re.Match[str]], str] = "") -> str:
    """Replace what matches, and keep its line breaks, so that numbers of lines stay right."""

    def made(found: re.Match[str]) -> str:
        new = to(found) if callable(to) else to
        return new + "\n" * (found[0].count("\n") - new.count("\n"))

    return re.sub(pattern, made, text, flags=re.MULTILINE | re.DOTALL)


def fence(found: re.Match[str]) -> str:
    """Return the text of a fenced block, or nothing if it holds code or data."""
    name = re.match(r"\{([\w:-]+)\}", found["info"])
    if name and (name[1] in TEXT or name[1].startswith("prf:")):
        first, _, rest = found[0].partition("\n")
        title = "" if name[1] in ("live", "chapters") else first.partition("}")[2]
        return title + "\n" + rest.rpartition("\n")[0]
    return ""


def role(found: re.Match[str]) -> str:
    """Return the words of a role, without its target."""
    words, _, target = found["text"].partition("<")
    plain = found["name"] in ("verdict", "recorded", "abbr", "term", "sub", "sup")
    return words.strip() if plain or target else GAP


def first_line(found: re.Match[str]) -> str:
    """Return the first term of an entry of the glossary: the others are the names not to use."""
    return found[0].partition("\n")[0]


def prose(markdown: str) -> str:
    """Return the words of markdown that a reader meets, on the same lines."""
    text = without(r"\A---\n.*?^---$", markdown)
    text = without(r"<!--.*?-->", text)
    text = without(r"^(?P<at> *)(?P<f>```+|~~~+)(?P<info>[^\n]*)\n.*?^ *(?P=f)[ \t]*$", text, fence)
    text = without(r"\$\$.*?\$\$(?: *\([\w-]+\))?", text, GAP)
    text = without(r"\{(?P<name>[\w:]+)\}`(?P<text>[^`]*)`", text, role)
    text = without(r"(`+).+?\1", text, GAP)
    text = without(r"(?<!\\)\$[^$\n]+(?:\n[^$\n]+)?\$", text, GAP)
    text = without(r"\{\{.*?\}\}", text, GAP)
    text = without(r"\]\([^)\s]*\)|\]\[[^\]]*\]", text, "]")
    text = without(r"^\[[^\]]+\]: \S+$|https?://\S+", text, GAP)
    text = without(r"<[/a-zA-Z][^>]*>", text)
    return without(r"^ *:::+.*?$|^ *:[\w-]+:.*?$|^\([\w-]+\)=$", text)


def shown(cell: Any) -> Iterator[tuple[str, str]]:
    """Yield what a cell of code shows in words: what it is, and the words."""
    first = cell.source.partition("\n")[0]
    if first.startswith("# ") and not first.startswith("# proves"):
        yield "title", prose(first[2:])
    of = cell.metadata.get("mystnb", {})
    yield "caption", prose(of.get("figure", {}).get("caption", ""))
    yield "alternative text", of.get("image", {}).get("alt", "")
    for output in cell.get("outputs", ()):
        data = output.get("data", {})
        plotly = data.get("application/vnd.plotly.v1+json", {})
        yield "alternative text", plotly.get("layout", {}).get("meta", {}).get("alt", "")
        for caption in re.findall(
            r"<caption>(.*?)</caption>", data.get("text/html", ""), re.DOTALL
        ):
            yield "title of a table", html.unescape(re.sub("<[^>]*>", "", caption))


def texts(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the texts of a page, each with where it is."""
    if path.suffix == ".md":
        text = path.read_text("utf8")
        if path.stem == "terms":
            text = without(r"(?<=\n)(?:[^\s`].*?\n)+?(?=  \S)", text, first_line)
        yield path.relative_to(ROOT).as_posix(), prose(text)
        return
    for number, cell in enumerate(nbformat.read(path, 4).cells):
        where = f"{path.relative_to(ROOT).as_posix()}, cell {number}"
        if cell.cell_type == "markdown":
            yield where, prose(cell.source)
        else:
            yield from ((f"{where}, {what}", words) for what, words in shown(cell))


def compiled(pattern: str | list[str]) -> re.Pattern[str]:
    """Compile a pattern of the table, in which a space is any white space within a paragraph."""
    joined = pattern if isinstance(pattern, str) else "|".join(pattern)
    return re.compile(joined.replace(" ", r"(?:[^\S\n]*\n[^\S\n]*|[^\S\n]+)"), re.IGNORECASE)


PATTERNS = [
    (
        compiled(word["pattern"]),
        word["use"],
        [(compiled(one["pattern"]), one.get("pages")) for one in word.get("allow", ())],
    )
    for word in WORDS
]


def found(text: str, page: str = "") -> Iterator[tuple[int, str, str]]:
    """Yield line, word, and what to use, of each private word."""
    text = text.replace("'", "’")
    for pattern, use, allowed in PATTERNS:
        spans = [
            one.span()
            for exception, pages in allowed
            if pages is None or page in pages
            for one in exception.finditer(text)
        ]
        for match in pattern.finditer(text):
            start, end = match.start(), match.start() + len(match[0].rstrip())
            if not any(a < end and start < b and a <= start for a, b in spans):
                line = text.count("\n", 0, start) + 1
                yield line, " ".join(match[0].split()), use


def name_of(path: Path) -> str:
    """Return the name of a page in the table."""
    return path.relative_to(ROOT).with_suffix("").as_posix()


def private_words(path: Path) -> list[str]:
    """Return the private words of a page: file, line, word, and what to use."""
    return [
        f"{where}, line {line}: “{word}”: use {use}"
        for where, text in texts(path)
        for line, word, use in found(text, name_of(path))
    ]


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_a_page_has_no_private_words(path: Path) -> None:
    wrong = private_words(path)
    assert wrong == [], "\n" + "\n".join(wrong)


@pytest.mark.parametrize("word", WORDS, ids=lambda word: word["use"])
def test_the_table_tells_private_words_from_plain_ones(word: dict[str, Any]) -> None:
    for example in word["wrong"]:
        assert word["use"] in [use for _, _, use in found(example)], example
    for example in word["right"]:
        assert word["use"] not in [use for _, _, use in found(example)], example
    for exception in word.get("allow", ()):
        assert exception["reason"]


def test_what_is_no_prose_is_not_read_and_lines_stay() -> None:
    page = """A `turn` and $turn$,
{eq}`eq-turn`, {numref}`turns <figure-turn>`
[words](places.md#turn) <span data-figure="turn?place=1">shown</span> <!-- a
place --> {{ place }}

$$
turn
$$ (eq-turn)

```python
turn
```

:::{div} turn
```{admonition} Predict
:class: turn
It turns.
```
:::
"""
    assert [(line, word) for line, word, _ in found(prose(page))] == [(2, "turns"), (17, "turns")]
