"""What the comparison of notebooks lets pass, and every planted change that it has to catch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from tools import notebooks
from tools.nbval_numbers import FORM, IGNORED, PLOTLY, Settler


def agree(new: Any, saved: Any, *, form: bool = False) -> bool:
    return Settler(form).settle(copy.deepcopy(new), saved) == saved


@pytest.mark.parametrize(
    ("new", "saved", "same"),
    [
        ("error 1.25 at 3", "error 1.24 at 3", True),
        ("|  9.99 |", "| 10.00 |", True),
        ("-0.00", "0.00", True),
        ("43%", "44%", True),
        ("9.9e-05", "1.0e-04", True),
        ("off by 1.0", "off by 1", True),
        ("−0.31", "−0.32", True),
        ("tensor([ 1.5, -0.2])", "tensor([ 1.4, -0.3])", True),
        ("error 1.25", "error 1.27", False),
        ("error 1.25", "error 2.25", False),
        ("score 0.42", "score -0.42", False),
        ("17 of 20", "18 of 20", False),
        ("43%", "45%", False),
        ("43%", "43", False),
        ("below 1e-12", "below 1e-11", False),
        ("inside 0.3", "outside 0.3", False),
        ("0.3, 0.4", "0.3", False),
        ("float32", "float64", False),
        ("nan", "0.5", False),
        ("0.5 m", "0.5 s", False),
    ],
)
def test_texts_agree_up_to_their_last_digit(new: str, saved: str, same: bool) -> None:
    assert agree(new, saved) == agree(saved, new) == same


def test_form_alone_takes_any_number_but_no_other_text() -> None:
    assert agree("loss 1.25 after 100", "loss -3.5e-4 after 80", form=True)
    assert not agree("loss 1.25", "error 1.25", form=True)
    assert not agree("1.25", "1.25, 2.5", form=True)
    assert not agree("nan", "1.25", form=True)


def test_what_agrees_is_replaced_and_the_rest_stays() -> None:
    assert Settler().settle("0.31 and 0.5", "0.32 and 0.9") == "0.32 and 0.5"


def figure() -> dict[str, Any]:
    curve = {"type": "scatter", "name": "rope", "x": [0, 1, 2], "y": [0.0, 0.5, 1.0]}
    return {
        "data": [
            curve,
            {**curve, "name": "alibi", "xaxis": "x2", "yaxis": "y2", "y": [1e-9, 1e-3, 1.0]},
            {"type": "heatmap", "z": [[0.0, 1.0], [0.2, 0.3]], "text": [["0.00", "1.00"]]},
        ],
        "layout": {
            "height": 380,
            "yaxis2": {"type": "log"},
            "yaxis": {"range": [0, 1.5]},
            "annotations": [{"text": "largest 1.25", "x": 0.5, "y": 1}],
            "meta": {"alt": "A line.", "explorer": {"parameters": [{"values": [1, 2.5]}]}},
        },
        "frames": [
            {"name": "base=0", "traces": [0], "data": [{"type": "scatter", "y": [0.0, 0.5, 1.0]}]},
            {"name": "base=1", "traces": [0], "data": [{"type": "scatter", "y": [1.0, 0.5, 0.0]}],
             "layout": {"title": {"text": "base 2.50"}}},
        ],
    }  # fmt: skip


def edited(*path: Any, value: Any = None, drop: bool = False) -> dict[str, Any]:
    """Return the figure with one part of it changed or left out."""
    whole = figure()
    inside: Any = whole
    for key in path[:-1]:
        inside = inside[key]
    if drop:
        del inside[path[-1]]
    else:
        inside[path[-1]] = value
    return whole


def same(new: dict[str, Any], *, form: bool = False) -> bool:
    return agree({PLOTLY: new}, {PLOTLY: figure()}, form=form)


UNSEEN = {
    "a point by less than a pixel": edited("data", 0, "y", 1, value=0.504),
    "far below on a log axis, by a hundredth": edited("data", 1, "y", 0, value=1.05e-9),
    "a colour": edited("data", 2, "z", 1, 0, value=0.209),
    "a printed digit": edited("layout", "annotations", 0, "text", value="largest 1.24"),
}
SEEN: dict[str, Any] = {
    "a point by more than a line": edited("data", 0, "y", 1, value=0.51),
    "a sign": edited("data", 0, "y", 2, value=-1.0),
    "a point on a log axis": edited("data", 1, "y", 0, value=1.2e-9),
    "a colour": edited("data", 2, "z", 1, 0, value=0.22),
    "a state": edited("frames", 1, "data", 0, "y", 2, value=0.01),
    "a state's name": edited("frames", 1, "name", value="base=2"),
    "a title of a state": edited("frames", 1, "layout", "title", "text", value="base 2.60"),
    "a point less": edited("data", 0, "y", value=[0.0, 0.5]),
    "a gap": edited("data", 0, "y", 1, value=None),
    "a number in a cell": edited("data", 2, "text", 0, 1, value="1.02"),
    "a height": edited("layout", "height", value=381),
    "a slider": edited("layout", "meta", "explorer", "parameters", 0, "values", value=[1, 2.6]),
    "alternative text": edited("layout", "meta", "alt", value="A curve."),
    "a range": edited("layout", "yaxis", "range", value=[0, 1.6]),
    "a scale": edited("layout", "yaxis2", "type", drop=True),
    "no trace": edited("data", 1, drop=True),
    "no state": edited("frames", 0, drop=True),
}
FORM_SEEN = ("a point less", "a gap", "no trace", "no state",
             "alternative text", "a state's name", "a scale")  # fmt: skip


def test_a_figure_that_looks_the_same_agrees() -> None:
    assert [name for name, new in UNSEEN.items() if not same(new)] == []


@pytest.mark.parametrize("name", SEEN)
def test_a_figure_that_looks_otherwise_does_not(name: str) -> None:
    assert not same(SEEN[name])
    assert same(SEEN[name], form=True) == (name not in FORM_SEEN)


CHAPTER: dict[str, tuple[str, Callable[[str], str]]] = {
    "print('sine', 0.8415)": lambda out: out.replace("0.8415", "0.8414"),
    "print('cosine', 0.5403)": lambda out: out.replace("0.5403", "0.5405"),
    "print('ten')": lambda out: out.replace("ten", "nine"),
    "1.5": lambda out: out.replace("1.5", "-1.5"),
}  # type: ignore[assignment]
"""Cells, and what is done to the saved output of each; all but the first are seen."""

TABLE = (
    "from IPython.display import HTML\n"
    "HTML('<caption>Time, 9 tokens</caption><th>way</th><th>ms</th><td>1.5</td>')"
)
TIMED: dict[str, Callable[[str], str]] = {
    TABLE: lambda out: out.replace("1.5", "7.25"),
    TABLE.replace("9", "8"): lambda out: out.replace("8 tokens", "7 tokens"),
    TABLE.replace("9", "6"): lambda out: out.replace("ms", "s"),
    "print('took', 0.25, 'seconds')": lambda out: out.replace("0.25", "31.5"),
    "print('it took', 0.25)": lambda out: out.replace("it took", "they took"),
}
"""The same for cells of which only titles, names and words are compared: not seen are 0 and 3."""


def test_nbval_fails_the_cells_whose_outputs_say_something_else(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "chapter.ipynb"
    trained = new_code_cell("print('loss', 0.7)", metadata={"tags": [FORM]})
    timed = [new_code_cell(source, metadata={"tags": [IGNORED]}) for source in TIMED]
    nb = new_notebook(cells=[*(new_code_cell(source) for source in CHAPTER), trained, *timed])
    notebooks.run(nb, tmp_path)
    notebooks.normalise(nb)
    changes = [*CHAPTER.values(), lambda out: out.replace("0.7", "0.2"), *TIMED.values()]
    for cell, change in zip(nb.cells, changes, strict=True):
        (output,) = cell.outputs
        said = output if "text" in output else output.data
        key = next(key for key in ("text", "text/html", "text/plain") if key in said)
        before, said[key] = said[key], change(said[key])
        assert said[key] != before
    nbformat.write(nb, path)
    assert notebooks.replay([path], jobs=1) == 1
    said = capfd.readouterr().out
    failed = [n for n in range(len(changes)) if f"Cell {n}: Cell outputs differ" in said]
    assert failed == [1, 2, 3, 6, 7, 9]
    assert notebooks.process(path, "run")[1] == []  # what is out of date is written anew
    assert "7.25" in path.read_text(encoding="utf8")
