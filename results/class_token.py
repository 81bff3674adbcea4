"""Train small vision transformers four times as long, read by a class token or by the mean.

    python results/class_token.py      # writes results/class_token.json
    python results/class_token.py --seeds 1 --steps 20 --only 'cls*' --output /tmp/try.json

The encoders, the task ``moved`` and the training are those of ``vision``, four times as many steps:
what does a class token cost at new places, and does it only learn more slowly?
"""

from __future__ import annotations

from lab.train.study import Study
from results.vision import STEPS, WITH_CLS, run

POOLS, LONGER = ("cls", "mean"), 4
"""What reads, and how many times as many steps as ``vision`` takes."""

CELLS = {
    f"{pool}: {encoder}": {
        "task": "moved",
        "longer": LONGER,
        "pool": pool,
        "encoder": None if encoder == "none" else encoder,
    }
    for pool in POOLS
    for encoder in WITH_CLS
}
STUDY = Study(__file__, __doc__, CELLS, run, steps=STEPS, seeds=15)


if __name__ == "__main__":
    STUDY.main()
