"""Where a run trains: one process or many, on which devices, in which precision."""

from __future__ import annotations

import logging
import warnings

from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy

PRECISIONS = ("32-true", "bf16-mixed", "16-mixed")

# it announces every process that it starts
logging.getLogger("lightning_fabric").setLevel(logging.WARNING)


def make_fabric(
    accelerator: str = "cpu", devices: int = 1, nodes: int = 1, precision: str = "32-true"
) -> Fabric:
    """Return Lightning Fabric for one process or, by DDP, for several.

    Args:
        accelerator: ``"cpu"``, ``"cuda"``, ``"mps"``, or ``"auto"`` for the best there is.
        devices: Processes a machine, each with a device of its own.
        nodes: Machines.
        precision: ``"32-true"``, ``"bf16-mixed"`` or ``"16-mixed"``.

    Raises:
        ValueError: If a name is unknown, or the machine lacks what is asked for.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")
    # a static graph allows parameters that get no gradient, without a search at each step
    strategy = DDPStrategy(static_graph=True) if devices * nodes > 1 else "auto"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it takes another precision and says so; see below
            fabric = Fabric(
                accelerator=accelerator,
                devices=devices,
                num_nodes=nodes,
                precision=precision,  # type: ignore[arg-type]
                strategy=strategy,
            )
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"accelerator={accelerator!r}, devices={devices}, precision={precision!r} must fit "
            f"this machine: {error}"
        ) from None
    if fabric.strategy.precision.precision != precision:
        raise ValueError(
            f"precision must be one that the accelerator has, such as "
            f"{fabric.strategy.precision.precision!r}, got {precision!r}"
        )
    return fabric
