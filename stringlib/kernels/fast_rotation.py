"""The rotation of pairs with few passes over memory, and its gradients written by hand.

:func:`stringlib.kernels.rotation.rotate_pairs` is the plain form, and calls :func:`rotate` for
speed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from stringlib.inputs import in_torch_func

# Largest number of pieces in which the gradient of phases is summed over a batch on a CPU. Then the
# temporary tensor is a sixteenth of the vectors (or one entry of a smaller batch), and also a batch
# of thousands of entries takes few steps. A GPU uses one piece, because each step is a call: for a
# batch of 64, sixteen pieces take 5.8 ms and one piece takes 2.0 ms.
PIECES = 16

# Largest number of elements for which the overhead of calls takes more time than the computation.
# Tensors of one or a few tokens per head have so few elements.
SHORT = 8192


def is_short(x: Tensor) -> bool:
    """Return whether a tensor is so small that the running time depends on the number of calls.

    An operation on a tensor of up to ``SHORT`` elements spends most of its time in the call of
    PyTorch, which takes as long for any size. In a compiled graph the result is False.
    """
    return not torch.compiler.is_compiling() and x.numel() <= SHORT


def rotate(x: Tensor, phases: Tensor, layout: str) -> Tensor:
    """Return vectors of which every pair of channels is rotated by its phase.

    Args:
        x: Vectors in float32 or float64, ``(..., 2 * pairs)``.
        phases: Cosines and sines in the dtype of ``x``, ``(..., pairs, 2)``. Their leading
            dimensions broadcast with those of ``x``.
        layout: ``"interleaved"`` pairs channels 2i and 2i + 1. ``"half"`` pairs channels i and
            i + pairs.
    """
    if layout == "half" and x.device.type != "cpu":
        return _rotated_halves(x, phases)  # a GPU takes fewer calls with real arithmetic
    if torch.is_grad_enabled() and (x.requires_grad or phases.requires_grad):
        learned: Tensor = _Rotation.apply(x, phases, layout)  # calls this function without grad
        return learned
    interleaved = layout == "interleaved"
    if interleaved or is_short(x) or in_torch_func():  # vmap has no rule for addcmul_
        # The channels of a pair are real and imaginary part of a complex number. The complex
        # product takes one pass over memory without a temporary tensor. On two CPU cores with
        # d = 64, it takes 1.2 times as long as a copy, and real arithmetic 4 times as long.
        pairs = *x.shape[:-1], x.shape[-1] // 2, 2
        z = _complex(x.reshape(pairs)) if interleaved else torch.complex(*x.chunk(2, -1))
        rotated = torch.view_as_real(z * torch.view_as_complex(phases))
        shape = *rotated.shape[:-2], 2 * rotated.shape[-2]
        return (rotated if interleaved else rotated.mT).reshape(shape)
    a, b = x.chunk(2, -1)
    cos, sin = phases.unbind(-1)
    rotated = x * torch.cat([cos, cos], -1)
    half, sin = cos.shape[-1], sin.contiguous()
    rotated.narrow(-1, 0, half).addcmul_(b, sin, value=-1)
    rotated.narrow(-1, half, half).addcmul_(a, sin)
    return rotated


def _rotated_halves(x: Tensor, phases: Tensor) -> Tensor:
    """Return the rotated vectors in the half layout, without changing tensors in place."""
    cos, sin = phases.unbind(-1)
    both = x.unflatten(-1, (2, -1))  # (a, b) cos + (b, a) (-sin, sin)
    cos, sin = torch.stack([cos, cos], -2), torch.stack([-sin, sin], -2)
    return torch.addcmul(both * cos, both.roll(1, -2), sin).flatten(-2)


def _pairwise(x: Tensor, layout: str) -> Tensor:
    """Return channels grouped into pairs, ``(..., pairs, 2)``."""
    batch_shape, pairs = x.shape[:-1], x.shape[-1] // 2  # unflatten fails for batched gradients
    if layout == "interleaved":
        return x.reshape(*batch_shape, pairs, 2)
    return x.reshape(*batch_shape, 2, pairs).mT


def _complex(pairs: Tensor) -> Tensor:
    """Return pairs as complex numbers: a view, or a copy if strides or offset forbid a view."""
    try:
        return torch.view_as_complex(pairs)
    except RuntimeError:
        return torch.view_as_complex(pairs.clone(memory_format=torch.contiguous_format))


class _Rotation(torch.autograd.Function):
    r"""The rotation :func:`rotate` with gradients written by hand.

    Let the pairs of the vectors x, the phases s and the gradient g with respect to the rotated
    vectors be complex numbers. Then the gradient with respect to x is :math:`\bar s\,g`, which is
    the inverse rotation of g. The gradient with respect to s is :math:`\bar x\,g`.

    Autograd has three disadvantages here. It fails if a gradient starts at an odd offset in memory.
    It takes more passes over memory than the inverse rotation. For the gradient with respect to the
    phases, which is a sum over the batch, it computes a product as large as the vectors.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, phases: Tensor, layout: str) -> Tensor:
        return rotate(x, phases, layout)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, str], output: Tensor) -> None:
        x, phases, ctx.layout = inputs
        ctx.shape = x.shape
        # only the gradient of the phases needs x
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, phases)
        ctx.save_for_forward(x, phases)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, phases = ctx.saved_tensors
        grad_x = grad_phases = None
        if ctx.needs_input_grad[0]:
            back = torch.view_as_real(_complex(phases).conj_physical())
            grad_x = rotate(g, back, ctx.layout).sum_to_size(ctx.shape)
        if ctx.needs_input_grad[1]:
            x, g = (_pairwise(t, ctx.layout) for t in (x, g))
            total = _sum_of_products(x, g, phases.shape[:-1])
            grad_phases = torch.stack([total.real, total.imag], -1)
        return grad_x, grad_phases, None

    @staticmethod
    def jvp(ctx: Any, x_tangent: Tensor, phases_tangent: Tensor, _: None) -> Tensor:
        x, phases = ctx.saved_tensors
        rotated = rotate(x_tangent, phases, ctx.layout)
        return rotated + rotate(x, phases_tangent, ctx.layout)


def _sum_of_products(x: Tensor, g: Tensor, shape: torch.Size) -> Tensor:
    """Return the gradient conj(x) g with respect to phases that were broadcast over the vectors.

    The product is summed over the dimensions in which the phases were broadcast.

    Args:
        x: Pairs of channels, ``(..., pairs, 2)``, read as complex numbers.
        g: Gradients with respect to the rotated pairs, ``(..., pairs, 2)``, read as complex
            numbers.
        shape: Shape of the phases, as complex numbers.
    """
    summed = g.ndim - 1 - len(shape)
    if summed <= 0 or not g.numel():
        return (_complex(x).conj() * _complex(g)).sum_to_size(shape)
    x, g = (t.reshape(-1, *t.shape[summed:]) for t in (x.expand_as(g), g))
    size = -(-len(g) // PIECES) if g.device.type == "cpu" else len(g)
    pieces = zip(x.split(size), g.split(size), strict=True)
    products = (_complex(a).conj() * _complex(b) for a, b in pieces)
    total = next(products)
    for product in products:
        total[: len(product)].add_(product)  # the last piece may be shorter
    return (total.sum(0) if size > 1 else total[0]).sum_to_size(shape)
