"""What the trainer says where a file is something else, or the disk is full."""

import dataclasses
import errno
import os
import pickle
from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure

from lab.train import fit, history
from lab.train.__main__ import main
from tests.test_train import SETTINGS, Sums, make, same

WORDS = ["recall", "--task-option", "pairs=2", "--steps", "4", "--batch-size", "3", "--quiet"]
WORDS += ["--attention", "relu", "--log-every", "1", "--checkpoint-every", "2"]


def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    "wrong",
    [
        *(b"", b"hello world, this is a text\n", b"q", b".", "naïve τ\n".encode()),
        *(b'{"about": {"settings": 1}}', bytes(range(256)) * 9, b"PK\x03\x04abc"),
        *(pickle.dumps({"about": 1}), pickle.dumps([1, 2], 0), pickle.dumps(Path("x"))),
        *(1, 97, 2000, -1),  # so much of a checkpoint
        {"about": 3},  # in place of what it holds
        {"about": {"settings": {}, "task": {}, "shapes": {}, "parts": {}}},
        {"step": "two"},
        {"parts": {"history": {"steps": 3}}},
        {"parts": {"model": {"0.weight": torch.zeros(7)}}},
        {"parts": {"optimizer": [1]}},
    ],
    ids=lambda wrong: str(wrong)[:40],
)
def test_what_is_no_checkpoint_is_named_and_left(tmp_path, wrong):
    settings = dataclasses.replace(SETTINGS, steps=2)
    fit(make(), Sums(), settings, folder=tmp_path)
    path = tmp_path / "checkpoint.pt"
    if isinstance(wrong, dict):
        good = torch.load(path, weights_only=True)
        if wrong.get("parts"):
            wrong = {"parts": good["parts"] | wrong["parts"]}
        torch.save(good | wrong, path)
    else:
        path.write_bytes(path.read_bytes()[:wrong] if isinstance(wrong, int) else wrong)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"checkpoint\.pt must be a checkpoint of a run, but is"):
        fit(make(), Sums(), settings, folder=tmp_path)
    assert path.read_bytes() == before


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
    words = rf"checkpoint\.pt could not be written: No space left on device; .* {kept} kept; free"
    with pytest.raises(OSError, match=words):
        fit(make(), Sums(), SETTINGS, folder=tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"metrics.jsonl", *["checkpoint.pt"] * good}
    monkeypatch.undo()
    model, whole = make(), make()
    history = fit(model, Sums(), SETTINGS, folder=tmp_path)
    assert history.losses == fit(whole, Sums(), SETTINGS).losses
    assert same(model, whole)


def full_for(name, real=Path.write_text):
    """Return what writes every text but that of one file."""
    return lambda path, *text, **how: (
        full() if path.name == f"{name}.part" else real(path, *text, **how)
    )


@pytest.mark.parametrize(
    ("owner", "function", "fails", "name"),
    [
        (torch, "save", full, "relu/seed-0/checkpoint.pt"),
        (Path, "write_text", full_for("metrics.jsonl"), "relu/seed-0/metrics.jsonl"),
        (history, "append", full, ""),
        (Figure, "savefig", full, "plot.png"),
        (Path, "write_text", full_for("record.json"), "record.json"),
    ],
)
def test_the_command_ends_with_a_line_about_a_full_disk(
    tmp_path, monkeypatch, capsys, owner, function, fails, name
):
    monkeypatch.setattr(owner, function, fails)
    assert main([*WORDS, "--folder", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "No space left on device" in line
    then = f"every run is kept in {tmp_path}; free some disk space and run the same command again"
    if name:
        assert f"{tmp_path / name} could not be written: No space left on device; " in line
        again = "; free some disk space and start it again"
        assert again in line if "/" in name else line.endswith(then)
    assert not [*tmp_path.rglob("*.part")]
