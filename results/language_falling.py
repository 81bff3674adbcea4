"""Language models whose random features have a falling weight: does its shape matter on text?

    python results/language_falling.py      # writes results/language_falling.json
    python results/language_falling.py --seeds 1 --steps 20 --only "ramp*" --output /tmp/try.json

C-CosGate with RoPE as in ``results/language_rates.py``, its text, sizes and steps, with another
weight in the place of the cosine: ramps, the falling polynomials of degree 3 and 4, and RetNet's
decays, with the window as horizon where they have one. The rate is the largest of the three tried
there, at which the cosine and the squared ramp did best.
"""

from __future__ import annotations

from typing import Any

from lab.train.study import Study
from results.language import CIRCULANT, GATE, ROPE
from results.language_rates import HORIZON, run

RATE = 2e-2
WEIGHTS: dict[str, dict[str, Any]] = {
    "cosine": {"weight": "cosine", **HORIZON},
    "ramp": {"weight": "ramp", **HORIZON},
    "ramp squared": {"weight": "ramp-squared", **HORIZON},
    "falling, degree 3": {"weight": "falling", "degree": 3, **HORIZON},
    "falling, degree 4": {"weight": "falling", "degree": 4, **HORIZON},
    "RetNet": {"weight": "retnet"},
}
CELLS = {
    name: {**CIRCULANT, **ROPE, **GATE, **weight, "rate": RATE} for name, weight in WEIGHTS.items()
}

STUDY = Study(__file__, __doc__, CELLS, run, steps=1000)


if __name__ == "__main__":
    STUDY.main()
