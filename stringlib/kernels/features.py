"""Parts of feature maps that allocate as few temporary tensors as possible."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def half_square(x: Tensor) -> Tensor:
    """Return ‖x‖²/2 along the last dimension, ``(..., 1)`` for ``x`` of shape ``(..., d)``."""
    if x.requires_grad or torch.compiler.is_compiling():
        return x.square().sum(-1, keepdim=True) / 2
    # This way needs no temporary tensor as large as x. It is not used with gradients, because the
    # norm has no second derivative at 0.
    return torch.linalg.vector_norm(x, dim=-1, keepdim=True).square() / 2


def unit(x: Tensor, eps: float = 0.0) -> Tensor:
    """Return ``x`` divided by its norm along the last dimension.

    With a positive ``eps``, this number is added to the squared norm before the square root is
    taken.

    With ``eps=0`` (default), a vector other than 0 with a norm of less than 1e-12 is divided by
    1e-12. The vector 0 is returned unchanged. At the vector 0 the gradient passes through
    unchanged, while ``torch.nn.functional.normalize`` multiplies the gradient by 1e12.
    """
    square = 2 * half_square(x)
    if eps:
        return x / (square + eps).sqrt()
    return x / square.masked_fill(square == 0, 1).clamp(min=1e-24).sqrt()


def elu_plus_one(x: Tensor) -> Tensor:
    """Return elu(x) + 1, with full relative precision also for very negative x.

    The derivative is 1 where the value is greater than 1, and equal to the value elsewhere. So the
    gradient written by hand takes one pass over memory, while the gradient of autograd takes four.
    """
    recorded = torch.compiler.is_compiling() or torch._C._is_tracing()
    plain = not x.requires_grad or recorded
    return _elu_plus_one(x) if plain else _ELUPlusOne.apply(x)


def _elu_plus_one(x: Tensor) -> Tensor:
    """Return elu(x) + 1 with operations whose gradients autograd computes."""
    # Computing elu(x) = eˣ − 1 first would round small eˣ: in float32 to 0 below about −17.
    return x.relu() + x.clamp(max=0).exp_()


class _ELUPlusOne(torch.autograd.Function):
    """The function elu(x) + 1 with a gradient written by hand."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return _elu_plus_one(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return g * y.clamp(max=1)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        return _ELUPlusOne.backward(ctx, tangent)
