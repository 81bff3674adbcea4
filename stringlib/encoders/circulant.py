"""Circulant-STRING: a fixed real Fourier basis, frequencies learned through circulant matrices."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stringlib.algebra.circulant import circulant_frequencies, fourier_basis
from stringlib.by_name import by_name
from stringlib.encoders.string import RotaryEncoder
from stringlib.precision import wide_parameter, widen
from stringlib.spec import checked

# Medians on two CPU cores, 4.8 million numbers in float32, product : rfft, milliseconds.
# Forward, 2 threads: d = 64 7 : 12, 128 8 : 9, 256 13 : 8, 512 22 : 8, 1024 42 : 9.
# With gradients:     d = 64 14 : 62, 128 17 : 54, 256 27 : 58, 512 58 : 61, 1024 89 : 59.
# torch's backward of rfft is slow, so training decides: the product up to 256, rfft above.
LARGEST_PRODUCT = 256


class CirculantSTRING(RotaryEncoder):
    r"""Rotate by :math:`\exp(\sum_k r_k (C_k - C_k^\top))` with learned circulant :math:`C_k`.

    All circulant matrices share their eigenvectors, so the basis is the real Fourier basis
    and the frequencies are :math:`\omega_j = 2 \sum_m c_m \sin(2\pi jm/B)` in every block of
    size B. Equations :eq:`eq-circulant-generator` and :eq:`eq-circulant-frequencies`.
    Of the B coefficients of a block only :math:`\lfloor (B-1)/2 \rfloor` combinations act;
    one channel of a block (two when B is even) never rotates.

    Args:
        head_dim: Number of channels :math:`d` of a head; may be odd.
        coord_dim: Number of coordinates of a position.
        heads: Heads with coefficients of their own; 1 serves any number of heads.
        block_size: Size B of the circulant blocks on the diagonal, a divisor of
            ``head_dim``; one block if omitted.
        zero: Whether all coefficients start at 0. A trained model that gets such an encoder still
            says what it said, and learns from there where to turn.

    Attributes:
        coefficients: The first COLUMN of every C: ``(heads, coord_dim, blocks, block_size)``,
            in radians per unit of position. Starts as small noise: frequencies have a
            standard deviation of 0.1.

    Raises:
        ValueError: If ``block_size`` does not divide ``head_dim``.

    Source:
        Schenck et al. 2025, equation 11 and theorem 3.5.

    Example:
        >>> from stringlib.positions import grid_positions
        >>> encoder = CirculantSTRING(64, coord_dim=2, heads=6, block_size=16)
        >>> q, k = torch.randn(2, 8, 6, 196, 64)
        >>> encoder(q, k, grid_positions(14, 14))[0].shape
        torch.Size([8, 6, 196, 64])
    """

    _basis: Tensor

    @by_name("heads", "block_size")
    @checked
    def __init__(
        self,
        head_dim: int,
        coord_dim: int = 1,
        *,
        heads: int = 1,
        block_size: int | None = None,
        zero: bool = False,
    ) -> None:
        super().__init__(head_dim, coord_dim, heads=heads)
        if block_size is None:
            block_size = head_dim
        self.zero = zero
        self.block_size = int(block_size)
        if head_dim % self.block_size:
            raise ValueError(f"block_size must divide head_dim {head_dim}, got {self.block_size}")
        self.blocks = head_dim // self.block_size
        self.coefficients = wide_parameter(heads, coord_dim, self.blocks, self.block_size)
        self.register_buffer("_basis", self._block_basis(), persistent=False)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Start near the identity. At it data that are alike in reverse order give no gradient.

        The other sign of the coefficients is the mirrored position, :eq:`eq-model-mirror`.
        """
        std = 0.0 if self.zero else 0.1 / math.sqrt(2 * self.block_size)
        self.coefficients.normal_(std=std)

    def frequencies(self) -> Tensor:
        """Return Ω, all pairs of the first block first: float64, ``(heads, pairs, coord_dim)``."""
        return circulant_frequencies(widen(self.coefficients)).flatten(2).mT

    def basis(self) -> Tensor:
        """Return P, the same for every head: float64, ``(heads, head_dim, head_dim)``."""
        return self._basis.expand(self.heads, -1, -1)

    def to_basis(self, x: Tensor, basis: Tensor | None = None) -> Tensor:
        """Return Pᵀx for float32 or float64 ``x``: a product or a real FFT, whichever is faster."""
        if self.head_dim <= LARGEST_PRODUCT or x.numel() == 0:  # MKL has no FFT of nothing
            return x @ (self._basis if basis is None else basis[0]).to(x.dtype)
        return self._rfft(x)

    def from_basis(self, x: Tensor, basis: Tensor | None = None) -> Tensor:
        """Return Px for float32 or float64 ``x``."""
        return x @ (self._basis if basis is None else basis[0]).to(x.dtype).mT

    def extra_repr(self) -> str:
        """Describe the shapes in ``repr``."""
        return f"{super().extra_repr()}, block_size={self.block_size}"

    def _refill(self) -> None:
        """Compute the basis anew."""
        self._basis.copy_(self._block_basis())

    def _basis_of_turns(self) -> Tensor:
        return self._basis[None]  # one for all heads

    def _rfft(self, x: Tensor) -> Tensor:
        """Return Pᵀx by one real FFT a block."""
        pairs = (self.block_size - 1) // 2
        spectrum = torch.fft.rfft(x.unflatten(-1, (self.blocks, self.block_size)), norm="ortho")
        # ⟨f_j, x⟩ − i⟨g_j, x⟩ = √2 X_j; the still channels, j = 0 and B/2, have no partner
        turning = spectrum[..., 1 : pairs + 1] * math.sqrt(2)
        planes = torch.stack([turning.real, -turning.imag], -1)
        still = spectrum.real[..., [0] if self.block_size % 2 else [0, -1]]
        return torch.cat([planes.flatten(-3), still.flatten(-2)], -1)

    def _block_basis(self) -> Tensor:
        """Return P: the planes of all blocks, then the still channels of all blocks."""
        block = fourier_basis(self.block_size)
        turning = 2 * ((self.block_size - 1) // 2)
        eye = torch.eye(self.blocks, dtype=block.dtype)
        parts = block[:, :turning].contiguous(), block[:, turning:].contiguous()
        return torch.cat([torch.kron(eye, part) for part in parts], 1)
