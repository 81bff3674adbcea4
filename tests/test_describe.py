"""The text that is saved with a picture: it changes where the picture does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

from lab.explore import describe


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    with mpl.rc_context({"backend": "agg"}):
        yield
        plt.close("all")


def picture() -> tuple[Any, Any, Any]:
    """Return a figure of most kinds of things, and its panels."""
    figure, (left, right) = plt.subplots(1, 2)
    x = np.linspace(0, 6, 41)
    left.plot(x, np.sin(x), label="sine")
    left.axhline(0.5)
    left.fill_between(x, 0, x / 6, alpha=0.2)
    left.set(title="waves", xlabel="tokens", ylabel="score")
    left.annotate("here", (1, 0.5))
    left.legend()
    right.bar(["softmax", "favor"], [1.0, 2.0])
    right.scatter([0, 1, 1], [1, 2, 3], label="seeds")
    right.errorbar([0, 1], [1, 2], yerr=[0.2, 0.3], fmt="none")
    right.imshow(np.outer(x, x), extent=(0, 1, 0, 1), aspect="auto")
    right.set(xlim=(-1, 2), ylim=(0, 4))
    return figure, left, right


def moved(line: Any, by: float) -> None:
    line.set_ydata(np.asarray(line.get_ydata()) + by)


CHANGES: dict[str, Callable[[Any, Any, Any], object]] = {
    "a curve": lambda f, a, b: moved(a.lines[0], 0.05),
    "one point": lambda f, a, b: a.lines[0].set_ydata([0.5, *np.sin(np.linspace(0, 6, 41))[1:]]),
    "a sign": lambda f, a, b: a.lines[0].set_ydata(-np.sin(np.linspace(0, 6, 41))),
    "a line less": lambda f, a, b: a.lines[1].remove(),
    "a line across": lambda f, a, b: a.lines[1].set_ydata([0.6, 0.6]),
    "a colour": lambda f, a, b: a.lines[0].set_color("red"),
    "a band": lambda f, a, b: a.collections[0].remove(),
    "a name": lambda f, a, b: a.get_legend().get_texts()[0].set_text("cosine"),
    "a title": lambda f, a, b: a.set_title("curves"),
    "an axis": lambda f, a, b: a.set_ylabel("weight"),
    "a scale": lambda f, a, b: a.set_xscale("symlog"),
    "a range": lambda f, a, b: a.set_xlim(0, 5),
    "a remark": lambda f, a, b: a.texts[0].set_text("there"),
    "a bar": lambda f, a, b: b.patches[1].set_height(2.1),
    "a category": lambda f, a, b: b.set_xticks([0, 1], ["softmax", "relu"]),
    "a dot": lambda f, a, b: b.collections[0].set_offsets([(0, 1), (1, 2), (1, 2.9)]),
    "an error": lambda f, a, b: b.collections[1].remove(),
    "a picture's values": lambda f, a, b: b.images[0].set_data(np.ones((41, 41))),
    "the whole": lambda f, a, b: f.suptitle("one more"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_that_is_seen_changes_the_text(name: str) -> None:
    before = describe(picture()[0])
    after = picture()
    CHANGES[name](*after)
    assert describe(after[0]) != before


def test_the_text_says_where_things_stand_on_any_scale() -> None:
    figure, axes = plt.subplots()
    axes.plot([1, 10, 100], [0, 1, np.nan], color="#123456", label="two")
    axes.set(xscale="log", xlim=(1, 100), ylim=(0, 4), title="decades")
    assert describe(figure).splitlines() == [
        "figure",
        "panel | decades | log | 1 to 100 | 0 to 4",
        "  line | #123456 | two | 3; 0.000 0.000; 0.500 0.250; nan nan",
    ]
