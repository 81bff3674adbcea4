"""Every figure of the book at a few states: drawn here, or as its chapter has saved it."""

from __future__ import annotations

import importlib
import itertools
import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import torch

from lab.explore import Drawn
from lab.explore.frames import PLOTLY
from tests.figure_states import state_of

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))

# figure -> a few values of each of its sliders, the first ones its page's default state
CASES: dict[str, dict[str, list[Any]]] = {
    "why_positions.permuted_words": {
        "order": ["man bites dog", "dog bites man", "bites dog man"],
        "positions": ["none", "causal mask", "sinusoid added", "ALiBi", "RoPE"],
    },
    "why_positions.bias_curves": {
        "slope": [4, 1], "r1": [1, 0.5, 2], "r2": [0.25, 1], "power": [0.5, 1.5],
    },
    "why_positions.clock_hands": {"position": [20, 0, 95]},
    "why_positions.asked_distance": {"distance": [3, 0, 40]},
    "why_positions.divided_bias": {"channels": [64, 4, 256]},
    "rope.phase_clocks": {
        "distance": [6, 1, 17], "base": [10_000, 10], "dim": [16, 2, 32], "position": [8, 0, 2.25],
    },
    "rope.shifted_scores": {"shift": [100, 0, 10_000]},
    "rope.one_wave": {
        "content": [-90, 0, 180], "distance": [3, 0, 12.5], "speed": ["0.25", "1"],
    },
    "rope.rounded_positions": {"start": [2048, 0, 192, 8000]},
    "rope.pair_layouts": {"pair": [1, 0, 7], "dim": [16, 4, 12]},
    "rope.matrix_powers": {
        "turn": [15, 30], "squeeze": [0.6, 1, 1.4], "shift": [4, 0, 20],
        "keys": ["as queries", "inverse transpose"],
    },
    "rope.split_heads": {
        "order": ["half", "interleaved"], "channels": ["16", "9"], "shift": [20, 0, 7.5],
    },
    "rope_decay.decay_curves": {"dim": [128, 8], "base": [10_000, 100, 500_000]},
    "rope_decay.slower_pairs": {"scale": [8, 1, 4.5], "length": [4096, 512, 32_768]},
    "rope_decay.series_errors": {"x": [10, 2, 20]},
    "rope_decay.partial_sums": {"distance": [22, 1, 52]},
    "rope_decay.copied_score": {"place": [40, 0, 128]},
    "rope_decay.abel_curves": {"fall": [0, 0.5, 1]},
    "rope_decay.fast_head": {
        "method": ["interpolation", "NTK-aware", "YaRN"], "scale": [4, 1, 2.5], "place": [3, 40],
    },
    "rope_2d_3d.grid_kernel": {
        "encoder": [
            "axial", "raster index", "equal frequencies", "mixed, one head",
            "mixed, many directions",
        ],
        "row": [6, 0, 2.25], "column": [6, 13],
    },
    "rope_2d_3d.resolution_scores": {
        "convention": ["count patches", "scale", "pin the corners"], "side": [28, 7, 20, 56],
    },
    "rope_2d_3d.volume_kernel": {"time": [2, 0, -6]},
    "grid_heads.mean_of_heads": {"spread": [90, 0, 30]},
    "grid_heads.separable_weights": {"rows": [0.5, 1, 0.2], "columns": [0.5, 1, 0.8]},
    "grid_heads.crossed_waves": {"turn": [0, 45, 90, 20], "sharpness": [20, 0, 40]},
    "grid_heads.symbols_asked": {"upper": ["1", "0"], "lower": ["0", "1"], "score": [8, 0, 12]},
    "string.sphere_walks": {"between": [15, 0, 90], "distance": [1, 0.25]},
    "string.moving_pair": {"mixing": [0.2, 0, 1.0], "direction": [90, 0, 30]},
    "string.turned_planes": {"first": [1, 0, -2], "second": [0.25, 1]},
    "liere.numbers_of_an_encoder": {"coordinates": ["2", "1", "3"], "channels": [64, 8, 7]},
    "liere.area_error": {"query": [1, 0.1, 0], "first": [0.8, -1], "second": [0.6, 0]},
    "liere.far_out": {"direction": [60, 0, 140], "distance": [1, 3]},
    "circulant_string.circulant_spectrum": {
        "r": [1, 0, 0.5], "c0": [0.5], "c1": [0.5, -1], "c2": [-0.25, 0], "c3": [0.25],
    },
    "circulant_string.moved_wave": {
        "position": [1, 0, -5], "vector": ["2 waves", "constant", "7 waves", "alternating"],
    },
    "circulant_string.first_steps": {"direction": [10, 0, 45, 90]},
    "circulant_blocks.turned_modes": {
        "r": [0.5, 0, -2], "c1": [-0.5, 0], "c2": [-0.25, 1], "c3": [0, 0.5],
    },
    "circulant_blocks.still_channels": {"block": ["16", "64", "4", "2"], "position": [1, 0, 8]},
    "circulant_blocks.held_back": {
        "noise": [0.08, 0.02], "decay": [0.5, 1], "penalty": [0.005, 0.01],
    },
    "circulant_blocks.angle_digits": {"power": [7, 0, 3, 6]},
    "cayley_string.cayley_circle": {"t": [1.5, -3, 0]},
    "cayley_string.sparse_basis": {"density": [0.05, 0.02, 1]},
    "cayley_string.sign_choice": {"angle": [170, 2, 90]},
    "cayley_string.connected_chance": {"channels": [32, 512], "density": [0.11, 0.05]},
    "cayley_places.heads_behind": {
        "stands": ["after RoPE", "before RoPE"], "size": [1, 0, 0.5],
    },
    "cayley_places.acting_directions": {
        "first": [1, 0, 2], "second": [1, 2], "third": [2, 0.5],
    },
    "cayley_places.folded_scores": {"spread": [0.5, 0, 1], "size": [0.6, 0, 1]},
    "reflections.two_mirrors": {"between": [45, 0], "first": [45, 90], "point": [20, 120]},
    "reflections.mirror_rate": {"factor": [1, 4, 8]},
    "reflections.one_mirror": {"position": [4, 0, 24], "distance": [3, 0, -6]},
    "reflections.rounded_mirrors": {"common": [10, 0, 1000], "distance": [16, 1, 256]},
    "string_at_inference.where_lines_cross": {
        "kind": ["with gradients", "forward"], "price": [25.5, 1, 3],
    },
    "folds.outlier_errors": {
        "weights": ["bfloat16", "int8"], "outlier": [30, 1, 100, 4.5],
    },
    "folds.mirrored_basis": {
        "between": ["ReLU, then rotate", "rotate, then ReLU", "RMS norm", "RMS norm, scales",
                    "layer norm", "nothing"],
        "mirror": [20, 0, 45],
    },
    "string_at_inference.scaled_turn": {"turn": [45, 0, 90], "ratio": [2, 1, 0.1]},
    "string_at_inference.encoding_cost": {
        "dim": [64, 1024], "tokens": [197, 4096], "batch": [1, 32],
    },
    "linear_attention.three_forms": {"token": [5, 0, 2, 7], "chunk": [4, 1, 2, 8]},
    "linear_attention.taylor_weights": {"score": [-2, 0, 4], "order": ["2", "6"]},
    "linear_attention.counted_products": {"features": [64, 4, 256], "chunk": [64, 1, 1024]},
    "linear_attention.crosstalk": {"pairs": [64, 1, 1024], "overlap": [0.3183, 0, 1]},
    "linear_attention.turned_query": {"angle": [115, 0, 200, 300]},
    "favor_plus.cosine_errors": {"length": [1, 0.5, 1.75], "features": [64, 256]},
    "favor_plus.orthogonal_gains": {"features": [64, 2, 128], "square": [2.0, 0.3, 8.0]},
    "favor_plus.features_needed": {"temperature": [1, 0.1, 8]},
    "favor_plus.causal_habits": {"factor": [4, 1, 6]},
    "trained_heads.scores_by_distance": {"head": ["layer 2, head 1", "layer 2, head 2"]},
    "trained_heads.states_of_trained_keys": {
        "head": ["softmax, layer 2, head 1", "delta rule, layer 2, head 1"],
        "rate": [1, 0.3], "written": [48, 30, 53],
    },
    "trained_heads.trained_heads": {
        "head": ["layer 2, head 1", "layer 1, head 2"], "features": [1024, 64],
    },
    "favor_plus.favor_error": {
        "length": [1.0, 3.0], "size": [64, 16, 256],
        "kind": ["iid", "orthogonal", "circulant", "hyperbolic", "optimal"],
    },
    "circulant_favor.row_correlation": {
        "vector": ["constant", "smooth", "random", "one channel"],
        "signs": ["no signs", "signs 1", "signs 2", "signs 3"], "square": [1.0, 0.5, 2.0],
    },
    "circulant_favor.structured_bias": {"channels": [16, 12, 64, 256]},
    "circulant_favor.two_rows": {"direction": [45, 0, 10, 120]},
    "circulant_favor.nearest_orthogonal": {"weight": [0.8, 0, 2.0]},
    "circulant_favor.two_strong_channels": {"share": [0, 0.5, 1]},
    "circulant_favor.free_projection": {"features": [64, 8, 512]},
    "cosine_reach.nearest_share": {"nearest": [100, 10, 1000]},
    "cosine_reach.beyond_horizon": {"horizon": [32, 20, 63]},
    "cosine_reach.more_copies": {"copies": ["4", "2", "3", "5", "6"]},
    "cosine_reach.weighed_values": {
        "weight": ["cosine (2)", "none (1)", "1 − sine (3)", "decay 7/8"], "token": [31, 20, 63],
    },
    "cosformer.phase_weights": {"phase": [0.5, 0, 0.125, 0.875, 1]},
    "cosformer.ptolemy_circle": {"query": [8, 0, 12], "key": [3, 0, 7, 12]},
    "toeplitz_rpe.toeplitz_circulant": {
        "tokens": [4, 2, 5], "length": [196, 64, 8192], "features": [64, 16, 256],
    },
    "toeplitz_rpe.toeplitz_memory": {"features": [64, 4, 256]},
    "toeplitz_rpe.power_bias": {"power": [1.0, 0.1, 2.0, 3.0]},
    "toeplitz_rpe.offset_on_grid": {"offset": [13, 0, 28, -195, 195]},
    "toeplitz_rpe.own_kind_votes": {"factor": [3.8, 1, 40, 1000]},
    "rotation_signs.drifting_kernel": {
        "features": ["random, exp", "random, ReLU", "ReLU", "elu + 1"], "rows": [16, 1, 256],
        "length": [0.7, 0.1, 1.2],
    },
    "rotation_signs.turned_product": {"position": [0.8, 0, 12], "offset": [0.0, -3, 1]},
    "rotation_signs.fastest_frequency": {"fastest": [3.0, 0.1, 1]},
    "rotation_signs.near_the_pole": {"angle": [171, 0, 177]},
    "rotations_meet_linear_attention.shifted_kernels": {
        "shift": [16, 0, 64],
        "features": ["ReLU, 16", "random, 16", "random, 64", "random, 1024"],
    },
    "rotations_meet_linear_attention.rolled_features": {
        "offset": [3, 0, 12, 60], "cycles": ["5 + 7", "12", "3 + 4 + 5"],
    },
    "gating.gated_query": {
        "match": [0, 8], "first": [-3, 6], "second": [-3, 1], "start": [False, True],
    },
    "gating.sink_of_keys": {"score": [3.0, -2, 12]},
    "gating.gated_token": {"weight": [1.0, 0, 8]},
    "gating.gate_and_sink": {"sink": [5.0, -2, 10], "gate": [0.0, -6, 6]},
    "decay_and_state.memory_of_decay": {"memory": [32.0, 2.0, 4096.0]},
    "decay_and_state.products_of_decays": {"decay": [0.9, 0.5, 0.99]},
    "decay_and_state.halved_chunk": {"query": [20, 1, 63], "key": [9, 0, 62]},
    "decay_and_state.markers_and_decays": {
        "number": [0.4, 0, 1], "own": [0.0, 0.5], "other": [1.0, 0.5], "symbol": [1.0, 0.8],
    },
    "decay_and_state.decay_memory": {
        "gamma": [0.9, 0.5], "reset": [8, 0, 20, 47], "kept": [0.0, 0.25, 1.0],
    },
    "path_positions.stretched_sentence": {
        "stop": [6, 0, 1], "article": [0.25, 1], "other": [0.5, 1, 1.25],
        "use": ["bias", "rotation"],
    },
    "path_positions.gated_sentences": {
        "closes": [0.05, 0.01, 0.95, 1], "keeps": [0.95, 0.8, 1],
    },
    "delta_rule.written_twice": {
        "beta": [1.0, 0.5, 2.0], "angle": [60, 15, 90], "decay": [1.0, 0.5],
    },
    "delta_rule.repeated_writes": {"rate": [1.5, 0.05, 2.0], "length": [1.0, 0.5, 2.0]},
    "delta_rule.chunk_of_writes": {
        "rate": [1.0, 0.5, 1.5], "angle": [60, 90, 180], "decay": [1.0, 0.7],
    },
    "delta_rule.order_of_decay": {"rate": [1.7, 1.0, 0.2], "decay": [0.6, 1.0, 0.9]},
    "delta_rule.noise_of_rates": {"load": [1.0, 0.25, 4.0]},
    "delta_rule.two_keys_count": {"angle": [60.0, 0, 36, 1.5]},
    "associative_recall.asked_value": {"asked": ["C", "A", "E"], "deal": [1, 2, 3]},
    "associative_recall.recalled_value": {"share": [1, 0, 0.5], "sharpness": [6, 2, 0]},
    "lookup.lookup_frontier": {"distance": [64, 2048]},
    "associative_recall.match_threshold": {"pairs": [8, 2, 64], "score": [1.9, 6]},
    "associative_recall.match_estimates": {"pairs": [8, 3, 64], "features": [32, 4096]},
    "language_model.nearest_tokens": {"length": [256, 64, 1024], "half_life": [4, 16]},
    "language_model.unit_strictness": {"unit": [7.7, 1, 3.5]},
    "language_model.within_percent": {"percent": [5, 30, 120], "unit": [1, 7.7]},
    "language_model.lead_by_step": {"step": [200, 0, 3999]},
    "copies.copied_pieces": {
        "layer": ["keys of one byte", "keys of two bytes", "a head of softmax"],
        "step": ["1,200", "400"],
    },
    "language_model.leads_in_units": {"unit": [7.8, 1.0, 3.2]},
    "length_extrapolation.beyond_training": {
        "method": ["rope", "pi", "ntk", "yarn"], "scale": [16, 2, 5.25],
    },
    "length_extrapolation.stale_cache": {"scale": [16, 1, 2.5]},
    "length_extrapolation.heard_window": {
        "tokens": [1024, 64, 16384], "r1": [1, 0.5, 2.5], "inverse": [64, 4],
    },
    "vision_transformer.finer_patches": {"spacing": [1.0, 0.1, 0.5, 1.5]},
    "vision_transformer.direction_clues": {
        "place": [0.5, -1.0, 0.0, 0.2], "shift": [2.0, 0.0, 0.4],
    },
    "vision_transformer.told_differences": {
        "pictures": [450, 100, 50_000], "disagree": [0.1, 0.4],
    },
    "in_models.model_clocks": {
        "model": ["Llama 3", "Qwen3-VL, text", "RoPE-ViT, axial", "Gemma 4, global layers"],
        "position": [4096, 16],
    },
    "in_models.bfloat_angles": {"position": [257, 41, 4097]},
    "in_models.mirrored_loss": {"share": [0.2, 0, 0.5]},
    "in_models.tiled_pair": {"alpha": [40, 0, 180], "beta": [70, 0, 130]},
    "cost.roofline": {
        "tokens": [1024, 16], "channels": [64, 8], "products": [4.97e10], "moved": [2.1e10],
    },
    "cost.kept_numbers": {"tokens": [65536, 32], "features": [64, 1024]},
    "cost.amdahl_bars": {"share": [0.5, 0.04, 0], "factor": [10, 1, 100]},
    "cost.other_machine": {
        "ridge": [150, 2, 40], "channels": [64, 256], "numbers": ["bfloat16", "float32"],
    },
    "speed.attention_times": {
        "tokens": [1024, 256, 65536], "channels": [64, 32], "features": [64, 256],
    },
}  # fmt: skip


def in_chapter(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the figures of a chapter, each with all its frames."""
    for cell in json.loads(path.read_text(encoding="utf8"))["cells"]:
        for output in cell.get("outputs", []):
            if PLOTLY in output.get("data", {}):
                yield output["data"][PLOTLY]


def about(figure: dict[str, Any]) -> dict[str, Any]:
    """Return what a page is told of a figure."""
    told: dict[str, Any] = figure["layout"]["meta"]["explorer"]
    return told


# what a cell of a chapter draws of a record or of its own numbers
SAVED = {
    about(figure)["name"]: figure
    for path in NOTEBOOKS
    for figure in in_chapter(path)
    if about(figure)["parameters"] and "source" not in about(figure)
}


def find(name: str) -> Callable[..., Drawn]:
    module, _, function = name.partition(".")
    return getattr(importlib.import_module(f"book.figures.{module}"), function)


def points(grid: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Return every combination of the values of some sliders."""
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def saved_states(figure: dict[str, Any]) -> Iterator[tuple[dict[str, Any], Drawn]]:
    """Yield the states of a figure that a chapter has saved: of a slider, one in a few."""
    grid = {parameter["name"]: parameter["values"] for parameter in about(figure)["parameters"]}
    for point in points({name: values[:: -(-len(values) // 14)] for name, values in grid.items()}):
        state = state_of(figure, {name: grid[name].index(value) for name, value in point.items()})
        alt = state["layout"].pop("meta")["alt"]
        yield point, Drawn(go.Figure(state), alt)


@cache
def states(name: str) -> list[tuple[dict[str, Any], Drawn]]:
    """Return the states of a figure, and what is drawn there."""
    if name in SAVED:
        return [*saved_states(SAVED[name])]
    torch.manual_seed(0)
    before = torch.get_rng_state()
    drawn = [(point, find(name)(**point)) for point in points(CASES[name])]
    # a cell after the figure draws the same numbers, however many states the figure has
    assert torch.equal(torch.get_rng_state(), before), "a figure moves the reader's random numbers"
    return drawn


def exact(values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)
