r"""Feature map of FAVOR+: positive random features that estimate the exponential of softmax.

``FavorFeatures._features`` computes the whole map. The product with the random rows is a matrix
product (:mod:`stringlib.attention.dense_projections`) or a fast transform
(:mod:`stringlib.attention.projections`).
"""

from __future__ import annotations

import math
from typing import overload

import torch
from torch import Tensor

from stringlib.attention.dense_projections import drawn_dtype
from stringlib.attention.features import FeatureMap
from stringlib.attention.projections import PROJECTIONS
from stringlib.inputs import require_heads, require_name
from stringlib.kernels.features import half_square
from stringlib.precision import without_autocast
from stringlib.spec import Floats, checked, require


class FavorFeatures(FeatureMap):
    r"""Positive random features φ with :math:`\mathbb E\,\phi(x)^\top\phi(y) = e^{x^\top y}`.

    With the rows :math:`\omega_i` of a random m × d matrix W, the features are

    .. math:: \phi(x)_i = \tfrac{1}{\sqrt m}\,e^{\omega_i^\top x - \|x\|^2/2},

    equations :eq:`eq-favor-features` and :eq:`eq-favor-unbiased`. Hyperbolic features use each row
    with both signs, :eq:`eq-favor-hyperbolic`. To estimate :math:`e^{q^\top k/\sqrt d}`, as in
    softmax, multiply q and k by :math:`d^{-1/4}` first. If the mean of :math:`\|x + y\|^2` is given
    as ``mean_square``, the features are those of least variance, :eq:`eq-favor-optimal`:

    .. math:: \tfrac{1}{\sqrt m}\,(1 - 4\alpha)^{d/4}\,
        e^{\alpha\|\omega_i\|^2 + \sqrt{1 - 4\alpha}\,\omega_i^\top x - \|x\|^2/2} .

    Args:
        head_dim: Number of channels d of a head.
        num_features: Number of rows of W, which is also the number of features. With
            ``hyperbolic`` there are twice as many features as rows. Default: ``head_dim``.
        projection: The distribution of W, a name in
            :data:`~stringlib.attention.projections.PROJECTIONS`. Default: ``"orthogonal"``.
        heads: Number of heads, each with a W of its own. With 1 (default) any number of heads
            share one W.
        learnable: If True, the random numbers of W, except signs and lengths of rows, are
            parameters. For ``"hadamard"`` and ``"simplex-hadamard"`` the random signs of the
            diagonals are the parameters. After a step of training the features no longer estimate
            the exponential. Default: False.
        hyperbolic: If True, each row is used with both signs, which gives ``2 * num_features``
            features. For independent rows, the mean squared error of these features is
            :math:`1 - e^{-\|x+y\|^2}` times the error of the same number of features from
            ``2 * num_features`` rows without the second sign. Default: False.
        mean_square: The mean of :math:`\|x+y\|^2` over queries x and keys y that are already
            multiplied by ``scale``. This mean determines :math:`\alpha`, see
            :func:`optimal_alpha`. With 0 (default) the features are those of FAVOR+. If all rows of
            W are Gaussian, the features are unbiased for every ``mean_square``. A tensor,
            ``(head_dim,)`` or ``(heads, head_dim)``, contains the mean of :math:`(x+y)_l^2` for
            each channel l, and gives each channel an :math:`\alpha` of its own. For queries x and
            keys y of shape ``(n, head_dim)`` this tensor is
            ``x.square().mean(0) + y.square().mean(0) + 2 * x.mean(0) * y.mean(0)``, and its sum is
            the mean of :math:`\|x+y\|^2`.
        stabilize: If True (default), features are divided by factors that cancel in normalised
            attention, so that no exponential overflows. The features of a query are divided by
            :math:`\sqrt m` times its largest feature. The features of all keys of a batch entry and
            head are divided by :math:`\sqrt m` times the largest feature of these keys. This factor
            depends on later keys, so causal attention uses :meth:`scaled_keys` instead.
        generator: Random generator for W. Default: the global generator.

    Attributes:
        projection: The module that stores W and computes the product Wx.
        alpha: The parameter :math:`\alpha` of each channel, ``(1 or heads, head_dim)``. None if all
            are 0, as in FAVOR+.
        scale: The factor :math:`d^{-1/4}` by which a layer multiplies queries and keys before the
            map. The map itself does not multiply by ``scale``.

    Raises:
        TypeError: If ``mean_square`` is a tensor that is not floating-point.
        ValueError: If ``projection`` is unknown, or if ``mean_square`` is negative, not finite or
            of another shape.

    Source:
        Choromanski et al. 2021, lemma 1 and section 3; Likhosherstov et al. 2022 (FAVOR++) for
        ``mean_square``, where the features estimate the Gaussian kernel.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> phi = FavorFeatures(16, 4096, stabilize=False)
        >>> x, y = torch.randn(2, 1, 1, 16) / 8  # one head, one token
        >>> estimate, exact = (phi(x) * phi(y)).sum(), (x * y).sum().exp()
        >>> abs(estimate / exact - 1).item() < 0.05
        True
    """

    place = "before"
    alpha: Tensor | None

    @checked
    def __init__(
        self,
        head_dim: int,
        num_features: int | None = None,
        projection: str = "orthogonal",
        heads: int = 1,
        learnable: bool = False,
        hyperbolic: bool = False,
        stabilize: bool = True,
        generator: torch.Generator | None = None,
        mean_square: float | Tensor = 0.0,
    ) -> None:
        super().__init__()
        num_features = head_dim if num_features is None else num_features
        require_name("projection", projection, PROJECTIONS)
        self.head_dim, self.num_features, self.heads = head_dim, num_features, heads
        self.hyperbolic, self.stabilize = hyperbolic, stabilize
        self.scale = head_dim**-0.25
        self.register_buffer("alpha", _fitted_alpha(mean_square, heads, head_dim))
        self.projection = PROJECTIONS[projection](
            head_dim, num_features, heads, learnable, generator
        )

    def projection_matrix(self) -> Tensor:
        """Return the random matrix W of each head, ``(heads, num_features, head_dim)``."""
        return self.projection.matrix()

    def redraw(self, generator: torch.Generator | None = None) -> None:
        """Resample the random matrix W in place, so that its tensors remain the same objects.

        In training on several processes, pass a generator with the same seed in every process.
        Otherwise each process draws a different W. ``DistributedDataParallel`` copies the buffers
        of the first process to the other processes, but not the parameters. So if W is learned and
        the seeds differ, the processes train different matrices from then on.

        Args:
            generator: Random generator, which may be on another device than the module. Default:
                the global generator.
        """
        self.projection.redraw(generator)

    def drawn(self) -> Tensor | None:
        """Return up to 16 random numbers of each W, ``(heads, count)``; None if all are trained."""
        numbers = next(iter(self.projection._buffers.values()), None)
        while numbers is not None and numbers.ndim > 2:
            numbers = numbers.select(1, 0)  # the first row, because a flattened matrix is a copy
        return None if numbers is None else numbers[:, :16]

    @checked
    def forward(
        self, x: Floats[Tensor, "... heads n self.head_dim"], is_query: bool = True
    ) -> Tensor:
        """Return the features of queries or keys.

        With ``stabilize`` the features are divided by the maxima of :eq:`eq-favor-stabiliser`.

        Args:
            x: Queries or keys, ``(..., heads, seq, head_dim)``. If the map was made with
                ``heads=1``, any number of heads is accepted.
            is_query: True (default) for queries, False for keys. Without ``stabilize`` a query and
                an equal key have the same features.

        Returns:
            Features, ``(..., heads, seq, m)``. They are float64 if ``x`` is float64, and otherwise
            float32, because gradients of the features overflow in float16.
        """
        require_heads("x", x, self.heads)
        kind = "query" if is_query else "keys"
        return self._features(x, kind if self.stabilize and x.shape[-2] else None)[0]

    @checked
    def scaled_keys(self, k: Floats[Tensor, "... heads n self.head_dim"]) -> tuple[Tensor, Tensor]:
        r"""Return the features of each key divided by a factor, and the logarithms of the factors.

        The features of a key are divided by :math:`\sqrt m` times the maximum of these features.
        The logarithms of these factors are the scales of the keys. For
        ``features, scale = phi.scaled_keys(k)``, the product ``features * scale.exp()[..., None]``
        is the tensor of features without stabiliser, up to rounding. The scale of a key does not
        depend on other keys, so that causal attention can compute the scales token by token,
        :eq:`eq-favor-scaled-keys`. The scales must not be omitted, because without them every key
        would have the same maximum.

        Args:
            k: Keys, ``(..., heads, seq, head_dim)``.

        Returns:
            Features, ``(..., heads, seq, m)``, of which none is above :math:`1/\sqrt m`, and the
            scales, ``(..., heads, seq)``. Features and scales are float32 or float64. The scales
            are the ``key_scale`` of :func:`~stringlib.attention.linear.linear_attention`. The
            scales have no gradient, because the features carry the gradient of the whole product.
        """
        require_heads("k", k, self.heads)
        features, scale = self._features(k, "key")
        assert scale is not None
        return features, scale

    def _features(self, x: Tensor, stabilizer: str | None) -> tuple[Tensor, Tensor | None]:
        r"""Return the features divided by a factor :math:`e^c`, and its logarithm c or None.

        This method computes the whole map, here for :math:`\alpha = 0`:

        .. math:: \phi(x)_i = \tfrac{1}{\sqrt m}\,e^{\omega_i^\top x - \|x\|^2/2 - c}

        Args:
            x: Queries or keys, ``(..., heads, seq, head_dim)``.
            stabilizer: None for c = 0. For ``"query"`` and ``"key"``, c is the largest exponent of
                the token. For ``"keys"``, c is the largest exponent of all tokens of a head.

        Returns:
            Features, ``(..., heads, seq, m)``, in float32 or float64. For ``"key"`` also c,
            ``(..., heads, seq)``, which has no gradient; otherwise None.
        """
        x = along = x if x.dtype == torch.float64 else x.float()
        alpha = self.alpha
        if alpha is not None:
            along = x * (1 - 4 * alpha.to(x.dtype)).sqrt().unsqueeze(-2)
        with without_autocast(x):
            exponent = self.projection.product(along)  # ωᵢᵀx
        if self.hyperbolic:
            exponent = torch.cat([exponent, -exponent], -1)
        if alpha is not None:
            exponent = exponent + self._offset(x.dtype)
        root, scale = 0.5 * math.log(exponent.shape[-1]), None  # the logarithm of √m
        if stabilizer is None:
            return exponent.sub_(half_square(x) + root).exp_(), None
        top = exponent.detach().amax(-1, keepdim=True)  # c + ‖x‖²/2 of each token
        if stabilizer == "query":  # ‖x‖²/2 cancels in the division by the maximum
            return exponent.sub_(top + root).exp_(), None
        # The maximum is subtracted first, because this is exact for exponents close to it.
        exponent, half = exponent.sub_(top), half_square(x)
        own = top - half.detach()
        if stabilizer == "key":
            scale, rest = own.squeeze(-1), half - half.detach()  # 0, with the gradient of ‖x‖²/2
        else:
            rest = own.amax(-2, keepdim=True) - top + half
        return exponent.sub_(rest + root).exp_(), scale

    def _offset(self, dtype: torch.dtype) -> Tensor:
        """Return the part of the exponents that does not depend on x, ``(heads, 1, m)``.

        If all d channels have the same α, this part is α‖ω‖² + log(1 − 4α)·d/4 for the row ω.
        """
        assert self.alpha is not None
        alpha = self.alpha.to(dtype)
        squares = self.projection.matrix().to(dtype).square()
        offset = (squares * alpha.unsqueeze(-2)).sum(-1)
        offset = offset + torch.log1p(-4 * alpha).sum(-1, keepdim=True) / 4
        return offset.repeat(1, 2 if self.hyperbolic else 1).unsqueeze(-2)

    def extra_repr(self) -> str:
        """Return the arguments that ``repr`` shows."""
        return (
            f"{self.head_dim}, {self.num_features}, heads={self.heads}, "
            f"hyperbolic={self.hyperbolic}, stabilize={self.stabilize}, "
            f"optimal={self.alpha is not None}"
        )


@overload
def optimal_alpha(mean_square: float, channels: int) -> float: ...
@overload
def optimal_alpha(mean_square: Tensor, channels: int) -> Tensor: ...
def optimal_alpha(mean_square: float | Tensor, channels: int) -> float | Tensor:
    r"""Return the parameter :math:`\alpha \le 0` of the random features with least variance.

    Let :math:`\zeta` be ``mean_square`` and d be ``channels``. Then
    :math:`\alpha = (1 - 1/\rho)/8`, where :math:`\rho \in (0, 1]` is the positive solution of
    :math:`2\zeta\rho^2 + (2\zeta + d)\rho = d`, :eq:`eq-favor-optimal-alpha`. So
    :math:`\alpha` depends only on :math:`\zeta/d`.

    Args:
        mean_square: The mean :math:`\zeta \ge 0` of :math:`\|x + y\|^2` over queries x and keys y.
            A number, or a tensor of such means.
        channels: Number d of channels of x and y.

    Returns:
        The parameter :math:`\alpha`, a number or a tensor like ``mean_square``.

    Source:
        Likhosherstov et al. 2022, optimal positive features, where :math:`\alpha` is called A.
    """
    b = 2 * mean_square + channels
    return (2 - b * (1 + (1 + 8 * channels * (mean_square / b / b)) ** 0.5) / channels) / 16


def _fitted_alpha(mean_square: float | Tensor, heads: int, head_dim: int) -> Tensor | None:
    """Return the optimal α of each channel, ``(1 or heads, head_dim)``; None if all are 0.

    Args:
        mean_square: The argument ``mean_square`` of :class:`FavorFeatures`, a number or a tensor.
        heads: Number of heads.
        head_dim: Number of channels of a head.

    Raises:
        TypeError: If ``mean_square`` is a tensor that is not floating-point.
        ValueError: If ``mean_square`` is negative, not finite or of another shape.
    """
    if not isinstance(mean_square, Tensor):
        if mean_square < 0:
            raise ValueError(f"mean_square must be at least 0, got {mean_square}")
        alpha = optimal_alpha(float(mean_square), head_dim)
        return torch.full((1, head_dim), alpha, dtype=drawn_dtype()) if alpha else None
    require("mean_square", mean_square, Floats[Tensor, "..."])
    if mean_square.shape not in ((head_dim,), (heads, head_dim)):
        raise ValueError(
            f"mean_square must be a number or have shape ({head_dim},) or ({heads}, {head_dim}), "
            f"got {tuple(mean_square.shape)}"
        )
    wrong = mean_square[~((mean_square >= 0) & mean_square.isfinite())]
    if len(wrong):
        raise ValueError(
            f"mean_square must be finite and at least 0, got the entry {wrong[0].item()}"
        )
    alphas = optimal_alpha(mean_square.detach().double(), 1).to(drawn_dtype())
    return alphas.reshape(-1, head_dim) if alphas.any() else None
