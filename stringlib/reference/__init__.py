"""Reference implementations of the published algorithms: slow, plain, and independent.

The functions follow the published formulas line by line, in float64 unless their docstring says
otherwise. They share no code with the rest of the package. Otherwise a comparison of a reference
function with the package could not find a mistake in the shared code. Reference functions call each
other for a few common steps, such as the sum over pairs of tokens, the recurrence over tokens, and
the rotation of a pair of channels.
"""

from stringlib.reference.absolute import (
    add_rows,
    sinusoidal_table,
)
from stringlib.reference.attention import (
    c_cosgate,
    gate,
    softmax_attention,
)
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
from stringlib.reference.features import (
    circulant_favor_features,
    circulant_features,
    circulant_gradient,
    circulant_project,
    circulant_projection_matrix,
    hadamard_projection_matrix,
    hyperbolic_features,
    optimal_features,
    positive_features,
    simplex_circulant_column,
    simplex_vertices,
    trigonometric_features,
    unit_circulant_column,
)
from stringlib.reference.linear import (
    cosformer,
    cosine_attention,
    falling_weight,
    linear_attention,
    roformer_linear_attention,
)
from stringlib.reference.rope import (
    apply_axial_rope,
    apply_mixed_rope,
    apply_reflection_rope,
    apply_rope,
    get_2d_positions,
    householder_2d,
    mixed_start,
    rope_matrix,
)
from stringlib.reference.state import (
    delta_rule_recurrence,
    gla_recurrence,
    recurrent_attention,
    retnet_recurrence,
    rwkv6_recurrence,
    semiseparable_mask,
    ssd_recurrence,
    state_space,
)
from stringlib.reference.string import (
    circulant_string_matrix,
    circulant_string_rotate,
    get_eigenvalues,
    liere_first_error,
    liere_matrix,
    parseval_logits,
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
    "delta_rule_recurrence",
    "falling_weight",
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
    "optimal_features",
    "parseval_logits",
    "positive_features",
    "recurrent_attention",
    "retnet_recurrence",
    "roformer_linear_attention",
    "rope_matrix",
    "rwkv6_recurrence",
    "semiseparable_mask",
    "simplex_circulant_column",
    "simplex_vertices",
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
