"""Tables of numbers, and listings of code, as a notebook keeps them."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from bs4 import BeautifulSoup

from _ext.book_tables import drawn
from lab.explore import Noted, Table

COLUMNS = {
    "encoder": ["none", "<RoPE>"],
    "accuracy": [(0.125, 0.1, 0.15), (0.9, 0.8, 1.0)],
    "seeds": [3, 10],
}


def test_a_table_is_aligned_text_and_marks_the_row_that_decides():
    assert repr(Table(COLUMNS, caption="Recall", digits=2, marked=["<RoPE>"])).split("\n") == [
        "Recall",
        "encoder  accuracy           seeds",
        "none     0.12 [0.10, 0.15]  3",
        "<RoPE>   0.90 [0.80, 1.00]  10  <",
    ]


def test_the_page_has_the_same_words():
    html = Table(COLUMNS, caption="a < b", digits=2, marked=["<RoPE>"])._repr_html_()
    words: list[str] = []
    reader = HTMLParser()
    reader.handle_data = lambda data: words.extend(filter(None, [data.strip()]))
    reader.feed(html)
    assert words == [
        *("a < b", "encoder", "accuracy", "seeds"),
        *("none", "0.12", "[0.10, 0.15]", "3"),
        *("<RoPE>", "0.90", "[0.80, 1.00]", "10"),
    ]
    assert html.count('<tr class="book-marked"><th scope="row">&lt;RoPE&gt;') == 1


def test_a_cell_opens_its_note_without_a_script():
    table = Table({"model": ["GLA"], "bits": [Noted("1.9 < 2", 'of "five" seeds')]}, caption="c")
    assert repr(table).split("\n")[-1] == "GLA    1.9 < 2"
    cell = BeautifulSoup(drawn(table._repr_html_()), "html.parser").td
    assert cell.details.summary.get_text() == "1.9 < 2"
    assert cell.details.get_text() == '1.9 < 2of "five" seeds'


def bars(columns) -> tuple[list[str], list[list[tuple[float, ...]]]]:
    """Return the axes of a table's columns, and where the bars of each row stand, in percent."""
    soup = BeautifulSoup(drawn(Table(columns, caption="c", digits=2)._repr_html_()), "html.parser")
    axes = [axis.get_text(" ") for axis in soup.select(".book-axis")]
    rows = [row.select(".book-bar") for row in soup.select("tbody tr")]
    place = re.compile(r"([\d.]+)%")
    return axes, [[tuple(map(float, place.findall(bar["style"]))) for bar in row] for row in rows]


def test_an_interval_is_drawn_on_an_axis_of_round_numbers():
    axes, rows = bars(COLUMNS)
    assert axes == ["0 1"]
    assert rows == [[(12.0, 10.0, 15.0)], [(90.0, 80.0, 100.0)]]


def test_columns_share_an_axis_where_they_overlap_and_zero_is_a_line():
    gains = {"less": [(-0.1, -0.2, 0.0)], "more": [(0.0, -0.05, 0.2)], "far": [(30.0, 29.0, 31.0)]}
    axes, rows = bars({"encoder": ["none"], **gains})
    assert axes == ["−0.2 0.2", "−0.2 0.2", "29 31"]
    assert rows == [[(25.0, 0.0, 50.0, 50.0), (50.0, 37.5, 100.0, 50.0), (50.0, 0.0, 100.0)]]


@pytest.mark.parametrize("value", [1.0, 0.0, -2.5])
def test_an_interval_without_length_has_an_axis_too(value):
    (axis,), ((places,),) = bars({"a": ["x"], "b": [(value, value, value)]})
    low, high = (float(end.replace("−", "-")) for end in axis.split())
    assert low <= value <= high
    assert places[0] == places[1] == places[2]


@pytest.mark.parametrize(
    ("columns", "marked", "message"),
    [
        ({}, (), r"columns must contain at least one column, .*, got \{\}"),
        ({"a": ["x"], "b": []}, (), r"got \{'a': 1, 'b': 0\}"),
        ({"a": ["x"]}, ["y"], "marked must contain names of rows, x, got 'y'"),
    ],
)
def test_a_table_that_cannot_be_is_refused(columns, marked, message):
    with pytest.raises(ValueError, match=message):
        Table(columns, caption="c", marked=marked)
