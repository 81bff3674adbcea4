"""Cross-attention: the tokens of another sequence, which the tokens of a layer attend to."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from stringlib.encoders.rotary import Phases
from stringlib.inputs import per_head, require_like_weight, require_places


class Context(NamedTuple):
    """The tokens to which a layer attends in cross-attention.

    Attributes:
        tokens: ``(..., keys, context_dim)``.
        positions: ``(..., keys, coord_dim)``, phases of the encoder, or None for the default.
        mask: False for padding, ``(..., keys)``, or None.
    """

    tokens: Tensor
    positions: Tensor | Phases | None
    mask: Tensor | None


def context_of(
    layer: Any,
    x: Tensor,
    context: Tensor | None,
    positions: Tensor | Phases | None,
    mask: Tensor | None,
    **tokens_alone: Tensor | None,
) -> Context | None:
    """Return the context with its positions and mask, or None if a layer attends to its own tokens.

    Args:
        layer: A :class:`~stringlib.attention.multihead.MultiHeadAttention`.
        x: Tokens, ``(..., seq, dim)``.
        context: Tokens of the context, or None.
        positions: Positions of the context, or None.
        mask: False for padding in the context, or None.
        **tokens_alone: Arguments that describe the tokens ``x`` as keys: None with a context.

    Raises:
        ValueError: If the arguments do not fit each other, or the layer has no cross-attention.
    """
    if context is None:
        if layer.context_dim != layer.dim:
            raise ValueError(
                f"context must be given to a layer with context_dim = {layer.context_dim}, got None"
            )
        if positions is not None or mask is not None:
            name = "context_mask" if positions is None else "context_positions"
            raise ValueError(f"{name} must be None without context, got one. Give context too.")
        return None
    for name, given in tokens_alone.items():
        if given is not None:
            raise ValueError(
                f"{name} must be None with context, whose tokens are the keys, got a tensor of "
                f"shape {tuple(given.shape)}. Give context_mask for padding in the context."
            )
    unfit = layer.core.unfit_for_context
    if unfit is not None:
        raise ValueError(
            f"context must be None for {unfit}, got a tensor of shape {tuple(context.shape)}. "
            "Use another layer for cross-attention."
        )
    require_like_weight("context", context, layer.to_k)
    require_fitting_positions("context_positions", positions, x)
    if mask is not None:
        shape = (*x.shape[:-2], layer.heads, context.shape[-2])
        per_head(mask, shape, x.device, "context_mask")
    return Context(context, positions, mask)


def require_fitting_positions(name: str, positions: Tensor | Phases | None, x: Tensor) -> None:
    """Raise unless the leading dimensions of positions or phases expand to those of ``x``."""
    if isinstance(positions, Phases):
        require_places("x", x, positions.cos_sin, own=4, what=name)
    elif positions is not None:
        require_places("x", x, positions, what=name)
