r"""The planes of commuting generators: every STRING is :math:`P\,\mathrm{RoPE}(\Omega r)\,P^\top`.

Commuting skew-symmetric matrices have common orthogonal planes: each matrix maps each plane to
itself, and the exponential of the matrix rotates the plane. The planes are computed in real
arithmetic, in three steps:

1. Take a random linear combination of the generators. If two planes have different frequencies in
   any generator, then with probability 1 they have different frequencies in the combination.
2. Make the combination tridiagonal by reflections. Its only non-zero entries then link an even
   with an odd channel. The singular vectors of the matrix of these entries span the planes, and
   they are orthonormal even if frequencies are equal or zero.
3. Separate planes that have nearly equal frequencies in the combination, because rounding errors
   mix these planes. Newton steps with all generators separate the planes. Only step 3 has a
   threshold: planes whose frequencies differ by less than ``SAME`` in every generator are not
   separated.

The generators are then rebuilt from the planes and compared with the given ones. If the difference
is more than rounding errors, another combination is drawn. If no combination gives planes that fit,
an error is raised.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stringlib.algebra.skew import cayley, planar_skew
from stringlib.precision import widest
from stringlib.spec import Floats, Positive, checked

ATTEMPTS = 32  # number of random combinations; usually the first is sufficient
GOAL = 1e-15  # residual, relative to the norm of a generator, at which no more are drawn
SAME = 1e-15  # relative difference of frequencies below which planes are not separated
ROUNDED = "If the generators are rounded, call universal_form with a larger tolerance."


@torch.no_grad()
@checked
def universal_form(
    generators: Floats[Tensor, "... coord_dim d d"], tolerance: Positive | None = None
) -> tuple[Tensor, Tensor]:
    r"""Return frequencies and basis of commuting generators, :eq:`eq-universal-planes`.

    The generators are commuting skew-symmetric matrices :math:`L_k`.
    ``STRING(*universal_form(generators))`` rotates by :math:`\exp(\sum_k r_k L_k)`. The result
    always has :math:`\lfloor d/2 \rfloor` planes; a plane that does not rotate has frequency 0. So
    all heads have the same number of planes, and no threshold decides which planes rotate. The
    planes are sorted by the norm of their frequency vector, largest first. Each plane that
    rotates is oriented such that the entry of largest absolute value in its frequency vector is
    positive.

    The result has no gradients. The computation runs on the CPU, whatever the device of the
    generators is.

    Args:
        generators: Generators :math:`L_k`, ``(..., coord_dim, d, d)``.
        tolerance: Largest accepted deviation of the generators from being skew-symmetric, from
            commuting, and from the matrices rebuilt from the planes, relative to their Frobenius
            norms. Default: the square root of the machine epsilon of their dtype.

    Returns:
        The frequencies Ω, ``(..., d // 2, coord_dim)``, and the basis P, ``(..., d, d)``, both
        float64.

    Raises:
        ValueError: If there is no matrix or no channel, if the matrices are not finite, are not
            skew-symmetric or do not commute, or if no common planes are found. The message gives
            the deviation.

    Source:
        Schenck et al. 2025, theorem 3.4. Step 2, with even and odd channels: Ward and Gray 1978.
    """
    require_generators(generators)
    if tolerance is None:
        tolerance = torch.finfo(generators.dtype).eps ** 0.5
    device, exact = generators.device, generators.cpu().double()
    departure = _departure(exact, tolerance)
    *lead, coord_dim, size, _ = generators.shape
    exact = exact.reshape(-1, coord_dim, size, size)
    exact = (exact - exact.mT) / 2
    norms = torch.linalg.matrix_norm(exact, keepdim=True)
    unit = exact / norms.where(norms > 0, 1.0)

    basis = torch.eye(size).to(exact).expand_as(exact[:, 0])
    least = torch.full_like(exact[:, 0, 0, 0], torch.inf)
    draw = torch.Generator().manual_seed(0)
    for _ in range(ATTEMPTS):
        weights = torch.randn(coord_dim, generator=draw, dtype=exact.dtype)
        found = _planes(torch.einsum("k,hkij->hij", weights, unit))
        for _ in range(3):
            residual = _residual(unit, found)
            basis = found.where((residual < least)[:, None, None], basis)
            least = residual.minimum(least)
            found = _separate(unit, found)
        if (least <= max(GOAL, departure)).all():
            break
    if (least > tolerance).any():
        raise ValueError(
            "generators must rotate common planes, got generators L without such planes. If L "
            "is rebuilt from the best planes that were found, an entry differs by "
            f"{least.max():.1e} ‖L‖, and {tolerance:.1e} ‖L‖ is allowed. {ROUNDED}"
        )

    basis = _in_order(basis, _frequencies(exact, basis))
    frequencies = _frequencies(exact, basis).reshape(*lead, size // 2, coord_dim)
    basis = basis.reshape(*lead, size, size)
    return frequencies.to(device, widest(device)), basis.to(device, widest(device))


def require_generators(generators: Tensor) -> None:
    """Raise ``ValueError`` if there is no generator, or if the generators have no channels."""
    shape = tuple(generators.shape)
    if 0 in shape[-3:]:
        raise ValueError(
            f"generators must have at least one coordinate and one channel, got shape {shape}"
        )


def _departure(exact: Tensor, tolerance: float) -> float:
    """Return the largest relative deviation of generators from being skew-symmetric and commuting.

    Raises:
        ValueError: If a matrix is not finite, or if a deviation exceeds ``tolerance``.
    """
    if not exact.isfinite().all():
        found = exact[~exact.isfinite()][0].item()
        raise ValueError(f"generators must be finite, got an entry {found}")
    norms = torch.linalg.matrix_norm(exact)
    unit = exact / norms.where(norms > 0, 1.0)[..., None, None]
    skewness = torch.linalg.matrix_norm(unit + unit.mT)
    if (skewness > tolerance).any():
        raise ValueError(
            "generators must be skew-symmetric, L + Lᵀ = 0, got ‖L + Lᵀ‖ = "
            f"{skewness.max():.1e} ‖L‖, where {tolerance:.1e} ‖L‖ is allowed. {ROUNDED}"
        )
    left, right = unit.unsqueeze(-3), unit.unsqueeze(-4)
    commutators = torch.linalg.matrix_norm(left @ right - right @ left)
    if (commutators > tolerance).any():
        pairs = exact.shape[-3] ** 2
        first, second = divmod(int(commutators.argmax()) % pairs, exact.shape[-3])
        raise ValueError(
            f"generators must commute, got ‖L_{first} L_{second} − L_{second} L_{first}‖ = "
            f"{commutators.max():.1e} ‖L_{first}‖ ‖L_{second}‖, where {tolerance:.1e} "
            f"‖L_{first}‖ ‖L_{second}‖ is allowed. {ROUNDED}"
        )
    return max(skewness.max().item(), commutators.max().item()) if exact.numel() else 0.0


def _planes(matrix: Tensor) -> Tensor:
    """Return an orthogonal basis of planes for one skew-symmetric matrix per head.

    Each plane is spanned by two consecutive columns. If the size is odd, the last column is a
    direction that does not rotate.
    """
    size = matrix.shape[-1]
    tridiagonal, basis = matrix.clone(), torch.eye(size).to(matrix).repeat(len(matrix), 1, 1)
    for j in range(size - 2):
        # the reflection after which column j has one non-zero entry below the diagonal
        mirror = tridiagonal[:, j + 1 :, j].clone()
        mirror[:, 0] += mirror.norm(dim=-1).copysign(mirror[:, 0])
        mirror = torch.nn.functional.normalize(mirror, dim=-1, eps=1e-300)[..., None]
        rows, columns = tridiagonal[:, j + 1 :], tridiagonal[:, :, j + 1 :]
        rows -= 2 * mirror @ (mirror.mT @ rows)
        columns -= 2 * (columns @ mirror) @ mirror.mT
        basis[:, :, j + 1 :] -= 2 * (basis[:, :, j + 1 :] @ mirror) @ mirror.mT
    left, _, right = torch.linalg.svd(tridiagonal[:, ::2, 1::2])
    even, odd = basis[:, :, ::2] @ left, basis[:, :, 1::2] @ right.mT
    pairs = odd.shape[-1]
    # L odd = σ even and L even = −σ odd, so odd is the first of the pair
    planes = torch.stack([odd, even[..., :pairs]], -1).flatten(-2)
    return torch.cat([planes, even[..., pairs:]], -1)


def _frequencies(generators: Tensor, basis: Tensor) -> Tensor:
    """Return the frequencies in the planes of a basis, ``(heads, pairs, coord_dim)``."""
    pairs = basis.shape[-1] // 2
    first, second = basis[:, None, :, : 2 * pairs : 2], basis[:, None, :, 1 : 2 * pairs : 2]
    forth, back = (second * (generators @ first)).sum(-2), (first * (generators @ second)).sum(-2)
    return ((forth - back) / 2).mT


def _residual(generators: Tensor, basis: Tensor) -> Tensor:
    """Return the largest absolute entry of L − P planar(ω) Pᵀ for each head, over all generators L.

    P is the basis, and planar(ω) is the matrix that rotates its planes with the frequencies of L.
    """
    planes = planar_skew(_frequencies(generators, basis).mT, basis.shape[-1])
    rebuilt = basis[:, None] @ planes @ basis[:, None].mT
    return (generators - rebuilt).abs().amax((-3, -2, -1))


def _separate(generators: Tensor, basis: Tensor) -> Tensor:
    r"""Return the basis after a Newton step that reduces the entries linking different planes.

    If planes are written as complex numbers, the block of a generator that links plane j to plane i
    is a map :math:`z \mapsto az + b\bar z`. Rotating the basis by a small skew-symmetric matrix,
    whose block is given by numbers x and y in the same way, adds
    :math:`\mathrm{i}(\omega_i - \omega_j)x` to a and :math:`\mathrm{i}(\omega_i + \omega_j)y` to b,
    to first order. The step takes the x and y that minimise the sums of :math:`|a|^2` and
    :math:`|b|^2` over all generators.
    """
    size = basis.shape[-1]
    linked = basis[:, None].mT @ generators @ basis[:, None]
    # exactly skew-symmetric, because division by a small gap enlarges rounding errors
    linked = (linked - linked.mT) / 2
    linked = torch.nn.functional.pad(linked, [0, size % 2] * 2)  # a partner for an odd last channel
    upper, lower = linked[..., ::2, :], linked[..., 1::2, :]
    p, q, r, s = upper[..., ::2], upper[..., 1::2], lower[..., ::2], lower[..., 1::2]
    omega = torch.diagonal(r - q, dim1=-2, dim2=-1) / 2
    here, there = omega[..., :, None], omega[..., None, :]

    def solve(link: Tensor, gap: Tensor) -> Tensor:
        square = gap.square().sum(1)
        return 1j * (link * gap).sum(1) / square.where(square > SAME**2, torch.inf)

    x = solve(torch.complex(p + s, r - q) / 2, here - there)
    y = solve(torch.complex(p - s, r + q) / 2, here + there)
    turn = torch.zeros_like(linked[:, 0])
    turn[:, ::2, ::2], turn[:, ::2, 1::2] = (x + y).real, (y - x).imag
    turn[:, 1::2, ::2], turn[:, 1::2, 1::2] = (x + y).imag, (x - y).real
    return basis @ cayley(-turn[:, :size, :size] / 2)


def _in_order(basis: Tensor, frequencies: Tensor) -> Tensor:
    """Return the basis with sorted and oriented planes.

    The planes are sorted by the norm of their frequencies, largest first. Each plane that
    rotates is oriented such that the entry of largest absolute value in its frequency vector is
    positive.
    """
    pairs = frequencies.shape[-2]
    planes = basis[..., : 2 * pairs].unflatten(-1, (pairs, 2))
    largest = frequencies.take_along_dim(frequencies.abs().argmax(-1, keepdim=True), -1)
    planes = planes.flip(-1).where(largest[:, None] < 0, planes)
    order = frequencies.norm(dim=-1).argsort(descending=True, stable=True)
    planes = planes.take_along_dim(order[:, None, :, None], 2)
    return torch.cat([planes.flatten(-2), basis[..., 2 * pairs :]], -1)
