"""Questions at the end of a chapter: three, with answers that the build computes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from docutils import nodes

from _ext.book_question import choice, computed, parted, relative, written

CHAPTERS = sorted((Path(__file__).resolve().parents[1] / "notebooks").glob("*.ipynb"))
BLOCK = re.compile(r"```\{question\}\n((?::\w+: [^\n]*\n)+)\n(.*?)\n```", re.DOTALL)


def questions(path: Path) -> Iterator[tuple[dict[str, str], str, str]]:
    """Yield the options, the text and the reason of a chapter's questions."""
    cells = nbformat.read(path, 4).cells
    (at,) = (i for i, cell in enumerate(cells) if cell.source.startswith("## Check yourself\n"))
    assert cells[at + 1].source.startswith("## Exercises\n")
    for options, body in BLOCK.findall(cells[at].source):
        yield dict(re.findall(r"(?m)^:(\w+): (.*)$", options)), *parted(body.split("\n"))


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda p: p.stem)
def test_a_chapter_asks_three_questions(path: Path) -> None:
    asked = [*questions(path)]
    assert len(asked) == 3
    assert sum("answer" in options for options, _, _ in asked) >= 2
    for options, question, _ in asked:
        assert ("answer" in options) != ("right" in options)
        if "answer" in options:
            assert math.isfinite(computed(options["answer"]))
            assert relative(options.get("within", "1%")) <= 0.05
            # nobody checks a bare number
            assert not re.fullmatch(r"[-\d.e]+", options["answer"])
        else:
            assert 1 <= int(options["right"]) <= len(re.findall(r"(?m)^- ", question))


def test_an_answer_is_computed() -> None:
    assert computed("floor(sqrt(17)) - pi") == pytest.approx(4 - math.pi)
    assert computed("sl.ALiBi(8).slopes[0] * 2") == 1


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("64 /", "answer must be a number"),
        ("1 / 0", "division by zero"),
        ("inf", "finite"),
        ("[1, 2]", "must be a number"),
        ("sl.nothing", "nothing"),
        ("open('x')", "may not have open"),
        ("sl.__name__", "may not have sl.__name__"),
        ("(lambda: 1)()", "may not have lambda"),
    ],
)
def test_what_is_no_number_is_refused(expression: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        computed(expression)


def test_a_tolerance_is_a_share_that_lets_no_factor_of_two_pass() -> None:
    assert [relative(text) for text in ("0", "2%", "0.05")] == [0, 0.02, 0.05]
    for text in ("60%", "-1%", "1.5", "some"):
        with pytest.raises(ValueError, match=r"within|could not"):
            relative(text)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (32.0, "32"),
        (-128.0, "−128"),
        (47117.24, "about 47,117"),
        (0.00625, "0.00625"),
        (1 / (7 / 31 + 24 / 31 / 8), "3.1"),
        (7.0710678, "about 7.07"),
        (1.2345e-5, "about 1.23 × 10⁻⁵"),
        (3.5e17, "3.50 × 10¹⁷"),
    ],
)
def test_an_answer_is_written_as_the_page_writes_numbers(number: float, text: str) -> None:
    assert written(number) == text


def test_the_first_line_of_dashes_parts_a_question_from_why() -> None:
    assert parted(["", "How?", "", "---", "", "So.", "---", "Now."]) == ("How?", "So.\n---\nNow.")
    for lines in (["How?"], ["How?", "---", " "], ["---", "So."]):
        with pytest.raises(ValueError, match="a question" if lines[0] == "---" else "why"):
            parted(lines)


@pytest.mark.parametrize("place", ["0", "3", "two"])
def test_a_right_choice_is_one_of_the_list(place: str) -> None:
    points = nodes.bullet_list("", nodes.list_item(), nodes.list_item())
    assert choice(nodes.container("", points), "2") is points[1]
    with pytest.raises(ValueError, match=f"right must be 1 to 2, got {place}"):
        choice(nodes.container("", points), place)
