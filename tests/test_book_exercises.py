"""The list of exercises: whole, and in order."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

from _ext import book_exercises

ROOT = Path(__file__).resolve().parents[1]


def project(root: Path, *texts: str) -> Path:
    """Write a project with one chapter for each text."""
    (root / "notebooks").mkdir()
    names = [f"0{n}_chapter" for n in range(1, len(texts) + 1)]
    chapters = "".join(f"  - file: notebooks/{name}\n" for name in names)
    toc = f"format: jb-book\nroot: book/intro\nchapters:\n{chapters}"
    (root / "_toc.yml").write_text(toc, encoding="utf8")
    for name, text in zip(names, texts, strict=True):
        cells = [
            {"cell_type": "markdown", "source": f"# Title of {name}\n"},
            {"cell_type": "markdown", "source": text},
            {"cell_type": "code", "source": "# Exercise: signs"},
            {"cell_type": "code", "source": f"print('''{text}''')"},
        ]
        path = root / "notebooks" / f"{name}.ipynb"
        path.write_text(json.dumps({"cells": cells}), encoding="utf8")
    return root


def test_every_exercise_is_listed_under_its_chapter(tmp_path: Path) -> None:
    exercise = "```{{exercise-start}} Signs and $x$\n:label: ex-{}\n```\n\nTry.\n"
    text = book_exercises.exercise_list(
        project(tmp_path, exercise.format("a") + exercise.format("b"), exercise.format("c"))
    )
    assert text.splitlines() == [
        "3 exercises in 2 chapters, and 2 of them are marked ▶.",
        "",
        "## 1. Title of 01_chapter",
        "",
        "- {ref}`ex-a`: Signs and $x$",
        "- {ref}`ex-b`: Signs and $x$ ▶",
        "",
        "## 2. Title of 02_chapter",
        "",
        "- {ref}`ex-c`: Signs and $x$ ▶",
    ]


def test_no_exercise_of_the_book_is_left_out() -> None:
    text = "\n".join(text for _, text, _ in book_exercises.markdown(ROOT))
    labels = re.findall(r"\{solution(?:-start)?\} (\S+)", text)
    assert len(labels) == len(re.findall(r"\{exercise(?:-start)?\}", text)) > 60
    listed = re.findall(r"^- \{ref\}`(.+?)`", book_exercises.exercise_list(ROOT), re.MULTILINE)
    assert listed == labels


def test_the_page_holds_the_list() -> None:
    source = [(ROOT / "book/exercises.md").read_text(encoding="utf8")]
    book_exercises.fill_in(SimpleNamespace(srcdir=ROOT), "book/exercises", source)
    assert source[0].endswith(book_exercises.exercise_list(ROOT))
