"""A study on a Dask cluster: two worker processes, one of which is killed in the midst of a run."""

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager

import pytest

from lab.records import read_record
from tests.test_study import EXPECTED, ROOT, SCRIPT, data, wait_for

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


@contextmanager
def dask(*words, **environment):
    """Run a part of a cluster as its command does."""
    paths = f"{ROOT}{os.pathsep}{SCRIPT.parent}"
    process = subprocess.Popen(
        [sys.executable, "-m", "dask", *words],
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_run_whose_worker_is_killed_is_run_again_and_counted_once(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    study = importlib.import_module("sweep_study")
    output, diary, where = (tmp_path / name for name in ("study.json", "diary", "scheduler.json"))
    diary.touch()

    def killed():
        return [line for line in diary.read_text().splitlines() if line.startswith("a1 ")]

    def kill():
        (line, *_) = wait_for(killed)
        os.kill(int(line.split()[1]), signal.SIGKILL)

    with ExitStack() as stack:
        told = ["--scheduler-file", str(where), "--no-dashboard"]
        stack.enter_context(dask("scheduler", "--host", "127.0.0.1", "--port", "0", *told))
        wait_for(where.exists)
        workers = [
            stack.enter_context(
                dask("worker", "--nthreads", "2", "--no-nanny", *told, DIARY=str(diary), HANG="a1")
            )
            for _ in range(2)
        ]
        killer = threading.Thread(target=kill)
        killer.start()
        address = json.loads(where.read_text())["address"]
        study.main(["--scheduler", address, "--device", "cpu", "--output", str(output)])
        killer.join()
        assert sorted(process.poll() is None for process in workers) == [False, True]
    assert data(output) == EXPECTED
    assert len(killed()) == 2
    assert len({line.split()[1] for line in killed()}) == 2
    record = read_record(output)
    assert record["hardware"]["device"] == "cpu"
    assert record["hardware"]["threads"] == 1
    assert not output.with_suffix(".runs").exists()
