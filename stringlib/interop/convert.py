"""Convert weights of trained models to another layout, or merge a basis into these weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from stringlib.encoders.rotary import RotaryEncoder
from stringlib.folding import additions_to_weight, require_foldable
from stringlib.inputs import Layout
from stringlib.kernels.rotation import deinterleave, interleave
from stringlib.spec import Floats, checked


@checked
def to_layout(
    weight: Floats[Tensor, "..."],
    head_dim: int,
    source: Layout,
    target: Layout,
    pairs: int | None = None,
) -> Tensor:
    """Convert a query or key projection to another layout of the channel pairs.

    In the layout ``"interleaved"``, a pair consists of the channels 2i and 2i + 1. In the layout
    ``"half"``, a pair consists of channel i and channel i + d/2, where d is the number of rotated
    channels. The function permutes the rows of each head. Convert the projections of queries and
    keys, the biases of these projections, and the weights of the norms of queries and keys. A model
    with rotations of the target layout then has the same logits, :eq:`eq-model-norm`. Values and
    the output projection must not be converted. On a CPU, eager PyTorch rotates the interleaved
    layout faster than the half layout.

    Args:
        weight: One of these weights:

            - the weight of the projection, ``(heads * head_dim, model_dim)`` as in ``nn.Linear``;
            - the bias of the projection, ``(heads * head_dim,)``;
            - the weight of a norm over all heads together, ``(heads * head_dim,)``;
            - the weight of a norm that is applied to each head, ``(head_dim,)``.

        head_dim: Number of channels of a head, at least 2.
        source: Present layout of the weight, ``"half"`` or ``"interleaved"``.
        target: Layout of the result, ``"half"`` or ``"interleaved"``.
        pairs: Number of rotated pairs of a head. The rotated pairs are the first ``2 * pairs``
            channels of the head, and all later channels are not moved. Default: ``head_dim // 2``.

    Returns:
        A new weight, of the shape and dtype of ``weight``.

    Raises:
        ValueError: If ``weight`` does not have one or two dimensions, if its number of rows is not
            a positive multiple of ``head_dim``, if ``head_dim`` is 1, or if ``pairs`` is not from 1
            to ``head_dim // 2``.

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
    if head_dim < 2:
        raise ValueError(f"head_dim must be at least 2, got {head_dim}. A pair has two channels.")
    if pairs is None:
        pairs = head_dim // 2
    if not 0 < 2 * pairs <= head_dim:
        raise ValueError(f"pairs must be from 1 to {head_dim // 2}, got {pairs}")
    rows = torch.arange(head_dim, device=weight.device)
    moved = deinterleave(interleave(rows[: 2 * pairs], source), target)
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
    """Merge an encoder's basis into a projection to queries, keys and values, in place.

    After the projection, the model has to rotate queries and keys by the encoder
    ``encoder.folded(layout)``. The rows of the projection that give the values do not change.

    Args:
        linear: Projection whose rows give first the queries, then the keys, then the values, with
            ``(heads + 2 * kv_heads) * head_dim`` rows. Its bias, if any, is folded as well.
        encoder: Rotary encoder whose basis is merged.
        heads: Number of query heads.
        kv_heads: Number of key heads and of value heads. Default: ``heads``.
        layout: Layout of the channel pairs after folding, ``"half"`` or ``"interleaved"``. Pass
            the same value to :meth:`~stringlib.encoders.form.RotaryForm.folded`. Default: the
            layout of the encoder.

    Raises:
        ValueError: If ``linear`` has another number of rows, or is not a plain ``nn.Linear``: it
            has hooks, a parametrisation or an adapter, or its weight is quantised or on the meta
            device. Also if the encoder has several heads, and ``heads`` is another number or
            ``kv_heads`` differs from ``heads``.

    Example:
        >>> from stringlib import CirculantSTRING
        >>> qkv, encoder = nn.Linear(64, 3 * 64), CirculantSTRING(16, coord_dim=2)
        >>> fold_qkv(qkv, encoder, heads=4)
    """
    require_foldable("linear", linear, additions_to_weight)
    kv_heads = heads if kv_heads is None else kv_heads
    if encoder.heads != 1 and heads != kv_heads:
        raise ValueError(
            f"encoder must have heads=1 if kv_heads = {kv_heads} differs from heads = {heads}, got "
            f"heads={encoder.heads}. Query heads that share a key head need the same rotation."
        )
    sizes = [count * encoder.head_dim for count in (heads, kv_heads, kv_heads)]
    if linear.out_features != sum(sizes):
        raise ValueError(
            f"linear must have (heads + 2 * kv_heads) * head_dim = ({heads} + 2 * {kv_heads}) * "
            f"{encoder.head_dim} = {sum(sizes)} rows, got {linear.out_features}. "
            "Pass heads and kv_heads of the model, and an encoder with the head_dim of the model."
        )
    for parameter in (linear.weight, linear.bias):
        if parameter is not None:
            for part, count in zip(parameter.split(sizes)[:2], (heads, kv_heads), strict=True):
                part.copy_(encoder.fold(part, count, layout=layout))
