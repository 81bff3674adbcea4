"""The smallest model with attention, against its formula, for any batch."""

from __future__ import annotations

import math

import pytest
import torch

from lab.one_head import OneHead
from stringlib import RoPE


@pytest.mark.parametrize("batch", [1, 3])
def test_one_head_is_its_formula(batch: int) -> None:
    torch.manual_seed(0)
    model = OneHead(symbols=7, dim=6, head_dim=4).double()
    model.encoder = encoder = RoPE(4)
    symbols, positions = torch.randint(7, (batch, 5)), torch.arange(5)[:, None]
    found = model(symbols, positions)
    assert found.shape == (batch, 5, 7)
    for one, scores in zip(symbols, found, strict=True):
        x = model.embed(one)
        turned = [encoder.rotate(to(x)[None], positions)[0] for to in (model.to_q, model.to_k)]
        weights = torch.exp(turned[0] @ turned[1].T / math.sqrt(4))
        heard = weights / weights.sum(-1, keepdim=True) @ x
        assert torch.allclose(scores, model.readout(heard), atol=1e-12)
