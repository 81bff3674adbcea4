"""Every figure of the book with a few values of each of its sliders, and what it draws there."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from book.figures.favor_plus import DISTANCE_SIZES
from book.figures.linear_attention import PAIR_COUNTS
from lab.explore import Drawn

RUNS = {
    norms: {
        name: {"0.01": (few + 2 * k, few + k, few + 2 * k + 1), "0.03": (k, 0.5 * k, k + 3)}
        for k, name in enumerate(("softmax", "relu", "favor", "hyperbolic", "favor-optimal"))
    }
    for norms, few in (("free", 11), ("unit", 20))
}
GATED = {
    (attention, gate, start): {
        "error": [[0.01 * (1 + a + g), 0.3, 10.0 ** (s - 3 * g)] for s in range(-1, 2)],
        "start": [[0.1 * (a + s) * start, 0.2 * g * start, 0.5 * start] for s in range(3)],
    }
    for a, attention in enumerate(("softmax", "relu", "c-cosgate", "c-cosgate, ramp"))
    for g, gate in enumerate(("none", "headwise", "elementwise"))
    for start in (False, True)
}
TRAININGS = {
    optimizer: {
        rate: [[2.5, 1.5 + 0.25 * seed, 0.25 * k + seed] for seed in range(2)]
        for k, rate in enumerate(("mirrors", "8", "4", "1", "0"), start=start)
    }
    for start, optimizer in enumerate(("SGD", "Adam"))
}
READ = {
    "256": {"rope": (1.5, 0.8), "alibi": (0.01, 0.8), "gla": (0.0, 0.9)},
    "1,024": {"rope": (2.82, 0.4), "alibi": (0.02, 0.56), "gla": (0.0, 0.82)},
}
READING = {
    what: {
        name: (name.split()[0], [[base + i * rise + 0.01 * s for i in range(n)] for s in (0, 1)])
        for name, rise in (("rope", 0.25), ("rope tuned", 0.125), ("gla", 0.0))
    }
    for what, n, base in (("lengths", 5, 2.0), ("places", 11, -0.03))
}
PLACES = {
    "axial": {
        "mean": [[0.8, 0.8, 0.8, 0.7, 0.6]] * 3 + [[0.7, 0.6, 0.6, 0.5, 0.5]] * 2,
        "class token": [[0.75, 0.7, 0.7, 0.4, 0.3]] * 3 + [[0.4, 0.4, 0.3, 0.3, 0.2]] * 2,
    },
    "sinusoidal": {"mean": [[0.7, 0.7, 0.7, 0.3, 0.3]] * 3 + [[0.4, 0.4, 0.3, 0.2, 0.2]] * 2},
}

LOOKED_BACK = {
    features: {
        band: {
            way: [[round(0.1 * (n + more), 2)] * 3, [round(0.11 * n + 0.01 * more, 2), 0.5, 0.4]]
            for n, way in enumerate(
                (
                    "softmax",
                    "before φ",
                    "before φ, moving",
                    "after φ",
                    "after φ, numerator",
                    "rolled",
                    "none",
                )
            )
        }
        for more, band in enumerate(("even", "geometric"), start)
    }
    for start, features in enumerate(("FAVOR+", "ReLU"))
}
PERFORMERS = {
    "ReLU": {
        "none": ("none", [(0.58, 0.57), (0.6, 0.61)]),
        "mixed, random turn": ("mixed", [(0.4, 0.39), (0.45, 0.3)]),
    },
    "FAVOR+": {
        "none": ("none", [(0.64, 0.63), (0.66, 0.65)]),
        "mixed, random turn": ("mixed", [(0.5, 0.47), (0.41, 0.46)]),
    },
}
LOSSES = {
    "frozen": {"0": ((1.5, 1.0), (1.25, 1.0, 1.5)), "1": ((0.2, 0.01), (0.1, 0.01, 0.2))},
    "free": {"0": ((0.02, 0.001), (0.01, 0.001, 0.02)), "1": ((0.0003, 0.0003), (0.0, 0.0, 0.0))},
}

SHIFTED = {
    "Ω": [[0.9, 0.9], [0.7, 0.7]],
    "free": [[1.0, 0.3], [0.9, 0.8]],
    "free, moved": [[1.0, 0.98], [0.6, 0.62]],
}

SOLVED = {
    "64": {"inverse": (1e-15, 2e-14), "solve": (1e-15, 1e-14), "package": (1e-15, 1e-15)},
    "65": {"inverse": (1e-15, 4e-12), "solve": (1e-15, 3e-12), "package": (1e-15, 1e-15)},
}

BLOCKS = {
    "4": ((0.8, 0.9), (0.85, 0.8, 0.9)),
    "8": ((0.95, 0.94), (0.94, 0.94, 0.95)),
    "direct": ((0.9, 1.0), (0.95, 0.9, 1.0)),
}
COMPARED = {"4 → 8": (0.09, 2, 0.002), "8 → direct": (0.01, 1, 0.51)}

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

PEERS = {
    "RoPE / transformers": [
        ("text", "forward", 1, (0.2, 0.25, 0.3)), ("step", "forward", 1, (1.5, 1.75, 2.0)),
        ("text", "forward and backward", 2, (0.2, 0.25, 0.3)),
    ],
    "ELU / fast-transformers": [
        (place, mode, threads, (0.4, 0.5, 0.6))
        for place in ("N128", "short", "medium")
        for mode in ("forward", "forward and backward")
        for threads in (1, 2)
    ],
}  # fmt: skip

NEARER = {
    tokens: {
        t: {
            "line": line,
            **{
                name: [4 / m**0.5 * (1 + 0.1 * k) for m in DISTANCE_SIZES]
                for k, name in enumerate(
                    ("iid", "orthogonal", "hyperbolic", "optimal", "optimal-hyperbolic",
                     "trigonometric")
                )
            },
            "least": {
                "iid": 32, "orthogonal": 64, "hyperbolic": None, "optimal": 128,
                "optimal-hyperbolic": 128 if t == "1" else None, "trigonometric": None,
            },
        }
        for t in ("1", "0.25")
    }
    for tokens, line in (("spread", 0.68), ("matched", 1.43))
}  # fmt: skip

RETURNED = {
    features: {
        measure: {
            name: [min(1.0, few * (k + 1) * n / 1000) for n in PAIR_COUNTS]
            for k, name in enumerate(
                ("softmax", "elu", "ReLU", "random", "signed", "least squares")
            )
        }
        for measure, few in (("error", 1.5), ("decoded", 0.9 * more))
    }
    for features, more in (("64", 1), ("1,024", 2))
}

WEIGHTS = {
    length: {
        **{
            name: [few * (k + 2) / m**0.5 for m in (16, 32, 64, 128)]
            for k, name in enumerate(
                ("iid", "hadamard", "circulant", "unit-circulant", "simplex-circulant")
            )
        },
        "least": {
            "iid": None, "hadamard": 128, "circulant": None, "unit-circulant": None,
            "simplex-circulant": least,
        },
    }
    for length, few, least in (("1", 3, None), ("½", 2, 64))
}  # fmt: skip

NEIGHBOURS = {
    task: {
        grids: {
            name: [0.1 * (k + n) + low for n in range(4)]
            for k, name in enumerate(("rope", "axial", "mixed", "axial-2"))
        }
        for grids, low in (("as trained", 0.4), ("12 × 12", 0.1))
    }
    for task in ("one", "two")
}
NEIGHBOUR_LEVELS = {
    f"{task}, {grids}": (0.25, {"mixed": 0.125, "axial-2": 0.002})
    for task in NEIGHBOURS
    for grids in NEIGHBOURS[task]
}
RUNGS = {
    measure: {
        name: (low * (k + 1), low * (k + 0.5), low * (k + 2))
        for k, name in enumerate(("matrix_exp", "half", "basis", "folded", "rope"))
    }
    for measure, low in (("forward", 2.0), ("memory held", 0.5))
}
LOOKED = {
    "as trained": {
        "previous": {"none": [0.2, 0.22], "learned": [0.93, 0.99], "rope": [0.99, 1.0]},
        "asked": {"none": [0.19, 0.2], "learned": [0.52, 0.54], "rope": [1.0, 0.98]},
    },
    "longer": {
        "previous": {"none": [0.14, 0.13], "learned": [None, None], "rope": [0.31, 0.32]},
        "asked": {"none": [0.13, 0.14], "learned": [None, None], "rope": [0.33, 0.35]},
    },
}
CROSSED = {
    "forward": {
        "16": {"algorithm 1": [(512, 12.7), (2048, 12.0)], "fft": [(512, 5.5), (8192, 0.84)],
               "softmax": [(512, 1.2), (8192, 3.0)]},
        "64": {"algorithm 1": [(64, 22.8), (2048, 35.0)], "fft": [(64, 18.9), (16384, 0.9)],
               "softmax": [(64, 0.3), (8192, 0.88)]},
    },
    "training": {
        "16": {"algorithm 1": [(512, 24.0), (2048, 6.7)], "fft": [(512, 9.1), (8192, 0.7)],
               "softmax": [(512, 0.84), (8192, 1.3)]},
        "64": {"algorithm 1": [(64, 58.0), (2048, 21.0)], "fft": [(64, 42.0), (8192, 2.4)],
               "softmax": [(64, 0.4), (8192, 0.67)]},
    },
}  # fmt: skip

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
    "why_positions.looked_back": {"test": ["as trained", "longer"], "recorded": [LOOKED]},
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
    "grid_heads.neighbour_accuracies": {
        "task": ["two", "one"], "grids": ["as trained", "12 × 12"], "recorded": [NEIGHBOURS],
        "tests": [NEIGHBOUR_LEVELS],
    },
    "string.sphere_walks": {"between": [15, 0, 90], "distance": [1, 0.25]},
    "string.moving_pair": {"mixing": [0.2, 0, 1.0], "direction": [90, 0, 30]},
    "string.turned_planes": {"first": [1, 0, -2], "second": [0.25, 1]},
    "liere.numbers_of_an_encoder": {"coordinates": ["2", "1", "3"], "channels": [64, 8, 7]},
    "liere.area_error": {"query": [1, 0.1, 0], "first": [0.8, -1], "second": [0.6, 0]},
    "liere.far_out": {"direction": [60, 0, 140], "distance": [1, 3]},
    "liere.shifted_accuracy": {
        "seeds": ["free", "free, moved"], "recorded": [SHIFTED], "shifts": [(0, 64)],
        "looks": [{"Ω": "mixed", "free": "dense", "free, moved": "dense"}],
    },
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
    "circulant_blocks.seeds_by_block": {
        "pair": ["4 → 8", "8 → direct"], "recorded": [BLOCKS], "tests": [COMPARED],
    },
    "circulant_blocks.angle_digits": {"power": [7, 0, 3, 6]},
    "cayley_string.cayley_circle": {"t": [1.5, -3, 0]},
    "cayley_string.sparse_basis": {"density": [0.05, 0.02, 1]},
    "cayley_string.sign_choice": {"angle": [170, 2, 90]},
    "cayley_string.connected_chance": {"channels": [32, 512], "density": [0.11, 0.05]},
    "cayley_string.solve_error": {
        "channels": ["65", "64"], "power": [3, -1, 5], "recorded": [SOLVED], "sizes": [(0.1, 1e5)],
    },
    "cayley_places.heads_behind": {
        "stands": ["behind RoPE", "before RoPE"], "size": [1, 0, 0.5],
    },
    "cayley_places.acting_directions": {
        "first": [1, 0, 2], "second": [1, 2], "third": [2, 0.5],
    },
    "cayley_places.folded_scores": {"spread": [0.5, 0, 1], "size": [0.6, 0, 1]},
    "cayley_places.losses_by_density": {
        "projections": ["frozen", "free"], "recorded": [LOSSES],
    },
    "reflections.two_mirrors": {"between": [45, 0], "first": [45, 90], "point": [20, 120]},
    "reflections.mirror_rate": {"factor": [1, 4, 8]},
    "reflections.one_mirror": {"position": [4, 0, 24], "distance": [3, 0, -6]},
    "reflections.mirror_losses": {
        "optimizer": ["SGD", "Adam"], "rate": ["1", "0", "8"], "every": [20],
        "recorded": [TRAININGS],
    },
    "reflections.rounded_mirrors": {"common": [10, 0, 1000], "distance": [16, 1, 256]},
    "string_at_inference.clocked_rungs": {
        "measure": ["forward", "memory held"], "recorded": [RUNGS], "sizes": [(64, 197, 32)],
    },
    "string_at_inference.where_lines_cross": {
        "kind": ["with gradients", "forward"], "price": [25.5, 1, 3],
    },
    "folds.outlier_errors": {
        "weights": ["bfloat16", "int8"], "outlier": [30, 1, 100, 4.5],
    },
    "folds.mirrored_basis": {
        "between": ["ReLU, then turn", "turn, then ReLU", "RMS norm", "RMS norm, scales",
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
    "linear_attention.recalled_pairs": {
        "features": ["64", "1,024"], "recorded": [RETURNED],
        "overlaps": [{"relu": 0.3183, "elu": 0.685}],
    },
    "linear_attention.turned_query": {"angle": [115, 0, 200, 300]},
    "favor_plus.cosine_errors": {"length": [1, 0.5, 1.75], "features": [64, 256]},
    "favor_plus.orthogonal_gains": {"features": [64, 2, 128], "square": [2.0, 0.3, 8.0]},
    "favor_plus.features_needed": {"temperature": [1, 0.1, 8]},
    "favor_plus.causal_habits": {"factor": [4, 1, 6]},
    "favor_plus.redrawn_means": {
        "features": ["16", "64"], "draws": [(1, 16, 256)],
        "recorded": [{
            "16": {"weights": [0.46, 0.11, 0.035], "estimates": [0.46, 0.12, 0.031]},
            "64": {"weights": [0.25, 0.06, 0.017], "estimates": [0.25, 0.063, 0.0153]},
        }],
    },
    "favor_plus.favor_distance": {
        "tokens": ["spread", "matched"], "t": ["1", "0.25"], "recorded": [NEARER],
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
    "circulant_favor.weight_errors": {
        "length": ["½", "1"], "recorded": [WEIGHTS], "sizes": [(16, 32, 64, 128)],
    },
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
    "toeplitz_rpe.toeplitz_times": {
        "run": ["forward", "training"], "features": ["64", "16"], "recorded": [CROSSED],
    },
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
    "rotations_meet_linear_attention.shifted_accuracy": {
        "features": ["FAVOR+", "ReLU"], "frequencies": ["even", "geometric"],
        "recorded": [LOOKED_BACK], "shifts": [(0, 10, 1000)],
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
    "gating.gated_runs": {
        "kind": ["mute", "match", "no match"], "start": [False, True], "recorded": [GATED],
    },
    "decay_and_state.memory_of_decay": {"memory": [32.0, 2.0, 4096.0]},
    "decay_and_state.products_of_decays": {"decay": [0.9, 0.5, 0.99]},
    "decay_and_state.halved_chunk": {"query": [20, 1, 63], "key": [9, 0, 62]},
    "decay_and_state.markers_and_decays": {
        "number": [0.4, 0, 1], "own": [0.0, 0.5], "other": [1.0, 0.5], "symbol": [1.0, 0.8],
    },
    "decay_and_state.decay_memory": {
        "gamma": [0.9, 0.5], "reset": [8, 0, 20, 47], "kept": [0.0, 0.25, 1.0],
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
    "associative_recall.recalled_runs": {
        "rate": ["0.01", "0.03"], "norms": ["free", "unit"], "recorded": [RUNS],
    },
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
    "length_extrapolation.read_on": {
        "method": ["rope", "gla", "rope tuned"], "recorded": [READING["lengths"]],
    },
    "length_extrapolation.above_window": {
        "method": ["rope", "gla", "rope tuned"], "recorded": [READING["places"]],
    },
    "length_extrapolation.lost_and_found": {"tokens": ["1,024", "256"], "recorded": [READ]},
    "vision_transformer.accuracy_places": {
        "encoder": ["axial", "sinusoidal"], "recorded": [PLACES],
    },
    "vision_transformer.finer_patches": {"spacing": [1.0, 0.1, 0.5, 1.5]},
    "vision_transformer.direction_clues": {
        "place": [0.5, -1.0, 0.0, 0.2], "shift": [2.0, 0.0, 0.4],
    },
    "vision_transformer.performer_places": {
        "features": ["ReLU", "FAVOR+"], "seed": ["mean", "1", "2"],
        "recorded": [PERFORMERS], "sizes": [(0.85, 0.81)],
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
    "speed.recorded_times": {
        "tokens": [1024, 256], "mask": ["not causal", "causal"], "recorded": [TIMED],
    },
    "speed.peer_times": {
        "run": ["forward", "with gradients"], "threads": ["1", "2"], "recorded": [PEERS],
    },
    "speed.attention_times": {
        "tokens": [1024, 256, 65536], "channels": [64, 32], "features": [64, 256],
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
