"""Saves the state of a run in checkpoints, and ends the run if it is asked to stop."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import torch

from lab.records import stamp
from lab.train.checkpoint import Checkpoint
from lab.train.hardware import first_writes, one_process, over_all
from lab.train.interrupt import SIGNALS, Interrupted, StopRequest, handled

if TYPE_CHECKING:  # importing Lightning takes seconds
    from lightning_fabric import Fabric


class Part(Protocol):
    """A part of a run whose state can be saved, such as a module or an optimiser of PyTorch."""

    def state_dict(self) -> Mapping[str, Any]:
        """Return the state of the part."""

    def load_state_dict(self, state: Any) -> Any:
        """Load a state of the part."""


class Generators:
    """PyTorch's global random generator and further generators, as a part of a run."""

    def __init__(self, *others: torch.Generator) -> None:
        self.all = (torch.default_generator, *others)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of each generator."""
        return {"states": [generator.get_state() for generator in self.all]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the state of each generator."""
        for generator, one in zip(self.all, state["states"], strict=True):
            generator.set_state(one)


class Keeper:
    """Saves a run in its checkpoint.

    Attributes:
        done: Number of steps after which the run was last saved.
        wall_s: Duration of the run in seconds, including the parts before a stop.
        made: Commit, hardware and versions of each part of the run that differs in these from the
            part before, see :func:`~lab.records.stamp`. Empty if nothing is saved.

    Args:
        file: The checkpoint of the run, or None to save nothing.
        parts: Name → part of the run. All processes pass their parts, and the first process writes.
        fabric: The processes. Default: this process alone, on the CPU.
        every: Number of steps between two checkpoints.
        ask_every: Several processes check only every ``ask_every`` steps, beginning with the first
            step, whether one of them was asked to stop.
    """

    def __init__(
        self,
        file: Checkpoint | None,
        parts: Mapping[str, Part],
        fabric: Fabric | None = None,
        every: int = 100,
        ask_every: int = 1,
    ) -> None:
        self.file, self.parts, self.fabric = file, parts, fabric or one_process()
        self.every, self.ask_every = every, ask_every
        self.done, self.wall_s, self.made = 0, 0.0, list[dict[str, Any]]()
        self._since = time.perf_counter()
        self._stop = StopRequest()

    def load(self) -> None:
        """Load the state of all parts from the checkpoint, if there is one.

        Raises:
            ValueError: If the file is damaged or belongs to another run, or if only some of the
                processes find it.
        """
        if self.file is None:
            return
        self._require_seen(self.file)
        state = self.file.read()
        if not state:
            return
        try:
            for name, part in self.parts.items():
                part.load_state_dict(state["parts"][name])
            self.made = [dict(one) for one in state["made"]]
            self.wall_s, self.done = float(state["wall_s"]), int(state["step"])
        except Exception as error:  # whatever entries of another kind lead to
            raise self.file.broken() from error

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record the commit and the hardware, and handle Ctrl-C and SIGTERM during the run."""
        if self.file is None:
            yield
            return
        made = stamp(device=self.fabric.device.type)
        self.made += [made] * (self.made[-1:] != [made])
        with handled(self._stop.note, *SIGNALS):
            yield

    def after(self, done: int, steps: int) -> None:
        """Save the run after a number of steps, if a checkpoint is due or the run is asked to stop.

        Raises:
            OSError: In every process, if the checkpoint cannot be written.
            Interrupted: If the run was asked to stop. The run is then saved.
        """
        now = time.perf_counter()
        self.wall_s, self._since = self.wall_s + now - self._since, now
        if self.file is None:
            return
        asked = self._is_asked(done, steps)
        if done == steps or asked or done % self.every == 0:
            self._save(self.file, done)
        if asked:
            raise Interrupted(
                f"stopped after {done} of {steps} steps. The run is saved in {self.file.path}"
            )

    def _save(self, file: Checkpoint, done: int) -> None:
        kept = f"its first {self.done} steps are kept" if self.done else "nothing of it is kept"
        then = f"the run stops at step {done}, {kept}; free some disk space and start it again"
        parts = {name: part.state_dict() for name, part in self.parts.items()}
        state = {"step": done, "wall_s": self.wall_s, "made": self.made, "parts": parts}
        first_writes(self.fabric, partial(file.write, state, then))
        self.done = done

    def _is_asked(self, done: int, steps: int) -> bool:
        """Return whether any process was asked to stop: none may go on alone."""
        if self.fabric.world_size == 1:
            return self._stop.asked
        if (done - 1) % self.ask_every and done != steps:
            return False
        asked = torch.tensor(float(self._stop.asked), device=self.fabric.device)
        return over_all(self.fabric, asked, "sum").item() > 0

    def _require_seen(self, file: Checkpoint) -> None:
        """Raise unless all processes see the checkpoint, or none."""
        mine = torch.tensor(float(file.path.exists()), device=self.fabric.device)
        if over_all(self.fabric, mine, "mean").item() not in (0, 1):
            raise ValueError(
                f"{file.path} must be on a disk that all processes share, but some processes do "
                "not find it"
            )
