"""Recall of 32 pairs of 64 keys with a shift: is a map behind, or was its rate or time wrong?

    python results/recall_many.py      # writes results/recall_many.json
    python results/recall_many.py --seeds 1 --steps 50 --only "free, relu*" --output /tmp/try.json

Task and model are those of ``results/recall.py``, trained three times as long, at each of three
rates; m = 32 random features. "unit" gives queries and keys one length, with a learned temperature.
The delta rule has no map and normalises its keys itself.
"""

from __future__ import annotations

from typing import Any

from lab.train.study import Study
from results.recall import MANY, run
from results.recall_success import DELTA

RATES = (1e-3, 3e-3, 1e-2)
DRAWN = ("favor", "favor-circulant", "favor-learned", "favor-optimal")
MAPS = {"free": ("softmax", "relu", "elu", *DRAWN, "delta"), "unit": ("softmax", *DRAWN)}
NORMS: dict[str, dict[str, Any]] = {"free": {}, "unit": {"normalize_qk": True}}

CELLS: dict[str, dict[str, Any]] = {
    f"{norm}, {name}, rate {rate:g}": {
        **MANY,
        "shift": True,
        **NORMS[norm],
        **(DELTA if name == "delta" else {"attention": name}),
        "rate": rate,
    }
    for norm, names in MAPS.items()
    for name in names
    for rate in RATES
}

STUDY = Study(__file__, __doc__, CELLS, run, steps=1200)


if __name__ == "__main__":
    STUDY.main()
