"""Reference implementations of random features, and of structured projections.

The features are not stabilised, so that those of large inputs overflow or underflow.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor


def positive_features(x: Tensor, matrix: Tensor) -> Tensor:
    r"""Return the positive features of FAVOR+ for given random vectors.

    Feature i is :math:`e^{\omega_i^\top x - \|x\|^2/2}/\sqrt m`, equation :eq:`eq-favor-features`.

    Args:
        x: Scaled queries or keys, ``(..., d)``.
        matrix: The random vectors :math:`\omega_i`, one per row, ``(m, d)``.

    Returns:
        The features, float64, ``(..., m)``.

    Source:
        Choromanski et al. 2021, lemma 1.
    """
    x, matrix = x.double(), matrix.double()
    front = torch.exp(-(x * x).sum(-1) / 2) / math.sqrt(len(matrix))
    return torch.stack([front * torch.exp((x * omega).sum(-1)) for omega in matrix], -1)


def hyperbolic_features(x: Tensor, matrix: Tensor) -> Tensor:
    r"""Return the FAVOR+ features of given random vectors and of their negatives.

    These features are called hyperbolic, equation :eq:`eq-favor-hyperbolic`.

    Args:
        x: Scaled queries or keys, ``(..., d)``.
        matrix: The random vectors :math:`\omega_i`, one per row, ``(m, d)``.

    Returns:
        The features of all :math:`\omega_i`, then those of all :math:`-\omega_i`, float64,
        ``(..., 2m)``.

    Source:
        Choromanski et al. 2021, lemma 1.
    """
    return positive_features(x, torch.cat([matrix, -matrix]))


def optimal_features(x: Tensor, matrix: Tensor, alpha: Tensor) -> Tensor:
    r"""Return positive features with one parameter per channel that can reduce the variance.

    Let :math:`\alpha_l` be the parameter of channel l. Then feature i is

    .. math:: \tfrac{1}{\sqrt m} \prod_l (1 - 4\alpha_l)^{1/4}\,
        e^{\alpha_l\omega_{il}^2 + \sqrt{1 - 4\alpha_l}\,\omega_{il}x_l - x_l^2/2} ,

    equation :eq:`eq-favor-optimal`. If all parameters are 0, these are the features of FAVOR+.
    For all parameters below 1/4, the inner product of the features of q and k estimates
    :math:`e^{q^\top k}`. The parameters with the smallest variance are at most 0 and depend on the
    queries and keys.

    Args:
        x: Scaled queries or keys, ``(..., d)``.
        matrix: The random vectors :math:`\omega_i`, one per row, ``(m, d)``.
        alpha: Parameter :math:`\alpha_l < 1/4` of each channel, ``(d,)``. If any
            :math:`\alpha_l` is at least 1/8, the variance of the estimate is infinite.

    Returns:
        The features, float64, ``(..., m)``.

    Source:
        Likhosherstov et al. 2022. Their features estimate the Gaussian kernel. The features here
        are multiplied by :math:`e^{\|x\|^2/2}`, and so estimate the exponential kernel.
    """
    x, matrix, alpha = x.double(), matrix.double(), alpha.double()
    features = []
    for omega in matrix:
        log = alpha * omega**2 + (1 - 4 * alpha).sqrt() * omega * x - x**2 / 2
        features.append(((1 - 4 * alpha) ** 0.25).prod() * log.sum(-1).exp())
    return torch.stack(features, -1) / math.sqrt(len(matrix))


def trigonometric_features(x: Tensor, matrix: Tensor) -> Tensor:
    r"""Return the trigonometric features for given random vectors.

    The features are cosines and sines of :math:`\omega_i^\top x`, multiplied by
    :math:`e^{\|x\|^2/2}/\sqrt m`, equation :eq:`eq-favor-trigonometric`. The inner product of the
    features of q and k estimates :math:`e^{q^\top k}`. Unlike with positive features, an estimate
    may be negative.

    Args:
        x: Scaled queries or keys, ``(..., d)``.
        matrix: The random vectors :math:`\omega_i`, one per row, ``(m, d)``.

    Returns:
        All cosines, then all sines, float64, ``(..., 2m)``.

    Source:
        Choromanski et al. 2021, section 2.3.
    """
    x, matrix = x.double(), matrix.double()
    front = torch.exp((x * x).sum(-1) / 2) / math.sqrt(len(matrix))
    cosines = [front * torch.cos((x * omega).sum(-1)) for omega in matrix]
    sines = [front * torch.sin((x * omega).sum(-1)) for omega in matrix]
    return torch.stack(cosines + sines, -1)


def circulant_project(x: Tensor, column: Tensor, signs: Tensor) -> Tensor:
    r"""Multiply a token by circulant blocks with signs, with three FFTs per block.

    Let r be the first column of the circulant matrix of a block, and s the signs of the block. The
    product of this block is :math:`F^{-1}(F(r) \circ F(s \odot x))`, where F is the discrete
    Fourier transform, :eq:`eq-circulant-product`.

    Args:
        x: One token, ``(d,)``.
        column: First column r of the circulant matrix of each block, ``(blocks, d)``.
        signs: Signs s by which each block multiplies the channels before it applies its circulant
            matrix, ``(blocks, d)``.

    Returns:
        The products of all blocks, one after the other, float64, ``(blocks * d,)``.
    """
    parts = []
    for r, s in zip(column.double(), signs.double(), strict=True):
        spectrum = torch.fft.fft(r) * torch.fft.fft(s * x.double())
        parts.append(torch.fft.ifft(spectrum).real)
    return torch.cat(parts)


def circulant_projection_matrix(column: Tensor, signs: Tensor) -> Tensor:
    r"""Return the matrix of a projection by circulant blocks with signs.

    A block is the circulant matrix with the first column r, times the diagonal matrix of the signs
    s, equation :eq:`eq-circulant-projection`. Entry (i, n) of a block is
    :math:`r_{(i-n) \bmod d}\,s_n`.

    Args:
        column: First column r of the circulant matrix of each block, ``(blocks, d)``.
        signs: Signs s of the columns of each block, ``(blocks, d)``.

    Returns:
        The blocks, one below the other, float64, ``(blocks * d, d)``.
    """
    blocks, d = column.shape
    matrix = torch.zeros(blocks * d, d, dtype=torch.float64)
    for b in range(blocks):
        for i in range(d):
            for n in range(d):
                matrix[b * d + i, n] = column[b, (i - n) % d] * signs[b, n]
    return matrix


def circulant_favor_features(x: Tensor, column: Tensor, signs: Tensor, num_features: int) -> Tensor:
    r"""Return the FAVOR+ features of one query or key with a circulant projection.

    The m features are :math:`e^{(\tilde\Omega x)_i - \|x\|^2/2} / \sqrt m`. Here
    :math:`\tilde\Omega` consists of the first m rows of the matrix that
    :func:`circulant_projection_matrix` returns.

    Args:
        x: One query or key, ``(d,)``. To estimate :math:`e^{q^\top k/\sqrt d}`, first multiply
            queries and keys by :math:`d^{-1/4}`.
        column: First column of the circulant matrix of each block, ``(blocks, d)``.
        signs: Signs of the columns of each block, ``(blocks, d)``.
        num_features: Number of features m, at most ``blocks * d``.

    Returns:
        The features, float64, ``(num_features,)``.
    """
    exponent = circulant_project(x, column, signs)[:num_features]
    half = x.double().square().sum() / 2
    return torch.exp(exponent - half) / math.sqrt(num_features)


def circulant_features(x: Tensor, r: Tensor, s: Tensor) -> Tensor:
    r"""Return the FAVOR+ features of one query or key with a single circulant block.

    The d features are
    :math:`e^{-\|x\|^2/2} \exp(\mathrm{circ}(r)\,\mathrm{diag}(s)\,x) / \sqrt d`, where
    :math:`\mathrm{circ}(r)` is the circulant matrix with the first column r.

    Args:
        x: One query or key, ``(d,)``.
        r: First column of the circulant matrix, ``(d,)``.
        s: Signs of the columns of the circulant matrix, ``(d,)``.

    Returns:
        The features, float64, ``(d,)``.
    """
    return circulant_favor_features(x, r[None], s[None], len(x))


def circulant_gradient(x: Tensor, grad_output: Tensor, signs: Tensor) -> Tensor:
    r"""Return the gradient of the loss with respect to the first column of a circulant block.

    Let r be the first column of the block, and s its signs. Let
    :math:`y_t = \mathrm{circ}(r)(s \odot x_t)` be the projection of token :math:`x_t` by the block.
    Let F be the discrete Fourier transform. Then the gradient is a sum over the tokens, equation
    :eq:`eq-circulant-gradient`:

    .. math::
        \frac{\partial\mathcal L}{\partial r} = \sum_t F^{-1}\Big(
        \overline{F(s \odot x_t)} \circ F\big(\partial\mathcal L/\partial y_t\big)\Big)

    Args:
        x: Tokens, ``(n, d)``.
        grad_output: Gradient of the loss with respect to each projected token :math:`y_t`,
            ``(n, d)``.
        signs: Signs s of the block, ``(d,)``.

    Returns:
        The gradient with respect to r, float64, ``(d,)``.
    """
    total = torch.zeros(x.shape[-1], dtype=torch.float64)
    for token, grad in zip(x.double(), grad_output.double(), strict=True):
        spectrum = torch.fft.fft(signs.double() * token).conj() * torch.fft.fft(grad)
        total = total + torch.fft.ifft(spectrum).real
    return total


def unit_circulant_column(phases: Tensor, size: int) -> Tensor:
    r"""Return a column whose Fourier coefficients all have modulus 1, :eq:`eq-unit-circulant`.

    The circulant matrix with this first column is orthogonal.

    Args:
        phases: Phases :math:`\theta_0, \dots, \theta_{\lfloor d/2 \rfloor}` of the Fourier
            coefficients, in radians. The coefficients 0 and, for even d, d/2 are real, so only
            the sign of the cosine of their phase is used.
        size: Length d of the column.

    Returns:
        The column r, float64, ``(d,)``.
    """
    total = torch.zeros(size, dtype=torch.float64)
    n = torch.arange(size, dtype=torch.float64)
    for j in range(size // 2 + 1):
        phase = phases[j].double()
        if j == 0 or 2 * j == size:
            total = total + torch.cos(phase).sign() * torch.cos(2 * math.pi * j * n / size) / size
        else:
            total = total + 2 * torch.cos(2 * math.pi * j * n / size + phase) / size
    return total


def simplex_circulant_column(phases: Tensor, size: int) -> Tensor:
    r"""Return a column whose circulant matrix has the vertices of a regular simplex as its rows.

    Fourier coefficient 0 of the column is 0. All other coefficients have modulus
    :math:`\sqrt{d/(d-1)}`, equation :eq:`eq-simplex-circulant`.

    Args:
        phases: Phases :math:`\theta_0, \dots, \theta_{\lfloor d/2 \rfloor}` of the Fourier
            coefficients, in radians. The first phase is not used. For even d, coefficient d/2 is
            real, so only the sign of the cosine of its phase is used.
        size: Length d of the column, at least 2.

    Returns:
        The column r, float64, ``(d,)``.
    """
    total = torch.zeros(size, dtype=torch.float64)
    n = torch.arange(size, dtype=torch.float64)
    for j in range(1, size):
        phase = phases[min(j, size - j)].double()
        if 2 * j == size:
            wave = torch.cos(phase).sign() * torch.cos(math.pi * n)
        else:
            wave = torch.cos(2 * math.pi * j * n / size + (phase if 2 * j < size else -phase))
        total = total + wave / math.sqrt(size * (size - 1))
    return total


def simplex_vertices(size: int) -> Tensor:
    r"""Return the vertices of a regular simplex, which are unit vectors with equal inner products.

    The inner product of any two of the d vertices is :math:`-1/(d-1)`. Let :math:`e_i` be the i-th
    unit vector. The vertices are

    .. math::
        s_i = \sqrt{\tfrac{d}{d-1}}\,e_i - \tfrac{\sqrt d + 1}{(d-1)^{3/2}}\,(1, \dots, 1, 0),
        \qquad s_d = \tfrac{1}{\sqrt{d-1}}\,(1, \dots, 1, 0) .

    Args:
        size: Number of vertices d, at least 2, which is also their number of channels.

    Returns:
        One vertex per row, float64, ``(d, d)``. The last channel of each vertex is 0.

    Source:
        Reid et al. 2023.
    """
    ones = torch.ones(size, dtype=torch.float64)
    ones[-1] = 0
    rows = []
    for i in range(size - 1):
        unit = torch.zeros(size, dtype=torch.float64)
        unit[i] = math.sqrt(size / (size - 1))
        rows.append(unit - (math.sqrt(size) + 1) / (size - 1) ** 1.5 * ones)
    return torch.stack([*rows, ones / math.sqrt(size - 1)])


def hadamard_projection_matrix(diagonals: Tensor) -> Tensor:
    r"""Return a projection that is a product of Hadamard matrices and diagonal matrices.

    The projection is :math:`H D_1 H D_2 H D_3`, equation :eq:`eq-hadamard-projection`. H is the
    orthonormal Hadamard matrix. Entry (i, n) of :math:`\sqrt D H` is :math:`(-1)^{i \cdot n}`,
    where :math:`i \cdot n` is the inner product of the binary digits of i and n.

    Args:
        diagonals: The diagonals of :math:`D_1, D_2, D_3`, ``(3, D)`` with D a power of 2.

    Returns:
        The projection, float64, ``(D, D)``.
    """
    size = diagonals.shape[-1]
    transform = torch.zeros(size, size, dtype=torch.float64)
    for i in range(size):
        for n in range(size):
            transform[i, n] = (-1) ** (i & n).bit_count() / math.sqrt(size)
    first, second, third = (torch.diag(d) for d in diagonals.double())
    return transform @ first @ transform @ second @ transform @ third


def circulant_error(z: Tensor) -> float:
    r"""Return the relative mean square error of a FAVOR+ estimate with a Gaussian circulant matrix.

    FAVOR+ features of x and y estimate :math:`e^{x^\top y}`. The projection is a d × d circulant
    matrix with a Gaussian first column. Let z = x + y. The mean square error, divided by
    :math:`e^{2 x^\top y}`, is :math:`\frac1d \sum_\delta (e^{A_\delta} - 1)` with the cyclic
    autocorrelation :math:`A_\delta = \sum_n z_n z_{n+\delta}`, equation
    :eq:`eq-torus-circulant-error`.

    Args:
        z: The sum x + y, ``(d,)``. If the projection has signs s, pass :math:`s \odot (x + y)`
            instead.
    """
    values = [float(entry) for entry in z]
    d, total = len(values), 0.0
    for delta in range(d):
        total += math.exp(sum(values[n] * values[(n + delta) % d] for n in range(d))) - 1
    return total / d


def signed_circulant_error(z: Tensor) -> float:
    r"""Return the mean of :func:`circulant_error` over all choices of signs of the projection.

    See equation :eq:`eq-torus-circulant-error`.

    Args:
        z: The sum x + y of the two vectors whose exponential :math:`e^{x^\top y}` is estimated,
            ``(d,)``. There are 2^d choices of signs, so d has to be small.
    """
    choices = itertools.product((1.0, -1.0), repeat=len(z))
    errors = [circulant_error(z * torch.tensor(signs, dtype=z.dtype)) for signs in choices]
    return sum(errors) / len(errors)
