"""Train every method with every seed, and gather what came out."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import nn

from stringlib.tasks import Task, make_task
from stringlib.train.loop import fit
from stringlib.train.options import Options


def make_all(options: Options) -> Task:
    """Return the task, and make a model of each method once, so that a misfit shows at once.

    Raises:
        ValueError: If a method cannot be made; the message names it.
    """
    try:
        task = make_task(options.task, **options.task_options)
    except TypeError as error:
        raise ValueError(f"{options.task}: {error}") from None
    for name, told in options.cells.items():
        try:
            task.model(**told)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name}: {error}") from None
    return task


def train_all(
    options: Options, task: Task, fabric: Fabric, say: Callable[[str], Any]
) -> dict[str, dict[str, Any]]:
    """Train what is not trained yet, seed by seed.

    Returns:
        For each name what the model was told, its number of ``parameters``, and its ``runs``, each
        with ``seed``, ``scores``, ``logged`` steps, ``losses`` there, ``wall_s``, and what its
        parts were ``made`` with.

    Raises:
        FloatingPointError: If a run went wrong; the message names its method and seed.
    """
    cells: dict[str, dict[str, Any]] = {
        name: {"told": told, "runs": []} for name, told in options.cells.items()
    }
    if options.fresh and fabric.is_global_zero:  # all at once: whoever stops early can go on
        for name, seed in itertools.product(cells, range(options.seeds)):
            (folder_of(options, name, seed) / "checkpoint.pt").unlink(missing_ok=True)
    runs = [*itertools.product(range(options.seeds), cells)]
    for number, (seed, name) in enumerate(runs, 1):
        cell = cells[name]
        torch.manual_seed(seed)
        model = task.model(**cell["told"])
        cell["parameters"] = count(model)
        try:
            history = fit(
                model,
                task,
                dataclasses.replace(options.settings, seed=seed),
                fabric=fabric,
                folder=folder_of(options, name, seed),
                resume=not options.fresh,
                progress=options.progress,
                label=f"{number}/{len(runs)} {name}, seed {seed}",
            )
        except FloatingPointError as error:
            raise FloatingPointError(f"{name}, seed {seed}: {error}") from None
        scores = ", ".join(f"{test} {score:.4g}" for test, score in history.scores.items())
        say(f"{name}, seed {seed}: {task.metric} {scores}, {history.wall_s:.1f} s")
        cell["runs"].append(
            {
                "seed": seed,
                "scores": history.scores,
                "logged": history.steps,
                "losses": history.losses,
                "wall_s": round(history.wall_s, 1),
                "made": history.made,
            }
        )
    return cells


def folder_of(options: Options, name: str, seed: int) -> Path:
    """Return where one run is kept."""
    return options.folder / name.replace(" ", "+") / f"seed-{seed}"


def count(model: nn.Module) -> int:
    """Return the number of learned numbers."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)
