"""A model as a list of steps that a page can run, with no kernel and no network.

``torch.export`` writes down what a module does as a list of operations on tensors. What does not
depend on an input, such as angles and folded bases, is computed here and now; the rest goes into
JSON, beside the numbers that it needs. ``book/_assets/book-run.js`` runs such a list in the
reader's browser, so that a figure or a trained model in a page is the package itself, not a copy
in another language.
"""

from __future__ import annotations

import base64
import hashlib
import math
import operator
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

__all__ = ["Step", "Traced", "bundle", "traced"]

CHECKS = {"aten._assert_tensor_metadata.default"}
"""Operations that only raise: the shapes of a page's inputs are fixed."""

KINDS = {
    torch.float32: "single",
    torch.float64: "double",
    torch.bfloat16: "bfloat16",
    torch.float16: "half",
    torch.bool: "bool",
}
"""How the page keeps a tensor of that dtype; every other one is of whole numbers."""

FEW = 64
"""A tensor of more numbers than this may be stored in half precision."""

LARGEST = 6e4
"""Half precision ends a little above."""


class Ref(NamedTuple):
    """The value of a node of the graph, as an argument of a step."""

    name: str


class Step(NamedTuple):
    """One operation: its value's name, what it does to what, and the dtype of what comes out."""

    name: str
    operation: str
    arguments: list[Any]
    options: dict[str, Any]
    kind: str


class Traced(NamedTuple):
    """What a module does to its inputs.

    Attributes:
        inputs: Their names and shapes, in order.
        outputs: For each output the name of the value that it is.
        steps: What is to be done, in order; nothing that no output needs.
        tensors: The tensors that the steps read and that no input changes, by name.
    """

    inputs: dict[str, list[int]]
    outputs: dict[str, str]
    steps: list[Step]
    tensors: dict[str, Tensor]


def traced(module: nn.Module, **inputs: Tensor) -> Traced:
    """Write down what a module does to inputs of these shapes.

    Args:
        module: Its ``forward`` takes the inputs by name and returns a tensor, called ``"out"``, or
            a dictionary of tensors with names of its own. It is exported in evaluation mode.
        **inputs: An example of each input; a page may give other numbers, but no other shapes.

    Returns:
        The steps from the inputs to the outputs.

    Raises:
        ValueError: If an output does not depend on any input.
    """
    was = module.training
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # of torch.export about itself
        program = torch.export.export(module.eval(), (), inputs).run_decompositions()
    module.train(was)
    known: dict[str, Any] = {}
    given = []
    for spec in program.graph_signature.input_specs:
        if spec.target is None:
            given.append(spec.arg.name)
        elif spec.target in program.state_dict:
            known[spec.arg.name] = program.state_dict[spec.target]
        else:
            known[spec.arg.name] = program.constants[spec.target]
    steps, outputs = _steps(program.graph, known)
    names = pytree.tree_unflatten(outputs, program.call_spec.out_spec)
    named = names if isinstance(names, Mapping) else {"out": names}
    for name, value in named.items():
        if value in known:
            raise ValueError(f"module must return what depends on its inputs, got {name!r}")
    kept = _needed(steps, set(named.values()))
    read = {ref.name for step in kept for ref in _refs([step.arguments, step.options])}
    shapes = {name: list(example.shape) for name, example in inputs.items()}
    return Traced(
        dict(zip(given, shapes.values(), strict=True)),
        dict(named),
        kept,
        {name: known[name].detach() for name in sorted(read & known.keys())},
    )


def _steps(graph: fx.Graph, known: dict[str, Any]) -> tuple[list[Step], list[str]]:
    """Return the steps that depend on an input, and the names of what comes out.

    ``known`` takes in what depends on none, computed here.
    """
    steps: list[Step] = []
    outputs: list[str] = []
    for node in graph.nodes:
        if node.op == "output":
            outputs = [result.name for result in node.all_input_nodes]
        if node.op != "call_function" or str(node.target) in CHECKS:
            continue
        if all(source.name in known for source in node.all_input_nodes):
            args, kwargs = fx.node.map_arg(
                (node.args, node.kwargs), lambda source: known[source.name]
            )
            with torch.no_grad():
                known[node.name] = node.target(*args, **kwargs)
            continue
        name = "getitem" if node.target is operator.getitem else str(node.target)
        value = node.meta["val"]
        dtype = value.dtype if isinstance(value, Tensor) else value[0].dtype
        steps.append(
            Step(
                node.name,
                name.removeprefix("aten."),
                [_argument(a, known) for a in node.args],
                {k: _argument(a, known) for k, a in node.kwargs.items()},
                KINDS.get(dtype, "whole"),
            )
        )
    return steps, outputs


def _argument(value: Any, known: Mapping[str, Any]) -> Any:
    """Return an argument of an operation as JSON has it, a value of the graph as a ``Ref``."""
    if isinstance(value, fx.Node):
        number = known.get(value.name)
        return number if isinstance(number, (int, float)) else Ref(value.name)
    if isinstance(value, (list, tuple)):
        return [_argument(v, known) for v in value]
    if isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format)):
        return None  # what a step makes is said by its kind
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")}
    return value


def _refs(value: Any) -> Iterator[Ref]:
    """Yield the values that arguments refer to."""
    if isinstance(value, Ref):
        yield value
    elif isinstance(value, dict):
        yield from _refs(list(value.values()))
    elif isinstance(value, list):
        for inner in value:
            yield from _refs(inner)


def _needed(steps: Sequence[Step], wanted: set[str]) -> list[Step]:
    """Return the steps that the wanted values need, in order."""
    kept = []
    for step in reversed(steps):
        if step.name in wanted:
            kept.append(step)
            wanted |= {ref.name for ref in _refs([step.arguments, step.options])}
    return kept[::-1]


def bundle(programs: Mapping[str, Traced], *, half: bool = True) -> dict[str, Any]:
    """Return programs as JSON for ``book-run.js``, tensors that are equal stored once.

    Args:
        programs: By name.
        half: Whether larger tensors of floating-point numbers are rounded to half precision.

    Returns:
        ``programs``: by name ``inputs`` (pairs of name and shape), ``outputs`` (name and number of
        a value) and ``steps`` (operation, arguments, options, kind). The values of a program are
        numbered: its inputs, its tensors, its steps. ``{"v": 3}`` is the value 3. And
        ``tensors`` (shape, kind and offset into the data) and ``data``, in base64.
    """
    table: dict[str, int] = {}
    tensors: list[list[Any]] = []
    data = bytearray()
    found: dict[str, Any] = {}
    for name, program in programs.items():
        own = []
        for tensor in program.tensors.values():
            kind, raw = _stored(tensor, half)
            key = hashlib.sha256(raw).hexdigest() + kind + str(tuple(tensor.shape))
            if key not in table:
                table[key] = len(tensors)
                tensors.append([list(tensor.shape), kind, len(data)])
                data += raw + bytes(-len(raw) % 8)
            own.append(table[key])
        values = [*program.inputs, *program.tensors, *(step.name for step in program.steps)]
        number = {value: i for i, value in enumerate(values)}
        found[name] = {
            "inputs": [[n, shape] for n, shape in program.inputs.items()],
            "tensors": own,
            "outputs": [[n, number[value]] for n, value in program.outputs.items()],
            "steps": [
                [
                    step.operation,
                    _numbered(step.arguments, number),
                    _numbered({k: v for k, v in step.options.items() if v is not None}, number),
                    step.kind,
                ]
                for step in program.steps
            ],
        }
    return {
        "programs": found,
        "tensors": tensors,
        "data": base64.b64encode(bytes(data)).decode(),
    }


def _stored(tensor: Tensor, half: bool) -> tuple[str, bytes]:
    """Return how a tensor is kept, and its bytes."""
    kind = KINDS.get(tensor.dtype, "whole")
    dtype = {"double": torch.float64, "whole": torch.int32, "bool": torch.int32}.get(
        kind, torch.float32
    )
    if kind in ("bfloat16", "half"):
        kind = "single"
    if kind == "double" and tensor.equal(tensor.float().double()):
        kind, dtype = "single", torch.float32
    elif half and kind == "single" and tensor.numel() > FEW and tensor.abs().max() < LARGEST:
        kind, dtype = "half", torch.float16
    return kind, tensor.to(dtype).contiguous().numpy().tobytes()


def _numbered(value: Any, number: Mapping[str, int]) -> Any:
    """Return arguments with the number of a value in place of its name."""
    if isinstance(value, Ref):
        return {"v": number[value.name]}
    if isinstance(value, dict):
        return {k: _numbered(v, number) for k, v in value.items()}
    if isinstance(value, list):
        return [_numbered(v, number) for v in value]
    return value
