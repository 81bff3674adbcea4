"""Every default argument is the number of its source: whoever adds one says here where it is from.

A wrong default is a right formula with a wrong number in it. Tests that give the argument, as tests
of the formula do, never see it.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import lab
import stringlib
from stringlib import ENCODERS, TOKEN_BIASES, make_encoder, make_features
from stringlib.attention.projections import PROJECTIONS
from stringlib.attention.registry import FEATURES, WEIGHTS
from stringlib.encoders.registry import BIASES, make_bias
from stringlib.models import CONFIGS
from stringlib.models.blocks import FEED_FORWARD
from tests import model_cases

PLACES = (
    *(
        "algebra",
        "attention",
        "encoders",
        "interop.adapters",
        "interop.convert",
        "kernels",
        "models",
        "positions",
    ),
    *("train.learn", "train.optimizer", "train.settings"),
)
"""Where package and laboratory make what a model or its training is made of."""

OURS = "ours: "
"""How a source begins that no paper is, with the reason for the choice behind it."""

DEFAULTS: dict[str, tuple[Any, str]] = {
    # encoders
    "RoPE.base": (10_000.0, "Su et al. 2024, section 3.2.2"),
    "RoPE.layout": ("interleaved", "Su et al. 2024, equation 15: neighbours are a pair"),
    "geometric_frequencies.base": (10_000.0, "Su et al. 2024, section 3.2.2"),
    "Sinusoidal.base": (10_000.0, "Vaswani et al. 2017, section 3.5"),
    "AxialRoPE.base": (100.0, "Heo et al. 2024, RoPE-Axial, and their code"),
    "MixedRoPE.base": (10.0, "Heo et al. 2024, their code: RoPE-Mixed starts with base 10"),
    "CayleySTRING.density": (1.0, "Schenck et al. 2025: S has all d(d − 1)/2 entries"),
    "CirculantSTRING.zero": (False, OURS + "at 0 mirrored data give no gradient"),
    "T5Bias.num_buckets": (32, "Raffel et al. 2020, section 2.1"),
    "T5Bias.max_distance": (128, "Raffel et al. 2020, section 2.1"),
    "T5Bias.bidirectional": (True, "Raffel et al. 2020: as in their encoder"),
    "yarn.slow": (1.0, "Peng et al. 2024 (YaRN): α = 1 for the Llama family"),
    "yarn.fast": (32.0, "Peng et al. 2024 (YaRN): β = 32 for the Llama family"),
    "yarn_by_index.slow": (1.0, "Peng et al. 2024 (YaRN), their code: beta_slow"),
    "yarn_by_index.fast": (32.0, "Peng et al. 2024 (YaRN), their code: beta_fast"),
    "yarn_by_index.truncate": (True, "Peng et al. 2024 (YaRN), their code: floor and ceil"),
    "yarn_attention_factor.weight": (1.0, "Peng et al. 2024 (YaRN): 0.1 ln s + 1"),
    "RotaryForm.tables.layout": ("half", OURS + "that of Llama and of most language models"),
    "RotaryForm.tables.dtype": (torch.float32, OURS + "what other libraries hand over"),
    "STRING.from_inv_freq.layout": ("half", OURS + "that of Llama and of most language models"),
    "STRING.persistent": (True, OURS + "what is given cannot be computed anew"),
    # features
    "FavorFeatures.projection": ("orthogonal", "Choromanski et al. 2021, section 3: FAVOR+"),
    "FavorFeatures.stabilize": (True, "Choromanski et al. 2021, their code"),
    "FavorFeatures.mean_square": (0.0, "Choromanski et al. 2021: the features of FAVOR+, α = 0"),
    # weights
    "GLADecay.rank": (16, "Yang et al. 2024 (GLA), their code: gate_low_rank_dim"),
    "FallingWeight.degree": (3, OURS + "the first degree that is no ramp"),
    "RampWeight.power": (1, OURS + "a straight line is the simplest"),
    "CosineWeight.positive": (False, "Qin et al. 2022, section 3: the plain cosine"),
    "LearnedDelta.gated": (False, "Yang et al. 2024: DeltaNet has no decay"),
    "LearnedDelta.largest_rate": (2.0, "Grazzi et al. 2025: eigenvalues from −1 to 1"),
    "LearnedKDA.largest_rate": (2.0, "Grazzi et al. 2025: eigenvalues from −1 to 1"),
    "SSDDecay.stepped": (False, OURS + "the decay alone"),
    # data-dependent biases and positions
    "ContextualBias.cope_positions": (64, "ours: a query counts fewer tokens than a text has"),
    "SelectiveRoPE.base": (10_000.0, "Su et al. 2024, section 3.2.2, as RoPE"),
    # published layers
    "ShortConvolution.width": (4, "Gu and Dao 2023 (Mamba), their code: d_conv"),
    "ShortConvolution.bias": (False, "Yang et al. 2025, their code: conv_bias"),
    "GatedNorm.activation": ("silu", "Sun et al. 2023, equation 8: swish"),
    "retnet.base": (10000.0, "Sun et al. 2023, their code: the angles of RoPE"),
    "gla.rank": (16, "Yang et al. 2024 (GLA), their code: gate_low_rank_dim"),
    "mamba2.state_size": (64, "Dao and Gu 2024: 64 or 128"),
    "mamba2.groups": (1, "Dao and Gu 2024, their code: ngroups"),
    "gated_deltanet.largest_rate": (1.0, "Yang et al. 2025, their code: allow_neg_eigval"),
    "kda.largest_rate": (1.0, "Kimi Team 2025: a sigmoid"),
    **{
        f"{name}.convolution": (4, f"{source}, their code")
        for name, source in (
            ("mamba2", "Dao and Gu 2024"),
            ("gated_deltanet", "Yang et al. 2025"),
            ("kda", "Kimi Team 2025"),
        )
    },
    **{
        f"{name}.eps": (1e-5, "fla and Dao and Gu 2024, code: norm_eps")
        for name in ("GatedNorm", "retnet", "gla", "mamba2", "gated_deltanet", "kda")
    },
    # layers and models
    "Gate.kind": ("elementwise", "Qiu et al. 2025: their best variant"),
    "MultiHeadAttention.attention": ("softmax", "Vaswani et al. 2017, section 3.2"),
    "MultiHeadAttention.bias": (False, "Vaswani et al. 2017, section 3.2.2: matrices alone"),
    "linear_attention.normalize": (True, "Katharopoulos et al. 2020, equation 4"),
    "attend.normalize": (True, "Katharopoulos et al. 2020, equation 4"),
    "attend.ones": (True, OURS + "what the sum divides by is one of the columns"),
    "Block.mlp": ("mlp", "Vaswani et al. 2017, section 3.3"),
    "LanguageModel.attention": ("softmax", "Vaswani et al. 2017, section 3.2"),
    "LanguageModel.mlp": ("swiglu", "Shazeer 2020"),
    "LanguageModel.tied": (True, "Vaswani et al. 2017, section 3.4"),
    "LanguageModel.generate.temperature": (1.0, OURS + "the model's own probabilities"),
    "ViT.attention": ("softmax", "Dosovitskiy et al. 2021, section 3.1"),
    "ViT.mlp": ("mlp", "Dosovitskiy et al. 2021, section 3.1"),
    "ViT.pool": ("cls", "Dosovitskiy et al. 2021, section 3.1: a class token"),
    "ViT.dim": (64, OURS + "trains on a CPU"),
    "ViT.depth": (2, OURS + "trains on a CPU"),
    "ViT.heads": (4, OURS + "trains on a CPU"),
    "RotaryTables.layout": ("half", OURS + "that of Llama and of most language models"),
    "RotaryTables.coordinates": ("first", OURS + "where models of texts and images have them"),
    "RotaryTables.get_embed.dtype": (torch.float32, OURS + "what timm's modules return"),
    "RotaryTables.wide": (False, OURS + "most models have tables as wide as their tokens"),
    # training
    "Settings.betas": ((0.9, 0.999), "Kingma and Ba 2015, algorithm 1"),
    "Settings.rate": (1e-3, "Kingma and Ba 2015, algorithm 1"),
    "Settings.weight_decay": (0.0, OURS + "the tasks make new examples at every step"),
    "Settings.clip": (1.0, OURS + "usual for transformers; a norm that most steps stay below"),
    "Settings.penalty": (0.0, OURS + "off unless it is studied"),
    "Settings.warmup": (0, OURS + "blocks with the norm in front need none"),
    "Settings.steps": (1000, OURS + "minutes on a CPU"),
    "Settings.batch_size": (64, OURS + "minutes on a CPU"),
    "Settings.log_every": (20, OURS + "a line a second or so"),
    "Settings.checkpoint_every": (500, OURS + "half of a run is the most that is lost"),
    "Training.wide": (True, OURS + "another processor's rounding changes no figure"),
    "grid_positions.dtype": (torch.float32, OURS + "exact up to 2²⁴"),
}
"""Callable and argument → default, and where it comes from."""

NEUTRAL: dict[str, Any] = {
    **dict.fromkeys(("dropout", "attention_dropout", "residual_dropout"), 0.0),
    **dict.fromkeys(("heads", "coord_dim", "axes", "channels"), 1),
    **dict.fromkeys(("start", "offset", "num_prefix", "seed"), 0),
    **dict.fromkeys(("causal", "learnable", "hyperbolic", "normalize_qk", "shift", "skip"), False),
    **dict.fromkeys(("return_state", "numerator_only", "cosine", "interleaved"), False),
    "scale": 1.0,
    "eps": 0.0,
    "kind": "",
    "layout": "interleaved",
    "name": "positions",
    "dtype": torch.float32,
    "is_query": True,
}
"""Argument → what leaves all as it is, wherever it stands: the one, the first, the plain form.

No number of a source. So is None, which says that an argument was left out.
"""


def public_callables() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Find constructors, functions and methods, by the name that the tables have for them."""
    known: dict[str, Any] = {}
    modules = [
        *pkgutil.walk_packages(stringlib.__path__, "stringlib."),
        *pkgutil.walk_packages(lab.__path__, "lab."),
    ]
    for info in modules:
        place = info.name.partition(".")[2]
        if place in PLACES or place.split(".")[0] in PLACES:
            module = importlib.import_module(info.name)
            own = {
                n: x for n, x in vars(module).items() if getattr(x, "__module__", "") == info.name
            }
            known |= {name: x for name, x in own.items() if callable(x) and name[0] != "_"}
    known |= {type(made).__name__: type(made) for made in registered()}
    for name, found in known.items():
        yield name, found
        for part in vars(found) if inspect.isclass(found) else ():
            if part[0] != "_" and callable(getattr(found, part)):
                yield f"{name}.{part}", getattr(found, part)
    for table, entries in {"WEIGHTS": WEIGHTS, "ENCODERS": ENCODERS, "BIASES": BIASES}.items():
        for name, make in entries.items():
            if inspect.isfunction(make):
                yield f"{table}[{name!r}]", make


def registered() -> Iterator[object]:
    """Make one of everything that has a name."""
    yield from (make_encoder(name, 8) for name in ENCODERS)
    yield from (make_bias(name, 2) for name in BIASES)
    yield from (make_features(name, 8) for name in FEATURES)
    yield from (kind(8, 8) for kind in PROJECTIONS.values())
    yield from (model_cases.weight(name) for name in WEIGHTS)
    yield from (model_cases.token_bias(name) for name in TOKEN_BIASES)
    yield from (kind(8, 8) for kind in FEED_FORWARD.values())


def defaults() -> Iterator[tuple[str, str, Any]]:
    for name, found in public_callables():
        try:
            parameters = inspect.signature(found).parameters
        except ValueError:  # a type alias
            continue
        for key, parameter in parameters.items():
            if parameter.default not in (inspect.Parameter.empty, None):
                yield name, key, parameter.default


FOUND = {f"{name}.{key}": default for name, key, default in defaults()}


@pytest.mark.parametrize("name", FOUND)
def test_a_default_is_the_number_of_its_source(name: str) -> None:
    argument = name.rpartition(".")[2]
    assert name in DEFAULTS or argument in NEUTRAL, (
        f"add {name} to DEFAULTS in tests/test_defaults.py with the number of its source, or its "
        "argument to NEUTRAL if no source says one"
    )
    expected = DEFAULTS[name][0] if name in DEFAULTS else NEUTRAL[argument]
    assert FOUND[name] == expected
    assert type(FOUND[name]) is type(expected)


def test_the_tables_name_what_there_is() -> None:
    assert not {*DEFAULTS} - {*FOUND}
    assert not {*NEUTRAL} - {name.rpartition(".")[2] for name in FOUND}


SIZES = {
    "tiny": (64, 2, 2, 170),
    "small": (128, 4, 4, 341),
    "6x256": (256, 6, 4, 682),
    "12x768": (768, 12, 12, 2048),  # Radford et al. 2019, the smallest
}
"""Name → dim, depth, heads and hidden, about two thirds of 4 · dim: Shazeer 2020."""


@pytest.mark.parametrize("name", CONFIGS)
def test_a_named_model_has_the_sizes_of_its_source(name: str) -> None:
    assert name in SIZES, f"add {name!r} to SIZES in tests/test_defaults.py"
    told = {**CONFIGS[name]}
    assert told.pop("mlp") == "swiglu"
    assert told == dict(zip(("dim", "depth", "heads", "hidden"), SIZES[name], strict=True))
