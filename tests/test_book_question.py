"""Questions at the end of a chapter: three, short, with answers that the build computes."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import NamedTuple

import nbformat
import pytest
from docutils import nodes

from _ext.book_question import choice, computed, parted, relative, written

CHAPTERS = sorted((Path(__file__).resolve().parents[1] / "notebooks").glob("*.ipynb"))
BLOCK = re.compile(r"```\{question\}\n((?::\w+: [^\n]*\n)+)\n(.*?)\n```", re.DOTALL)
LONGEST = 45
"""Words of a question without its choices, and of why."""


class Asked(NamedTuple):
    """A question as a chapter has it."""

    options: dict[str, str]
    question: str
    why: str

    @property
    def choices(self) -> list[str]:
        """The points of the list at the end of the question."""
        return re.findall(r"(?m)^- .*", self.question)


def questions(path: Path) -> list[Asked]:
    """Return the questions of a chapter."""
    cells = nbformat.read(path, 4).cells
    (at,) = (i for i, cell in enumerate(cells) if cell.source.startswith("## Check yourself\n"))
    assert cells[at + 1].source.startswith("## Exercises\n")
    found = []
    for options, body in BLOCK.findall(cells[at].source):
        found.append(
            Asked(dict(re.findall(r"(?m)^:(\w+): (.*)$", options)), *parted(body.split("\n")))
        )
    return found


def words(text: str) -> int:
    """Count words; a formula is one, and a choice is none of the question."""
    return len(re.sub(r"\$[^$]*\$", "x", text.split("\n- ")[0]).split())


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda p: p.stem)
def test_a_chapter_asks_three_short_questions(path: Path) -> None:
    asked = questions(path)
    assert len(asked) == 3
    assert sum("answer" in one.options for one in asked) >= 2
    for one in asked:
        assert words(one.question) <= LONGEST, one.question
        assert words(one.why) <= LONGEST, one.why
        assert ("answer" in one.options) != ("right" in one.options)
        if "answer" in one.options:
            assert math.isfinite(computed(one.options["answer"]))
            assert relative(one.options.get("within", "1%")) <= 0.05
            # nobody checks a bare number
            assert not re.fullmatch(r"[-\d.e]+", one.options["answer"])
        else:
            assert 1 <= int(one.options["right"]) <= len(one.choices)


def test_an_answer_is_computed() -> None:
    assert computed("64 / 2") == 32
    assert computed("floor(sqrt(17)) - pi") == pytest.approx(4 - math.pi)
    assert computed("sl.ALiBi(8).slopes[0] * 2") == 1


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("64 /", "answer must be a number"),
        ("1 / 0", "division by zero"),
        ("inf", "finite"),
        ("nan", "finite"),
        ("[1, 2]", "must be a number"),
        ("sl.nothing", "nothing"),
        ("open('x')", "may not have open"),
        ("sl.__name__", "may not have sl.__name__"),
        ("(lambda: 1)()", "may not have lambda"),
        ("__import__('os')", "may not have __import__"),
    ],
)
def test_what_is_no_number_is_refused(expression: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        computed(expression)


@pytest.mark.parametrize("text", ["60%", "-1%", "1.5", "some"])
def test_a_tolerance_that_lets_a_factor_of_two_pass_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"within|could not"):
        relative(text)


def test_a_tolerance_is_a_share() -> None:
    assert [relative(text) for text in ("0", "2%", "0.05")] == [0, 0.02, 0.05]


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


@pytest.mark.parametrize(
    ("lines", "missing"),
    [(["How?"], "why"), (["How?", "---", " "], "why"), (["---", "So."], "a question")],
)
def test_a_question_without_one_of_its_parts_is_refused(lines: list[str], missing: str) -> None:
    with pytest.raises(ValueError, match=missing):
        parted(lines)


def test_only_the_first_line_of_dashes_parts() -> None:
    assert parted(["", "How?", "", "---", "", "So.", "---", "Now."]) == ("How?", "So.\n---\nNow.")


@pytest.mark.parametrize("place", ["0", "3", "two"])
def test_a_right_choice_is_one_of_the_list(place: str) -> None:
    points = nodes.bullet_list("", nodes.list_item(), nodes.list_item())
    assert choice(nodes.container("", points), "2") is points[1]
    with pytest.raises(ValueError, match=f"right must be 1 to 2, got {place}"):
        choice(nodes.container("", points), place)
