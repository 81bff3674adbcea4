"""Cross-attention: checks of the context, the other sequence to which the tokens attend."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from stringlib.attention.layer import require_fitting
from stringlib.encoders.rotary import Phases
from stringlib.inputs import per_head, require_like_weight


class Context(NamedTuple):
    """The tokens to which a layer attends in cross-attention.

    Attributes:
        tokens: Tokens of the context, ``(..., keys, context_dim)``.
        positions: Positions of the context, ``(..., keys, coord_dim)``, or the phases of the
            encoder at these positions. None for the default positions.
        mask: False for padding in the context, ``(..., keys)``. None for no padding.
    """

    tokens: Tensor
    positions: Tensor | Phases | None
    mask: Tensor | None


def checked_context(
    layer: Any,
    x: Tensor,
    context: Tensor | None,
    context_positions: Tensor | Phases | None,
    mask: Tensor | None,
    **tokens_alone: Tensor | None,
) -> Context | None:
    """Check the context of a layer, and return it, or None without a context.

    Args:
        layer: A :class:`~stringlib.attention.multihead.MultiHeadAttention`.
        x: Tokens, ``(..., seq, dim)``.
        context: Tokens of the context, or None.
        context_positions: Positions of the context, or None.
        mask: False for padding in the context, or None.
        **tokens_alone: Arguments that describe the tokens ``x`` as keys, such as ``key_mask``.
            With a context they must be None.

    Raises:
        TypeError: If the dtype of the context is not that of the projections.
        ValueError: If the arguments do not fit the projections or each other, or if the layer does
            not support cross-attention.
    """
    if context is None:
        if layer.context_dim != layer.dim:
            raise ValueError(
                "context must be given, got None. The layer has context_dim = "
                f"{layer.context_dim} and dim = {layer.dim}. Pass the tokens to attend to."
            )
        if context_positions is not None or mask is not None:
            name = "context_mask" if context_positions is None else "context_positions"
            given: Any = mask if context_positions is None else context_positions
            raise ValueError(
                f"{name} must be None if context is None, got a {type(given).__name__}. "
                "Pass context too."
            )
        return None
    for name, given in tokens_alone.items():
        if given is not None:
            hint = "Pass context_mask instead" if name == "key_mask" else f"Leave out {name}"
            raise ValueError(
                f"{name} must be None if context is given, got a tensor of shape "
                f"{tuple(given.shape)}. With context, the queries attend to its tokens. {hint}."
            )
    steps = layer.position_steps is not None
    unfit = "a layer with position_steps" if steps else layer.core.unfit_for_context
    if unfit is not None:
        raise ValueError(
            f"context must be None for {unfit}, got a tensor of shape {tuple(context.shape)}. "
            "Leave out context, and use a second layer for cross-attention."
        )
    require_like_weight("context", context, layer.to_k)
    if context_positions is not None:
        require_fitting("context_positions", context_positions, x)
        coord_dim = 1 if layer.roll is not None else getattr(layer.encoder, "coord_dim", None)
        if isinstance(context_positions, Tensor) and coord_dim is not None:
            shape = tuple(context_positions.shape)
            if shape[-1] != coord_dim:
                raise ValueError(
                    "context_positions must have shape (..., keys, coord_dim) with coord_dim = "
                    f"{coord_dim}, got {shape}"
                )
    if mask is not None:
        shape = (*x.shape[:-2], layer.heads, context.shape[-2])
        per_head(mask, shape, x.device, "context_mask")
    return Context(context, context_positions, mask)
