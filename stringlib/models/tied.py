"""An embedding and a readout with one shared weight, which stays shared if a model is moved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from torch import Tensor, nn

_Shared = list[tuple[nn.Module, str, nn.Parameter]]  # module, attribute, and the parameter there


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
        self._shared_before = self._shared()
        super()._load_from_state_dict(*args)

    def _shared(self) -> _Shared:
        """Return the modules and attributes that hold the shared parameter, and the parameter.

        The modules can be inside adapters or parametrisations. The module of the embedding comes
        first. The list is empty if no parameter is shared, for example if the readout was replaced.
        Two weights on the meta device have no values yet, so they are taken to be shared.
        """
        if not self.tied:
            return []
        embed, readout = (
            [(m, k, p) for m in part.modules() for k, p in m._parameters.items() if p is not None]
            for part in (self.embed, self.readout)
        )
        for own in embed:
            same = [other for other in readout if other[2] is own[2]]
            if same:
                return [own, *same]
        both = [x[0] for x in (embed, readout) if x]
        on_meta = len(both) == 2 and all(p.is_meta for *_, p in both)
        return both if on_meta and both[0][2].shape == both[1][2].shape else []

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move or convert the model, and tie the shared weight again.

        A move from the meta device can replace the shared weight by two separate weights.
        """
        shared = self._shared()
        super()._apply(fn, recurse)
        _share(shared)
        return self


def _share(before: _Shared) -> None:
    """Let all given modules hold the same parameter again.

    If several modules have received new parameters, all modules get the last of these. This is what
    ``load_state_dict`` without ``assign`` does: it copies one weight after the other into the
    shared parameter, so the values of the last weight remain.

    Args:
        before: The modules, their attributes, and the parameter that they shared before.
    """
    now = [module._parameters[name] for module, name, _ in before]
    replaced = [p for p, (*_, old) in zip(now, before, strict=True) if p is not old]
    for module, name, _ in before:
        module._parameters[name] = (replaced or now)[-1]


def _tied_again(model: Tied, _: Any) -> None:
    """Tie the shared weight again, which ``load_state_dict(assign=True)`` splits into two."""
    _share(model._shared_before)
