r"""The errors of random features in closed form.

Each error is a *relative* mean squared error: that of an estimate of :math:`e^{x^\top y}`, divided
by the square of the true value. It depends on the arguments only through a length: that of
:math:`z = x + y`, or for trigonometric features that of :math:`x - y`. ``square`` is the squared
length, and ``num_features`` the number m of random vectors.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stringlib.spec import Floats, checked


@checked
def trigonometric_mse(square: Floats[Tensor, "..."], num_features: int) -> Tensor:
    r"""Return :math:`\tfrac2m \sinh^2(\|x-y\|^2/2)`, :eq:`eq-favor-mse-trigonometric`.

    Args:
        square: :math:`\|x - y\|^2`.
        num_features: Number m of independent Gaussian vectors, with two features each.

    Source:
        Choromanski et al. 2021, lemma 2, divided by the square of the kernel.
    """
    return 2 * torch.sinh(square / 2).square() / num_features


@checked
def positive_mse(square: Floats[Tensor, "..."], num_features: int) -> Tensor:
    r"""Return :math:`(e^{\|z\|^2} - 1)/m`, :eq:`eq-favor-mse-positive`.

    Args:
        square: :math:`\|z\|^2 = \|x + y\|^2`.
        num_features: Number m of independent Gaussian vectors, with one feature each.

    Source:
        Choromanski et al. 2021, lemma 2, divided by the square of the kernel.
    """
    return torch.expm1(square) / num_features


@checked
def hyperbolic_mse(square: Floats[Tensor, "..."], num_features: int) -> Tensor:
    r"""Return :math:`\tfrac2m \sinh^2(\|z\|^2/2)`, :eq:`eq-favor-mse-hyperbolic`.

    Args:
        square: :math:`\|z\|^2 = \|x + y\|^2`.
        num_features: Number m of independent Gaussian vectors, with two features each.

    Source:
        Choromanski et al. 2021, lemma 2, divided by the square of the kernel.
    """
    return 2 * torch.sinh(square / 2).square() / num_features


@checked
def optimal_mse(
    square: Floats[Tensor, "..."], num_features: int, head_dim: int, alpha: float | Tensor
) -> Tensor:
    r"""Return the error of the features of least variance, :eq:`eq-favor-optimal-mse`.

    The error is :math:`(M e^{\rho\|z\|^2} - 1)/m` with :math:`\rho = 1/(1 - 8\alpha)` and
    :math:`M = ((1+\rho)/2)^d \rho^{-d/2}`. For :math:`\alpha = 0` it is :func:`positive_mse`. If
    each channel has its own :math:`\alpha`, one plus m times the error is the product of the same
    expression for the channels.

    Args:
        square: :math:`\|z\|^2 = \|x + y\|^2`.
        num_features: Number m of independent Gaussian vectors, with one feature each.
        head_dim: Number of channels d.
        alpha: The parameter :math:`\alpha`, below 1/8.
            :func:`~stringlib.attention.favor.optimal_alpha` returns the best value.

    Raises:
        ValueError: If ``alpha`` is 1/8 or more, for which the error is infinite.

    Source:
        Likhosherstov et al. 2022, divided by the square of the kernel.
    """
    alpha = torch.as_tensor(alpha, dtype=square.dtype, device=square.device)
    if not (alpha < 1 / 8).all():
        raise ValueError(
            f"alpha must be below 1/8, got {alpha}. Otherwise the variance is infinite."
        )
    log_price = head_dim * (torch.log1p(-4 * alpha) - torch.log1p(-8 * alpha) / 2)
    return torch.expm1(log_price + square / (1 - 8 * alpha)) / num_features


@checked
def orthogonal_mse(
    square: Floats[Tensor, "..."], num_features: int, head_dim: int, hyperbolic: bool = False
) -> Tensor:
    r"""Return the error of orthogonal rows with :math:`\chi_d` lengths, :eq:`eq-favor-orthogonal`.

    Args:
        square: :math:`\|z\|^2 = \|x + y\|^2`.
        num_features: Number m of rows, in blocks of ``head_dim`` rows that are orthogonal to each
            other. The last block may have fewer rows.
        head_dim: Number of channels d.
        hyperbolic: Whether each row is used with both signs.
    """
    alone = (hyperbolic_mse if hyperbolic else positive_mse)(square, num_features)
    blocks, rest = divmod(num_features, head_dim)
    pairs = blocks * head_dim * (head_dim - 1) + rest * (rest - 1)
    return alone - orthogonal_gain(square, head_dim) * pairs / num_features**2


@checked
def orthogonal_gain(square: Floats[Tensor, "..."], head_dim: int) -> Tensor:
    r"""Return the amount by which the mean product of two orthogonal rows falls below 1.

    This is
    :math:`1 - \mathbb E\,e^{(\omega_1 + \omega_2)^\top z - \|z\|^2} = \mathbb E\,(1 - p_K)`,
    :eq:`eq-favor-orthogonal-pair`, where K has the Poisson distribution with mean :math:`\|z\|^2`,
    and :math:`p_k = \prod_{i<k} (d+i)/(d+2i)`.

    Args:
        square: :math:`\|z\|^2`.
        head_dim: Number of channels d.
    """
    factors = [math.log((head_dim + i) / (head_dim + 2 * i)) for i in range(_terms(square))]
    return _poisson_mean(square, -torch.expm1(_running_sum(factors)))


@checked
def orthogonal_gain_bound(square: Floats[Tensor, "..."], head_dim: int) -> Tensor:
    r"""Return :math:`\tfrac{2}{d+2}(1 - e^{-\|z\|^2/2})^2`, a lower bound of the gain.

    Equation :eq:`eq-favor-orthogonal-bound`.

    Args:
        square: :math:`\|z\|^2`.
        head_dim: Number of channels d.
    """
    return 2 / (head_dim + 2) * torch.expm1(-square / 2).square()


@checked
def sqrt_norm_mean(square: Floats[Tensor, "..."], head_dim: int) -> Tensor:
    r"""Return the mean relative estimate for rows of length :math:`\sqrt d`.

    For :math:`z \ne 0` the mean is less than 1, so such features are biased,
    :eq:`eq-favor-sqrt-norm`.

    Args:
        square: :math:`\|z\|^2`.
        head_dim: Number of channels d.
    """
    half = head_dim / 2
    factors = [math.log(half / (half + i)) for i in range(_terms(square))]
    return _poisson_mean(square / 2, _running_sum(factors).exp())


@checked
def attention_mse(
    q: Floats[Tensor, "... n d"], k: Floats[Tensor, "... keys d"], num_features: int
) -> Tensor:
    r"""Return the mean of :math:`\|\hat A - \bar A\|^2 / \|\bar A\|^2` to first order in 1/m.

    :math:`\bar A` are the weights of softmax attention, and :math:`\hat A` those of positive
    features with independent rows. The relative error of a weight is the relative error
    :math:`\varepsilon_{ij}` of its estimate minus a mean over the keys,
    :eq:`eq-favor-attention-error`. The covariance of :math:`\varepsilon_{ij}` and
    :math:`\varepsilon_{il}` is :math:`(e^{(q_i + k_j)^\top (q_i + k_l)} - 1)/m`,
    :eq:`eq-favor-covariance`.

    Args:
        q: Queries, ``(..., n, d)``, scaled so that the logits of softmax are :math:`q^\top k`.
        k: Keys, ``(..., keys, d)``.
        num_features: Number m of independent rows.

    Returns:
        The errors, ``(...)``.
    """
    kernel = (q @ k.mT).exp()
    weights = kernel / kernel.sum(-1, keepdim=True)
    between = (k @ k.mT).exp()
    tilted = weights * kernel
    mixed = tilted @ between
    spread = kernel.square() * between.diagonal(dim1=-2, dim2=-1).unsqueeze(-2)
    spread = spread - 2 * kernel * mixed + (tilted * mixed).sum(-1, keepdim=True)
    spread = spread * q.square().sum(-1, keepdim=True).exp() / num_features
    squares = weights.square()
    return (squares * spread).sum((-1, -2)) / squares.sum((-1, -2))


def _terms(square: Tensor) -> int:
    """Return how many terms a Poisson mean needs: the rest weighs less than 1e-16."""
    finite = square[square.isfinite()]
    largest = finite.max().item() if finite.numel() else 0.0
    return int(largest + 12 * math.sqrt(largest)) + 40


def _running_sum(logs: list[float]) -> Tensor:
    """Return 0 and the sums of the first 1, 2, … entries."""
    return torch.tensor([0.0, *logs], dtype=torch.float64).cumsum(0)


def _poisson_mean(mean: Tensor, values: Tensor) -> Tensor:
    """Return the mean of ``values[K]``, K from the Poisson law with the given mean."""
    k, values = torch.arange(len(values), device=mean.device), values.to(mean.device)
    wide = mean.double()[..., None]
    log_weights = torch.xlogy(k, wide) - wide - torch.lgamma(k.double() + 1)
    return (log_weights.exp() * values).sum(-1).to(mean.dtype)
