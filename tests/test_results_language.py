"""The study behind the chapter on language models: its cells and its probes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from results import language as study
from stringlib.tasks.task import IGNORE


class Copier(nn.Module):
    """Half a window in, it names what stood there half a window earlier."""

    def forward(self, tokens: Tensor) -> Tensor:
        half = study.LENGTH // 2
        guess = tokens.roll(half - 1, 1)  # the byte after this one, in the first copy
        return 30.0 * nn.functional.one_hot(guess, 256)


def test_the_second_copy_is_free_for_who_copies_and_not_for_who_does_not() -> None:
    test = torch.randint(256, (1000,), generator=torch.Generator().manual_seed(0))
    assert study.second_copy(Copier(), test) < 1e-9
    blind = nn.Embedding(256, 256)
    nn.init.zeros_(blind.weight)
    assert study.second_copy(blind, test) == pytest.approx(8)


def test_every_context_names_the_same_bytes() -> None:
    named = []
    for length, batches in study.context_task().held_out().items():
        targets = torch.cat([t for _, t in batches])
        assert targets.shape[1] == int(length)
        assert (targets[:, : -study.LAST] == IGNORE).all()
        named.append(targets[:, -study.LAST :])
    assert len(named) == len(study.CONTEXTS)
    assert all(torch.equal(named[0], other) for other in named[1:])
    assert named[0].shape == (study.WINDOWS, study.LAST)


@pytest.mark.parametrize("name", study.CELLS)
def test_models_are_of_one_size_but_for_what_a_method_adds(name: str) -> None:
    def count(**options: object) -> int:
        return sum(p.numel() for p in study.text_task().model(**options).parameters())

    more = count(**study.CELLS[name]) / count(**study.ROPE) - 1
    gated = study.CELLS[name].get("gate") == "elementwise"
    assert 0 <= more < (0.08 if gated else 0.04)


@pytest.mark.parametrize("name", ["softmax, RoPE", "C-CosGate", "learned circulant, RoPE"])
def test_no_byte_is_named_from_later_ones(name: str) -> None:
    model = study.text_task().model(**study.CELLS[name]).double()
    tokens = torch.randint(256, (1, 40), generator=torch.Generator().manual_seed(0))
    other = tokens.clone()
    other[:, 30:] = 255 - other[:, 30:]
    gap = (model(tokens) - model(other)).abs().amax((0, 2))
    assert gap[:30].max() < 1e-10 < gap[30:].min()


def test_training_learns() -> None:
    _, first = study.train(0, 12, **study.ROPE)
    assert first.losses[-1] < first.losses[0] - 0.5
