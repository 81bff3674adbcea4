"""Only the parallel form makes a matrix of all pairs; results alone do not show which one ran."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from stringlib import delta_rule
from stringlib.testing.weights import inputs
from tests import attention_cases
from tests.watched import Watched

TOKENS = 100  # more than any chunk has


class Pairs(Watched):
    """Remember the most tokens that met in one matrix."""

    most = 0

    def saw(self, operation: Any, made: Sequence[Tensor]) -> None:
        for x in made:
            if x.ndim > 1 and x.shape[-1] == x.shape[-2]:
                self.most = max(self.most, x.shape[-1])


def _delta(mode: str | None) -> Any:
    q, k, v = (x[..., :3] for x in inputs(TOKENS))
    beta = torch.ones(attention_cases.HEADS, TOKENS).double()
    return delta_rule(q, torch.nn.functional.normalize(k, dim=-1), v, beta, mode=mode)


def _kernelised(name: str, mode: str | None) -> Any:
    case = attention_cases.WEIGHTS[name]
    return case.attend(case.given(TOKENS), mode=mode)


RULES: dict[str, Callable[[str | None], Any]] = {
    "delta": _delta,
    **{
        name: lambda mode, name=name: _kernelised(name, mode)
        for name, case in attention_cases.WEIGHTS.items()
        if case.carries
    },
}


@pytest.mark.parametrize("name", RULES)
def test_all_pairs_meet_in_the_parallel_form_alone(name: str) -> None:
    most = {}
    for mode in ("parallel", "chunk", None, "recurrent"):
        with Pairs() as pairs:
            RULES[name](mode)
        most[mode] = pairs.most
    assert most["parallel"] >= TOKENS
    assert 16 <= most["chunk"] <= 64
    assert most[None] == most["chunk"]
    assert most["recurrent"] <= 6  # a state, or one token with itself
