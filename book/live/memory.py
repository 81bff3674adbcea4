"""The instrument "Ask a memory": six models read keys and values, and retrieve a value."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from book.live.steps import Stepped, about, trained
from book.names import display
from book.recorded import about as told
from book.recorded import measured, score
from lab.explore.style import COLOURS
from lab.program import Traced
from results import page_recall as study
from results import page_recall_sizes as smaller

HALF = True
ALT = {
    "": "Six models have read nine pairs of a key and a value, g4 h2 h5 a2 c1 d1 a4 b5 d4, and are "
    "queried for the key d, whose value was first 1 and then 4. For each model, a table shows the "
    "value that it would retrieve for every key, and a picture shows the numbers that it stores. "
    "Softmax + RoPE, SSD decay, GLA decay and the delta rule retrieve 4, the latest value. Linear "
    "attention without a decay and FAVOR+ retrieve 1, the old value, with a probability of about "
    "one half.",
}
"""Alternative texts of the posters, by the state of the instrument."""
LISTED = 9
"""Number of pairs in the initial list. A reader can add three more pairs."""

SHOWN = {
    "softmax, RoPE": "softmax",
    "sum": "identity",
    "FAVOR+": "favor",
    "SSD": "ssd",
    "GLA": "gla",
    "delta rule": "delta",
}
"""Name of a model → name of its colour."""


SIZES = (32, *smaller.SIZES)
"""Numbers of channels of the models. The state is a matrix of about this size."""
RUNS = len(SIZES)
END = ", {} channels"
"""End of the names of the cells with smaller models."""


@cache
def memories(run: int = 0) -> dict[str, Stepped]:
    """Return the models of one size, by name."""
    if run == 0:
        return trained(study, room=2 * study.PAIRS)
    end = END.format(SIZES[run])
    found = trained(smaller, room=2 * study.PAIRS, make_model=study.make_model)
    return {name.removesuffix(end): one for name, one in found.items() if name.endswith(end)}


@torch.no_grad()
def chosen(count: int = 4000, seed: int = 0) -> tuple[list[tuple[int, int]], int]:
    """Return a list of pairs, and a key with two values, for which the models differ most.

    The candidates are random lists for which softmax retrieves the latest value and at least one
    model the old value. Of these, the function chooses a list with the most kinds of answers
    (latest value, old value, another value), and among lists with as many kinds one with the most
    wrong answers.
    """
    generator = torch.Generator().manual_seed(seed)
    keys = torch.randint(study.KEYS, (count, LISTED), generator=generator)
    values = torch.randint(study.VALUES, (count, LISTED), generator=generator)
    place = torch.randint(1, LISTED - 2, (count,), generator=generator)
    rows = torch.arange(count)
    asked = keys[rows, place]
    same = keys == asked[:, None]
    old = values[rows, same.int().argmax(1)]
    new = values[rows, LISTED - 1 - same.flip(1).int().argmax(1)]
    pairs = torch.stack([keys + study.VALUES, values], -1).flatten(1)
    tokens = torch.cat([pairs, asked[:, None] + study.VALUES], 1)
    said = {name: one.model(tokens)[:, -1].argmax(-1) for name, one in memories().items()}
    answers = torch.stack([*said.values()])
    right, late = answers == new, answers == old
    kinds = torch.stack([right, late, ~right & ~late]).any(1).sum(0)
    rank = 10 * kinds + (~right).sum(0)
    fits = (same.sum(1) == 2) & (old != new) & (said["softmax, RoPE"] == new) & late.any(0)
    best = int(torch.where(fits, rank, -1).argmax())
    listed = zip(keys[best].tolist(), values[best].tolist(), strict=True)
    return [*listed], int(asked[best])


def programs(run: int = 0) -> dict[str, Traced]:
    """Return the programs that the page runs.

    For each model these are a step that reads one token, and a query with all keys at once.
    """
    found = {}
    for name, one in memories(run).items():
        found[f"{name} step"] = one.program(1)
        found[f"{name} ask"] = one.program(study.KEYS)
    return found


def data() -> dict[str, Any]:
    """Return the constants of the page: initial list, names, shapes of states and accuracies."""
    pairs, asked = chosen()
    studies = ("page_recall", "page_recall_sizes")
    scores = {
        kind: {n: row for name in studies for n, row in measured(name, score(kind)).items()}
        for kind in ("once", "overwritten")
    }
    return {
        "most": study.PAIRS,
        "pairs": pairs,
        "asked": asked,
        "seeds": len(scores["once"]["sum"]),
        "titles": {name: display(name) for name in study.CELLS},
        "sizes": [
            {
                "channels": size,
                "memories": {
                    name: about(one, COLOURS[SHOWN[name]])
                    | {
                        kind: told(row[name + END.format(size) if run else name])
                        for kind, row in scores.items()
                    }
                    for name, one in memories(run).items()
                },
            }
            for run, size in enumerate(SIZES)
        ],
    }
