"""A trained model that reads one token after another, in shapes that a page can be given."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from book.recorded import data
from lab.program import Traced, traced
from lab.weights import unpack
from stringlib.attention.cache import KeyValueCache
from stringlib.attention.states import LinearState, ShiftedState, State
from stringlib.models.language import LanguageModel

CACHED = ("_keys", "_values")
"""How the parts that grow are named."""


class Stepped(nn.Module):
    """A model's scores for what follows a token, and what its layers keep then.

    What a layer keeps is named ``layer0_sums``. The cache of softmax, which grows, has room for
    some tokens from the start; those not yet read are hidden, and of ``layer0_keys`` and
    ``layer0_values`` comes back the new row alone.

    Args:
        model: It has a state in every layer.
        room: Tokens of a cache.
    """

    def __init__(self, model: LanguageModel, room: int) -> None:
        super().__init__()
        self.model, self.room = model, room

    @torch.no_grad()
    def start(self) -> dict[str, Tensor]:
        """Return what the layers keep before the first token: nothing, in the shapes they need."""
        _, states = self.model(torch.zeros(1, 1, dtype=torch.long), return_state=True)
        found = {name: torch.zeros_like(x) for name, x in self._parts(states).items()}
        for name, x in found.items():
            if name.endswith(CACHED):
                found[name] = x.repeat_interleave(self.room, -2)
        return found

    def forward(self, tokens: Tensor, place: Tensor, **kept: Tensor) -> dict[str, Tensor]:
        """Return scores, ``(tokens, vocab)``, and by its name what is kept then.

        Args:
            tokens: Tokens of which each could be the next, ``(tokens,)``.
            place: How many came before, ``(1,)``.
            **kept: What those left, as ``start`` or an earlier call returned it.
        """
        before = [self._state(i, len(tokens), place, kept) for i in range(len(self.model.blocks))]
        scores, after = self.model(
            tokens[:, None], place[None, :, None], state=before, return_state=True
        )
        return {"scores": scores[:, 0], **self._parts(after)}

    def _state(self, layer: int, many: int, place: Tensor, kept: dict[str, Tensor]) -> State:
        """Return the state of a layer, once for each token."""
        attention: Any = self.model.blocks[layer].attention
        name = f"layer{layer}_"
        mine = {
            key.removeprefix(name): x.expand(many, *x.shape[1:])
            for key, x in kept.items()
            if key.startswith(name)
        }
        state: LinearState | KeyValueCache
        if "keys" in mine:
            read = (torch.arange(self.room) < place).expand(many, attention.heads, self.room)
            state = KeyValueCache(mine["keys"], mine["values"], read, attention.core.kind)
        else:
            state = LinearState(mine["sums"], mine.get("scale"), self.room, attention.core.kind)
        return ShiftedState(mine["key"], state) if "key" in mine else state

    def _parts(self, states: tuple[State, ...]) -> dict[str, Tensor]:
        """Return the tensors of states by their names; of a cache the last row."""
        found = {}
        for i, state in enumerate(states):
            if isinstance(state, ShiftedState):
                found[f"layer{i}_key"] = state.key
                state = state.rest
            if isinstance(state, KeyValueCache):
                found[f"layer{i}_keys"] = state.keys[..., -1:, :]
                found[f"layer{i}_values"] = state.values[..., -1:, :]
            elif isinstance(state, LinearState):
                found[f"layer{i}_sums"] = state.sums
                if state.log_scale is not None:
                    found[f"layer{i}_scale"] = state.log_scale
        return found

    def program(self, tokens: int) -> Traced:
        """Return what reads so many tokens, of which each could be the next."""
        given = torch.zeros(tokens, dtype=torch.long)
        return traced(self, tokens=given, place=torch.zeros(1, dtype=torch.long), **self.start())


class Seen(nn.Module):
    """To which tokens a model attends that reads a text at once.

    Args:
        model: Every layer attends to the tokens up to its own.
    """

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> dict[str, Tensor]:
        """Return for tokens ``(n,)`` the ``weights`` of all heads, ``(layers, heads, n, n)``."""
        found: list[Tensor] = []

        def look(layer: Any, args: tuple[Tensor, Any]) -> None:
            found.append(layer.attention_weights(*args)[0])

        blocks: Any = self.model.blocks
        hooks = [block.attention.register_forward_pre_hook(look) for block in blocks]
        self.model(tokens[None])
        for hook in hooks:
            hook.remove()
        return {"weights": torch.stack(found)}


def trained(
    study: ModuleType, room: int, make_model: Callable[..., Any] | None = None
) -> dict[str, Stepped]:
    """Return the models of a study with the weights of seed 0, which its record keeps.

    Args:
        study: It has ``CELLS``.
        room: Tokens of a cache.
        make_model: What makes a model of a cell. Default: the study's own.
    """
    made = make_model or study.make_model
    cells = data(study.__name__.rpartition(".")[2])["cells"]
    found = {}
    for name, told in study.CELLS.items():
        model = made(**{key: x for key, x in told.items() if key != "rate"}).eval()
        unpack(model, cells[name]["runs"][0]["weights"])
        found[name] = Stepped(model, room)
    return found


def about(stepped: Stepped, colour: str) -> dict[str, Any]:
    """Return what the page has to know of a model: its colour, and the shapes that it keeps."""
    return {"colour": colour, "kept": {name: [*x.shape] for name, x in stepped.start().items()}}
