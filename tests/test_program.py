"""A program is the module: its steps, run by PyTorch's operations, give what the module gives."""

from __future__ import annotations

import base64
import json
import math
import operator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lab.program import bundle, traced
from stringlib import RoPE
from tests.model_cases import language_model, text


def evaluated(bundled: dict[str, Any], name: str, **inputs: Tensor) -> dict[str, Tensor]:
    """Run a program of a bundle with the operations of PyTorch."""
    program, data = bundled["programs"][name], base64.b64decode(bundled["data"])
    dtypes = {
        "half": torch.float16,
        "single": torch.float32,
        "double": torch.float64,
        "whole": torch.int32,
        "bool": torch.int32,
    }
    values: list[Any] = [inputs[n] for n, _ in program["inputs"]]
    for number in program["tensors"]:
        shape, kind, offset = bundled["tensors"][number]
        stored = torch.frombuffer(
            bytearray(data), dtype=dtypes[kind], count=math.prod(shape), offset=offset
        ).view(shape)
        values.append(
            {"half": stored.float(), "whole": stored.long(), "bool": stored.bool()}.get(
                kind, stored
            )
        )

    def filled(given: Any) -> Any:
        if isinstance(given, dict) and "v" in given:
            return values[given["v"]]
        if isinstance(given, dict) and "number" in given:
            return float(given["number"].lower())
        if isinstance(given, dict):
            return {k: filled(v) for k, v in given.items()}
        return [filled(v) for v in given] if isinstance(given, list) else given

    made = {"single": torch.float32, "double": torch.float64, "bfloat16": torch.bfloat16}
    for operation, arguments, options, kind in program["steps"]:
        kept = filled(options)
        if operation == "_to_copy.default":
            kept["dtype"] = made.get(kind, torch.long)
        if operation == "getitem":
            values.append(operator.getitem(*filled(arguments)))
            continue
        # what comes out of the steps before may lie otherwise in memory
        operation = operation.replace("view.default", "reshape.default")
        packet, overload = operation.split(".")
        values.append(
            getattr(getattr(torch.ops.aten, packet), overload)(*filled(arguments), **kept)
        )
    return {n: values[v] for n, v in program["outputs"]}


@pytest.mark.parametrize("name", ["softmax-circulant", "elu-gla-None"])
def test_the_steps_are_the_module(name: str) -> None:
    """Other numbers of the same shape go through them as through the module."""
    model, key = language_model(name), "tokens"
    made = bundle({"it": traced(model, **{key: text(1, 7)})}, half=False)
    other = text(1, 7, seed=1)
    torch.testing.assert_close(evaluated(made, "it", **{key: other})["out"], model.eval()(other))


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
    table = next(t for t in one["tensors"] if t[0] == [10, 10])
    assert table[1] == "half"
    x = torch.randn(1, 3, 10)
    rough = evaluated(one, "a", x=x)["product"]
    exact = x @ torch.linspace(-1, 1, 100).view(10, 10)
    assert 0 < (rough - exact).abs().max() < 1e-2
    assert {kind for _, kind, _ in bundle({"a": program}, half=False)["tensors"]} == {"single"}


class Large(nn.Module):
    """Numbers that half precision does not hold."""

    def forward(self, x: Tensor) -> Tensor:
        """Return their sum with the input."""
        return x + torch.full((100,), 1e5)


def test_numbers_beyond_half_precision_stay() -> None:
    """They would be infinite."""
    made = bundle({"it": traced(Large(), x=torch.zeros(100))})
    assert evaluated(made, "it", x=torch.zeros(100))["out"].max() == 1e5


class Constant(nn.Module):
    """An output that is known before."""

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """Return it beside another."""
        return {"sum": x + 1, "known": torch.ones(3) + 1}


def test_an_output_without_an_input_is_refused() -> None:
    """There is nothing to run: the caller should keep the number."""
    with pytest.raises(ValueError, match="must return what depends on its inputs, got 'known'"):
        traced(Constant(), x=torch.zeros(3))


def test_the_module_stays_in_its_mode() -> None:
    """Tracing evaluates; what trains goes on training."""
    model = language_model("softmax-rope").train()
    traced(model, tokens=text(1, 7))
    assert model.training


class Gapped(nn.Module):
    """A gap in the output, and a constant of few digits beside one of many."""

    def forward(self, x: Tensor) -> Tensor:
        few = torch.tensor([0.5, 3.0], dtype=torch.float64)
        many = torch.tensor([1 / 3, 2 / 3], dtype=torch.float64)
        return torch.cat([x * few, x * many, torch.full_like(x, math.nan)])


def test_a_gap_comes_back_and_doubles_of_few_digits_take_half_the_room() -> None:
    x = torch.tensor([2.0, 7.0], dtype=torch.float64)
    made = bundle({"it": traced(Gapped(), x=x)})
    assert {kind for _, kind, _ in made["tensors"]} == {"single", "double"}
    found = evaluated(json.loads(json.dumps(made, allow_nan=False)), "it", x=x)["out"]
    torch.testing.assert_close(found, Gapped()(x), equal_nan=True, atol=0, rtol=0)
