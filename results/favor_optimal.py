"""Train models with FAVOR+'s features and with those of least variance, in pairs of one seed.

    python results/favor_optimal.py      # writes results/favor_optimal.json
    python results/favor_optimal.py --seeds 1 --steps 50 --only 'recall*' --output /tmp/try.json

"recall" is the study of recall with 32 pairs of 64 keys, a shift and m = 32 features, 400 steps:
the accuracy on new sequences; "unit" gives all queries and keys one length, with a learned
temperature. "text" is the language model of the study of language with RoPE, 1,000 steps: bits a
byte at the end of the text. Models, steps, batches and rates are those of these studies; only the
feature map differs. FAVOR+ has orthogonal rows, and so do the features of least variance, which
are made for the mean of ||q + k||^2 of independent channels of variance 1.
"""

from __future__ import annotations

from typing import Any

from lab.train.checkpoint import Checkpoint
from lab.train.study import Study
from results import language, recall

MAPS = ("favor", "favor-optimal")
TASKS: dict[str, dict[str, Any]] = {
    "recall": recall.MANY | recall.SHIFT,
    "recall, unit": recall.MANY | recall.SHIFT | recall.UNIT,
    "text": language.ROPE,
}
"""Name of a task → what its models share."""


def run(
    seed: int, steps: int, task: str, attention: str, keep: Checkpoint | None = None
) -> dict[str, float]:
    """Train one model; return its accuracy, or its bits per byte.

    Args:
        seed: Of weights, random features and batches.
        steps: Of a language model; those for recall get two fifths of them.
        task: One of ``TASKS``.
        attention: One of ``MAPS``.
        keep: As for :func:`lab.train.fit`.
    """
    options = {**TASKS[task], "attention": attention}
    if task == "text":
        _, history = language.train(seed, steps, keep=keep, **options)
        return {"bits": round(history.scores[str(language.LENGTH)], 5)}
    found = recall.run(seed, max(1, 2 * steps // 5), keep=keep, **options)
    return {"accuracy": found["scores"]["test"]}


CELLS = {f"{task}: {name}": {"task": task, "attention": name} for task in TASKS for name in MAPS}
STUDY = Study(__file__, __doc__, CELLS, run, steps=1000)


if __name__ == "__main__":
    STUDY.main()
