"""Recall of 32 pairs of 64 keys with a shift: do the rows of a simplex recall more than others?

    python results/recall_simplex.py      # writes results/recall_simplex.json
    python results/recall_simplex.py --seeds 1 --steps 50 --only "unit*" --output /tmp/try.json

Task, model and steps are those of ``results/recall_many.py``, the rate the one at which its random
features did best; m random features of 32 channels, up to eight square blocks. "unit" gives queries
and keys one length, with a learned temperature.
"""

from __future__ import annotations

from typing import Any

from lab.train.study import Study
from results.recall import MANY, run
from results.recall_many import NORMS

MAPS = ("favor", "favor-unit-circulant", "favor-simplex-circulant")
SIZES = (32, 64, 128, 256)
CELLS: dict[str, dict[str, Any]] = {
    f"{norm}, m = {m}: {name}": {
        **MANY,
        "shift": True,
        **NORMS[norm],
        "attention": name,
        "num_features": m,
        "rate": 3e-3,
    }
    for norm in NORMS
    for m in SIZES
    for name in MAPS
}

STUDY = Study(__file__, __doc__, CELLS, run, steps=1200)


if __name__ == "__main__":
    STUDY.main()
