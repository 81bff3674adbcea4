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
        self._tied_before = self._is_tied()
        super()._load_from_state_dict(*args)

    def _is_tied(self) -> bool:
        """Return whether the embedding and the readout have one weight.

        The result is False if one of the two was replaced, or if its weight is now computed, for
        example by a parametrisation. Two weights on the meta device have no values yet, and count
        as one.
        """
        embed, readout = (m._parameters.get("weight") for m in (self.embed, self.readout))
        if embed is None or readout is None or not self.tied:
            return False
        return embed is readout or (embed.is_meta and readout.is_meta)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move or convert the model, and tie the shared weight again.

        A move from the meta device can replace the shared weight by two separate weights.
        """
        tied = self._is_tied()
        super()._apply(fn, recurse)
        if tied:
            self.readout.weight = self.embed.weight
        return self


def _tied_again(model: Tied, _: Any) -> None:
    """Tie the shared weight again, which ``load_state_dict(assign=True)`` splits into two."""
    if model._tied_before:
        model.readout.weight = model.embed.weight
