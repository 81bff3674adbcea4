"""The search of the pages: what it finds, in which order, in either spelling."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest

from _ext.book_search import BookEnglish
from tests.site.reader import DESKTOP, Reader

FINISHED = "/finished|did not match/.test(document.querySelector('.search-summary')?.textContent)"
LINKS = "[...document.querySelectorAll('ul.search > li > a')].map(a => a.getAttribute('href'))"


@pytest.fixture(scope="module")
def window(browser: Any) -> Iterator[Reader]:
    reader = Reader(browser, **DESKTOP)
    yield reader
    reader.close()


def search(window: Reader, site: Path, query: str) -> list[str]:
    """Return the addresses that a query finds, without what they are to highlight."""
    window.page.goto("about:blank")
    window.page.goto((site / "search.html").as_uri() + f"?q={quote_plus(query)}")
    window.page.wait_for_function(FINISHED)
    return [link.partition("?")[0] for link in window.page.evaluate(LINKS)]


def group(link: str) -> int:
    """Return the place of a page's kind in the order of results."""
    kinds = ("notebooks/", "book/terms.", "book/api/", "book/equations.")
    places = [0, 1, 3, 4]
    return next((p for kind, p in zip(kinds, places, strict=True) if link.startswith(kind)), 2)


@pytest.mark.parametrize(
    ("query", "first"),
    {
        "RoPE": "02_rope.html",
        "gate": "16_gating.html#the-layer-and-where-the-gate-stands",
        "Cayley": "07_cayley_string.html",
        "GQA": "09_string_at_inference.html#shared-keys",
        "GQA keys": "09_string_at_inference.html",
        "positional encoding": "01_why_positions.html",
        "rotary embedding": "02_rope.html",
        "SSM": "10_linear_attention.html#a-state-space-model",
        "FAVOR+": "11_favor_plus.html",
        "orthogonal features": "11_favor_plus.html",
    }.items(),
)
def test_a_term_finds_the_chapter_that_explains_it_first(
    query: str, first: str, window: Reader, site: Path
) -> None:
    found = search(window, site, query)
    assert found
    assert found[0].startswith(f"notebooks/{first}")
    kinds = [group(link) for link in found]
    assert kinds == sorted(kinds)


@pytest.mark.parametrize(
    ("british", "american"),
    [
        ("kernelised", "kernelized"),
        ("normalise", "normalize"),
        ("generalisation", "generalization"),
        ("stabiliser", "stabilizer"),
        ("neighbours", "neighbors"),
        ("colour", "color"),
    ],
)
def test_either_spelling_finds_the_same_chapters(
    british: str, american: str, window: Reader, site: Path
) -> None:
    chapters = [
        {link.partition("#")[0] for link in search(window, site, word) if group(link) == 0}
        for word in (british, american)
    ]
    assert chapters[0] == chapters[1] != set()


def test_the_index_and_the_query_are_cut_alike(window: Reader, site: Path) -> None:
    search(window, site, "RoPE")
    words = ["normalized", "kernelised", "size", "resize", "block_size", "analyzer", "analyse"]
    words += ["colorless", "behaviors", "centers", "centred", "modelling", "modeling", "prize"]
    stem = BookEnglish({}).stem
    got = window.page.evaluate("words => words.map(w => new Stemmer().stemWord(w))", words)
    assert got == [stem(word) for word in words]
    assert stem("normalized") == stem("normalised") != "normalized"
    assert stem("resize") == "resiz"
