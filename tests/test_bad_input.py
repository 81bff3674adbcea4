"""Bad arguments: whatever takes them names them, with what was given."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest
import torch
from torch import Tensor, nn

import stringlib
from lab.one_head import OneHead
from lab.theory import capacity, cost, offsets, rope_decay, spread, variance
from stringlib import (
    STRING,
    ALiBi,
    CayleySTRING,
    CirculantSTRING,
    CosineWeight,
    DecayWeight,
    DenseSTRING,
    FallingWeight,
    FavorFeatures,
    KerpleLog,
    LanguageModel,
    LearnedAbsolute,
    MixedRoPE,
    MultiHeadAttention,
    RoPE,
    Sinusoidal,
    T5Bias,
    ToeplitzWeight,
    ViT,
    linear_attention,
    make_encoder,
    softmax_attention,
    spec,
)
from stringlib.algebra import haar_orthogonal, universal_form
from stringlib.attention.decay import decayed_sums
from stringlib.attention.delta import delta_rule
from stringlib.attention.gate import Gate
from stringlib.attention.projections import PROJECTIONS
from stringlib.attention.rotated_linear import rotated_linear_attention
from stringlib.attention.shift import KeyShift
from stringlib.attention.state import rwkv6, ssd
from stringlib.encoders.registry import make_bias
from stringlib.encoders.rope import mrope
from stringlib.encoders.scaling import yarn
from stringlib.interop.adapters import RotaryTables, Rotated
from stringlib.interop.convert import fold_qkv, to_layout
from stringlib.models import make_language_model
from stringlib.models.absolute import GridSinusoidal, GridTable
from stringlib.models.blocks import Block
from stringlib.positions import grid_positions
from stringlib.spec import _metas, _parts
from stringlib.testing import properties
from tests.refusals import refusals

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
BIASES = [bias(2) for bias in (ALiBi, T5Bias, KerpleLog)]
CALLS = [
    (make_encoder, {"name": "mixed", "head_dim": 8, "coord_dim": 2, "heads": 1}),
    (make_bias, {"name": "t5", "heads": 2, "causal": True}),
    (make_language_model, {"name": "tiny", "vocab": 5}),
    (RoPE, {"head_dim": 8, "base": 10.0, "heads": 1, "layout": "half"}),
    (DenseSTRING, {"generators": torch.zeros(1, 2, 4, 4)}),
    (MIXED, {"q": Q, "k": Q, "positions": PLANE, "key_positions": PLANE}),
    (MIXED.fold, {"weight": torch.rand(16, 5), "heads": 2}),
    *((bias, {"num_queries": 2, "num_keys": 3, "offset": 1}) for bias in BIASES),
    (Sinusoidal(16), {"x": X, "positions": LINE}),
    (LearnedAbsolute(4, 16), {"x": X, "positions": LINE}),
    (GridTable((2, 3), 16), {"x": X, "positions": PLANE}),
    (yarn, {"frequencies": torch.rand(1, 4, 1), "scale": 2, "length": 9, "slow": 1, "fast": 2}),
    (universal_form, {"generators": torch.zeros(2, 4, 4), "tolerance": 0.1}),
    (offsets.alias_gap, {"encoder": MIXED, "offsets": PLANE}),
    (capacity.delta_noise, {"load": 1.0, "rate": 0.5}),
    (cost.chunk_products, {"n": 8, "m": 2, "width": 3, "chunk": 4}),
    (rope_decay.phase_sum,
     {"distances": Q, "frequencies": torch.rand(3), "amplitudes": torch.rand(3)}),
    (spread.difference, {"values": [1.0, 2.0], "others": [3, 5], "comparisons": 2}),
    (variance.orthogonal_mse,
     {"square": Q, "num_features": 3, "head_dim": 4, "hyperbolic": True}),
    (properties.translation_error,
     {"encoder": MIXED, "q": Q, "k": Q, "positions": PLANE, "shift": 1}),
    (TEXT, {"tokens": TOKENS, "positions": LINE, "key_mask": MASK, "state": None,
            "return_state": False}),
    (TEXT, {"tokens": TOKENS, "state": TEXT(TOKENS, return_state=True)[1]}),
    (TEXT.generate, {"tokens": TOKENS, "count": 1, "key_mask": MASK, "temperature": 0.5,
                     "generator": None}),
    (Block, {"dim": 8, "heads": 2, "mlp": "mlp", "hidden": 5}),
    (GridTable, {"sizes": (2, 3), "dim": 4}),
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
    (DecayWeight, {"log_decay": -SCALE}),
    (CosineWeight(9).matrix, {"num_queries": 2, "num_keys": 3}),
    (CosineWeight(9).features, {"phi": Q, "start": 1}),
    (FallingWeight, {"horizon": 9, "degree": 4}),
    (ToeplitzWeight, {"bias": torch.rand(2, 7)}),
    (FavorFeatures, {"head_dim": 4, "num_features": 3, "projection": "iid", "heads": 2,
                     "learnable": True, "hyperbolic": True, "stabilize": True, "generator": None,
                     "mean_square": torch.rand(2, 4)}),
    (FavorFeatures(8, 4), {"x": Q, "is_query": True}),
    (PROJECTIONS["circulant"](8, 4, 2), {"x": Q}),
    (rwkv6, {"r": Q, "k": Q, "v": Q, "log_decay": -Q, "bonus": Q[0, :, 0], "mode": "chunk",
     "state": torch.rand(2, 2, 8, 8)}),
    (ssd, {"x": Q, "dt": SCALE, "A": -torch.ones(2), "B": Q, "C": Q, "mode": "chunk",
     "state": torch.rand(2, 2, 8, 8)}),
    (Gate(16, 2), {"y": Q, "x": X}),
    (KeyShift(2), {"k": Q, "before": Q[..., :1, :], "key_mask": MASK}),
    (STRING, {"frequencies": torch.rand(2, 4, 1), "basis": torch.eye(8).expand(2, 8, 8),
              "head_dim": 8, "layout": "half", "persistent": False}),
    (CirculantSTRING, {"head_dim": 8, "coord_dim": 2, "heads": 2, "block_size": 4, "zero": True}),
    (CayleySTRING, {"head_dim": 8, "coord_dim": 2, "heads": 2, "density": 0.5}),
    (mrope, {"frequencies": torch.rand(1, 4, 1), "sections": (1, 3), "interleaved": False}),
    (T5Bias, {"heads": 2, "num_buckets": 8, "max_distance": 16, "bidirectional": True}),
    (partial(grid_positions, 2, 3), {"dtype": torch.float64, "num_prefix": 1}),
    (haar_orthogonal, {"size": 3, "generator": None, "dtype": torch.float64}),
    (to_layout, {"weight": torch.rand(16, 5), "head_dim": 8, "source": "half",
                 "target": "interleaved", "pairs": 3}),
    (fold_qkv, {"linear": nn.Linear(5, 48), "encoder": MIXED, "heads": 2, "kv_heads": 2,
                "layout": "half"}),
    (RotaryTables(RoPE(8)), {"x": X, "position_ids": torch.arange(4)[None]}),
    (Rotated, {"linear": nn.Linear(5, 16), "encoder": MIXED, "positions": PLANE, "heads": 2}),
]  # fmt: skip
"""A valid call of each kind of function: of each annotation, and of what checks by hand."""


def name_of(function) -> str:
    owner = getattr(function, "__self__", function)
    return getattr(function, "__name__", type(owner).__name__)


def hints_of(call: Any) -> dict[str, Any]:
    """Return what a class, module or function says of its arguments."""
    call = call.func if isinstance(call, partial) else call
    if inspect.isclass(call):
        call = call.__init__
    elif isinstance(call, nn.Module):
        call = type(call).forward
    call = inspect.unwrap(call)
    # classes that a module imports for type checkers only are among the public ones
    names = {**vars(stringlib), "Context": Any, **call.__globals__}
    return get_type_hints(call, names, include_extras=True)


def shape_of(hint: Any) -> list[str]:
    return [w for m in _metas(hint) if isinstance(m, spec.Array) for w in m.shape.split()]


def is_row(parts: list[Any]) -> bool:
    return any(get_origin(part) in (tuple, Sequence) for part in parts)


def admitted(words: str, number: float) -> bool:
    """Return whether a number is what an annotation says in words."""
    least = re.search(r"at least (\d+)", words)
    tests = {
        "finite": math.isfinite(number),
        "positive": number > 0,
        "even": number > 0 and number % 2 == 0,
        "between 0 and 1": 0 <= number <= 1,
        "at least": least is None or number >= int(least[1]),
    }
    return all(holds for word, holds in tests.items() if word in words)


def sharing(hints: dict[str, Any], given: dict[str, Any], key: str) -> list[str]:
    """Return which of the tensors given have a word in their shape, or any."""
    tensors = [name for name in hints if isinstance(given.get(name), Tensor)]
    return [n for n in tensors if key in ["", *(word.strip("#?") for word in shape_of(hints[n]))]]


def blamed(name: str, known: list[str]) -> str:
    """Return which of those that share a size an error names: the first one says what it is."""
    return known[1] if name == known[0] and len(known) > 1 else name


def wrong(name: str, hints: dict[str, Any], given: dict[str, Any]) -> Iterator[tuple[Any, str]]:
    """Yield what an annotation does not admit, and the argument that an error must name for it."""
    hint, value = hints[name], given[name]
    parts, metas = _parts(hint), _metas(hint)
    if metas and type(None) not in parts:
        yield None, name
    if bool in parts:
        yield from ((bad, name) for bad in (0, 1, None))
    for meta in metas:
        if isinstance(meta, spec.Numbers):
            yield True, name
            whole = Annotated[int, meta] in parts
            for n in (-1, 0, 0.5, 3, math.nan, math.inf, -math.inf):
                if (whole and n % 1) or not admitted(meta.words, n):
                    yield n, name
    if is_row(parts) and value:
        one = next(get_args(part)[0] for part in parts if is_row([part]))
        yield from (([bad], name) for bad in (None, "x", object()))
        yield from (([bad], name) for bad, _ in wrong(name, {name: one}, {name: value}))
        yield [], name
    if not (words := shape_of(hint)) or not isinstance(value, Tensor):
        return
    yield value.cfloat(), name
    yield value > 0, name
    if "floating" in metas[0].kind:
        yield value.long(), name
    if "integers" in metas[0].kind:
        yield value.double(), name
    own = [word for word in words if not word.startswith("...")]
    if own:
        yield value.new_zeros((1,) * (len(own) - 1)), name
    if own == words:
        yield value[None], name
    for i, word in enumerate(own):
        key, axis = word.strip("#?"), i - len(own)
        known = sharing(hints, given, key)
        if len(known) > 1 and key.isidentifier():
            yield value.to("meta"), blamed(name, sharing(hints, given, ""))
        elsewhere = key.isdigit() or "." in key  # what says the size is no tensor
        if len(known) > 1 or elsewhere or own.count(word) > 1:
            one, named = value.narrow(axis, 0, 1), name if elsewhere else blamed(name, known)
            yield torch.cat([value, one], axis), named
            if word == key and value.shape[axis] > 1:  # it does not broadcast
                yield one, named
    known = sharing(hints, given, words[0].strip("?")) if own != words else [name]
    if any(given[n].ndim >= len(shape_of(hints[n])) for n in known if n != name):
        yield value.new_zeros(11, *value.shape[value.ndim - len(own) :]), blamed(name, known)
    if words[0] == "...?":
        yield value.expand(3, *value.shape), name


@pytest.mark.parametrize(
    ("function", "arguments"), CALLS, ids=[f"{i}-{name_of(f)}" for i, (f, _) in enumerate(CALLS)]
)
def test_what_is_no_such_argument_is_named(function, arguments) -> None:
    function(**arguments)
    hints = hints_of(function)
    for name in arguments:
        row = is_row(_parts(hints.get(name)))
        bads = [(bad, name) for kind, bad in BAD.items() if kind != "a list" or not row]
        for bad, named in (*bads, *(wrong(name, hints, arguments) if name in hints else ())):
            with pytest.raises((TypeError, ValueError)) as caught:
                function(**{**arguments, name: bad})
            subject, must, rest = str(caught.value).partition(" must ")
            assert must, (name, bad, subject)
            assert "got" in rest, (name, bad, subject, rest)
            assert re.search(rf"\b{named}\b", subject), (name, bad, named, subject)


test_these_too = refusals(
    (lambda: KerpleLog(2).at(torch.ones(2, 3)), r"distances must have shape \(n,\), got \(2, 3\)"),
    (lambda: GridSinusoidal(8, 0), "coord_dim must be at least 1, got 0"),
    (lambda: TEXT(TOKENS, key_mask=MASK[..., :1]), "key_mask must have .* for each head"),
    (lambda: offsets.alias_gap(RoPE(8), torch.ones(4)), r"coord_dim = 1, .*offsets\[:, None\]"),
    (lambda: TEXT(TOKENS, torch.ones(4)), r"coord_dim\), got \(4,\). Write positions\[:, None\]"),
    (lambda: properties.largest_difference(Q, X), r"b must have .* \(2, 2, 4, 8\) of a, got"),
    (lambda: properties.largest_difference(1.0, X), "TypeError: a must be a tensor of numbers"),
    (lambda: properties.largest_difference(X, X > 0), "TypeError: b must be .* got torch.bool"),
    (lambda: KeyShift(2)(Q, Q[0, :, :1]), r"before must .* \(2, 2, 1, 8\), .*got \(2, 1, 8\)"),
)


@pytest.mark.parametrize(
    ("dtype", "most"),
    [(torch.bfloat16, 257), (torch.float16, 2049), (torch.int8, 128), (torch.uint8, 256)],
)
def test_a_grid_is_not_counted_in_a_dtype_that_cannot_count_it(dtype, most) -> None:
    cells = grid_positions(most, 2, dtype=dtype)
    assert cells.dtype == dtype
    assert len(cells.double().unique(dim=0)) == 2 * most
    with pytest.raises(ValueError, match=f"dtype must represent all integers up to {most}, "):
        grid_positions(1, most + 1, dtype=dtype)
    for wrong in (torch.bool, torch.complex64, "float32"):
        with pytest.raises(TypeError, match=r"dtype must be (an integer or floating|a dtype)"):
            grid_positions(3, dtype=wrong)
    assert grid_positions(0, 3, dtype=dtype).shape == (0, 2)
    with_class = grid_positions(2, 2, dtype=dtype, num_prefix=1)
    assert with_class.tolist() == [[0, 0], [0, 0], [0, 1], [1, 0], [1, 1]]
    assert with_class.dtype == dtype
