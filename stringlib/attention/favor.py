r"""FAVOR+: positive random features, whose products estimate the exponential of softmax."""

from __future__ import annotations

from typing import overload

import torch
from torch import Tensor

from stringlib.attention.features import FeatureMap
from stringlib.attention.projections import PROJECTIONS
from stringlib.inputs import require_floats, require_heads, require_name
from stringlib.kernels.features import exponential, half_square
from stringlib.precision import at_least_float32, without_autocast
from stringlib.spec import Floats, checked


class FavorFeatures(FeatureMap):
    r"""Positive random features: :math:`\mathbb E\,\phi(x)^\top\phi(y) = e^{x^\top y}`.

    .. math:: \phi(x)_i = \tfrac{1}{\sqrt m}\,e^{\omega_i^\top x - \|x\|^2/2},

    equations :eq:`eq-favor-features` and :eq:`eq-favor-unbiased`, with the rows :math:`\omega_i`
    of a random matrix W, or the same with both signs of every row, :eq:`eq-favor-hyperbolic`. For
    :math:`e^{q^\top k/\sqrt d}` multiply q and k by :math:`d^{-1/4}` first. Told how long
    :math:`z = x + y` is, the features are those of least variance, :eq:`eq-favor-optimal`:

    .. math:: \tfrac{1}{\sqrt m}\,(1 - 4\alpha)^{d/4}\,
        e^{\alpha\|\omega_i\|^2 + \sqrt{1 - 4\alpha}\,\omega_i^\top x - \|x\|^2/2} .

    Args:
        head_dim: Number of channels d of a head.
        num_features: Number of rows of W, ``head_dim`` if omitted; ``hyperbolic`` makes two
            features of each.
        projection: How W is drawn, a name in
            :data:`~stringlib.attention.projections.PROJECTIONS`.
        heads: Heads with a W of their own; 1 serves any number of heads.
        learnable: Whether what was drawn, all but signs and lengths of rows, is a parameter.
            After a step of training the features no longer estimate the exponential.
        hyperbolic: Whether to use both signs of every row. With as many features from
            independent rows, the squared error is that times :math:`1 - e^{-\|x+y\|^2}`.
        mean_square: The mean of :math:`\|x+y\|^2` over queries x and keys y, multiplied by
            ``scale``, for which :math:`\alpha` is the best, :func:`optimal_alpha`. The features
            are unbiased for all x and y, whatever it is; with 0 they are FAVOR+'s. Or the mean of
            :math:`(x+y)_l^2` for each channel l, ``(head_dim,)`` or ``(heads, head_dim)``: then
            each has an :math:`\alpha` of its own. Of ``x`` and ``y``, ``(n, head_dim)``, these are
            ``x.square().mean(0) + y.square().mean(0) + 2 * x.mean(0) * y.mean(0)``, and their sum
            is the mean of the whole.
        stabilize: Whether to leave out factors that cancel in normalised attention, so that
            nothing overflows: each query's largest feature, and the largest of all keys, one
            number for a batch entry and head. It looks at later keys; see :meth:`scaled_keys`.
        generator: Draws W; the global generator if omitted.

    Attributes:
        projection: The module that holds W and multiplies by it.
        alpha: :math:`\alpha` of each channel, ``(1 or heads, head_dim)``; None for FAVOR+'s 0.
        scale: :math:`d^{-1/4}`. The map itself does not multiply by it.

    Raises:
        ValueError: If ``projection`` is unknown, or ``mean_square`` negative, not finite or of
            another shape.

    Source:
        Choromanski et al. 2021, lemma 1 and section 3; Likhosherstov et al. 2022 (FAVOR++) for
        ``mean_square``, there for the Gaussian kernel.

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
        """Return W, ``(heads, num_features, head_dim)``."""
        return self.projection.matrix()

    def redraw(self, generator: torch.Generator | None = None) -> None:
        """Draw W afresh, in place: buffers and parameters stay the same objects.

        Args:
            generator: Decides the draw; the global generator if omitted. One of the CPU serves a
                module on any device.
        """
        self.projection.redraw(generator)

    @checked
    def forward(
        self, x: Floats[Tensor, "... heads n self.head_dim"], is_query: bool = True
    ) -> Tensor:
        """Return the features; if ``stabilize``, less the factors of :eq:`eq-favor-stabiliser`.

        Args:
            x: ``(..., heads, seq, head_dim)``; any number of heads if the map has one.
            is_query: Whether these are queries, which matters only if ``stabilize``.

        Returns:
            ``(..., heads, seq, m)`` of the dtype of ``x``, computed in float32 or float64.
        """
        require_heads("x", x, self.heads)
        wide, exponent = self._project(x)
        if not self.stabilize or x.shape[-2] == 0:
            return exponential(exponent, half_square(wide)).to(x.dtype)
        own = exponent.detach().amax(-1, keepdim=True)
        if is_query:
            return exponential(exponent, own).to(x.dtype)  # ‖x‖²/2 would cancel
        largest = own - half_square(wide)
        # first what is exact: beside ‖x‖²/2 the exponents would lose their digits
        return exponential(exponent.sub_(own), largest.detach().amax(-2, True) - largest).to(
            x.dtype
        )

    @checked
    def scaled_keys(self, k: Floats[Tensor, "... heads n self.head_dim"]) -> tuple[Tensor, Tensor]:
        r"""Return keys' features over their largest, and the logarithm of that largest one.

        ``features * log_scale.exp()[..., None]`` is the map without stabiliser. Nothing here
        depends on other keys, so causal attention can use it token by token,
        :eq:`eq-favor-scaled-keys`.
        Dropping the scales instead gives every key the same weight, which is wrong.

        Args:
            k: ``(..., heads, seq, head_dim)``.

        Returns:
            Features ``(..., heads, seq, m)``, none above :math:`1/\sqrt m`, and the
            ``key_scale`` of :func:`~stringlib.attention.linear.linear_attention`,
            ``(..., heads, seq)`` in float32 or float64, without gradient: that of the features
            is the whole.
        """
        require_heads("k", k, self.heads)
        wide, exponent = self._project(k)
        half, own = half_square(wide), exponent.detach().amax(-1, keepdim=True)
        # nothing is left to subtract from the largest, which is 0, but the gradient of ‖x‖²/2
        features = exponential(exponent.sub_(own), half - half.detach())
        return features.to(k.dtype), (own - half.detach()).squeeze(-1)

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return x and, but for ‖x‖²/2 and √m, the logarithms of features, float32 or wider."""
        wide = along = x.to(at_least_float32(x.dtype))
        if self.alpha is not None:
            along = wide * (1 - 4 * self.alpha.to(wide.dtype)).sqrt().unsqueeze(-2)
        with without_autocast(x):
            exponent = self.projection.product(along)
        exponent = torch.cat([exponent, -exponent], -1) if self.hyperbolic else exponent
        return wide, exponent if self.alpha is None else exponent + self._offset(wide.dtype)

    def _offset(self, dtype: torch.dtype) -> Tensor:
        """Return α‖ω‖² + log(1 − 4α)·d/4 of each feature, ``(heads, 1, m)``."""
        assert self.alpha is not None
        alpha = self.alpha.to(dtype)
        squares = self.projection.matrix().to(dtype).square()
        offset = (squares * alpha.unsqueeze(-2)).sum(-1)
        offset = offset + torch.log1p(-4 * alpha).sum(-1, keepdim=True) / 4
        return offset.repeat(1, 2 if self.hyperbolic else 1).unsqueeze(-2)

    def extra_repr(self) -> str:
        """Say what the map was made of."""
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
    r"""Return the :math:`\alpha \le 0` of least variance, :eq:`eq-favor-optimal-alpha`.

    :math:`\alpha = (1 - 1/\rho)/8`, where :math:`\rho \in (0, 1]` is the positive root of
    :math:`2\zeta\rho^2 + (2\zeta + d)\rho - d`. It depends on :math:`\zeta/d` alone.

    Args:
        mean_square: :math:`\zeta`, the mean of :math:`\|z\|^2`, a number or a tensor of them,
            at least 0.
        channels: Number d of channels that the norm is of.

    Source:
        Likhosherstov et al. 2022, optimal positive features, with A for :math:`\alpha`.
    """
    b = 2 * mean_square + channels
    return (2 - b * (1 + (1 + 8 * channels * (mean_square / b / b)) ** 0.5) / channels) / 16


def _fitted_alpha(mean_square: float | Tensor, heads: int, head_dim: int) -> Tensor | None:
    """Return the best α of each channel, ``(1 or heads, head_dim)``; None if all are 0."""
    if not isinstance(mean_square, Tensor):
        if mean_square < 0:
            raise ValueError(f"mean_square must be at least 0, got {mean_square}")
        alpha = optimal_alpha(float(mean_square), head_dim)
        return torch.full((1, head_dim), alpha) if alpha else None
    require_floats("mean_square", mean_square)
    if mean_square.shape not in ((head_dim,), (heads, head_dim)):
        raise ValueError(
            f"mean_square must be a number or have shape ({head_dim},) or ({heads}, {head_dim}), "
            f"got {tuple(mean_square.shape)}"
        )
    if not ((mean_square >= 0) & mean_square.isfinite()).all():
        raise ValueError(f"mean_square must be finite and at least 0, got {mean_square}")
    alphas = optimal_alpha(mean_square.detach().double(), 1).to(torch.get_default_dtype())
    return alphas.reshape(-1, head_dim) if alphas.any() else None
