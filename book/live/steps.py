"""Trained models that read one token at a time, with states as tensors of fixed shapes."""

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
"""Ends of the names of tensors that grow with each token."""


class Stepped(nn.Module):
    """The scores of a model for the next token, and the new states of its layers.

    The tensors of a state have names such as ``layer0_sums``. The cache of a softmax layer has a
    fixed size, and a mask hides the tokens that are not yet read. For such a cache,
    ``layer0_keys`` and ``layer0_values`` of the result contain only the row of the new token.

    Args:
        model: A model whose layers all have a state.
        room: Number of tokens in a cache.
    """

    def __init__(self, model: LanguageModel, room: int) -> None:
        super().__init__()
        self.model, self.room = model, room

    @torch.no_grad()
    def start(self) -> dict[str, Tensor]:
        """Return the states before the first token: zeros of the shapes that ``forward`` takes."""
        _, states = self.model(torch.zeros(1, 1, dtype=torch.long), return_state=True)
        found = {name: torch.zeros_like(x) for name, x in self._parts(states).items()}
        for name, x in found.items():
            if name.endswith(CACHED):
                found[name] = x.repeat_interleave(self.room, -2)
        return found

    def forward(self, tokens: Tensor, place: Tensor, **kept: Tensor) -> dict[str, Tensor]:
        """Return the scores, ``(tokens, vocab)``, and the new states by name.

        Args:
            tokens: Alternatives for the next token, ``(tokens,)``.
            place: Number of earlier tokens, ``(1,)``.
            **kept: The states after these tokens, from ``start`` or an earlier call.
        """
        before = [self._state(i, len(tokens), place, kept) for i in range(len(self.model.blocks))]
        scores, after = self.model(
            tokens[:, None], place[None, :, None], state=before, return_state=True
        )
        return {"scores": scores[:, 0], **self._parts(after)}

    def _state(self, layer: int, many: int, place: Tensor, kept: dict[str, Tensor]) -> State:
        """Return the state of a layer, repeated for each of ``many`` tokens."""
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
        """Return the tensors of the states by name; for a cache, only the last row."""
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
        """Return the program that computes this many alternatives for the next token."""
        given = torch.zeros(tokens, dtype=torch.long)
        return traced(self, tokens=given, place=torch.zeros(1, dtype=torch.long), **self.start())


class Seen(nn.Module):
    """The attention weights of a model that reads a whole text at once.

    Args:
        model: A causal model.
    """

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> dict[str, Tensor]:
        """Return the ``weights`` of all heads, ``(layers, heads, n, n)``, for n tokens."""
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
        study: The module of the study, which defines ``CELLS``.
        room: Number of tokens in a cache.
        make_model: Function that builds the model of a cell. Default: that of the study.
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
    """Return the colour of a model and the shapes of the tensors of its states."""
    return {"colour": colour, "kept": {name: [*x.shape] for name, x in stepped.start().items()}}
