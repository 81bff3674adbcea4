"""Functions for skew-symmetric, circulant, Toeplitz, Hadamard and random orthogonal matrices.

:func:`~stringlib.algebra.universality.universal_form` finds the common planes of
commuting skew-symmetric matrices.
"""

from stringlib.algebra.circulant import (
    circulant,
    circulant_eigenvalues,
    circulant_frequencies,
    fourier_basis,
    nearest_orthogonal_circulant,
)
from stringlib.algebra.haar import haar_orthogonal
from stringlib.algebra.hadamard import fast_hadamard, hadamard
from stringlib.algebra.skew import (
    cayley,
    connected_parts,
    layout_permutation,
    pair_channels,
    planar_skew,
    skew,
    sparse_skew,
    upper_support,
)
from stringlib.algebra.toeplitz import toeplitz, toeplitz_product
from stringlib.algebra.universality import universal_form
from stringlib.kernels.fft import circular_convolution

__all__ = [
    "cayley",
    "circulant",
    "circulant_eigenvalues",
    "circulant_frequencies",
    "circular_convolution",
    "connected_parts",
    "fast_hadamard",
    "fourier_basis",
    "haar_orthogonal",
    "hadamard",
    "layout_permutation",
    "nearest_orthogonal_circulant",
    "pair_channels",
    "planar_skew",
    "skew",
    "sparse_skew",
    "toeplitz",
    "toeplitz_product",
    "universal_form",
    "upper_support",
]
