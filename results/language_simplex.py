"""Language models with FAVOR+ and RoPE: do the rows of a simplex name bytes better than others?

    python results/language_simplex.py      # writes results/language_simplex.json
    python results/language_simplex.py --seeds 1 --steps 20 --only "unit*" --output /tmp/try.json

Text, model, steps and rate are those at which FAVOR+ with RoPE did best in
``results/language_rates.py``; m random features of 32 channels, one square block or four. "unit"
gives queries and keys one length, with a learned temperature.
"""

from __future__ import annotations

from typing import Any

from lab.train.study import Study
from results.language import ROPE
from results.language_rates import run
from results.recall_many import NORMS
from results.recall_simplex import MAPS

SIZES = (32, 128)
CELLS: dict[str, dict[str, Any]] = {
    f"{norm}, m = {m}: {name}": {
        **ROPE,
        **NORMS[norm],
        "attention": name,
        "num_features": m,
        "rate": 1e-2,
    }
    for norm in NORMS
    for m in SIZES
    for name in MAPS
}

STUDY = Study(__file__, __doc__, CELLS, run, steps=1000)


if __name__ == "__main__":
    STUDY.main()
