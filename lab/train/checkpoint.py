"""The checkpoint of a run, which is written completely or not at all."""

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
"""Settings that may change when a run continues, because they have no effect on its results."""

KINDS = {
    "settings": "other settings",
    "task": "another task",
    "shapes": "another model",
    "parts": "another model",
    "cell": "another cell",
    "code": "other code",
}
"""The parts of a run that are compared → words for a run in which this part differs."""


class OtherRunError(ValueError):
    """A checkpoint belongs to another run. ``what`` is the key of :data:`KINDS` that differs."""

    def __init__(self, message: str, what: str) -> None:
        super().__init__(message)
        self.what = what


class Checkpoint:
    """The checkpoint of one run, which contains its state during the run and its result at the end.

    Args:
        path: The file.
        about: Description of the run: for some keys of :data:`KINDS`, names and values. The values
            must not be tensors.
    """

    def __init__(self, path: Path, about: About) -> None:
        self.path, self.about = path, about

    def read(self) -> dict[str, Any]:
        """Return the content that was written last, or an empty dictionary if there is no file.

        Raises:
            OtherRunError: If the file belongs to another run. The message names the difference.
            ValueError: If the file is damaged or is not a checkpoint.
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
        """Write a state. If writing fails, the old file remains.

        Args:
            state: Numbers, strings, tensors, and lists and dictionaries of these.
            then: End of the error message: what is kept if the file cannot be written, and what to
                do.

        Raises:
            OSError: If the file cannot be written.
        """
        with whole(self.path, then) as part, part.open("wb") as file:
            torch.save({"about": self.about, **state}, file)
            file.flush()
            os.fsync(file.fileno())

    def clear(self) -> None:
        """Remove the file, so that a new run does not continue from it later."""
        self.path.unlink(missing_ok=True)

    def broken(self) -> ValueError:
        """Return the error for a file that is damaged or is not a checkpoint."""
        return ValueError(
            f"{self.path} must be a checkpoint of a run, but is broken, of another version or "
            "another kind of file. Remove it, choose another folder, or start from the beginning."
        )


def describe(
    model: nn.Module, task: Task, settings: Settings, code: Mapping[str, str]
) -> dict[str, dict[Any, Any]]:
    """Return the description of a run: settings, task, parts and shapes of the model, and code.

    Args:
        model: The model.
        task: The task.
        settings: Settings of the training.
        code: Digests of the code of the training, the model and the task, as
            :func:`~lab.train.code.code_of` returns them.
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
    """Return the name of the folder of a cell."""
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
