"""Studies of many runs: interrupted, gone wrong, changed, started twice."""

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.files import locked
from lab.records import read_record
from lab.train.code import code_of, digest
from lab.train.kept import Kept
from lab.train.study import Study

# Dask, from inside
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "tests" / "sweep_study.py"
CELLS = {"b": {"scale": 2}, "a": {"scale": 3, "sizes": [1, 2]}}


def start(output, jobs="1", **environment):
    """Start the study as a reader would, with its own process group for Ctrl-C."""
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), "--output", str(output), "--jobs", jobs],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # what runs in the background of a script ignores Ctrl-C, and its children inherit that
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def data(output):
    """Return the data of a record without the times."""
    found = read_record(output)["data"]
    for cell in found["cells"].values():
        for run in cell["runs"]:
            assert run.pop("wall_s") >= 0
    return found


def runs_of(output):
    return output.with_suffix(".runs.jsonl")


def lines(output):
    return [json.loads(line) for line in runs_of(output).read_text(encoding="utf8").splitlines()]


EXPECTED = {
    "steps": 5,
    "cells": {
        name: {
            "told": CELLS[name],
            "runs": [
                {"seed": seed, "scores": {"test": scale * seed + 5.0}, "process": sizes}
                for seed in range(3)
            ],
        }
        for name, scale, sizes in (("b", 2, []), ("a", 3, [1, 2]))
    },
}
MADE = {"commit": "aaaaaaa", "hardware": {"cores": 3, "cuda": None}, "versions": {"torch": "2"}}


@pytest.fixture
def output(tmp_path):
    return tmp_path / "study.json"


@pytest.fixture
def study(monkeypatch):
    """The study as a module, which its processes can import too."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    return importlib.import_module("sweep_study")


def test_a_study_ends_in_a_record_of_its_cells_as_they_stand(study, output, capsys):
    study.main(["--jobs", "1", "--output", str(output)])
    assert "6 runs to do, 0 done" in capsys.readouterr().out
    assert data(output) == EXPECTED
    assert read_record(output)["code"] == study.STUDY.code == digest(code_of(run=study.run))
    assert list(data(output)["cells"]) == ["b", "a"]  # as defined, not as the alphabet
    assert not runs_of(output).exists()
    record = read_record(output)
    assert record["command"] == "python results/sweep_study.py --seeds 3 --steps 5"
    assert record["seeds"] == [0, 1, 2]
    # the commit of the script, though the record lies outside of every checkout
    if (ROOT / ".git").exists():
        assert record["commit"] != "unknown"


def test_a_run_that_fails_leaves_the_others_and_is_named(study, output, monkeypatch):
    monkeypatch.setenv("WRONG", "a1")
    monkeypatch.setenv("NAN", "b0")
    with pytest.raises(SystemExit) as stopped:
        study.main(["--jobs", "1", "--output", str(output)])
    assert "ArithmeticError: as asked\n^ in 'a' with seed 1" in str(stopped.value)
    assert "must return JSON: Out of range float values" in str(stopped.value)
    assert "^ in 'b' with seed 0" in str(stopped.value)
    assert "2 of 6 runs failed; the others are kept" in str(stopped.value)
    assert not output.exists()
    assert len(lines(output)) == 4
    monkeypatch.delenv("WRONG")
    monkeypatch.delenv("NAN")
    study.main(["--jobs", "1", "--output", str(output)])
    assert data(output) == EXPECTED


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_study_that_is_stopped_keeps_what_is_done(study, output, monkeypatch, capsys, number):
    def add(kept, *what):
        real(kept, *what)
        if len(kept.found) == 2:
            os.kill(os.getpid(), number)

    words = ["--jobs", "1", "--output", str(output)]
    real, before = Kept.add, signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as patch:
        patch.setattr(Kept, "add", add)
        with pytest.raises(SystemExit) as stopped:
            study.main(words)
    assert stopped.value.code == 130
    assert "stopped; what is done is kept" in capsys.readouterr().out
    assert signal.getsignal(signal.SIGTERM) == before
    assert [(line["cell"], line["seed"]) for line in lines(output)] == [("b", 0), ("a", 0)]
    assert not output.exists()
    study.main(words)
    assert "4 runs to do, 2 done" in capsys.readouterr().out
    assert data(output) == EXPECTED


def test_a_killed_process_costs_its_own_run_alone(study, output, monkeypatch, tmp_path, capfd):
    diary = tmp_path / "diary"
    diary.touch()
    with monkeypatch.context() as patch:
        for name, value in {"KILLED": "a1", "DIARY": str(diary), "HANG": ""}.items():
            patch.setenv(name, value)
        with pytest.raises(SystemExit) as stopped:
            study.main(["--jobs", "2", "--output", str(output)])
    told, named, count = str(stopped.value).splitlines()
    assert told.startswith("the process of the run was killed again and again")
    assert named == "^ in 'a' with seed 1"
    assert count.startswith("1 of 6 runs failed; the others are kept in ")
    out, err = capfd.readouterr()
    assert "a seed 1 FAILED" in out
    assert err == ""
    begun = [line.split()[0] for line in diary.read_text().splitlines()]
    assert begun.count("a1") == 2  # killed once, it would have cost nothing: test_study_cluster
    assert len(lines(output)) == 5
    study.main(["--jobs", "1", "--output", str(output)])
    assert data(output) == EXPECTED


def slow(output):
    """Return a study with two processes, of whose runs one lasts and two are done."""
    process = start(output, "2", SLOW="b1")
    deadline = time.monotonic() + 100
    while not runs_of(output).exists() or len(lines(output)) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return process


def test_processes_that_are_stopped_leave_what_is_done(study, output, monkeypatch, capsys):
    process = slow(output)
    process.terminate()  # as kill does; Ctrl-C, which reaches the whole group: test_train_runs
    began = time.monotonic()
    out, err = process.communicate(timeout=60)
    assert time.monotonic() - began < 10  # in the midst of a run
    assert process.returncode == 130
    assert "stopped; what is done is kept" in out
    assert err == ""
    done = [(line["cell"], line["seed"]) for line in lines(output)]
    assert ("b", 1) not in done
    monkeypatch.setenv("WRONG", "b1")  # of the others all may be done
    with pytest.raises(
        SystemExit, match="ArithmeticError: as asked\n\\^ in 'b' with seed 1\n1 of "
    ):
        study.main(["--output", str(output), "--jobs", "1"])
    assert f"{6 - len(done)} runs to do, {len(done)} done" in capsys.readouterr().out
    assert len(lines(output)) == 5
    monkeypatch.delenv("WRONG")
    study.main(["--output", str(output), "--jobs", "1"])
    assert data(output) == EXPECTED


def test_processes_end_with_the_one_that_waits_for_them(study, output):
    process = slow(output)
    process.kill()
    process.communicate(timeout=20)  # its processes have its output open
    assert len(lines(output)) < 6
    study.main(["--output", str(output), "--jobs", "1"])
    assert data(output) == EXPECTED


def test_a_second_process_is_refused_while_the_first_runs(study, output):
    with (
        locked(runs_of(output), "other words"),
        pytest.raises(SystemExit, match="another process runs this study"),
    ):
        study.main(["--output", str(output)])  # a lock of the file, not of the process
    assert not output.exists()


def keep(output, *runs, code="", made=MADE):
    """Return what is kept after some runs more; a run is a cell and its seed."""
    kept = Kept(runs_of(output), CELLS, 5, code)
    for cell, seed in runs:
        kept.add(cell, seed, {"x": 1.5, "wall_s": 0.5}, made)
    return kept


@pytest.mark.parametrize(
    ("cells", "steps", "code", "done", "changed"),
    [
        (CELLS, 5, "new", {("a", 0), ("b", 0)}, 0),
        ({**CELLS, "a": {"scale": 4}}, 5, "new", {("b", 0)}, 0),
        ({"a": CELLS["a"]}, 5, "new", {("a", 0)}, 0),
        (CELLS, 6, "new", set(), 0),
        (CELLS, 5, "newer", set(), 2),
    ],
)
def test_lines_of_another_study_are_not_taken_for_done(output, cells, steps, code, done, changed):
    keep(output, ("a", 0), ("b", 0), code="new")
    kept = Kept(runs_of(output), cells, steps, code)
    assert (set(kept.found), kept.changed) == (done, changed)


def test_a_line_that_was_cut_off_is_done_again_and_spoils_no_other(output):
    keep(output, ("a", 0), ("a", 1))
    path = runs_of(output)
    path.write_text(path.read_text(encoding="utf8")[:-9], encoding="utf8")
    assert set(keep(output).found) == {("a", 0)}
    keep(output, ("a", 2))
    assert set(keep(output).found) == {("a", 0), ("a", 2)}


def test_a_record_says_what_each_run_was_made_with(study, output):
    code = digest(code_of(run=study.run))
    other = {**MADE, "commit": "bbbbbbb", "hardware": {"cores": 5, "cuda": "X"}}
    keep(output, ("a", 0), code=code)
    keep(output, ("b", 0), code=code, made=other)
    words = ["--seeds", "1", "--output", str(output)]
    Study(SCRIPT, "About.", CELLS, study.run, steps=5).main(words)
    record = read_record(output)
    assert (record["commit"], record["versions"]) == ("bbbbbbb; aaaaaaa", {"torch": "2"})
    assert record["hardware"] == {"cores": "5; 3", "cuda": "X; None"}
    assert record["made"] == [{"runs": ["b, seed 0"], **other}, {"runs": ["a, seed 0"], **MADE}]
    assert record["data"]["cells"]["a"]["runs"] == [{"seed": 0, "x": 1.5, "wall_s": 0.5}]


def test_some_cells_alone_leave_no_record_until_none_is_missing(study, output):
    study.main(["--jobs", "1", "--output", str(output), "--only", "a*"])
    assert not output.exists()
    assert {line["cell"] for line in lines(output)} == {"a"}
    study.main(["--jobs", "1", "--output", str(output), "--only", "b"])
    assert data(output) == EXPECTED


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--only", "c"], "--only must fit one of b, a; got 'c'"),
        (["--seeds", "0"], "argument --seeds: must be at least 1, got 0"),
        (["--jobs", "-1"], "argument --jobs: must be at least 1, got -1"),
    ],
)
def test_a_bad_command_line_says_what_is_expected(output, tmp_path, capsys, words, message):
    with pytest.raises(SystemExit) as stopped:
        Study(SCRIPT, "About.", CELLS, dict, steps=5).main(["--output", str(output), *words])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_study_says_what_its_steps_are(capsys):
    with pytest.raises(SystemExit):
        Study(SCRIPT, "About.", CELLS, dict, steps=5, steps_are="calls in a round").main(["--help"])
    assert "calls in a round" in capsys.readouterr().out
