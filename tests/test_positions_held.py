"""Positions that a dtype does not hold are refused by all that read them, and all others are right.

The right angles of integers are computed by exact arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from stringlib import (
    AxialRoPE,
    CayleySTRING,
    LanguageModel,
    MultiHeadAttention,
    RoPE,
    Sinusoidal,
    ViT,
)
from stringlib.attention import Roll
from stringlib.encoders.dense import DenseSTRING
from stringlib.encoders.registry import BIASES, make_bias
from stringlib.interop import RotaryTables, Rotated
from stringlib.models.absolute import GridSinusoidal, GridTable
from stringlib.testing.properties import largest_difference

N, D = 3, 8
VECTORS, TOKENS = torch.ones(1, N, D), torch.ones(1, N, 16)
TEXT = torch.zeros(1, N, dtype=torch.int64)
PIXELS = torch.ones(1, 1, 12)

READERS: dict[str, Callable[[Tensor], Any]] = {
    "phases": lambda r: RoPE(D).phases(r),
    "forward": lambda r: RoPE(D)(VECTORS, VECTORS, r),
    "keys": lambda r: RoPE(D)(VECTORS, VECTORS, torch.arange(N)[:, None], r),
    "rotate": lambda r: CayleySTRING(D).rotate(VECTORS, r),
    "matrix": lambda r: RoPE(D).matrix(r),
    "tables": lambda r: RoPE(D).tables(r),
    "dense": lambda r: DenseSTRING(RoPE(D).generators()).phases(r),
    "sinusoidal": lambda r: Sinusoidal(16)(TOKENS, r),
    "layer": lambda r: MultiHeadAttention(16, 2, "rope")(TOKENS, r),
    "linear": lambda r: MultiHeadAttention(16, 2, "rope", "favor")(TOKENS, r),
    "after": lambda r: MultiHeadAttention(16, 2, "rope", "relu", rotate="after")(TOKENS, r),
    "weights": lambda r: MultiHeadAttention(16, 2, "rope").attention_weights(TOKENS, r),
    "text": lambda r: LanguageModel(4, 16, 1, 2, "rope")(TEXT, r),
    "text with sinusoids": lambda r: LanguageModel(4, 16, 1, 2, "sinusoidal")(TEXT, r),
    "images": lambda r: ViT((12,), 4, 3, 16, 1, 2, "rope")(PIXELS, r),
    "grid": lambda r: GridSinusoidal(16, 1)(TOKENS, r),
    "adapter": lambda r: RotaryTables(RoPE(D))(VECTORS, r.mT),
    "adapter by function": lambda r: RotaryTables(RoPE(D), positions=lambda x: r)(VECTORS),
    "rotated": lambda r: Rotated(nn.Linear(16, D), RoPE(D), r),
    "rotated by function": lambda r: Rotated(nn.Linear(16, D), RoPE(D), lambda x: r)(TOKENS),
    **{name: lambda r, name=name: make_bias(name, 2).at(r[:, 0]) for name in BIASES},
}
ROLLED: dict[str, Callable[[Tensor], Any]] = {
    "roll": lambda r: Roll((3, 5))(VECTORS, VECTORS, r),
    "rolled layer": lambda r: MultiHeadAttention(16, 2, attention="relu", rotate="roll")(TOKENS, r),
}
LIMITS = {torch.float64: 2.0**53, torch.float32: 2.0**24}
LIMITS |= {torch.float16: 2.0**11, torch.bfloat16: 2.0**8}
FRACTIONS = {torch.float16: 16, torch.bfloat16: 2}


def at(last: float, dtype: torch.dtype) -> Tensor:
    exact = torch.float64 if isinstance(last, float) else torch.int64
    return torch.tensor([[0], [1], [last]], dtype=exact).to(dtype)


every_reader = pytest.mark.parametrize("name", READERS)


@every_reader
@pytest.mark.parametrize("dtype", LIMITS, ids=str)
def test_integers_that_a_dtype_rounds_are_refused(name: str, dtype: torch.dtype) -> None:
    limit, read = LIMITS[dtype], READERS[name]
    beyond = limit * (1 + torch.finfo(dtype).eps)
    for sign in (1, -1):
        read(at(sign * limit, dtype))
        with pytest.raises(
            ValueError, match=rf"must be within ±{limit:.0f}, got -?\d.* {dtype} does not"
        ):
            read(at(sign * beyond, dtype))


@pytest.mark.parametrize("name", READERS | ROLLED)
def test_integers_beyond_float64_are_refused(name: str) -> None:
    read = (READERS | ROLLED)[name]
    for sign in (1, -1):
        read(at(sign * 2**53, torch.int64))
        with pytest.raises(
            ValueError, match=r"must be within ±9007199254740992, got .* torch.float64"
        ):
            read(at(sign * (2**53 + 2), torch.int64))


@every_reader
@pytest.mark.parametrize("dtype", FRACTIONS, ids=str)
def test_fractions_that_half_precision_rounds_are_refused(name: str, dtype: torch.dtype) -> None:
    most, read = FRACTIONS[dtype], READERS[name]
    read(at(most - 0.3, dtype))
    read(at(most + 1, dtype))
    for sign in (1, -1):
        with pytest.raises(ValueError, match=r"be integers or within .* got .* rounds it too much"):
            read(at(sign * (most + 0.3), dtype))


@every_reader
@pytest.mark.parametrize("dtype", LIMITS, ids=str)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_refused(name: str, dtype: torch.dtype, bad: float) -> None:
    with pytest.raises(ValueError, match="must be finite, got"):
        READERS[name](at(bad, dtype))


@pytest.mark.parametrize("name", READERS | ROLLED)
@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.uint8], ids=str)
def test_short_integers_are_as_long_ones(name: str, dtype: torch.dtype) -> None:
    read, ends = (READERS | ROLLED)[name], torch.iinfo(dtype)
    for last in (ends.min, ends.max):
        torch.manual_seed(0)
        found = torch.utils._pytree.tree_leaves(read(at(last, dtype)))
        torch.manual_seed(0)
        wanted = torch.utils._pytree.tree_leaves(read(at(last, torch.int64)))
        for a, b in zip(found, wanted, strict=True):
            if isinstance(a, Tensor):
                assert torch.equal(a, b.to(a.dtype))


def test_where_looking_is_not_free_nothing_is_looked_at() -> None:
    far, encoder = at(2.0**25, torch.float32), RoPE(D)
    assert encoder.to("meta").phases(far.to("meta")).cos_sin.is_meta
    encoder = RoPE(D)
    torch.vmap(lambda r: encoder.phases(r).cos_sin)(far.expand(2, -1, -1))
    assert encoder.phases(torch.zeros(0, 1)).cos_sin.numel() == 0
    program = torch.export.export(Rotation(encoder), (VECTORS, far))
    assert program.module()(VECTORS, far).isfinite().all()


class Rotation(nn.Module):
    def __init__(self, encoder: RoPE) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        return self.encoder.rotate(x, positions)


def pi(digits: int) -> Fraction:
    """Return π by Machin's formula."""

    def inverse_tangent(n: int) -> Fraction:
        return sum(
            (Fraction((-1) ** k, (2 * k + 1) * n ** (2 * k + 1)) for k in range(digits)),
            Fraction(0),
        )

    return 16 * inverse_tangent(5) - 4 * inverse_tangent(239)


@pytest.mark.parametrize("start", [0, 10**6, 1_700_000_000, 2**31, -1_700_000_000])
def test_time_stamps_have_the_right_phases(start: int) -> None:
    """The angle, modulo a full turn, is right to the rounding of float32."""
    encoder, full = RoPE(D), 2 * pi(60)
    positions = torch.tensor([start, start + 30, start + 61])
    turns = encoder.phases(positions[:, None]).cos_sin[0]
    for row, position in zip(turns, positions.tolist(), strict=True):
        for (cos, sin), pair in zip(row.tolist(), range(D // 2), strict=True):
            # 10000 ** (-i / 4) is 10 ** -i
            angle = float(Fraction(position, 10**pair) % full)
            assert abs(complex(cos, sin) - complex(math.cos(angle), math.sin(angle))) < 3e-7
    assert len(turns.unique(dim=0)) == 3
    several = AxialRoPE(D, 2).phases(torch.stack([positions, positions], -1))
    assert len(several.cos_sin[0].unique(dim=0)) == 3


def test_a_layer_reads_time_stamps_by_their_differences() -> None:
    layer, x = MultiHeadAttention(16, 2, "rope"), torch.randn(1, N, 16)
    near = torch.tensor([[0], [30], [61]])
    assert largest_difference(layer(x, near + 1_700_000_000), layer(x, near)) < 1e-5
    assert largest_difference(layer(x, near), layer(x, 0 * near)) > 1e-3


@pytest.mark.parametrize("name", BIASES)
def test_biases_of_the_shortest_integers(name: str) -> None:
    bias, distances = make_bias(name, 2), torch.tensor([-128, 127])
    assert torch.equal(bias.at(distances.to(torch.int8)), bias.at(distances))
    assert torch.equal(bias.at(distances.float()), bias.at(distances))


def test_a_table_is_read_at_positions_of_any_dtype() -> None:
    table = GridTable((4,), 16)
    for dtype in (torch.int8, torch.int64, torch.bfloat16, torch.float64):
        assert torch.equal(table(TOKENS, at(2, dtype)), table(TOKENS, at(2, torch.float32)))
    with pytest.raises(ValueError, match="must be finite"):
        table(TOKENS, at(math.nan, torch.float32))
