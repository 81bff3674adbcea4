"""Look three tokens back: do two more learning rates help rotated features?

    python results/rotation_rates.py      # writes results/rotation_rates.json
    python results/rotation_rates.py --seeds 1 --steps 50 --output /tmp/try.json

Task, models and measures are those of ``results/rotations_linear.py`` and
``results/rotations_normed.py``, whose models share the learning rate 0.01. Here the rotations in
the numerator alone, and those models without a denominator whose accuracy is below 0.98 there, are
trained with a third and with three times this rate.
"""

from __future__ import annotations

from typing import Any

from lab.train.learn import Training
from lab.train.study import Study
from results.rotations_linear import BANDS, LookBack, loss, measure
from results.rotations_normed import WAYS, Undivided

RATES = (3e-3, 3e-2)
METHODS = (
    *(f"{phi} numerator {band}" for phi in ("relu", "favor") for band in BANDS),
    *(f"{phi} {way} geometric" for phi in ("identity", "relu") for way in WAYS),
    *(f"favor {way} {band}" for way in WAYS for band in BANDS),
)
CELLS = {
    f"{method}, rate {rate:g}": {"method": method, "rate": rate}
    for method in METHODS
    for rate in RATES
}


def run(seed: int, steps: int, method: str, rate: float) -> dict[str, Any]:
    """Return the accuracies of one model, trained at a learning rate."""
    model = LookBack if "numerator" in method else Undivided
    return Training(model, loss, measure, rates=rate, clip=1.0)(seed, steps, method=method)


STUDY = Study(__file__, __doc__, CELLS, run, steps=400, seeds=6)


if __name__ == "__main__":
    STUDY.main()
