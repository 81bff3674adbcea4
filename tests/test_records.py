"""Every recorded result says how it was made, and the chapter that shows it gives the command."""

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
CHAPTERS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PART_FOUR = [path for path in CHAPTERS if int(path.name[:2]) >= 19]


@pytest.mark.parametrize("path", RECORDS, ids=lambda p: p.stem)
def test_a_record_says_how_to_repeat_it(path):
    record = read_record(path)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", record["date"])
    # runs of a study that was stopped and went on may be of several commits
    assert re.fullmatch(r"[0-9a-f]{7,40}(; [0-9a-f]{7,40})*", record["commit"])
    assert {"machine", "processor", "threads", "cuda"} <= record["hardware"].keys()
    assert {"python", "torch"} <= record["versions"].keys()
    assert record["wall_s"] > 0
    if (ROOT / "results" / f"{path.stem}.py").exists():  # a study, with a digest for each commit
        assert re.fullmatch(r"[0-9a-f]{12}(; [0-9a-f]{12})*", record["code"])
    words = shlex.split(record["command"])
    assert words[0] in ("python", "make")
    if words[0] == "python" and words[1] != "-m":
        assert (ROOT / words[1]).exists()


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
