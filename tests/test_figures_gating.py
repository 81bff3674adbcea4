"""The figure of a gated query: what it draws is what the layer would compute."""

from __future__ import annotations

import math

import pytest
import torch

from book.figures.gating import HULL, START_SCORE, VALUES, gated_query
from stringlib import reference


@pytest.mark.parametrize("start", [False, True])
@pytest.mark.parametrize(("match", "first", "second"), [(0, -3, -3), (4, 6, -6), (8, 0, 3)])
def test_the_points_are_attention_and_its_gate(
    match: float, first: float, second: float, start: bool
) -> None:
    fig, text = gated_query(match, first, second, start)
    scores = [START_SCORE, 0, match, 0, 0, 0][0 if start else 1 :]
    values = torch.tensor([[0.0, 0.0], *VALUES][0 if start else 1 :]).double()
    # q = 1 and one channel: the scores themselves are the keys
    said = reference.softmax_attention(
        torch.ones(1, 1, 1), torch.tensor(scores)[None, :, None], values[None]
    )[0]
    gated = reference.gate(said, torch.ones(1, 1), torch.tensor([[first, second]]))
    drawn = fig.data[5]
    assert list(drawn.x) == pytest.approx([said[0, 0].item(), gated[0, 0].item()], abs=1e-3)
    assert list(drawn.y) == pytest.approx([said[0, 1].item(), gated[0, 1].item()], abs=1e-3)
    assert sum(fig.data[0].y) == pytest.approx(1, abs=3e-3)
    assert (fig.data[0].y[0] > 0) is start
    assert fig.data[2].y[0] == pytest.approx(1 / (1 + math.exp(-first)), abs=1e-3)
    assert f"({gated[0, 0]:.2f}, {gated[0, 1]:.2f})" in text
    assert ("start token" in text) is start


def test_the_default_state_makes_its_point() -> None:
    """No match, no start token: loud without the gate, quiet with it."""
    output = gated_query(0, -3, -3).figure.data[5]
    (x0, x1), (y0, y1) = output.x, output.y
    assert math.hypot(x0, y0) > 1.5
    assert math.hypot(x1, y1) < 0.1


def test_the_values_leave_0_outside_and_e_inside_their_hull() -> None:
    corners = torch.tensor([VALUES[i] for i in HULL])
    edges = corners.roll(-1, 0) - corners

    def inside(point: list[float]) -> bool:
        to = torch.tensor(point) - corners
        return bool((edges[:, 0] * to[:, 1] - edges[:, 1] * to[:, 0] > 0).all())

    assert inside(VALUES[4])
    assert not inside([0.0, 0.0])


def test_the_number_of_traces_and_points_never_changes() -> None:
    shapes = {
        tuple((len(t.x), t.type) for t in gated_query(m, u, -u, s).figure.data)
        for m in (0, 8)
        for u in (-6, 6)
        for s in (False, True)
    }
    assert len(shapes) == 1
