"""Two processes give what one gives, and stop together."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from lightning_fabric import Fabric

from lab.train.__main__ import main
from tests.two_processes import train

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "tests" / "two_processes.py"


def launch(*words):
    """Run a command that starts a second process, and wait for both."""
    return subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )


def load(folder):
    return torch.load(folder / "checkpoint.pt", weights_only=True)


def test_two_processes_stop_together_go_on_and_end_where_one_does(tmp_path):
    history = train(1, tmp_path / "one")
    folder = tmp_path / "two"
    stopped = launch(str(SCRIPT), "2", str(folder), "4")
    assert (stopped.returncode, stopped.stdout, stopped.stderr) == (130, "", "")
    assert load(folder)["step"] == 5
    ended = launch(str(SCRIPT), "2", str(folder))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    one, two = load(tmp_path / "one"), load(folder)
    for name, value in one["parts"]["model"].items():
        # float64, the same batch, another order of addition
        assert torch.allclose(value, two["parts"]["model"][name], rtol=0, atol=1e-12), name
    assert torch.equal(two["parts"]["model"]["unused"], torch.ones(3, dtype=torch.float64))
    for key in ("losses", "norms", "rates"):
        pairs = zip(one["parts"]["history"][key], two["parts"]["history"][key], strict=True)
        assert all(abs(a - b) < 1e-12 for a, b in pairs), key
    assert one["parts"]["history"]["evaluations"] == two["parts"]["history"]["evaluations"]
    assert two["parts"]["history"]["scores"] == history.scores
    written = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    steps = [line["step"] for line in written if "loss" in line]
    assert steps == history.steps  # each once: only the first process writes


def test_the_command_trains_in_two_processes_and_reports_once(tmp_path, capsys):
    words = ["recall", "--task-option", "pairs=2", "--steps", "6"]
    words += ["--batch-size", "10", "--seeds", "2", "--rate", "1e-2", "--accelerator", "cpu"]
    assert main([*words, "--devices", "1", "--folder", str(tmp_path / "1")]) == 0
    out, err = capsys.readouterr()
    words += ["--devices", "2", "--folder", str(tmp_path / "2")]
    done = launch("-m", "lab.train", *words)
    assert done.returncode == 0
    for told, complaint in ((out, err), (done.stdout, done.stderr)):
        assert complaint == ""
        assert told.count("softmax, seed 1: accuracy") == 1
        assert told.count("| method") == 1
    records = (json.loads((tmp_path / n / "record.json").read_text("utf8")) for n in "12")
    runs = (record["data"]["cells"]["softmax"]["runs"] for record in records)
    for one, two in zip(*runs, strict=True):
        assert all(abs(a - b) < 1e-6 for a, b in zip(one["losses"], two["losses"], strict=True))
        assert one["scores"] == two["scores"]


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
    told = "error: batch_size must be a multiple of the 2 processes, got 9\n"
    assert capsys.readouterr().err == (told if rank == "0" else "")
