"""Modes in which PyTorch runs a function: eager, blind, compiled, exported and batched.

A property has to be checked in all modes, because the package runs different code in them. For
example, a compiled function, a function under ``vmap`` and a function on a GPU must not read values
of tensors.
"""

from __future__ import annotations

import contextlib
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
    """Eager mode, which runs a function unchanged, and base of the other modes.

    ``mode(function, *tensors)`` calls a function in the mode.
    """

    name = "eager"
    cheap = True
    """Whether preparing a function takes no time."""

    def prepared(self, function: Function, *tensors: Tensor, free: Free = ()) -> Function:
        """Return a function that runs ``function`` in this mode.

        Args:
            function: Function of tensors that returns tensors, or a module.
            *tensors: Example arguments.
            free: For each of them, the dimensions whose size may differ in later calls. Default:
                none.
        """
        return function

    def around(self) -> AbstractContextManager[Any]:
        """Return a context in which tensors and their gradients have to be computed."""
        return nullcontext()

    def __call__(self, function: Function, *tensors: Tensor) -> Any:
        """Call a function of tensors in this mode."""
        with self.around():
            return self.prepared(function, *tensors)(*tensors)

    def gradients(self, out: Tensor, leaves: Sequence[Tensor]) -> list[Tensor]:
        """Return the gradients of a fixed weighted sum of the outputs.

        Args:
            out: The outputs.
            leaves: Tensors with respect to which gradients are computed. The gradient of a leaf
                that is not used is 0.
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
    """Mode in which reading values of a tensor is an error.

    On a GPU reading a value would wait for the device.
    """

    name = "blind"

    @contextlib.contextmanager
    def around(self) -> Iterator[None]:
        """Return a context in which reading a value raises an error."""
        with without_looking(), _NoLook():
            yield


class Compiled(Mode):
    """``torch.compile`` with dynamic sizes, where a graph break is an error."""

    name = "compiled"
    cheap = False

    def prepared(self, function: Function, *tensors: Tensor, free: Free = ()) -> Function:
        """Return the compiled function, after clearing the caches of the compiler."""
        torch.compiler.reset()  # otherwise the limit of 8 recompilations would be reached
        return torch.compile(function, fullgraph=True, dynamic=True, backend="eager")


class Exported(Mode):
    """``torch.export`` with dynamic sizes of the free dimensions."""

    name = "exported"
    cheap = False

    def prepared(self, function: Function, *tensors: Tensor, free: Free = ()) -> Function:
        """Return the exported program."""
        size = torch.export.Dim.DYNAMIC
        shapes = tuple(dict.fromkeys(dims, size) for dims in free) or tuple({} for _ in tensors)
        program = torch.export.export(_Program(function), tensors, dynamic_shapes=(shapes,))
        return program.module()


class Batched(Mode):
    """``torch.func.vmap`` over a batch of two: other tensors, and the given ones.

    The two differ, because code that mixes up the entries of the batch would otherwise go
    unnoticed.
    """

    name = "batched"

    def prepared(self, function: Function, *tensors: Tensor, free: Free = ()) -> Function:
        """Return a function that applies ``function`` to the batch and returns the second result.

        The given tensors are the second entry of the batch.
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
"""All modes. The first, eager mode, is the one with which the others are compared."""


class _Program(nn.Module):
    """A function as a module, as ``torch.export`` requires.

    Modules in the closure of the function are its submodules.
    """

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function
        cells = getattr(function, "__closure__", None) or ()
        held = [getattr(function, "__self__", None), *(cell.cell_contents for cell in cells)]
        self.held = nn.ModuleList(x for x in held if isinstance(x, nn.Module))

    def forward(self, *tensors: Tensor) -> Any:
        return self.function(*tensors)


class _NoLook(TorchDispatchMode):
    """Raises an error at each operation that would wait for a GPU."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ in ("_local_scalar_dense", "nonzero", "equal"):
            raise AssertionError(f"a value is read, which would synchronise a GPU: {func}")
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def lines_of_a_graph(exported: bool = False) -> Iterator[None]:
    """Return a context that runs eagerly the code that a compiler or exporter would trace.

    Args:
        exported: Whether the code is that of ``torch.export``. Default: that of ``torch.compile``.
    """
    with (
        mock.patch("torch.compiler.is_compiling", return_value=True),
        mock.patch("torch.compiler.is_exporting", return_value=exported),
    ):
        yield


class OneDevice(TorchDispatchMode):
    """Raises an error if a tensor is created on another device, as capturing a CUDA graph would.

    Args:
        device: Device of all tensors. ``"meta"`` can stand for a device that is not available.
    """

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = torch.device(device)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if isinstance(x, Tensor) and x.device.type != self.device.type:
                raise AssertionError(
                    f"{func} must return tensors on {self.device}, got one on {x.device}"
                )
        return out


def on_meta(call: Callable[[], Any]) -> Iterator[Any]:
    """Yield the results of a call on the meta device, where tensors on other devices are an error.

    The meta device stands for any device but the CPU. The call is run three times: as it is, and
    with the code that a compiler and an exporter would trace.
    """
    for lines in (nullcontext(), lines_of_a_graph(), lines_of_a_graph(exported=True)):
        with OneDevice("meta"), lines:
            found = call()
        yield found
