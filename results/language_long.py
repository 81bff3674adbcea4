"""Train small language models four times as long, each at the rate that its validation chose.

    python results/language_long.py      # writes results/language_long.json
    python results/language_long.py --seeds 1 --steps 20 --only "softmax*" --output /tmp/try.json

Models, text and measures are those of ``results/language_rates.py``, whose record says the rates.
"""

from __future__ import annotations

from typing import Any

from lab.train.study import Study
from results.language_rates import METHODS, RATES, chosen_rates, run

CELLS: dict[str, dict[str, Any]] = {
    name: {**METHODS[name], "rate": rate}
    for name, rate in chosen_rates("language_rates", METHODS, RATES).items()
}

STUDY = Study(__file__, __doc__, CELLS, run, steps=4000)


if __name__ == "__main__":
    STUDY.main()
