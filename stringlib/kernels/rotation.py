"""Phases of the tokens, and the rotation of pairs of channels by these phases."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from stringlib.inputs import in_torch_func
from stringlib.precision import widen

# Largest number of pieces in which the gradient of phases is summed over a batch on a CPU. Then the
# temporary tensor is a sixteenth of the vectors (or one entry of a smaller batch), and also a batch
# of thousands of entries takes few steps. A GPU uses one piece, because each step is a call: for a
# batch of 64, sixteen pieces take 5.8 ms and one piece takes 2.0 ms.
PIECES = 16

# Largest number of elements for which the overhead of calls takes more time than the computation.
# Tensors of one or a few tokens per head have so few elements.
SHORT = 8192


def unit_phases(positions: Tensor, frequencies: Tensor) -> Tensor:
    r"""Return cosine and sine of the angle :math:`\Omega r` for every head, token and pair.

    Together they are the unit phase :math:`e^{\mathrm{i}\,\Omega r}`, :eq:`eq-rope-complex`.
    Angles are computed in float64, or in float32 on devices without float64. At position 10⁶ a
    float32 angle is wrong by several hundredths of a radian.

    Args:
        positions: Positions r, ``(..., seq, coord_dim)``.
        frequencies: Frequencies :math:`\Omega` in radians per unit of position,
            ``(heads, pairs, coord_dim)``.

    Returns:
        Cosines and sines in the last dimension, ``(..., heads, seq, pairs, 2)``.
    """
    positions = widen(positions)
    angles = positions.unsqueeze(-3) @ frequencies.to(positions.dtype).mT
    return torch.stack([angles.cos(), angles.sin()], -1)


def rotate_pairs(x: Tensor, phases: Tensor, layout: str = "interleaved") -> Tensor:
    r"""Rotate every pair of channels by its phase, equation :eq:`eq-rope-pair`.

    Channels after the pairs are returned unchanged.

    Args:
        x: Vectors in float32 or float64, ``(..., channels)`` with ``channels >= 2 * pairs``.
        phases: Cosines and sines, ``(..., pairs, 2)``. Their leading dimensions broadcast with
            those of ``x``.
        layout: ``"interleaved"`` (default) pairs channels 2i and 2i + 1. ``"half"`` pairs channels
            i and i + pairs.

    Returns:
        The rotated vectors, with the dtype of ``x`` and the broadcast shape.
    """
    pairs = phases.shape[-2]
    if 2 * pairs < x.shape[-1]:
        rotated = rotate_pairs(x[..., : 2 * pairs], phases, layout)
        return torch.cat([rotated, x[..., 2 * pairs :].expand(*rotated.shape[:-1], -1)], -1)
    phases = phases.to(x.dtype)
    # A compiler fuses real arithmetic, but not complex numbers. For the layout "half", a GPU takes
    # fewer calls with real arithmetic.
    if torch.compiler.is_compiling() or (layout == "half" and x.device.type != "cpu"):
        return _turned_by_parts(x, phases, layout)
    return _turn(x, phases, layout)


def is_short(x: Tensor) -> bool:
    """Return whether a tensor is so small that the time depends on the number of calls.

    In a compiled graph the result is False.
    """
    return not torch.compiler.is_compiling() and x.numel() <= SHORT


def pair_up(channels: Tensor, layout: str) -> Tensor:
    """Return channels grouped into pairs along the first dimension, ``(pairs, 2, ...)``.

    Args:
        channels: An even number of channels, ``(2 * pairs, ...)``.
        layout: ``"interleaved"`` pairs channels 2i and 2i + 1. ``"half"`` pairs channels i and
            i + pairs.
    """
    if layout == "interleaved":
        return channels.unflatten(0, (-1, 2))
    return channels.unflatten(0, (2, -1)).transpose(0, 1)


def unpair(pairs: Tensor, layout: str) -> Tensor:
    """Return pairs of channels as single channels, ``(2 * pairs, ...)``.

    It is the inverse of :func:`pair_up`.

    Args:
        pairs: ``(pairs, 2, ...)``.
        layout: As for :func:`pair_up`.
    """
    return (pairs if layout == "interleaved" else pairs.transpose(0, 1)).flatten(0, 1)


def _turn(x: Tensor, phases: Tensor, layout: str) -> Tensor:
    """Return the rotated vectors, with the gradient of :class:`_Turn` if one is needed."""
    learns = torch.is_grad_enabled() and (x.requires_grad or phases.requires_grad)
    return _Turn.apply(x, phases, layout) if learns else _turned(x, phases, layout)


def _turned(x: Tensor, phases: Tensor, layout: str) -> Tensor:
    """Return the rotated vectors, with as few passes over memory as possible.

    The arguments are those of :func:`rotate_pairs` with ``channels == 2 * pairs``.
    """
    interleaved = layout == "interleaved"
    if interleaved or is_short(x) or in_torch_func():  # vmap has no rule for addcmul_
        # The channels of a pair are real and imaginary part of a complex number. The complex
        # product takes one pass over memory without a temporary tensor. On two CPU cores with
        # d = 64, it takes 1.2 times as long as a copy, and real arithmetic 4 times as long.
        z = _complex(_pairwise(x, layout)) if interleaved else torch.complex(*x.chunk(2, -1))
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


def _turned_by_parts(x: Tensor, phases: Tensor, layout: str) -> Tensor:
    """Return the rotated vectors by real arithmetic, without changing tensors in place."""
    cos, sin = phases.unbind(-1)
    if layout == "interleaved":
        a, b = _pairwise(x, layout).unbind(-1)
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)
    both = x.unflatten(-1, (2, -1))  # (a, b) cos + (b, a) (-sin, sin)
    cos, sin = torch.stack([cos, cos], -2), torch.stack([-sin, sin], -2)
    return torch.addcmul(both * cos, both.roll(1, -2), sin).flatten(-2)


def _pairwise(x: Tensor, layout: str) -> Tensor:
    """View channels as pairs, ``(..., pairs, 2)``."""
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


class _Turn(torch.autograd.Function):
    r"""The rotation :func:`_turned` with gradients written by hand.

    With pairs and phases s as complex numbers, the gradient for the vectors x is
    :math:`\bar s\,g`, which is the inverse rotation of g. The gradient for the phases is
    :math:`\bar x\,g`.

    The gradients of autograd have three disadvantages. They fail if a gradient starts at an odd
    offset in memory. They take more passes over memory than the inverse rotation. And for the
    gradient of the phases, which is a sum over the batch, they compute a product as large as the
    vectors.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, phases: Tensor, layout: str) -> Tensor:
        return _turned(x, phases, layout)

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
            grad_x = _turn(g, back, ctx.layout).sum_to_size(ctx.shape)
        if ctx.needs_input_grad[1]:
            x, g = (_pairwise(t, ctx.layout) for t in (x, g))
            total = _sum_of_products(x, g, phases.shape[:-1])
            grad_phases = torch.stack([total.real, total.imag], -1)
        return grad_x, grad_phases, None

    @staticmethod
    def jvp(ctx: Any, x_tangent: Tensor, phases_tangent: Tensor, _: None) -> Tensor:
        x, phases = ctx.saved_tensors
        rotated = _turned(x_tangent, phases, ctx.layout)
        return rotated + _turned(x, phases_tangent, ctx.layout)


def _sum_of_products(x: Tensor, g: Tensor, shape: torch.Size) -> Tensor:
    """Return conj(x) g, summed over the dimensions in which the phases were broadcast.

    Args:
        x: Pairs of channels, ``(..., pairs, 2)``, read as complex numbers.
        g: Gradients for the pairs, ``(..., pairs, 2)``, read as complex numbers.
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
