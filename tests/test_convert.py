"""Weights and tables for other libraries' models, against attention written down."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from stringlib import STRING, AxialRoPE, CayleySTRING, CirculantSTRING, ReflectionSTRING, RoPE
from stringlib.encoders.rotary import RotaryEncoder
from stringlib.interop.convert import fold_qkv, to_layout
from stringlib.testing.properties import largest_difference
from tests.refusals import refusals

LAYOUTS = ("half", "interleaved")
DIM, MODEL = 12, 20
ENCODERS: dict[str, Callable[[], RotaryEncoder]] = {
    "rope": lambda: RoPE(DIM),
    "rope half": lambda: RoPE(DIM, layout="half"),
    "partial": lambda: STRING(torch.rand(1, 4, 1).double(), head_dim=DIM),
    "partial half": lambda: STRING(torch.rand(1, 4, 1).double(), head_dim=DIM, layout="half"),
    "axial": lambda: AxialRoPE(DIM, 2),
    "circulant": lambda: CirculantSTRING(DIM, 2, block_size=6),
    "cayley": lambda: CayleySTRING(DIM, 2),
    "reflection": lambda: ReflectionSTRING(DIM, 1),
}
every_encoder = pytest.mark.parametrize("name", ENCODERS)
every_layout = pytest.mark.parametrize("layout", LAYOUTS)


def made(name: str) -> RotaryEncoder:
    """Return an encoder whose parameters are not small."""
    torch.manual_seed(0)
    encoder = ENCODERS[name]().double()
    with torch.no_grad():
        for p in encoder.parameters():
            p.normal_()
    return encoder


def turned(x: Tensor, cos: Tensor, sin: Tensor, layout: str) -> Tensor:
    """Return what models do with tables: x cos + (the partner with a sign) sin."""
    a, b = x.chunk(2, -1) if layout == "half" else (x[..., ::2], x[..., 1::2])
    partner = torch.cat([-b, a], -1)
    if layout == "interleaved":
        partner = torch.stack([-b, a], -1).flatten(-2)
    return x * cos + partner * sin


def heads_of(x: Tensor, weight: Tensor, bias: Tensor, dim: int = DIM) -> Tensor:
    return (x @ weight.mT + bias).unflatten(-1, (-1, dim)).transpose(-3, -2)


def case(name: str) -> tuple[RotaryEncoder, Tensor, Tensor, list[Tensor], list[Tensor]]:
    """Return an encoder, tokens, positions, weights of q and k, and their biases."""
    encoder = made(name)
    x, positions = torch.randn(2, 5, MODEL).double(), torch.randn(5, encoder.coord_dim).double()
    weights = [torch.randn(3 * DIM, MODEL).double() for _ in range(2)]
    return encoder, x, positions, weights, [torch.randn(3 * DIM).double() for _ in range(2)]


@every_layout
@every_encoder
def test_tables_and_folded_weights_give_the_logits_of_the_encoder(name: str, layout: str) -> None:
    encoder, x, positions, weights, biases = case(name)
    q, k = encoder(*(heads_of(x, w, b) for w, b in zip(weights, biases, strict=True)), positions)
    folded = [encoder.fold(w, layout=layout) for w in weights]
    shifts = [encoder.fold(b, layout=layout) for b in biases]
    here = [heads_of(x, w, b) for w, b in zip(folded, shifts, strict=True)]
    for behind in (encoder, encoder.folded(layout)):
        cos, sin = behind.tables(positions, layout, torch.float64)
        assert cos.shape == sin.shape == (5, DIM)
        a, b = (turned(y, cos, sin, layout) for y in here)
        assert largest_difference(a @ b.mT, q @ k.mT) < 1e-11
    a, b = encoder.folded(layout)(*here, positions)
    assert encoder.folded(layout).layout == layout
    assert largest_difference(a @ b.mT, q @ k.mT) < 1e-11


@pytest.mark.parametrize("pairs", [None, 1, 4, 6])
@pytest.mark.parametrize("source", LAYOUTS)
@pytest.mark.parametrize("target", LAYOUTS)
def test_rows_of_another_layout_give_the_same_logits(
    source: str, target: str, pairs: int | None
) -> None:
    torch.manual_seed(0)
    frequencies = torch.rand(1, pairs or 6, 1).double()
    x, positions = torch.randn(2, 5, MODEL).double(), torch.arange(5)[:, None]
    w, v = torch.randn(4 * DIM, MODEL).double(), torch.randn(2 * DIM, MODEL).double()  # fewer keys
    b, c = torch.randn(4 * DIM).double(), torch.randn(2 * DIM).double()

    def logits(layout: str, *parts: Tensor) -> Tensor:
        encoder = STRING(frequencies, head_dim=DIM, layout=layout)
        q = encoder.rotate(heads_of(x, *parts[:2]), positions)
        k = encoder.rotate(heads_of(x, *parts[2:]), positions)
        return q @ k.repeat_interleave(2, -3).mT

    parts = (w, b, v, c)
    moved = [to_layout(part, DIM, source, target, pairs) for part in parts]
    assert largest_difference(logits(target, *moved), logits(source, *parts)) < 1e-12
    assert all(torch.equal(m, p) for m, p in zip(moved, parts, strict=True)) is (
        source == target or pairs == 1
    )
    back = [to_layout(part, DIM, target, source, pairs) for part in moved]
    assert all(torch.equal(m, p) for m, p in zip(back, parts, strict=True))
    assert torch.equal(parts[0], w)


def test_frequencies_of_a_rotary_module_make_an_encoder() -> None:
    inv_freq = torch.rand(4)
    encoder = STRING.from_inv_freq(inv_freq)
    assert (encoder.head_dim, encoder.coord_dim, encoder.heads, encoder.layout) == (8, 1, 1, "half")
    assert torch.equal(encoder.frequencies()[0, :, 0], inv_freq.double())
    wide = STRING.from_inv_freq(inv_freq, "interleaved", head_dim=11)
    x = torch.randn(1, 3, 11)
    assert torch.equal(wide.rotate(x, torch.arange(3)[:, None])[..., 8:], x[..., 8:])


@every_layout
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", ["circulant", "cayley", "rope"])
def test_a_fused_projection_is_folded_but_for_its_values(
    name: str, bias: bool, layout: str
) -> None:
    encoder = made(name)
    linear = nn.Linear(MODEL, (4 + 2 * 2) * DIM, bias=bias).double()
    before = [p.detach().clone() for p in linear.parameters()]
    fold_qkv(linear, encoder, 4, 2, layout=layout)
    for p, old in zip(linear.parameters(), before, strict=True):
        parts = old.split([4 * DIM, 2 * DIM, 2 * DIM])
        wanted = [*(encoder.fold(part, layout=layout) for part in parts[:2]), parts[2]]
        assert largest_difference(p, torch.cat(wanted)) < 1e-14
        assert torch.equal(p[6 * DIM :], parts[2])
    assert linear.weight.requires_grad


def test_heads_with_bases_of_their_own_are_folded_in_place() -> None:
    encoder = CayleySTRING(DIM, heads=3).double()
    torch.manual_seed(0)
    for p in encoder.parameters():
        nn.init.normal_(p)
    linear = nn.Linear(MODEL, 9 * DIM).double()
    wanted = encoder.fold(linear.weight[3 * DIM : 6 * DIM].detach())
    fold_qkv(linear, encoder, 3)
    assert torch.equal(linear.weight[3 * DIM : 6 * DIM], wanted)


LINEAR = nn.Linear(8, 24)


test_what_does_not_fit_is_named = refusals(
    (lambda: RoPE(8, heads=2).tables(torch.zeros(3, 1)), "encoder must have heads=1.*phases"),
    (lambda: RoPE(8).tables(torch.zeros(3, 1), dtype=torch.int64), "TypeError: dtype must be"),
    (lambda: to_layout(torch.zeros(9), 4, "half", "half"), "weight must have shape"),
    (lambda: to_layout(torch.zeros(8), 4, "half", "half", 3), "pairs must be from 1 to 2, got 3"),
    (lambda: to_layout(torch.zeros(3), 1, "half", "half"), "head_dim must be at least 2, got 1"),
    (lambda: fold_qkv(LINEAR, RoPE(8), 2), "linear must have .* = 48 rows"),
    (lambda: fold_qkv(LINEAR, RoPE(4, heads=4), 4, 1), "encoder must have heads=1"),
)
