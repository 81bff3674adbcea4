"""Merge the basis of an encoder into the projections of a layer (folding), :eq:`eq-fold`.

In training, merging can be faster, because the basis is then multiplied with the weights once per
step instead of with every token. For inference, :func:`folded` merges the basis once, and
afterwards the basis costs nothing.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from stringlib.attention.softmax import SoftmaxAttention
from stringlib.documents import Documents
from stringlib.encoders.rotary import RotaryEncoder
from stringlib.folding import additions, additions_to_weight, require_foldable
from stringlib.precision import at_least_float32, without_autocast


def projected(
    layer: Any, x: Tensor, positions: Any, state: Any, documents: Documents | None = None
) -> tuple[Tensor, Tensor, Any]:
    """Return the queries and keys of tokens, in the basis of the encoder if merging it is exact.

    Merging the basis P into the weights is faster if the batch has more tokens than channels. We
    measured the time of a layer with P merged into the weights, divided by the time with P applied
    to the tokens (CPU, one thread, Cayley and circulant STRING, dim 256 to 768). The first range is
    with gradients, the second without. Half as many tokens as channels: 1.02 to 1.09, 1.03 to 1.15.
    As many tokens as channels: .96 to 1.00, .98 to 1.01. Twice as many: .90 to .97, .89 to .97.
    Four times as many: .86 to .94, .93 to .95.

    Args:
        layer: A :class:`~stringlib.attention.multihead.MultiHeadAttention`.
        x: Tokens, ``(..., seq, dim)``.
        positions: Positions of the tokens, phases of the encoder, or None.
        state: The state that the layer returned for the earlier tokens, or None.
        documents: The documents of packed sequences, or None.

    Returns:
        Queries, ``(..., seq, heads * head_dim)``, keys, ``(..., seq, kv_heads * head_dim)``, and
        positions for the core. If queries and keys are already in the basis of the encoder, the
        positions are phases without the basis, so that the basis is not applied again.
    """
    if not _is_exact(layer):
        return layer.to_q(x), layer.to_k(x), positions
    if state is not None:
        layer.core.require_state(state)
    at = layer.core.located(x.unsqueeze(-3), positions, state, documents)
    basis = at.basis
    # phases of another encoder have other shapes; the core will raise an error
    fits = basis is not None and basis.shape[-1] == layer.head_dim
    if not fits or at.cos_sin.shape[-4] != layer.core.encoder.heads:
        return layer.to_q(x), layer.to_k(x), at
    q, k = (folded_linear(linear, x, basis) for linear in (layer.to_q, layer.to_k))
    return q, k, at._replace(basis=None)


def _is_exact(layer: Any) -> bool:
    """Return whether the basis P of the encoder may be multiplied with the weights of a layer."""
    core = layer.core
    # P cancels in the logits of softmax, but not in a feature map
    if type(core) is not SoftmaxAttention or not isinstance(core.encoder, RotaryEncoder):
        return False
    # with a shift, the last key is stored in the state, always in the same basis
    if layer.shift is not None:
        return False
    if not core.encoder.basis_first or additions(core.encoder) or additions(core):
        return False  # they expect queries and keys in the usual basis
    # no adapter, hook, parametrisation or quantised weight
    return not (additions_to_weight(layer.to_q) or additions_to_weight(layer.to_k))


def folded_linear(linear: nn.Linear, x: Tensor, basis: Tensor) -> Tensor:
    """Return the output of a projection multiplied by the transposed basis Pᵀ of an encoder.

    The output is computed by merging Pᵀ into the weight W, as the projection with the weight PᵀW.

    Args:
        linear: The projection.
        x: Tokens, ``(..., seq, dim)``.
        basis: The basis P of each head of the encoder, ``(heads, head_dim, head_dim)``.
    """

    def fold(parameter: Tensor | None) -> Tensor | None:
        if parameter is None:
            return None
        exact, (heads, size, _) = at_least_float32(parameter.dtype), basis.shape
        by_head = parameter.to(exact).reshape(heads, -1, size, parameter[0].numel())
        folded = basis.to(exact).mT.unsqueeze(1) @ by_head
        return folded.reshape(parameter.shape).to(parameter.dtype)

    with without_autocast(x):
        weight, bias = fold(linear.weight), fold(linear.bias)
    assert weight is not None
    return nn.functional.linear(x, weight, bias)


@torch.no_grad()
def folded(layer: Any) -> Any:
    """Return a copy of a layer in which the basis of the encoder is merged into the weights.

    Args:
        layer: A :class:`~stringlib.attention.multihead.MultiHeadAttention`.

    Raises:
        ValueError: If the layer is not softmax attention with a rotary encoder, or if the encoder
            overrides ``forward``. Also if a projection to queries or keys computes more than the
            product with its weight, or if the encoder, the core or the key shift has a hook.
    """
    core, encoder = layer.core, layer.core.encoder
    softmax = type(core) is SoftmaxAttention
    if not isinstance(encoder, RotaryEncoder) or not softmax:
        raise ValueError(
            "attention must be softmax with a rotary encoder to be folded, got a layer with "
            f"{layer.extra_repr()}. Use this layer without folded()."
        )
    if type(encoder).forward is not RotaryEncoder.forward:
        raise ValueError(
            f"encoder must not override forward() to be folded, got {type(encoder).__name__}, "
            "which overrides it. Override frequencies() and basis() instead."
        )
    for name, module in (("encoder", encoder), ("core", core), ("shift", layer.shift)):
        if module is not None:
            require_foldable(name, module)
    for name in ("to_q", "to_k"):
        require_foldable(name, getattr(layer, name), additions_to_weight)
    made = copy.deepcopy(layer)
    for name in ("to_q", "to_k"):
        # a new module and new parameters, because to_q, to_k and to_v may share theirs
        linear = copy.deepcopy(getattr(layer, name))
        setattr(made, name, linear)
        for part in ("weight", "bias"):
            given = getattr(linear, part)
            if given is not None:
                # query heads that share a key head also share its basis
                rows = given.unflatten(0, (layer.kv_heads, -1, layer.head_dim)).unbind(1)
                new = [encoder.fold(x.flatten(0, 1), layer.kv_heads).view_as(x) for x in rows]
                weight = torch.stack(new, 1).view_as(given)
                setattr(linear, part, nn.Parameter(weight, given.requires_grad))
    made.core.encoder = encoder.folded()
    return made
