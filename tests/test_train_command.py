"""The command ``python -m lab.train``: what it writes, and what it says when it cannot."""

import os
import shlex
import signal

import pytest
import torch
from scipy import stats

from lab import records
from lab.files import locked
from lab.records import read_record
from lab.theory.spread import interval, mean
from lab.train import fitting, report, runs
from lab.train.__main__ import main
from lab.train.options import read_options
from lab.train.report import table

SHORT = ["--steps", "3", "--batch-size", "4", "--accelerator", "cpu", "--log-every", "1"]
RECALL = ["recall", "--task-option", "pairs=2", *SHORT]


def trained(monkeypatch):
    """Return a list that grows with the settings and the task of each step."""
    steps, rows = [], fitting._rows
    monkeypatch.setattr(fitting, "_rows", lambda *of: steps.append((of[1], of[0])) or rows(*of))
    return steps


def test_methods_and_seeds_end_in_a_table_a_plot_and_a_record(tmp_path, capsys, monkeypatch):
    words = [*RECALL, "--attention", "relu,favor", "--encoder", "none"]
    words += ["--seeds", "2", "--folder", str(tmp_path)]
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert err == ""
    names = ["relu no-encoder", "favor no-encoder"]
    cells = read_record(tmp_path / "record.json")["data"]["cells"]
    assert list(cells) == names
    for name, cell in cells.items():
        assert [run["seed"] for run in cell["runs"]] == [0, 1]
        assert cell["runs"][0]["losses"] != cell["runs"][1]["losses"]
        scores = [run["scores"]["test"] for run in cell["runs"]]
        low, high = interval(scores)
        row = next(line for line in out.splitlines() if line.startswith(f"| {name} "))
        assert f"{mean(scores):.3f} [{low:.3f}, {high:.3f}]" in row
        assert f"| {cell['parameters']:,} " in row
        for seed in (0, 1):
            folder = tmp_path / name.replace(" ", "+") / f"seed-{seed}"
            assert {p.name for p in folder.iterdir()} == {"checkpoint.pt", "metrics.jsonl"}
    assert (tmp_path / "table.md").read_text(encoding="utf8") in out
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "plot.svg").read_text(encoding="utf8")
    assert not [*tmp_path.rglob("*part*")]

    # a third seed is trained; the others are over
    monkeypatch.setattr(report, "plot", lambda *_: None)
    steps = trained(monkeypatch)
    words[words.index("--seeds") + 1] = "3"
    assert main(words) == 0
    assert [settings.seed for settings, _ in steps] == [2] * 3 * len(names)
    again = read_record(tmp_path / "record.json")
    assert again["seeds"] == [0, 1, 2]
    for name in names:
        assert again["data"]["cells"][name]["runs"][:2] == cells[name]["runs"]

    # one method alone: the table of both is kept, and said to be
    capsys.readouterr()
    assert main([*words, "--attention", "relu"]) == 0
    assert f"reported is in {tmp_path / 'earlier-1'}" in capsys.readouterr().out
    assert read_record(tmp_path / "earlier-1" / "record.json") == again
    assert list(read_record(tmp_path / "record.json")["data"]["cells"]) == names[:1]

    words[words.index("--steps") + 1] = "4"
    assert main(words) == 2
    assert "of other settings: steps was 3, is 4" in capsys.readouterr().err
    assert main([*words, "--fresh"]) == 0
    assert len(steps) == 3 * len(names) + 4 * 3 * len(names)


def test_every_example_of_the_help_can_be_read(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out.split("examples:")[1].split("tasks:")[0].replace("\\\n", " ")
    commands = [line for line in text.splitlines() if "python -m" in line]
    assert len(commands) == 8
    for command in commands:
        words = shlex.split(command)[3:]
        if "--import" in words:  # a module that only the reader has
            place = words.index("--import")
            del words[place : place + 2]
        assert read_options([word.replace("rope,mine", "rope") for word in words]).cells


def test_ctrl_c_saves_and_the_same_command_goes_on_but_for_fresh(tmp_path, capsys, monkeypatch):
    words = [*RECALL, "--attention", "softmax,relu", "--folder", str(tmp_path)]
    assert main(words) == 0
    words[words.index("--steps") + 1] = "4"

    def stop(*_):
        os.kill(os.getpid(), signal.SIGINT)
        return rows(*_)

    rows = fitting._rows
    monkeypatch.setattr(fitting, "_rows", stop)
    assert main([*words, "--fresh"]) == 130
    err = capsys.readouterr().err
    assert "stopped after 1 of 4 steps. The run is saved in " in err
    assert "the same command without --fresh to continue" in err
    assert "--fresh" not in err.splitlines()[-1].split("checkpoint: ")[1]
    assert "to continue from the last checkpoint: python -m lab.train recall" in err
    assert (tmp_path / "softmax" / "seed-0" / "checkpoint.pt").exists()
    monkeypatch.undo()
    assert main(words) == 0  # nothing of the old runs is in its way


def test_a_run_that_fails_is_named_and_costs_itself_alone(tmp_path, capsys, monkeypatch):
    def fit(*given, folder, **told):
        if "killed" in str(folder):  # as the process of a run is
            raise ChildProcessError("killed again")
        return fitting.fit(*given, folder=folder, **told)

    monkeypatch.setattr(runs, "fit", fit)
    words = [*RECALL, "--cell", "bad: rate=1e30", "--cell", "killed: depth=1"]
    words += ["--cell", "good: rate=1e-3", "--seeds", "2"]
    assert main([*words, "--folder", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert "good, seed 1: accuracy" in out
    assert err.startswith("error: bad, seed 0: the loss and its gradient")
    assert "; killed, seed 0: killed again; bad, seed 1: the loss and its gradient" in err
    assert err.endswith("The other runs are kept. Run the same command to continue.\n")


def test_two_commands_do_not_share_a_folder(tmp_path, capsys):
    words = [*RECALL, "--folder", str(tmp_path)]
    with locked(tmp_path / ".lock", ""):
        assert main(words) == 2
    assert "another process trains in" in capsys.readouterr().err
    assert not (tmp_path / "softmax").exists()
    assert main(words) == 0
    assert not (tmp_path / ".lock").exists()


def cells_of(line):
    return [word.strip() for word in line.strip("|").split("|")]


def test_differences_are_paired_and_corrected_and_a_guess_stands_below():
    runs = {"a": (0.5, 0.6, 0.9), "b": (0.4, 0.6, 0.6), "c": (0.9, 0.7, 0.5)}
    cells = {
        name: {
            "parameters": 1,
            "rate": 0.1,
            "runs": [{"scores": {"x": s, "y": 1 - s}, "wall_s": 1.0} for s in scores],
        }
        for name, scores in runs.items()
    }
    lines = table(cells, "accuracy", "b", 0.125).splitlines()
    head = cells_of(lines[0])
    assert head[1:5] == ["accuracy, x", "difference", "accuracy, y", "difference"]
    rows = {cells_of(line)[0]: cells_of(line) for line in lines[2:6]}
    assert rows["b"][2] == rows["b"][4] == ""
    for name in ("a", "c"):
        for column, sign in ((2, 1), (4, -1)):
            pairs = zip(runs[name], runs["b"], strict=True)
            each = torch.tensor([sign * (x - y) for x, y in pairs], dtype=torch.float64)
            # two methods and two test sets: four comparisons, so 1 - 0.05 / 4
            half = stats.t.ppf(1 - 0.05 / 8, 2) * each.std().item() / 3**0.5
            middle = each.mean().item()
            expected = f"{middle:+.3f} [{middle - half:+.3f}, {middle + half:+.3f}]"
            assert rows[name][column] == expected
    assert rows["chance"] == ["chance", "0.125", "", "0.125", "", "", "", "", ""]
    assert lines[-1] == (
        "Differences are from b, paired by seed, with 95 % intervals that hold all 4 at once."
    )
    for cell in cells.values():
        del cell["runs"][1:]
    lines = table(cells, "accuracy", "a").splitlines()
    assert cells_of(lines[3])[2] == "-0.100"
    assert lines[-1] == "Differences are from a, paired by seed."


def test_options_say_what_a_model_is_told_and_how_it_trains():
    words = ["recall", "--attention", "softmax,favor", "--features", "8", "--shift", "on,off"]
    words += ["--gate", "none", "--dim", "4", "--clip", "none", "--task-option", "pairs=2"]
    options = read_options(words)
    soft, favor = {"attention": "softmax"}, {"attention": "favor", "num_features": 8}
    assert {name: cell.told for name, cell in options.cells.items()} == {
        f"{told['attention']} no-gate {word}": {"dim": 4, "gate": None, "shift": shift, **told}
        for told in (soft, favor)
        for word, shift in (("shift", True), ("no-shift", False))
    }
    names = [f"{a} no-gate {s}" for a in ("softmax", "favor") for s in ("shift", "no-shift")]
    assert list(options.cells) == names
    assert all(cell.settings[0].clip is None for cell in options.cells.values())
    assert options.task_options == {"pairs": 2}


def test_a_record_says_what_its_runs_were_made_with_not_who_reports(tmp_path, monkeypatch):
    words = [*RECALL, "--attention", "relu", "--folder", str(tmp_path), "--seeds"]
    for seeds, commit, told in (
        ("1", "aaaaaaa", "aaaaaaa"),
        ("1", "bbbbbbb", "aaaaaaa"),
        ("2", "ccccccc", "aaaaaaa; ccccccc"),
    ):
        monkeypatch.setattr(records, "_commit", lambda _, c=commit: c)
        assert main([*words, seeds]) == 0
        record = read_record(tmp_path / "record.json")
        assert record["commit"] == told
    assert [(part["runs"], part["commit"]) for part in record["made"]] == [
        (["relu, seed 0"], "aaaaaaa"),
        (["relu, seed 1"], "ccccccc"),
    ]
    assert record["command"].startswith("python -m lab.train recall --task-option pairs=2")
    assert record["hardware"]["device"] == "cpu"
    assert record["hardware"]["threads"] == torch.get_num_threads()
    assert record["data"]["metric"] == "accuracy"
    cell = record["data"]["cells"]["relu"]
    assert cell["told"] == {"attention": "relu"}
    assert cell["runs"][0].keys() == {*("seed", "scores", "logged", "losses", "wall_s")}
