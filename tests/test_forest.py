"""Comparisons as a picture, and the words that a page has for several at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from matplotlib.figure import Figure

from book import forest as drawing
from book.claims import cells_of, faults

ROWS = {
    "random turn": "moved favor: mixed turned at new places",
    "bias": "moved favor: toeplitz at new places",
}
NAME = "performers on moved digits"


def test_a_picture_marks_what_holds_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[Figure, str]] = []

    def keep(figure: Figure, metadata: dict[str, dict[str, str]]) -> None:
        shown.append((figure, metadata[drawing.SVG]["alt"]))

    monkeypatch.setattr(drawing, "display", keep)
    colour: Callable[[str], str] = lambda cell: "mixed"  # noqa: E731
    panels = {"FAVOR+": (NAME, ROWS)}
    table = drawing.forest(panels, colour=colour, label="accuracy", caption="The differences")
    ((figure, told),) = shown
    assert len(figure.axes[0].patches) == 1  # the row that is shaded
    assert told == (
        "The forest plot “FAVOR+” shows the accuracy, in a row for each comparison. An upright "
        "mark or a thick bar is a mean, a horizontal line is its 95% interval, and small ticks are "
        "the seeds. A vertical line at 0 marks no difference. Rows with a significant difference "
        "are shaded. The row “random turn” is significantly worse. The row “bias” is inconclusive. "
        "The table below has the numbers."
    )
    assert repr(table).splitlines()[2].startswith("random turn  -0.181 [-0.327, -0.034]")
    assert table._repr_html_().startswith('<details class="book-numbers"><summary>The differences')


def test_words_for_several_claims_count_and_span_them() -> None:
    before = "moved favor: mixed before at new places | moved favor: cayley before at new places"
    assert len(cells_of(NAME, before)) == 2
    assert faults("worse by .19 to .27", NAME, before) == []
    assert faults("two of two are worse", NAME, before) == []
    for words in (
        "worse by .19 to .28",
        "better by .19 to .27",
        "one of two is worse",
        "inconclusive",
    ):
        assert faults(words, NAME, before)
    assert faults("worse", NAME, "moved favor: *")  # not all of them
    (told,) = faults("worse", NAME, "moved elu: *")
    assert "'moved elu: *'" in told
