"""The base class of attention layers: access to the parts of the core, and the initial state."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from stringlib.attention.cache import KeyValueCache
from stringlib.attention.convolution import ConvolvedState
from stringlib.attention.core import PARTS, AttentionCore
from stringlib.attention.linear_state import LinearState
from stringlib.attention.path import PathState, path_positions, rotary_of
from stringlib.attention.shift import ShiftedState
from stringlib.documents import Documents
from stringlib.spec import checked

State = LinearState | KeyValueCache | ShiftedState | ConvolvedState | PathState
"""The states of attention layers, from which later tokens continue."""


def opened(state: Any, expected: type[Any]) -> Any:
    """Return the two parts of a state that contains the state of the core as its second part.

    Args:
        state: The state that was given to a layer.
        expected: The class of the states of this layer.

    Raises:
        TypeError: If the state is not of this class.
    """
    if not isinstance(state, expected):
        raise TypeError(
            f"state must be a {expected.__name__}, got {type(state).__name__}. Pass the state "
            "that the same layer returned."
        )
    return state


class AttentionLayer(nn.Module):
    """Base class of attention layers, whose heads are computed by a core.

    The parts ``features``, ``encoder``, ``roll`` and ``weight`` of the core are attributes of the
    layer too, and can be replaced there.

    Attributes:
        dim: Number of channels of a token.
        core: The :class:`~stringlib.attention.core.AttentionCore` between the projections.
        to_q: The projection :math:`W_q`. So are ``to_k``, ``to_v`` and ``to_out``.
        position_steps: The module that makes the steps of the positions, or None.
    """

    dim: int
    core: AttentionCore
    to_q: nn.Linear
    to_k: nn.Linear
    to_v: nn.Linear
    to_out: nn.Linear
    position_steps: nn.Module | None

    def _located(
        self,
        x: Tensor,
        positions: Any,
        key_mask: Tensor | None,
        state: Any,
        documents: Documents | None,
    ) -> tuple[Any, Tensor | None, Any]:
        """Return the positions of the tokens, the last position, and the state of the core.

        Without ``position_steps``, the given positions and the given state are returned, and None
        for the last position. With ``position_steps``, the given positions are not used. A model
        passes positions nevertheless if a wrapper around a block hides the layer.

        Args:
            x: Tokens, ``(..., seq, dim)``.
            positions: The positions that were given to the layer.
            key_mask: False for padding, or None.
            state: The state that was given to the layer, or None.
            documents: The documents of packed sequences, or None.
        """
        if self.position_steps is None:
            return positions, None, state
        before = None
        if state is not None:
            before, state = opened(state, PathState)
        encoder = rotary_of(self.encoder)
        steps = self.position_steps(x)
        expected = (*x.shape[:-1], encoder.coord_dim)
        if steps.shape != expected:
            raise ValueError(
                f"position_steps must return steps of shape {tuple(expected)} for tokens of shape "
                f"{tuple(x.shape)}, got {tuple(steps.shape)}. Return one number for each "
                "coordinate of the encoder."
            )
        positions, last = path_positions(steps, before, key_mask, documents)
        return positions, last, state

    @torch.no_grad()
    @checked
    def init_state(self, batch_shape: int | Sequence[int], max_length: int | None = None) -> Any:
        """Return the state before the first token, for decoding token by token.

        Args:
            batch_shape: Leading dimensions of the tokens, all but ``(seq, dim)``; one number for a
                single dimension.
            max_length: Number of tokens for which the cache of softmax gets memory. Up to this
                length no earlier token is copied, provided that gradients are off. Other states
                have a fixed size, so ``max_length`` has no effect on them. Default: None, which
                means that the memory grows with the tokens.

        Raises:
            ValueError: If the layer has no state.

        Example:
            >>> from stringlib import MultiHeadAttention
            >>> layer = MultiHeadAttention(64, 4, encoder="rope", causal=True)
            >>> state = layer.init_state(8, max_length=1024)
            >>> with torch.no_grad():
            ...     out, state = layer(torch.randn(8, 1, 64), state=state, return_state=True)
            >>> state.length
            1
        """
        lead = (batch_shape,) if isinstance(batch_shape, int) else tuple(batch_shape)
        # not new_zeros of a parameter, because quantised weights are integers or have no new_zeros
        device = next(itertools.chain(self.parameters(), self.buffers())).device
        dtype = next((p.dtype for p in self.parameters() if p.is_floating_point()), None)
        nothing = torch.zeros(*lead, 0, self.dim, dtype=dtype, device=device)
        state = self(nothing, return_state=True)[1]
        return state if max_length is None else state.with_room(max_length)

    @property
    def has_state(self) -> bool:
        """Whether the layer returns a state, from which later tokens continue."""
        return self.core.has_state

    # the parts of the core can be read and replaced as attributes of the layer
    features = property(lambda self: getattr(self.core, "features", None))
    weight = property(lambda self: getattr(self.core, "weight", None))
    encoder = property(lambda self: self.core.encoder)
    position_bias = property(lambda self: getattr(self.core, "position_bias", None))
    roll = property(lambda self: self.core.roll)
    rotate = property(lambda self: self.core.rotate)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute. A part of the core, such as ``encoder``, is set in the core."""
        if name in PARTS:
            setattr(self.core, name, value)
        else:
            super().__setattr__(name, value)
