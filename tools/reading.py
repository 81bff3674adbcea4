"""How long a chapter takes to read: its words, formulas and pictures, on the path and beside it.

The *path* is what everybody reads. *Deeper* is what folds: sections whose title begins with
"Deeper: ", and boxes that are shut, such as proofs. Questions and exercises stand beside both; the
summary is a table to look things up.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import nbformat

WORDS_A_MINUTE = 100
"""Of mathematical prose; with inline formulas left out of the count."""

MINUTES_A_PIECE = 0.5
"""For a displayed formula, a figure, or a table."""

BESIDE = {"Deeper: ": "deeper"} | dict.fromkeys(
    ("Check yourself", "Exercises", "Summary"), "beside"
)
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
    """Return what is on the path of a chapter, and what is deeper."""
    found = {"path": [0, 0], "deeper": [0, 0], "beside": [0, 0]}
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
    return Reading(*found["path"]), Reading(*found["deeper"])


def _inside(where: str) -> str:
    """Return where the text of a shut box belongs."""
    return "deeper" if where == "path" else where


def _words(text: str) -> int:
    plain = NOT_WORDS.sub(" ", PIECE.sub(" ", text))
    return len(re.findall(r"[A-Za-z][A-Za-z'’-]+", plain))


def rounded(minutes: float) -> int:
    """Return minutes as a chapter states them: the nearest multiple of five, and at least five."""
    return max(5, 5 * round(minutes / 5))
