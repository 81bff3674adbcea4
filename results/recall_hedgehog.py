"""Recall of 32 pairs of 64 keys with a shift: Hedgehog features.

    python results/recall_hedgehog.py      # writes results/recall_hedgehog.json
    python results/recall_hedgehog.py --seeds 1 --steps 50 --output /tmp/try.json

Task, model, steps and seeds are those of ``results/recall_many.py``, so the runs can be compared
with its runs seed by seed. One smaller learning rate is added to the three of that study. Hedgehog
has 64 features of 32 channels, with one learned matrix.
"""

from __future__ import annotations

from typing import Any

from lab.train.study import Study
from results.recall import MANY, run
from results.recall_many import RATES as LARGER

RATES = (3e-4, *LARGER)
CELLS: dict[str, dict[str, Any]] = {
    f"free, hedgehog, rate {rate:g}": {
        **MANY,
        "shift": True,
        "attention": "hedgehog",
        "rate": rate,
    }
    for rate in RATES
}

STUDY = Study(__file__, __doc__, CELLS, run, steps=1200)


if __name__ == "__main__":
    STUDY.main()
