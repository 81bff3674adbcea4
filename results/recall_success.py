"""Recall of 8 pairs with a shift, often enough to count successes: every map at four rates.

    python results/recall_success.py      # writes results/recall_success.json
    python results/recall_success.py --seeds 1 --steps 50 --only "*relu*" --output /tmp/try.json

Task and model are those of ``results/recall.py``: one head with 32 channels, a key that takes in
the one before it, m = 32 random features. A run succeeds if it names more than 90 % of the values
of 2,000 new sequences. "unit" gives queries and keys one length, with a learned temperature. The
delta rule has no map and normalises its keys itself.
"""

from __future__ import annotations

from typing import Any

from lab.train.study import Study
from results.recall import EIGHT, MAPS, RANDOM, run

RATES = (1e-3, 3e-3, 1e-2, 3e-2)
DELTA = {"attention": "identity", "weight": "delta"}
NORMS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "free": ({}, (*MAPS, "favor-optimal", "delta")),
    "unit": ({"normalize_qk": True}, ("softmax", "relu", *RANDOM, "favor-optimal")),
}
"""Lengths of queries and keys → options of the model, and the maps."""

CELLS: dict[str, dict[str, Any]] = {
    f"{norm}, {name}, rate {rate:g}": {
        **EIGHT,
        "shift": True,
        **options,
        **(DELTA if name == "delta" else {"attention": name}),
        "rate": rate,
    }
    for norm, (options, names) in NORMS.items()
    for name in names
    for rate in RATES
}

STUDY = Study(__file__, __doc__, CELLS, run, steps=400, seeds=30)


if __name__ == "__main__":
    STUDY.main()
