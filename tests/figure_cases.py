"""Every figure of the book with a few values of each of its sliders, and what it draws there."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from lab.explore import Drawn

RATES = {"multiplications": 3e10, "exponentials": 8e8, "operations": 4e9, "bytes": 1e10}
RECORDED = {"softmax": [(256, 0.5)], "toeplitz-fft": [(512, 20.0), (1024, 41.0)]}

TIMED = {
    "not causal": {
        "softmax": ("softmax", "solid", [256, 1024], [0.2, 3.0]),
        "ReLU": ("relu", "solid", [256, 1024], [0.25, 1.0]),
        "Toeplitz, FFT": ("toeplitz", "dash", [512, 1024], [20.0, 41.0]),
    },
    "causal": {
        "softmax": ("softmax", "solid", [256, 1024], [0.1, 1.5]),
        "GLA": ("gla", "solid", [256, 1024], [0.9, 3.5]),
        "SSD": ("ssd", "solid", [512, 1024], [0.5, 1.0]),
    },
}

# figure -> a few values of each of its sliders, the first ones its page's default state
CASES: dict[str, dict[str, list[Any]]] = {
    "why_positions.permuted_words": {
        "order": ["man bites dog", "dog bites man", "bites dog man"],
        "positions": ["none", "causal mask", "sinusoid added", "ALiBi", "RoPE"],
    },
    "why_positions.bias_curves": {
        "slope": [4, 1], "r1": [1, 0.5, 2], "r2": [0.25, 1], "power": [0.5, 1.5],
    },
    "rope.phase_clocks": {
        "distance": [6, 1, 17], "base": [10_000, 10], "dim": [16, 2, 32], "position": [8, 0],
    },
    "rope.shifted_scores": {"shift": [100, 0, 10_000]},
    "rope.pair_layouts": {"pair": [1, 0, 7], "dim": [16, 4, 12]},
    "rope_decay.decay_curves": {"dim": [128, 8], "base": [10_000, 100, 500_000]},
    "rope_2d_3d.grid_kernel": {
        "encoder": [
            "axial", "raster index", "equal frequencies", "mixed, one head",
            "mixed, many directions",
        ],
        "row": [6, 0], "column": [6, 13],
    },
    "rope_2d_3d.resolution_scores": {
        "convention": ["count patches", "scale", "pin the corners"], "side": [28, 7, 20, 56],
    },
    "rope_2d_3d.volume_kernel": {"time": [2, 0, -6]},
    "string.sphere_walks": {"between": [15, 0, 90], "distance": [1, 0.25]},
    "string.moving_pair": {"mixing": [0.2, 0, 1.0], "direction": [90, 0, 30]},
    "circulant_string.circulant_spectrum": {
        "r": [1, 0, 0.5], "c0": [0.5], "c1": [0.5, -1], "c2": [-0.25, 0], "c3": [0.25],
    },
    "cayley_string.cayley_circle": {"t": [1.5, -3, 0]},
    "cayley_string.sparse_basis": {"density": [0.05, 0.02, 1]},
    "reflections.two_mirrors": {"between": [45, 0], "first": [45, 90], "point": [20, 120]},
    "string_at_inference.encoding_cost": {
        "dim": [64, 1024], "tokens": [197, 4096], "batch": [1, 32],
    },
    "linear_attention.three_forms": {"token": [5, 0, 2, 7], "chunk": [4, 1, 2, 8]},
    "favor_plus.favor_error": {
        "length": [1.0, 3.0], "size": [64, 16, 256],
        "kind": ["iid", "orthogonal", "circulant", "hyperbolic", "optimal"],
    },
    "circulant_favor.row_correlation": {
        "vector": ["constant", "smooth", "random", "one channel"],
        "signs": ["no signs", "signs 1", "signs 2", "signs 3"], "square": [1.0, 0.5, 2.0],
    },
    "cosformer.phase_weights": {"phase": [0.5, 0, 0.125, 0.875, 1]},
    "cosformer.ptolemy_circle": {"query": [8, 0, 12], "key": [3, 0, 7, 12]},
    "toeplitz_rpe.toeplitz_circulant": {
        "tokens": [4, 2, 5], "length": [196, 64, 8192], "features": [64, 16, 256],
    },
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
    "decay_and_state.decay_memory": {
        "gamma": [0.9, 0.5], "reset": [8, 0, 20], "kept": [0.0, 0.25, 1.0],
    },
    "delta_rule.written_twice": {
        "beta": [1.0, 0.5, 2.0], "angle": [60, 15, 90], "decay": [1.0, 0.5],
    },
    "associative_recall.asked_value": {"asked": ["C", "A", "E"], "deal": [1, 2, 3]},
    "associative_recall.recalled_value": {"share": [1, 0, 0.5], "sharpness": [6, 2, 0]},
    "language_model.nearest_tokens": {"length": [256, 64, 1024], "half_life": [4, 16]},
    "length_extrapolation.beyond_training": {
        "method": ["rope", "pi", "ntk", "yarn"], "scale": [16, 2],
    },
    "in_models.model_clocks": {
        "model": ["Llama 3", "Qwen3-VL, text", "RoPE-ViT, axial", "Gemma 4, global layers"],
        "position": [4096, 16],
    },
    "speed.recorded_times": {
        "tokens": [1024, 256], "mask": ["not causal", "causal"], "recorded": [TIMED],
    },
    "speed.attention_times": {
        "tokens": [1024, 256, 65536], "channels": [64, 32], "features": [64, 256],
        "rates": [RATES], "recorded": [RECORDED],
    },
}  # fmt: skip


def find(name: str) -> Callable[..., Drawn]:
    module, _, function = name.partition(".")
    return getattr(importlib.import_module(f"book.figures.{module}"), function)


@cache
def states(name: str) -> list[tuple[dict[str, Any], Drawn]]:
    """Return every combination of a case's values, and what is drawn."""
    torch.manual_seed(0)
    before = torch.get_rng_state()
    grid = CASES[name]
    points = [dict(zip(grid, v, strict=True)) for v in itertools.product(*grid.values())]
    drawn = [(point, find(name)(**point)) for point in points]
    # a cell after the figure draws the same numbers, however many states the figure has
    assert torch.equal(torch.get_rng_state(), before), "a figure moves the reader's random numbers"
    return drawn
