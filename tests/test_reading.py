"""A chapter takes as long as it says, links lead where they say, and questions stay open."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import nbformat
import pytest

from tools.reading import BESIDE, SAID, Reading, readings, stated

ROOT = Path(__file__).resolve().parents[1]
CHAPTERS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda p: p.stem)
def test_a_chapter_takes_as_long_as_it_says(path: Path) -> None:
    found = SAID.search(path.read_text(encoding="utf8"))
    assert found
    assert found[0] == stated(path), "python tools/reading.py writes it"


FRAME = ("Where it breaks", "What to remember", *BESIDE)
OPENING = (
    "The question.",
    "The answer in short.",
    "After this chapter you can",
    "You need",
    "It takes",
)


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda p: p.stem)
def test_a_chapter_opens_and_ends_as_all_do(path: Path) -> None:
    text = "\n\n".join(c.source for c in nbformat.read(path, 4).cells if c.cell_type == "markdown")
    sections = re.findall(r"(?m)^## (.*)", text)
    assert len([s for s in sections if not s.startswith(FRAME)]) <= 8, sections
    opening = text.partition("\n## ")[0]
    bold = [found for found in re.findall(r"(?m)^\*\*(.*?)\*\*", opening) if found in OPENING]
    assert bold == [*OPENING]
    frame = ["What to remember", "Check yourself", "Exercises", "Summary"]
    assert sections[-4:] == frame
    (end,) = re.findall(r"(?ms)^## What to remember\n(.*?)^## Check yourself$", text)
    kept, _, use = end.partition("\n### When to use it\n")
    assert 3 <= len(re.findall(r"(?m)^- ", kept)) <= 5
    assert use.strip()


def test_formulas_take_time(tmp_path: Path) -> None:
    path = tmp_path / "chapter.ipynb"
    texts = ["one two $x$", "$$ x $$ (eq-x)", "## Advanced: three\n four"]
    cells = [nbformat.v4.new_markdown_cell(text) for text in texts]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    assert readings(path) == (Reading(2 + 4, 1), Reading(3, 0))


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
