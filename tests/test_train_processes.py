"""Two processes give what one gives, and stop together."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from lightning_fabric import Fabric

from lab.records import read_record
from lab.tasks import TASKS
from lab.train.__main__ import main
from tests.two_processes import Recall64

ROOT = Path(__file__).parents[1]


def launch(words, **environment):
    """Run the command in two processes, and wait for both."""
    paths = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "RECALL64": ""}
    return subprocess.run(
        [sys.executable, "-m", "lab.train", *words, "--devices", "2"],
        env={**os.environ, **paths, **environment},
        capture_output=True,
        text=True,
        timeout=240,
    )


def load(folder, seed=0):
    path = folder / "relu+circulant" / f"seed-{seed}" / "checkpoint.pt"
    return torch.load(path, weights_only=True)


def test_two_processes_stop_together_go_on_and_end_where_one_does(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(TASKS, "recall64", Recall64)
    words = ["recall64", "--task-option", "pairs=3", "--accelerator", "cpu", "--seeds", "2"]
    words += ["--attention", "relu", "--encoder", "circulant", "--model-option", "rotate=after"]
    words += ["--steps", "12", "--batch-size", "6", "--log-every", "2", "--evaluate-every", "5"]
    words += ["--rate", "1e-2", "--weight-decay", "0.1", "--penalty", "0.1", "--clip", "0.5"]
    one, two = tmp_path / "one", tmp_path / "two"
    assert main([*words, "--folder", str(one)]) == 0
    assert capsys.readouterr().err == ""
    words += ["--import", "tests.two_processes", "--folder", str(two)]
    stopped = launch(words, STOP="5")  # the first process, and it alone
    assert (stopped.returncode, stopped.stdout) == (130, "")
    assert stopped.stderr.count("stopped after 5 of 12 steps") == 1
    assert load(two)["step"] == 5
    ended = launch(words)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.count("relu circulant, seed 1: accuracy") == 1
    assert ended.stdout.count("| method") == 1
    for seed in (0, 1):
        wanted, found = (load(folder, seed)["parts"] for folder in (one, two))
        for name, value in wanted["model"].items():
            # float64, the same batch, another order of addition
            assert torch.allclose(value, found["model"][name], rtol=0, atol=1e-12), name
        assert torch.equal(found["model"]["unused"], torch.ones(3, dtype=torch.float64))
        wanted, found = wanted["history"], found["history"]
        for key in ("losses", "norms", "rates"):
            pairs = zip(wanted[key], found[key], strict=True)
            assert all(abs(a - b) < 1e-12 for a, b in pairs), key
        for key in ("steps", "evaluations", "scores"):
            assert wanted[key] == found[key]
        metrics = two / "relu+circulant" / f"seed-{seed}" / "metrics.jsonl"
        written = [json.loads(line) for line in metrics.read_text().splitlines()]
        # each once: only the first process writes
        assert [line["step"] for line in written if "loss" in line] == wanted["steps"]
    runs = (read_record(f / "record.json")["data"]["cells"]["relu circulant"] for f in (one, two))
    for a, b in zip(*(cell["runs"] for cell in runs), strict=True):
        assert (a["seed"], a["scores"]) == (b["seed"], b["scores"])


@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_batch_that_two_processes_cannot_share_is_refused_by_both_and_told_once(
    rank, tmp_path, monkeypatch, capsys
):
    # what each of them does, but that it meets no other
    monkeypatch.setenv("LOCAL_RANK", rank)
    monkeypatch.setattr(Fabric, "launch", lambda fabric: None)
    monkeypatch.setattr(Fabric, "broadcast", lambda fabric, told: told)
    words = ["recall", "--batch-size", "9", "--devices", "2", "--accelerator", "cpu"]
    assert main([*words, "--folder", str(tmp_path)]) == 2
    told = "error: batch_size must be a multiple of 2, the number of processes, got 9\n"
    assert capsys.readouterr().err == (told if rank == "0" else "")
