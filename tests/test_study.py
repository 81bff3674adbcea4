"""Studies of many runs: interrupted, gone wrong, changed, started twice."""

import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from lab.files import locked
from lab.records import read_record
from lab.train.checkpoint import Checkpoint
from lab.train.code import code_of, digest
from lab.train.learn import Training
from lab.train.study import Study

# Dask, from inside
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "tests" / "sweep_study.py"
CELLS = {"b": {"scale": 2}, "a": {"scale": 3, "sizes": [1, 2]}}


def launch(*words, **environment):
    """Start Python as a reader would, with its own process group for Ctrl-C."""
    return subprocess.Popen(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # what runs in the background of a script ignores Ctrl-C, and its children inherit that
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def words_for(output, jobs="1"):
    return ["--output", str(output), "--jobs", jobs]


def wait_for(found, seconds=100):
    """Return what is found as soon as it is there."""
    deadline = time.monotonic() + seconds
    while not (it := found()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return it


def data(output):
    """Return the data of a record without the times."""
    found = read_record(output)["data"]
    for cell in found["cells"].values():
        for run in cell["runs"]:
            assert run.pop("wall_s") >= 0
    return found


def runs_of(output):
    return output.with_suffix(".runs")


def kept(output, steps=5):
    """Return cell and seed of every run that is over."""
    files = (runs_of(output) / f"{steps}-steps").glob("*/seed-*.pt")
    return {
        (file.parent.name, int(file.stem.removeprefix("seed-")))
        for file in files
        if "found" in torch.load(file, weights_only=True)
    }


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


@pytest.fixture
def output(tmp_path):
    return tmp_path / "study.json"


@pytest.fixture
def study(monkeypatch):
    """The study as a module, which its processes can import too."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    return importlib.import_module("sweep_study")


def test_a_study_ends_in_a_record_of_its_cells_as_they_stand(study, output, capsys):
    study.main(words_for(output))
    assert "6 runs to do, 0 done" in capsys.readouterr().out
    assert data(output) == EXPECTED
    assert read_record(output)["code"] == digest(code_of(SCRIPT))
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
        study.main(words_for(output))
    for words in (
        "ArithmeticError: as asked\n^ in 'a' with seed 1",
        "that JSON can represent: Out of range float values",
        "^ in 'b' with seed 0",
        "2 of 6 runs failed. The others are kept",
    ):
        assert words in str(stopped.value)
    assert not output.exists()
    assert len(kept(output)) == 4
    monkeypatch.delenv("WRONG")
    monkeypatch.delenv("NAN")
    study.main(words_for(output))
    assert data(output) == EXPECTED


class One(nn.Module):
    def __init__(self):
        super().__init__()
        self.number = nn.Parameter(torch.tensor(1.0))


def noted(model, generator):
    """Return a loss, and write down that it was asked for; the fifth asks the run to stop."""
    diary = Path(os.environ["DIARY"])
    with diary.open("a") as file:
        file.write(".")
    if diary.stat().st_size == 5:
        os.kill(os.getpid(), signal.SIGINT)
    return model.number * torch.rand((), generator=generator)


@pytest.mark.parametrize("same", [True, False])
def test_a_run_that_was_stopped_on_its_way_goes_on_unless_its_code_changed(
    output, monkeypatch, tmp_path, same
):
    diary = tmp_path / "diary"
    monkeypatch.setenv("DIARY", str(diary))
    run = Training(One, noted, lambda model: {"number": model.number.item()}, rates=0.1)
    words = [*words_for(output), "--seeds", "1"]
    script = tmp_path / "own_study.py"
    script.write_text("RATE = 0.1", encoding="utf8")
    study = Study(script, "About.", {"a": {}}, run, steps=9)
    with pytest.raises(SystemExit):
        study.main(words)
    (file,) = runs_of(output).rglob("*.pt")
    state = torch.load(file, weights_only=True)
    assert (diary.stat().st_size, state["step"]) == (5, 5)
    earlier = {**state["made"][0], "commit": "aaaaaaa"}
    torch.save({**state, "wall_s": 1000.0, "made": [earlier]}, file)

    script.write_text("RATE = 0.1  # as ever" if same else "RATE = 0.2", encoding="utf8")
    study.main(words)
    assert diary.stat().st_size == (9 if same else 5 + 9)
    record = read_record(output)
    (found,) = record["data"]["cells"]["a"]["runs"]
    assert found["number"] == run(seed=0, steps=9)["number"]
    assert (found["wall_s"] >= 1000) == record["commit"].startswith("aaaaaaa; ") == same


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_study_that_is_stopped_keeps_what_is_done(study, output, monkeypatch, capsys, number):
    def write(file, *what):
        real(file, *what)
        if len(kept(output)) == 2:
            os.kill(os.getpid(), number)

    words = words_for(output)
    real, before = Checkpoint.write, signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "write", write)
        with pytest.raises(SystemExit) as stopped:
            study.main(words)
    assert stopped.value.code == 130
    assert "stopped; what is done is kept" in capsys.readouterr().out
    assert signal.getsignal(signal.SIGTERM) == before
    assert kept(output) == {("b", 0), ("a", 0)}
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
            study.main(words_for(output, "2"))
    told, named, count = str(stopped.value).splitlines()
    assert told.startswith("the process of the run was killed several times")
    assert named == "^ in 'a' with seed 1"
    assert count.startswith("1 of 6 runs failed. The others are kept in ")
    out, err = capfd.readouterr()
    assert "a seed 1 FAILED" in out
    assert err == ""
    begun = [line.split()[0] for line in diary.read_text().splitlines()]
    assert begun.count("a1") == 2  # killed once, it would have cost nothing: test_study_cluster
    assert len(kept(output)) == 5
    study.main(words_for(output))
    assert data(output) == EXPECTED


def test_processes_end_with_the_one_that_waits_for_them(study, output):
    process = launch(str(SCRIPT), *words_for(output, "2"), SLOW="b1")  # one of its runs lasts
    wait_for(lambda: len(kept(output)) >= 2)
    process.kill()
    process.communicate(timeout=20)  # its processes have its output open
    assert len(kept(output)) < 6
    study.main(words_for(output))
    assert data(output) == EXPECTED


def test_a_second_process_is_refused_while_the_first_runs(study, output):
    with (
        locked(runs_of(output) / ".lock", "other words"),
        pytest.raises(SystemExit, match="another process runs this study"),
    ):
        study.main(["--output", str(output)])  # a lock of the file, not of the process
    assert not output.exists()


@pytest.mark.parametrize(
    ("change", "todo"),
    [
        ({}, 0),
        ({"cells": {**CELLS, "a": {"scale": 4}}}, 1),
        ({"cells": {"a": CELLS["a"], "c": {"scale": 2}}}, 1),
        ({"steps": 6}, 2),
        ({"script": __file__}, 2),
    ],
)
def test_runs_of_another_study_are_not_taken_for_done(output, capsys, change, todo):
    told = {"script": SCRIPT, "about": "About.", "cells": CELLS, "steps": 5}
    told["run"] = lambda seed, steps, scale, sizes=(): {"x": 1.5}
    words = [*words_for(output), "--seeds", "1"]
    for each in (told, {**told, **change}):
        output.unlink(missing_ok=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shutil, "rmtree", lambda path: None)  # as if it had not come to an end
            Study(**each).main(words)
    out = capsys.readouterr().out
    assert f"{todo} runs to do, {2 - todo} done" in out.partition("written")[2]
    other = "2 runs in .*study.runs are of other code and do not count: .*other code: .*study was"
    assert bool(re.search(other, out)) == ("script" in change)


def test_some_cells_alone_leave_no_record_until_none_is_missing(study, output):
    study.main([*words_for(output), "--only", "a*"])
    assert not output.exists()
    assert {cell for cell, _ in kept(output)} == {"a"}
    study.main([*words_for(output), "--only", "b"])
    assert data(output) == EXPECTED
