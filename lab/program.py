"""Convert a model to a list of steps that a web page can run, without a kernel or a network.

A module runs once, and every operation on tensors that depend on an input is recorded as a step.
Results that depend on no input, such as angles and folded bases, are computed in this run. The
steps and these results are written as JSON. ``book/_assets/book-run.js`` runs the steps in the
reader's browser. A figure or a trained model in a page thus runs the operations of the package
itself, not a copy of it in another language.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._export.utils import _compiling_state_context
from torch.export import default_decompositions
from torch.func import functionalize
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["Step", "Traced", "bundle", "traced"]

DECOMPOSITIONS = dict(default_decompositions())
"""Function that computes an operation from simpler ones, by operation, as in ``torch.export``."""

KINDS = {
    torch.float32: "single",
    torch.float64: "double",
    torch.bfloat16: "bfloat16",
    torch.float16: "half",
    torch.bool: "bool",
}
"""Form in which the page stores a tensor, by dtype. All other dtypes are stored as integers."""

FEW = 64
"""Tensors with more numbers than this may be stored in half precision."""

LARGEST = 6e4
"""Largest number that may be stored in half precision, whose largest number is 65504."""


class Ref(NamedTuple):
    """Name of an input, a tensor or a step whose value is an argument of a step."""

    name: str


class Step(NamedTuple):
    """One operation.

    Attributes:
        name: Name of the result.
        operation: Name of the operation, such as ``"add.Tensor"``.
        arguments: Positional arguments.
        options: Keyword arguments.
        kind: Form in which the result is stored, one of the values of ``KINDS`` or ``"whole"``.
    """

    name: str
    operation: str
    arguments: list[Any]
    options: dict[str, Any]
    kind: str


class Traced(NamedTuple):
    """Operations with which a module computes its outputs from its inputs.

    Attributes:
        inputs: Shape of each input, by name, in order.
        outputs: Name of the value of each output, by name of the output.
        steps: Operations in order, without those that no output needs.
        tensors: Tensors that the steps read and that depend on no input, by name.
    """

    inputs: dict[str, list[int]]
    outputs: dict[str, str]
    steps: list[Step]
    tensors: dict[str, Tensor]


def traced(module: nn.Module, **inputs: Tensor) -> Traced:
    """Record the operations of a module on inputs of given shapes.

    The module runs once, with the given inputs, and each operation that depends on an input is
    recorded. Results that depend on no input are computed in this run. As with ``torch.export``,
    branches must not depend on the values of tensors.

    Args:
        module: Module whose ``forward`` has the inputs as keyword arguments. It returns a tensor,
            which is then the output ``"out"``, or a dictionary from names of outputs to tensors. It
            is run in evaluation mode.
        **inputs: An example of each input. A page may use other numbers, but no other shapes.

    Returns:
        The steps from the inputs to the outputs.

    Raises:
        ValueError: If an output does not depend on any input, or the module converts a tensor that
            depends on an input to a Python number.
    """
    was, recorder = module.training, _Recorder(inputs)
    with torch.no_grad(), _compiling_state_context(), sdpa_kernel(SDPBackend.MATH), recorder:
        made = functionalize(module.eval(), remove="mutations")(**inputs)
    module.train(was)
    outputs = {}
    for name, value in (made if isinstance(made, Mapping) else {"out": made}).items():
        if not recorder.follows(value):
            raise ValueError(
                f"module must return outputs that depend on its inputs, got the output {name!r}, "
                "which does not"
            )
        outputs[name] = recorder.name(value)
    kept = _needed(recorder.steps, set(outputs.values()))
    read = {ref.name for step in kept for ref in _refs([step.arguments, step.options])}
    shapes = {name: list(example.shape) for name, example in inputs.items()}
    known = {name: x.detach() for name, x in recorder.known.items() if name in read}
    return Traced(shapes, outputs, kept, known)


class _Recorder(TorchDispatchMode):
    """Dispatch mode that records each operation that depends on an input.

    Attributes:
        steps: Recorded operations, in order.
        known: Tensors that the steps read and that depend on no input, by name.
    """

    def __init__(self, inputs: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.known: dict[str, Tensor] = {}
        self._names = {id(x): name for name, x in inputs.items()}
        self._following = {*self._names}
        self._seen: list[Any] = [*inputs.values()]  # kept, so that no id comes twice

    def follows(self, value: Any) -> bool:
        """Return whether a value depends on an input."""
        return id(value) in self._following

    def name(self, tensor: Tensor) -> str:
        """Return the name of a tensor. A tensor without a name depends on no input and gets one."""
        if id(tensor) not in self._names:
            self._names[id(tensor)] = name = f"known{len(self.known)}"
            self.known[name] = tensor
            self._seen.append(tensor)
        return self._names[id(tensor)]

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an operation, and record it if it depends on an input."""
        kwargs = kwargs or {}
        if not any(self.follows(x) for x in pytree.tree_leaves((args, kwargs))):
            return function(*args, **kwargs)
        if function is torch.ops.aten._local_scalar_dense.default:
            raise ValueError(
                "module must not convert a tensor that depends on its inputs to a Python number, "
                "got such a conversion. Use operations on tensors, for example torch.where."
            )
        if torch.Tag.inplace_view in function.tags:  # squeeze_: the same numbers in another shape
            shaped = getattr(torch.ops.aten, function.overloadpacket.__name__.removesuffix("_"))
            with self:
                new = shaped(*args, **kwargs)
            made = function(*args, **kwargs)
            self._names[id(made)] = self.name(new)
            return made
        with self:
            if function in DECOMPOSITIONS:
                return DECOMPOSITIONS[function](*args, **kwargs)
            if (simpler := function.decompose(*args, **kwargs)) is not NotImplemented:
                return simpler
        made = function(*args, **kwargs)
        arguments, options = map(self._argument, (list(args), kwargs))
        name = str(function).removeprefix("aten.")
        step = self._write(made, name, arguments, options)
        if isinstance(made, (list, tuple)):
            for place, part in enumerate(made):
                self._write(part, "getitem", [Ref(step), place], {})
        return made

    def _write(self, made: Any, operation: str, arguments: Any, options: Any) -> str:
        """Record a step and return the name of its result."""
        name = f"step{len(self.steps)}"
        first = made if isinstance(made, Tensor) else made[0]
        kind = KINDS.get(first.dtype, "whole")
        self.steps.append(Step(name, operation, arguments, options, kind))
        self._names[id(made)] = name
        self._following.add(id(made))
        self._seen.append(made)
        return name

    def _argument(self, value: Any) -> Any:
        """Return an argument of an operation in a form for JSON, with a ``Ref`` for each tensor."""
        if isinstance(value, Tensor):
            return Ref(self.name(value))
        if isinstance(value, dict):
            return {key: self._argument(v) for key, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._argument(v) for v in value]
        if isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format)):
            return None  # what a step makes is said by its kind
        if isinstance(value, float) and not math.isfinite(value):
            return {"number": {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")}
        return value


def _refs(value: Any) -> Iterator[Ref]:
    """Yield each ``Ref`` in the arguments of a step."""
    if isinstance(value, Ref):
        yield value
    elif isinstance(value, dict):
        yield from _refs(list(value.values()))
    elif isinstance(value, list):
        for inner in value:
            yield from _refs(inner)


def _needed(steps: Sequence[Step], wanted: set[str]) -> list[Step]:
    """Return the steps that are needed to compute the wanted values, in order."""
    kept = []
    for step in reversed(steps):
        if step.name in wanted:
            kept.append(step)
            wanted |= {ref.name for ref in _refs([step.arguments, step.options])}
    return kept[::-1]


def bundle(programs: Mapping[str, Traced], *, half: bool = True) -> dict[str, Any]:
    """Return programs in the form that ``book-run.js`` reads, to be written as JSON.

    Tensors with equal numbers are stored once.

    Args:
        programs: Results of :func:`traced`, by name.
        half: Whether larger tensors of floating-point numbers are rounded to half precision.
            Default: True.

    Returns:
        A dictionary with these three entries.

        - ``"programs"``: a dictionary by name of the program. Each program has ``"inputs"`` (pairs
          of name and shape), ``"tensors"`` (indices into the list of all tensors), ``"outputs"``
          (pairs of name and number of a value) and ``"steps"`` (operation, arguments, options,
          kind). The values of a program are numbered: first the inputs, then the tensors, then the
          results of the steps. In arguments, ``{"v": 3}`` stands for value 3.
        - ``"tensors"``: the shape, the kind and the offset into the data of each tensor.
        - ``"data"``: the numbers of all tensors, in base64.
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
    """Return the kind in which a tensor is stored, and its bytes."""
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
    """Return arguments in which each ``Ref`` is replaced by the number of its value."""
    if isinstance(value, Ref):
        return {"v": number[value.name]}
    if isinstance(value, dict):
        return {k: _numbered(v, number) for k, v in value.items()}
    if isinstance(value, list):
        return [_numbered(v, number) for v in value]
    return value
