"""Train small language models on more text than they read: does the order of methods stay?

    python results/language_sources.py      # writes results/language_sources.json
    python results/language_sources.py --seeds 1 --steps 20 --only "softmax*" --output /tmp/try.json

Models, text and measures are those of ``results/language_sources_rates.py``, whose record says the
rates. 4,000 steps read 8.2 million bytes, as many as there are to train on, in windows at random
places: a byte is read once on average.
"""

from __future__ import annotations

from typing import Any

from lab.train.study import Study
from results.language_rates import METHODS, chosen_rates
from results.language_sources_rates import NAMES, RATES, run

CELLS: dict[str, dict[str, Any]] = {
    name: {**METHODS[name], "rate": rate}
    for name, rate in chosen_rates("language_sources_rates", NAMES, RATES).items()
}

STUDY = Study(__file__, __doc__, CELLS, run, steps=4000)


if __name__ == "__main__":
    STUDY.main()
