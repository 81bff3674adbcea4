r"""Random matrices W for FAVOR+, with the product Wx: independent, orthogonal and simplex rows.

Every row :math:`\omega` has, exactly or approximately, the distribution :math:`\mathcal N(0, I_d)`.
The projections differ in how rows depend on each other, which determines the variance of the
estimate, and in the cost of the product Wx. Dependent rows form blocks of ``block_size`` rows. If W
has more rows than a block, several independent blocks are stacked. If the last block has more rows
than W needs, only its first rows are used. :mod:`stringlib.attention.projections` contains the
projections with a fast product, and the names of all projections.
"""

from __future__ import annotations

import math
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from stringlib.algebra.haar import haar_orthogonal
from stringlib.inputs import require_heads
from stringlib.precision import at_least_float32
from stringlib.spec import Floats, checked


class Projection(nn.Module):
    r"""Base class of random projections: a random matrix W for each head, and the product Wx.

    Called on ``x`` of shape ``(..., heads, n, head_dim)``, a projection returns :math:`Wx` for each
    token, ``(..., heads, n, num_features)``, in float32 or float64.

    Args:
        head_dim: Number of channels d of a head.
        num_features: Number m of rows of W.
        heads: Number of heads, each with a W of its own. With 1 (default) any number of heads
            share one W.
        learnable: If True, the first of the tensors from which W is computed, see :attr:`parts`, is
            a parameter. If False (default), all of these tensors are buffers.
        generator: Random generator. Default: the global generator.
    """

    parts: tuple[str, ...] = ()
    """Names of the tensors from which W is computed, in the order in which ``_draw`` returns them.

    With ``learnable`` the first of these tensors is a parameter.
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
        """Number of rows of a full block of W; only rows of one block may be dependent."""
        return self.head_dim

    @torch.no_grad()
    @checked
    def redraw(self, generator: torch.Generator | None = None) -> None:
        """Resample the random matrix W in place.

        Args:
            generator: Random generator, which may be on another device than the module. Default:
                the global generator.
        """
        for name, value in zip(self.parts, self._drawn(generator), strict=True):
            getattr(self, name).copy_(value)

    def matrix(self) -> Tensor:
        """Return the random matrix W of each head, ``(heads, num_features, head_dim)``."""
        raise NotImplementedError(f"{type(self).__name__} must define matrix()")

    @checked
    def forward(self, x: Floats[Tensor, "... heads n self.head_dim"]) -> Tensor:
        """Return the product Wx for each token, in float64 if ``x`` is float64, else in float32."""
        require_heads("x", x, self.heads)
        return self.product(x if x.dtype == torch.float64 else x.float())

    def extra_repr(self) -> str:
        """Return the arguments that ``repr`` shows."""
        return f"{self.head_dim}, {self.num_features}, heads={self.heads}"

    def _draw(self, generator: torch.Generator | None) -> tuple[Tensor, ...]:
        """Return new random tensors in the order of ``parts``, on the device of the generator."""
        raise NotImplementedError(f"{type(self).__name__} must define _draw(generator)")

    def product(self, x: Tensor) -> Tensor:
        """Return the product Wx for ``x`` in float32 or float64, without checking its shape."""
        weight = self.matrix().to(x.dtype)
        # without a head dimension, if all heads share one W: a single product for the whole batch
        return x @ (weight[0] if self.heads == 1 else weight).mT

    def _drawn(self, generator: torch.Generator | None) -> tuple[Tensor, ...]:
        """Return the result of ``_draw``, with the device of the generator as default device."""
        with nullcontext() if generator is None else generator.device:
            return self._draw(generator)


class IidProjection(Projection):
    """Random matrix with independent Gaussian rows, the baseline for the other projections."""

    weight: Tensor
    parts: tuple[str, ...] = ("weight",)

    def _draw(self, generator: torch.Generator | None) -> tuple[Tensor, ...]:
        shape = self.heads, self.num_features, self.head_dim
        return (torch.randn(shape, generator=generator, dtype=drawn_dtype()),)

    def matrix(self) -> Tensor:
        """Return the random matrix W of each head, ``(heads, num_features, head_dim)``."""
        return self.weight


class OrthogonalProjection(IidProjection):
    r"""Orthogonal rows: the rows of Haar random orthogonal d × d matrices, with random lengths.

    Here d is the number of channels. The lengths are independent and have the distribution
    :math:`\chi_d`. Every row is exactly Gaussian. Rows of the same block of d rows are orthogonal,
    and rows of different blocks are independent.

    Source:
        Yu et al. 2016, orthogonal random features.
    """

    def _draw(self, generator: torch.Generator | None) -> tuple[Tensor, ...]:
        rows = self._directions(generator).flatten(1, 2)[:, : self.num_features]
        return (rows * lengths_of_rows(self, self.head_dim, generator).unsqueeze(-1),)

    def _directions(self, generator: torch.Generator | None) -> Tensor:
        """Return the rows of all blocks before they get lengths, ``(heads, blocks, d, d)``."""
        sizes = self.head_dim, self.heads, self.blocks
        return haar_orthogonal(*sizes, generator=generator, dtype=drawn_dtype())


class SimplexProjection(OrthogonalProjection):
    r"""Simplex rows: their directions point to the corners of a randomly rotated regular simplex.

    Let d be the number of channels. The directions of a block of d rows are d orthogonal unit
    vectors from which their mean is subtracted, scaled to length 1 again. Any two of these
    directions have the inner product :math:`-1/(d-1)`, :eq:`eq-simplex-gram`. Every row is exactly
    Gaussian, like the rows of :class:`OrthogonalProjection`, so the estimate of
    :math:`e^{x^\top y}` is unbiased. For a full block with independent lengths, no other joint
    distribution of the directions gives a smaller error. For d = 1 a row is a Gaussian number.

    Source:
        Reid et al. 2023, simplex random features.
    """

    def _directions(self, generator: torch.Generator | None) -> Tensor:
        blocks = super()._directions(generator)
        if self.head_dim == 1:
            return blocks
        return simplex_scale(self.head_dim) * (blocks - blocks.mean(-2, keepdim=True))


def drawn_dtype() -> torch.dtype:
    """Return the dtype of random numbers: the default dtype, but at least float32."""
    return at_least_float32(torch.get_default_dtype())


def random_signs(shape: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
    """Return a tensor of random signs, 1 or −1, of the given shape."""
    return (2 * torch.randint(0, 2, shape, generator=generator) - 1).to(drawn_dtype())


def simplex_scale(size: int) -> float:
    """Return the factor that restores length 1 after orthogonal unit vectors lose their mean.

    Args:
        size: Number of the vectors, at least 2.
    """
    return math.sqrt(size / (size - 1))


def lengths_of_rows(projection: Projection, size: int, generator: torch.Generator | None) -> Tensor:
    """Return random lengths of all rows of a projection, ``(heads, num_features)``.

    Args:
        projection: The projection.
        size: Number of degrees of freedom of the χ distribution of the lengths.
        generator: Random generator, or None for the global generator.
    """
    shape = projection.heads, projection.num_features, size
    return torch.randn(shape, generator=generator, dtype=drawn_dtype()).norm(dim=-1)
