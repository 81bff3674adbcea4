"""Files that are written whole or not at all, also where the disk is full."""

import errno
import fcntl
import resource
from contextlib import contextmanager

import pytest
import torch

from lab.files import append, locked, whole


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


def test_a_lock_keeps_others_out_and_leaves_no_empty_file(tmp_path):
    path = tmp_path / "new" / "lock"
    with locked(path, ""), pytest.raises(BlockingIOError, match="mine"), locked(path, "mine"):
        pass
    assert not path.exists()
    with locked(path, ""):
        path.write_text("a line\n")
    assert path.read_text() == "a line\n"


def test_a_lock_of_a_file_that_was_removed_meanwhile_is_none(tmp_path, monkeypatch):
    path, real, taken = tmp_path / "lock", fcntl.flock, []

    def flock(file, how):
        real(file, how)
        taken.append(file)
        if len(taken) == 1:  # whoever had it before removes it now
            path.unlink()

    monkeypatch.setattr(fcntl, "flock", flock)
    with locked(path, ""):
        assert len(taken) == 2
        assert path.exists()
