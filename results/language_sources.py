"""Train small language models on more text than they read: does the order of methods stay?

    python results/language_sources.py      # writes results/language_sources.json
    python results/language_sources.py --seeds 1 --steps 20 --only "softmax*" --output /tmp/try.json

Models, text and measures are those of ``results/language_sources_rates.py``, whose record says the
rates. 4,000 steps read 8.2 million bytes, as many as there are to train on, in windows at random
places: a byte is read once on average.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lab.records import read_record
from lab.theory.spread import mean
from lab.train.study import Study
from results.language_rates import METHODS
from results.language_sources_rates import NAMES, RATES, run


def chosen_rates() -> dict[str, float]:
    """Return for each method the rate with the fewest bits a byte on the validation text."""
    record = read_record(Path(__file__).with_name("language_sources_rates.json"))

    def bits(name: str, rate: float) -> float:
        runs = record["data"]["cells"][f"{name}, rate {rate:g}"]["runs"]
        return mean([run["chosen by"] for run in runs])

    return {name: min(RATES, key=lambda rate, name=name: bits(name, rate)) for name in NAMES}


CELLS: dict[str, dict[str, Any]] = {
    name: {**METHODS[name], "rate": rate} for name, rate in chosen_rates().items()
}

STUDY = Study(__file__, __doc__, CELLS, run, steps=4000)


if __name__ == "__main__":
    STUDY.main()
