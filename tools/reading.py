"""How long a chapter takes to read: its words, formulas and pictures, on the path and beside it.

The *path* is what everybody reads. *Advanced* is what folds: sections whose title begins with
"Advanced: ", and boxes that are shut, such as proofs. Questions, exercises and the summary, a table
to look things up, count for neither.

    python tools/reading.py    # write into each chapter how long it takes
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import nbformat

WORDS_A_MINUTE = 120
"""Of technical prose."""

WORDS_A_FORMULA = 4
"""As which a formula within a line counts."""

MINUTES_A_PIECE = 0.5
"""For a displayed formula, a figure, or a table."""

BESIDE = {"Advanced: ": "advanced"} | dict.fromkeys(
    ("Check yourself", "Exercises", "Summary"), "beside"
)
SAID = re.compile(r"about \d+ minutes to read(?:, \d+ more with the advanced sections,)? and")
SHOWN = ("application/vnd.plotly.v1+json", "image/svg+xml", "image/png", "text/html")
PIECE = re.compile(r"\$\$.*?\$\$(?: \(eq-[\w-]+\))?|```\{(?:math|live)\}.*?```", re.DOTALL)
FOLDED = re.compile(
    r"^(:{3,}|`{3,})\{(?:admonition\}[^\n]*\n:class: [^\n]*dropdown|dropdown\}).*?^\1$", re.M | re.S
)
NOT_WORDS = re.compile(
    r"<!--.*?-->|^`{3,}\{[\w:-]+\}|\$[^$]*\$|\{[a-z:]+\}`[^`]*`|\]\([^)]*\)|`[^`\n]*`|^:.*$|</?span[^>]*>",
    re.MULTILINE,
)


class Reading(NamedTuple):
    """What is to be read: words, and formulas, figures and tables."""

    words: int
    pieces: int

    @property
    def minutes(self) -> float:
        """How long it takes."""
        return self.words / WORDS_A_MINUTE + self.pieces * MINUTES_A_PIECE


def readings(path: Path) -> tuple[Reading, Reading]:
    """Return what is on the path of a chapter, and the advanced sections."""
    found = {"path": [0, 0], "advanced": [0, 0], "beside": [0, 0]}
    where, depth = "path", 0
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            shown = [kind for out in cell.outputs for kind in SHOWN if kind in out.get("data", {})]
            found[where][1] += bool(shown)
            continue
        for part in re.split(r"(?m)^(?=#{1,4} )", cell.source):
            head = re.match(r"(#+) (.*)", part)
            if head and (where == "path" or len(head[1]) <= depth):
                where = next((w for mark, w in BESIDE.items() if head[2].startswith(mark)), "path")
                depth = len(head[1])
            folds = [fold[0] for fold in FOLDED.finditer(part)]
            for place, texts in ((where, [FOLDED.sub("", part)]), (_inside(where), folds)):
                found[place][0] += sum(map(_words, texts))
                found[place][1] += sum(len(PIECE.findall(text)) for text in texts)
    return Reading(*found["path"]), Reading(*found["advanced"])


def _inside(where: str) -> str:
    """Return where the text of a shut box belongs."""
    return "advanced" if where == "path" else where


def _words(text: str) -> int:
    text = PIECE.sub(" ", text)
    formulas = len(re.findall(r"\$[^$]*\$", text))
    plain = NOT_WORDS.sub(" ", text)
    return len(re.findall(r"[A-Za-z][A-Za-z'’-]*", plain)) + WORDS_A_FORMULA * formulas


def rounded(minutes: float) -> int:
    """Return minutes as a chapter states them: the nearest multiple of five, and at least five."""
    return max(5, 5 * round(minutes / 5))


def stated(path: Path) -> str:
    """Return the words in which a chapter says how long it takes to read."""
    main, advanced = readings(path)
    more = f", {rounded(advanced.minutes)} more with the advanced sections," * bool(advanced.words)
    return f"about {rounded(main.minutes)} minutes to read{more} and"


if __name__ == "__main__":
    for chapter in sorted((Path(__file__).resolve().parents[1] / "notebooks").glob("*.ipynb")):
        old = chapter.read_text(encoding="utf8")
        chapter.write_text(SAID.sub(stated(chapter), old, count=1), encoding="utf8", newline="\n")
