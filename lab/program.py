"""A model as a list of steps that a page can run, with no kernel and no network.

A module runs once, and every operation on tensors that depends on an input is written down. What
depends on none, such as angles and folded bases, is computed here and now; the rest goes into
JSON, beside the numbers that it needs. ``book/_assets/book-run.js`` runs such a list in the
reader's browser, so that a figure or a trained model in a page is the package itself, not a copy
in another language.
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
"""Operation → what it is made of, as ``torch.export`` has it."""

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
    """The value of an input, a tensor or a step, as an argument of a step."""

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

    The module runs once, on the inputs as they are, and each operation that depends on one of them
    is written down. What depends on none is computed on the way. As under ``torch.export``, no
    branch may depend on a value.

    Args:
        module: Its ``forward`` takes the inputs by name and returns a tensor, called ``"out"``, or
            a dictionary of tensors with names of its own. It runs in evaluation mode.
        **inputs: An example of each input; a page may give other numbers, but no other shapes.

    Returns:
        The steps from the inputs to the outputs.

    Raises:
        ValueError: If an output does not depend on any input, or the module looks at a value.
    """
    was, recorder = module.training, _Recorder(inputs)
    with torch.no_grad(), _compiling_state_context(), sdpa_kernel(SDPBackend.MATH), recorder:
        made = functionalize(module.eval(), remove="mutations")(**inputs)
    module.train(was)
    outputs = {}
    for name, value in (made if isinstance(made, Mapping) else {"out": made}).items():
        if not recorder.follows(value):
            raise ValueError(f"module must return what depends on its inputs, got {name!r}")
        outputs[name] = recorder.name(value)
    kept = _needed(recorder.steps, set(outputs.values()))
    read = {ref.name for step in kept for ref in _refs([step.arguments, step.options])}
    shapes = {name: list(example.shape) for name, example in inputs.items()}
    known = {name: x.detach() for name, x in recorder.known.items() if name in read}
    return Traced(shapes, outputs, kept, known)


class _Recorder(TorchDispatchMode):
    """Write down each operation on what follows from the inputs.

    Attributes:
        steps: What was done, in order.
        known: Tensors that steps read and that no input changes, by name.
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
        """Return the name of a tensor; one that is new depends on no input."""
        if id(tensor) not in self._names:
            self._names[id(tensor)] = name = f"known{len(self.known)}"
            self.known[name] = tensor
            self._seen.append(tensor)
        return self._names[id(tensor)]

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Do an operation, and write it down if it depends on an input."""
        kwargs = kwargs or {}
        if not any(self.follows(x) for x in pytree.tree_leaves((args, kwargs))):
            return function(*args, **kwargs)
        if function is torch.ops.aten._local_scalar_dense.default:
            raise ValueError("module must not look at a value that depends on its inputs")
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
        """Write a step down and return the name of its value."""
        name = f"step{len(self.steps)}"
        first = made if isinstance(made, Tensor) else made[0]
        kind = KINDS.get(first.dtype, "whole")
        self.steps.append(Step(name, operation, arguments, options, kind))
        self._names[id(made)] = name
        self._following.add(id(made))
        self._seen.append(made)
        return name

    def _argument(self, value: Any) -> Any:
        """Return an argument of an operation as JSON has it, a tensor as a ``Ref``."""
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
