"""Parts of feature maps, each with no tensor more than it needs."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


def half_square(x: Tensor) -> Tensor:
    """Return ‖x‖²/2 along the last dimension, which is kept."""
    if x.requires_grad or torch.compiler.is_compiling():
        return x.square().sum(-1, keepdim=True) / 2
    # without a tensor as large as x; where x is 0 the norm has no second derivative
    return torch.linalg.vector_norm(x, dim=-1, keepdim=True).square() / 2


def unit(x: Tensor) -> Tensor:
    """Return vectors of length 1, but those shorter than 1e-12; 0 stays 0.

    Its gradient at 0 is that of x; of ``torch.nn.functional.normalize`` it is 1e12 times as large.
    """
    square = 2 * half_square(x)
    return x / square.masked_fill(square == 0, 1).clamp(min=1e-24).sqrt()


def exponential(exponent: Tensor, left_out: Tensor) -> Tensor:
    """Return exp(exponent − left_out)/√m in the memory of ``exponent``."""
    return exponent.sub_(left_out + 0.5 * math.log(exponent.shape[-1])).exp_()


def elu_plus_one(x: Tensor) -> Tensor:
    """Return elu(x) + 1 with all digits of small values.

    The slope is 1 where the value is above 1, and else the value itself: one pass. Autograd takes
    four, through both parts.
    """
    plain = not x.requires_grad or torch.compiler.is_compiling()
    return _elu_plus_one(x) if plain else _ELUPlusOne.apply(x)


def _elu_plus_one(x: Tensor) -> Tensor:
    # elu(x) = eˣ − 1 first would lose small eˣ to rounding: all of it below −17 in float32
    return x.relu() + x.clamp(max=0).exp()


class _ELUPlusOne(torch.autograd.Function):
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
