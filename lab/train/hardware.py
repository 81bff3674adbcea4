"""The hardware of a run: number of processes, devices and precision."""

from __future__ import annotations

import atexit
import functools
import logging
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:  # importing Lightning takes seconds, so it is imported when a training starts
    from lightning_fabric import Fabric
    from lightning_fabric.loggers.logger import Logger

DEVICES = ("auto", "cpu", "cuda", "mps")
PRECISIONS = ("32-true", "bf16-mixed", "16-mixed")

# it announces every process that it starts
logging.getLogger("lightning_fabric").setLevel(logging.WARNING)


def find_device(device: str = "auto", wide: bool = False) -> str:
    """Return the name of the device on which to train.

    Args:
        device: One of ``DEVICES``. ``"auto"`` is the value of the environment variable
            ``STRINGLIB_DEVICE`` if it is set, otherwise a GPU of this machine that works, otherwise
            the CPU.
        wide: Whether the training needs float64. Then ``"auto"`` does not choose Apple's GPU, which
            does not support float64.

    Raises:
        ValueError: If the name is unknown, or if there is no such device.
    """
    name = "device"
    if device == "auto":
        name, device = "STRINGLIB_DEVICE", os.environ.get("STRINGLIB_DEVICE") or "auto"
        device = "cpu" if wide and device == "mps" else device
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device not in DEVICES:
        raise ValueError(f"{name} must be one of {', '.join(DEVICES)}, got {device!r}")
    if not there.get(device, True):
        raise ValueError(f"{name} must be a device that PyTorch finds here, got {device!r}")
    if device != "auto":
        return device
    for gpu in ("cuda", "mps"):
        if there[gpu] and not (wide and gpu == "mps") and _computes(gpu):
            return gpu
    return "cpu"


@functools.cache
def _computes(gpu: str) -> bool:
    """Tell whether a GPU does what training needs, a product and its gradient; if not, say why.

    PyTorch also finds cards that its build has no code for, and drivers that are too old.
    """
    try:
        x = torch.ones(8, 8, device=gpu, requires_grad=True)
        (x @ x).sum().backward()
        gradient = x.grad.cpu()  # type: ignore[union-attr]
    except (RuntimeError, AssertionError) as error:
        why = f"{error}".strip().splitlines()[0]
    else:
        if gradient.eq(16).all():
            return True
        why = "the gradient of a product is wrong there"
    print(f"Training on the CPU, because the GPU does not compute: {why}", file=sys.stderr)
    return False


def make_fabric(
    accelerator: str = "auto",
    devices: int = 1,
    nodes: int = 1,
    precision: str = "32-true",
    loggers: Sequence[Logger] = (),
) -> Fabric:
    """Return Lightning Fabric for one process, or for several processes with DDP.

    Args:
        accelerator: ``"cpu"``, ``"cuda"``, ``"mps"`` or ``"auto"``, see :func:`find_device`.
        devices: Number of processes per machine. Each process has its own device.
        nodes: Number of machines.
        precision: ``"32-true"``, ``"bf16-mixed"`` or ``"16-mixed"``.
        loggers: Loggers of Lightning. The first process passes them the logged values of each run.
            The caller closes the loggers.

    Raises:
        ValueError: If a name is unknown, or if the machine does not support the requested hardware.
    """
    from lightning_fabric import Fabric
    from lightning_fabric.strategies.ddp import DDPStrategy

    if precision not in PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")
    if accelerator == "auto":
        accelerator = find_device()
    # a static graph allows parameters that get no gradient, without a search at each step
    strategy = DDPStrategy(static_graph=True) if devices * nodes > 1 else "auto"
    if devices * nodes > 1:
        atexit.register(_leave_group)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it takes another precision and says so; see below
            fabric = Fabric(
                accelerator=accelerator,
                devices=devices,
                num_nodes=nodes,
                precision=precision,  # type: ignore[arg-type]
                strategy=strategy,
                loggers=list(loggers),
            )
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            "accelerator, devices, nodes and precision must be supported by this machine, got "
            f"{accelerator!r}, {devices}, {nodes} and {precision!r}. Lightning reports: {error}"
        ) from None
    if fabric.strategy.precision.precision != precision:
        raise ValueError(
            f"precision must be one that the accelerator supports, for example "
            f"{fabric.strategy.precision.precision!r}, got {precision!r}"
        )
    return fabric


@functools.cache
def one_process() -> Fabric:
    """Return Fabric for this process alone, on the CPU, for models that are not set up."""
    from lightning_fabric import Fabric

    return Fabric(accelerator="cpu", devices=1)


def _leave_group() -> None:
    """Leave the group of processes: its threads may abort an interpreter that ends before."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def over_all(fabric: Fabric, x: torch.Tensor, how: str) -> torch.Tensor:
    """Return the ``"mean"``, ``"sum"`` or ``"min"`` of a tensor over all processes."""
    if fabric.world_size == 1:
        return x
    whole = fabric.all_reduce(x.detach().clone(), reduce_op=how)
    assert isinstance(whole, torch.Tensor)
    return whole


def first_writes(fabric: Fabric, write: Callable[[], Any]) -> None:
    """Let the first process write a file while the other processes wait.

    If writing fails, all processes raise the error.

    Raises:
        OSError: If the file cannot be written.
    """
    trouble = None
    if fabric.is_global_zero:
        try:
            write()
        except OSError as error:
            trouble = error
    trouble = fabric.broadcast(trouble)
    if trouble is not None:
        raise trouble
