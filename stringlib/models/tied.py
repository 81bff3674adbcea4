"""An embedding and a readout with one shared weight, which stays shared if a model is moved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from torch import Tensor, nn


class Tied(nn.Module):
    """A model with an embedding ``embed`` and a readout ``readout``, which may share their weight.

    Attributes:
        tied: Whether the two share their weight when the model is created.
    """

    embed: nn.Embedding
    readout: nn.Linear
    tied: bool

    def _tie(self) -> None:
        """Share the weight if ``tied``, and share it again after ``load_state_dict``."""
        if self.tied:
            self.readout.weight = self.embed.weight
        self.register_load_state_dict_post_hook(_tied_again)

    def _load_from_state_dict(self, *args: Any) -> None:
        """Load a state, and tie the shared weight again, which ``assign=True`` splits into two."""
        self._shared_before = self._holders()
        super()._load_from_state_dict(*args)

    def _holders(self) -> list[nn.Module]:
        """Return the modules that hold the shared weight, the embedding first.

        With adapters these modules are inside ``embed`` and ``readout``. The result is empty if the
        weight is not shared: if one of the two modules was replaced, or if its weight is now
        computed, for example by a parametrisation. Two weights on the meta device have no values
        yet, and count as one.
        """
        embed, readout = (
            [m for m in part.modules() if m._parameters.get("weight") is not None]
            for part in (self.embed, self.readout)
        )
        if not (self.tied and embed and readout):
            return []
        weight, other = embed[0].weight, readout[0].weight
        shared = [m for m in readout if m.weight is weight]
        if weight.is_meta and other.is_meta and weight.shape == other.shape:
            shared = readout[:1]
        return [embed[0], *shared] if shared else []

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move or convert the model, and tie the shared weight again.

        A move from the meta device can replace the shared weight by two separate weights.
        """
        holders = self._holders()
        super()._apply(fn, recurse)
        _share(holders)
        return self


def _share(holders: list[nn.Module]) -> None:
    """Give all modules the weight of the first one."""
    for module in holders[1:]:
        module.weight = holders[0].weight


def _tied_again(model: Tied, _: Any) -> None:
    """Tie the shared weight again, which ``load_state_dict(assign=True)`` splits into two."""
    _share(model._shared_before)
