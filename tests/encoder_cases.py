"""Every encoder, in the shapes that its contract must survive: add a new encoder here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

import stringlib
from stringlib import ENCODERS, RotaryEncoder, reference
from stringlib.algebra import haar_orthogonal
from stringlib.parts import build


def _given(head_dim: int, pairs: int, coord_dim: int, heads: int, layout: str) -> RotaryEncoder:
    frequencies = torch.randn(heads, pairs, coord_dim)
    return stringlib.STRING(
        frequencies, haar_orthogonal(head_dim, heads, dtype=torch.float64), layout=layout
    )


class _LongCayley(stringlib.CayleySTRING):
    """With S so long that a plain solve loses four digits."""

    def skew(self) -> torch.Tensor:
        return 1e4 * super().skew()


CASES: dict[str, Callable[[], RotaryEncoder]] = {
    "rope-8": lambda: stringlib.RoPE(8),
    "rope-half-6-heads-3": lambda: stringlib.RoPE(6, base=100.0, heads=3, layout="half"),
    "axial-10-uneven-2d": lambda: stringlib.AxialRoPE(10, 2, base=10.0),
    "axial-14-3d-heads-3": lambda: stringlib.AxialRoPE(14, 3, heads=3),
    "mixed-12-2d-heads-3": lambda: stringlib.MixedRoPE(12, 2, heads=3, base=100.0),
    "mixed-10-uneven-3d": lambda: stringlib.MixedRoPE(10, 3, heads=2),
    "reflection-2-3d": lambda: stringlib.ReflectionSTRING(2, coord_dim=3),
    "reflection-6-heads-3": lambda: stringlib.ReflectionSTRING(6, heads=3),
    "circulant-2-2d": lambda: stringlib.CirculantSTRING(2, coord_dim=2),
    "circulant-8-2d": lambda: stringlib.CirculantSTRING(8, coord_dim=2, heads=2),
    "circulant-15-block-5": lambda: stringlib.CirculantSTRING(15, 1, heads=2, block_size=5),
    "circulant-260-rfft": lambda: stringlib.CirculantSTRING(260, block_size=20),
    "circulant-261-rfft-odd": lambda: stringlib.CirculantSTRING(261, block_size=9),
    "cayley-1": lambda: stringlib.CayleySTRING(1, heads=2),
    "cayley-7-3d-heads-3": lambda: stringlib.CayleySTRING(7, coord_dim=3, heads=3),
    "cayley-8-sparse-2d": lambda: stringlib.CayleySTRING(8, 2, density=0.25),
    "cayley-6-density-0": lambda: stringlib.CayleySTRING(6, 2, heads=2, density=0),
    "cayley-64-long": lambda: _LongCayley(64, heads=2),
    "dense-1": lambda: stringlib.DenseSTRING(torch.zeros(1, 2, 1, 1)),
    "dense-7-3d-heads-2": lambda: stringlib.DenseSTRING(
        _given(7, 3, 3, 2, "interleaved").generators()
    ),
    "string-7": lambda: _given(7, 2, 2, 3, "interleaved"),
    "string-half-7": lambda: _given(7, 2, 3, 2, "half"),
    "selective-6-heads-3": lambda: stringlib.SelectiveRoPE(6, heads=3),
    "string-no-pairs": lambda: stringlib.STRING(torch.zeros(1, 0, 1), head_dim=4),
}


def by_name(registry: Mapping[str, Callable[..., RotaryEncoder]]) -> dict[str, Any]:
    """Return cases of those encoders of a registry whose class has none here."""
    written = {type(make()) for make in CASES.values()}
    new = {n: make for n, make in registry.items() if type(build(n, make, SMALL[0])) not in written}
    return {
        f"{name}-{number}": partial(build, name, make, given)
        for name, make in new.items()
        for number, given in enumerate(SMALL)
    }


SMALL = ({"head_dim": 8, "coord_dim": 1, "heads": 1}, {"head_dim": 6, "coord_dim": 1, "heads": 3})
CASES |= by_name(ENCODERS)


def _circulant(e: RotaryEncoder, h: int, x: Tensor, r: Tensor) -> Tensor:
    blocks = zip(x.split(e.block_size, -1), e.coefficients[h].unbind(1), strict=True)
    return torch.cat(
        [reference.circulant_string_rotate(part[None], r, c[None])[0] for part, c in blocks], -1
    )


def _mixed(e: RotaryEncoder, h: int, x: Tensor, r: Tensor) -> Tensor | None:
    if e.coord_dim != 2:  # as it was printed
        return None
    along = e.omega[h, None].unbind(-1)
    return reference.apply_mixed_rope(x[None], r, *along)[0]


def _reflection(e: RotaryEncoder, h: int, x: Tensor, r: Tensor) -> Tensor:
    once = torch.ones(1)  # the angles of all coordinates together, for one token at a time
    angles = torch.einsum("spc,nc->nsp", e.angles[:, h], r)
    rows = [
        reference.apply_reflection_rope(t[None], once, *a) for t, a in zip(x, angles, strict=True)
    ]
    return torch.cat(rows)


def _cayley(e: RotaryEncoder, h: int, x: Tensor, r: Tensor) -> Tensor:
    skew = e.skew()[h]
    return reference.cayley_apply(skew, reference.cayley_string(x, r, skew, e.omega[h]))


def literal(e: RotaryEncoder, h: int, x: Tensor, r: Tensor) -> Tensor:
    """Return R(r)x as the exponential of the generators: of any encoder."""
    matrices = reference.liere_matrix(r, e.generators()[h])
    return torch.einsum("nij,nj->ni", matrices, x)


def _rope(e: RotaryEncoder, h: int, x: Tensor, r: Tensor) -> Tensor | None:
    if e.layout != "interleaved":  # that of the paper
        return None
    pair = torch.arange(x.shape[-1] // 2).double()
    return reference.apply_rope(x, r[:, 0], e.base ** (-2 * pair / x.shape[-1]))


TWINS: dict[type[RotaryEncoder], Callable[[RotaryEncoder, int, Tensor, Tensor], Tensor | None]] = {
    stringlib.RoPE: _rope,
    stringlib.AxialRoPE: lambda e, h, x, r: reference.apply_axial_rope(x, r, e.base),
    stringlib.MixedRoPE: _mixed,
    stringlib.ReflectionSTRING: _reflection,
    stringlib.CirculantSTRING: _circulant,
    stringlib.CayleySTRING: _cayley,
    _LongCayley: _cayley,
    stringlib.DenseSTRING: literal,
    stringlib.STRING: literal,
}
"""Class → R(r)x of one head, ``(seq, d)``, by the literal form; None where it was not printed."""


def make(name: str, dtype: torch.dtype = torch.float64) -> RotaryEncoder:
    """Build a case with random parameters of order one, reproducibly."""
    torch.manual_seed(0)
    encoder = CASES[name]().to(dtype)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.normal_(std=max(1, parameter.shape[-1]) ** -0.5)
    return encoder
