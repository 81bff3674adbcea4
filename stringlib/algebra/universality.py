r"""From generators to planes: every STRING as :math:`P\,\mathrm{RoPE}(\Omega r)\,P^\top`.

Commuting skew-symmetric matrices turn common planes. These are found in real arithmetic, without
deciding which planes move:

1. A random combination of the generators tells all planes apart that any of them tells apart.
2. Reflections make it tridiagonal. Then it only links even channels with odd ones, and the singular
   vectors of this link are the planes, orthonormal also where frequencies repeat or vanish.
3. Planes that the combination hardly tells apart come out a little mixed. Newton steps with all
   generators at once separate them. Here, and only here, is a threshold: planes whose frequencies
   differ by less than ``SAME`` in every generator are left as they are.

What comes out is held against the generators: a further combination is drawn until nothing but
rounding is left of the difference, and planes that do not fit are refused.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stringlib.algebra.skew import cayley, planar_skew
from stringlib.precision import widest
from stringlib.spec import Floats, Positive, checked

ATTEMPTS = 32  # random combinations; the first is good unless two planes coincide in it
GOAL = 1e-15  # a residual that is not worth another attempt, relative to the generators
SAME = 1e-15  # planes with frequencies nearer than this, relative to the generators, stay mixed


@torch.no_grad()
@checked
def universal_form(
    generators: Floats[Tensor, "... coord_dim d d"], tolerance: Positive | None = None
) -> tuple[Tensor, Tensor]:
    r"""Find frequencies and basis of commuting skew-symmetric matrices, :eq:`eq-universal-planes`.

    ``STRING(*universal_form(generators))`` rotates by :math:`\exp(\sum_k r_k L_k)`. There are
    always :math:`\lfloor d/2 \rfloor` planes, so that heads fit together and no threshold decides
    which of them move: a plane that stands still has frequency 0. The fastest come first, each with
    the orientation that makes its largest frequency positive. Gradients do not pass. It is computed
    on the CPU, wherever the generators are.

    Args:
        generators: :math:`L_k`, ``(..., coord_dim, d, d)``.
        tolerance: How far they may be from skew-symmetric, from commuting and from what the planes
            found make of them, relative to their Frobenius norms; if omitted the square root of
            their dtype's precision.

    Returns:
        Ω, ``(..., d // 2, coord_dim)``, and P, ``(..., d, d)``, both float64.

    Raises:
        ValueError: If the matrices are not finite, not skew-symmetric or do not commute, or no
            common planes are found; the message says by how much.

    Source:
        Schenck et al. 2025, theorem 3.4; Ward and Gray 1978 for the link of even and odd channels.
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
            "generators must turn common planes: what those found leave of one is "
            f"{least.max():.1e} of its norm, more than {tolerance:.1e}"
        )

    basis = _in_order(basis, _frequencies(exact, basis))
    frequencies = _frequencies(exact, basis).reshape(*lead, size // 2, coord_dim)
    basis = basis.reshape(*lead, size, size)
    return frequencies.to(device, widest(device)), basis.to(device, widest(device))


def require_generators(generators: Tensor) -> None:
    """Raise ``ValueError`` if there is no generator, or none of its channels."""
    shape = tuple(generators.shape)
    if 0 in shape[-3:]:
        raise ValueError(f"generators must have a coordinate and a channel, got shape {shape}")


def _departure(exact: Tensor, tolerance: float) -> float:
    """Return how far the matrices are from commuting and skew-symmetric, or refuse them."""
    if not exact.isfinite().all():
        raise ValueError("generators must be finite, got inf or nan")
    norms = torch.linalg.matrix_norm(exact)
    unit = exact / norms.where(norms > 0, 1.0)[..., None, None]
    skewness = torch.linalg.matrix_norm(unit + unit.mT)
    if (skewness > tolerance).any():
        raise ValueError(
            "generators must be skew-symmetric, L + Lᵀ = 0, got a norm of it that is "
            f"{skewness.max():.1e} of that of L, more than {tolerance:.1e}"
        )
    left, right = unit.unsqueeze(-3), unit.unsqueeze(-4)
    commutators = torch.linalg.matrix_norm(left @ right - right @ left)
    if (commutators > tolerance).any():
        pairs = exact.shape[-3] ** 2
        first, second = divmod(int(commutators.argmax()) % pairs, exact.shape[-3])
        raise ValueError(
            f"generators must commute: the norm of L_{first} L_{second} − L_{second} L_{first} is "
            f"{commutators.max():.1e} of the product of theirs, more than {tolerance:.1e}"
        )
    return max(skewness.max().item(), commutators.max().item()) if exact.numel() else 0.0


def _planes(matrix: Tensor) -> Tensor:
    """Return an orthogonal basis, planes first, for one skew-symmetric matrix a head."""
    size = matrix.shape[-1]
    tridiagonal, basis = matrix.clone(), torch.eye(size).to(matrix).repeat(len(matrix), 1, 1)
    for j in range(size - 2):
        # the mirror that leaves of column j, below the diagonal, only its first entry
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
    # L odd = σ even, L even = −σ odd: odd is the first of the pair
    planes = torch.stack([odd, even[..., :pairs]], -1).flatten(-2)
    return torch.cat([planes, even[..., pairs:]], -1)


def _frequencies(generators: Tensor, basis: Tensor) -> Tensor:
    """Return the frequencies ``(heads, pairs, coord_dim)`` in the planes of a basis."""
    pairs = basis.shape[-1] // 2
    first, second = basis[:, None, :, : 2 * pairs : 2], basis[:, None, :, 1 : 2 * pairs : 2]
    forth, back = (second * (generators @ first)).sum(-2), (first * (generators @ second)).sum(-2)
    return ((forth - back) / 2).mT


def _residual(generators: Tensor, basis: Tensor) -> Tensor:
    """Return for each head the largest entry of any L − P planar(ω) Pᵀ."""
    planes = planar_skew(_frequencies(generators, basis).mT, basis.shape[-1])
    rebuilt = basis[:, None] @ planes @ basis[:, None].mT
    return (generators - rebuilt).abs().amax((-3, -2, -1))


def _separate(generators: Tensor, basis: Tensor) -> Tensor:
    r"""Turn a basis by the Newton step that removes what links different planes.

    With planes as complex numbers, a generator links plane j to plane i by
    :math:`z \mapsto az + b\bar z`. Turning by a small skew matrix with parts x and y adds
    :math:`\mathrm{i}(\omega_i - \omega_j)x` to a and :math:`\mathrm{i}(\omega_i + \omega_j)y`
    to b; x and y make both smallest, in the sense of least squares over all generators.
    """
    size = basis.shape[-1]
    linked = basis[:, None].mT @ generators @ basis[:, None]
    linked = (linked - linked.mT) / 2  # exactly skew: a small gap enlarges rounding errors
    linked = torch.nn.functional.pad(linked, [0, size % 2] * 2)  # a partner for the odd channel
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
    """Return the basis with the fastest planes first, each with its largest frequency positive."""
    pairs = frequencies.shape[-2]
    planes = basis[..., : 2 * pairs].unflatten(-1, (pairs, 2))
    largest = frequencies.take_along_dim(frequencies.abs().argmax(-1, keepdim=True), -1)
    planes = planes.flip(-1).where(largest[:, None] < 0, planes)
    order = frequencies.norm(dim=-1).argsort(descending=True, stable=True)
    planes = planes.take_along_dim(order[:, None, :, None], 2)
    return torch.cat([planes.flatten(-2), basis[..., 2 * pairs :]], -1)
