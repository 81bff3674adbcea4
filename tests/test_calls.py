"""One call of a layer runs through few functions of the package."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

import stringlib
from stringlib import MultiHeadAttention

ROOT = str(Path(stringlib.__file__).parent)
MOST = {
    "softmax, RoPE": (60, {"encoder": "rope", "causal": True}),
    "softmax, Cayley": (70, {"encoder": "cayley"}),
    "FAVOR+, RoPE, cosine": (
        80,
        {"encoder": "rope", "attention": "favor", "weight": "cosine", "horizon": 4096},
    ),
}
"""Largest number of calls of functions in this package, and the options of the layer."""


@pytest.mark.parametrize("name", MOST)
def test_a_call_of_a_layer_runs_through_few_functions(name: str) -> None:
    most, options = MOST[name]
    layer, x = MultiHeadAttention(256, 4, **options).eval(), torch.randn(1, 64, 256)
    calls: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(ROOT):
            calls.append(frame.f_code.co_qualname)

    with torch.no_grad():
        layer(x)  # what is imported once is imported now
        before = sys.getprofile()
        sys.setprofile(note)
        try:
            layer(x)
        finally:
            sys.setprofile(before)
    assert "MultiHeadAttention.forward" in calls
    assert len(calls) <= most, calls
