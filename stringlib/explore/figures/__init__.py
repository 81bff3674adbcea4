"""The book's moving figures, as plain functions from parameters to a plotly figure.

Each comes with a function that puts its current state into words, for the
alternative text: ``Explorer(phase_clocks, alt=phase_clocks_text, ...)``.
"""

from stringlib.explore.figures.biases import bias_curves, bias_curves_text
from stringlib.explore.figures.clocks import intro_figure, phase_clocks, phase_clocks_text
from stringlib.explore.figures.correlation import (
    CIRCULANT_SIGNS,
    CIRCULANT_VECTORS,
    row_correlation,
    row_correlation_text,
)
from stringlib.explore.figures.decay import decay_curves, decay_curves_text
from stringlib.explore.figures.favor import FAVOR_KINDS, favor_error, favor_error_text
from stringlib.explore.figures.gating import gated_query, gated_query_text
from stringlib.explore.figures.grid import GRID_ENCODERS, grid_kernel, grid_kernel_text
from stringlib.explore.figures.ladder import encoding_cost, encoding_cost_text
from stringlib.explore.figures.lengths import (
    LENGTH_METHODS,
    beyond_training,
    beyond_training_text,
)
from stringlib.explore.figures.memory import decay_memory, decay_memory_text
from stringlib.explore.figures.mirrors import two_mirrors, two_mirrors_text
from stringlib.explore.figures.nearness import nearest_tokens, nearest_tokens_text
from stringlib.explore.figures.permutation import POSITIONS, permuted_words, permuted_words_text
from stringlib.explore.figures.places import (
    KERNEL_FEATURES,
    shifted_kernels,
    shifted_kernels_text,
)
from stringlib.explore.figures.ptolemy import ptolemy_circle, ptolemy_circle_text
from stringlib.explore.figures.recall import recalled_value, recalled_value_text
from stringlib.explore.figures.resolution import (
    RESOLUTION_CONVENTIONS,
    resolution_scores,
    resolution_scores_text,
)
from stringlib.explore.figures.shifts import shifted_scores, shifted_scores_text
from stringlib.explore.figures.spectrum import circulant_spectrum, circulant_spectrum_text
from stringlib.explore.figures.speed import (
    attention_times,
    attention_times_text,
    attention_work,
)
from stringlib.explore.figures.states import three_forms, three_forms_text
from stringlib.explore.figures.toeplitz import (
    toeplitz_circulant,
    toeplitz_circulant_text,
    toeplitz_operations,
)
from stringlib.explore.figures.volume import volume_kernel, volume_kernel_text
from stringlib.explore.figures.walks import sphere_walks, sphere_walks_text

__all__ = [
    "CIRCULANT_SIGNS",
    "CIRCULANT_VECTORS",
    "FAVOR_KINDS",
    "GRID_ENCODERS",
    "KERNEL_FEATURES",
    "LENGTH_METHODS",
    "POSITIONS",
    "RESOLUTION_CONVENTIONS",
    "attention_times",
    "attention_times_text",
    "attention_work",
    "beyond_training",
    "beyond_training_text",
    "bias_curves",
    "bias_curves_text",
    "circulant_spectrum",
    "circulant_spectrum_text",
    "decay_curves",
    "decay_curves_text",
    "decay_memory",
    "decay_memory_text",
    "encoding_cost",
    "encoding_cost_text",
    "favor_error",
    "favor_error_text",
    "gated_query",
    "gated_query_text",
    "grid_kernel",
    "grid_kernel_text",
    "intro_figure",
    "nearest_tokens",
    "nearest_tokens_text",
    "permuted_words",
    "permuted_words_text",
    "phase_clocks",
    "phase_clocks_text",
    "ptolemy_circle",
    "ptolemy_circle_text",
    "recalled_value",
    "recalled_value_text",
    "resolution_scores",
    "resolution_scores_text",
    "row_correlation",
    "row_correlation_text",
    "shifted_kernels",
    "shifted_kernels_text",
    "shifted_scores",
    "shifted_scores_text",
    "sphere_walks",
    "sphere_walks_text",
    "three_forms",
    "three_forms_text",
    "toeplitz_circulant",
    "toeplitz_circulant_text",
    "toeplitz_operations",
    "two_mirrors",
    "two_mirrors_text",
    "volume_kernel",
    "volume_kernel_text",
]
