"""Literal float64 twins of the published algorithms: slow, plain, and independent.

They follow the printed formulas line by line and share no code with the rest of the package,
nor with each other, so that a mistake cannot hide in a common helper.
"""

from stringlib.reference.axial import apply_axial_rope
from stringlib.reference.circulant import (
    circulant_string_matrix,
    circulant_string_rotate,
    get_eigenvalues,
    parseval_logits,
)
from stringlib.reference.grid import get_2d_positions
from stringlib.reference.mixed import apply_mixed_rope, mixed_start
from stringlib.reference.reflection import apply_reflection_rope, householder_2d
from stringlib.reference.rope import apply_rope, rope_matrix
from stringlib.reference.sinusoidal import sinusoidal_table

__all__ = [
    "apply_axial_rope",
    "apply_mixed_rope",
    "apply_reflection_rope",
    "apply_rope",
    "circulant_string_matrix",
    "circulant_string_rotate",
    "get_2d_positions",
    "get_eigenvalues",
    "householder_2d",
    "mixed_start",
    "parseval_logits",
    "rope_matrix",
    "sinusoidal_table",
]
