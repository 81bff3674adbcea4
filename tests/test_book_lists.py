"""The lists that are made from the chapters: whole, in order, and every fault of a box is named."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from _ext import book_lists

ROOT = Path(__file__).resolve().parents[1]

BOX = """```{admonition} Correction: the sign
:class: correction dropdown
:name: correction-sign

**Source.** *Circulant-STRING Implementation Guide*, §3.10 and §4.

**Claim.** The sign is
+ by the [table](02_b.ipynb).
**Verdict.** Wrong.

**Evidence.** The cell above.

**Corrected.** It is minus.
```
"""
NOTE = "Circulant-STRING Implementation Guide"
NAMED = "KERPLE: Kernelized Attention with Relative Positional Encoding"


def box(**changes: str) -> str:
    """Return the box with parts of it replaced, ``label`` for its name."""
    text = BOX
    for old, new in changes.items():
        before = {"label": "correction-sign", "source": f"*{NOTE}*, §3.10 and §4."}.get(old, old)
        assert before in text
        text = text.replace(before, new)
    return text


def project(root: Path, *texts: str) -> Path:
    """Write a project with one chapter for each text."""
    (root / "notebooks").mkdir(exist_ok=True)
    (root / "book").mkdir(exist_ok=True)
    names = [f"0{n}_chapter" for n in range(1, len(texts) + 1)]
    chapters = "".join(f"  - file: notebooks/{name}\n" for name in names)
    toc = f"format: jb-book\nroot: book/intro\nchapters:\n{chapters}"
    (root / "_toc.yml").write_text(toc, encoding="utf8")
    for name, text in zip(names, texts, strict=True):
        cells = [
            {"cell_type": "markdown", "source": f"# Title of {name}\n"},
            {"cell_type": "markdown", "source": text},
            {"cell_type": "code", "source": f"print('''{BOX}''')"},
        ]
        path = root / "notebooks" / f"{name}.ipynb"
        path.write_text(json.dumps({"cells": cells}), encoding="utf8")
    return root


def faults(root: Path) -> list[str]:
    return list(book_lists.faults(book_lists.corrections(root)))


def test_every_box_of_the_book_is_whole() -> None:
    assert not faults(ROOT)
    found = book_lists.corrections(ROOT)
    texts = [text for _, _, text in book_lists.markdown(ROOT)]
    assert len(found) == sum(text.count("{admonition} Correction") for text in texts) > 40


def test_the_page_says_claim_verdict_and_what_is_true_by_source_and_section(tmp_path: Path) -> None:
    early = box(label="correction-early", source=f"*{NOTE}*, §3.9.")
    named = box(
        label="correction-named", source=f'*{NAMED}*, "Compatibility". *{NOTE}*, §2 and §11.'
    )
    paper = box(label="correction-paper", source="Su et al. [[2024](https://arxiv.org/abs/1)].")
    first = box(
        label="correction-first", source=f'*{NAMED}*, "Overview".', Wrong="Holds with a condition"
    )
    text, wrong = book_lists.correction_list(
        project(tmp_path, f"{BOX}\nText.\n\n{named}", f"{early}\n{first}\n\n{paper}")
    )
    assert not wrong
    lines = [line for line in text.splitlines() if line.startswith(("##", "["))]
    assert lines == [
        f"## {NOTE}",
        "[The sign](#correction-named)",
        "[The sign](#correction-early)",
        "[The sign](#correction-sign)",
        "## Circulant FAVOR+ for Linear Attention and SSM Readout",
        "## Position Embeddings: Sinusoidal, RoPE",
        "## Positional Encodings and ViT Attention – Key Equations",
        f"## {NAMED}",
        "[The sign](#correction-first)",
        "[The sign](#correction-named)",
        "## Papers",
        "[The sign](#correction-paper)",
    ]
    assert "Of the 5 boxes, 4 are about the notes and 1 about a paper. **In 4 the claim" in text
    assert "By verdict: wrong 4, holds with a condition 1." in text
    assert (
        "[The sign](#correction-sign)\n"
        ": **Wrong.** §3.10 and §4, boxed in [chapter 1](../notebooks/01_chapter.ipynb).\n"
        ": **Claim.** The sign is + by the [table](../notebooks/02_b.ipynb).\n"
        ": **Corrected.** It is minus.\n"
    ) in text
    assert "Evidence" not in text


PLANTED = {
    "no source": ({"**Source.** ": ""}, "its fields are Claim, Verdict"),
    "no claim": ({"**Claim.** ": ""}, "its fields are Source, Verdict"),
    "no verdict": ({"**Verdict.** Wrong.": ""}, "its fields are Source, Claim, Evidence"),
    "no evidence": ({"**Evidence.** ": ""}, "its fields are Source, Claim, Verdict, Corrected"),
    "no corrected": ({"**Corrected.** ": ""}, "its fields are Source, Claim, Verdict, Evidence"),
    "an empty field": ({"It is minus.": ""}, "its fields are"),
    "no label": ({":name: correction-sign\n": ""}, "the name is ''"),
    "another label": ({"label": "sign"}, "the name is 'sign'"),
    "no fold": ({" dropdown": ""}, "the class dropdown is missing"),
    "no class": ({":class: correction dropdown\n": ""}, "the class dropdown is missing"),
    "a date": ({"Correction: ": "Correction (2026-01-01): "}, "the title does not begin"),
    "another verdict": ({"Wrong": "Bad"}, "the verdict is 'Bad.', expected one of Wrong,"),
    "another note": ({NOTE: "Some notes"}, "the source is 'Some notes'"),
    "no number": ({"§3.10": '"Theory"'}, "is no section of Circulant-STRING"),
    "no such section": ({"source": f'*{NAMED}*, "Theory".'}, '"Theory" is no section of KERPLE'),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_a_box_lacks_is_named(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    changes, complaint = PLANTED[name]
    root = project(tmp_path, box(**changes))
    fault = next(iter(faults(root)))
    assert fault.startswith("notebooks/01_chapter.ipynb, cell 1, Correction")
    assert complaint in fault
    source = ["```{correction-list}\n```\n"]
    book_lists.fill_in(SimpleNamespace(srcdir=root), "page", source)
    assert complaint in caplog.text


def test_a_label_taken_twice_is_named(tmp_path: Path) -> None:
    (fault,) = faults(project(tmp_path, BOX, BOX.replace("the sign", "another")))
    assert "the name correction-sign is taken, in notebooks/01_chapter.ipynb, cell 1" in fault


def test_every_exercise_is_listed_under_its_chapter(tmp_path: Path) -> None:
    exercise = "```{{exercise-start}} Signs and $x$\n:label: ex-{}\n```\n\nTry.\n"
    text, _ = book_lists.exercise_list(
        project(tmp_path, exercise.format("a") + exercise.format("b"), exercise.format("c"))
    )
    assert text.splitlines() == [
        "3 exercises in 2 chapters.",
        "",
        "## 1. Title of 01_chapter",
        "",
        "- {ref}`ex-a`: Signs and $x$",
        "- {ref}`ex-b`: Signs and $x$",
        "",
        "## 2. Title of 02_chapter",
        "",
        "- {ref}`ex-c`: Signs and $x$",
    ]


def test_no_exercise_of_the_book_is_left_out() -> None:
    text = "\n".join(text for _, _, text in book_lists.markdown(ROOT))
    labels = re.findall(r"\{solution(?:-start)?\} (\S+)", text)
    assert len(labels) == len(re.findall(r"\{exercise(?:-start)?\}", text)) > 60
    listed = re.findall(r"^- \{ref\}`(.+?)`", book_lists.exercise_list(ROOT)[0], re.MULTILINE)
    assert listed == labels


@pytest.mark.parametrize("page", book_lists.PAGES)
def test_a_page_of_the_book_holds_its_list(page: str) -> None:
    source = [(ROOT / f"{page}.md").read_text(encoding="utf8")]
    (name,) = (name for name in book_lists.LISTS if f"```{{{name}}}\n```\n" in source[0])
    book_lists.fill_in(SimpleNamespace(srcdir=ROOT), page, source)
    assert source[0].endswith(book_lists.LISTS[name](ROOT)[0])
