"""The study behind the chapter on gating: its task and its layer."""

from __future__ import annotations

import pytest
import torch

from results import gating as study


def drawn(size: int = 64):
    return study.batch(size, torch.Generator().manual_seed(0))


def test_each_kind_of_query_gets_its_answer() -> None:
    (keys, values, asked, kinds), answers = drawn()
    assert (kinds.sum(0) == 64 * torch.tensor([0, 1, 2] * 4)).all()
    for row in range(64):
        pairs = dict(zip(keys[row].tolist(), values[row].tolist(), strict=True))
        assert len(pairs) == len(set(pairs.values())) == study.PAIRS
        for key, kind, answer in zip(asked[row].tolist(), kinds[row], answers[row], strict=True):
            if kind == 0:
                assert answer.argmax() == pairs[key]
                assert answer.norm() == 1
            else:
                assert answer.abs().max() == 0
            assert kind != 1 or key not in pairs


@pytest.mark.parametrize("start", [False, True])
@pytest.mark.parametrize("attention", study.ATTENTIONS)
def test_queries_see_the_pairs_and_perhaps_the_start(attention: str, start: bool) -> None:
    torch.manual_seed(0)
    model = study.Recall(attention, "none", start, torch.Generator().manual_seed(0)).double()
    x = model.embed(*drawn(3)[0])
    weights = model.layer.attention_weights(x, key_mask=model.seen)[..., 1 + study.PAIRS :, :]
    seen = weights.abs().amax((0, 1, 2)) > 0
    assert seen.tolist() == [start] + [True] * study.PAIRS + [False] * study.QUERIES


def test_a_gate_cannot_tell_whether_a_key_is_there() -> None:
    torch.manual_seed(0)
    model = study.Recall("softmax", "elementwise", True, torch.Generator()).double()
    (keys, values, asked, kinds), _ = drawn(5)
    gates = model.layer.gate.values(model.embed(keys, values, asked, kinds))
    moved = model.layer.gate.values(model.embed(keys.roll(1, 0), values, asked, kinds))
    behind = slice(1 + study.PAIRS, None)
    assert torch.equal(gates[..., behind, :], moved[..., behind, :])


@pytest.mark.parametrize(
    ("name", "given"), [("attention", ("linear", "none")), ("gate", ("relu", "both"))]
)
def test_unknown_names(name: str, given: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match=f"{name} must be one of"):
        study.Recall(*given, True, torch.Generator())
