"""The runs of a command: rates tried apart from the test sets, several at a time, one bar."""

import os
import signal

import pytest
import torch

from lab.records import read_record
from lab.tasks import make_task
from lab.train import fit
from lab.train.__main__ import main
from lab.train.runs import _best
from lab.train.settings import Settings
from tests.test_study import launch, wait_for
from tests.test_train_command import RECALL, trained

# Dask, from inside
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


def test_each_method_gets_its_own_rate_from_a_split_that_is_never_tested_on(
    tmp_path, capsys, monkeypatch
):
    words = [*RECALL, "--attention", "relu,elu", "--rate", "1e-9,3e-2", "--steps", "20"]
    words += ["--seeds", "2", "--first-seed", "3", "--folder", str(tmp_path)]
    steps = trained(monkeypatch)
    assert main(words) == 0
    out = capsys.readouterr().out
    task = make_task("recall", pairs=2)
    tries = [(s, t) for s, t in steps if t.test_seed != task.test_seed]
    assert {s.seed for s, _ in tries} == {3}  # the first seed alone
    assert len(tries) == 2 * 2 * 20
    cells = read_record(tmp_path / "record.json")["data"]["cells"]
    for name, cell in cells.items():
        folder = tmp_path / name
        for rate in (1e-9, 3e-2):
            torch.manual_seed(3)
            model = task.model(attention=name)
            settings = Settings(steps=20, batch_size=4, rate=rate, seed=3, log_every=1)
            score = fit(model, task.validation(), settings).scores["test"]
            assert cell["tried"][f"{rate:g}"] == score
            assert (folder / f"rate-{rate}" / "validation" / "checkpoint.pt").exists()
        best = max((1e-9, 3e-2), key=lambda rate: cell["tried"][f"{rate:g}"])
        assert cell["rate"] == best
        assert {p.name for p in (folder / f"rate-{best}").iterdir()} == {
            *("validation", "seed-3", "seed-4")
        }
        assert f"{name}: rate {best:g}; on validation 1e-09 " in out
        (row,) = (line for line in out.splitlines() if line.startswith(f"| {name} "))
        assert f"| {best:g} " in row
    steps.clear()
    assert main(words) == 0  # all of it is kept
    assert not steps
    words[words.index("1e-9,3e-2")] = "1e-9,3e-2,3e-3"
    assert main(words) == 0  # one rate more: the others are not tried again
    assert {s.rate for s, t in steps if t.test_seed != task.test_seed} == {3e-3}


def test_the_best_is_the_least_of_bits_the_first_of_equals_and_never_one_gone_bad():
    assert _best("a", [0.25, 0.5, 0.5, None], less=False) == 1
    assert _best("a", [None, 2.5, 1.5, 1.5], less=True) == 2
    with pytest.raises(FloatingPointError, match="a: the loss must be finite for at least"):
        _best("a", [None, None], less=True)


def test_a_rate_at_which_the_loss_goes_bad_is_not_chosen(tmp_path, capsys):
    assert main([*RECALL, "--rate", "1e30,1e-3", "--folder", str(tmp_path)]) == 0
    assert "softmax: rate 0.001; on validation 1e+30 gone bad, 0.001" in capsys.readouterr().out
    cell = read_record(tmp_path / "record.json")["data"]["cells"]["softmax"]
    assert cell["tried"]["1e+30"] is None
    assert cell["rate"] == 1e-3
    folder = str(tmp_path / "other")
    assert main([*RECALL, "--rate", "1e30,1e29", "--folder", folder]) == 2
    assert "error: softmax: the loss must be finite for at least" in capsys.readouterr().err


def test_ctrl_c_with_jobs_keeps_what_is_done_and_saves_what_is_under_way(tmp_path):
    """As from a terminal, where all processes get it; as from kill: see test_study."""
    words = ["-m", "lab.train", "recall", "--task-option", "pairs=2", "--jobs", "2"]
    words += ["--batch-size", "4", "--log-every", "1", "--folder", str(tmp_path), "--seeds", "3"]
    words += ["--cell", "long: attention=relu", "--checkpoint-every", "1000000"]
    process = launch(*words, "--steps", "1000000")
    metrics = [tmp_path / "long" / f"seed-{seed}" / "metrics.jsonl" for seed in (0, 1)]
    try:
        # three processes begin
        wait_for(lambda: all(path.exists() and path.stat().st_size for path in metrics), 200)
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=100)
    except BaseException:  # or it trains on
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    assert process.returncode == 130
    assert f"stopped. The finished runs are in {tmp_path}" in err
    assert "to continue from the last checkpoint: python -m lab.train recall" in err
    assert len(err.splitlines()) == 2  # and nothing that Python says of processes
    for path in metrics:
        assert torch.load(path.with_name("checkpoint.pt"), weights_only=True)["step"] >= 1
    assert not (tmp_path / "long" / "seed-2").exists()  # nothing new was begun
    wait_for(lambda: not is_there(process.pid), 30)


def is_there(group):
    """Return whether a process of a group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
