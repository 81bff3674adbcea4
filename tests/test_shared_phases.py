"""The phases that blocks share: their dtype, and which encoders have them."""

from __future__ import annotations

import io

import pytest
import torch
from torch import nn

from stringlib import CayleySTRING, RoPE
from stringlib.encoders import string
from stringlib.encoders.rotary import Phases
from stringlib.encoders.string import STRING
from stringlib.models.blocks import Block, phases_of

DTYPES = {
    torch.bfloat16: torch.float32,
    torch.float16: torch.float32,
    torch.float32: torch.float32,
    torch.float64: torch.float64,
}
POSITIONS = torch.arange(3)[:, None]


@pytest.mark.parametrize("dtype", DTYPES)
def test_phases_are_of_the_tokens_dtype_and_of_float32_at_least(dtype: torch.dtype) -> None:
    """Angles are computed in float64; products with all tokens and layers need no more digits."""
    fixed = STRING(RoPE(4).frequencies(), CayleySTRING(4).basis().detach())
    blocks = nn.ModuleList([Block(8, 2, encoder=fixed)]).to(dtype)
    (read,) = phases_of(blocks, POSITIONS, torch.zeros(1, 3, 8, dtype=dtype))
    assert isinstance(read, Phases)
    assert read.basis is not None
    assert read.cos_sin.dtype == read.basis.dtype == DTYPES[dtype]
    exact = blocks[0].attention.encoder.phases(POSITIONS)
    assert torch.equal(exact.to(dtype).cos_sin, exact.cos_sin.to(DTYPES[dtype]))


def test_only_encoders_without_parameters_share_their_phases() -> None:
    """Parameters are read where their block runs, which may be the only place where they are."""
    blocks = nn.ModuleList([Block(8, 2, encoder="cayley"), Block(8, 2, encoder="rope")])
    learned, fixed = phases_of(blocks, POSITIONS, torch.zeros(1, 3, 8))
    assert learned is POSITIONS
    assert isinstance(fixed, Phases)


def test_old_names_still_work_and_warn() -> None:
    phases = RoPE(4).phases(POSITIONS)
    with pytest.warns(DeprecationWarning, match="now called cos_sin"):
        assert phases.turns is phases.cos_sin
    with pytest.warns(DeprecationWarning, match=r"import Phases from stringlib\.encoders\.rotary"):
        from stringlib.encoders.string import Phases as Old
    assert Old is Phases
    with pytest.warns(DeprecationWarning, match="import geometric_frequencies from"):
        from stringlib.positions import geometric_frequencies
    assert torch.equal(geometric_frequencies(2), RoPE(4).frequencies().flatten())


def test_phases_that_an_older_version_saved_can_be_loaded(monkeypatch) -> None:
    phases, file = RoPE(4).phases(POSITIONS), io.BytesIO()
    with monkeypatch.context() as patch:
        patch.setattr(Phases, "__module__", "stringlib.encoders.string")
        patch.setitem(vars(string), "Phases", Phases)
        torch.save(phases, file)
    file.seek(0)
    loaded = torch.load(file)
    assert isinstance(loaded, Phases)
    assert torch.equal(loaded.cos_sin, phases.cos_sin)
