"""Modules with tensors that follow from their arguments, and so are in no ``state_dict``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn


class Derived(nn.Module):
    """Base of the modules with buffers that are in no ``state_dict``.

    Whoever moves, empties or loads a module thinks of its ``state_dict``. What is not in there
    would stay behind: without memory after ``load_state_dict(assign=True)``, without its numbers
    after ``to_empty``, which reaches a module as often as others hold it.
    """

    def _refill(self) -> None:
        """Write the buffers that are not in the ``state_dict``."""

    @property
    def _refills(self) -> bool:
        return type(self)._refill is not Derived._refill

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move; then write anew: exact in the new dtype, whatever was there.

        What was given and cannot be computed keeps its numbers.
        """
        own = [] if self._refills else [self._buffers[n] for n in self._non_persistent_buffers_set]

        def move(t: Tensor) -> Tensor:
            if not any(t is given for given in own):
                return fn(t)
            like = fn(t)  # of t itself: a subclass may keep it exact
            if t.is_meta and not like.is_meta:
                raise RuntimeError(
                    f"{type(self).__name__} holds numbers that it was given and that are in no "
                    "state_dict: make it where it is to be, got one made on meta"
                )
            return t.to(like.device, like.dtype)

        super()._apply(move, recurse)
        self._refill()
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        """Set; and write anew what takes the place of a buffer without memory.

        Libraries that build a model on meta set what is in no file to anything: transformers.
        """
        own = self.__dict__.get("_non_persistent_buffers_set", ())
        held = self._buffers[name] if name in own else None
        super().__setattr__(name, value)
        if self._refills and held is not None and held.is_meta and isinstance(value, Tensor):
            self._refill()

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        *args: Any,
    ) -> None:
        """Load; where tensors take the place of those without memory, the others get some too."""
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *args)
        if not self._refills or not local_metadata.get("assign_to_params_buffers"):
            return
        tensors = [*self._parameters.values(), *self._buffers.values()]
        loaded = (t.device for t in tensors if t is not None and not t.is_meta)
        device = next(loaded, torch.empty(0).device)
        for name in self._non_persistent_buffers_set:
            buffer = self._buffers[name]
            if buffer is not None and buffer.is_meta:
                self._buffers[name] = torch.empty_like(buffer, device=device)
        self._refill()
