"""Weights of trained models, rewritten: for another layout of pairs, or with a basis folded in."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from stringlib.encoders.string import RotaryEncoder
from stringlib.inputs import Layout
from stringlib.kernels.rotation import pair_up, unpair
from stringlib.spec import Floats, checked


@checked
def to_layout(
    weight: Floats[Tensor, "..."],
    head_dim: int,
    source: Layout,
    target: Layout,
    pairs: int | None = None,
) -> Tensor:
    """Return a query or key projection whose heads number their pairs in another way.

    The rows of every head change places, nothing else does: with both projections, biases and
    per-head norm weights rewritten, a model gives the same logits with rotations of the target
    layout, :eq:`eq-model-norm`. Values and the output projection stay as they are. Eager PyTorch
    turns the interleaved layout several times as fast as the half one.

    Args:
        weight: ``(heads * head_dim, model_dim)`` as in ``nn.Linear``; or a bias or the weight of a
            norm over heads, ``(heads * head_dim,)``; or that of one head, ``(head_dim,)``.
        head_dim: Channels of a head.
        source: Layout of the weight, ``"half"`` or ``"interleaved"``.
        target: Layout of the result.
        pairs: How many pairs of a head turn, the first ``2 * pairs`` channels; all if omitted.

    Returns:
        A new weight, of the same shape and dtype.

    Raises:
        ValueError: If the rows are not those of whole heads, or a head has fewer pairs.

    Example:
        >>> w = torch.randn(4 * 8, 32)  # to 4 heads of 8 channels, as a Llama has it
        >>> back = to_layout(to_layout(w, 8, "half", "interleaved"), 8, "interleaved", "half")
        >>> torch.equal(back, w)
        True
    """
    if weight.ndim not in (1, 2) or not len(weight) or len(weight) % head_dim:
        raise ValueError(
            f"weight must have shape (heads * {head_dim}, model_dim) or (heads * {head_dim},), "
            f"got {tuple(weight.shape)}"
        )
    if pairs is None:
        pairs = head_dim // 2
    if not 0 < 2 * pairs <= head_dim:
        raise ValueError(f"pairs must be from 1 to {head_dim // 2}, got {pairs}")
    rows = torch.arange(head_dim, device=weight.device)
    moved = unpair(pair_up(rows[: 2 * pairs], source), target)
    order = torch.cat([moved, rows[2 * pairs :]])
    return weight.unflatten(0, (-1, head_dim))[:, order].flatten(0, 1)


@torch.no_grad()
@checked
def fold_qkv(
    linear: nn.Linear,
    encoder: RotaryEncoder,
    heads: int,
    kv_heads: int | None = None,
    *,
    layout: Layout | None = None,
) -> None:
    """Fold an encoder's basis into the queries and keys of a fused projection, in place.

    Behind it the model turns by ``encoder.folded(layout)``. The values are left alone.

    Args:
        linear: Projects to queries, keys and values, one after the other:
            ``(heads + 2 * kv_heads) * head_dim`` rows; a bias is folded with it.
        encoder: The encoder.
        heads: Heads of the queries.
        kv_heads: Heads of keys and of values; ``heads`` if omitted.
        layout: As for :meth:`~stringlib.encoders.string.RotaryEncoder.folded`.

    Raises:
        ValueError: If shapes or heads do not fit. An encoder whose heads differ cannot serve fewer
            keys than queries.

    Example:
        >>> from stringlib import CirculantSTRING
        >>> qkv, encoder = nn.Linear(64, 3 * 64), CirculantSTRING(16, coord_dim=2)
        >>> fold_qkv(qkv, encoder, heads=4)
    """
    kv_heads = heads if kv_heads is None else kv_heads
    if encoder.heads != 1 and heads != kv_heads:
        raise ValueError(
            f"encoder must have heads=1 for {heads} query and {kv_heads} key heads, "
            f"got {encoder.heads}"
        )
    sizes = [count * encoder.head_dim for count in (heads, kv_heads, kv_heads)]
    if linear.out_features != sum(sizes):
        raise ValueError(
            f"linear must have {sum(sizes)} rows, queries, keys and values of {heads} and "
            f"{kv_heads} heads of {encoder.head_dim} channels, got {linear.out_features}"
        )
    for parameter in (linear.weight, linear.bias):
        if parameter is not None:
            for part, count in zip(parameter.split(sizes)[:2], (heads, kv_heads), strict=True):
                part.copy_(encoder.fold(part, count, layout=layout))
