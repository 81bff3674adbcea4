r"""Fold an encoder's basis into projections that a norm with learned scales follows (QK-norm).

Some models normalise queries and keys between projection and rotation:
:math:`f(z) = \Gamma z / \|z\|` with a diagonal matrix of scales :math:`\Gamma`. The basis P of an
encoder is applied after this norm. Folding P into the projection moves P before the norm. This is
possible only if P is compatible with :math:`\Gamma`. Several matrices can give the same rotations,
also different ones for queries and keys, and one compatible choice is sufficient.
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
    checked. Folding is possible if there are matrices A and B with
    :math:`A\,\mathrm{RoPE}\,B^\top = P\,\mathrm{RoPE}\,P^\top` such that
    :math:`A^\top \Gamma_q = \Gamma_q' O_q` and :math:`B^\top \Gamma_k = \Gamma_k' O_k`, where
    :math:`O_q` and :math:`O_k` are orthogonal and :math:`\Gamma_q'` and :math:`\Gamma_k'` are
    diagonal. The orthogonal matrices are then merged into the projections, and the diagonal
    matrices replace the scales.

    These conditions on the scales are necessary and sufficient, except that the second condition is
    only sufficient if a scale is 0:

    - :math:`\Gamma_q^2` and :math:`\Gamma_k^2` map the channels of each frequency to channels of
      the same frequency, where frequencies that differ only in sign count as the same. If no two
      planes have the same frequency, each plane is mapped to itself, :eq:`eq-fold-norm`.
    - Let several planes have the same frequency, let :math:`A_q` and :math:`A_k` be the squared
      scales in a basis of these planes, and let J rotate each of the planes by a right angle. With
      :math:`H = (A_q + J^\top A_q J)/2`, the three matrices :math:`H^{-1/2} A_q H^{-1/2}`,
      :math:`M = H^{1/2} A_k H^{1/2}` and :math:`J^\top M J` commute with each other.
    - Channels that do not rotate (frequency 0) set no condition, if each key head serves query
      heads with the same scales.

    Args:
        encoder: Rotary encoder whose basis is to be folded.
        norm_q: Norm of the queries, as one of:

            - the module, whose scales are found by applying it to test vectors;
            - its scales, ``(head_dim,)``, or ``(heads * head_dim,)`` for all heads in a row;
            - None for a norm without scales.

        norm_k: Norm of the keys, in one of the same forms.

    Returns:
        True if the basis can be folded. False if it cannot. The result is also False, for every
        encoder, if a module does anything other than divide by a length and multiply by scales,
        does not accept the test vectors, or has hooks or a parametrisation.

        So the result for a LayerNorm is False, because a LayerNorm also subtracts a mean. A
        LayerNorm without a bias can be replaced: subtract from each column of the projection's
        weight, and from its bias, the mean over those channels over which the norm takes its mean.
        An RMSNorm with the same scales and eps then computes the same as the LayerNorm before, and
        the basis can be folded if the result for these scales is True.

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
        >>> foldable(CirculantSTRING(16), nn.LayerNorm(16), nn.LayerNorm(16))
        False
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
    - ``encoder`` replaces the encoder. The new encoder has no basis, so it takes as long as RoPE.

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
            f"{type(encoder).__name__}. Each norm must accept vectors of head_dim channels and "
            "only divide by a length and multiply by scales (a LayerNorm also subtracts a mean). "
            "foldable() lists conditions on the scales. Use the encoder without folding it."
        )
    return folded


def _scales(name: str, norm: Norm, encoder: RotaryEncoder) -> Tensor | None:
    """Return the scales of a norm, ``(heads, head_dim)``, or None.

    The result is None if the module does more than divide by a length and multiply by scales.
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
            f"{len(k)} heads. The encoder has heads={encoder.heads}."
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
    frequencies: list[Tensor] = []
    for_q: list[Tensor] = []
    for_k: list[Tensor] = []
    for at in range(count):
        own = at if encoder.heads > 1 else 0
        fitting = _fitting(basis[own], omega[own], q[at], k[at])
        if fitting is None:
            return None
        for found, matrix in zip((frequencies, for_q, for_k), fitting, strict=True):
            found.append(matrix)
    turn_q, scale_q = _moved(torch.stack(for_q)[:, None], q)
    turn_k, scale_k = _moved(torch.stack(for_k), k)
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


def _fitting(
    basis: Tensor, omega: Tensor, q: Tensor, k: Tensor
) -> tuple[Tensor, Tensor, Tensor] | None:
    r"""Return matrices with the same rotations that make the squared scales diagonal.

    Queries and keys may have different matrices A and B, as long as
    :math:`A\,\mathrm{RoPE}(\Omega r)\,B^\top = P\,\mathrm{RoPE}(\Omega r)\,P^\top`.

    Args:
        basis: The basis P, ``(d, d)``, with the channels of each pair side by side, pairs first.
        omega: Frequencies Ω, ``(pairs, coord_dim)``.
        q: Diagonals of Γ of the norms of all query heads that attend to this key head,
            ``(norms, d)``.
        k: Diagonal of Γ of the norm of the keys, ``(d,)``.

    Returns:
        The frequencies, A and B. None if there are no such matrices.
    """
    squares = torch.cat([q, k[None]]) ** 2
    mean = squares.mean(-1, keepdim=True)
    squares = squares / torch.where(mean > 0, mean, 1)  # all scales of a head may be 0
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
    for_q, for_k = basis.clone(), basis.clone()
    every = [[c for pair in group for c in (2 * pair, 2 * pair + 1)] for group in groups]
    for channels, rotates in [(channels, True) for channels in every] + [(still, False)]:
        own = basis[:, channels]
        turn, inverse = _congruence(own.mT @ (squares[:, :, None] * own), rotates)
        for_q[:, channels], for_k[:, channels] = own @ turn, own @ inverse.mT
    squares = torch.diag_embed(squares)
    fits = _diagonal(for_q, squares[:-1]) and _diagonal(for_k, squares[-1:])
    return (omega, for_q, for_k) if fits else None


def _congruence(squares: Tensor, rotates: bool) -> tuple[Tensor, Tensor]:
    r"""Return C and its inverse such that C diagonalises the squared scales, if there is such a C.

    In the space of channels that rotate with one frequency, queries may be multiplied by C and keys
    by :math:`C^{-\top}` if C commutes with J, the rotation of each plane by a right angle, because
    C then commutes with the rotations. For channels that do not rotate, C is any invertible matrix.
    Let :math:`G_q` be the squared scales of a query norm and :math:`G_k` those of the key norm, as
    matrices. Let H be the part of the first :math:`G_q` that commutes with J, and
    :math:`W = H^{-1/2}`. All matrices :math:`W G_q W` and :math:`W^{-1} G_k W^{-1}`, and
    :math:`J^\top M J` for each such matrix M, must commute with each other. Then they have common
    eigenvectors :math:`e_1, J e_1, e_2, J e_2, \dots`, and C is W times the matrix with these
    columns.

    Args:
        squares: The squared scales of the query norms and, as the last one, of the key norm, in a
            basis of the channels, ``(norms, n, n)``.
        rotates: Whether the channels rotate.

    Returns:
        C and its inverse, ``(n, n)``. If no C diagonalises the squared scales, neither do the
        returned matrices.
    """
    size = squares.shape[-1]
    one = torch.eye(size).to(squares)
    if _diagonal(one, squares):
        return one, one
    quarter = one.new_tensor([[0.0, -1.0], [1.0, 0.0]])
    J = torch.kron(torch.eye(size // 2).to(one), quarter) if rotates else one
    shared = (squares[0] + J.mT @ squares[0] @ J) / 2
    values, vectors = torch.linalg.eigh(shared)
    # a scale may be 0, and then the channel keeps its length
    root = torch.where(values > CLOSE * values.max(), values, 1).sqrt()
    whiten, back = (vectors * r @ vectors.mT for r in (1 / root, root))
    inside = torch.cat([whiten @ squares[:-1] @ whiten, back @ squares[-1:] @ back])
    weights = torch.cos(1.0 + torch.arange(2 * len(squares)).to(squares))
    # a generic sum: its eigenvectors diagonalise all of the matrices if they commute
    mixed = torch.einsum("m,mij->ij", weights, torch.cat([inside, J.mT @ inside @ J]))
    if not rotates:
        found = torch.linalg.eigh(mixed).eigenvectors
        return whiten @ found, found.mT @ back
    left, columns = one, []
    for _ in range(size // 2):
        first = left @ torch.linalg.eigh(left.mT @ mixed @ left).eigenvectors[:, 0]
        columns += [first, J @ first]
        # continue in the orthogonal complement of the planes that have been found
        done = torch.stack(columns, 1)
        left = torch.linalg.svd(done, full_matrices=True).U[:, len(columns) :]
    found = torch.stack(columns, 1)
    return whiten @ found, found.mT @ back


def _diagonal(matrix: Tensor, squares: Tensor) -> bool:
    """Return whether the squared scales of every norm, ``(norms, d, d)``, become diagonal."""
    inside = matrix.mT @ squares @ matrix
    size = inside.diagonal(dim1=-2, dim2=-1)
    off = inside - torch.diag_embed(size)
    return bool((off.abs() <= CLOSE * size.sum(-1)[:, None, None]).all())


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
