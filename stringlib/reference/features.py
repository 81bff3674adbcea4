"""Random features as they are printed: one feature, one token, one block at a time.

``matrix`` holds the random vectors, one a row. None of these is stabilised.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor


def positive_features(x: Tensor, matrix: Tensor) -> Tensor:
    r"""Return FAVOR+'s features :math:`e^{\omega_i^\top x - \|x\|^2/2}/\sqrt m`.

    Equation :eq:`eq-favor-features`.

    Args:
        x: ``(..., d)``.
        matrix: The rows :math:`\omega_i`, ``(m, d)``.

    Returns:
        float64, ``(..., m)``.

    Source:
        Choromanski et al. 2021, lemma 1.
    """
    x, matrix = x.double(), matrix.double()
    front = torch.exp(-(x * x).sum(-1) / 2) / math.sqrt(len(matrix))
    return torch.stack([front * torch.exp((x * omega).sum(-1)) for omega in matrix], -1)


def hyperbolic_features(x: Tensor, matrix: Tensor) -> Tensor:
    r"""Return the features of both signs: all :math:`\omega_i`, then all :math:`-\omega_i`.

    Equation :eq:`eq-favor-hyperbolic`.

    Args:
        x: ``(..., d)``.
        matrix: The rows :math:`\omega_i`, ``(m, d)``.

    Returns:
        float64, ``(..., 2m)``.

    Source:
        Choromanski et al. 2021, lemma 1.
    """
    return positive_features(x, torch.cat([matrix, -matrix]))


def optimal_features(x: Tensor, matrix: Tensor, alpha: Tensor) -> Tensor:
    r"""Return the positive features of least variance, with an :math:`\alpha` for each channel l.

    .. math:: \tfrac{1}{\sqrt m} \prod_l (1 - 4\alpha_l)^{1/4}\,
        e^{\alpha_l\omega_{il}^2 + \sqrt{1 - 4\alpha_l}\,\omega_{il}x_l - x_l^2/2} ,

    equation :eq:`eq-favor-optimal`.

    Args:
        x: ``(..., d)``.
        matrix: The rows :math:`\omega_i`, ``(m, d)``.
        alpha: ``(d,)``, below 1/4; from 1/8 on the variance is infinite.

    Returns:
        float64, ``(..., m)``.

    Source:
        Likhosherstov et al. 2022, times :math:`e^{\|x\|^2/2}`: theirs are for the Gaussian kernel.
    """
    x, matrix, alpha = x.double(), matrix.double(), alpha.double()
    features = []
    for omega in matrix:
        log = alpha * omega**2 + (1 - 4 * alpha).sqrt() * omega * x - x**2 / 2
        features.append(((1 - 4 * alpha) ** 0.25).prod() * log.sum(-1).exp())
    return torch.stack(features, -1) / math.sqrt(len(matrix))


def trigonometric_features(x: Tensor, matrix: Tensor) -> Tensor:
    r"""Return the features of sines and cosines, whose products may be negative.

    Equation :eq:`eq-favor-trigonometric`.

    Args:
        x: ``(..., d)``.
        matrix: The rows :math:`\omega_i`, ``(m, d)``.

    Returns:
        float64, ``(..., 2m)``, all cosines first.

    Source:
        Choromanski et al. 2021, section 2.3.
    """
    x, matrix = x.double(), matrix.double()
    front = torch.exp((x * x).sum(-1) / 2) / math.sqrt(len(matrix))
    cosines = [front * torch.cos((x * omega).sum(-1)) for omega in matrix]
    sines = [front * torch.sin((x * omega).sum(-1)) for omega in matrix]
    return torch.stack(cosines + sines, -1)


def circulant_project(x: Tensor, column: Tensor, signs: Tensor) -> Tensor:
    r"""Return :math:`F^{-1}(F(r) \circ F(s \odot x))`, :eq:`eq-circulant-product`.

    Args:
        x: One token, ``(d,)``.
        column: r, the first column of every block, ``(blocks, d)``.
        signs: s, ``(blocks, d)``.

    Returns:
        The products of all blocks, one after the other; float64, ``(blocks * d,)``.
    """
    parts = []
    for r, s in zip(column.double(), signs.double(), strict=True):
        spectrum = torch.fft.fft(r) * torch.fft.fft(s * x.double())
        parts.append(torch.fft.ifft(spectrum).real)
    return torch.cat(parts)


def circulant_projection_matrix(column: Tensor, signs: Tensor) -> Tensor:
    r"""Return circ(r) diag(s) of all blocks, entry by entry, :eq:`eq-circulant-projection`.

    Args:
        column: r, ``(blocks, d)``.
        signs: s, ``(blocks, d)``.

    Returns:
        Entry (i, n) of a block is :math:`r_{(i-n) \bmod d}\,s_n`: float64, ``(blocks * d, d)``.
    """
    blocks, d = column.shape
    matrix = torch.zeros(blocks * d, d, dtype=torch.float64)
    for b in range(blocks):
        for i in range(d):
            for n in range(d):
                matrix[b * d + i, n] = column[b, (i - n) % d] * signs[b, n]
    return matrix


def circulant_favor_features(x: Tensor, column: Tensor, signs: Tensor, num_features: int) -> Tensor:
    r"""Return :math:`e^{-\|x\|^2/2}\,e^{(\tilde\Omega x)_i} / \sqrt m` for the first m entries.

    Args:
        x: One token, ``(d,)``; for :math:`e^{q^\top k/\sqrt d}` scaled by :math:`d^{-1/4}` before.
        column: r, ``(blocks, d)``.
        signs: s, ``(blocks, d)``.
        num_features: m, at most ``blocks * d``.

    Returns:
        float64, ``(num_features,)``.
    """
    exponent = circulant_project(x, column, signs)[:num_features]
    half = x.double().square().sum() / 2
    return torch.exp(exponent - half) / math.sqrt(num_features)


def circulant_features(x: Tensor, r: Tensor, s: Tensor) -> Tensor:
    r"""Return :math:`e^{-\|x\|^2/2} \exp(\mathrm{circ}(r)\,\mathrm{diag}(s)\,x) / \sqrt d`.

    Args:
        x: One query or key, ``(d,)``.
        r: First column of the circulant, ``(d,)``.
        s: Signs, ``(d,)``.

    Returns:
        float64, ``(d,)``: as many features as channels.
    """
    return circulant_favor_features(x, r[None], s[None], len(x))


def circulant_gradient(x: Tensor, grad_output: Tensor, signs: Tensor) -> Tensor:
    r"""Return the gradient of r, summed over tokens, :eq:`eq-circulant-gradient`.

    .. math::
        \frac{\partial\mathcal L}{\partial r} = \sum_t F^{-1}\Big(
        \overline{F(s \odot x_t)} \circ F\big(\partial\mathcal L/\partial y_t\big)\Big)

    Args:
        x: Tokens, ``(n, d)``.
        grad_output: The gradient of the loss by each projected token, ``(n, d)``.
        signs: s of one block, ``(d,)``.

    Returns:
        float64, ``(d,)``.
    """
    total = torch.zeros(x.shape[-1], dtype=torch.float64)
    for token, grad in zip(x.double(), grad_output.double(), strict=True):
        spectrum = torch.fft.fft(signs.double() * token).conj() * torch.fft.fft(grad)
        total = total + torch.fft.ifft(spectrum).real
    return total


def unit_circulant_column(phases: Tensor, size: int) -> Tensor:
    r"""Return r whose Fourier transform has modulus 1, :eq:`eq-unit-circulant`.

    Args:
        phases: :math:`\theta_0, \dots, \theta_{\lfloor d/2 \rfloor}`; only the sign of the cosine
            counts at 0 and, for even d, at d/2.
        size: d.

    Returns:
        float64, ``(d,)``.
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
    r"""Return r whose spectrum is 0 at 0 and :math:`\sqrt{d/(d-1)}` in modulus elsewhere.

    Equation :eq:`eq-simplex-circulant`.

    Args:
        phases: As for :func:`unit_circulant_column`; the first does not count.
        size: d, at least 2.

    Returns:
        float64, ``(size,)``.
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
    r"""Return d vectors of length 1 of which any two have the product :math:`-1/(d-1)`.

    .. math::
        s_i = \sqrt{\tfrac{d}{d-1}}\,e_i - \tfrac{\sqrt d + 1}{(d-1)^{3/2}}\,(1, \dots, 1, 0),
        \qquad s_d = \tfrac{1}{\sqrt{d-1}}\,(1, \dots, 1, 0) .

    Args:
        size: d, at least 2.

    Returns:
        float64, ``(d, d)``, one a row; the last channel is 0.

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
    r"""Return :math:`H D_1 H D_2 H D_3` with H orthonormal, :eq:`eq-hadamard-projection`.

    Args:
        diagonals: ``(3, D)``, D a power of 2.

    Returns:
        float64, ``(D, D)``. Entry (i, n) of :math:`\sqrt D H` is :math:`(-1)^{i \cdot n}`, the
        product of the binary digits of i and n.
    """
    size = diagonals.shape[-1]
    transform = torch.zeros(size, size, dtype=torch.float64)
    for i in range(size):
        for n in range(size):
            transform[i, n] = (-1) ** (i & n).bit_count() / math.sqrt(size)
    first, second, third = (torch.diag(d) for d in diagonals.double())
    return transform @ first @ transform @ second @ transform @ third


def circulant_error(z: Tensor) -> float:
    r"""Return :math:`\frac1d \sum_\delta (e^{A_\delta} - 1)` for a full circulant of Gaussian rows.

    Equation :eq:`eq-torus-circulant-error`: the mean square error of the estimate of
    :math:`e^{x^\top y}`, relative to its square, with z = x + y and the cyclic autocorrelation
    :math:`A_\delta = \sum_n z_n z_{n+\delta}`. With signs, z is what they make of x + y.

    Args:
        z: ``(d,)``.
    """
    values = [float(entry) for entry in z]
    d, total = len(values), 0.0
    for delta in range(d):
        total += math.exp(sum(values[n] * values[(n + delta) % d] for n in range(d))) - 1
    return total / d


def signed_circulant_error(z: Tensor) -> float:
    """Return the mean of :func:`circulant_error` over all signs, 2^d of them.

    Equation :eq:`eq-torus-circulant-error`.

    Args:
        z: ``(d,)``, for small d.
    """
    choices = itertools.product((1.0, -1.0), repeat=len(z))
    errors = [circulant_error(z * torch.tensor(signs, dtype=z.dtype)) for signs in choices]
    return sum(errors) / len(errors)
