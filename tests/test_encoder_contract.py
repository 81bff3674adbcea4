"""Every encoder keeps the contract of ``stringlib.testing``, and what is this package's own."""

from __future__ import annotations

import pytest
import torch

from stringlib import (
    STRING,
    AxialRoPE,
    CayleySTRING,
    CirculantSTRING,
    DenseSTRING,
    MixedRoPE,
    ReflectionSTRING,
    RoPE,
)
from stringlib.testing import properties
from stringlib.testing.contract import Property, close
from stringlib.testing.encoders import ENCODER, heads_of, inputs
from stringlib.testing.modes import Mode
from tests.encoder_cases import CASES, TWINS, literal, make
from tests.refusals import refusals
from tests.thinned import hold, products

encoders = pytest.mark.parametrize("name", CASES)


TRACED = ("axial-10-uneven-2d", "reflection-6-heads-3", "circulant-260-rfft", "cayley-8-sparse-2d",
          "dense-7-3d-heads-2", "string-half-7")  # fmt: skip
"""One of each form of basis, frequencies and layout that no compiled model has: test_modes.py."""


@pytest.mark.parametrize(("name", "property", "modes"), products(ENCODER, CASES, TRACED, every=2))
def test_contract(name: str, property: Property, modes: list[Mode]) -> None:
    hold(property, lambda dtype=torch.float64: make(name, dtype), modes)


@encoders
@pytest.mark.proves("eq-rope-pair", "eq-grid-axial", "eq-grid-mixed", "eq-reflection-rotation")
@pytest.mark.proves("eq-circulant-generator", "eq-circulant-fft", "eq-cayley-before")
def test_equals_its_literal_twin(name):
    encoder = make(name)
    if name == "cayley-64-long":
        pytest.skip("the literal solve loses four digits, as the case is there to show")
    x, _, positions = inputs(encoder, seq=5, batch=())
    got = encoder.rotate(x, positions)
    for head in range(heads_of(encoder)):
        own = head if encoder.heads > 1 else 0
        expected = TWINS.get(type(encoder), literal)(encoder, own, x[head], positions)
        assert expected is None or properties.largest_difference(got[head], expected) <= 1e-11


def test_generated_code() -> None:
    """As a user compiles: code is generated for one encoder, and as plain as can be, in seconds."""
    torch.compiler.reset()
    encoder = make("rope-8")
    slow = {"cpp.vec_isa_ok", "cpp_cache_precompile_headers"}
    slow &= set(torch._inductor.list_options())
    compiled = torch.compile(encoder, fullgraph=True, options=dict.fromkeys(slow, False))
    given = inputs(encoder)
    for got, want in zip(compiled(*given), encoder(*given), strict=True):
        close(got, want, 1e-12)


NEW = (
    RoPE(8, base=10),
    AxialRoPE(8, 2, base=50),
    MixedRoPE(8, 2, heads=3),
    ReflectionSTRING(8),
    CirculantSTRING(16),
    CayleySTRING(8, density=0.5),
)


@pytest.mark.parametrize("encoder", NEW, ids=repr)
def test_what_a_new_encoder_has(encoder):
    learned = dict(encoder.named_parameters())
    assert {*encoder.state_dict()} - {"support"} == {*learned}
    assert {p.dtype for p in learned.values()} <= {torch.float32}
    for parameter in learned.values():
        parameter.data.fill_(torch.nan)
    if learned:
        encoder.reset_parameters()
    assert encoder.frequencies().isfinite().all()
    assert encoder.basis().isfinite().all()


OMEGA = torch.zeros(2, 2, 1)


test_what_does_not_fit_a_constructor_is_named = refusals(
    (lambda: AxialRoPE(4, 3), "head_dim must be at least 2 \\* coord_dim = 6, got 4"),
    (lambda: CirculantSTRING(16, block_size=5), "block_size must divide head_dim 16, got 5"),
    (lambda: CirculantSTRING(16, block_size=32), "block_size must divide head_dim 16, got 32"),
    (lambda: STRING(OMEGA[:, :0]), "head_dim must be given"),
    (lambda: STRING(OMEGA, head_dim=3), "head_dim must be at least .* = 4, got 3"),
    (
        lambda: STRING(OMEGA, torch.eye(4).expand(2, 4, 4), head_dim=6),
        r"basis must have shape \(2, 6, 6\)",
    ),
    (lambda: RoPE(7), "head_dim must be even and positive .channels rotate in pairs., got 7"),
    (lambda: DenseSTRING(torch.eye(4)[None, None]), r"skew-symmetric.* 2.0e\+00 ‖L‖"),
)
