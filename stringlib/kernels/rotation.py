"""The phases of tokens, and the turn of pairs of channels by them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from stringlib.inputs import in_torch_func
from stringlib.precision import widen

# The gradient of phases is summed over a batch in at most so many pieces: a temporary holds a
# sixteenth of the vectors, or one entry of a smaller batch, and thousands of entries few steps.
# Not on a GPU, where each step is a call: a batch of 64 takes 5.8 ms in sixteen, 2.0 ms in one.
PIECES = 16

# Up to so many numbers the calls take more time than what they do: a token or some of each head.
SHORT = 8192


def unit_phases(positions: Tensor, frequencies: Tensor) -> Tensor:
    r"""Return cosine and sine of :math:`\Omega r` for every head, token and pair.

    Together they are the unit phase :math:`e^{\mathrm{i}\,\Omega r}`, :eq:`eq-rope-complex`.
    Angles are computed in float64 (float32 on devices without it): at position 10⁶ a
    float32 angle is already wrong by several hundredths of a radian.

    Args:
        positions: ``(..., seq, coord_dim)``.
        frequencies: Radians per unit, ``(heads, pairs, coord_dim)``.

    Returns:
        ``(..., heads, seq, pairs, 2)``.
    """
    positions = widen(positions)
    angles = positions.unsqueeze(-3) @ frequencies.to(positions.dtype).mT
    return torch.stack([angles.cos(), angles.sin()], -1)


def rotate_pairs(x: Tensor, phases: Tensor, layout: str = "interleaved") -> Tensor:
    r"""Turn every pair of channels by its phase, equation :eq:`eq-rope-pair`.

    Channels behind the pairs are passed through.

    Args:
        x: float32 or float64, ``(..., channels)``.
        phases: Cosines and sines, broadcastable, ``(..., pairs, 2)``, ``2 * pairs <= channels``.
        layout: ``"interleaved"`` pairs channels (2i, 2i+1), ``"half"`` (i, i + pairs).

    Returns:
        The turned tensor, with the dtype of ``x`` and the broadcast shape.
    """
    pairs = phases.shape[-2]
    if 2 * pairs < x.shape[-1]:
        turned = rotate_pairs(x[..., : 2 * pairs], phases, layout)
        return torch.cat([turned, x[..., 2 * pairs :].expand(*turned.shape[:-1], -1)], -1)
    phases = phases.to(x.dtype)
    # a compiler fuses real arithmetic, and no complex numbers; a GPU wants few calls
    if torch.compiler.is_compiling() or (layout == "half" and x.device.type != "cpu"):
        return _turned_by_parts(x, phases, layout)
    return _turn(x, phases, layout)


def is_short(x: Tensor) -> bool:
    """Return whether a tensor is so small that the number of calls decides."""
    return not torch.compiler.is_compiling() and x.numel() <= SHORT


def pair_up(channels: Tensor, layout: str) -> Tensor:
    """Return channels along the first dimension pair by pair, ``(pairs, 2, ...)``.

    Args:
        channels: An even number of them, ``(2 * pairs, ...)``.
        layout: ``"interleaved"`` pairs channels (2i, 2i+1), ``"half"`` (i, i + pairs).
    """
    if layout == "interleaved":
        return channels.unflatten(0, (-1, 2))
    return channels.unflatten(0, (2, -1)).transpose(0, 1)


def unpair(pairs: Tensor, layout: str) -> Tensor:
    """Return channels one after another, ``(2 * pairs, ...)``: the inverse of :func:`pair_up`."""
    return (pairs if layout == "interleaved" else pairs.transpose(0, 1)).flatten(0, 1)


def _turn(x: Tensor, phases: Tensor, layout: str) -> Tensor:
    """Return what :func:`_turned` returns, with a gradient where one is asked for."""
    learns = torch.is_grad_enabled() and (x.requires_grad or phases.requires_grad)
    return _Turn.apply(x, phases, layout) if learns else _turned(x, phases, layout)


def _turned(x: Tensor, phases: Tensor, layout: str) -> Tensor:
    """Return what :func:`rotate_pairs` returns, in as few passes over memory as there are."""
    interleaved = layout == "interleaved"
    if interleaved or is_short(x) or in_torch_func():  # vmap has no rule for addcmul_
        # neighbours are the two parts of a complex number: one pass, no temporary,
        # 1.2 times a copy where real arithmetic takes 4 times (two CPU cores, d = 64)
        z = _complex(_pairwise(x, layout)) if interleaved else torch.complex(*x.chunk(2, -1))
        turned = torch.view_as_real(z * torch.view_as_complex(phases))
        shape = *turned.shape[:-2], 2 * turned.shape[-2]
        return (turned if interleaved else turned.mT).reshape(shape)
    a, b = x.chunk(2, -1)
    cos, sin = phases.unbind(-1)
    turned = x * torch.cat([cos, cos], -1)
    half, sin = cos.shape[-1], sin.contiguous()
    turned.narrow(-1, 0, half).addcmul_(b, sin, value=-1)
    turned.narrow(-1, half, half).addcmul_(a, sin)
    return turned


def _turned_by_parts(x: Tensor, phases: Tensor, layout: str) -> Tensor:
    """Return the same by real arithmetic, each step a new tensor."""
    cos, sin = phases.unbind(-1)
    if layout == "interleaved":
        a, b = _pairwise(x, layout).unbind(-1)
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)
    both = x.unflatten(-1, (2, -1))  # (a, b) cos + (b, a) (-sin, sin)
    cos, sin = torch.stack([cos, cos], -2), torch.stack([-sin, sin], -2)
    return torch.addcmul(both * cos, both.roll(1, -2), sin).flatten(-2)


def _pairwise(x: Tensor, layout: str) -> Tensor:
    """View channels as pairs, ``(..., pairs, 2)``."""
    lead, pairs = x.shape[:-1], x.shape[-1] // 2  # a batch of gradients forbids unflatten
    if layout == "interleaved":
        return x.reshape(*lead, pairs, 2)
    return x.reshape(*lead, 2, pairs).mT


def _complex(pairs: Tensor) -> Tensor:
    """View pairs as complex numbers; copy only when strides or offset forbid the view."""
    try:
        return torch.view_as_complex(pairs)
    except RuntimeError:
        return torch.view_as_complex(pairs.clone(memory_format=torch.contiguous_format))


class _Turn(torch.autograd.Function):
    r"""What :func:`_turned` returns, with its gradients :math:`\bar s\,g` and :math:`\bar x\,g`.

    Autograd's own fails where a gradient begins at an odd place in memory, goes over it more often
    than a turn back does, and would make the gradient of the phases, a sum over the batch, from a
    product as large as the vectors.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, phases: Tensor, layout: str) -> Tensor:
        return _turned(x, phases, layout)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, str], output: Tensor) -> None:
        x, phases, ctx.layout = inputs
        ctx.shape = x.shape
        # fixed phases need no vectors for a gradient
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
        turned = _turned(x_tangent, phases, ctx.layout)
        return turned + _turned(x, phases_tangent, ctx.layout)


def _sum_of_products(x: Tensor, g: Tensor, shape: torch.Size) -> Tensor:
    """Return conj(x) g of pairs as complex numbers, summed to ``shape``."""
    lead = g.ndim - 1 - len(shape)
    if lead <= 0 or not g.numel():
        return (_complex(x).conj() * _complex(g)).sum_to_size(shape)
    x, g = (t.reshape(-1, *t.shape[lead:]) for t in (x.expand_as(g), g))
    size = -(-len(g) // PIECES) if g.device.type == "cpu" else len(g)
    pieces = zip(x.split(size), g.split(size), strict=True)
    products = (_complex(a).conj() * _complex(b) for a, b in pieces)
    total = next(products)
    for product in products:
        total[: len(product)].add_(product)  # the last piece may be shorter
    return (total.sum(0) if size > 1 else total[0]).sum_to_size(shape)
