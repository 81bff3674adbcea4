"""Modules that compute their non-persistent buffers again after they are moved or loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn


class Derived(nn.Module):
    """Base class of modules that compute their non-persistent buffers again when this is needed.

    Non-persistent buffers are not in the ``state_dict``, so loading does not restore them. After
    ``load_state_dict(assign=True)`` into a module on the meta device, non-persistent buffers would
    still have no memory. After ``to_empty`` they would have arbitrary values. This class therefore
    calls :meth:`reset_non_persistent_buffers` after ``load_state_dict(assign=True)``, after
    ``to_empty``, and after every other move or conversion. If several modules share this module,
    ``to_empty`` is applied to this module several times, and the buffers are computed each time.
    """

    def reset_non_persistent_buffers(self) -> None:
        """Compute the values of the non-persistent buffers; subclasses override this method."""

    @property
    def _resets(self) -> bool:
        return type(self).reset_non_persistent_buffers is not Derived.reset_non_persistent_buffers

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move or convert the module, then compute its non-persistent buffers again.

        So the buffers are accurate in the new dtype. If a subclass does not override
        :meth:`reset_non_persistent_buffers`, its non-persistent buffers cannot be computed. The
        values of these buffers are then copied, even by ``to_empty``.

        Raises:
            RuntimeError: If non-persistent buffers have to be copied from the meta device, on which
                they have no values.
        """
        own = [] if self._resets else [self._buffers[n] for n in self._non_persistent_buffers_set]

        def move(t: Tensor) -> Tensor:
            if not any(t is given for given in own):
                return fn(t)
            like = fn(t)  # called with t itself, because a subclass may keep its dtype
            if t.is_meta and not like.is_meta:
                raise RuntimeError(
                    f"{type(self).__name__} must be created on the device where it will be used, "
                    "got the meta device. On the meta device the numbers given to its constructor "
                    "are lost, and no state_dict contains these numbers."
                )
            return t.to(like.device, like.dtype)

        super()._apply(move, recurse)
        self.reset_non_persistent_buffers()
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; if it replaces a non-persistent buffer on meta, compute its values.

        The transformers library needs this, because it builds a model on the meta device and then
        replaces the buffers that are not in the checkpoint by tensors with arbitrary values.
        """
        own = self.__dict__.get("_non_persistent_buffers_set", ())
        held = self._buffers[name] if name in own else None
        super().__setattr__(name, value)
        if self._resets and held is not None and held.is_meta and isinstance(value, Tensor):
            self.reset_non_persistent_buffers()

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        *args: Any,
    ) -> None:
        """Load a state; with ``assign=True`` also allocate and compute non-persistent buffers."""
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *args)
        if not self._resets or not local_metadata.get("assign_to_params_buffers"):
            return
        tensors = [*self._parameters.values(), *self._buffers.values()]
        loaded = (t.device for t in tensors if t is not None and not t.is_meta)
        device = next(loaded, torch.empty(0).device)
        for name in self._non_persistent_buffers_set:
            buffer = self._buffers[name]
            if buffer is not None and buffer.is_meta:
                self._buffers[name] = torch.empty_like(buffer, device=device)
        self.reset_non_persistent_buffers()
