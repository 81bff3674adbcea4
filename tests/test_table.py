"""Tables of numbers, and listings of code, as a notebook keeps them."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from lab.explore import Source, Table

COLUMNS = {
    "encoder": ["none", "<RoPE>"],
    "accuracy": [(0.125, 0.1, 0.15), (0.9, 0.8, 1.0)],
    "seeds": [3, 10],
}


def test_a_table_is_aligned_text_and_marks_the_row_that_decides():
    assert repr(Table(COLUMNS, caption="Recall", digits=2, marked=["<RoPE>"])).split("\n") == [
        "Recall",
        "encoder  accuracy             seeds",
        "none     0.12 (0.10 to 0.15)  3",
        "<RoPE>   0.90 (0.80 to 1.00)  10  <",
    ]


def test_the_page_has_the_same_words_and_draws_each_interval_on_the_scale_of_its_column():
    html = Table(COLUMNS, caption="a < b", digits=2, marked=["<RoPE>"])._repr_html_()
    words: list[str] = []
    reader = HTMLParser()
    reader.handle_data = lambda data: words.extend(filter(None, [data.strip()]))
    reader.feed(html)
    assert words == [
        *("a < b", "encoder", "accuracy", "seeds"),
        *("none", "0.12", "0.10 to 0.15", "3"),
        *("<RoPE>", "0.90", "0.80 to 1.00", "10"),
    ]
    assert re.findall(r"--mean:(\d+)%;--low:(\d+)%;--high:(\d+)%", html) == [
        ("3", "0", "6"),
        ("89", "78", "100"),
    ]
    assert html.count('<tr class="book-marked"><th scope="row">&lt;RoPE&gt;') == 1


def test_equal_intervals_have_a_bar_too():
    assert "--mean:0%" in Table({"a": ["x"], "b": [(1.0, 1.0, 1.0)]}, caption="c")._repr_html_()


@pytest.mark.parametrize(
    ("columns", "marked", "message"),
    [
        ({}, (), r"columns must be one or more, of one length, got \{\}"),
        ({"a": ["x"], "b": []}, (), r"got \{'a': 1, 'b': 0\}"),
        ({"a": ["x"]}, ["y"], "marked must name rows, x, got 'y'"),
    ],
)
def test_a_table_that_cannot_be_is_refused(columns, marked, message):
    with pytest.raises(ValueError, match=message):
        Table(columns, caption="c", marked=marked)


class Sample:
    """Goes."""

    def method(self, x: int) -> int:
        """Goes too."""
        # stays
        return x + 1


def test_a_listing_is_the_code_without_docstrings():
    body = "def method(self, x: int) -> int:\n    # stays\n    return x + 1"
    source = Source(Sample, Sample.method)
    whole, part = repr(source).split("\n\ndef ")
    assert whole.startswith("class Sample:\n")
    assert "Goes" not in whole
    assert f"def {part}" == body
    assert source._repr_markdown_() == f"```python\n{source!r}\n```"
