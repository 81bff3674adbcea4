"""What a program of a module holds; what it gives is compared in tests/test_page_programs.py."""

from __future__ import annotations

import json
import math

import torch
from torch import Tensor, nn

from lab.program import bundle, traced
from stringlib import RoPE


class Both(nn.Module):
    """Two outputs, one of which needs less."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.linspace(-1, 1, 100).view(10, 10))
        self.encoder = RoPE(10)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """Return a product, and what is made of it."""
        y = x @ self.table
        turned, _ = self.encoder(y, y, torch.arange(3.0)[:, None])
        return {"product": y, "turned": turned.exp()}


def test_what_no_input_changes_is_computed_before() -> None:
    """No sine and no cosine is left of an encoder whose positions are known."""
    program = traced(Both(), x=torch.randn(1, 3, 10))
    operations = {step.operation for step in program.steps}
    assert "exp.default" in operations
    assert not operations & {"cos.default", "sin.default"}
    assert list(program.outputs) == ["product", "turned"]


def test_equal_tensors_are_stored_once_and_large_ones_in_half_precision() -> None:
    """A second program with the same table adds none of its numbers."""
    program = traced(Both(), x=torch.randn(1, 3, 10))
    one, two = bundle({"a": program}), bundle({"a": program, "b": program})
    assert len(two["data"]) == len(one["data"])
    assert {kind for shape, kind, _ in one["tensors"] if shape == [10, 10]} == {"half"}
    assert {kind for shape, kind, _ in one["tensors"] if shape != [10, 10]} == {"single"}
    assert {kind for _, kind, _ in bundle({"a": program}, half=False)["tensors"]} == {"single"}


class Gapped(nn.Module):
    """A gap, constants of few digits and of many, and numbers that half precision has not."""

    def forward(self, x: Tensor) -> Tensor:
        few = torch.tensor([0.5, 3.0], dtype=torch.float64)
        many = torch.tensor([1 / 3, 2 / 3], dtype=torch.float64)
        large = torch.full((100,), 1e5, dtype=torch.float64)
        return torch.cat([x * few, x * many, torch.full_like(x, math.nan), large + x[0]])


def test_numbers_are_stored_without_a_loss_and_gaps_as_json() -> None:
    made = bundle({"it": traced(Gapped(), x=torch.tensor([2.0, 7.0], dtype=torch.float64))})
    assert [kind for _, kind, _ in made["tensors"]].count("double") == 1
    assert {kind for _, kind, _ in made["tensors"]} == {"single", "double"}
    json.dumps(made, allow_nan=False)
