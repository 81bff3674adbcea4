r"""Random matrices W for FAVOR+ with a fast product Wx: Hadamard and circulant rows.

The product is computed by a fast transform where that is faster than the matrix product. See
:mod:`stringlib.attention.dense_projections` for the base class and for dense rows.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from stringlib.algebra.circulant import circulant
from stringlib.algebra.hadamard import fast_hadamard, hadamard, next_power
from stringlib.attention.dense_projections import (
    IidProjection,
    OrthogonalProjection,
    Projection,
    SimplexProjection,
    drawn_dtype,
    lengths_of_rows,
    random_signs,
    simplex_scale,
)
from stringlib.kernels.fft import circular_convolution
from stringlib.precision import at_least_float32

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


class HadamardProjection(Projection):
    r"""Rows of :math:`H D_1 H D_2 H D_3` with random lengths, :eq:`eq-hadamard-projection`.

    H is the orthonormal Hadamard matrix, and each :math:`D_i` is a diagonal matrix of random signs.
    Sylvester's construction of H needs a power of 2, so the d channels are padded with zeros to the
    next power D. A block then has D rows, and each row consists of the first d channels of a row of
    the D × D matrix. Every row is multiplied by an independent random factor with the distribution
    :math:`\chi_D`. The rows of a block are orthogonal if d is a power of 2. Directions made from
    random signs are not exactly uniform. So the estimate of :math:`e^{x^\top y}` has a small bias,
    :eq:`eq-structured-bias`. For large D the error of the estimate tends to that of orthogonal
    features, for every x + y, :eq:`eq-unit-ratio`.

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
        """Number of rows of a full block of W, a power of 2. Different blocks are independent."""
        return next_power(self.head_dim)

    def _draw(self, generator: torch.Generator | None) -> tuple[Tensor, ...]:
        shape = self.heads, self.blocks, 3, self.block_size
        return random_signs(shape, generator), lengths_of_rows(self, self.block_size, generator)

    def matrix(self) -> Tensor:
        """Return the random matrix W of each head, ``(heads, num_features, head_dim)``."""
        size, diagonals = self.block_size, self.diagonals.to(at_least_float32(self.diagonals.dtype))
        transform = hadamard(size, diagonals.device).to(diagonals.dtype) / math.sqrt(size)
        first, second, third = (transform * d.unsqueeze(-2) for d in diagonals.unbind(-2))
        rows = (first @ second @ third).flatten(1, 2)[:, : self.num_features, : self.head_dim]
        return rows * self.lengths.unsqueeze(-1)

    def product(self, x: Tensor) -> Tensor:
        """Return the product Wx for ``x`` in float32 or float64, by fast transforms if faster."""
        if not _is_faster(self, "hadamard"):
            return super().product(x)
        y = nn.functional.pad(x, (0, self.block_size - self.head_dim)).unsqueeze(-2)
        # the three transforms are not normalised; each needs a factor 1/√D
        scale = self.block_size**-1.5 * self.lengths
        for d in self.diagonals.to(x.dtype).flip(-2).unbind(-2):
            y = fast_hadamard(y * d.unsqueeze(1))
        return y.flatten(-2)[..., : self.num_features] * scale.to(x.dtype).unsqueeze(1)


class SimplexHadamardProjection(HadamardProjection):
    r"""Simplex rows from Hadamard matrices: the first entry of :math:`D_1` is 0.

    The matrices H and :math:`D_1, D_2, D_3` of size D × D are those of :class:`HadamardProjection`.
    The first entry of :math:`D_1` multiplies the constant column of H, so the rows of a block,
    before they are multiplied by their lengths, add up to 0. The other entries are
    :math:`\pm\sqrt{D/(D-1)}`. Before the rows are multiplied by their lengths and cut to the d
    channels of a head, any two rows of a block have the inner product :math:`-1/(D-1)`,
    :eq:`eq-simplex-gram`. The cost is that of :class:`HadamardProjection`. For large D the error of
    the estimate tends to that of :class:`~stringlib.attention.dense_projections.SimplexProjection`,
    for every x + y, :eq:`eq-simplex-ratio`. The mean of the estimate is approximately
    :math:`e^{x^\top y}`.

    Source:
        Reid et al. 2023 for the simplex.
    """

    def _draw(self, generator: torch.Generator | None) -> tuple[Tensor, ...]:
        diagonals, lengths = super()._draw(generator)
        if self.block_size > 1:
            diagonals[..., 0, :] *= simplex_scale(self.block_size)
            diagonals[..., 0, 0] = 0
        return diagonals, lengths


class CirculantProjection(Projection):
    r"""Circulant rows with signs, :math:`W = \mathrm{circ}(r)\,\mathrm{diag}(s)`.

    The first column r of the circulant matrix is Gaussian, and s are random signs,
    :eq:`eq-circulant-projection`. Every row is exactly Gaussian, so the estimate of
    :math:`e^{x^\top y}` is unbiased. But all d rows of a circulant block consist of the same d
    numbers up to signs. So these rows have the same length and are dependent, which changes the
    error, :eq:`eq-circulant-variance`.

    With ``learnable``, r is a parameter. After a step of training the rows are no longer Gaussian,
    and :math:`\phi(x)^\top\phi(y)` no longer estimates :math:`e^{x^\top y}`.

    Attributes:
        column: The first column r of the circulant matrix of each block, ``(heads, blocks, d)``.
        signs: The signs s, ``(heads, blocks, d)``.

    Source:
        Yu et al. 2014, circulant binary embedding, equation 3.
    """

    column: Tensor
    signs: Tensor
    parts: tuple[str, ...] = ("column", "signs")

    def _draw(self, generator: torch.Generator | None) -> tuple[Tensor, ...]:
        shape = self.heads, self.blocks, self.head_dim
        return torch.randn(shape, generator=generator, dtype=drawn_dtype()), random_signs(
            shape, generator
        )

    def matrix(self) -> Tensor:
        """Return the random matrix W of each head, ``(heads, num_features, head_dim)``."""
        rows = circulant(self._column()) * self.signs.unsqueeze(-2)
        return rows.flatten(1, 2)[:, : self.num_features]

    def _column(self) -> Tensor:
        """Return the first column of the circulant matrix of each block, ``(heads, blocks, d)``."""
        return self.column

    def _spectrum(self, dtype: torch.dtype) -> Tensor:
        """Return the Fourier transform of the first column, ``(heads, blocks, d // 2 + 1)``."""
        return torch.fft.rfft(self.column.to(dtype))

    def product(self, x: Tensor) -> Tensor:
        """Return the product Wx for ``x`` in float32 or float64, by the FFT if that is faster."""
        # the ONNX exporter cannot convert most operations on the complex spectrum
        if torch.compiler.is_exporting() or not _is_faster(self, "fft"):
            return super().product(x)
        return self._convolve(x)

    def _convolve(self, x: Tensor) -> Tensor:
        """Return Wx, computed by FFT as the first m entries of circ(r)(s ⊙ x) of all blocks.

        r is the first column of the circulant matrix of a block, and s are its signs.
        """
        signed = x.unsqueeze(-2) * self.signs.to(x.dtype).unsqueeze(1)
        y = circular_convolution(signed, self._spectrum(x.dtype).unsqueeze(1)).flatten(-2)
        rows = y[..., : self.num_features]
        # the feature map changes these rows in place; as a view, they would cost six copies in the
        # backward pass
        return rows.clone() if y.requires_grad else rows.contiguous()


class UnitCirculantProjection(CirculantProjection):
    r"""Orthogonal circulant rows with signs: the spectrum has modulus 1, :eq:`eq-unit-circulant`.

    The Fourier transform of the first column r is :math:`e^{\mathrm i\theta_j}` with random phases
    :math:`\theta_j`. At j = 0 and, for even d, at j = d/2 the transform is a random sign. So the
    circulant matrix circ(r) is orthogonal. This matrix has the distribution of the orthogonal
    matrix that is nearest to a circulant matrix with a Gaussian column,
    :eq:`eq-nearest-circulant`. Every row is multiplied by an independent random factor with the
    distribution :math:`\chi_d`.

    A product costs as much as with a :class:`CirculantProjection`. For large d the error of the
    estimate tends to that of orthogonal features, if no channel of :math:`z = x + y` dominates. For
    small heads, or if few channels dominate, the error may be larger than that of independent rows.
    For example, if only one channel of z is not 0, the error is 1.25 times as large for
    :math:`\|z\|^2 = 2` and d = 16, and 1.44 times as large for :math:`\|z\|^2 = 4` and d = 64. The
    mean of the estimate is approximately :math:`e^{x^\top y}`, :eq:`eq-structured-bias`.

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
        phases = 2 * math.pi * torch.rand(shape, generator=generator, dtype=drawn_dtype())
        ends = self._ends(phases.device)
        phases = torch.where(ends, math.pi * (phases > math.pi).to(phases.dtype), phases)
        signs = random_signs((self.heads, self.blocks, self.head_dim), generator)
        return phases, signs, lengths_of_rows(self, self.head_dim, generator)

    def matrix(self) -> Tensor:
        """Return the random matrix W of each head, ``(heads, num_features, head_dim)``."""
        return super().matrix() * self.lengths.unsqueeze(-1)

    def _ends(self, device: torch.device) -> Tensor:
        """Return True where the Fourier transform of a real column is real, at 0 and at d/2."""
        return 2 * torch.arange(self.head_dim // 2 + 1, device=device) % self.head_dim == 0

    def _column(self) -> Tensor:
        spectrum = self._spectrum(at_least_float32(self.phases.dtype))
        return torch.fft.irfft(spectrum, n=self.head_dim)

    def _spectrum(self, dtype: torch.dtype) -> Tensor:
        phases = self.phases.to(dtype)
        ends = self._ends(phases.device)
        real = torch.where(ends, phases.cos().sign(), phases.cos())
        return torch.complex(real, phases.sin().masked_fill(ends, 0))

    def _convolve(self, x: Tensor) -> Tensor:
        return super()._convolve(x) * self.lengths.to(x.dtype).unsqueeze(1)


class SimplexCirculantProjection(UnitCirculantProjection):
    r"""Simplex rows from circulant matrices with signs, :eq:`eq-simplex-circulant`.

    The spectrum of the first column is 0 at frequency index 0, so that the rows of a block, before
    they are multiplied by their lengths, add up to 0. At the other indices the spectrum has random
    phases and the modulus :math:`\sqrt{d/(d-1)}`. Any two of these rows have the inner product
    :math:`-1/(d-1)`, :eq:`eq-simplex-gram`. The cost is that of :class:`UnitCirculantProjection`.
    For large d and m = d rows, the relative mean squared error is smaller than for
    :class:`UnitCirculantProjection` by :math:`\zeta/d` with :math:`\zeta = \|x+y\|^2`,
    :eq:`eq-simplex-error`. The mean of the estimate is approximately :math:`e^{x^\top y}`.

    With ``learnable``, the phases are a parameter, and the rows without lengths remain a regular
    simplex.

    Source:
        Reid et al. 2023 for dense simplex rows. We know of no earlier source for the spectrum.
    """

    def _spectrum(self, dtype: torch.dtype) -> Tensor:
        spectrum = super()._spectrum(dtype)
        if self.head_dim == 1:
            return spectrum
        others = torch.arange(spectrum.shape[-1], device=spectrum.device) > 0
        # a product, because ONNX cannot replace entries of a complex tensor
        return simplex_scale(self.head_dim) * spectrum * others


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
"""Random projections for FAVOR+ by name.

Each value is a subclass of :class:`~stringlib.attention.dense_projections.Projection`.
"""


def _is_faster(projection: Projection, transform: str) -> bool:
    """Return whether the fast transform is expected to be faster than the matrix product.

    Args:
        projection: The projection.
        transform: A key of ``FEWEST_ROWS``, ``"fft"`` or ``"hadamard"``.
    """
    return min(projection.num_features, projection.block_size) >= FEWEST_ROWS[transform]
