"""The ways in which PyTorch runs one function: at once, blind, compiled, exported, batched.

A contract that holds in one of them alone is none: under a compiler, in a batch of ``vmap`` and on
a GPU other lines are run, for there values may not be looked at.
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
"""For each tensor the dimensions that may have another size in a later call."""


class Mode:
    """Eager: a function as it is. The base of the others.

    ``mode(function, *tensors)`` calls it in this way.
    """

    name = "eager"
    cheap = True  # whether it takes no time to prepare a function

    def prepared(self, function: Function, *tensors: Tensor, free: Free = ()) -> Function:
        """Return a function of as many tensors that is run in this way.

        Args:
            function: A function of tensors that returns tensors, or a module.
            *tensors: Examples of what it will be given.
            free: For each of them the dimensions whose size may be another later.
        """
        return function

    def around(self) -> AbstractContextManager[Any]:
        """Return what holds while tensors are computed, their gradients too."""
        return nullcontext()

    def __call__(self, function: Function, *tensors: Tensor) -> Any:
        """Call a function of tensors in this way."""
        with self.around():
            return self.prepared(function, *tensors)(*tensors)

    def gradients(self, out: Tensor, leaves: Sequence[Tensor]) -> list[Tensor]:
        """Return those of a fixed sum of the outputs, 0 where a leaf is not used."""
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
    """Values may not be looked at, as on a GPU, which would have to be waited for."""

    name = "blind"

    @contextlib.contextmanager
    def around(self) -> Iterator[None]:
        """Refuse every look at a value."""
        with without_looking(), _NoLook():
            yield


class Compiled(Mode):
    """``torch.compile`` with one graph for all sizes, and none that breaks."""

    name = "compiled"
    cheap = False

    def prepared(self, function: Function, *tensors: Tensor, free: Free = ()) -> Function:
        """Return the function, compiled anew."""
        torch.compiler.reset()  # a function is compiled 8 times at most
        return torch.compile(function, fullgraph=True, dynamic=True, backend="eager")


class Exported(Mode):
    """``torch.export``, for any size of the dimensions that are free."""

    name = "exported"
    cheap = False

    def prepared(self, function: Function, *tensors: Tensor, free: Free = ()) -> Function:
        """Return the exported program."""
        size = torch.export.Dim.DYNAMIC
        shapes = tuple(dict.fromkeys(dims, size) for dims in free) or tuple({} for _ in tensors)
        program = torch.export.export(_Program(function), tensors, dynamic_shapes=(shapes,))
        return program.module()


class Batched(Mode):
    """``torch.func.vmap`` over the tensors and others: a batch that no line has seen.

    Others, for two that are equal would hide what mixes them up.
    """

    name = "batched"

    def prepared(self, function: Function, *tensors: Tensor, free: Free = ()) -> Function:
        """Return the function for one of a batch of two."""
        batched = torch.func.vmap(function)

        def one(*tensors: Tensor) -> Any:
            with warnings.catch_warnings():  # of an operation that goes one by one, no error
                warnings.filterwarnings("ignore", "There is a performance drop")
                found = batched(*map(_after_another, tensors))
            return tree_map_only(Tensor, lambda x: x[1], found)

        return one


def _after_another(x: Tensor) -> Tensor:
    """Return a batch of two: what stands in a tensor in another order, and as it is."""
    batch = x.expand(2, *x.shape).clone()  # autocast stacks no float64
    batch[0] = x.flip(0) if x.ndim else x
    return batch


EAGER = Mode()
MODES: tuple[Mode, ...] = (EAGER, Blind(), Compiled(), Exported(), Batched())
"""All of them; the first is the one that is no test of the others."""


class _Program(nn.Module):
    """A function as a module, with the modules that it closes over, as ``torch.export`` wants."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function
        cells = getattr(function, "__closure__", None) or ()
        held = [getattr(function, "__self__", None), *(cell.cell_contents for cell in cells)]
        self.held = nn.ModuleList(x for x in held if isinstance(x, nn.Module))

    def forward(self, *tensors: Tensor) -> Any:
        return self.function(*tensors)


class _NoLook(TorchDispatchMode):
    """Refuses whatever would wait for a GPU."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ in ("_local_scalar_dense", "nonzero", "equal"):
            raise AssertionError(f"a value is looked at: {func}")
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def lines_of_a_graph(exported: bool = False) -> Iterator[None]:
    """Run at once the lines of which a compiler, or an exporter, makes a graph."""
    with (
        mock.patch("torch.compiler.is_compiling", return_value=True),
        mock.patch("torch.compiler.is_exporting", return_value=exported),
    ):
        yield


class OneDevice(TorchDispatchMode):
    """Refuses a tensor on another device: as a graph of a GPU that is captured would.

    Args:
        device: That on which all tensors have to be, ``"meta"`` in place of one that is not here.
    """

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = torch.device(device)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if isinstance(x, Tensor) and x.device.type != self.device.type:
                raise AssertionError(f"{func} makes a tensor on {x.device}, not on {self.device}")
        return out


def on_meta(call: Callable[[], Any]) -> Iterator[Any]:
    """Yield what a call gives on the meta device alone, which stands for any other than the CPU.

    Run at once, and by the lines of a compiled and of an exported graph.
    """
    for lines in (nullcontext(), lines_of_a_graph(), lines_of_a_graph(exported=True)):
        with OneDevice("meta"), lines:
            found = call()
        yield found
