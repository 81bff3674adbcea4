"""Checks before the basis of a rotary encoder is merged, or its cosines are tabulated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from stringlib.encoders.form import RotaryForm


def require_projection(encoder: RotaryForm, weight: Tensor, heads: int | None) -> None:
    """Raise ``ValueError`` unless ``weight`` can project to queries or keys of this encoder."""
    if heads is not None and encoder.heads not in (1, heads):
        raise ValueError(
            f"heads must be None or {encoder.heads}, the number of heads of the encoder, got "
            f"{heads}"
        )
    own = heads or (None if encoder.heads == 1 else encoder.heads)
    rows = weight.shape[0] if weight.ndim in (1, 2) else 0
    if rows == 0 or rows % encoder.head_dim or (own and own * encoder.head_dim != rows):
        count = own or "any number of heads"
        raise ValueError(
            f"weight must have shape ({count} * {encoder.head_dim}, model_dim) or "
            f"({count} * {encoder.head_dim},), got {tuple(weight.shape)}"
        )
    if own is None and weight.ndim == 2 and weight.shape[1] == 3 * rows:
        raise ValueError(
            "weight must have the layout of nn.Linear, (out, in), got "
            f"{tuple(weight.shape)}, which looks like GPT-2's Conv1D with queries, keys and "
            f"values side by side. Pass one part, for example weight[:, :{rows}].T, or set "
            "heads."
        )
    third = rows // 3
    if own is None and weight.shape == (3 * third, third) and third % encoder.head_dim == 0:
        raise ValueError(
            f"weight must project to queries or to keys, got {tuple(weight.shape)}, which "
            f"looks like queries, keys and values in one projection. Fold weight[:{third}] and "
            f"weight[{third}:{2 * third}] separately, or set heads."
        )


def require_tables(encoder: RotaryForm) -> None:
    """Raise ``ValueError`` unless one table of cosines and sines is right for all heads."""
    if encoder.head_dim % 2:
        raise ValueError(
            f"encoder must have an even head_dim for tables, got head_dim={encoder.head_dim}. "
            "Tables are for models that rotate all channels in pairs."
        )
    if encoder.heads != 1:
        raise ValueError(
            f"encoder must have heads=1 for tables, got heads={encoder.heads}. All heads of a "
            "model share one table. Use an encoder with heads=1. Or write your own layer and "
            "call encoder.phases(positions), which returns the phases of each head."
        )
