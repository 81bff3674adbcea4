"""A chapter takes as long as it says, links lead where they say, and questions stay open."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import nbformat
import pytest

from tools.reading import readings, rounded

ROOT = Path(__file__).resolve().parents[1]
CHAPTERS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda p: p.stem)
def test_a_chapter_takes_as_long_as_it_says(path: Path) -> None:
    main, deeper = readings(path)
    text = "\n".join(c.source for c in nbformat.read(path, 4).cells if c.cell_type == "markdown")
    said = re.search(r"about (\d+) minutes to read(?:, (\d+) more with what is deeper,)? and", text)
    assert said, "a chapter says how long it takes to read"
    assert abs(int(said[1]) - main.minutes) < 4, f"{main}: about {rounded(main.minutes)} minutes"
    assert (said[2] is not None) == bool(deeper.words)
    if said[2]:
        assert abs(int(said[2]) - deeper.minutes) < 4, f"{deeper}: {rounded(deeper.minutes)} more"


def test_links_lead_to_files_and_chapters_to_those_that_they_name() -> None:
    link = re.compile(r"\[(?:[Cc]hapter (\d+))?[^\]\[]*\]\(([\w./-]+\.(?:ipynb|md|py))[)#]")
    wrong, seen = [], 0
    for path in [*CHAPTERS, *(ROOT / "book").glob("*.md"), ROOT / "README.md"]:
        for chapter, leads in link.findall(path.read_text(encoding="utf8")):
            seen += 1
            there = (path.parent / leads).is_file()
            if not there or (chapter and int(chapter) != int(Path(leads).name[:2])):
                wrong.append(f"{path.name}: {leads}")
    assert wrong == []
    assert seen > 500


def test_every_chapter_asks_and_the_right_choice_stands_anywhere() -> None:
    right: Counter[str] = Counter()
    for path in CHAPTERS:
        answers = re.findall(r"<!-- answered: (\d) -->", path.read_text(encoding="utf8"))
        assert len(answers) >= 3, path.stem
        right.update(answers)
    assert all(0.2 < right[place] / right.total() < 0.4 for place in "123"), right


NUMBER = re.compile(r"(?<![\w.])(?:\d+(?:[.,]\d+)*|\.\d+)")
BOX = re.compile(r"```\{admonition\} Predict\n:class: predict\n(.*?)\n```", re.DOTALL)
MARK = re.compile(r"<!-- answered: (\d) -->")


OF_OTHERS = re.compile(r"four heads of 64 channels")
"""Numbers of something else than the choice that has them."""


def given_away(text: str) -> list[str]:
    """Return numbers of right choices that stand open behind an answer, up to the next heading."""
    found = []
    for box in BOX.finditer(text):
        choices = re.findall(r"(?m)^- (.*(?:\n  .*)*)", box[1])
        mark = MARK.search(text, box.end())
        assert mark
        rest = re.split(r"(?m)^#{1,4} |^```\{admonition\} Predict", text[mark.end() :])[0]
        rest = re.sub(r"</?span[^>]*>", "", OF_OTHERS.sub("", rest))
        rest = re.sub(r"\{[a-z:]+\}`([^`<]*)(?:<[^`]*)?`|\]\([^)]*\)", r" \1 ", rest)
        right = choices[int(mark[1]) - 1]
        # a number that stands in the question, or in every choice, tells nothing
        asked = NUMBER.findall(box[1].partition("\n- ")[0])
        told = {*NUMBER.findall(right)} - {*asked}
        found += [f"{right}: {number}" for number in told & {*NUMBER.findall(rest)}]
    return found


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda p: p.stem)
def test_what_stays_open_does_not_give_the_answer_away(path: Path) -> None:
    cells = nbformat.read(path, 4).cells
    assert given_away("\n\n".join(c.source for c in cells if c.cell_type == "markdown")) == []
