r"""Which bases fold through a norm with scales, and the fold.

A model may normalise queries and keys before it turns them: :math:`f(z) = \Gamma z / \|z\|`. A
basis P stands behind that norm, and to fold it is to move it in front. Scales are in its way, but
not always: P is one basis of its rotations, and others turn the same.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
from torch import Tensor, nn

from stringlib.encoders.string import STRING, RotaryEncoder
from stringlib.kernels.rotation import pair_up
from stringlib.precision import at_least_float32, widen
from stringlib.spec import Floats, checked, require

Norm = nn.Module | Tensor | None
CLOSE = 1e-5  # scales are kept in float32


class Folded(NamedTuple):
    """What stands in a model in place of an encoder's basis.

    Attributes:
        encoder: Turns behind the norms; it has no basis.
        turn_q: Goes into the projection of queries, head by head: ``(heads, head_dim, head_dim)``.
        turn_k: Into that of keys.
        scale_q: Of the norm of queries, ``(heads, head_dim)``.
        scale_k: Of the norm of keys.
    """

    encoder: STRING
    turn_q: Tensor
    turn_k: Tensor
    scale_q: Tensor
    scale_k: Tensor


@checked
def foldable(
    encoder: RotaryEncoder,
    norm_q: nn.Module | Floats[Tensor, "...q"] | None,
    norm_k: nn.Module | Floats[Tensor, "...k"] | None,
) -> bool:
    r"""Return whether an encoder's basis folds into projections that norms with scales follow.

    So ask it of each layer. It does if some basis of the same rotations moves through both norms:
    :math:`P'^\top \Gamma = \Gamma' O` with an orthogonal O, which the projection takes in, and
    scales :math:`\Gamma'`. Where no two planes have the same frequencies, or those of a mirrored
    plane, and none stays still, that is so if and only if :math:`\Gamma^2` commutes with every
    product of two generators :math:`L_k L_l`, :eq:`eq-fold-norm`: it maps no plane into another.
    Planes of the same frequencies have many bases; there :math:`\Gamma^2` has to commute with
    :math:`J \Gamma^2 J` as well, where J turns each of them by a right angle. Of still channels any
    basis will do.

    Args:
        encoder: The encoder.
        norm_q: The norm of queries: the module, which is asked; or its scales, ``(head_dim,)``, or
            those of all heads in a row; None for no scales.
        norm_k: That of keys.

    Returns:
        True if :func:`fold_norms` has something to return. False also for norms that do more than
        divide by a length and scale (LayerNorm subtracts a mean), or do not take such vectors.

    Raises:
        ValueError: If scales are not those of whole heads, or not finite.

    Example:
        >>> from stringlib import CirculantSTRING, RoPE
        >>> scales = torch.linspace(1, 2, 16)
        >>> foldable(RoPE(16), scales, scales), foldable(CirculantSTRING(16), scales, scales)
        (True, False)
        >>> foldable(CirculantSTRING(16), nn.RMSNorm(16), nn.RMSNorm(16))
        True
    """
    return _fold(encoder, norm_q, norm_k) is not None


@checked
def fold_norms(
    encoder: RotaryEncoder,
    norm_q: nn.Module | Floats[Tensor, "...q"] | None,
    norm_k: nn.Module | Floats[Tensor, "...k"] | None,
) -> Folded:
    """Return what to put in place of an encoder's basis where norms follow the projections.

    With ``turn_q`` multiplied into the projection of queries, head by head, and ``scale_q`` in its
    norm, and the same for keys, logits are what they were.

    Args:
        encoder: The encoder.
        norm_q: As for :func:`foldable`.
        norm_k: As for :func:`foldable`.

    Raises:
        ValueError: If it is not :func:`foldable`.

    Example:
        >>> from stringlib import CayleySTRING
        >>> w = torch.randn(4 * 16, 64)  # to queries of 4 heads
        >>> folded = fold_norms(CayleySTRING(16), nn.RMSNorm(16), nn.RMSNorm(16))
        >>> w = (folded.turn_q.to(w) @ w.unflatten(0, (4, 16))).flatten(0, 1)
        >>> folded.encoder
        STRING(head_dim=16, coord_dim=1, heads=1)
    """
    folded = _fold(encoder, norm_q, norm_k)
    if folded is None:
        raise ValueError(
            "encoder must have a basis that moves through both norms, got "
            f"{type(encoder).__name__}, and scales that map its planes into each other"
        )
    return folded


def _scales(name: str, norm: Norm, encoder: RotaryEncoder) -> Tensor | None:
    """Return Γ, ``(heads, head_dim)``, or None if the norm is another function."""
    d = encoder.head_dim
    if norm is None:
        return torch.ones(1, d, dtype=torch.float64)
    found: Tensor | None
    if isinstance(norm, Tensor):
        found = widen(norm.detach()).flatten()
    else:
        require(name, norm, nn.Module)
        try:
            found = _asked(norm, d)
        except Exception:  # whatever a module says that does not take one head after another
            return None
    if found is None:
        return None
    if found.numel() % d:
        raise ValueError(f"{name} must have scales of heads of {d} channels, got {found.numel()}")
    if not found.isfinite().all():
        raise ValueError(f"{name} must have finite scales, got others")
    return found.view(-1, d)


@torch.no_grad()
def _asked(norm: nn.Module, head_dim: int) -> Tensor | None:
    """Return the scales of a module that divides by a length and scales; None if it does not."""
    norm = copy.deepcopy(norm)
    for parameter in norm.parameters():  # answers rounded to bfloat16 are those of no norm
        parameter.data = parameter.data.to(at_least_float32(parameter.dtype))
    weights = [p for p in norm.parameters() if p.ndim >= 1]
    size = weights[0].numel() if weights else head_dim
    like = weights[0] if weights else torch.zeros(1)
    shape = weights[0].shape if weights and weights[0].ndim > 1 else (size,)

    def answer(x: Tensor) -> Tensor:
        return widen(norm(x.to(like.device, like.dtype).view(-1, *shape))).view(-1, size)

    # long vectors: what is added to their length does not show
    scales = answer(1e3 * torch.eye(size)).diagonal() / size**0.5
    x = torch.sin(torch.arange(3.0 * size)).view(3, size) * 1e3
    wanted = widen(x) / widen(x).norm(dim=-1, keepdim=True) * size**0.5 * scales
    found, opposite, largest = answer(x), answer(-x), wanted.abs().max()
    added = (found + opposite).abs().max() / 2  # by a bias; rounding is the same for both
    close = (found - wanted).abs().max() <= 1e-3 * largest
    return scales if close and added <= CLOSE * largest else None


def _fold(encoder: RotaryEncoder, norm_q: Norm, norm_k: Norm) -> Folded | None:
    asked_q, asked_k = _scales("norm_q", norm_q, encoder), _scales("norm_k", norm_k, encoder)
    if asked_q is None or asked_k is None:
        return None
    q, k = asked_q.to(encoder.frequencies()), asked_k.to(encoder.frequencies())
    # one basis for each head of keys and the queries that it serves
    count = max(encoder.heads, len(k))
    if len(k) not in (1, count) or (encoder.heads not in (1, count)):
        raise ValueError(f"norm_k must have scales of {encoder.heads} heads, got {len(k)}")
    if len(q) % count and len(q) != 1:
        raise ValueError(f"norm_q must have scales of a multiple of {count} heads, got {len(q)}")
    q = q.view(count if len(q) > 1 else 1, -1, encoder.head_dim).expand(count, -1, -1)
    k = k.expand(count, -1)
    omega = encoder.frequencies().detach()
    basis = _pairs_first(encoder)
    speeds, found = [], []
    for at in range(count):
        own = at if encoder.heads > 1 else 0
        fitting = _fitting(basis[own], omega[own], torch.cat([q[at], k[at : at + 1]]))
        if fitting is None:
            return None
        speeds.append(fitting[0])
        found.append(fitting[1])
    bases = torch.stack(found)
    turn_q, scale_q = _moved(bases[:, None], q)
    turn_k, scale_k = _moved(bases, k)
    folded = STRING(torch.stack(speeds[: encoder.heads]), head_dim=encoder.head_dim)
    return Folded(folded, turn_q.flatten(0, 1), turn_k, scale_q.flatten(0, 1), scale_k)


def _pairs_first(encoder: RotaryEncoder) -> Tensor:
    """Return P with the two channels of a pair beside each other: ``(heads, d, d)``."""
    basis = encoder.basis().detach()
    order = torch.arange(encoder.head_dim, device=basis.device)
    turning = 2 * encoder.frequencies().shape[-2]
    pairs = pair_up(order[:turning], encoder.layout)
    return basis[..., torch.cat([pairs.flatten(), order[turning:]])]


def _fitting(basis: Tensor, omega: Tensor, scales: Tensor) -> tuple[Tensor, Tensor] | None:
    r"""Return another basis of the same rotations in which all :math:`\Gamma^2` are diagonal.

    Args:
        basis: P, ``(d, d)``, pairs first.
        omega: Ω, ``(pairs, coord_dim)``.
        scales: Γ of all norms, ``(norms, d)``.

    Returns:
        Its frequencies and itself, or None if there is none.
    """
    mean = (scales**2).mean(-1, keepdim=True)
    squares = scales**2 / torch.where(mean > 0, mean, 1)  # a head may have no scale but 0
    basis, omega, pairs = basis.clone(), omega.clone(), len(omega)
    still = [*range(2 * pairs, len(basis))]
    groups: list[list[int]] = []
    for pair in range(pairs):
        if omega[pair].abs().max() == 0:
            still += [2 * pair, 2 * pair + 1]
            continue
        for group in groups:
            first = omega[group[0]]
            signs = [s for s in (1, -1) if _close(omega[pair], s * first)]
            if signs:
                basis[:, 2 * pair + 1] *= signs[0]  # the mirrored plane turns the other way
                omega[pair] = first
                group.append(pair)
                break
        else:
            groups.append([pair])
    for group in groups:
        channels = [c for pair in group for c in (2 * pair, 2 * pair + 1)]
        basis[:, channels] = _planes(basis[:, channels], squares)
    own = basis[:, still]
    if not _diagonal(own, squares):
        basis[:, still] = own @ torch.linalg.eigh(_mixed(own, squares)).eigenvectors
    return (omega, basis) if _diagonal(basis, squares) else None


def _planes(own: Tensor, squares: Tensor) -> Tensor:
    """Return planes of one frequency in which squares of scales are diagonal, if there are such.

    Args:
        own: The planes as they are, ``(d, 2 * planes)``, two columns each.
        squares: Of scales, ``(norms, d)``.
    """
    if _diagonal(own, squares):
        return own
    turned = torch.stack([own[:, 1::2], -own[:, ::2]], -1).flatten(-2)  # J: first → second
    mixed = _mixed(own, squares) + _mixed(-turned, squares, start=0.37)
    left, found = torch.eye(own.shape[1]).to(own), []
    for _ in range(own.shape[1] // 2):
        first = left @ torch.linalg.eigh(left.mT @ mixed @ left).eigenvectors[:, 0]
        second = torch.stack([-first[1::2], first[::2]], -1).flatten()
        found += [first, second]
        # what is orthogonal to the planes so far
        done = torch.stack(found, 1)
        left = torch.linalg.svd(done, full_matrices=True).U[:, len(found) :]
    return own @ torch.stack(found, 1)


def _mixed(own: Tensor, squares: Tensor, start: float = 1.0) -> Tensor:
    """Return a sum of squares of scales whose eigenvectors are those of all of them."""
    weights = torch.cos(start + torch.arange(len(squares)).to(squares))
    return own.mT @ ((weights @ squares)[:, None] * own)


def _diagonal(own: Tensor, squares: Tensor) -> bool:
    """Return whether squares of scales mix no two of these columns."""
    inside = own.mT @ (squares[:, :, None] * own)
    off = inside - torch.diag_embed(inside.diagonal(dim1=-2, dim2=-1))
    return bool((off.abs() <= CLOSE * squares.max()).all())


def _moved(bases: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return O and :math:`\Gamma'` of :math:`P^\top \Gamma = \Gamma' O`."""
    product = bases.mT * scales[..., None, :]
    length = product.norm(dim=-1)
    lost = length <= CLOSE * length.amax(-1, keepdim=True)
    rows = (product / length[..., None]).masked_fill(lost[..., None], 0)
    left, _, right = torch.linalg.svd(rows)  # where a scale is 0 any row will do that fits
    return left @ right, length.masked_fill(lost, 0)


def _close(a: Tensor, b: Tensor) -> bool:
    return bool((a - b).abs().max() <= 1e-12 * b.abs().max())
