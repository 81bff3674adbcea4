"""The figure of a question and its answer: what it draws is what a shifted layer computes."""

from __future__ import annotations

import pytest
import torch

from book.figures.associative_recall import RIGHT, TOKENS, VALUES, recalled_value
from stringlib import reference

STATES = [(0, 6), (0.5, 2), (0.75, 0), (1, 6)]


@pytest.mark.parametrize(("share", "sharpness"), STATES)
def test_the_map_is_attention_with_mixed_keys(share: float, sharpness: float) -> None:
    fig, text = recalled_value(share, sharpness)
    names = sorted(set(TOKENS))
    x = torch.eye(len(names), dtype=torch.float64)[[names.index(t) for t in TOKENS]]
    keys = (1 - share) * x
    keys[1:] += share * x[:-1]
    scale = sharpness * len(names) ** 0.5  # the reference divides by √d
    for query in range(len(TOKENS)):
        seen = slice(0, query + 1)
        parts = scale * x[query][None, None], keys[None, seen], x[None, seen]
        said = reference.softmax_attention(*parts)
        drawn = fig.data[0].z[query]
        assert sum(drawn) == pytest.approx(1, abs=6e-3)
        assert not any(drawn[query + 1 :])
        for name in names:
            heard = sum(w for w, t in zip(drawn, TOKENS, strict=True) if t == name)
            assert heard == pytest.approx(said[0, 0, names.index(name)].item(), abs=3e-3)
    heard = torch.stack([said[0, 0, names.index(v)] for v in VALUES])
    assert list(fig.data[1].y) == pytest.approx((heard / heard.sum()).tolist(), abs=1e-3)
    assert f"{fig.data[1].text[2]} to {RIGHT}" in text


def test_the_right_value_wins_behind_a_shift_and_the_commonest_without() -> None:
    assert f"it answers {RIGHT}, the right one" in recalled_value(1, 6).alt
    assert "it answers 1, not 4" in recalled_value(0, 6).alt
    assert TOKENS.count("1") == 2
    assert TOKENS[TOKENS.index(TOKENS[-1]) + 1] == RIGHT
