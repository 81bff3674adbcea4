"""The form in which JupyterLab shows a chapter."""

from __future__ import annotations

import asyncio
import re
from copy import deepcopy
from functools import cache
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
LINK = re.compile(r"\]\((?!http)([^)\s#]*)(?:#([^)\s]+))?\)")


def test_jupyterlab_shows_no_id_of_a_chapter_and_saves_it_as_it_was() -> None:
    numbers = lab_form.Numbers(ROOT)
    for path in CHAPTERS:
        nb = nbformat.read(path, as_version=4)
        before = deepcopy(nb.cells)
        lab_form.show(nb, path.name, numbers)
        left = OF_THE_BOOK.findall(markdown(nb))
        assert not left, path.name
        lab_form.restore(nb)
        assert [cell.source for cell in nb.cells] == [cell.source for cell in before], path.name


def markdown(nb: nbformat.NotebookNode) -> str:
    """Return the text of a notebook."""
    return "\n".join(cell.source for cell in nb.cells if cell.cell_type == "markdown")


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
    assert any("[(2.1)](#eq-isometry)" in cell["source"] for cell in cells)
    assert all(cell["metadata"]["trusted"] for cell in cells if cell["cell_type"] == "code")
    asyncio.run(lab.save(model, chapter.name))
    assert chapter.read_bytes() == CHAPTERS[1].read_bytes()


def test_every_link_of_a_chapter_leads_somewhere() -> None:
    numbers, lost = lab_form.Numbers(ROOT), set()
    for path in CHAPTERS:
        nb = nbformat.read(path, as_version=4)
        lab_form.show(nb, path.name, numbers)
        for file, anchor in LINK.findall(markdown(nb)):
            target = (path.parent / file).resolve() if file else path
            known = target.is_file() and target.is_relative_to(ROOT)
            if not known or (anchor and anchor not in anchors(target)):
                lost.add(f"{path.name}: {file}#{anchor}")
    assert not lost


@cache
def anchors(path: Path) -> set[str]:
    """Return what a link into a page or a chapter can name: headings, labels and figures."""
    text, names = path.read_text(encoding="utf8"), []
    if path.suffix == ".ipynb":
        nb = nbformat.reads(text, as_version=4)
        text = markdown(nb)
        names = [figure["name"] for figure in map(lab_form.figure_of, nb.cells) if figure]
    titles = re.findall(r"^#+ (.+)$", re.sub(r"\]\([^)]*\)", "]", text), re.MULTILINE)
    slugs = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]
    labels = re.findall(r"\$\$ \((eq-[\w-]+)\)|^:label: ([\w-]+)$", text, re.MULTILINE)
    return {*names, *slugs, *map("".join, labels)}
