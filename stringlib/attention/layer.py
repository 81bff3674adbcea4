"""The base class of attention layers: access to the parts of the core, and the initial state."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from stringlib.attention.core import PARTS, AttentionCore
from stringlib.attention.states import PathState, opened
from stringlib.encoders.rotary import Phases
from stringlib.inputs import is_offloaded, require_like_weight, require_places
from stringlib.spec import checked

if TYPE_CHECKING:
    from stringlib.documents import Documents


class AttentionLayer(nn.Module):
    """Base class of attention layers, whose heads are computed by a core.

    The parts ``features``, ``encoder``, ``roll`` and ``weight`` of the core are attributes of the
    layer too, and can be replaced there.

    Attributes:
        dim: Number of channels of a token.
        core: The :class:`~stringlib.attention.core.AttentionCore` between the projections.
        to_q: The projection :math:`W_q`. The others are ``to_k``, ``to_v`` and ``to_out``.
        position_steps: The module that computes the steps of the positions, or None.
    """

    dim: int
    core: AttentionCore
    to_q: nn.Linear
    to_k: nn.Linear
    to_v: nn.Linear
    to_out: nn.Linear
    position_steps: nn.Module | None

    def _stepped(
        self, x: Tensor, key_mask: Tensor | None, state: Any, documents: Documents | None
    ) -> tuple[Tensor, Tensor, Any]:
        """Return the positions that ``position_steps`` makes, the last one, and the core's state.

        Args:
            x: Tokens, ``(..., seq, dim)``.
            key_mask: False for padding, or None.
            state: The state that was given to the layer, or None.
            documents: The documents of packed sequences, or None.
        """
        from stringlib.attention.path import path_positions, rotary_of

        before = None
        if state is not None:
            before, state = opened(state, PathState)
        encoder = rotary_of(self.encoder)
        assert self.position_steps is not None
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
        if name == "core" and not hasattr(value, "located"):
            raise TypeError(
                "core must be an AttentionCore, or a wrapper that passes on its attributes as peft "
                f"does, got {type(value).__name__}. Wrap the layer or the block instead."
            )
        if name in PARTS:
            setattr(self.core, name, value)
        else:
            super().__setattr__(name, value)


def require_tokens(layer: Any, x: Tensor, positions: Tensor | Phases | None) -> None:
    """Raise an error unless tokens and positions fit the projections of a layer.

    Args:
        layer: A layer of attention.
        x: Tokens, ``(..., seq, dim)``.
        positions: Positions of the tokens, or None.

    Raises:
        TypeError: If the dtype of the tokens is not that of the projections.
        ValueError: If the positions do not fit the tokens, or if a part of the core is offloaded.
    """
    require_like_weight("x", x, layer.to_q)
    if is_offloaded(layer.to_q) and any(p.is_meta for p in layer.core.parameters()):
        raise ValueError(
            "encoder, features and weight must not be offloaded one by one, got parameters on "
            "the meta device. The layer uses these parameters together. Pass "
            f"preload_module_classes=['{type(layer).__name__}'] to cpu_offload of accelerate."
        )
    if positions is not None:
        require_fitting("positions", positions, x)


def require_fitting(name: str, positions: Tensor | Phases, x: Tensor) -> None:
    """Raise ``ValueError`` unless the leading dimensions of positions expand to those of tokens.

    Args:
        name: Name of the positions in the error.
        positions: ``(..., seq, coord_dim)``, or phases of an encoder.
        x: Tokens, ``(..., seq, dim)``.
    """
    if isinstance(positions, Phases):
        require_places("x", x, positions.cos_sin, own=4, what=name)
    else:
        require_places("x", x, positions, what=name)
