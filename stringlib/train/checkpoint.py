"""Checkpoints: written whole or not at all, and refused where they do not belong."""

from __future__ import annotations

import os
import pickle
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import nn

from stringlib.tasks.task import Task
from stringlib.train.history import History
from stringlib.train.settings import Settings

FREE = ("checkpoint_every",)
"""Settings that may change when a run goes on, for they alter no number."""


def describe(model: nn.Module, task: Task, settings: Settings) -> dict[str, Any]:
    """Return what a run is, in plain values: settings, task, and the model's parts and shapes."""
    about = {k: v for k, v in vars(task).items() if k[0] != "_"}
    plain = (bool, int, float, str, tuple, type(None), torch.Tensor)
    told = {k: _brief(v) for k, v in about.items() if isinstance(v, plain)}
    return {
        "settings": {k: v for k, v in asdict(settings).items() if k not in FREE},
        "task": {"class": type(task).__name__, **told},
        "shapes": {k: tuple(v.shape) for k, v in model.state_dict().items()},
        "parts": dict(enumerate(repr(model).splitlines())),
    }


class Store:
    """The checkpoint of one run.

    Args:
        path: The file; None keeps nothing.
        about: What the run is, from :func:`describe`.
        model: The model itself, as one process has it.
        optimizer: Its optimiser.
        fabric: The processes; the first one writes.
    """

    def __init__(
        self,
        path: Path | None,
        about: Mapping[str, Any],
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        fabric: Fabric,
    ) -> None:
        self.path, self.about, self.fabric = path, about, fabric
        self.model, self.optimizer = model, optimizer

    def save(self, step: int, history: History) -> None:
        """Write the checkpoint; whatever happens meanwhile, the file is the old one or the new."""
        if self.path is None:
            return
        if self.fabric.is_global_zero:
            self._write(self.path, step, history)
        self.fabric.barrier()  # a process that ends earlier takes the others with it

    def _write(self, path: Path, step: int, history: History) -> None:
        state = {
            "about": self.about,
            "step": step,
            "history": asdict(history),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "precision": self.fabric.strategy.precision.state_dict(),  # a scaler has a state
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        try:
            with part.open("wb") as file:
                torch.save(state, file)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except BaseException:  # half a file helps nobody, least of all on a full disk
            part.unlink(missing_ok=True)
            raise

    def clear(self) -> None:
        """Remove the checkpoint: whoever starts anew must not go on from it later."""
        if self.path is not None and self.fabric.is_global_zero:
            self.path.unlink(missing_ok=True)

    def load(self) -> tuple[int, History]:
        """Bring model and optimiser to where the checkpoint left them.

        Returns:
            How many updates were made, and the history; 0 and an empty one without checkpoint.

        Raises:
            ValueError: If the checkpoint is of another run; the message names the difference. Or
                if the file is no checkpoint, or the processes do not see the same file.
        """
        if self.path is None:
            return 0, History()
        self._require_seen(self.path)
        if not self.path.exists():
            return 0, History()
        state = self._read(self.path)
        self._require_same(state["about"])
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.fabric.strategy.precision.load_state_dict(state["precision"])
        return state["step"], History(**state["history"])

    def _read(self, path: Path) -> dict[str, Any]:
        """Return what a checkpoint holds; raise if the file is none, or is broken."""
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except (RuntimeError, EOFError, pickle.UnpicklingError):
            state = None
        if not isinstance(state, dict) or "about" not in state:
            raise ValueError(
                f"{path} must be a checkpoint of a run, but is broken or something else; remove "
                "it, choose another folder, or start anew"
            )
        return state

    def _require_seen(self, path: Path) -> None:
        """Raise unless all processes see the checkpoint, or none."""
        if self.fabric.world_size == 1:
            return
        mine = torch.tensor(float(path.exists()), device=self.fabric.device)
        seen = self.fabric.all_reduce(mine, reduce_op="mean")
        assert isinstance(seen, torch.Tensor)
        if seen.item() not in (0, 1):
            raise ValueError(f"{path} must be on a disk that all processes share, but some lack it")

    def _require_same(self, about: Mapping[str, Any]) -> None:
        kinds = {"settings": "other settings", "task": "another task"}
        for what in ("settings", "task", "shapes", "parts"):
            found = _difference(about[what], self.about[what])
            if found:
                raise ValueError(
                    f"{self.path} must be of the same run to go on from, but is of "
                    f"{kinds.get(what, 'another model')}: {found}; choose another folder, or "
                    "start anew"
                )


def _brief(value: Any) -> str:
    """Return a value in words; of data their shape and a checksum."""
    if isinstance(value, tuple):
        return f"({', '.join(_brief(part) for part in value)})"
    if not isinstance(value, torch.Tensor):
        return repr(value)
    values = value.detach().cpu().flatten().contiguous().view(torch.uint8).numpy().data
    return f"data of shape {tuple(value.shape)} with checksum {zlib.crc32(values):08x}"


def _difference(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> str:
    """Return the first entry that differs, in words."""
    for key in dict.fromkeys([*old, *new]):
        before, now = (str(x[key]).strip() if key in x else "missing" for x in (old, new))
        if before != now:
            return f"{'' if isinstance(key, int) else f'{key} '}was {before}, is {now}"
    return ""
