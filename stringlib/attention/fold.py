"""Merge the basis of an encoder into the projections of a layer (folding), :eq:`eq-fold`.

In training, merging can be faster, because the basis is then multiplied with the weights once per
step instead of with every token. For inference, :func:`folded` merges it once, and afterwards the
basis costs nothing.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from stringlib.attention.core import SoftmaxAttention
from stringlib.encoders.rotary import Phases, RotaryEncoder
from stringlib.precision import at_least_float32, without_autocast


def projected(layer: Any, x: Tensor, at: Any) -> tuple[Tensor, Tensor, Any]:
    """Project the tokens to queries and keys, in the basis of the encoder if that is faster.

    Args:
        layer: A :class:`~stringlib.attention.multihead.MultiHeadAttention`.
        x: Tokens, ``(..., seq, dim)``.
        at: Phases of the encoder, or integer positions for a roll, or None.

    Returns:
        Queries, ``(..., seq, heads * head_dim)``, keys, ``(..., seq, kv_heads * head_dim)``, and
        ``at``. If queries and keys are already in the basis of the encoder, the returned phases
        have no basis, so that it is not applied again.
    """
    basis = at.basis if isinstance(at, Phases) else None
    if basis is None or not is_faster(layer, x, at, basis):
        return layer.to_q(x), layer.to_k(x), at
    q, k = (folded_linear(linear, x, basis) for linear in (layer.to_q, layer.to_k))
    return q, k, at._replace(basis=None)


def is_faster(layer: Any, x: Tensor, at: Phases, basis: Tensor) -> bool:
    """Return whether to multiply the basis P with the weights instead of with the tokens.

    True if this is allowed and, by the shapes, faster.

    Args:
        layer: A :class:`~stringlib.attention.multihead.MultiHeadAttention`.
        x: Tokens, ``(..., seq, dim)``.
        at: Phases of the encoder.
        basis: The basis P of the phases.
    """
    encoder = layer.core.encoder
    if not isinstance(layer.core, SoftmaxAttention):
        return False  # P cancels in the logits of softmax, but not in a feature map
    if at.cos_sin.shape[-4] != encoder.heads or basis.shape[-1] != layer.head_dim:
        return False  # phases of another encoder, for which the encoder will raise an error
    # A compiled graph must not depend on the number of tokens. With a shift, the last key is stored
    # in the state, always in the same basis.
    if torch.compiler.is_compiling() or layer.shift is not None:
        return False
    linears = layer.to_q, layer.to_k
    plain = encoder.basis_first and all(type(linear) is nn.Linear for linear in linears)
    if not plain or any(_is_hooked(module) for module in (*linears, encoder)):
        return False  # an adapter, or a hook that expects queries and keys in the usual basis
    # Merging is faster if the batch has more tokens than channels. We measured the time of a layer
    # with P in the weights, divided by the time with P on the tokens (CPU, one thread, Cayley and
    # circulant STRING, dim 256 to 768; first with gradients, then without). Half as many tokens as
    # channels: 1.02 to 1.09, 1.03 to 1.15. As many tokens as channels: .96 to 1.00, .98 to 1.01.
    # Twice as many: .90 to .97, .89 to .97. Four times as many: .86 to .94, .93 to .95.
    return x.numel() > int(layer.dim) ** 2


def folded_linear(linear: nn.Linear, x: Tensor, basis: Tensor) -> Tensor:
    """Return the output of a projection multiplied by Pᵀ, computed as a projection with PᵀW.

    Args:
        linear: The projection W.
        x: Tokens, ``(..., seq, dim)``.
        basis: The basis P of each head, ``(heads, head_dim, head_dim)``.
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

    Raises:
        ValueError: If the layer is not softmax attention with a rotary encoder.
    """
    encoder = layer.core.encoder
    if not isinstance(encoder, RotaryEncoder) or not isinstance(layer.core, SoftmaxAttention):
        raise ValueError(
            "attention must be softmax with a rotary encoder to be folded, "
            f"got {layer.extra_repr()}"
        )
    made = copy.deepcopy(layer)
    for parameter in (*made.to_q.parameters(), *made.to_k.parameters()):
        # query heads that share a key head also share its basis
        for rows in parameter.unflatten(0, (layer.kv_heads, -1, layer.head_dim)).unbind(1):
            rows.copy_(encoder.fold(rows.flatten(0, 1), layer.kv_heads).view_as(rows))
    made.core.encoder = encoder.folded()
    return made


def _is_hooked(module: nn.Module) -> bool:
    """Return whether calling a module does more than ``forward`` of its class, such as a hook."""
    hooks = module._forward_hooks, module._forward_pre_hooks
    backward = module._backward_hooks, module._backward_pre_hooks
    return "forward" in vars(module) or any(hooks) or any(backward)
