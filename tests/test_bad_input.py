"""Bad arguments: whatever takes them names them, with what was given."""

from __future__ import annotations

import importlib
import inspect
import math
import pkgutil
from collections.abc import Iterator, Sequence
from functools import partial
from types import CodeType, ModuleType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest
import torch
from torch import Tensor, nn

import lab
import stringlib
from lab.one_head import OneHead
from lab.theory import (
    capacity,
    cayley_signs,
    cost,
    extrapolation,
    offsets,
    perplexity,
    rope_decay,
    spread,
    structured_variance,
    variance,
)
from lab.weights import packed, unpack
from stringlib import (
    STRING,
    ALiBi,
    CayleySTRING,
    CirculantSTRING,
    CosineWeight,
    DecayWeight,
    DenseSTRING,
    ELUFeatures,
    FallingWeight,
    FavorFeatures,
    KerpleLog,
    KerplePower,
    LanguageModel,
    LearnedAbsolute,
    MixedRoPE,
    MultiHeadAttention,
    RampWeight,
    ReflectionSTRING,
    ReLUFeatures,
    RoPE,
    Sinusoidal,
    T5Bias,
    ToeplitzWeight,
    ViT,
    linear_attention,
    make_encoder,
    random_turn,
    softmax_attention,
    spec,
)
from stringlib.adapters import RotaryTables, Rotated
from stringlib.algebra import (
    fourier_basis,
    haar_orthogonal,
    hadamard,
    layout_permutation,
    nearest_orthogonal_circulant,
    pair_channels,
    planar_skew,
    universal_form,
    upper_support,
)
from stringlib.attention.decay import decay_mask, decayed_sums
from stringlib.attention.delta import DeltaWeight, delta_rule
from stringlib.attention.features import IdentityFeatures
from stringlib.attention.gate import Gate
from stringlib.attention.learned import LearnedToeplitz
from stringlib.attention.linear import rotated_linear_attention
from stringlib.attention.projections import PROJECTIONS
from stringlib.attention.roll import Roll
from stringlib.attention.shift import KeyShift
from stringlib.attention.state import (
    gated_linear_attention,
    retention,
    retnet_log_decay,
    rwkv6,
    ssd,
)
from stringlib.attention.weights import ConstantWeight
from stringlib.convert import fold_qkv, to_layout
from stringlib.encoders.bias import RelativeBias
from stringlib.encoders.registry import make_bias
from stringlib.encoders.rope import mrope
from stringlib.encoders.scaling import (
    Beyond,
    DynamicNTK,
    long_rope,
    long_rope_attention_factor,
    ntk_aware,
    position_interpolation,
    yarn,
    yarn_attention_factor,
    yarn_by_index,
)
from stringlib.encoders.string import RotaryEncoder
from stringlib.fold_norms import fold_norms, foldable
from stringlib.inputs import common_shape
from stringlib.models import make_language_model
from stringlib.models.absolute import GridSinusoidal, GridTable
from stringlib.models.blocks import MLP, Block, SwiGLU
from stringlib.positions import geometric_frequencies, grid_positions
from stringlib.spec import _metas, _parts
from stringlib.testing import properties

BAD = {
    "text": "x",
    "a list": [1, 2],
    "a dict": {},
    "an object": object(),
    "complex": 1j,
    "a complex tensor": torch.ones(4, 8, dtype=torch.complex64),
    "a bool tensor": torch.ones(4, 8, dtype=torch.bool),
}
LINE, PLANE, Q = torch.arange(4.0)[:, None], torch.rand(4, 2), torch.rand(2, 2, 4, 8)
SCALE, MASK = Q[..., 0], torch.ones(2, 4, dtype=torch.bool)
X, TOKENS = torch.rand(2, 4, 16), torch.zeros(2, 4, dtype=torch.int64)
MIXED, TEXT = MixedRoPE(8, 2, heads=2), LanguageModel(5, 8, 1, 2, "rope")
ONE_HEAD = OneHead(3, 8, 8)
ONE_HEAD.encoder = RoPE(8)
BIASES = [bias(2) for bias in (ALiBi, T5Bias, KerpleLog, KerplePower)]
CALLS = [
    (make_encoder, {"name": "mixed", "head_dim": 8, "coord_dim": 2, "heads": 1}),
    (make_bias, {"name": "t5", "heads": 2, "causal": True}),
    (make_language_model, {"name": "tiny", "vocab": 5}),
    (packed, {"model": TEXT}),
    (unpack, {"model": TEXT, "text": packed(TEXT)}),
    (RoPE, {"head_dim": 8, "base": 10.0, "heads": 1, "layout": "half"}),
    (DenseSTRING, {"generators": torch.zeros(1, 2, 4, 4)}),
    (MIXED, {"q": Q, "k": Q, "positions": PLANE, "key_positions": PLANE}),
    (MIXED.fold, {"weight": torch.rand(16, 5), "heads": 2}),
    *((bias.at, {"distances": torch.arange(3)}) for bias in BIASES),
    *((bias, {"num_queries": 2, "num_keys": 3, "offset": 1}) for bias in BIASES),
    (Sinusoidal(16), {"x": X, "positions": LINE}),
    (LearnedAbsolute(4, 16), {"x": X, "positions": LINE}),
    (GridSinusoidal, {"dim": 16, "coord_dim": 2}),
    (GridSinusoidal(16, 2), {"x": X, "positions": PLANE}),
    (GridTable((2, 3), 16), {"x": X, "positions": PLANE}),
    (geometric_frequencies, {"pairs": 3, "base": 10.0}),
    (position_interpolation, {"frequencies": torch.rand(1, 4, 1), "scale": 2}),
    (ntk_aware, {"frequencies": torch.rand(1, 4, 1), "scale": 2}),
    (yarn, {"frequencies": torch.rand(1, 4, 1), "scale": 2, "length": 9, "slow": 1, "fast": 2}),
    (universal_form, {"generators": torch.zeros(2, 4, 4), "tolerance": 0.1}),
    (extrapolation.effective_window, {"bias": ALiBi(2), "length": 3}),
    (extrapolation.tail_share, {"bias": ALiBi(2), "length": 3, "longer": 5}),
    (extrapolation.seen_turns, {"frequencies": Q, "length": 9.5}),
    (extrapolation.unseen_share, {"frequencies": Q, "scaled": Q, "length": 9, "longer": 20}),
    (extrapolation.match_weight, {"gap": 1.5, "length": 3}),
    (offsets.offset_scores, {"encoder": MIXED, "q": Q[:, :, 0], "k": Q[:, :, 0], "offsets": PLANE}),
    (offsets.alias_gap, {"encoder": MIXED, "offsets": PLANE}),
    (perplexity.perplexity, {"bits": 2.0, "unit": 3.0}),
    (cayley_signs.first_signs, {"matrix": torch.eye(3)}),
    (cayley_signs.cayley_signs, {"matrix": torch.eye(3), "excess": 0.1}),
    (cayley_signs.most_swaps, {"size": 3, "excess": 0.1}),
    (cayley_signs.inverse_cayley, {"matrix": torch.eye(3)}),
    (capacity.recall_error, {"weights": torch.eye(3)}),
    (capacity.delta_recall_error, {"n": 3, "m": 4}),
    (capacity.delta_recall_moments, {"n": 3, "m": 4}),
    (capacity.delta_noise, {"load": 1.0, "rate": 0.5}),
    (capacity.best_delta_rate, {"load": 1.0}),
    *((f, {"pairs": 2, "values": 3}) for f in (capacity.guess_accuracy, capacity.guess_loss)),
    (capacity.swap_bound, {"values": 3}),
    (cost.chunk_products, {"n": 8, "m": 2, "width": 3, "chunk": 4}),
    *((f, {"distances": Q, "frequencies": torch.rand(3), "amplitudes": torch.rand(3)})
      for f in (rope_decay.phase_sum, rope_decay.abel_bound)),
    (rope_decay.exp_integral, {"x": Q}),
    *((f, {"distances": Q, "base": 10}) for f in (rope_decay.phase_integral, rope_decay.regimes)),
    (rope_decay.horizon, {"pairs": 4, "base": 10}),
    (rope_decay.corput_bound, {"speeds": Q}),
    (rope_decay.gap_bound, {"distances": Q, "pairs": 4, "base": 10.0}),
    (spread.mean, {"values": [1.0, 2.0]}),
    (spread.interval, {"values": [1.0, 2.0], "comparisons": 2}),
    (spread.difference, {"values": [1.0, 2.0], "others": [3, 5], "comparisons": 2}),
    (spread.unpaired, {"values": [1.0, 2.0], "others": [3, 5], "comparisons": 2}),
    (spread.success_interval, {"successes": 0, "runs": 3, "comparisons": 2}),
    (structured_variance.cyclic_autocorrelation, {"u": Q}),
    (structured_variance.circulant_mse, {"z": Q, "signs": Q, "num_features": 3}),
    (structured_variance.circulant_mean_mse, {"z": Q, "num_features": 3}),
    *((f, {"square": Q}) for f in (structured_variance.circulant_ratio,
                                   structured_variance.unit_circulant_ratio,
                                   structured_variance.circulant_worst_ratio)),
    (structured_variance.spectral_mse, {"z": Q}),
    (structured_variance.simplex_mse, {"square": torch.tensor(0.5), "head_dim": 3}),
    (structured_variance.simplex_ratio, {"square": Q}),
    (structured_variance.unit_circulant_moments,
     {"z": torch.rand(4), "signs": torch.ones(4), "num_features": 3}),
    (structured_variance.hadamard_moments,
     {"z": torch.rand(4).double(), "diagonals": torch.ones(2, 4).double()}),
    (structured_variance.structured_bias_bounds, {"square": Q, "head_dim": 3}),
    (structured_variance.unit_circulant_bias, {"z": Q}),
    *((f, {"square": Q, "num_features": 3}) for f in (
        variance.trigonometric_mse, variance.positive_mse, variance.hyperbolic_mse)),
    (partial(variance.optimal_mse, alpha=0.0), {"square": Q, "num_features": 3, "head_dim": 4}),
    (variance.orthogonal_mse,
     {"square": Q, "num_features": 3, "head_dim": 4, "hyperbolic": True}),
    *((f, {"square": Q, "head_dim": 3}) for f in (
        variance.orthogonal_gain, variance.orthogonal_gain_bound, variance.sqrt_norm_mean)),
    (variance.attention_mse, {"q": Q, "k": Q, "num_features": 3}),
    (properties.skew_error, {"matrix": torch.zeros(3, 3)}),
    (properties.orthogonality_error, {"matrix": torch.eye(3)}),
    (properties.commutator_error, {"generators": torch.zeros(2, 3, 3)}),
    (properties.group_law_error, {"encoder": MIXED, "a": PLANE, "b": PLANE}),
    (properties.generator_error, {"encoder": MIXED, "positions": PLANE}),
    (properties.logits, {"encoder": MIXED, "q": Q, "k": Q, "positions": PLANE}),
    (properties.translation_error,
     {"encoder": MIXED, "q": Q, "k": Q, "positions": PLANE, "shift": 1}),
    (properties.shift_error, {"attend": lambda r: r, "positions": PLANE, "shift": 1}),
    (partial(properties.relative_logit_error, torch.ones(2, 2, 4, 4), torch.ones(4)),
     {"q": Q, "k": Q}),
    (properties.fold_error,
     {"encoder": MIXED, "x": X, "w_q": X[0].repeat(4, 1), "w_k": X[1].repeat(4, 1),
      "positions": PLANE}),
    (properties.all_errors, {"encoder": MIXED}),
    (TEXT, {"tokens": TOKENS, "positions": LINE, "key_mask": MASK, "state": None,
            "return_state": False}),
    (TEXT, {"tokens": TOKENS, "state": TEXT(TOKENS, return_state=True)[1]}),
    (TEXT.generate, {"tokens": TOKENS, "count": 1, "key_mask": MASK, "temperature": 0.5,
                     "generator": None}),
    (MLP, {"dim": 4, "hidden": 3}),
    (SwiGLU, {"dim": 4, "hidden": 3}),
    (Block, {"dim": 8, "heads": 2, "mlp": "mlp", "hidden": 5}),
    (OneHead, {"symbols": 3, "dim": 4, "head_dim": 2}),
    (ONE_HEAD, {"symbols": TOKENS, "positions": LINE}),
    (ViT(4, 2, 3, 8, 1, 2).patches, {"images": torch.rand(2, 1, 4, 4)}),
    (GridTable, {"sizes": (2, 3), "dim": 4}),
    (Roll, {"cycles": (3, 5)}),
    (LearnedToeplitz, {"heads": 2, "length": 3, "grid": None}),
    (LanguageModel, {"vocab": 5, "dim": 8, "depth": 1, "heads": 2, "encoder": "rope",
                     "attention": "softmax", "gate": "headwise", "mlp": "mlp", "hidden": 8,
                     "tied": True, "length": 7}),
    (ViT, {"image_size": 4, "patch_size": 2, "classes": 3, "dim": 8, "depth": 1, "heads": 2,
           "encoder": "mixed", "attention": "softmax", "gate": "headwise", "mlp": "mlp",
           "hidden": 8, "pool": "cls", "channels": 1}),
    (ViT(4, 2, 3, 8, 1, 2), {"images": torch.rand(2, 1, 4, 4), "positions": PLANE}),
    (partial(MultiHeadAttention, encoder="axial"),
     {"dim": 8, "heads": 2, "attention": "favor", "gate": "headwise", "weight": "toeplitz",
      "causal": True, "num_features": 3, "grid": (2, 3), "coord_dim": 2, "rotate": "before",
      "normalize_qk": True, "temperature": 2.0, "shift": False, "bias": False, "generator": None}),
    (MultiHeadAttention(16, 2, MIXED).attention_weights, {"x": X, "positions": PLANE}),
    (MultiHeadAttention(16, 2, MIXED, causal=True),
     {"x": X, "positions": PLANE, "key_mask": MASK, "state": None, "return_state": True}),
    (linear_attention, {"phi_q": Q, "phi_k": Q, "v": Q, "weight": CosineWeight(9), "causal": True,
                        "normalize": True, "mode": "chunk", "key_scale": SCALE, "key_mask": MASK,
                        "state": None, "return_state": True}),
    (rotated_linear_attention, {"phi_q": Q, "phi_k": Q, "v": Q, "encoder": MIXED,
                                "positions": PLANE, "weight": CosineWeight(9), "causal": True,
                                "numerator_only": True, "mode": "chunk", "key_scale": SCALE,
                                "key_mask": MASK}),
    (softmax_attention, {"q": Q, "k": Q, "v": Q, "bias": torch.rand(2, 4, 4), "causal": True,
                         "key_mask": MASK}),
    (decayed_sums, {"phi_q": Q, "phi_k": Q, "u": Q, "log_decay": -SCALE, "mode": "chunk",
                    "state": torch.rand(2, 2, 8, 8)}),
    (delta_rule, {"q": Q, "k": Q, "v": Q, "beta": SCALE, "log_decay": -SCALE, "mode": "chunk",
                  "state": torch.rand(2, 2, 8, 8)}),
    (DeltaWeight, {"beta": SCALE, "log_decay": -SCALE}),
    (IdentityFeatures(), {"x": Q}),
    (decay_mask, {"log_decay": -SCALE}),
    (DecayWeight, {"log_decay": -SCALE}),
    (DecayWeight(-torch.ones(2)).matrix, {"num_queries": 2, "num_keys": 3}),
    (CosineWeight, {"horizon": 9, "positive": True}),
    (RampWeight, {"horizon": 9, "power": 2}),
    (FallingWeight, {"horizon": 9, "degree": 4}),
    (RampWeight(9).matrix, {"num_queries": 2, "num_keys": 3}),
    (CosineWeight(9).matrix, {"num_queries": 2, "num_keys": 3}),
    (CosineWeight(9).features, {"phi": Q, "start": 1}),
    (ToeplitzWeight, {"bias": torch.rand(2, 7)}),
    (ToeplitzWeight.from_bias, {"bias": ALiBi(2), "n": 3}),
    (ReLUFeatures(), {"x": Q}),
    (ELUFeatures(), {"x": Q}),
    (FavorFeatures, {"head_dim": 4, "num_features": 3, "projection": "iid", "heads": 2,
                     "learnable": True, "hyperbolic": True, "stabilize": True, "generator": None,
                     "mean_square": torch.rand(2, 4)}),
    (FavorFeatures(8, 4), {"x": Q, "is_query": True}),
    (FavorFeatures(8, 4).redraw, {"generator": None}),
    *((make, {"head_dim": 4, "num_features": 3, "heads": 2, "learnable": True, "generator": None})
      for make in PROJECTIONS.values()),
    (PROJECTIONS["circulant"](8, 4, 2), {"x": Q}),
    (random_turn, {"encoder": MIXED, "generator": None}),
    (retnet_log_decay, {"heads": 2}),
    (retention, {"q": Q, "k": Q, "v": Q, "log_decay": -torch.ones(2), "mode": "chunk",
     "state": torch.rand(2, 2, 8, 8)}),
    (gated_linear_attention, {"q": Q, "k": Q, "v": Q, "log_decay": -Q, "mode": "chunk",
     "state": torch.rand(2, 2, 8, 8)}),
    (rwkv6, {"r": Q, "k": Q, "v": Q, "log_decay": -Q, "bonus": Q[0, :, 0],"mode": "chunk",
     "state": torch.rand(2, 2, 8, 8)}),
    (ssd, {"x": Q, "dt": SCALE, "A": -torch.ones(2), "B": Q, "C": Q, "mode": "chunk",
     "state": torch.rand(2, 2, 8, 8)}),
    (Gate, {"dim": 8, "heads": 2}),
    (Gate(16, 2), {"y": Q, "x": X}),
    (KeyShift, {"heads": 2}),
    (KeyShift(2), {"k": Q, "before": Q[..., :1, :], "key_mask": MASK}),
    (RotaryEncoder, {"head_dim": 8, "coord_dim": 1, "heads": 2, "layout": "half"}),
    (MIXED.rotate, {"x": Q, "positions": PLANE}),
    (MIXED.matrix, {"positions": PLANE}),
    (MIXED.phases, {"positions": PLANE}),
    (MIXED.folded, {"layout": "half"}),
    (RoPE(8).tables, {"positions": LINE, "layout": "half", "dtype": torch.float64}),
    (STRING, {"frequencies": torch.rand(2, 4, 1), "basis": torch.eye(8).expand(2, 8, 8),
              "head_dim": 8, "layout": "half", "persistent": False}),
    (STRING.from_inv_freq, {"inv_freq": torch.rand(3), "layout": "half", "head_dim": 8}),
    (MixedRoPE, {"head_dim": 8, "coord_dim": 2, "heads": 2, "base": 10}),
    (ReflectionSTRING, {"head_dim": 8, "coord_dim": 2, "heads": 2}),
    (CirculantSTRING, {"head_dim": 8, "coord_dim": 2, "heads": 2, "block_size": 4, "zero": True}),
    (CayleySTRING, {"head_dim": 8, "coord_dim": 2, "heads": 2, "density": 0.5}),
    (mrope, {"frequencies": torch.rand(1, 4, 1), "sections": (1, 3), "interleaved": False}),
    (RelativeBias, {"heads": 2}),
    (T5Bias, {"heads": 2, "num_buckets": 8, "max_distance": 16, "bidirectional": True}),
    (T5Bias(2).buckets, {"distances": torch.arange(3)}),
    (Sinusoidal, {"dim": 16, "base": 10.0}),
    (LearnedAbsolute, {"num_positions": 4, "dim": 16}),
    (partial(grid_positions, 2, 3), {"dtype": torch.float64, "num_prefix": 1}),
    (long_rope, {"frequencies": torch.rand(1, 4, 1), "factors": torch.rand(4)}),
    (long_rope_attention_factor, {"scale": 2, "length": 9}),
    (yarn_attention_factor, {"scale": 2, "weight": 0.5}),
    (yarn_by_index, {"frequencies": torch.rand(1, 4, 1), "scale": 2, "length": 9, "slow": 1,
                     "fast": 2, "truncate": True}),
    (fourier_basis, {"size": 3}),
    (nearest_orthogonal_circulant, {"column": torch.rand(3)}),
    (haar_orthogonal, {"size": 3, "generator": None, "dtype": torch.float64}),
    (hadamard, {"size": 4}),
    (layout_permutation, {"head_dim": 4}),
    (pair_channels, {"pairs": 3, "layout": "half"}),
    (planar_skew, {"frequencies": torch.rand(3), "size": 6, "layout": "half"}),
    (upper_support, {"size": 4, "density": 0.5}),
    (to_layout, {"weight": torch.rand(16, 5), "head_dim": 8, "source": "half",
                 "target": "interleaved", "pairs": 3}),
    (fold_qkv, {"linear": nn.Linear(5, 48), "encoder": MIXED, "heads": 2, "kv_heads": 2,
                "layout": "half"}),
    *[
        (each, {"encoder": RoPE(8), "norm_q": nn.RMSNorm(8), "norm_k": torch.ones(8)})
        for each in (foldable, fold_norms)
    ],
    (partial(RotaryTables, RoPE(8)), {"layout": "half", "scale": 2.0}),
    (RotaryTables(RoPE(8)), {"x": X, "position_ids": torch.arange(4)[None]}),
    (RotaryTables.from_module, {"rotary_emb": RotaryTables(RoPE(8))}),
    (Beyond, {"encoder": RoPE(8), "length": 9, "scale": 1.5}),
    (DynamicNTK, {"scale": 2.0, "length": 9}),
    (Rotated, {"linear": nn.Linear(5, 16), "encoder": MIXED, "positions": PLANE, "heads": 2}),
    (Rotated(nn.Linear(16, 16), MIXED, PLANE), {"x": X}),
    (IdentityFeatures(), {"x": Q, "is_query": True}),
    (FavorFeatures(8, 4).scaled_keys, {"k": Q}),
    (PROJECTIONS["iid"](8, 4).redraw, {"generator": None}),
    (Gate(16, 2).values, {"x": X}),
    (Roll((3, 5)), {"phi_q": Q, "phi_k": Q, "positions": LINE.long()}),
    (Roll((3, 5)).rotate, {"x": Q, "positions": LINE.long()}),
    (ConstantWeight().matrix, {"num_queries": 2, "num_keys": 3}),
    (ToeplitzWeight(torch.rand(2, 7)).matrix, {"num_queries": 4, "num_keys": 4}),
]  # fmt: skip


def name_of(function) -> str:
    owner = getattr(function, "__self__", function)
    return getattr(function, "__name__", type(owner).__name__)


def checked_of(call: Any) -> Any:
    """Return what ``checked`` has made and a call of a class, module or function comes to."""
    call = call.func if isinstance(call, partial) else call
    if inspect.isclass(call):
        call = call.__init__
    elif isinstance(call, nn.Module):
        call = type(call).forward
    call = getattr(call, "__func__", call)
    while call is not None and getattr(call, "__code__", None) not in CHECKED:
        call = getattr(call, "__wrapped__", None)
    return call


def modules_of(package: ModuleType) -> Iterator[str]:
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not info.name.endswith("__main__"):
            yield info.name


def all_checked() -> dict[CodeType, str]:
    """Return what all functions that ``checked`` has made are called, by their code."""
    found = {}
    names = [name for package in (stringlib, lab) for name in modules_of(package)]
    for module in map(importlib.import_module, names):
        for owner in (module, *filter(inspect.isclass, vars(module).values())):
            for value in vars(owner).values():
                function = getattr(value, "__func__", value)
                while hasattr(function, "__wrapped__"):
                    code = getattr(function, "__code__", None)
                    if code is not None and code.co_filename == spec.__file__:
                        found[code] = f"{function.__module__}.{function.__qualname__}"
                    function = function.__wrapped__
    return found


CHECKED = all_checked()


def test_every_checked_function_is_in_the_table() -> None:
    known = {checked_of(function).__code__ for function, _ in CALLS if checked_of(function)}
    assert {name for code, name in CHECKED.items() if code not in known} == set()


def shape_of(hint: Any) -> list[str]:
    return [w for m in _metas(hint) if isinstance(m, spec.Array) for w in m.shape.split()]


def is_row(parts: list[Any]) -> bool:
    return any(get_origin(part) in (tuple, Sequence) for part in parts)


def sharing(hints: dict[str, Any], given: dict[str, Any], key: str) -> set[str]:
    """Return which of the tensors given have a word in their shape."""
    tensors = [name for name, value in given.items() if isinstance(value, Tensor)]
    return {n for n in tensors if key in [word.strip("#?") for word in shape_of(hints[n])]}


def wrong(
    name: str, hints: dict[str, Any], given: dict[str, Any]
) -> Iterator[tuple[Any, set[str]]]:
    """Yield what an annotation does not admit, and which arguments an error may name for it."""
    hint, value = hints[name], given[name]
    parts, metas = _parts(hint), _metas(hint)
    if metas and type(None) not in parts:
        yield None, {name}
    if bool in parts:
        yield from ((bad, {name}) for bad in (0, 1, None))
    for meta in metas:
        if isinstance(meta, spec.Numbers):
            yield True, {name}
            whole = Annotated[int, meta] in parts
            numbers = (-1, 0, 0.5, math.nan, math.inf, -math.inf)
            yield from ((n, {name}) for n in numbers if (whole and n % 1) or not meta.admits(n))
    if is_row(parts) and value:
        one = next(get_args(part)[0] for part in parts if is_row([part]))
        yield from (([bad], {name}) for bad in (None, "x", object()))
        yield from (([bad], {name}) for bad, _ in wrong(name, {name: one}, {name: value}))
        yield [], {name}
    if not (words := shape_of(hint)) or not isinstance(value, Tensor):
        return
    yield value.cfloat(), {name}
    yield value > 0, {name}
    for bad in (value.long(), value.double()):
        if not (metas[0].floats and bad.is_floating_point()) and not metas[0].others(bad.dtype):
            yield bad, {name}
    own = [word for word in words if not word.startswith("...")]
    if own:
        yield value.new_zeros((1,) * (len(own) - 1)), {name}
    if own == words:
        yield value[None], {name}
    for i, word in enumerate(own):
        key, axis = word.strip("#?"), i - len(own)
        known = sharing(hints, given, key)
        if len(known) > 1 and key.isidentifier():
            yield value.to("meta"), known
        if len(known) > 1 or key.isdigit() or "." in key or own.count(word) > 1:
            one = value.narrow(axis, 0, 1)
            yield torch.cat([value, one], axis), known
            if word == key and value.shape[axis] > 1:  # it does not broadcast
                yield one, known
    known = sharing(hints, given, words[0].strip("?")) if own != words else set()
    if any(given[n].ndim >= len(shape_of(hints[n])) for n in known - {name}):
        yield value.new_zeros(11, *value.shape[value.ndim - len(own) :]), known
    if words[0] == "...?":
        yield value.expand(3, *value.shape), known


@pytest.mark.parametrize(
    ("function", "arguments"), CALLS, ids=[f"{i}-{name_of(f)}" for i, (f, _) in enumerate(CALLS)]
)
def test_what_is_no_such_argument_is_named(function, arguments) -> None:
    function(**arguments)
    checked = checked_of(function)
    hints = {} if checked is None else get_type_hints(inspect.unwrap(checked), include_extras=True)
    for name in arguments:
        if name == "attend":  # what is no function says so itself
            continue
        bads = [
            (bad, {name})
            for kind, bad in BAD.items()
            if kind != "a list" or not is_row(_parts(hints.get(name)))
        ]
        for bad, known in (*bads, *(wrong(name, hints, arguments) if name in hints else ())):
            with pytest.raises((TypeError, ValueError)) as caught:
                function(**{**arguments, name: bad})
            said = str(caught.value)
            known = known | ({"positions"} if name in ("a", "b", "shift") else set())
            assert "got" in said, (name, bad, said)
            assert any(word in said for word in known), (name, bad, said)


@pytest.mark.parametrize(
    ("match", "call"),
    [
        (r"distances must have shape \(n,\), got \(2, 3\)", lambda: BIASES[2].at(torch.ones(2, 3))),
        ("coord_dim must be at least 1, got 0", lambda: GridSinusoidal(8, 0)),
        (r"offsets must have shape \(n, coord_dim\) with coord_dim = 1, got \(4,\); write "
         r"offsets\[:, None\]", lambda: offsets.alias_gap(RoPE(8), torch.ones(4))),
        (r"positions must have shape \(..., n, coord_dim\), got \(4,\); write "
         r"positions\[:, None\]", lambda: TEXT(TOKENS, torch.ones(4))),
        ("sizes must be a tuple or list, got int", lambda: GridTable(3, 4)),
        ("sizes must be at least 1, got 0", lambda: GridTable((3, 0), 4)),
        (r"b must broadcast with a, \(3,\), got shape \(4,\)",
         lambda: properties.largest_difference(torch.ones(3), torch.ones(4))),
        ("a must be a tensor of numbers, got float",
         lambda: properties.largest_difference(1.0, torch.ones(4))),
        ("b must be a tensor of numbers, got torch.bool",
         lambda: properties.largest_difference(torch.ones(4), torch.ones(4) > 0)),
        ("generator must be", lambda: MultiHeadAttention(8, 2, generator=3)),
        (r"before must have shape \(2, 2, 1, 8\), .*got \(2, 1, 8\)",
         lambda: KeyShift(2)(Q, Q[0, :, :1])),
    ],
)  # fmt: skip
def test_these_too(match: str, call) -> None:
    with pytest.raises((TypeError, ValueError), match=match):
        call()


@pytest.mark.parametrize(
    ("dtype", "most"),
    [(torch.bfloat16, 257), (torch.float16, 2049), (torch.int8, 128), (torch.uint8, 256)],
)
def test_a_grid_is_not_counted_in_a_dtype_that_cannot_count_it(dtype, most) -> None:
    cells = grid_positions(most, 2, dtype=dtype)
    assert cells.dtype == dtype
    assert len(cells.double().unique(dim=0)) == 2 * most
    with pytest.raises(ValueError, match=f"dtype must tell all whole numbers up to {most} apart"):
        grid_positions(1, most + 1, dtype=dtype)
    for wrong in (torch.bool, torch.complex64, "float32"):
        with pytest.raises(TypeError, match=r"dtype must be (one of real numbers|a dtype), got"):
            grid_positions(3, dtype=wrong)
    assert grid_positions(0, 3, dtype=dtype).shape == (0, 2)
    with_class = grid_positions(2, 2, dtype=dtype, num_prefix=1)
    assert with_class.tolist() == [[0, 0], [0, 0], [0, 1], [1, 0], [1, 1]]
    assert with_class.dtype == dtype


@pytest.mark.parametrize(
    "shapes",
    [[(2, 3)], [(2, 3), (2, 3)], [(), (2, 3), ()], [(), ()], [(3,), (2, 1)], [(1, 3), (2, 3)]],
)
def test_the_common_shape_is_that_of_broadcasting(shapes: list[tuple[int, ...]]) -> None:
    given = [torch.Size(shape) for shape in shapes]
    assert common_shape(*given) == torch.broadcast_shapes(*given)


def test_shapes_without_a_common_one_are_refused() -> None:
    for shapes in (((2, 3), (3, 2)), ((2,), (3,), ())):
        with pytest.raises(RuntimeError):
            common_shape(*shapes)
