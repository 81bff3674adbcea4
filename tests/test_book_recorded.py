"""A page says below a study's command that its record is of other code, or does not tell."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest
from sphinx.application import Sphinx

from _ext import book_recorded

NOW, BEFORE = "0123456789ab", "0123456789cd"
CODES = {"same": NOW, "other": BEFORE, "old": None, "two": f"{NOW}; {BEFORE}"}
PAGE = """
Chapter
=======

The study, ``python results/{0}.py``, was run.

And ``python results/{0}.py`` is said again.

.. code-block:: bash

   python results/{0}.py --seeds 5
   python results/{1}.py --seeds 5
   python results/{2}.py --seeds 5
   python results/{3}.py --seeds 5

After.
"""
OTHER = "recorded with another version of the code (commit aaaaaaa, bbbbbbb)"
UNKNOWN = "recorded with an unknown version of the code (commit aaaaaaa, bbbbbbb)"


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return what builds a page about four records, and gives its text, line by line."""
    book_recorded.mark.cache_clear()
    monkeypatch.setitem(sys.modules, "book_recorded", book_recorded)
    monkeypatch.setattr(book_recorded, "RESULTS", tmp_path)
    monkeypatch.setattr(book_recorded, "code", lambda name: NOW)
    record = dict.fromkeys(("command", "seeds", "hardware", "versions", "data"), "")
    record["commit"] = "aaaaaaaaaaaa; bbbbbbbbbbbb"
    for name, code in CODES.items():
        told = record if code is None else {**record, "code": code}
        (tmp_path / f"{name}.json").write_text(json.dumps(told), encoding="utf8")

    def build(*names: str, folder: str = "notebooks", name: str = "chapter") -> list[str]:
        title = "A recorded study again"
        source = tmp_path / "source"
        for where, text in (
            ("index", "Title\n=====\n"),
            ("book/running", f"Running\n=======\n\n{title}\n{'-' * len(title)}\n"),
            (f"{folder}/{name}", PAGE.format(*names)),
        ):
            path = source / f"{where}.rst"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf8")
        told = {"extensions": ["book_recorded"], "html_theme": "basic"}
        streams = {"status": None, "warning": io.StringIO()}
        out = tmp_path / "out"
        Sphinx(source, None, out, tmp_path / "trees", "html", told, **streams).build()
        html = (out / folder / f"{name}.html").read_text(encoding="utf8")
        to_running = "" if folder == "book" else "../book/"
        link = f'href="{to_running}running.html#repeat-a-recorded-study"'
        assert html.count(link) == html.count('class="book-recorded"')
        body = html.split('role="main"')[1].split('class="sphinxsidebar"')[0]
        lines = re.sub(r"<[^>]*>", "", body.replace("</p>", "\n")).replace("&#39;", "'")
        return [line.strip() for line in lines.splitlines() if line.strip()]

    yield build
    book_recorded.mark.cache_clear()


def test_records_of_other_code_are_marked_once_below_their_first_command(page) -> None:
    """In the order of a block; a record of two codes is of other code if one of them is."""
    lines = page("other", "same", "old", "two")
    marks = [i for i, line in enumerate(lines) if line.split(": ")[-1] in (OTHER, UNKNOWN)]
    told = [f"other.json: {OTHER}", f"old.json: {UNKNOWN}", f"two.json: {OTHER}"]
    assert [lines[i] for i in marks] == told
    assert lines[marks[0] - 1] == "The study, python results/other.py, was run."
    assert lines[marks[1] - 1] == "python results/two.py --seeds 5"
    assert lines[marks[2] + 1] == "After."
    assert not [line for line in lines if "same.json" in line]


def test_the_page_that_explains_the_mark_has_none(page) -> None:
    lines = page("other", "old", "same", "same", folder="book", name="running")
    assert not [line for line in lines if ".json" in line]


@pytest.mark.parametrize(
    ("largest", "code", "end"),
    [
        (0.0, NOW, "; after 5 steps both versions report the same numbers"),
        (2e-7, NOW, "; after 5 steps both versions report numbers that differ by at most 2e-07"),
        (2e-7, BEFORE, ""),
    ],
)
def test_what_both_codes_do_at_first_is_said(page, tmp_path, largest, code, end) -> None:
    told = {"other": {"code": code, "steps": 5, "largest": largest}}
    (tmp_path / "first_steps.json").write_text(json.dumps(told), encoding="utf8")
    lines = page("same", "other", "same", "same")
    assert f"other.json: {OTHER.replace(' (commit', f'{end} (commit')}" in lines
