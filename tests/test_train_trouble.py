"""What the trainer says where a file is something else, or the disk is full."""

import dataclasses
import errno
import os
import pickle
from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure

from stringlib.train import fit, history
from stringlib.train.__main__ import main
from stringlib.train.kept import Kept
from stringlib.train.study import Study
from tests.test_train import SETTINGS, Sums, make, same

WORDS = ["recall", "--task-option", "pairs=2", "--steps", "4", "--batch-size", "3", "--quiet"]
WORDS += ["--attention", "relu", "--log-every", "1", "--checkpoint-every", "2"]


def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


# --- no checkpoint ---------------------------------------------------------------------------

CONTENTS = {
    "empty": b"",
    "text": b"hello world, this is a text\n",
    "a byte": b"q",
    "dot": b".",
    "accents": "naïve τ\n".encode(),
    "json": b'{"about": {"settings": 1}}',
    "numbers": bytes(range(256)) * 9,
    "pickle": pickle.dumps({"about": 1}),
    "old pickle": pickle.dumps([1, 2], 0),
    "object": pickle.dumps(Path("x")),
    "zip": b"PK\x03\x04abc",
}


@pytest.mark.parametrize("name", CONTENTS)
def test_a_file_that_is_no_checkpoint_is_named(tmp_path, name):
    (tmp_path / "checkpoint.pt").write_bytes(CONTENTS[name])
    with pytest.raises(ValueError, match=r"checkpoint\.pt must be a checkpoint of a run, but is"):
        fit(make(), Sums(), SETTINGS, folder=tmp_path)
    assert (tmp_path / "checkpoint.pt").read_bytes() == CONTENTS[name]


def test_a_folder_and_half_a_checkpoint_are_no_checkpoint(tmp_path):
    path = tmp_path / "one" / "checkpoint.pt"
    path.mkdir(parents=True)
    with pytest.raises(ValueError, match=r"checkpoint\.pt must be a checkpoint of a run, but is"):
        fit(make(), Sums(), SETTINGS, folder=path.parent)
    path = tmp_path / "checkpoint.pt"
    fit(make(), Sums(), dataclasses.replace(SETTINGS, steps=1), folder=tmp_path)
    whole = path.read_bytes()
    for length in (1, 97, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"must be a checkpoint of a run, but is broken"):
            fit(make(), Sums(), SETTINGS, folder=tmp_path)


@pytest.mark.parametrize(
    "wrong",
    [
        {"about": 3},
        {"about": {}},
        {"about": {"settings": {}, "task": {}, "shapes": [], "parts": {}, "code": {}}},
        {"step": "two"},
        {"history": {"steps": 3}},
        {"history": {"colour": []}},
        {"history": None},
        {"model": {}},
        {"model": {"0.weight": torch.zeros(7)}},
        {"optimizer": {}},
        {"optimizer": [1]},
    ],
    ids=str,
)
def test_a_checkpoint_with_wrong_entries_is_named(tmp_path, wrong):
    settings = dataclasses.replace(SETTINGS, steps=2)
    fit(make(), Sums(), settings, folder=tmp_path)
    path = tmp_path / "checkpoint.pt"
    torch.save(torch.load(path, weights_only=True) | wrong, path)
    with pytest.raises(ValueError, match=r"checkpoint\.pt must be a checkpoint of a run, but is"):
        fit(make(), Sums(), settings, folder=tmp_path)


def test_the_command_ends_with_a_line_about_it(tmp_path, capsys):
    path = tmp_path / "relu" / "seed-0" / "checkpoint.pt"
    path.parent.mkdir(parents=True)
    path.write_text("no checkpoint\n", encoding="utf8")
    assert main([*WORDS, "--folder", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {path} must be a checkpoint")
    assert main([*WORDS, "--folder", str(tmp_path), "--fresh"]) == 0


# --- a full disk -----------------------------------------------------------------------------


@pytest.mark.parametrize(("good", "kept"), [(0, "nothing of it is"), (1, "its first 5 steps are")])
def test_a_checkpoint_without_room_leaves_the_last_one(tmp_path, monkeypatch, good, kept):
    real, calls = torch.save, []

    def save(state, file):
        calls.append(state["step"])
        if len(calls) > good:
            file.write(b"half")
            full()
        real(state, file)

    monkeypatch.setattr(torch, "save", save)
    words = rf"checkpoint\.pt could not be written: No space left on device; .* {kept} kept; make"
    with pytest.raises(OSError, match=words):
        fit(make(), Sums(), SETTINGS, folder=tmp_path)
    names = {"metrics.jsonl", "checkpoint.pt"} if good else {"metrics.jsonl"}
    assert {path.name for path in tmp_path.iterdir()} == names
    monkeypatch.undo()
    model, whole = make(), make()
    history = fit(model, Sums(), SETTINGS, folder=tmp_path)
    assert history.losses == fit(whole, Sums(), SETTINGS).losses
    assert same(model, whole)


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ((torch, "save"), "relu/seed-0/checkpoint.pt"),
        ((os, "fsync"), "relu/seed-0/checkpoint.pt"),
        ((Path, "write_text"), "relu/seed-0/metrics.jsonl"),
        ((history, "append"), ""),
        ((Figure, "savefig"), "plot.png"),
    ],
    ids=["save", "fsync", "text", "metrics", "figure"],
)
def test_the_command_ends_with_a_line_about_a_full_disk(tmp_path, monkeypatch, capsys, place, name):
    monkeypatch.setattr(*place, full)
    assert main([*WORDS, "--folder", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "No space left on device" in line
    if name:
        assert f"{tmp_path / name} could not be written: No space left on device; " in line
        assert "make room, and" in line
    assert not [*tmp_path.rglob("*.part")]


def test_a_record_without_room_keeps_the_runs(tmp_path, monkeypatch, capsys):
    real = Path.write_text

    def write_text(path, *text, **how):
        return full() if path.name == "record.json.part" else real(path, *text, **how)

    monkeypatch.setattr(Path, "write_text", write_text)
    assert main([*WORDS, "--folder", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "record.json could not be written" in line
    assert f"every run is kept in {tmp_path}; make room, and the same command reports" in line


def test_a_sweep_without_room_says_what_is_kept(tmp_path, monkeypatch):
    output, cells = tmp_path / "study.json", {"a": {"x": 1}}
    kept = Kept(output.with_suffix(".runs.jsonl"), cells, 5)
    kept.add("a", 0, {"wall_s": 1.5})
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", full)
        with pytest.raises(OSError, match=r"jsonl could not be written.*runs before it are k"):
            kept.add("a", 1, {"wall_s": 2.5})
    assert set(kept.found) == {("a", 0)}
    monkeypatch.setattr("stringlib.train.study.digest", lambda code: "")
    monkeypatch.setattr(Path, "write_text", full)
    words = ["--seeds", "1", "--output", str(output)]
    with pytest.raises(SystemExit, match=r"study\.json could not .*every run is kept in .*jsonl"):
        Study(tmp_path / "study.py", "About.", cells, dict, steps=5).main(words)
    assert [path.name for path in tmp_path.iterdir()] == ["study.runs.jsonl"]
