"""Only the parallel form makes a matrix of all pairs; results alone do not show which one ran."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from stringlib import delta_rule
from stringlib.testing.weights import inputs
from tests import attention_cases

TOKENS = 100  # more than any chunk has


class Pairs(TorchDispatchMode):
    """Remember the most tokens that met in one matrix."""

    most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if isinstance(made, Tensor) and made.ndim > 1 and made.shape[-1] == made.shape[-2]:
            self.most = max(self.most, made.shape[-1])
        return made


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
