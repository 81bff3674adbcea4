"""A study for the tests of sweeps: it is run as a script, as those in results/ are."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from lab.train.study import Study

CELLS = {"b": {"scale": 2}, "a": {"scale": 3, "sizes": (1, 2)}}


def run(seed: int, steps: int, scale: int, sizes: tuple[int, ...] = ()) -> dict[str, Any]:
    """Return what can be foretold; slow, wrong or deadly where the environment says so."""
    me = f"{'a' if scale == 3 else 'b'}{seed}"
    if "DIARY" in os.environ:
        diary = Path(os.environ["DIARY"])
        begun = diary.read_text().split()
        with diary.open("a") as file:
            file.write(f"{me} {os.getpid()}\n")
        if os.environ["HANG"] == me and me not in begun:
            time.sleep(60)
    if os.environ.get("SLOW") == me:
        time.sleep(60)
    if os.environ.get("KILLED") == me and not Path(os.environ.get("ONCE", "")).is_file():
        Path(os.environ.get("ONCE", os.devnull)).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if os.environ.get("WRONG") == me:
        raise ArithmeticError("as asked")
    score = float("nan") if os.environ.get("NAN") == me else float(scale * seed + steps)
    return {"scores": {"test": score}, "process": list(sizes)}


STUDY = Study(__file__, "A study for tests.", CELLS, run, seeds=3, steps=5)
main = STUDY.main


if __name__ == "__main__":
    main()
