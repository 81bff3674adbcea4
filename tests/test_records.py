"""Every recorded result says how it was made, and part IV draws nothing else."""

import ast
import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from lab.records import read_record, stamp

ROOT = Path(__file__).resolve().parents[1]
RECORDS = sorted((ROOT / "results").glob("*.json"))
RECORDS.remove(ROOT / "results" / "first_steps.json")  # what tools/first_steps.py found of them
FIELDS = {"command", "seeds", "wall_s", "date", "commit", "hardware", "versions", "data"}
PART_FOUR = sorted((ROOT / "notebooks").glob("*.ipynb"))
PART_FOUR = [path for path in PART_FOUR if int(path.name[:2]) >= 19]
FIGURES = {"image/png", "image/svg+xml", "application/vnd.plotly.v1+json"}
MADE_HERE = {"Explorer", "LiveLoss", "forest"}
"""A figure that is made in the notebook, or of a family's record, goes through one of these."""


@pytest.mark.parametrize("path", RECORDS, ids=lambda p: p.stem)
def test_a_record_says_how_to_repeat_it(path):
    record = read_record(path)
    assert record.keys() >= FIELDS
    # runs of a study that was stopped and went on may be of several commits
    assert re.fullmatch(r"[0-9a-f]{7,40}(; [0-9a-f]{7,40})*", record["commit"])
    assert {"machine", "processor", "threads", "cuda"} <= record["hardware"].keys()
    assert {"python", "torch"} <= record["versions"].keys()
    assert record["wall_s"] > 0
    assert re.fullmatch(r"3\.\d+ [0-9a-f]{12}", record.get("code", "3.11 0123456789ab"))
    words = shlex.split(record["command"])
    assert words[0] in ("python", "make")
    if words[0] == "python" and words[1] != "-m":
        assert (ROOT / words[1]).exists()


def code_cells(path):
    """Yield each code cell, parsed, with the cell itself."""
    for cell in json.loads(path.read_text(encoding="utf8"))["cells"]:
        if cell["cell_type"] == "code":
            source = re.sub(r"(?m)^[ \t]*[%!].*$", "", "".join(cell["source"]))
            yield ast.parse(source), cell


def names_read(node):
    """Return the names that a piece of code uses."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def names_bound(node):
    """Return the names that a statement binds."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return {node.name}
    stored = (n for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return {n.id for n in stored}


def draws(cell):
    """Tell whether a cell's outputs hold a figure."""
    return any(FIGURES & out.get("data", {}).keys() for out in cell["outputs"])


def unfounded(path):
    """Return the first line of each figure that comes neither from a record nor from here."""
    known = {"read_record"}  # and what is made of it
    wrong = []
    for tree, cell in code_cells(path):
        for statement in tree.body:
            if names_read(statement) & known:
                known |= names_bound(statement)
        if draws(cell) and not names_read(tree) & (known | MADE_HERE):
            wrong.append("".join(cell["source"]).splitlines()[0])
    return wrong


@pytest.mark.parametrize("path", PART_FOUR, ids=lambda p: p.stem)
def test_every_figure_comes_from_a_record_or_is_made_in_the_chapter(path):
    assert unfounded(path) == []


@pytest.mark.parametrize("path", PART_FOUR, ids=lambda p: p.stem)
def test_the_command_of_every_record_is_in_the_chapter(path):
    cells = json.loads(path.read_text(encoding="utf8"))["cells"]
    code = "".join(s for c in cells if c["cell_type"] == "code" for s in c["source"])
    used = set(re.findall(r'read_record\("([\w-]+)"\)', code))
    assert used, "a chapter of part IV shows recorded results"
    shown = "".join(s for c in cells if c["cell_type"] == "markdown" for s in c["source"])
    for cell in cells:
        for out in cell.get("outputs", []):
            shown += "".join(out.get("text", []))
            shown += "".join(out.get("data", {}).get("text/markdown", []))
    missing = {name: command for name in used if (command := command_of(name)) not in shown}
    assert missing == {}


def command_of(name):
    """Return the command that makes a record, as the book gives it."""
    command = read_record(ROOT / "results" / f"{name}.json")["command"]
    return "make bench" if command.startswith("python -m benchmarks.") else command


def test_a_figure_from_nowhere_is_found(tmp_path):
    def cell(source, figure):
        outputs = [{"data": {"image/png": ""}}] if figure else []
        return {"cell_type": "code", "source": [source], "outputs": outputs}

    cells = [
        cell("runs = read_record(path)['data']\nown = [0.9, 0.8]", False),
        cell("def draw(ax):\n    ax.plot(runs)", False),
        cell("draw(ax)", True),
        cell("plt.plot(own)", True),
        cell("Explorer(figure)", True),
        cell("best = max(runs)", False),
        cell("plt.bar(1, best)", True),
    ]
    path = tmp_path / "18_try.ipynb"
    path.write_text(json.dumps({"cells": cells}), encoding="utf8")
    assert unfounded(path) == ["plt.plot(own)"]


def test_only_records_may_differ_from_the_commit_that_is_recorded(tmp_path):
    def git(*words):
        who = ["-c", "user.name=n", "-c", "user.email=e"]
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    code, record = tmp_path / "code.py", tmp_path / "results" / "one.json"
    record.parent.mkdir()
    for path in (code, record):
        path.write_text("1")
    git("init")
    git("add", ".")
    git("commit", "-m", "all")
    record.write_text("2")
    clean = stamp(record)["commit"]
    code.write_text("2")
    assert re.fullmatch("[0-9a-f]{12}", clean)
    assert stamp(record)["commit"] == stamp(code)["commit"] == f"{clean}-dirty"
