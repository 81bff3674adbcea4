"""The saved form of the notebooks, the tool that holds it, and what each planted fault does."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from lab.explore import poster
from tools import notebooks
from tools.notebook_form import SVG, WIDGET

PNG = "iVBORw0KGgo="
ALT = {"mystnb": {"image": {"alt": "A line that rises."}}}


def printed(text: str) -> nbformat.NotebookNode:
    return new_output("stream", name="stdout", text=text)


def shown(**data: object) -> nbformat.NotebookNode:
    return new_output("display_data", data=data)


def image() -> nbformat.NotebookNode:
    return new_output("display_data", data={"image/png": PNG, "text/plain": "<Figure>"})


def code(source: str, count: int | None, *outputs: object, **metadata: object) -> object:
    return new_code_cell(source, execution_count=count, outputs=list(outputs), metadata=metadata)


def sound() -> nbformat.NotebookNode:
    """Return a notebook without a fault."""
    return new_notebook(
        cells=[
            new_markdown_cell("# A chapter"),
            code("x = 3", 1),
            code("print(x)", 2, printed("3\n")),
            code("draw()", 3, image(), **ALT),
            code("1 / 0", 4, new_output("error", ename="ZeroDivisionError", evalue="division"),
                 tags=["raises-exception"]),
        ]
    )  # fmt: skip


def save(folder: Path, nb: nbformat.NotebookNode, name: str = "chapter.ipynb") -> Path:
    """Write a notebook in its stable form."""
    notebooks.normalise(nb)
    path = folder / name
    path.write_text(notebooks.dump(nb), encoding="utf8")
    return path


def test_a_sound_notebook_has_no_fault(tmp_path: Path) -> None:
    path = save(tmp_path, sound())
    assert notebooks.process(path, "check") == ("same", [])


def test_normalise_keeps_tags_and_image_metadata_and_drops_the_rest() -> None:
    nb = new_notebook(cells=[code("1 + 1", 1, tags=["show-code"], collapsed=True, **ALT)])
    nb.metadata["widgets"] = {"state": {}}
    notebooks.normalise(nb)
    assert nb.cells[0].metadata == {"tags": ["show-code"], **ALT}
    assert set(nb.metadata) == {"kernelspec", "language_info"}
    assert nb.cells[0].id == "cell-00"


def test_a_cell_keeps_its_id_when_another_comes_before_it() -> None:
    nb = sound()
    notebooks.normalise(nb)
    before = [cell.id for cell in nb.cells]
    nb.cells[2:2] = [new_markdown_cell("new"), nb.cells[1].copy()]
    notebooks.normalise(nb)
    assert [cell.id for cell in nb.cells] == [*before[:2], "cell-05", "cell-06", *before[2:]]


def test_each_image_of_a_cell_gets_its_own_alternative_text(tmp_path: Path) -> None:
    def drawn() -> nbformat.NotebookNode:
        return shown(**{SVG: '<svg viewBox="0 0 1 1"></svg>', "text/plain": "<Figure>"})

    def saved(alt: str) -> Path:
        told = {"mystnb": {"image": {"alt": alt}}}
        outputs = [printed("3\n"), drawn(), drawn()]
        return save(tmp_path, new_notebook(cells=[code("draw()", 1, *outputs, **told)]))

    path = saved("A line that rises.\n\nA line that falls.")
    assert notebooks.process(path, "check") == ("same", [])
    _, *images = nbformat.read(path, 4).cells[0].outputs
    texts = [image.metadata[SVG].alt for image in images]
    assert texts == ["A line that rises.", "A line that falls."]
    _, (fault,) = notebooks.process(saved("Two lines."), "check")
    assert "2 images, but alternative texts for 1" in fault


def test_an_editor_folds_the_call_of_a_figure_and_the_setup() -> None:
    figure = code("f", 1, shown(**{notebooks.PLOTLY: plotly("A line.", [1])}))
    nb = new_notebook(cells=[figure, code("# Setup\nimport math", 2), code("import math", 3)])
    notebooks.normalise(nb)
    folded = {"jupyter": {"source_hidden": True}, "cellView": "form"}
    assert [cell.metadata for cell in nb.cells] == [folded, folded, {}]


def test_a_figure_whose_poster_is_drawn_later_gets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poster, "POSTERS", tmp_path)
    meta = {"alt": "A line.", "explorer": {"name": "line"}}
    figure = {"data": [{"y": [1]}], "layout": {"meta": meta}}
    forms = shown(**{notebooks.PLOTLY: figure, "text/html": "old"})
    nb = new_notebook(cells=[code("f", 1, forms)])
    notebooks.store_posters(nb)
    assert nb.cells[0].outputs[0].data["text/html"] == "<p>A line.</p>"
    (tmp_path / "line.svg").write_text(f"<svg></svg><!-- {poster.digest(figure)} -->")
    notebooks.store_posters(nb)
    assert nb.cells[0].outputs[0].data["text/html"].startswith('<img alt="A line."')


def test_normalise_takes_out_what_differs_between_machines() -> None:
    where = f"{notebooks.ROOT}/stringlib/x.py /a/lib/site-packages/torch/y.py <f at 0x7f3a00ff11>"
    error = new_output("error", ename="E", evalue="no", traceback=[f"{where}", "line 2"])
    page = shown(**{"text/html": where})
    nb = new_notebook(cells=[code("f", 1, printed(where), page, error)])
    notebooks.normalise(nb)
    stream, page, error = nb.cells[0].outputs
    assert stream.text == "stringlib/x.py .../site-packages/torch/y.py <f at 0x...>"
    assert page.data["text/html"] == stream.text
    assert error.traceback == ["E: no"]


def test_a_list_of_numbers_takes_one_line_and_keeps_its_values() -> None:
    values = [0, -1.5, 2e-07, None, 1e300]
    text = "not a list: [\\n 1,\\n 2\\n]"
    nb = new_notebook(cells=[code("f", 1, shown(**{notebooks.PLOTLY: {"y": values, "t": text}}))])
    dumped = notebooks.dump(nb)
    assert '"y": [0, -1.5, 2e-07, null, 1e+300]' in dumped
    assert json.loads(dumped) == json.loads(nbformat.writes(nb))


def test_a_chapter_by_itself_says_what_to_install() -> None:
    chapters = [nbformat.read(p, 4).cells for p in (notebooks.ROOT / "notebooks").glob("*.ipynb")]
    setups = [next(c.source for c in cells if c.cell_type == "code") for cells in chapters]
    (head,) = {"\n".join(setup.splitlines()[:4]) for setup in setups}  # the same in all
    run = subprocess.run([sys.executable, "-S", "-I", "-c", head], capture_output=True, text=True)
    said = "AssertionError: Run in the book's repository: make jupyter, or pip install"
    assert said in run.stderr


def test_jupyterlab_saves_a_chapter_in_this_form_and_trusted(tmp_path: Path, lab: Any) -> None:
    figure = shown(**{notebooks.PLOTLY: plotly("A line.", [1.0, 2**63 - 1]), WIDGET: {"id": "7"}})
    nb = new_notebook(cells=[code("f", 7, figure, trusted=True), code("print(1)", 9, printed("1"))])
    for name in ("chapter.ipynb", "other/own.ipynb"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        asyncio.run(lab.save({"type": "notebook", "content": deepcopy(nb)}, name))
    assert WIDGET in (tmp_path / "other" / "own.ipynb").read_text(encoding="utf8")
    text = (tmp_path / "chapter.ipynb").read_text(encoding="utf8")
    assert '"y": [1, 9223372036854776000]' in text  # as a browser writes them
    saved = nbformat.reads(text, as_version=4)
    assert [cell.execution_count for cell in saved.cells] == [1, 2]
    assert lab.notary.check_signature(saved)
    for cell in nb.cells:
        cell.metadata.pop("trusted", None)
    notebooks.normalise(nb)
    assert text == notebooks.dump(nb)
    assert WIDGET not in text


def planted(index: int, **changes: object) -> nbformat.NotebookNode:
    nb = sound()
    nb.cells[index].update(changes)
    return nb


def plotly(alt: str, values: list[int]) -> dict[str, Any]:
    return {"data": [{"y": values}], "layout": {"meta": {"alt": alt}}}


def linked(address: str) -> nbformat.NotebookNode:
    """Return a notebook with a link that sets the figure ``clocks``, whose position is 3 or 4."""
    figure = plotly("A line.", [1])
    controls = [{"name": "position", "texts": ["3", "4"]}]
    figure["layout"]["meta"]["explorer"] = {"name": "clocks", "parameters": controls}
    forms = {notebooks.PLOTLY: figure, "text/html": "<p>A line.</p>"}
    nb = planted(2, outputs=[shown(**forms)])
    nb.cells[0].source = f'<span data-figure="{address}">move it</span>'
    return nb


def out_of_order() -> nbformat.NotebookNode:
    nb = sound()
    nb.cells[1].execution_count, nb.cells[2].execution_count = 2, 1
    return nb


BIG = [*range(notebooks.HARD_LIMIT // 4)]
PLANTED = {
    "one cell not run": (planted(2, execution_count=None, outputs=[]), "cell 2: not run"),
    "out of order": (out_of_order(), "cell 1: run out of order, as 2 not 1"),
    "print without output": (planted(2, outputs=[]), "cell 2: shows something"),
    "untagged error": (planted(4, metadata={}), "cell 4: ends in ZeroDivisionError"),
    "home folder": (planted(2, outputs=[printed("in /home/ann/x.py")]), "'/home/ann/x.py'"),
    "long cell": (planted(1, source="x = 0\n" * 26 + "x = 1"), "cell 1: 27 lines"),
    "no alternative text": (planted(3, metadata={}), "cell 3: an image without"),
    "big picture": (planted(3, outputs=[shown(**{"image/png": PNG * 30_000})]), "at most 300000"),
    "big plotly figure": (
        planted(2, outputs=[shown(**{notebooks.PLOTLY: plotly("A line.", BIG)})]),
        "cell 2: a plotly figure of",
    ),
    "plotly without text": (
        planted(2, outputs=[shown(**{notebooks.PLOTLY: plotly(" ", [1])})]),
        "cell 2: a plotly figure without alternative text",
    ),
    "role of a name": (planted(0, source="{py:func}`~a.b`"), "cell 0: a role {py:...}"),
    "citation in other words": (
        planted(0, source="[RoFormer](https://arxiv.org/abs/2104.09864)"),
        "a link to su2024roformer that reads neither Su et al. [[2024](...)]",
    ),
    "number of a chapter": (planted(0, source="See chapter 7."), "the number of a chapter"),
    "a form of JupyterLab": (planted(0, source="<!-- {live} memory\n-->"), "cell 0: '<!-- {'"),
    "no such state": (linked("clocks?position=5"), "'position' of the figure 'clocks' to '5'"),
    "no such control": (linked("clocks?pos=3"), "'pos' of the figure 'clocks' to '3'"),
    "no such figure": (linked("dials?position=3"), "'dials', which this notebook does not draw"),
    "no code": (new_notebook(cells=[new_markdown_cell("text")]), "no code cell"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_named(name: str, tmp_path: Path) -> None:
    nb, message = PLANTED[name]
    _, found = notebooks.process(save(tmp_path, nb), "check")
    assert any(message in fault for fault in found), found


def test_a_link_to_a_state_that_a_figure_has_is_no_fault(tmp_path: Path) -> None:
    assert notebooks.process(save(tmp_path, linked("clocks?position=4")), "check")[1] == []


def test_paths_that_are_the_same_everywhere_are_no_fault(tmp_path: Path) -> None:
    text = "https://example.org/home/x, notebooks/home/x, .../site-packages/tmp/x, 3/tmp, a:/b"
    nb = planted(2, outputs=[printed(text)])
    assert notebooks.process(save(tmp_path, nb), "check")[1] == []


def test_another_form_is_refused_and_written_anew(tmp_path: Path) -> None:
    path = save(tmp_path, sound())
    stable = path.read_text()
    other = stable.replace('"cell-01"', '"a1b2c3"')
    path.write_text(other)
    assert notebooks.process(path, "check")[0] == "not in its stable form"
    assert path.read_text() == other
    assert notebooks.process(path, "no-run") == ("rewritten", [])
    assert path.read_text() == stable


def test_the_command_fails_on_a_fault_and_passes_without(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = lambda jobs, **_: ThreadPoolExecutor(jobs)  # noqa: E731  # processes take seconds
    monkeypatch.setattr(notebooks, "ProcessPoolExecutor", threads)
    good = save(tmp_path, sound(), "good.ipynb")
    bad = save(tmp_path, planted(1, execution_count=None), "bad.ipynb")
    assert notebooks.main(["--check", str(good)]) == 0
    assert notebooks.main(["--check", str(good), str(bad)]) == 1
    assert "bad.ipynb: cell 1: not run" in capfd.readouterr().err


def test_two_runs_leave_the_same_bytes(tmp_path: Path) -> None:
    cells = [
        code("print(1 / 3)", None),
        code("import time\ntime.time()", None, tags=["nbval-ignore-output"]),
        code("import os\nos.environ['OMP_NUM_THREADS']", None),
    ]
    path = save(tmp_path, new_notebook(cells=cells))
    assert notebooks.main([str(path)]) == 0
    first = path.read_bytes()
    assert b"0.3333333333333333" in first
    assert nbformat.read(path, 4).cells[2].outputs[0].data["text/plain"] == "'1'"
    assert notebooks.process(path, "run")[1] == []
    assert path.read_bytes() == first


def test_a_cell_that_fails_leaves_the_notebook_alone(tmp_path: Path) -> None:
    path = save(tmp_path, new_notebook(cells=[code("x = 1", None), code("x / 0", None)]))
    before = path.read_bytes()
    state, found = notebooks.process(path, "run")
    assert state == "left as it was"
    assert "ZeroDivisionError" in found[0]
    assert path.read_bytes() == before
