"""Read small vision transformers by a class token or by the mean of the patches.

    python results/class_token.py      # writes results/class_token.json
    python results/class_token.py --seeds 1 --steps 20 --only 'digits*' --output /tmp/try.json

Softmax attention with every encoder of ``vision``, on its ``digits`` and ``moved``, trained as
there (``1 ×``) and four times as long (``4 ×``): what does a class token cost or give, and does it
only learn more slowly?
"""

from __future__ import annotations

from results.vision import ENCODERS, STEPS, run
from stringlib.train.study import Study

POOLS, LONGER = ("cls", "mean"), (1, 4)
"""What reads, and how many times as many steps as ``vision`` takes."""

CELLS = {
    f"{task} {longer} × {pool}: {encoder}": {
        "task": task,
        "longer": longer,
        "pool": pool,
        "encoder": None if encoder == "none" else encoder,
    }
    for task in ("digits", "moved")
    for longer in LONGER
    for pool in POOLS
    for encoder in ENCODERS
}
STUDY = Study(__file__, __doc__, CELLS, run, steps=STEPS)


if __name__ == "__main__":
    STUDY.main()
