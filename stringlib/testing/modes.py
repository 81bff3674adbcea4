"""Modes in which PyTorch runs a function: eager, blind, compiled, exported and batched.

A property has to be checked in all modes, because the package runs different code in them. For
example, a compiled function, a function under ``vmap`` and a function on a GPU must not read values
of tensors.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from stringlib.inputs import without_looking

Function = Callable[..., Any]
Free = Sequence[Sequence[int]]
"""For each tensor, the dimensions that may have another size in a later call."""


class Mode:
    """Mode that runs a function unchanged (eager mode), and base class of all other modes.

    ``mode(function, *tensors)`` calls a function in the mode.
    """

    name = "eager"
    cheap = True
    """Whether preparing a function takes almost no time."""

    def prepared(self, function: Function, *tensors: Tensor, free: Free = ()) -> Function:
        """Return a function that runs ``function`` in this mode.

        Args:
            function: Function of tensors that returns tensors, or a module.
            *tensors: Example arguments.
            free: For each example argument, the dimensions whose size may differ in later calls.
                Default: no dimension.
        """
        return function

    def around(self) -> AbstractContextManager[Any]:
        """Return a context manager in which results and gradients of this mode are computed."""
        return nullcontext()

    def __call__(self, function: Function, *tensors: Tensor) -> Any:
        """Call a function of tensors in this mode."""
        with self.around():
            return self.prepared(function, *tensors)(*tensors)

    def gradients(self, out: Tensor, leaves: Sequence[Tensor]) -> list[Tensor]:
        """Return the gradients of a weighted sum of the outputs, with weights from −1 to 2.

        Args:
            out: The outputs.
            leaves: Tensors with respect to which gradients are computed. If the outputs do not
                depend on a tensor, its gradient is 0.
        """
        factors = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view(out.shape)
        with self.around():
            return list(
                torch.autograd.grad(
                    (out * factors).sum(), leaves, allow_unused=True, materialize_grads=True
                )
            )

    def __repr__(self) -> str:
        return self.name


class Blind(Mode):
    """Mode in which reading a value of a tensor raises an error.

    On a GPU, reading a value would wait for the device.
    """

    name = "blind"

    @contextlib.contextmanager
    def around(self) -> Iterator[None]:
        """Return a context manager in which reading a value of a tensor raises an error."""
        with without_looking(), _NoLook():
            yield


class Compiled(Mode):
    """Mode that compiles a function by ``torch.compile``, into one graph with dynamic sizes."""

    name = "compiled"
    cheap = False

    def prepared(self, function: Function, *tensors: Tensor, free: Free = ()) -> Function:
        """Clear the caches of the compiler, and return the compiled function."""
        torch.compiler.reset()  # otherwise the limit of 8 recompilations would be reached
        return torch.compile(function, fullgraph=True, dynamic=True, backend="eager")


class Exported(Mode):
    """Mode that exports a function by ``torch.export``; sizes of free dimensions are dynamic."""

    name = "exported"
    cheap = False

    def prepared(self, function: Function, *tensors: Tensor, free: Free = ()) -> Function:
        """Return the exported program."""
        size = torch.export.Dim.DYNAMIC
        shapes = tuple(dict.fromkeys(dims, size) for dims in free) or tuple({} for _ in tensors)
        program = torch.export.export(_Program(function), tensors, dynamic_shapes=(shapes,))
        return program.module()


class Batched(Mode):
    """Mode that runs ``torch.func.vmap`` over a batch of two entries.

    The second entry consists of the given tensors. The first entry consists of the same tensors
    with their first dimension reversed. If the two entries were equal, code that mixes them up
    would go unnoticed.
    """

    name = "batched"

    def prepared(self, function: Function, *tensors: Tensor, free: Free = ()) -> Function:
        """Return a function that runs ``function`` on a batch that contains its arguments.

        The arguments are the second entry of the batch. The function returns the result of this
        entry.
        """
        batched = torch.func.vmap(function)

        def one(*tensors: Tensor) -> Any:
            with warnings.catch_warnings():  # operations that vmap runs in a loop are allowed
                warnings.filterwarnings("ignore", "There is a performance drop")
                found = batched(*map(_after_another, tensors))
            return tree_map_only(Tensor, lambda x: x[1], found)

        return one


def _after_another(x: Tensor) -> Tensor:
    """Return a batch of two: a tensor with its first dimension reversed, and the tensor itself."""
    batch = x.expand(2, *x.shape).clone()
    batch[0] = x.flip(0) if x.ndim else x
    return batch


EAGER = Mode()
MODES: tuple[Mode, ...] = (EAGER, Blind(), Compiled(), Exported(), Batched())
"""All modes. The first is eager mode, with which all other modes are compared."""


class _Program(nn.Module):
    """A function as a module, as ``torch.export`` requires.

    Modules that the function refers to are submodules, because the exporter would make constants
    of the parameters of any other module.
    """

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function
        self.held = nn.ModuleList(_modules(function))

    def forward(self, *tensors: Tensor) -> Any:
        return self.function(*tensors)


def _modules(x: Any) -> list[nn.Module]:
    """Return the modules to which a function refers, also through other functions and fields."""
    if isinstance(x, nn.Module):
        return [x]
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        parts = [getattr(x, field.name) for field in dataclasses.fields(x)]
    else:
        parts = [cell.cell_contents for cell in getattr(x, "__closure__", None) or ()]
        parts += [x.__self__] if inspect.ismethod(x) else []
    return [module for part in parts for module in _modules(part)]


class _NoLook(TorchDispatchMode):
    """PyTorch dispatch mode that raises an error at each operation that would wait for a GPU."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ in ("_local_scalar_dense", "nonzero", "equal"):
            raise AssertionError(
                f"values of tensors must not be read, got the operation {func}. On a GPU it would "
                "wait for the device."
            )
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def lines_of_a_graph(exported: bool = False) -> Iterator[None]:
    """Return a context manager in which code for a compiler or an exporter runs in eager mode.

    Args:
        exported: If True, the code that ``torch.export`` would trace is run. If False (default),
            the code that ``torch.compile`` would trace is run.
    """
    with (
        mock.patch("torch.compiler.is_compiling", return_value=True),
        mock.patch("torch.compiler.is_exporting", return_value=exported),
    ):
        yield


class OneDevice(TorchDispatchMode):
    """PyTorch dispatch mode that raises an error for a result that is on another device.

    Capturing a CUDA graph would fail if an operation returned a tensor on another device.

    Args:
        device: Type of the device on which all results have to be. ``"meta"`` can stand for a
            device that is not available.
    """

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = torch.device(device)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if isinstance(x, Tensor) and x.device.type != self.device.type:
                raise AssertionError(
                    f"{func} must return tensors on {self.device}, got a tensor on {x.device}"
                )
        return out


def on_meta(call: Callable[[], Any]) -> Iterator[Any]:
    """Yield the results of a call on the meta device; a tensor on another device raises an error.

    The meta device stands for any device but the CPU. The call is run three times: unchanged, with
    the code that a compiler would trace, and with the code that an exporter would trace.
    """
    for lines in (nullcontext(), lines_of_a_graph(), lines_of_a_graph(exported=True)):
        with OneDevice("meta"), lines:
            found = call()
        yield found
