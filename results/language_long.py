"""Train small language models four times as long, each at the rate that its validation chose.

    python results/language_long.py      # writes results/language_long.json
    python results/language_long.py --seeds 1 --steps 20 --only "softmax*" --output /tmp/try.json

Models, text and measures are those of ``results/language_rates.py``, whose record says the rates.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lab.records import read_record
from lab.theory.spread import mean
from lab.train.study import Study
from results.language_rates import METHODS, RATES, run


def chosen_rates() -> dict[str, float]:
    """Return for each method the rate with the fewest bits a byte on the validation text."""
    record = read_record(Path(__file__).with_name("language_rates.json"))

    def bits(name: str, rate: float) -> float:
        runs = record["data"]["cells"][f"{name}, rate {rate:g}"]["runs"]
        return mean([run["chosen by"] for run in runs])

    return {name: min(RATES, key=lambda rate, name=name: bits(name, rate)) for name in METHODS}


CELLS: dict[str, dict[str, Any]] = {
    name: {**METHODS[name], "rate": rate} for name, rate in chosen_rates().items()
}

STUDY = Study(__file__, __doc__, CELLS, run, steps=4000)


if __name__ == "__main__":
    STUDY.main()
