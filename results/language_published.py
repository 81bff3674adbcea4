"""Train small language models with layers as published, with FoX, and with RetNet's decays alone.

    python results/language_published.py      # writes results/language_published.json
    python results/language_published.py --seeds 1 --steps 20 --only "ELU*" --output /tmp/try.json

Models, text and measures are those of ``results/language_published_rates.py``, whose record says
the learning rates. ``ELU, RetNet`` is the decay of RetNet alone, with elu + 1 as features, divided
by the sum of the weights; its learning rate is the one that was best for decays in
``results/language_rates.py``.
"""

from __future__ import annotations

from typing import Any

from lab.train.study import Study
from results.language_published_rates import MODELS, run
from results.language_rates import RATES, chosen_rates

CELLS: dict[str, dict[str, Any]] = {
    **{
        name: {**MODELS[name], "rate": rate}
        for name, rate in chosen_rates("language_published_rates", MODELS, RATES).items()
    },
    "ELU, RetNet": {"attention": "elu", "weight": "retnet", "rate": 1e-2},
}

STUDY = Study(__file__, __doc__, CELLS, run, steps=1000)


if __name__ == "__main__":
    STUDY.main()
