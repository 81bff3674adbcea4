"""Files that are written whole or not at all, also where the disk is full."""

import errno
import os
import resource
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from stringlib.files import append, whole
from stringlib.records import write_record

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def room(size):
    """Let no file grow beyond a size: what a full disk does, as far as a program can tell."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [500, 4096, 9000])  # where PyTorch says it in three ways
def test_a_file_without_room_is_named_and_the_old_one_stays(tmp_path, size):
    path = tmp_path / "new" / "weights.pt"
    with whole(path, "") as part:
        part.write_text("old")
    with (
        pytest.raises(OSError, match=r"weights\.pt could not be written: .*; make room") as told,
        room(size),
        whole(path, "make room") as part,
        part.open("wb") as file,
    ):
        torch.save({"weights": torch.zeros(30_000)}, file)
    assert told.value.errno == errno.EFBIG
    assert path.read_text() == "old"
    assert [*path.parent.iterdir()] == [path]


def test_another_error_is_not_taken_for_the_disk_s(tmp_path):
    with pytest.raises(ZeroDivisionError), whole(tmp_path / "a", "") as part:
        part.write_text(f"half{1 / 0}")
    assert [*tmp_path.iterdir()] == []


def test_lines_are_added_whole(tmp_path):
    path = tmp_path / "lines"
    append(path, "αβ\n", "")
    with pytest.raises(OSError, match=r"lines could not be written: .*; say it again"), room(20):
        append(path, "x" * 40 + "\n", "say it again")
    append(path, "γ\n", "")
    assert path.read_text(encoding="utf8") == "αβ\nγ\n"


def test_a_record_without_room_is_named(tmp_path, monkeypatch):
    path = tmp_path / "toy.json"
    write_record(path, command="", seeds=[], wall_s=0, data=3)
    before = path.read_text()
    monkeypatch.setattr(Path, "write_text", raise_full)
    words = r"toy\.json could not be written: No space left on device; make room and run it again"
    with pytest.raises(OSError, match=words):
        write_record(path, command="", seeds=[], wall_s=0, data=4)
    assert path.read_text() == before
    assert [*tmp_path.iterdir()] == [path]


def raise_full(*_, **__):
    raise FULL
