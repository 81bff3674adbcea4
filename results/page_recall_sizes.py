"""Train the models of results/page_recall.py with smaller memories, for the page.

    python results/page_recall_sizes.py      # writes results/page_recall_sizes.json
    python results/page_recall_sizes.py --seeds 1 --steps 50 --only 'GLA*' --output /tmp/try.json

Task and training are those of ``results/page_recall.py``. The models have 8 or 4 channels in place
of 32, so that a memory keeps about 8 × 8 or 4 × 4 numbers: as many rows as there are keys, or half
as many. The weights of seed 0 are kept in the record, in half precision.
"""

from __future__ import annotations

from typing import Any

from lab.train.study import Study
from results.page_recall import CELLS as LARGE
from results.page_recall import run

SIZES = (8, 4)

CELLS: dict[str, dict[str, Any]] = {
    f"{name}, {size} channels": {**told, "dim": size}
    for size in SIZES
    for name, told in LARGE.items()
}

STUDY = Study(__file__, __doc__, CELLS, run, steps=1500, seeds=3, jobs=1)


if __name__ == "__main__":
    STUDY.main()
