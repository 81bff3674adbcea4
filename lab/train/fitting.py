"""Training of a model on a task, with scores, metrics and checkpoints."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from lab.tasks.task import IGNORE, Task
from lab.train.checkpoint import Checkpoint, describe
from lab.train.code import code_of
from lab.train.evaluate import evaluate
from lab.train.hardware import find_device, first_writes, make_fabric
from lab.train.history import History, Log
from lab.train.keeper import Keeper
from lab.train.loop import minimise
from lab.train.optimizer import coefficients, make_optimizer
from lab.train.settings import Settings, half_cosine

if TYPE_CHECKING:  # importing Lightning takes seconds
    from lightning_fabric import Fabric


def fit(
    model: nn.Module,
    task: Task,
    settings: Settings,
    *,
    device: str | None = None,
    fabric: Fabric | None = None,
    on_log: Callable[[History], Any] | None = None,
    folder: Path | None = None,
    keep: Checkpoint | None = None,
    resume: bool = True,
    progress: bool | None = None,
) -> History:
    """Train a model in place, and return its history with the scores at the end.

    The batch of a step, and all random numbers that the model draws in this step, depend only on
    the seed and the step. So a run that continues from a checkpoint gets the same batches as a run
    without a stop. On the CPU the results of the two runs are bitwise equal. If several processes
    train together, each process uses some rows of the same batch.

    Args:
        model: The model. After the training it is moved back to its original device.
        task: The task, which defines batches, loss and test sets.
        settings: Settings of the training.
        device: ``"cpu"``, ``"cuda"``, ``"mps"`` or ``"auto"`` (default). ``"auto"`` is the value of
            the environment variable ``STRINGLIB_DEVICE`` if it is set, otherwise the GPU of this
            machine if there is one, otherwise the CPU.
        fabric: Launched processes, as :func:`~lab.train.hardware.make_fabric` returns them, in
            place of ``device``.
        on_log: Function that the first process calls with the history after each entry.
        folder: Folder for ``checkpoint.pt`` and ``metrics.jsonl``. With a folder, Ctrl-C and
            SIGTERM end the run after the current step, and the run is saved. Default: None, nothing
            is saved.
        keep: A checkpoint in place of a folder, as :class:`~lab.train.study.Study` passes it to its
            runs.
        resume: If True (default), a run with a checkpoint continues from it, and a finished run is
            not repeated: its parameters and its history are read.
        progress: Whether to show a progress bar. Default: only in a terminal.

    Raises:
        ValueError: If the device does not exist or is given twice, if the number of processes does
            not divide the batch size, if a batch has no target, or if the checkpoint is damaged or
            belongs to another run.
        FloatingPointError: If the loss or its gradient is not finite.
        OSError: If a file cannot be written. The message says what is kept.
        Interrupted: If the run was asked to stop. The run is then saved. This error is a
            ``KeyboardInterrupt``.
    """
    if device is not None and fabric is not None:
        raise ValueError(f"device must be None if fabric is given, got {device!r}")
    wide = any(p.dtype == torch.float64 for p in model.parameters())
    fabric = fabric or make_fabric(find_device(device or "auto", wide))
    if settings.batch_size % fabric.world_size:
        raise ValueError(
            f"batch_size must be a multiple of {fabric.world_size}, the number of processes, "
            f"got {settings.batch_size}"
        )
    if folder is not None:
        about = describe(model, task, settings, code_of(fit, model, task))
        keep = Checkpoint(folder / "checkpoint.pt", about)
    if keep is not None and not resume:
        first_writes(fabric, keep.clear)
    with _lent(model):
        wrapped, optimizer = fabric.setup(model, make_optimizer(model, settings))
        log = Log(settings, fabric, folder, on_log)
        precision = fabric.strategy.precision  # a scaler has a state
        parts = {"history": log, "optimizer": optimizer, "precision": precision, "model": model}
        keeper = Keeper(keep, parts, fabric, settings.checkpoint_every, settings.log_every)
        keeper.load()
        history = log.history
        penalised = coefficients(model)

        def factor(step: int) -> float:
            return half_cosine(step, settings.steps, settings.warmup)

        def loss(step: int) -> Tensor:
            inputs, targets, count = _rows(task, settings, step, fabric)
            _seed(settings.seed, step, fabric)
            log.count(inputs)
            return task.loss(wrapped(inputs), targets) * (fabric.world_size / count)

        def penalty() -> Tensor:
            return settings.penalty * torch.stack([c.square().sum() for c in penalised]).sum()

        def after(step: int, value: Tensor, norm: Tensor) -> None:
            log.see(step, value, norm, factor(step) * settings.rate)
            done, final = step + 1, step + 1 == settings.steps
            if final or (settings.evaluate_every and done % settings.evaluate_every == 0):
                log.scores(done, evaluate(model, task, fabric), final)
            if log.is_due(step):
                bar.set_postfix_str(f"loss {history.losses[-1]:.4g}", refresh=False)
            bar.update()

        if not history.scores:
            log.begin(keeper.done)
            model.train()
            with (
                torch.random.fork_rng([fabric.device] if fabric.device.type == "cuda" else []),
                _bar(keeper.done, settings.steps, progress, fabric) as bar,
            ):
                minimise(
                    wrapped,
                    loss,
                    optimizer,
                    settings.steps,
                    factor=factor,
                    clip=settings.clip,
                    penalty=penalty if settings.penalty and penalised else None,
                    after=after,
                    fabric=fabric,
                    keeper=keeper,
                )
        history.wall_s, history.made = keeper.wall_s, keeper.made
        return history


@contextmanager
def _lent(model: nn.Module) -> Iterator[None]:
    """Bring a model back to the device that it comes from, whatever happens."""
    home = next(model.parameters()).device
    try:
        yield
    finally:
        model.to(home)


def _rows(
    task: Task, settings: Settings, step: int, fabric: Fabric
) -> tuple[Tensor, Tensor, float]:
    """Return this process's rows of the batch, and the number of targets in the whole of it."""
    generator = torch.Generator().manual_seed(settings.seed * 1_000_003 + step)
    inputs, targets = task.batch(settings.batch_size, generator)
    count = (targets != IGNORE).sum().item()
    if not count:
        raise ValueError(f"batch of step {step} must have a target, got none")
    mine = slice(fabric.global_rank, None, fabric.world_size)
    return fabric.to_device(inputs[mine]), fabric.to_device(targets[mine]), count


def _seed(seed: int, step: int, fabric: Fabric) -> None:
    """Seed what a model may draw from, anew at each step: then there is no state to save."""
    number = (seed * 1_000_003 + step) * fabric.world_size + fabric.global_rank
    torch.default_generator.manual_seed(number)
    if fabric.device.type == "cuda":
        torch.cuda.manual_seed(number)


def _bar(start: int, steps: int, progress: bool | None, fabric: Fabric) -> Any:
    """Return a progress bar, or nothing that does as if."""
    from tqdm import tqdm

    shown = sys.stderr.isatty() if progress is None else progress
    hidden = not (shown and fabric.is_global_zero)
    return tqdm(total=steps, initial=start, unit="step", disable=hidden, leave=False)
