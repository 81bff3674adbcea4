"""The study of random features against softmax: its tokens and its maps."""

from __future__ import annotations

import pytest
import torch

from results import favor_plus as study


@pytest.mark.parametrize("kind", study.KINDS)
def test_tokens_lie_on_their_sphere(kind: str) -> None:
    q, k = study.tokens(kind, 2.0, 10, seed=3)
    for x in (q, k):
        torch.testing.assert_close(x.square().sum(-1), torch.full((10,), 2.0).double())
    cosines = (q * k).sum(-1) / 2
    if kind == "matched":
        torch.testing.assert_close(cosines, torch.full((10,), 0.8).double())
    else:
        assert cosines.abs().max() < 0.5
    torch.testing.assert_close(study.tokens(kind, 8.0, 10, seed=3)[0], 2 * q)


@pytest.mark.parametrize("name", study.MAPS)
def test_every_map_estimates_softmax(name: str) -> None:
    q, k = study.tokens("spread", 0.25, 8, seed=0)
    exact = study.attention((q @ k.T).exp())
    assert study.scores(name, 2048, q, k, seed=0).shape == (8, 8)
    found = study.error(study.attention(study.scores(name, 2048, q, k, seed=0)), exact)
    assert found < 0.03
    assert found < study.error(study.attention(study.scores(name, 16, q, k, seed=0)), exact)


def test_errors_are_relative() -> None:
    exact = torch.tensor([[3.0, 4.0]]).double()
    assert study.error(exact + torch.tensor([[0.0, 1.0]]), exact) == 0.2
