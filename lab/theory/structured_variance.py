r"""Mean and error of random features with structured rows: circulant, orthogonal, or a simplex.

All quantities are *relative*: the estimate of :math:`e^{x^\top y}` is divided by its true value.
They are functions of :math:`z = x + y`, in float64. Unlike for independent rows, they depend not
only on the length :math:`\|z\|^2`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stringlib.algebra.hadamard import hadamard
from stringlib.spec import Floats, checked

QUADRATURE = 20  # nodes: even moments of χ_d to the 78th are exact


@checked
def cyclic_autocorrelation(u: Floats[Tensor, "... d"]) -> Tensor:
    r"""Return :math:`A_\delta = \sum_n u_n u_{n+\delta}`, :eq:`eq-cyclic-autocorrelation`.

    Args:
        u: Vectors, ``(..., d)``. Indices are modulo d.

    Returns:
        The autocorrelations, ``(..., d)``, with :math:`A_0 = \|u\|^2` and
        :math:`A_\delta = A_{d-\delta}`.
    """
    spectrum = torch.fft.rfft(u)
    return torch.fft.irfft(spectrum.abs().square(), n=u.shape[-1])


@checked
def circulant_mse(
    z: Floats[Tensor, "... d"], signs: Floats[Tensor, "... d"], num_features: int
) -> Tensor:
    r"""Return the error of m rows of one circulant block, :eq:`eq-circulant-variance`.

    The error is

    .. math:: \frac1{m^2} \sum_{|\delta| < m} (m - |\delta|)\,(e^{A_\delta} - 1),

    where A is the cyclic autocorrelation of :math:`s \odot z`. The mean of the relative estimate is
    exactly 1.

    Args:
        z: The sums x + y, ``(..., d)``.
        signs: The signs s, broadcastable with ``z``.
        num_features: Number m of rows, at most d.

    Raises:
        ValueError: If m exceeds d, because further blocks have their own signs.
    """
    _require_one_block(num_features, z)
    correlation = cyclic_autocorrelation(signs * z)
    return (_pair_weights(num_features, z) * torch.expm1(correlation)).sum(-1)


@checked
def circulant_mean_mse(z: Floats[Tensor, "... d"], num_features: int) -> Tensor:
    r"""Return the error averaged over all signs, exactly, :eq:`eq-circulant-variance-signs`.

    Steps of length :math:`\delta` split the channels into :math:`\gcd(d, \delta)` cycles. With
    :math:`a_n = z_n z_{n+\delta}`,

    .. math::
        \mathbb E_s\,e^{A_\delta} = \prod_{\text{cycles}}
        \Big(\prod_n \cosh a_n + \prod_n \sinh a_n\Big).

    Args:
        z: The sums x + y, ``(..., d)``.
        num_features: Number m of rows. Rows beyond d are in further, independent blocks.
    """
    d = z.shape[-1]
    means = []
    for delta in range(d):
        cycles = math.gcd(d, delta) if delta else d
        steps = torch.arange(d // cycles)[None] * delta + torch.arange(cycles)[:, None]
        a = z[..., steps % d] * z[..., (steps + delta) % d]
        # the logarithm of each cycle's product of cosh, and that of tanh beside it
        means.append(_log_cosh(a).sum((-2, -1)) + torch.log1p(a.tanh().prod(-1)).sum(-1))
    excess = torch.expm1(torch.stack(means, -1))
    blocks, rest = divmod(num_features, d)
    squares = blocks * d**2 * (_pair_weights(d, z) * excess).sum(-1)
    if rest:
        squares = squares + rest**2 * (_pair_weights(rest, z) * excess).sum(-1)
    return squares / num_features**2


@checked
def circulant_ratio(square: Floats[Tensor, "..."]) -> Tensor:
    r"""Return the error divided by that of independent rows, for large d, :eq:`eq-circulant-ratio`.

    The ratio is :math:`1 + \zeta^2 / 2(e^\zeta - 1)` with :math:`\zeta = \|z\|^2`, for m = d,
    averaged over the signs, if no channel of z dominates. It is at most 1.3238.
    """
    return 1 + square.square() / (2 * torch.expm1(square))


@checked
def circulant_worst_ratio(square: Floats[Tensor, "..."]) -> Tensor:
    r"""Return the largest such ratio over all z, for d a power of 2 or 3, :eq:`eq-circulant-worst`.

    The ratio is :math:`1 + (\cosh\zeta - 1)/(e^\zeta - 1)`, which is below 3/2. For even d it is
    reached if two channels with the distance d/2 are equal and all others are 0.
    """
    return 1 + (square.cosh() - 1) / torch.expm1(square)


@checked
def spectral_mse(z: Floats[Tensor, "... d"], simplex: bool = False) -> Tensor:
    r"""Return the error of unit-modulus or simplex circulants, except for O(d^(-3/2)), for m = d.

    The error, averaged over the signs, is for every z

    .. math::
        \text{signed} - \frac{1}{d}\Big(\zeta^2 - \tfrac12\sum_n z_n^4 + \tfrac12\xi\Big),

    and for a simplex it is less by :math:`\zeta/d`, :eq:`eq-unit-error` and :eq:`eq-simplex-error`.
    The first term is :func:`circulant_mean_mse`.

    Args:
        z: The sums x + y, ``(..., d)``.
        simplex: Whether the rows are those of a simplex.
    """
    d, squares = z.shape[-1], z.square()
    opposite = torch.zeros_like(squares) if d % 2 else squares.roll(d // 2, -1)
    zeta = squares.sum(-1)
    pairs = zeta.square() - (squares * (squares - opposite)).sum(-1) / 2
    return circulant_mean_mse(z, d) - (pairs + (zeta if simplex else 0)) / d


@checked
def simplex_ratio(square: Floats[Tensor, "..."]) -> Tensor:
    r"""Return the error of simplex rows divided by that of independent rows, for large d and m = d.

    The ratio is :math:`1 - (\zeta + \tfrac12\zeta^2)/(e^\zeta - 1)`, :eq:`eq-simplex-ratio`. It is
    valid for every z if rows are dense or from Hadamard matrices, and under the condition of
    :func:`unit_circulant_ratio` if they are circulant.
    """
    return 1 - (square + square.square() / 2) / torch.expm1(square)


@checked
def simplex_mse(square: Floats[Tensor, ""], head_dim: int) -> Tensor:
    r"""Return the relative error of d dense rows of a randomly rotated simplex.

    Two rows of lengths :math:`\rho_1, \rho_2` add up to a vector of square length
    :math:`\rho_1^2 + \rho_2^2 - 2\rho_1\rho_2/(d-1)` and of random direction. The mean over lengths
    is computed by quadrature, and the mean over directions by the series of :math:`{}_0F_1`.

    Args:
        square: The number :math:`\zeta = \|z\|^2`.
        head_dim: Number d of channels, at least 2.

    Source:
        Reid et al. 2023 for the rows.
    """
    d = head_dim
    nodes, weights = _chi_quadrature(d)
    one, other = nodes[:, None], nodes[None, :]
    quarter = (one**2 + other**2 - 2 * one * other / (d - 1)) * square / 4
    term = total = torch.ones_like(quarter)
    for k in range(1, 200):
        term = term * quarter / (k * (d / 2 + k - 1))
        total = total + term
    pair = (torch.outer(weights, weights) * total).sum() * torch.exp(-square)
    return torch.expm1(square) / d + (1 - 1 / d) * (pair - 1)


@checked
def unit_circulant_ratio(square: Floats[Tensor, "..."]) -> Tensor:
    r"""Return the ratio for unit-modulus circulant and for Hadamard rows, :eq:`eq-unit-ratio`.

    The error divided by that of independent rows is, for large d,
    :math:`1 - \zeta^2 / 2(e^\zeta - 1)`, as for orthogonal rows. For Hadamard rows this is valid
    for every z. For a unit-modulus spectrum it is valid if no channel of z dominates, and if only
    one channel of z is not 0. If a few channels dominate, the error is larger, see
    :func:`spectral_mse`.
    """
    return 2 - circulant_ratio(square)


@checked
def unit_circulant_moments(
    z: Floats[Tensor, "d"],
    signs: Floats[Tensor, "d"],
    num_features: int,
    simplex: bool = False,
) -> tuple[Tensor, Tensor]:
    r"""Return mean and mean square of unit-modulus circulant features, :eq:`eq-unit-pair`.

    The means are over the phases and the lengths of the rows, for given signs. They are exact
    except for a quadrature over :math:`\chi_d`. Both are relative to the true value.

    Args:
        z: The sum x + y, ``(d,)``.
        signs: The signs s, ``(d,)``.
        num_features: Number m of rows, at most d.
        simplex: Whether the spectrum is that of a simplex, :eq:`eq-simplex-circulant`.

    Raises:
        ValueError: If m exceeds d, because further blocks have their own signs.
    """
    _require_one_block(num_features, z)
    d = z.shape[-1]
    nodes, weights = _chi_quadrature(d)
    size = torch.fft.rfft(signs * z).abs() / d
    if simplex:
        size[0] = 0
        size = size * math.sqrt(d / (d - 1))
    frequency = 2 * math.pi * torch.arange(len(size), dtype=torch.float64) / d
    real = torch.zeros(len(size), dtype=torch.bool)
    real[[0] if d % 2 else [0, -1]] = True

    def moment(log_factor: Tensor) -> Tensor:
        """Average a product over all frequencies, given its logarithms in the last dimension."""
        outer = weights if log_factor.ndim == 2 else torch.outer(weights, weights)
        return (outer * log_factor.sum(-1).exp()).sum()

    def log_mean(length: Tensor) -> Tensor:
        """Return log E exp of one random wave with the given amplitude."""
        log_bessel = 2 * length + torch.special.i0e(2 * length).log()
        return torch.where(real, _log_cosh(length), log_bessel)

    half = z.square().sum() / 2
    mean = moment(log_mean(nodes[:, None] * size)) * torch.exp(-half)
    pair_weights = _pair_weights(num_features, z)
    square = pair_weights[0] * moment(log_mean(2 * nodes[:, None] * size)) * torch.exp(-2 * half)
    for delta in range(1, d // 2 + 1):
        one, other = nodes[:, None, None], nodes[None, :, None]
        cosine = torch.cos(delta * frequency)
        # |ρ₁ + ρ₂ e^{iδω}|, at least 0 in spite of rounding
        length = (one**2 + other**2 + 2 * one * other * cosine).clamp(min=0).sqrt() * size
        weight = pair_weights[list({delta, d - delta})].sum()
        square = square + weight * moment(log_mean(length)) * torch.exp(-2 * half)
    return mean, square


@checked
def hadamard_moments(
    z: Floats[Tensor, "d"], diagonals: Floats[Tensor, "2 d"], simplex: bool = False
) -> tuple[Tensor, Tensor]:
    r"""Return mean and mean square of Hadamard features, :eq:`eq-hadamard-pair`, for m = d.

    The means are over the signs :math:`D_1` and the lengths of the rows, for given :math:`D_2` and
    :math:`D_3`. They are exact except for a quadrature over :math:`\chi_d`. Both are relative to
    the true value.

    Args:
        z: The sum x + y, ``(d,)``, where d is a power of 2.
        diagonals: The diagonals of :math:`D_2` and :math:`D_3`, ``(2, d)``.
        simplex: Whether the first entry of :math:`D_1` is 0, which gives the rows of a simplex.

    Raises:
        ValueError: If d is not a power of 2.
    """
    d = z.shape[-1]
    nodes, weights = _chi_quadrature(d)
    signs = hadamard(d)  # row i times row k is row i ⊕ k
    y = signs @ (diagonals[0] * (signs @ (diagonals[1] * z))) / d**1.5  # those of the text over √d
    if simplex:
        y[0] = 0
        y = y * math.sqrt(d / (d - 1))
    half = z.square().sum() / 2
    one, other = nodes[:, None, None], nodes[None, :, None]
    equal, opposite = _log_cosh((one + other) * y), _log_cosh((one - other) * y)
    agree = (1 + signs[1:]) / 2
    pairs = (equal @ agree.mT + opposite @ (1 - agree).mT).exp().sum(-1)
    mean = weights @ _log_cosh(nodes[:, None] * y).sum(-1).exp()
    same = weights @ _log_cosh(2 * nodes[:, None] * y).sum(-1).exp()
    square = (same + (torch.outer(weights, weights) * pairs).sum()) / d
    return mean * torch.exp(-half), square * torch.exp(-2 * half)


@checked
def structured_bias_bounds(square: Floats[Tensor, "..."], head_dim: int) -> tuple[Tensor, Tensor]:
    r"""Return a lower and an upper bound of the relative bias, :eq:`eq-structured-bias`.

    For unit-modulus circulant rows and for Hadamard rows, for every direction of z,

    .. math::
        e^{-\frac{(d+2)\,\zeta^2}{4d^2}} - 1 \;\le\; \frac{\mathbb E\,\hat\kappa}{\kappa} - 1
        \;\le\; e^{-\zeta/2} \Big(1 - \frac \zeta d\Big)^{-d/2} - 1 .

    Both bounds are about :math:`\zeta^2/4d` in absolute value.

    Args:
        square: The number :math:`\zeta = \|z\|^2`. The upper bound is infinite for
            :math:`\zeta \ge d`.
        head_dim: Number d of channels; for Hadamard rows the next power of 2.
    """
    d = head_dim
    low = torch.expm1(-(d + 2) * square.square() / (4 * d**2))
    high = torch.expm1(-square / 2 - d / 2 * torch.log1p(-(square / d).clamp(max=1)))
    return low, high


@checked
def unit_circulant_bias(z: Floats[Tensor, "... d"]) -> Tensor:
    r"""Return the bias to first order in 1/d, :eq:`eq-unit-bias`.

    The bias is :math:`\frac{1}{8d} \sum_n z_n^2\,(z_n^2 - z_{n+d/2}^2)`, without the second square
    for odd d.

    Args:
        z: The sums x + y, ``(..., d)``.
    """
    d, square = z.shape[-1], z.square()
    opposite = torch.zeros_like(square) if d % 2 else square.roll(d // 2, -1)
    return (square * (square - opposite)).sum(-1) / (8 * d)


def _log_cosh(x: Tensor) -> Tensor:
    return x.abs() + torch.log1p(torch.exp(-2 * x.abs())) - math.log(2)


def _require_one_block(num_features: int, z: Tensor) -> None:
    if num_features > z.shape[-1]:
        raise ValueError(
            f"num_features must be at most the {z.shape[-1]} rows of one block, got {num_features}"
        )


def _pair_weights(num_features: int, z: Tensor) -> Tensor:
    """Return the share of all pairs of m rows that are δ rows apart modulo d: ``(d,)``."""
    d, m = z.shape[-1], num_features
    delta = torch.arange(d, dtype=torch.float64)
    pairs = (m - delta).clamp(min=0) + (m - (d - delta)).clamp(min=0)  # either way round
    return pairs / m**2


def _chi_quadrature(d: int) -> tuple[Tensor, Tensor]:
    """Return nodes and weights of the mean over χ_d: Gauss's, for the Gamma law of χ²/2."""
    k = torch.arange(QUADRATURE, dtype=torch.float64)
    shape = d / 2
    off = (k[1:] * (k[1:] + shape - 1)).sqrt()
    nodes, vectors = torch.linalg.eigh(torch.diag(2 * k + shape) + off.diag(1) + off.diag(-1))
    return (2 * nodes).sqrt(), vectors[0].square()
