r"""Random matrices W for FAVOR+: independent, orthogonal, simplex, Hadamard and circulant rows.

Every row :math:`\omega` has, exactly or approximately, the distribution :math:`\mathcal N(0, I_d)`.
The projections differ in how rows depend on each other, which determines the variance of the
estimate, and in the cost of the product Wx. Dependent rows form blocks of at most ``block_size``
rows. More rows are stacked as independent blocks. Fewer rows are the first rows of one block.
"""

from __future__ import annotations

import math
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from stringlib.algebra.circulant import circulant
from stringlib.algebra.haar import haar_orthogonal
from stringlib.algebra.hadamard import fast_hadamard, hadamard, next_power
from stringlib.inputs import require_heads
from stringlib.kernels.fft import circular_convolution
from stringlib.spec import Floats, checked

# Number of rows of a block from which on the fast transform is used instead of the matrix product.
# The transform costs the same for some rows of a block as for all of them; the product costs only
# the rows that are needed. We measured the time of the transform divided by that of the product,
# for m = d, in float32 on two CPU cores (medians, with gradients unless stated otherwise):
# - FFT, on 2 million numbers, with 1 and 2 threads: d = 128 1.3 and 1.3, 192 0.9 and 0.9,
#   256 0.7 and 0.7, 512 0.4 and 0.4.
# - FFT, all of FAVOR+'s feature map, CPU time on another processor, with 1 and 2 threads: d = 96
#   1.0 and 1.0, 128 0.8 and 0.9, 192 0.7 and 0.8, 256 0.6 and 0.6.
# - Three Hadamard transforms, CPU time on 1 thread: d = 256 2.6, 512 1.5, 1024 0.6; without
#   gradients 1.7, 0.7, 0.5.
FEWEST_ROWS = {"fft": 192, "hadamard": 1024}


class Projection(nn.Module):
    r"""Base class of random projections: a random matrix W for each head, and the product Wx.

    Called on ``x`` of shape ``(..., heads, n, head_dim)``, a projection returns :math:`Wx` for each
    token, ``(..., heads, n, num_features)``, in float32 or float64.

    Args:
        head_dim: Number of channels d of a head.
        num_features: Number m of rows of W.
        heads: Number of heads, each with a W of its own. With 1 (default) any number of heads
            share one W.
        learnable: If True, the random numbers of W, except signs and lengths of rows, are
            parameters. If False (default), they are buffers.
        generator: Random generator. Default: the global generator.
    """

    parts: tuple[str, ...] = ()
    """Names of the tensors from which W is computed; with ``learnable`` the first is a parameter.

    ``_draw`` returns these tensors in the same order.
    """

    @checked
    def __init__(
        self,
        head_dim: int,
        num_features: int,
        heads: int = 1,
        learnable: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.head_dim, self.num_features, self.heads = head_dim, num_features, heads
        self.blocks = -(-num_features // self.block_size)
        for i, (name, value) in enumerate(zip(self.parts, self._drawn(generator), strict=True)):
            if learnable and i == 0:
                self.register_parameter(name, nn.Parameter(value))
            else:
                self.register_buffer(name, value)

    @property
    def block_size(self) -> int:
        """Number of rows of a full block. Rows of different blocks are independent."""
        return self.head_dim

    @torch.no_grad()
    @checked
    def redraw(self, generator: torch.Generator | None = None) -> None:
        """Resample W in place.

        Args:
            generator: Random generator, which may be on another device than the module. Default:
                the global generator.
        """
        for name, value in zip(self.parts, self._drawn(generator), strict=True):
            getattr(self, name).copy_(value)

    def matrix(self) -> Tensor:
        """Return W, ``(heads, num_features, head_dim)``."""
        raise NotImplementedError(f"{type(self).__name__} must define matrix()")

    @checked
    def forward(self, x: Floats[Tensor, "... heads n self.head_dim"]) -> Tensor:
        """Return Wx for each token: in float64 if ``x`` is, in float32 for every other dtype."""
        require_heads("x", x, self.heads)
        return self.product(x if x.dtype == torch.float64 else x.float())

    def extra_repr(self) -> str:
        """Describe the arguments in ``repr``."""
        return f"{self.head_dim}, {self.num_features}, heads={self.heads}"

    def _draw(self, generator: torch.Generator | None) -> tuple[Tensor, ...]:
        raise NotImplementedError(f"{type(self).__name__} must define _draw(generator)")

    def product(self, x: Tensor) -> Tensor:
        """Return Wx for ``x`` in float32 or float64, without checking its shape."""
        weight = self.matrix().to(x.dtype)
        # without a head dimension, if all heads share one W: a single product for the whole batch
        return x @ (weight[0] if self.heads == 1 else weight).mT

    def _drawn(self, generator: torch.Generator | None) -> tuple[Tensor, ...]:
        with nullcontext() if generator is None else generator.device:
            return self._draw(generator)

    def _pays(self, transform: str) -> bool:
        """Return whether the fast transform is expected to be faster than the matrix product."""
        return min(self.num_features, self.block_size) >= FEWEST_ROWS[transform]


class IidProjection(Projection):
    """Independent Gaussian rows, the baseline to which other projections are compared."""

    weight: Tensor
    parts: tuple[str, ...] = ("weight",)

    def _draw(self, generator: torch.Generator | None) -> tuple[Tensor, ...]:
        shape = self.heads, self.num_features, self.head_dim
        return (torch.randn(shape, generator=generator),)

    def matrix(self) -> Tensor:
        """Return W, ``(heads, num_features, head_dim)``."""
        return self.weight


class OrthogonalProjection(IidProjection):
    r"""Orthogonal rows: a Haar random orthogonal matrix whose rows get lengths from :math:`\chi_d`.

    The lengths are independent. Every row is exactly Gaussian, and the rows of a block are
    orthogonal.

    Source:
        Yu et al. 2016, orthogonal random features.
    """

    def _draw(self, generator: torch.Generator | None) -> tuple[Tensor, ...]:
        blocks = haar_orthogonal(self.head_dim, self.heads, self.blocks, generator=generator)
        rows = blocks.flatten(1, 2)[:, : self.num_features]
        return (rows * _lengths(self, self.head_dim, generator).unsqueeze(-1),)


class SimplexProjection(OrthogonalProjection):
    r"""Simplex rows: their directions point to the corners of a randomly rotated regular simplex.

    The directions of a block are d orthogonal unit vectors from which their mean is subtracted,
    scaled to length 1 again. Any two of them have the inner product :math:`-1/(d-1)`,
    :eq:`eq-simplex-gram`. Every row is exactly Gaussian, as for :class:`OrthogonalProjection`, so
    the estimate is unbiased. For a full block with independent lengths, no other joint
    distribution of the directions gives a smaller error. For d = 1 a row is a Gaussian number.

    Source:
        Reid et al. 2023, simplex random features.
    """

    def _draw(self, generator: torch.Generator | None) -> tuple[Tensor, ...]:
        blocks = haar_orthogonal(self.head_dim, self.heads, self.blocks, generator=generator)
        if self.head_dim > 1:
            blocks = _simplex_scale(self.head_dim) * (blocks - blocks.mean(-2, keepdim=True))
        rows = blocks.flatten(1, 2)[:, : self.num_features]
        return (rows * _lengths(self, self.head_dim, generator).unsqueeze(-1),)


class HadamardProjection(Projection):
    r"""Rows of :math:`H D_1 H D_2 H D_3` with random lengths, :eq:`eq-hadamard-projection`.

    H is the orthonormal Hadamard matrix, each :math:`D_i` is a diagonal matrix of random signs, and
    every row is multiplied by an independent length from :math:`\chi_D`. Sylvester's construction
    of H needs a power of 2, so the channels are padded with zeros to the next power D. A block then
    has D rows, and each of them is the first d channels of a row of the D × D matrix. The rows of a
    block are orthogonal if d is a power of 2. Directions made from random signs are not exactly
    uniform, so the estimate has a small bias: its mean is only approximately
    :math:`e^{x^\top y}`, :eq:`eq-structured-bias`. For large D the error tends to that of
    orthogonal features, for every x + y, :eq:`eq-unit-ratio`.

    With ``learnable``, the three diagonals are a parameter.

    Attributes:
        diagonals: Diagonals of :math:`D_1, D_2, D_3`, ``(heads, blocks, 3, D)``.
        lengths: Lengths of the rows, ``(heads, m)``.

    Source:
        Yu et al. 2016, structured orthogonal random features. There all rows have the length
        :math:`\sqrt d`, which causes a further bias.
    """

    diagonals: Tensor
    lengths: Tensor
    parts: tuple[str, ...] = ("diagonals", "lengths")

    @property
    def block_size(self) -> int:
        """Number D of rows of a full block, a power of 2. Different blocks are independent."""
        return next_power(self.head_dim)

    def _draw(self, generator: torch.Generator | None) -> tuple[Tensor, ...]:
        shape = self.heads, self.blocks, 3, self.block_size
        return _signs(shape, generator), _lengths(self, self.block_size, generator)

    def matrix(self) -> Tensor:
        """Return W, ``(heads, num_features, head_dim)``."""
        size, diagonals = self.block_size, self.diagonals
        transform = hadamard(size, diagonals.device).to(diagonals.dtype) / math.sqrt(size)
        first, second, third = (transform * d.unsqueeze(-2) for d in diagonals.unbind(-2))
        rows = (first @ second @ third).flatten(1, 2)[:, : self.num_features, : self.head_dim]
        return rows * self.lengths.unsqueeze(-1)

    def product(self, x: Tensor) -> Tensor:
        """Return Wx for ``x`` in float32 or float64, by the fast transform if it is faster."""
        if not self._pays("hadamard"):
            return super().product(x)
        y = nn.functional.pad(x, (0, self.block_size - self.head_dim)).unsqueeze(-2)
        # the three transforms are not normalised; each needs a factor 1/√D
        scale = self.block_size**-1.5 * self.lengths
        for d in self.diagonals.to(x.dtype).flip(-2).unbind(-2):
            y = fast_hadamard(y * d.unsqueeze(1))
        return y.flatten(-2)[..., : self.num_features] * scale.to(x.dtype).unsqueeze(1)


class SimplexHadamardProjection(HadamardProjection):
    r"""Simplex rows from Hadamard matrices: the first entry of :math:`D_1` is 0.

    This entry multiplies the constant column of H, so the rows of a block, before they get their
    lengths, add up to 0. The other entries are :math:`\pm\sqrt{D/(D-1)}`. Any two of these D rows,
    with all D channels, have the inner product :math:`-1/(D-1)`, :eq:`eq-simplex-gram`. The cost is
    that of :class:`HadamardProjection`. For large D the error tends to that of
    :class:`SimplexProjection`, for every x + y, :eq:`eq-simplex-ratio`. The mean is approximately
    :math:`e^{x^\top y}`, as for :class:`HadamardProjection`.

    Source:
        Reid et al. 2023 for the simplex.
    """

    def _draw(self, generator: torch.Generator | None) -> tuple[Tensor, ...]:
        diagonals, lengths = super()._draw(generator)
        if self.block_size > 1:
            diagonals[..., 0, :] *= _simplex_scale(self.block_size)
            diagonals[..., 0, 0] = 0
        return diagonals, lengths


class CirculantProjection(Projection):
    r"""Circulant rows with signs, :math:`W = \mathrm{circ}(r)\,\mathrm{diag}(s)`.

    This is equation :eq:`eq-circulant-projection`: the first column r is Gaussian, and s are random
    signs. Every row is exactly Gaussian, so the estimate is unbiased. But all rows of a block
    consist of the same d numbers up to signs, so they have the same length and are dependent,
    which changes the error, :eq:`eq-circulant-variance`.

    With ``learnable``, r is a parameter. After a step of training the rows are no longer Gaussian,
    and :math:`\phi(x)^\top\phi(y)` no longer estimates :math:`e^{x^\top y}`.

    Attributes:
        column: The first column r, ``(heads, blocks, d)``.
        signs: The signs s, ``(heads, blocks, d)``.

    Source:
        Yu et al. 2014, circulant binary embedding, equation 3.
    """

    column: Tensor
    signs: Tensor
    parts: tuple[str, ...] = ("column", "signs")

    def _draw(self, generator: torch.Generator | None) -> tuple[Tensor, ...]:
        shape = self.heads, self.blocks, self.head_dim
        return torch.randn(shape, generator=generator), _signs(shape, generator)

    def matrix(self) -> Tensor:
        """Return W, ``(heads, num_features, head_dim)``."""
        rows = circulant(self._column()) * self.signs.unsqueeze(-2)
        return rows.flatten(1, 2)[:, : self.num_features]

    def _column(self) -> Tensor:
        """Return r, ``(heads, blocks, d)``."""
        return self.column

    def _spectrum(self, dtype: torch.dtype) -> Tensor:
        """Return the Fourier transform of r, ``(heads, blocks, d // 2 + 1)``."""
        return torch.fft.rfft(self.column.to(dtype))

    def product(self, x: Tensor) -> Tensor:
        """Return Wx for ``x`` in float32 or float64, by the FFT if it is faster."""
        if not self._pays("fft"):
            return super().product(x)
        return self._convolve(x)

    def _convolve(self, x: Tensor) -> Tensor:
        """Return the first m entries of circ(r)(s ⊙ x) for all blocks."""
        signed = x.unsqueeze(-2) * self.signs.to(x.dtype).unsqueeze(1)
        y = circular_convolution(signed, self._spectrum(x.dtype).unsqueeze(1)).flatten(-2)
        rows = y[..., : self.num_features]
        # the feature map changes these rows in place; as a view, they would cost six copies in the
        # backward pass
        return rows.clone() if y.requires_grad else rows.contiguous()


class UnitCirculantProjection(CirculantProjection):
    r"""Orthogonal circulant rows with signs: the spectrum has modulus 1, :eq:`eq-unit-circulant`.

    The Fourier transform of the first column r is :math:`e^{\mathrm i\theta_j}` with random phases,
    and a random sign at j = 0 and, for even d, at j = d/2. So circ(r) is orthogonal. It has the
    distribution of the orthogonal matrix that is nearest to a circulant matrix with a Gaussian
    column, :eq:`eq-nearest-circulant`. Every row is multiplied by an independent length from
    :math:`\chi_d`.

    A product costs as much as for :class:`CirculantProjection`. For large d the error tends to that
    of orthogonal features, if no channel of :math:`z = x + y` dominates. For small heads, or if
    few channels dominate, the error may be larger than that of independent rows: if z has a single
    channel, 1.25 times as large for :math:`\|z\|^2 = 2` and d = 16, and 1.44 times for
    :math:`\|z\|^2 = 4` and d = 64. The mean is approximately :math:`e^{x^\top y}`,
    :eq:`eq-structured-bias`.

    With ``learnable``, the phases are a parameter. The values at j = 0 and d/2 remain real, so that
    circ(r) remains orthogonal.

    Attributes:
        phases: The phases :math:`\theta`, in radians, ``(heads, blocks, d // 2 + 1)``.
        signs: The signs s, ``(heads, blocks, d)``.
        lengths: Lengths of the rows, ``(heads, m)``.

    Source:
        Romberg 2009 for the circulant matrix (random convolution).
    """

    phases: Tensor
    lengths: Tensor
    parts: tuple[str, ...] = ("phases", "signs", "lengths")

    def _draw(self, generator: torch.Generator | None) -> tuple[Tensor, ...]:
        shape = self.heads, self.blocks, self.head_dim // 2 + 1
        phases = 2 * math.pi * torch.rand(shape, generator=generator)
        ends = self._ends(phases.device)
        phases = torch.where(ends, math.pi * (phases > math.pi).to(phases.dtype), phases)
        signs = _signs((self.heads, self.blocks, self.head_dim), generator)
        return phases, signs, _lengths(self, self.head_dim, generator)

    def matrix(self) -> Tensor:
        """Return W, ``(heads, num_features, head_dim)``."""
        return super().matrix() * self.lengths.unsqueeze(-1)

    def _ends(self, device: torch.device) -> Tensor:
        """Return where the Fourier transform of a real column is real: at 0 and d/2."""
        return 2 * torch.arange(self.head_dim // 2 + 1, device=device) % self.head_dim == 0

    def _column(self) -> Tensor:
        dtype = self.phases.dtype
        wide = dtype if dtype == torch.float64 else torch.float32
        return torch.fft.irfft(self._spectrum(wide), n=self.head_dim).to(dtype)

    def _spectrum(self, dtype: torch.dtype) -> Tensor:
        phases = self.phases.to(dtype)
        ends = self._ends(phases.device)
        real = torch.where(ends, phases.cos().sign(), phases.cos())
        return torch.complex(real, phases.sin().masked_fill(ends, 0))

    def _convolve(self, x: Tensor) -> Tensor:
        return super()._convolve(x) * self.lengths.to(x.dtype).unsqueeze(1)


class SimplexCirculantProjection(UnitCirculantProjection):
    r"""Simplex rows from circulant matrices with signs, :eq:`eq-simplex-circulant`.

    The spectrum of the first column is 0 at j = 0, so that the rows of a block, before they get
    their lengths, add up to 0. Elsewhere it has random phases and the modulus
    :math:`\sqrt{d/(d-1)}`. Any two of these rows have the inner product :math:`-1/(d-1)`,
    :eq:`eq-simplex-gram`. The cost is that of :class:`UnitCirculantProjection`. For large d and
    m = d, the relative mean squared error is smaller than for :class:`UnitCirculantProjection` by
    :math:`\zeta/d` with :math:`\zeta = \|x+y\|^2`, :eq:`eq-simplex-error`. The mean is
    approximately :math:`e^{x^\top y}`, as for :class:`UnitCirculantProjection`.

    With ``learnable``, the phases are a parameter, and the rows without lengths remain a regular
    simplex.

    Source:
        Reid et al. 2023 for dense simplex rows. We know of no earlier source for the spectrum.
    """

    def _spectrum(self, dtype: torch.dtype) -> Tensor:
        spectrum = super()._spectrum(dtype)
        if self.head_dim == 1:
            return spectrum
        mean = torch.arange(spectrum.shape[-1], device=spectrum.device) == 0
        return _simplex_scale(self.head_dim) * spectrum.masked_fill(mean, 0)


PROJECTIONS: dict[str, type[Projection]] = {
    "iid": IidProjection,
    "orthogonal": OrthogonalProjection,
    "simplex": SimplexProjection,
    "hadamard": HadamardProjection,
    "simplex-hadamard": SimplexHadamardProjection,
    "circulant": CirculantProjection,
    "unit-circulant": UnitCirculantProjection,
    "simplex-circulant": SimplexCirculantProjection,
}
"""Projections by name. Each value is a subclass of :class:`Projection`."""


def _signs(shape: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
    bits = torch.randint(0, 2, shape, generator=generator)
    return (2 * bits - 1).to(torch.get_default_dtype())


def _simplex_scale(size: int) -> float:
    """Return the factor that restores length 1 after the mean of unit vectors is subtracted.

    The vectors are ``size`` orthogonal unit vectors.
    """
    return math.sqrt(size / (size - 1))


def _lengths(projection: Projection, size: int, generator: torch.Generator | None) -> Tensor:
    """Return random lengths of all rows, χ with ``size`` degrees of freedom, ``(heads, m)``."""
    shape = projection.heads, projection.num_features, size
    return torch.randn(shape, generator=generator).norm(dim=-1)
