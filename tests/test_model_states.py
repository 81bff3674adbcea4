"""The language model token by token: its states, what it draws, and its folded form."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from stringlib import LanguageModel, checks
from tests.model_cases import CASES, COVERING, LENGTH, VOCAB, has_state, language_model, text

STATES = [name for name in CASES if has_state(name)]


@pytest.mark.parametrize(
    ("name", "cuts"),
    # token by token, with a longer piece between; and a longer piece first
    [(n, (0, 1, 2, 5, 6, 7)) for n in STATES] + [(n, (0, 3, 7)) for n in STATES if n in COVERING],
)
def test_the_states_are_all_that_is_needed_of_earlier_tokens(
    name: str, cuts: tuple[int, ...]
) -> None:
    model, tokens = language_model(name).double(), text(2, LENGTH)
    state, parts = None, []
    for start, end in itertools.pairwise(cuts):
        part, state = model(tokens[:, start:end], state=state, return_state=True)
        parts.append(part)
    assert [left.length for left in state] == [LENGTH] * 2
    assert checks.largest_difference(torch.cat(parts, 1), model(tokens)) <= 1e-10


@pytest.mark.parametrize("name", [name for name in CASES if name not in STATES])
def test_layers_without_a_state_say_so(name: str) -> None:
    with pytest.raises(ValueError, match="state"):
        language_model(name)(text(2, 3), return_state=True)


@pytest.mark.parametrize("name", STATES)
def test_generating_with_a_state_equals_reading_all_again(name: str) -> None:
    model, start = language_model(name).double(), text(2, 2)
    drawn = model.generate(start, 3, generator=torch.Generator().manual_seed(3))
    generator, expected = torch.Generator().manual_seed(3), start
    for _ in range(3):
        shares = model(expected)[:, -1].float().softmax(-1)
        expected = torch.cat([expected, shares.multinomial(1, generator=generator)], 1)
    assert torch.equal(drawn, expected)


# --- generating ---------------------------------------------------------------------------------


def test_temperature() -> None:
    model, start = language_model("softmax-rope"), text(3, 2)
    cold = model.generate(start, 5, temperature=0)
    assert torch.equal(cold, model.generate(start, 5, temperature=1e-6))
    scores = model(cold)[:, 1:-1]
    assert torch.equal(scores.argmax(-1), cold[:, 2:])
    generators = [torch.Generator().manual_seed(seed) for seed in range(8)]
    hot = [model.generate(start, 5, temperature=50.0, generator=g) for g in generators]
    assert len({tuple(t.flatten().tolist()) for t in hot}) == 8
    assert torch.equal(model.generate(start, 0), start)
    assert not model.generate(start, 1).requires_grad


@pytest.mark.parametrize("encoder", ["rope", "mixed", "reflection", "circulant", "cayley"])
@pytest.mark.parametrize("shift", [False, True])
def test_a_folded_model_says_the_same(encoder: str, shift: bool) -> None:
    model, tokens = LanguageModel(VOCAB, 16, 2, 2, encoder, shift=shift).double(), text(2, LENGTH)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    folded = model.folded()
    assert checks.largest_difference(model(tokens), folded(tokens)) <= 1e-10
    assert not any(list(block.attention.encoder.parameters()) for block in folded.blocks)
    drawn = (m.generate(tokens, 3, temperature=0) for m in (model, folded))
    assert torch.equal(*drawn)


@pytest.mark.parametrize("name", ["softmax-None", "softmax-alibi", "favor-rope"])
def test_what_cannot_be_folded_says_so(name: str) -> None:
    with pytest.raises(ValueError, match="attention must be softmax with a rotary encoder"):
        language_model(name).folded()
