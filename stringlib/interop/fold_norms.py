r"""Fold an encoder's basis into projections that a norm with learned scales follows (QK-norm).

Some models normalise queries and keys between projection and rotation:
:math:`f(z) = \Gamma z / \|z\|` with a diagonal matrix of scales :math:`\Gamma`. The basis P of an
encoder is applied after this norm. Folding P into the projection moves P before the norm. This is
possible only if P is compatible with :math:`\Gamma`. Several bases can give the same rotations, and
one compatible basis is sufficient.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
from torch import Tensor, nn

from stringlib.encoders.rotary import RotaryEncoder
from stringlib.encoders.string import STRING
from stringlib.folding import additions_to_norm, require_foldable
from stringlib.kernels.rotation import interleave
from stringlib.precision import at_least_float32, widen
from stringlib.spec import Floats, checked

Norm = nn.Module | Tensor | None
CLOSE = 1e-5  # relative tolerance for scales, which models store in float32


class Folded(NamedTuple):
    """Result of :func:`fold_norms`: an encoder without basis, and new weights for a model.

    Attributes:
        encoder: Encoder to use after the norms. It has no basis. Its frequencies are those of the
            original encoder, except that the frequencies of a plane may have the opposite sign.
        turn_q: Orthogonal matrices, ``(heads, head_dim, head_dim)``. Multiply the query projection
            of each head by its matrix from the left.
        turn_k: Orthogonal matrices, ``(kv_heads, head_dim, head_dim)``. Multiply the key projection
            of each head by its matrix from the left.
        scale_q: New scales for the norm of the queries, ``(heads, head_dim)``.
        scale_k: New scales for the norm of the keys, ``(kv_heads, head_dim)``.

    Heads that need the same matrix and scales share one entry:

    - ``turn_k`` and ``scale_k`` have one entry per key head if the encoder or the norm of the keys
      has several heads. Otherwise they have a single entry, for all key heads.
    - ``turn_q`` and ``scale_q`` have one entry per query head if the norm of the queries has
      several heads. Otherwise they have as many entries as ``turn_k``. Each entry is then for all
      query heads that attend to the key head.
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
    r"""Return whether an encoder's basis can be folded into projections that norms follow.

    The answer depends on the learned scales of the norms, so each layer of a model has to be
    checked. Let :math:`\Gamma` be the diagonal matrix of the scales of a norm. Folding is possible
    if the encoder's rotations have a basis :math:`P'` such that
    :math:`P'^\top \Gamma = \Gamma' O` for each of the two norms, where O is orthogonal and
    :math:`\Gamma'` is diagonal. O is then merged into the projection, and :math:`\Gamma'` replaces
    the scales.

    The conditions on :math:`\Gamma` are:

    - If no plane has frequency 0, and no two planes have frequencies that are equal up to sign,
      :math:`\Gamma^2` must commute with every product of two generators :math:`L_k L_l`,
      :eq:`eq-fold-norm`. In other words, :math:`\Gamma^2` maps each plane to itself.
    - Planes whose frequencies are equal up to sign have many bases. On these planes
      :math:`\Gamma^2` must also commute with :math:`J \Gamma^2 J`, where J rotates each plane by a
      right angle.
    - Non-rotating channels (frequency 0) may have any basis of the space that they span.

    Args:
        encoder: Rotary encoder whose basis is to be folded.
        norm_q: Norm of the queries, as one of:

            - the module, whose scales are found by applying it to test vectors;
            - its scales, ``(head_dim,)``, or ``(heads * head_dim,)`` for all heads in a row;
            - None for a norm without scales.

        norm_k: Norm of the keys, in one of the same forms.

    Returns:
        True if the basis can be folded. False if it cannot. The result is also False if a module
        does more than divide by a length and multiply by scales (LayerNorm subtracts a mean), does
        not accept the test vectors, or has hooks or a parametrisation.

    Raises:
        ValueError: If the number of scales does not fit ``head_dim`` or the heads, or a scale is
            not finite.

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
    """Fold an encoder's basis into projections that norms follow, and return the new weights.

    The result has five parts. A model keeps its logits with these three changes:

    - The query projection of each head is multiplied by ``turn_q`` from the left, and the key
      projection by ``turn_k``.
    - ``scale_q`` and ``scale_k`` replace the scales of the norms.
    - ``encoder`` replaces the encoder. It has no basis, so it costs what RoPE costs.

    Args:
        encoder: Rotary encoder whose basis is to be folded.
        norm_q: Norm of the queries, as one of:

            - the module, whose scales are found by applying it to test vectors;
            - its scales, ``(head_dim,)``, or ``(heads * head_dim,)`` for all heads in a row;
            - None for a norm without scales.

        norm_k: Norm of the keys, in one of the same forms.

    Returns:
        A :class:`Folded`, with the five parts.

    Raises:
        ValueError: If the basis cannot be folded, see :func:`foldable`. Also if the number of
            scales does not fit ``head_dim`` or the heads, a scale is not finite, or a module has
            hooks or a parametrisation.

    Example:
        >>> from stringlib import CayleySTRING
        >>> w = torch.randn(4 * 16, 64)  # to queries of 4 heads
        >>> folded = fold_norms(CayleySTRING(16), nn.RMSNorm(16), nn.RMSNorm(16))
        >>> w = (folded.turn_q.to(w) @ w.unflatten(0, (4, 16))).flatten(0, 1)
        >>> folded.encoder
        STRING(head_dim=16, coord_dim=1, heads=1)
    """
    for name, norm in (("norm_q", norm_q), ("norm_k", norm_k)):
        if isinstance(norm, nn.Module):
            require_foldable(name, norm, additions_to_norm)
    folded = _fold(encoder, norm_q, norm_k)
    if folded is None:
        raise ValueError(
            "encoder must have a basis that folds through norm_q and norm_k, got "
            f"{type(encoder).__name__}. One of the norms raises an error for test vectors, does "
            "more than divide by a length and scale, or has scales that mix rotating planes. Use "
            "the encoder without folding it."
        )
    return folded


def _scales(name: str, norm: Norm, encoder: RotaryEncoder) -> Tensor | None:
    """Return the scales of a norm, ``(heads, head_dim)``; None if it does more than a norm may.

    A norm may only divide by a length and multiply by scales.

    ``heads`` is 1 for a norm that is the same for all heads.
    """
    d = encoder.head_dim
    if norm is None:
        return torch.ones(1, d, dtype=torch.float64)
    found: Tensor | None
    if isinstance(norm, Tensor):
        found = widen(norm.detach()).flatten()
    else:
        if additions_to_norm(norm):
            return None
        try:
            found = _asked(norm, d)
        except Exception:  # the module does not accept vectors of this shape
            return None
    if found is None:
        return None
    if found.numel() % d:
        raise ValueError(
            f"{name} must have {d} scales, or {d} scales for each head, got {found.numel()} scales"
        )
    if not found.isfinite().all():
        raise ValueError(f"{name} must have finite scales, got inf or nan")
    return found.view(-1, d)


@torch.no_grad()
def _asked(norm: nn.Module, head_dim: int) -> Tensor | None:
    """Return the scales of a norm, found by applying the module to test vectors.

    The result is None if the module does more than divide by a length and multiply by scales.
    """
    norm = copy.deepcopy(norm)
    # outputs in bfloat16 would be too coarse for the comparison below
    for parameter in norm.parameters():
        parameter.data = parameter.data.to(at_least_float32(parameter.dtype))
    weights = [p for p in norm.parameters() if p.ndim >= 1]
    size = weights[0].numel() if weights else head_dim
    like = weights[0] if weights else torch.zeros(1)
    shape = weights[0].shape if weights and weights[0].ndim > 1 else (size,)

    def answer(x: Tensor) -> Tensor:
        return widen(norm(x.to(like.device, like.dtype).view(-1, *shape))).view(-1, size)

    # vectors of length 1000, so that the eps of the norm does not matter
    scales = answer(1e3 * torch.eye(size)).diagonal() / size**0.5
    x = torch.sin(torch.arange(3.0 * size)).view(3, size) * 1e3
    wanted = widen(x) / widen(x).norm(dim=-1, keepdim=True) * size**0.5 * scales
    found, opposite, largest = answer(x), answer(-x), wanted.abs().max()
    # a bias; rounding errors cancel, because they are the same for x and −x
    added = (found + opposite).abs().max() / 2
    close = (found - wanted).abs().max() <= 1e-3 * largest
    return scales if close and added <= CLOSE * largest else None


def _fold(encoder: RotaryEncoder, norm_q: Norm, norm_k: Norm) -> Folded | None:
    asked_q, asked_k = _scales("norm_q", norm_q, encoder), _scales("norm_k", norm_k, encoder)
    if asked_q is None or asked_k is None:
        return None
    q, k = asked_q.to(encoder.frequencies()), asked_k.to(encoder.frequencies())
    # each key head shares its basis with the query heads that attend to it
    count = max(encoder.heads, len(k))
    if len(k) not in (1, count) or (encoder.heads not in (1, count)):
        raise ValueError(
            f"norm_k must have scales for one head or for {encoder.heads} heads, got scales for "
            f"{len(k)} heads. The encoder has {encoder.heads} heads."
        )
    if len(q) % count and len(q) != 1:
        raise ValueError(
            f"norm_q must have scales for one head or for a multiple of {count} heads, got scales "
            f"for {len(q)} heads. The encoder or norm_k has {count} heads."
        )
    q = q.view(count if len(q) > 1 else 1, -1, encoder.head_dim).expand(count, -1, -1)
    k = k.expand(count, -1)
    omega = encoder.frequencies().detach()
    basis = _pairs_first(encoder)
    frequencies, found = [], []
    for at in range(count):
        own = at if encoder.heads > 1 else 0
        fitting = _fitting(basis[own], omega[own], torch.cat([q[at], k[at : at + 1]]))
        if fitting is None:
            return None
        frequencies.append(fitting[0])
        found.append(fitting[1])
    bases = torch.stack(found)
    turn_q, scale_q = _moved(bases[:, None], q)
    turn_k, scale_k = _moved(bases, k)
    folded = STRING(torch.stack(frequencies[: encoder.heads]), head_dim=encoder.head_dim)
    return Folded(folded, turn_q.flatten(0, 1), turn_k, scale_q.flatten(0, 1), scale_k)


def _pairs_first(encoder: RotaryEncoder) -> Tensor:
    """Return the basis P with the two channels of each pair side by side, ``(heads, d, d)``.

    The columns of non-rotating channels come last.
    """
    basis = encoder.basis().detach()
    order = torch.arange(encoder.head_dim, device=basis.device)
    turning = 2 * encoder.frequencies().shape[-2]
    pairs = interleave(order[:turning], encoder.layout)
    return basis[..., torch.cat([pairs.flatten(), order[turning:]])]


def _fitting(basis: Tensor, omega: Tensor, scales: Tensor) -> tuple[Tensor, Tensor] | None:
    r"""Return a basis of the same rotations in which :math:`\Gamma^2` of each norm is diagonal.

    Args:
        basis: P, ``(d, d)``, with the channels of each pair side by side, pairs first.
        omega: Frequencies Ω, ``(pairs, coord_dim)``.
        scales: Diagonals of Γ of all norms, ``(norms, d)``.

    Returns:
        The frequencies of the new basis, and the new basis. None if no basis makes :math:`\Gamma^2`
        diagonal.
    """
    mean = (scales**2).mean(-1, keepdim=True)
    squares = scales**2 / torch.where(mean > 0, mean, 1)  # all scales of a head may be 0
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
                basis[:, 2 * pair + 1] *= signs[0]  # mirroring a plane negates its frequencies
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
    """Return a basis of planes with equal frequencies in which the squared scales are diagonal.

    If there is no such basis, the result is another basis of the planes, in which the squared
    scales are not diagonal.

    Args:
        own: The present basis of the planes, two columns per plane, ``(d, 2 * planes)``.
        squares: Squared scales, ``(norms, d)``.
    """
    if _diagonal(own, squares):
        return own
    rotated = torch.stack([own[:, 1::2], -own[:, ::2]], -1).flatten(-2)  # J: first → second
    mixed = _mixed(own, squares) + _mixed(-rotated, squares, start=0.37)
    left, found = torch.eye(own.shape[1]).to(own), []
    for _ in range(own.shape[1] // 2):
        first = left @ torch.linalg.eigh(left.mT @ mixed @ left).eigenvectors[:, 0]
        second = torch.stack([-first[1::2], first[::2]], -1).flatten()
        found += [first, second]
        # continue in the orthogonal complement of the planes that have been found
        done = torch.stack(found, 1)
        left = torch.linalg.svd(done, full_matrices=True).U[:, len(found) :]
    return own @ torch.stack(found, 1)


def _mixed(own: Tensor, squares: Tensor, start: float = 1.0) -> Tensor:
    """Return a weighted sum of the squared scales of all norms, in the basis ``own``.

    If the matrices of squared scales commute in this basis, the eigenvectors of the sum diagonalise
    all of them (unless the weights happen to give the sum equal eigenvalues).
    """
    weights = torch.cos(start + torch.arange(len(squares)).to(squares))
    return own.mT @ ((weights @ squares)[:, None] * own)


def _diagonal(own: Tensor, squares: Tensor) -> bool:
    """Return whether the squared scales of every norm are diagonal in the basis ``own``."""
    inside = own.mT @ (squares[:, :, None] * own)
    off = inside - torch.diag_embed(inside.diagonal(dim1=-2, dim2=-1))
    return bool((off.abs() <= CLOSE * squares.max()).all())


def _moved(bases: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return an orthogonal O and a diagonal Γ' with :math:`P^\top \Gamma = \Gamma' O`.

    Args:
        bases: Basis P of each head, ``(..., head_dim, head_dim)``.
        scales: Diagonal of :math:`\Gamma` of each head, ``(..., head_dim)``.

    Returns:
        O, ``(..., head_dim, head_dim)``, and the diagonal of :math:`\Gamma'`, ``(..., head_dim)``.
    """
    product = bases.mT * scales[..., None, :]
    length = product.norm(dim=-1)
    lost = length <= CLOSE * length.amax(-1, keepdim=True)
    rows = (product / length[..., None]).masked_fill(lost[..., None], 0)
    left, _, right = torch.linalg.svd(rows)  # any rows complete it where a scale is 0
    return left @ right, length.masked_fill(lost, 0)


def _close(a: Tensor, b: Tensor) -> bool:
    return bool((a - b).abs().max() <= 1e-12 * b.abs().max())
