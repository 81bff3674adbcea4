"""The figure of a Toeplitz matrix inside a circulant one, and its count of operations."""

import pytest
import torch

from book.figures import toeplitz_rpe as figures


@pytest.mark.parametrize("tokens", [2, 5])
def test_the_frame_holds_the_matrix_and_the_rest_is_circulant(tokens):
    fig = figures.toeplitz_circulant(tokens, 196, 64).figure
    cells = fig.data[0].z
    whole = torch.tensor([[99 if c is None else c for c in row] for row in cells])
    assert all(row.count(None) == 1 for row in map(list, cells))
    index = torch.arange(2 * tokens)
    assert torch.equal(whole, whole[:, 0][(index[:, None] - index) % (2 * tokens)])
    corner = index[:tokens] - index[:tokens, None]  # j − i
    assert torch.equal(whole[:tokens, :tokens].long(), corner)
    shown = [["" if c is None else str(c) for c in row] for row in cells]
    assert [list(row) for row in fig.data[0].text] == shown
    frame = fig.layout.shapes[0]
    assert (frame.x0, frame.x1, frame.y0, frame.y1) == (-0.5, tokens - 0.5, -0.5, tokens - 0.5)
    assert sum(row[0] for row in fig.data[1].z) == tokens


@pytest.mark.parametrize(("length", "features"), [(64, 16), (196, 64), (32768, 256)])
def test_the_marks_lie_on_the_curves_and_the_text_names_them(length, features):
    fig, text = figures.toeplitz_circulant(4, length, features)
    counts = figures.toeplitz_operations(length, features)
    assert [fig.data[4].y[0], fig.data[6].y[0]] == list(counts)
    assert fig.data[4].x[0] == fig.data[6].x[0] == length
    curve = dict(zip(fig.data[3].x, fig.data[3].y, strict=True))
    assert curve[1024] == figures.toeplitz_operations(1024, features)[0]
    assert f"At {length} tokens and {features} features" in text
    title = fig.layout.annotations[-1].text
    for count in title.removeprefix("operations: matrix ").split(", FFT "):
        assert count in text


def test_the_default_state_shows_that_the_matrix_is_cheaper():
    by_matrix, by_fft = figures.toeplitz_operations(196, 64)
    assert by_matrix == 2 * 196**2 * 129
    assert 7 < by_fft / by_matrix < 7.2
    assert figures.toeplitz_operations(8192, 64)[0] > figures.toeplitz_operations(8192, 64)[1]
