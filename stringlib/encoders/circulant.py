"""Circulant-STRING: the real Fourier basis, with frequencies learned as circulant matrices."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stringlib.algebra.circulant import circulant_frequencies, fourier_basis
from stringlib.by_name import by_name
from stringlib.encoders.rotary import RotaryEncoder
from stringlib.precision import wide_parameter, widen, widest
from stringlib.spec import checked

# Largest head_dim for which Pᵀx is a matrix product; above it, a real FFT computes Pᵀx.
# Median times in milliseconds, product : rfft, for 4.8 million numbers in float32 on two CPU cores:
# Forward, 2 threads: d = 64 7 : 12, 128 8 : 9, 256 13 : 8, 512 22 : 8, 1024 42 : 9.
# With gradients:     d = 64 14 : 62, 128 17 : 54, 256 27 : 58, 512 58 : 61, 1024 89 : 59.
# The limit follows the times with gradients, where the backward of torch's rfft is slow.
LARGEST_PRODUCT = 256


class CirculantSTRING(RotaryEncoder):
    r"""Rotary encoder whose generators are made from learned circulant matrices.

    Position r has the rotation :math:`\exp(\sum_k r_k (C_k - C_k^\top))`, where :math:`C_k` is the
    block-diagonal matrix of circulant blocks for coordinate k. All circulant matrices of one size
    have the same eigenvectors. So the basis is the real Fourier basis. A block of size B whose
    first column is c has the frequencies :math:`\omega_j = 2 \sum_m c_m \sin(2\pi jm/B)`, equations
    :eq:`eq-circulant-generator` and :eq:`eq-circulant-frequencies`. The rotation depends on the B
    coefficients of a block only through the :math:`\lfloor (B-1)/2 \rfloor` differences
    :math:`c_m - c_{B-m}`. In each block one direction (two if B is even) never rotates.

    Args:
        head_dim: Number of channels :math:`d` of a head; may be odd.
        coord_dim: Number of coordinates of a position. Default: 1.
        heads: Number of heads, each with its own coefficients. With 1 (default), any number of
            heads share them.
        block_size: Size B of the circulant blocks on the diagonal; must divide ``head_dim``.
            Default: ``head_dim``, which means one block.
        zero: If True, all coefficients are initially 0, so that every rotation R(r) is the
            identity. Then adding the encoder to a trained model changes the outputs of the model
            only by rounding, and fine-tuning can learn the rotation. If False (default), the
            coefficients are small random numbers.

    Attributes:
        coefficients: The first COLUMN of every circulant block,
            ``(heads, coord_dim, blocks, block_size)``, in radians per unit of position. Unless
            ``zero``, the initial frequencies have a standard deviation of 0.1.

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
        """Draw small random coefficients, or set all coefficients to 0 if ``zero``.

        Changing the sign of the coefficients has the same effect as changing the sign of the
        positions, :eq:`eq-model-mirror`. Suppose that the data contain, for each input, a copy with
        reversed positions and the same target (for example mirrored images). Then the loss is an
        even function of the coefficients, so that its gradient is 0 where all coefficients are 0.
        Random coefficients avoid this point.
        """
        std = 0.0 if self.zero else 0.1 / math.sqrt(2 * self.block_size)
        self.coefficients.normal_(std=std)

    def frequencies(self) -> Tensor:
        """Return the frequencies Ω, block by block, float64, ``(heads, pairs, coord_dim)``."""
        return circulant_frequencies(widen(self.coefficients)).flatten(2).mT

    def basis(self) -> Tensor:
        """Return the basis P, the same for every head, float64, ``(heads, head_dim, head_dim)``.

        P is stored in a buffer. If a wrapper casts buffers, such as FSDP with
        ``buffer_dtype=torch.bfloat16``, P is computed again in each call, because the stored matrix
        is rounded.
        """
        return self._shared_basis().expand(self.heads, -1, -1)

    def to_basis(self, x: Tensor, basis: Tensor | None = None) -> Tensor:
        """Return Pᵀx, the coordinates of ``x`` in the basis.

        For ``head_dim`` up to 256, Pᵀx is computed by a matrix product. For a larger ``head_dim``,
        it is computed by a real FFT of each block.

        Args:
            x: Vectors in float32 or float64, ``(..., heads, seq, head_dim)``.
            basis: The basis P, if it is already computed. Default: ``self.basis()``.
        """
        if self.head_dim <= LARGEST_PRODUCT or x.numel() == 0:  # MKL's FFT fails if x is empty
            return x @ (self._shared_basis() if basis is None else basis[0]).to(x.dtype)
        return self._rfft(x)

    def from_basis(self, x: Tensor, basis: Tensor | None = None) -> Tensor:
        """Return Px, the vectors with the coordinates ``x`` in the basis.

        Args:
            x: Coordinates in float32 or float64, ``(..., heads, seq, head_dim)``.
            basis: The basis P, if it is already computed. Default: ``self.basis()``.
        """
        return x @ (self._shared_basis() if basis is None else basis[0]).to(x.dtype).mT

    def extra_repr(self) -> str:
        """Return the arguments that ``repr`` shows."""
        return f"{super().extra_repr()}, block_size={self.block_size}"

    def reset_non_persistent_buffers(self) -> None:
        """Compute the basis again."""
        self._basis.copy_(self._block_basis())

    def _own_basis(self) -> Tensor:
        return self._shared_basis()[None]

    def _shared_basis(self) -> Tensor:
        """Return the basis P, which all heads share, ``(head_dim, head_dim)``."""
        stored = self._basis
        if stored.dtype == torch.float64 or stored.dtype == widest(stored.device):
            return stored
        return self._block_basis().to(stored.device, widest(stored.device))

    def _rfft(self, x: Tensor) -> Tensor:
        """Return Pᵀx, the coordinates of ``x`` in the basis, by one real FFT per block."""
        pairs = (self.block_size - 1) // 2
        spectrum = torch.fft.rfft(x.unflatten(-1, (self.blocks, self.block_size)), norm="ortho")
        # ⟨f_j, x⟩ − i⟨g_j, x⟩ = √2 X_j; the non-rotating directions j = 0 and B/2 are not in pairs
        turning = spectrum[..., 1 : pairs + 1] * math.sqrt(2)
        planes = torch.stack([turning.real, -turning.imag], -1)
        still = spectrum.real[..., [0] if self.block_size % 2 else [0, -1]]
        return torch.cat([planes.flatten(-3), still.flatten(-2)], -1)

    def _block_basis(self) -> Tensor:
        """Return the basis: the planes of all blocks, then their non-rotating directions."""
        block = fourier_basis(self.block_size)
        turning = 2 * ((self.block_size - 1) // 2)
        eye = torch.eye(self.blocks, dtype=block.dtype)
        parts = block[:, :turning].contiguous(), block[:, turning:].contiguous()
        return torch.cat([torch.kron(eye, part) for part in parts], 1)
