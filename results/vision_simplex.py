"""Vision Performers with FAVOR+: do the rows of a simplex see digits better than others?

    python results/vision_simplex.py      # writes results/vision_simplex.json
    python results/vision_simplex.py --seeds 1 --steps 20 --only "moved*" --output /tmp/try.json

Tasks, sizes and steps are those of ``results/performer_vision.py``: digits where they are, and
digits moved on a canvas, with no position or a Toeplitz weight; 32 or 128 random features. "unit"
gives queries and keys one length, with a learned temperature.
"""

from __future__ import annotations

from typing import Any

from lab.train.study import Study
from results.performer_vision import run
from results.recall_many import NORMS
from results.recall_simplex import MAPS

TASKS = {"digits": "digits, one size", "moved": "moved"}
WEIGHTS: dict[str, dict[str, Any]] = {"none": {}, "toeplitz": {"weight": "toeplitz"}}
CELLS: dict[str, dict[str, Any]] = {
    f"{task}, {weight}, {norm}, m = {m}: {name}": {
        "task": TASKS[task],
        **WEIGHTS[weight],
        **NORMS[norm],
        "attention": name,
        "num_features": m,
    }
    for task in TASKS
    for weight in WEIGHTS
    for norm in NORMS
    for m in (32, 128)
    for name in MAPS
}

STUDY = Study(__file__, __doc__, CELLS, run, steps=400)


if __name__ == "__main__":
    STUDY.main()
