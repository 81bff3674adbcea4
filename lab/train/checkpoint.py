"""Checkpoints: written whole or not at all, and refused where they do not belong."""

from __future__ import annotations

import os
import platform
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import nn

from lab.files import whole
from lab.tasks.task import Task
from lab.train.code import brief, code_of
from lab.train.hardware import first_writes, over_all
from lab.train.history import History
from lab.train.settings import Settings
from stringlib.attention.registry import FEATURES, WEIGHTS
from stringlib.encoders.registry import BIASES, ENCODERS

FREE = ("checkpoint_every",)
"""Settings that may change when a run goes on, for they alter no number."""

# names of all that there is: what a model is made of is in the model
REGISTRIES = (BIASES, ENCODERS, FEATURES, WEIGHTS)

KINDS = {
    "settings": "other settings",
    "task": "another task",
    "shapes": "another model",
    "parts": "another model",
    "python": "another Python",
    "code": "other code",
}
"""What is compared → what a run is of that differs in it."""


def describe(
    model: nn.Module, task: Task, settings: Settings, code: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return what a run is: settings, task, the model's parts and shapes, and the code of all.

    Args:
        model: The model.
        task: The task.
        settings: How to train.
        code: That of the training loop, as from :func:`~lab.train.code.code_of`.
    """
    about = {k: v for k, v in vars(task).items() if k[0] != "_"}
    plain = (bool, int, float, str, tuple, type(None), torch.Tensor)
    told = {k: brief(v) for k, v in about.items() if isinstance(v, plain)}
    return {
        "settings": {k: v for k, v in asdict(settings).items() if k not in FREE},
        "task": {"class": type(task).__name__, **told},
        "shapes": {k: tuple(v.shape) for k, v in model.state_dict().items()},
        "parts": dict(enumerate(repr(model).splitlines())),
        "python": {"version": ".".join(platform.python_version_tuple()[:2])},  # whose code it is
        # a name that somebody adds, or another one's encoder, is not this model's code
        "code": {**(code or {}), **code_of(*REGISTRIES, model=model, task=task)},
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
        self.kept = 0  # steps

    def save(self, step: int, history: History) -> None:
        """Write the checkpoint; whatever happens meanwhile, the file is the old one or the new.

        Raises:
            OSError: If it cannot be written, in every process.
        """
        if self.path is None:
            return
        first_writes(self.fabric, partial(self._write, self.path, step, history))
        self.kept = step

    def _write(self, path: Path, step: int, history: History) -> None:
        state = {
            "about": self.about,
            "step": step,
            "history": asdict(history),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "precision": self.fabric.strategy.precision.state_dict(),  # a scaler has a state
        }
        kept = f"its first {self.kept} steps are kept" if self.kept else "nothing of it is kept"
        then = f"the run stops at step {step}, {kept}; make room, and start it again to go on"
        with whole(path, then) as part, part.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())

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
        try:
            history = History(**state["history"])
            for name, value in asdict(History()).items():
                if not isinstance(getattr(history, name), type(value)):
                    raise TypeError(name)
            self.optimizer.load_state_dict(state["optimizer"])
            self.fabric.strategy.precision.load_state_dict(state["precision"])
            self.model.load_state_dict(state["model"])
            self.kept = int(state["step"])
        except Exception as error:  # whatever entries of another kind lead to
            raise self._broken(self.path) from error
        return self.kept, history

    def _read(self, path: Path) -> dict[str, Any]:
        """Return what a checkpoint holds; raise if the file is none, or is broken."""
        try:
            with warnings.catch_warnings(action="ignore"):  # about the age of a file of others
                state = torch.load(path, map_location="cpu", weights_only=True)
            about = state["about"]
            good = all(isinstance(about[what], dict) for what in KINDS)
        except PermissionError:  # which names the file
            raise
        except Exception:  # whatever reading something else leads to
            good = False
        if not good:
            raise self._broken(path)
        return dict(state)

    def _broken(self, path: Path) -> ValueError:
        return ValueError(
            f"{path} must be a checkpoint of a run, but is broken or something else; remove "
            "it, choose another folder, or start anew"
        )

    def _require_seen(self, path: Path) -> None:
        """Raise unless all processes see the checkpoint, or none."""
        mine = torch.tensor(float(path.exists()), device=self.fabric.device)
        if over_all(self.fabric, mine, "mean").item() not in (0, 1):
            raise ValueError(f"{path} must be on a disk that all processes share, but some lack it")

    def _require_same(self, about: Mapping[str, Any]) -> None:
        for what, kind in KINDS.items():
            found = _difference(about[what], self.about[what])
            if found:
                raise ValueError(
                    f"{self.path} must be of the same run to go on from, but is of {kind}: "
                    f"{found}; choose another folder, or start anew"
                )


def _difference(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> str:
    """Return the first entry that differs, in words."""
    for key in dict.fromkeys([*old, *new]):
        before, now = (str(x[key]).strip() if key in x else "missing" for x in (old, new))
        if before != now:
            return f"{'' if isinstance(key, int) else f'{key} '}was {before}, is {now}"
    return ""
