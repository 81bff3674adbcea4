"""The form in which JupyterLab shows a chapter."""

from __future__ import annotations

import asyncio
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tools import lab_form

ROOT = Path(__file__).resolve().parents[1]
CHAPTERS = sorted((ROOT / "notebooks").glob("*.ipynb"))
OF_THE_BOOK = re.compile(
    r"\{(?:eq|prf:ref|numref|verdict|recorded)\}`|^```\{(?:question|live)\}", re.MULTILINE
)


def test_jupyterlab_shows_no_id_of_a_chapter_and_saves_it_as_it_was() -> None:
    numbers = lab_form.Numbers(ROOT)
    for path in CHAPTERS:
        nb = nbformat.read(path, as_version=4)
        before = deepcopy(nb.cells)
        lab_form.show(nb, path.name, numbers)
        assert not any(OF_THE_BOOK.search(cell.source) for cell in nb.cells), path.name
        lab_form.restore(nb)
        assert [cell.source for cell in nb.cells] == [cell.source for cell in before], path.name


def project(folder: Path, *chapters: nbformat.NotebookNode) -> Path:
    """Write a book of these chapters, a.ipynb, b.ipynb, ..."""
    names = "abc"[: len(chapters)]
    files = "".join(f"  - file: notebooks/{name}\n" for name in names)
    toc = f"format: jb-book\nroot: book/intro\nchapters:\n  - file: book/walk\n{files}"
    (folder / "_toc.yml").write_text(toc)
    (folder / "notebooks").mkdir()
    for name, nb in zip(names, chapters, strict=True):
        nbformat.write(nb, folder / "notebooks" / f"{name}.ipynb")
    return folder


def test_numbers_are_those_of_the_book(tmp_path: Path) -> None:
    first = (
        "$$\nx\n$$\n\n$$\ny\n$$ (eq-y)\n\n````{prf:lemma} L\n:label: lem\n$$\nz\n$$ (eq-z)\n````\n"
    )
    figure = new_code_cell(
        metadata={"mystnb": {"figure": {"name": "fig", "caption": "{eq}`eq-y`"}}}
    )
    second = "````{prf:theorem} T\n:label: thm\n````\n\n"
    proof = "````{prf:proof}\n{prf:ref}`lem`, {eq}`eq-z`\n````\n{prf:ref}`thm`, {eq}`eq-none`"
    nbs = (
        new_notebook(cells=[new_markdown_cell(first + "{eq}`eq-z` and {numref}`fig`"), figure]),
        new_notebook(cells=[new_markdown_cell(second + proof)]),
    )
    numbers = lab_form.Numbers(project(tmp_path, *nbs))
    for name, nb in zip(("a.ipynb", "b.ipynb"), nbs, strict=True):
        lab_form.show(nb, name, numbers)
    text, caption = nbs[0].cells[0].source, nbs[0].cells[2].source
    assert text.startswith(
        "---\nnumbering:\n  equation: false\n---\n\n$$\nx\n$$\n\n$$\ny \\tag{1.1}\n$$ (eq-y)"
    )
    assert ":label: lem\n:enumerator: 1.1\n$$\nz \\tag{1.2}\n$$ (eq-z)" in text
    assert text.endswith("[(1.2)](#eq-z) and [Figure 1.1](#fig)")
    assert caption == "(fig)=\n\n**Figure 1.1.** [(1.1)](#eq-y)"
    other = nbs[1].cells[0].source
    assert (
        "{prf:proof}\n:enumerated: false\n[Lemma 1.1](a.ipynb#lem), [(1.2)](a.ipynb#eq-z)\n"
        in other
    )
    assert other.endswith("[Theorem 2.1](#thm), {eq}`eq-none`")  # not labelled yet


def test_an_answer_is_folded_and_a_solution_too() -> None:
    right = "```{question}\n:right: 2\n\nWhich?\n\n- one\n- *two*\n\n---\n\nWhy.\n```"
    number = "```{question}\n:answer: 64 / 2\n:unit: planes\n\nHow many?\n\n---\n\nWhy.\n```"
    broken = "```{question}\n:answer: 64 /\n\nHow many?\n\n---\n\nWhy.\n```"
    nb = new_notebook(
        cells=[
            new_markdown_cell("\n\n".join((right, number, broken))),
            new_markdown_cell("```{solution-start} ex\n```"),
            new_code_cell("solved"),
            new_markdown_cell("```{solution-end}\n```"),
            new_code_cell("check"),
        ]
    )
    lab_form.show(nb, "a.ipynb", lab_form.Numbers(ROOT))
    fold = "```{admonition} Answer\n:class: dropdown\n\n**Answer:** "
    text = nb.cells[0].source
    assert f"-->\n\nWhich?\n\n- one\n- *two*\n\n{fold}*two*.\n\nWhy.\n```" in text
    assert f"-->\n\nHow many?\n\n{fold}32 planes.\n\nWhy.\n```" in text
    assert text.endswith(broken)
    assert nb.cells[2].metadata == {"jupyter": {"source_hidden": True}}
    assert nb.cells[4].metadata == {}


def test_the_server_shows_this_form_and_saves_the_file_as_it_was(tmp_path: Path, lab: Any) -> None:
    chapter = tmp_path / CHAPTERS[1].name
    chapter.write_bytes(CHAPTERS[1].read_bytes())
    lab.notary.sign(nbformat.read(chapter, as_version=4))
    model = asyncio.run(lab.get(chapter.name))
    cells = model["content"]["cells"]
    assert any("[(2.1)](#eq-rope-pair)" in cell["source"] for cell in cells)
    assert all(cell["metadata"]["trusted"] for cell in cells if cell["cell_type"] == "code")
    asyncio.run(lab.save(model, chapter.name))
    assert chapter.read_bytes() == CHAPTERS[1].read_bytes()
