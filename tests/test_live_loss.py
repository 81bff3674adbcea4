"""The live plot of the loss: what it draws, when, and what a saved notebook keeps."""

import math
from types import SimpleNamespace

import IPython
import IPython.display
import pytest

from lab.explore import COLOURS, LiveLoss
from lab.explore import live as module
from lab.explore.frames import PLOTLY
from lab.train import History


def history(last):
    steps = [*range(0, last, 20), last]
    return History(steps=steps, losses=[2 - 0.005 * step for step in steps])


class Screen:
    """Where a notebook would show it."""

    def __init__(self):
        self.pictures, self.displays = [], 0

    def display(self, bundle, raw, display_id):
        assert raw
        assert display_id
        self.displays += 1
        return self.update(bundle, raw)

    def update(self, bundle, raw):
        self.pictures.append(bundle)
        return self


@pytest.fixture
def screen(monkeypatch):
    shown = Screen()
    monkeypatch.setattr(IPython, "get_ipython", lambda: SimpleNamespace(kernel=None))
    monkeypatch.setattr(IPython.display, "display", shown.display)
    monkeypatch.delenv("STRINGLIB_LIVE", raising=False)
    return shown


def test_one_figure_is_updated_and_its_last_state_is_whole(screen, monkeypatch):
    monkeypatch.setattr(module, "PAUSE", 0.0)
    names = ["softmax", "relu"]
    live = LiveLoss(100, names, said=str.upper, chance=math.log(8), title="Two methods")
    for name in live.names:
        for last in (20, 40, 99):
            live.of(name)(history(last))
    assert screen.displays == 1
    assert len(screen.pictures) == 6
    figure = screen.pictures[-1][PLOTLY]
    assert [trace["name"] for trace in figure["data"]] == ["SOFTMAX", "RELU"]
    for trace, name in zip(figure["data"], names, strict=True):
        assert trace["line"]["color"] == COLOURS[name]
        assert trace["x"] == history(99).steps
        assert trace["y"] == pytest.approx(history(99).losses)
    assert figure["layout"]["xaxis"]["range"] == [0, 100]
    meta = figure["layout"]["meta"]
    assert meta["explorer"]["name"] == "two-methods"
    assert "source" not in meta["explorer"]  # no other process can call a method again
    assert meta["alt"] == (
        "A line chart shows the loss against the training step, from 0 to 100. Title: Two methods. "
        "A dotted line marks the loss of guessing, 2.1. The loss of SOFTMAX goes from 2 to 1.5 and "
        "ends below this line. The loss of RELU goes from 2 to 1.5 and ends below this line."
    )


def test_curves_of_one_colour_differ_in_their_dashes():
    names = [name for name in COLOURS if COLOURS[name] == COLOURS["gla"]][:2]
    live = LiveLoss(100, ["softmax", *names])
    for name in live.names:
        live.of(name)(history(20))
    assert [trace.line.dash for trace in live.figure().data] == [None, None, "dash"]


def test_where_nobody_looks_on_there_is_one_picture_at_the_end(screen, monkeypatch):
    monkeypatch.setenv("STRINGLIB_LIVE", "0")
    monkeypatch.setattr(module, "PAUSE", 0.0)
    live = LiveLoss(100, ["a", "b"])
    for name in live.names:
        for last in (20, 99):
            assert screen.pictures == []
            live.of(name)(history(last))
    assert screen.displays == len(screen.pictures) == 1


def test_in_a_terminal_nothing_happens(screen, monkeypatch, capfd):
    for shell in (None, SimpleNamespace()):  # python, and ipython
        monkeypatch.setattr(IPython, "get_ipython", lambda shell=shell: shell)
        LiveLoss(100)(history(99))
    assert screen.pictures == []
    assert capfd.readouterr() == ("", "")
