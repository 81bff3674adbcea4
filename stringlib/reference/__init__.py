"""Literal float64 twins of the published algorithms: slow, plain, and independent.

They follow the printed formulas line by line and share no code with the rest of the package,
nor with each other, so that a mistake cannot hide in a common helper.
"""

from stringlib.reference.absolute import add_rows
from stringlib.reference.attention import softmax_attention
from stringlib.reference.axial import apply_axial_rope
from stringlib.reference.bias import (
    alibi_bias,
    alibi_slopes,
    kerple_log_bias,
    kerple_power_bias,
    t5_bias,
    t5_bucket,
)
from stringlib.reference.cayley import (
    build_skew_symmetric,
    build_sparse_skew_symmetric,
    cayley_after_rope,
    cayley_apply,
    cayley_before_split,
    cayley_string,
    make_sparse_mask,
)
from stringlib.reference.circulant import (
    circulant_string_matrix,
    circulant_string_rotate,
    get_eigenvalues,
    parseval_logits,
)
from stringlib.reference.circulant_favor import (
    circulant_favor_features,
    circulant_gradient,
    circulant_project,
    circulant_projection_matrix,
    hadamard_projection_matrix,
    unit_circulant_column,
)
from stringlib.reference.cosformer import cosformer, cosine_attention
from stringlib.reference.favor import (
    hyperbolic_features,
    positive_features,
    trigonometric_features,
)
from stringlib.reference.gated import c_cosgate, circulant_features, gate
from stringlib.reference.grid import get_2d_positions
from stringlib.reference.liere import liere_first_error, liere_matrix
from stringlib.reference.linear import linear_attention, recurrent_attention, state_space
from stringlib.reference.mixed import apply_mixed_rope, mixed_start
from stringlib.reference.reflection import apply_reflection_rope, householder_2d
from stringlib.reference.roformer_linear import roformer_linear_attention
from stringlib.reference.rope import apply_rope, rope_matrix
from stringlib.reference.sinusoidal import sinusoidal_table
from stringlib.reference.state import (
    delta_rule,
    gla_recurrence,
    retnet_recurrence,
    rwkv6_recurrence,
    semiseparable_mask,
    ssd_recurrence,
)
from stringlib.reference.toeplitz import (
    fft_toeplitz_matmul,
    grid_toeplitz_matrix,
    nprf_attention,
    toeplitz_attention,
    toeplitz_matrix,
)

__all__ = [
    "add_rows",
    "alibi_bias",
    "alibi_slopes",
    "apply_axial_rope",
    "apply_mixed_rope",
    "apply_reflection_rope",
    "apply_rope",
    "build_skew_symmetric",
    "build_sparse_skew_symmetric",
    "c_cosgate",
    "cayley_after_rope",
    "cayley_apply",
    "cayley_before_split",
    "cayley_string",
    "circulant_favor_features",
    "circulant_features",
    "circulant_gradient",
    "circulant_project",
    "circulant_projection_matrix",
    "circulant_string_matrix",
    "circulant_string_rotate",
    "cosformer",
    "cosine_attention",
    "delta_rule",
    "fft_toeplitz_matmul",
    "gate",
    "get_2d_positions",
    "get_eigenvalues",
    "gla_recurrence",
    "grid_toeplitz_matrix",
    "hadamard_projection_matrix",
    "householder_2d",
    "hyperbolic_features",
    "kerple_log_bias",
    "kerple_power_bias",
    "liere_first_error",
    "liere_matrix",
    "linear_attention",
    "make_sparse_mask",
    "mixed_start",
    "nprf_attention",
    "parseval_logits",
    "positive_features",
    "recurrent_attention",
    "retnet_recurrence",
    "roformer_linear_attention",
    "rope_matrix",
    "rwkv6_recurrence",
    "semiseparable_mask",
    "sinusoidal_table",
    "softmax_attention",
    "ssd_recurrence",
    "state_space",
    "t5_bias",
    "t5_bucket",
    "toeplitz_attention",
    "toeplitz_matrix",
    "trigonometric_features",
    "unit_circulant_column",
]
