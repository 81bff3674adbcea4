"""The phases of tokens, and the turn of pairs of channels by them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from stringlib.precision import widen

# The longest dimension that is summed over is cut into at most so many pieces: a temporary holds
# a sixteenth of x (or one entry of a smaller batch), and a batch of thousands takes few steps.
PIECES = 16


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
    angles = widen(positions).unsqueeze(-3) @ widen(frequencies).mT
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
    if layout == "interleaved" and not torch.compiler.is_compiling():
        # neighbours are the two parts of a complex number: one pass over memory, no temporary,
        # 1.2 times a copy where real arithmetic takes 4 times (two CPU cores, d = 64)
        turned = shared_product(_as_complex(x), torch.view_as_complex(phases))
        as_real = _AsReal.apply if turned.requires_grad else torch.view_as_real
        return as_real(turned).flatten(-2)
    cos, sin = phases.unbind(-1)
    if layout == "interleaved":  # a compiler fuses real arithmetic, and no complex numbers
        a, b = x.unflatten(-1, (pairs, 2)).unbind(-1)
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)
    both = x.unflatten(-1, (2, pairs))  # (a, b) cos + (b, a) (-sin, sin)
    cos, sin = torch.stack([cos, cos], -2), torch.stack([-sin, sin], -2)
    return torch.addcmul(both * cos, both.roll(1, -2), sin).flatten(-2)


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


def _as_complex(x: Tensor) -> Tensor:
    """View adjacent channels as complex numbers."""
    return _complex(x.unflatten(-1, (-1, 2)))


def _complex(pairs: Tensor) -> Tensor:
    """View pairs as complex numbers; copy only when strides or offset forbid the view."""
    try:
        return torch.view_as_complex(pairs)
    except RuntimeError:
        return torch.view_as_complex(pairs.clone(memory_format=torch.contiguous_format))


class _AsReal(torch.autograd.Function):
    """``torch.view_as_real``, whose own gradient fails if it begins at an odd place in memory."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return torch.view_as_real(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return _complex(g)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        return torch.view_as_real(tangent)


def shared_product(x: Tensor, shared: Tensor) -> Tensor:
    r"""Return ``x * shared`` where ``shared`` broadcasts, as a batch's phases do.

    The values and gradients are those of ``x * shared``. Autograd would form the gradient of
    ``shared``, :math:`\sum_b \overline{x_b}\,g_b`, from a product as large as ``x``; here it is
    summed piece by piece.

    Args:
        x: Real or complex, ``(..., *shape)``.
        shared: Of the same dtype; dimensions may be missing in front, or be 1.

    Returns:
        The product, of the broadcast shape.
    """
    # A fixed factor needs no gradient: the plain product then keeps x out of memory.
    # Medians on two CPU cores, MixedRoPE on q and k (B64 H6 N197 D64, float32), with gradients,
    # 1 and 2 threads: plain product 49 and 29 ms, in pieces 36 and 22 ms, frequencies fixed
    # 15 and 9 ms. From 8 to 64 pieces all is within 7 %. The sum alone, plain and in pieces:
    # batch 64 21 and 8 ms, batch 2 10 and 9 ms; 11 and 4, 7 and 4 ms on two threads.
    return _SharedProduct.apply(x, shared) if shared.requires_grad else x * shared


class _SharedProduct(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, shared: Tensor) -> Tensor:
        return x * shared

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor]:
        x, shared = ctx.saved_tensors
        grad_x = (g * shared.conj()).sum_to_size(x.shape) if ctx.needs_input_grad[0] else None
        return grad_x, _sum_of_products(x.expand_as(g), g, shared.shape)

    @staticmethod
    def jvp(ctx: Any, x_tangent: Tensor, shared_tangent: Tensor) -> Tensor:
        x, shared = ctx.saved_tensors
        return x_tangent * shared + x * shared_tangent


def _sum_of_products(x: Tensor, g: Tensor, shape: torch.Size) -> Tensor:
    """Sum conj(x) g, of one shape, to ``shape``."""
    sizes = (1,) * (g.ndim - len(shape)) + tuple(shape)
    summed = sorted((i for i, size in enumerate(sizes) if size == 1), key=lambda i: g.shape[i])
    if not summed or g.numel() == 0:
        return (x.conj() * g).sum_to_size(shape)
    x, g = (t.movedim(summed, list(range(len(summed)))) for t in (x, g))
    rows = [(x, g)]
    for _ in summed[1:]:  # all but the longest, which is cut
        rows = [row for a, b in rows for row in zip(a.unbind(), b.unbind(), strict=True)]
    size = -(-rows[0][0].shape[0] // PIECES)
    pieces = (zip(a.split(size), b.split(size), strict=True) for a, b in rows)
    products = (a.conj() * b for row in pieces for a, b in row)
    total = next(products)
    for product in products:
        total.narrow(0, 0, len(product)).add_(product)  # the last piece of a row may be shorter
    return (total.sum(0) if size > 1 else total).reshape(shape)
