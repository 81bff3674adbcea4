r"""Functions that measure by how much encoders, attention and matrices violate a property.

A function named ``..._error`` returns a number that is 0 if the property holds exactly. Tests,
notebooks and exercises compare this error with a limit. Errors of logits are divided by the norms
of query and key, :math:`\|q\|\,\|k\|`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor

from stringlib.algebra.skew import turned_by
from stringlib.encoders.rotary import RotaryEncoder
from stringlib.precision import widen
from stringlib.spec import Floats, Positions, Reals, checked


def normal(*shape: int) -> Tensor:
    """Return random float64 numbers from the standard normal distribution."""
    return torch.randn(*shape, dtype=torch.float64)


def largest_difference(a: Tensor, b: Tensor) -> float:
    """Return the largest absolute difference of two tensors whose shapes broadcast.

    The difference of empty tensors is 0.

    Raises:
        TypeError: If ``a`` or ``b`` is not a tensor, or is boolean.
        ValueError: If the shapes of ``a`` and ``b`` do not broadcast.
    """
    _require_pair(("a", a), ("b", b))
    gap = (a - b).abs()
    return gap.max().item() if gap.numel() else 0.0


@checked
def skew_error(matrix: Floats[Tensor, "... d d"]) -> float:
    """Return the largest absolute entry of L + Lᵀ, which is 0 for a skew-symmetric matrix L.

    Args:
        matrix: Matrix L, ``(..., d, d)``.
    """
    return largest_difference(matrix, -matrix.mT)


@checked
def orthogonality_error(matrix: Floats[Tensor, "... n d"]) -> float:
    r"""Return by how much the columns of a matrix are not orthonormal, equation :eq:`eq-isometry`.

    The error is the largest absolute entry of :math:`R^\top R - I` for the matrix R. It is 0 for an
    orthogonal matrix, and for any other matrix with orthonormal columns.

    Args:
        matrix: Matrix R, ``(..., n, d)`` with n ≥ d.
    """
    eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    return largest_difference(matrix.mT @ matrix, eye)


@checked
def commutator_error(generators: Floats[Tensor, "... coord_dim d d"]) -> float:
    """Return the largest absolute entry of the commutators of all pairs of generators.

    The commutator of the generators L_i and L_j is L_i L_j − L_j L_i.

    Args:
        generators: Generators L_i, ``(..., coord_dim, d, d)``.
    """
    left, right = generators.unsqueeze(-3), generators.unsqueeze(-4)
    return largest_difference(left @ right, right @ left)


@checked
def group_law_error(
    encoder: RotaryEncoder,
    a: Positions[Tensor, "... seq encoder.coord_dim"],
    b: Positions[Tensor, "... seq encoder.coord_dim"],
) -> float:
    r"""Return by how much an encoder violates the group law, equation :eq:`eq-group-law`.

    The error is the largest absolute entry of :math:`R(a)R(b) - R(a+b)`, where R(r) is the rotation
    of the encoder at position r.

    Args:
        encoder: The encoder.
        a: Positions a, ``(..., seq, coord_dim)``.
        b: Positions b, ``(..., seq, coord_dim)``.
    """
    return largest_difference(encoder.matrix(a) @ encoder.matrix(b), encoder.matrix(a + b))


@checked
def generator_error(
    encoder: RotaryEncoder, positions: Positions[Tensor, "seq encoder.coord_dim"]
) -> float:
    r"""Return by how much an encoder's rotations differ from the exponentials of its generators.

    The error is the largest absolute entry of :math:`R(r) - \exp(\sum_k r_k L_k)`. Here R(r) is the
    rotation of the encoder at position r, and :math:`L_k` are its generators. The exponential is
    computed by ``torch.matrix_exp``.

    Args:
        encoder: The encoder.
        positions: Positions r, ``(seq, coord_dim)``.
    """
    expected = turned_by(encoder.generators(), widen(positions))
    return largest_difference(encoder.matrix(positions), expected)


@checked
def logits(encoder: RotaryEncoder, q: Tensor, k: Tensor, positions: Tensor) -> Tensor:
    """Return the inner product of each encoded query and each encoded key of a head.

    The inner products, ``(..., heads, seq, seq)``, are not divided by √head_dim.

    Args:
        encoder: The encoder.
        q: Queries, ``(..., heads, seq, head_dim)``.
        k: Keys, of the same shape.
        positions: Positions of queries and keys, ``(..., seq, coord_dim)``.
    """
    q, k = encoder(q, k, positions)
    return q @ k.mT


@checked
def relative_logit_error(
    a: Tensor,
    b: Tensor,
    q: Floats[Tensor, "... n head_dim"],
    k: Floats[Tensor, "... keys head_dim"],
) -> float:
    r"""Return the largest difference of two tensors of logits, relative to the norms of q and k.

    The result is the maximum of :math:`|a - b| / (\|q\|\,\|k\|)` over all queries and keys.

    Args:
        a: Logits, ``(..., n, keys)``.
        b: Logits of the same queries and keys that are compared with ``a``.
        q: The queries, ``(..., n, head_dim)``.
        k: The keys, ``(..., keys, head_dim)``.
    """
    _require_pair(("a", a), ("b", b))
    norms = widen(q).norm(dim=-1).unsqueeze(-1) * widen(k).norm(dim=-1).unsqueeze(-2)
    return largest_difference(widen(a) / norms, widen(b) / norms)


@checked
def translation_error(
    encoder: RotaryEncoder,
    q: Tensor,
    k: Tensor,
    positions: Positions[Tensor, "... seq encoder.coord_dim"],
    shift: Tensor | float,
) -> float:
    r"""Return by how much a shift of all positions changes the logits, equation :eq:`eq-relative`.

    Args:
        encoder: The encoder.
        q: Queries, ``(..., heads, seq, head_dim)``.
        k: Keys, of the same shape.
        positions: Positions of queries and keys, ``(..., seq, coord_dim)``.
        shift: Shift that is added to every position, a number or one number per coordinate.

    Returns:
        The largest change of a logit, divided by :math:`\|q\|\,\|k\|`.
    """
    _require_shift(positions, shift)
    here, there = logits(encoder, q, k, positions), logits(encoder, q, k, positions + shift)
    return relative_logit_error(here, there, q, k)


@checked
def fold_error(
    encoder: RotaryEncoder,
    x: Floats[Tensor, "... n model_dim"],
    w_q: Floats[Tensor, "rows model_dim"],
    w_k: Floats[Tensor, "key_rows model_dim"],
    positions: Tensor,
) -> float:
    r"""Return by how much folding an encoder's basis changes the logits, equation :eq:`eq-fold`.

    Folding merges the basis into the projections of queries and keys.

    Args:
        encoder: The encoder.
        x: Tokens, ``(..., seq, model_dim)``.
        w_q: Query projection, ``(heads * head_dim, model_dim)``.
        w_k: Key projection, of the same shape.
        positions: Positions of the tokens, ``(..., seq, coord_dim)``.

    Returns:
        The largest change of a logit, divided by :math:`\|q\|\,\|k\|`.
    """

    def project(weight: Tensor) -> Tensor:
        return (x @ weight.mT).unflatten(-1, (-1, encoder.head_dim)).transpose(-3, -2)

    q, k = project(w_q), project(w_k)
    direct = logits(encoder, q, k, positions)
    folded_q, folded_k = project(encoder.fold(w_q)), project(encoder.fold(w_k))
    folded = logits(encoder.folded(), folded_q, folded_k, positions)
    return relative_logit_error(direct, folded, q, k)


@torch.no_grad()
@checked
def shift_error(
    attend: Callable[[Tensor], Tensor], positions: Reals[Tensor, "..."], shift: Tensor | float
) -> float:
    """Return the relative change of an attention output when all positions are shifted.

    Args:
        attend: Function of the positions that returns a tensor, such as the outputs, a kernel or
            attention weights.
        positions: Positions of the tokens, ``(..., seq, coord_dim)``.
        shift: Shift that is added to every position, a number or one number per coordinate.

    Returns:
        The norm of the change divided by the norm of ``attend(positions)``. The result is 0 if
        ``attend`` depends only on differences of positions.
    """
    _require_shift(positions, shift)
    here, there = attend(positions), attend(positions + shift)
    return ((there - here).norm() / here.norm()).item() if here.numel() else 0.0


@torch.no_grad()
@checked
def all_errors(encoder: RotaryEncoder) -> dict[str, float]:
    """Return the errors of all properties of an encoder, at random vectors and positions.

    The errors are measured in float64, on a copy of the encoder on the CPU. For a correct encoder
    each error is below 1e-11.

    Returns:
        Dictionary with the errors of five functions, under these names.

        - ``"relative"``: :func:`translation_error`
        - ``"orthogonal"``: :func:`orthogonality_error`
        - ``"group law"``: :func:`group_law_error`
        - ``"generators"``: :func:`generator_error`
        - ``"fold"``: :func:`fold_error`
    """
    exact = copy.deepcopy(encoder).cpu().double()
    draw = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw, dtype=torch.float64)

    heads, seq, width = max(exact.heads, 2), 7, 9
    q, k = normal(2, heads, seq, exact.head_dim)
    w_q, w_k = normal(2, heads * exact.head_dim, width)
    here, there = 10 * normal(2, seq, exact.coord_dim)
    return {
        "relative": translation_error(exact, q, k, here, 300.0),
        "orthogonal": orthogonality_error(exact.matrix(here)),
        "group law": group_law_error(exact, here, there),
        "generators": generator_error(exact, here),
        "fold": fold_error(exact, normal(seq, width), w_q, w_k, here),
    }


def _require_pair(a: tuple[str, Tensor], b: tuple[str, Tensor]) -> None:
    for name, x in (a, b):
        if not isinstance(x, Tensor) or x.dtype == torch.bool:
            kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
            raise TypeError(f"{name} must be a tensor of numbers, got {kind}")
    try:
        torch.broadcast_shapes(a[1].shape, b[1].shape)
    except RuntimeError:
        raise ValueError(
            f"{b[0]} must have a shape that broadcasts with the shape {tuple(a[1].shape)} of "
            f"{a[0]}, got {tuple(b[1].shape)}"
        ) from None


def _require_shift(positions: Tensor, shift: Tensor | float) -> None:
    if isinstance(shift, Tensor):
        _require_pair(("positions", positions), ("shift", shift))
