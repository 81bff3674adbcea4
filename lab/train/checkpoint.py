"""The file of a run: written whole or not at all, and refused where it does not belong."""

from __future__ import annotations

import os
import warnings
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lab.files import whole
from lab.tasks.task import Task
from lab.train.settings import Settings

About = Mapping[str, Mapping[Any, Any]]

FREE = ("checkpoint_every",)
"""Settings that may change when a run goes on, for they alter no number."""

KINDS = {
    "settings": "other settings",
    "task": "another task",
    "shapes": "another model",
    "parts": "another model",
    "cell": "another cell",
    "code": "other code",
}
"""What is compared, where a run has it → what a run is of that differs in it."""


class OtherRunError(ValueError):
    """A file is of another run; ``what`` of :data:`KINDS` differs."""

    def __init__(self, message: str, what: str) -> None:
        super().__init__(message)
        self.what = what


class Checkpoint:
    """The file of one run: its state as long as it is under way, and at last what came of it.

    Args:
        path: The file.
        about: What the run is: some of :data:`KINDS` → names and values, which tensors may not be.
    """

    def __init__(self, path: Path, about: About) -> None:
        self.path, self.about = path, about

    def read(self) -> dict[str, Any]:
        """Return what was written last; an empty dictionary without a file.

        Raises:
            OtherRunError: If the file is of another run; the message names the difference.
            ValueError: If it is no checkpoint, or broken.
        """
        if not self.path.exists():
            return {}
        try:
            with warnings.catch_warnings(action="ignore"):  # about the age of a file of others
                state = dict(torch.load(self.path, map_location="cpu", weights_only=True))
            about = state.pop("about")
            good = all(isinstance(about[what], dict) for what in self.about)
        except PermissionError:  # which names the file
            raise
        except Exception:  # whatever reading something else leads to
            good = False
        if not good:
            raise self.broken()
        for what, entries in self.about.items():
            found = _difference(about[what], entries)
            if found:
                raise OtherRunError(
                    f"{self.path} must be a checkpoint of the same run, but is one of "
                    f"{KINDS[what]}: {found}. Choose another folder, or start from the beginning.",
                    what,
                )
        return state

    def write(self, state: Mapping[str, Any], then: str) -> None:
        """Write a state: whatever happens meanwhile, the file is the old one or the new.

        Args:
            state: Numbers, words, tensors, and lists and dictionaries of them.
            then: What is kept if it cannot be written, and what to do: the end of the message.

        Raises:
            OSError: If it cannot be written.
        """
        with whole(self.path, then) as part, part.open("wb") as file:
            torch.save({"about": self.about, **state}, file)
            file.flush()
            os.fsync(file.fileno())

    def clear(self) -> None:
        """Remove the file: whoever starts anew must not go on from it later."""
        self.path.unlink(missing_ok=True)

    def broken(self) -> ValueError:
        """Return an error for a file that cannot be gone on from."""
        return ValueError(
            f"{self.path} must be a checkpoint of a run, but is broken, of another version or "
            "another kind of file. Remove it, choose another folder, or start from the beginning."
        )


def describe(
    model: nn.Module, task: Task, settings: Settings, code: Mapping[str, str]
) -> dict[str, dict[Any, Any]]:
    """Return what a run is: settings, task, the model's parts and shapes, and the code of all.

    Args:
        model: The model.
        task: The task.
        settings: How to train.
        code: That of training, model and task, as from :func:`~lab.train.code.code_of`.
    """
    about = {k: v for k, v in vars(task).items() if k[0] != "_"}
    plain = (bool, int, float, str, tuple, type(None), torch.Tensor)
    told = {k: _brief(v) for k, v in about.items() if isinstance(v, plain)}
    return {
        "settings": {k: v for k, v in asdict(settings).items() if k not in FREE},
        "task": {"class": type(task).__name__, **told},
        "shapes": {k: tuple(v.shape) for k, v in model.state_dict().items()},
        "parts": dict(enumerate(repr(model).splitlines())),
        "code": dict(code),
    }


def folder_of(name: str) -> str:
    """Return the name of a cell's folder."""
    return name.replace(" ", "+")


def _brief(value: Any) -> str:
    """Return a value in words; of data their shape and a checksum."""
    if isinstance(value, tuple):
        return f"({', '.join(_brief(part) for part in value)})"
    if not isinstance(value, torch.Tensor):
        return repr(value)
    if value.is_meta or value.layout != torch.strided:
        return f"data of shape {tuple(value.shape)}"
    values = value.detach().cpu().flatten().contiguous().view(torch.uint8).numpy().data
    return f"data of shape {tuple(value.shape)} with checksum {zlib.crc32(values):08x}"


def _difference(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> str:
    """Return the first entry that differs, in words."""
    for key in dict.fromkeys([*old, *new]):
        before, now = (str(x[key]).strip() if key in x else "missing" for x in (old, new))
        if before != now:
            return f"{'' if isinstance(key, int) else f'{key} '}was {before}, is {now}"
    return ""
