r"""The random matrices W of FAVOR+: how each is drawn, and how it is multiplied fast.

Every row :math:`\omega` has, exactly or nearly, the law :math:`\mathcal N(0, I_d)`. The kinds
differ in how rows depend on each other, which sets the variance, and in what a product costs. More
rows than a block can have are stacked as independent blocks; fewer are the first rows of one.
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

# A fast transform costs the same for few rows of a block as for all, a product only what is asked
# for. Medians on two CPU cores, float32, with gradients, transform / product for m = d, 1 and 2
# threads. FFT, the products alone, 2 million numbers: d = 128 1.3 and 1.3, 192 0.9 and 0.9, 256 0.7
# and 0.7, 512 0.4 and 0.4; FAVOR+'s map as a whole on another processor, CPU time: d = 96 1.0 and
# 1.0, 128 0.8 and 0.9, 192 0.7 and 0.8, 256 0.6 and 0.6. Three Hadamards, CPU time on 1 thread:
# d = 256 2.6, 512 1.5, 1024 0.6; forward 1.7, 0.7, 0.5.
FEWEST_ROWS = {"fft": 192, "hadamard": 1024}


class Projection(nn.Module):
    r"""Base of all projections: a random W of shape ``(heads, num_features, head_dim)``.

    Called on ``x (..., heads, n, head_dim)``, it returns :math:`Wx` for each token,
    ``(..., heads, n, num_features)``, in float32 or float64. ``heads=1`` serves any number of
    heads.

    Args:
        head_dim: Number of channels d.
        num_features: Number m of rows of W.
        heads: Heads with rows of their own.
        learnable: Whether the numbers that were drawn, all but signs and lengths, are parameters.
        generator: Source of randomness; the global one if omitted.
    """

    parts: tuple[str, ...] = ()
    """The tensors that ``_draw`` returns, by name; the first is what can be learned."""

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
        """The largest number of rows that depend on each other."""
        return self.head_dim

    @torch.no_grad()
    @checked
    def redraw(self, generator: torch.Generator | None = None) -> None:
        """Draw W afresh, in place; the generator may live on another device."""
        for name, value in zip(self.parts, self._drawn(generator), strict=True):
            getattr(self, name).copy_(value)

    def matrix(self) -> Tensor:
        """Return W, ``(heads, num_features, head_dim)``."""
        raise NotImplementedError

    @checked
    def forward(self, x: Floats[Tensor, "... heads n self.head_dim"]) -> Tensor:
        """Return Wx for each token: float64 for float64 ``x``, float32 for all others."""
        require_heads("x", x, self.heads)
        return self.product(x if x.dtype == torch.float64 else x.float())

    def extra_repr(self) -> str:
        """Describe the shapes in ``repr``."""
        return f"{self.head_dim}, {self.num_features}, heads={self.heads}"

    def _draw(self, generator: torch.Generator | None) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def product(self, x: Tensor) -> Tensor:
        """Return Wx for float32 or float64 ``x``, unchecked."""
        weight = self.matrix().to(x.dtype)
        # one product for the whole batch, where one W serves all heads
        return x @ (weight[0] if self.heads == 1 else weight).mT

    def _drawn(self, generator: torch.Generator | None) -> tuple[Tensor, ...]:
        with nullcontext() if generator is None else generator.device:
            return self._draw(generator)

    def _pays(self, transform: str) -> bool:
        return min(self.num_features, self.block_size) >= FEWEST_ROWS[transform]


class IidProjection(Projection):
    """Independent Gaussian rows: the reference for all others."""

    weight: Tensor
    parts: tuple[str, ...] = ("weight",)

    def _draw(self, generator: torch.Generator | None) -> tuple[Tensor, ...]:
        shape = self.heads, self.num_features, self.head_dim
        return (torch.randn(shape, generator=generator),)

    def matrix(self) -> Tensor:
        """Return W, ``(heads, num_features, head_dim)``."""
        return self.weight


class OrthogonalProjection(IidProjection):
    r"""Rows of Haar orthogonal matrices, each times a length of its own from :math:`\chi_d`.

    A row is exactly Gaussian; rows of a block are orthogonal.

    Source:
        Yu et al. 2016, orthogonal random features.
    """

    def _draw(self, generator: torch.Generator | None) -> tuple[Tensor, ...]:
        blocks = haar_orthogonal(self.head_dim, self.heads, self.blocks, generator=generator)
        rows = blocks.flatten(1, 2)[:, : self.num_features]
        return (rows * _lengths(self, self.head_dim, generator).unsqueeze(-1),)


class SimplexProjection(OrthogonalProjection):
    r"""Rows that point to the corners of a regular simplex, turned at random.

    A block of d directions has its mean taken out, and the rest made of length 1 again: any two
    have the product :math:`-1/(d-1)`, :eq:`eq-simplex-gram`. Every row is exactly Gaussian, as of
    :class:`OrthogonalProjection`, so the estimate is unbiased; its error is the least of all
    couplings of directions alone. A block of one row is that row.

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
    r"""Rows of :math:`H D_1 H D_2 H D_3`, equation :eq:`eq-hadamard-projection`.

    H is the orthonormal Hadamard matrix, each :math:`D_i` a diagonal of random signs, and every row
    has a length of its own from :math:`\chi_D`. Sylvester's H exists for powers of 2: other sizes
    are padded by zeros to the next, D; then rows of a block are the first d channels of orthogonal
    ones, and D of them fit into a block. Only signs are drawn, so the mean is not exactly
    :math:`e^{x^\top y}`, but nearly, :eq:`eq-structured-bias`. For large D the error tends to that
    of orthogonal features, whatever x + y is, :eq:`eq-unit-ratio`.

    Learnable are the three diagonals.

    Source:
        Yu et al. 2016, structured orthogonal random features, there with equal lengths
        :math:`\sqrt d`, which adds a bias of its own.
    """

    diagonals: Tensor
    lengths: Tensor
    parts: tuple[str, ...] = ("diagonals", "lengths")

    @property
    def block_size(self) -> int:
        """The largest number of rows that depend on each other, a power of 2."""
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
        """Return Wx, by the transform where it pays."""
        if not self._pays("hadamard"):
            return super().product(x)
        y = nn.functional.pad(x, (0, self.block_size - self.head_dim)).unsqueeze(-2)
        # each of the three transforms leaves out its 1/√D
        scale = self.block_size**-1.5 * self.lengths
        for d in self.diagonals.to(x.dtype).flip(-2).unbind(-2):
            y = fast_hadamard(y * d.unsqueeze(1))
        return y.flatten(-2)[..., : self.num_features] * scale.to(x.dtype).unsqueeze(1)


class SimplexHadamardProjection(HadamardProjection):
    r"""Hadamard rows of a regular simplex: the first entry of :math:`D_1` is 0.

    It stands before the constant column of H, so the mean of a block's rows is 0; the other
    entries are :math:`\pm\sqrt{D/(D-1)}`. Before lengths, D rows of a block have the products
    :math:`-1/(D-1)`, :eq:`eq-simplex-gram`, at the price of orthogonal ones. For large D the error
    tends to that of dense simplex rows, whatever x + y is, :eq:`eq-simplex-ratio`; the mean is
    nearly :math:`e^{x^\top y}`, as of orthogonal ones.

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
    r"""Rows of :math:`\mathrm{circ}(r)\,\mathrm{diag}(s)`, equation :eq:`eq-circulant-projection`.

    The first column r is Gaussian, s are random signs. Every row is exactly Gaussian, so the
    estimate is unbiased, but all rows of a block are made of the same d numbers: they have one
    length, and depend on each other, :eq:`eq-circulant-variance`.

    Learnable is r. After a step of training the rows are no longer Gaussian and
    :math:`\phi(x)^\top\phi(y)` no longer estimates :math:`e^{x^\top y}`.

    Attributes:
        column: r, ``(heads, blocks, d)``.
        signs: s, ``(heads, blocks, d)``.

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
        """Return Wx, by the transform where it pays."""
        if not self._pays("fft"):
            return super().product(x)
        return self._convolve(x)

    def _convolve(self, x: Tensor) -> Tensor:
        """Return the first m entries of circ(r)(s ⊙ x) for all blocks."""
        signed = x.unsqueeze(-2) * self.signs.to(x.dtype).unsqueeze(1)
        y = circular_convolution(signed, self._spectrum(x.dtype).unsqueeze(1)).flatten(-2)
        rows = y[..., : self.num_features]
        # where it is changed in place, the gradient of a view is six copies
        return rows.clone() if y.requires_grad else rows.contiguous()


class UnitCirculantProjection(CirculantProjection):
    r"""Signed circulant rows with a spectrum of modulus 1, :eq:`eq-unit-circulant`.

    The Fourier transform of the first column has random phases :math:`e^{\mathrm i\theta_j}`, real
    signs at j = 0 and d/2, so that circ(r) is orthogonal: the orthogonal circulant that is nearest
    to one of a Gaussian column, :eq:`eq-nearest-circulant`. Each row then has a length of its own
    from :math:`\chi_d`. For large d, and a :math:`z = x + y` in which no channel dominates, the
    error tends to that of orthogonal features, at the price of circulant ones. It may be larger
    than that of independent rows for small heads, and where few channels count: 1.25 times for one
    channel with :math:`\|z\|^2 = 2` at d = 16, 1.44 times with 4 at d = 64.
    The mean is not exactly :math:`e^{x^\top y}`, but nearly, :eq:`eq-structured-bias`.

    Learnable are the phases, but for the signs at both ends, so that circ(r) stays orthogonal.

    Attributes:
        phases: :math:`\theta`, ``(heads, blocks, d // 2 + 1)``.
        signs: s, ``(heads, blocks, d)``.
        lengths: Of the rows, ``(heads, m)``.

    Source:
        Romberg 2009 for the circulant: random convolution.
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
        """Tell where the Fourier transform of a real column is real: at 0 and d/2."""
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
    r"""Signed circulant rows of a regular simplex, :eq:`eq-simplex-circulant`.

    A unit-modulus circulant whose spectrum is 0 at j = 0, so that the mean of its rows is 0, and
    :math:`\sqrt{d/(d-1)}` in modulus elsewhere. Before lengths any two rows of a block have the
    product :math:`-1/(d-1)`, :eq:`eq-simplex-gram`, at the price of unit-modulus ones. For large d
    the error is less than theirs by :math:`\zeta/d` with :math:`\zeta = \|x+y\|^2`,
    :eq:`eq-simplex-error`; the mean is nearly :math:`e^{x^\top y}`, as theirs.

    Learnable are the phases; rows stay a simplex.

    Source:
        Reid et al. 2023 for the simplex, there dense; this book for the spectrum.
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
"""Name of a projection → its class."""


def _signs(shape: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
    bits = torch.randint(0, 2, shape, generator=generator)
    return (2 * bits - 1).to(torch.get_default_dtype())


def _simplex_scale(size: int) -> float:
    """Return what makes unit vectors less their mean, 1/size of a square, unit vectors again."""
    return math.sqrt(size / (size - 1))


def _lengths(projection: Projection, size: int, generator: torch.Generator | None) -> Tensor:
    """Draw the length of each row from χ with ``size`` degrees of freedom: ``(heads, m)``."""
    shape = projection.heads, projection.num_features, size
    return torch.randn(shape, generator=generator).norm(dim=-1)
