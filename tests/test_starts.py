"""Everything begins as its source says: what is drawn by its moments and its range.

A model that learns forgets a wrong start, and no formula shows it: the reciprocal of a range, or
half of a deviation, only make it learn worse.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from stringlib import ENCODERS, TOKEN_BIASES, make_encoder, make_features
from stringlib.attention.projections import PROJECTIONS
from stringlib.attention.registry import FEATURES
from stringlib.encoders.registry import BIASES, make_bias
from tests import model_cases
from tests.start_cases import STARTS, Start, tensors

CASES = {
    f"{owner}.{name}-{i}": (owner, name, start)
    for (owner, name), starts in STARTS.items()
    for i, start in enumerate(starts)
}
LAST_PLACE = 1e-5  # what is drawn is float32
FEWEST = 500  # numbers that are judged by: 5 σ of their deviation are then 16 %


@pytest.mark.parametrize("case", CASES)
def test_a_tensor_begins_as_its_source_says(case: str) -> None:
    owner, name, start = CASES[case]
    torch.manual_seed(0)
    numbers = _numbers(owner, name, start)
    if isinstance(start.law, float):
        assert len(numbers)
        expected = torch.full_like(numbers, start.law)
        assert torch.allclose(numbers, expected, rtol=LAST_PLACE, atol=LAST_PLACE)
        return
    count = len(numbers)
    assert count >= FEWEST
    mean, variance, _, kurtosis = (float(moment) for moment in start.law.stats("mvsk"))
    deviation = math.sqrt(variance)
    # five standard errors of each moment, and what KERPLE's clamp at 0.01 moves
    assert abs(numbers.mean() - mean) < 5 * deviation / math.sqrt(count) + 0.001 * deviation
    error = deviation / 2 * math.sqrt((kurtosis + 2) / count)
    assert abs(numbers.std() - deviation) < 5 * error + 0.001 * deviation
    low, high = start.law.support()
    assert numbers.min() >= low - LAST_PLACE
    assert numbers.max() <= high + LAST_PLACE
    if start.law.dist.name == "uniform":  # 1 of exp(20) seeds stays further from the upper end
        assert numbers.max() >= start.law.ppf(1 - 20 / count) - LAST_PLACE


def _numbers(owner: str, name: str, start: Start) -> Any:
    with torch.no_grad():
        parts = [
            start.read(module, tensor).double().flatten()
            for key, module, tensor in tensors(start.make())
            if key == (owner, name)
        ]
    return torch.cat(parts)


def _registered() -> dict[str, nn.Module]:
    """Return one of everything that has a name, and models of every composition."""
    covering = model_cases.COVERING
    return {
        **{f"ENCODERS[{name!r}]": make_encoder(name, 8) for name in ENCODERS},
        **{f"BIASES[{name!r}]": make_bias(name, 2) for name in BIASES},
        **{f"FEATURES[{name!r}]": make_features(name, 8) for name in FEATURES},
        **{f"PROJECTIONS[{name!r}]": kind(8, 8) for name, kind in PROJECTIONS.items()},
        **{f"WEIGHTS[{name!r}]": model_cases.weight(name) for name in model_cases.WEIGHTS},
        **{f"TOKEN_BIASES[{name!r}]": model_cases.token_bias(name) for name in TOKEN_BIASES},
        **{f"a language model, {name}": model_cases.language_model(name) for name in covering},
        **{f"a vision transformer, {name}": model_cases.vision_model(name) for name in covering},
    }


NAMED = _registered()


@pytest.mark.parametrize("where", NAMED)
def test_whatever_has_a_name_has_a_start(where: str) -> None:
    for key, _, _ in tensors(NAMED[where]):
        assert key in STARTS, f"add {key} of {where} to STARTS in tests/start_cases.py"
