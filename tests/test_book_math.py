"""TeX to MathML: what is added to what Temml makes, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from docutils import nodes

from _ext.book_math import AFTER, BEFORE, characters, cut, mathml


def operators(tex: str, display: bool = False) -> list[str]:
    return re.findall(r"<mo[^>]*>", mathml(tex, display))


def test_a_formula_keeps_its_tex() -> None:
    made = mathml(r"x < \R", False)
    assert '<annotation encoding="application/x-tex">x &lt; \\R</annotation>' in made
    assert "<mi>ℝ</mi>" in made
    assert 'display="block"' not in made
    assert 'display="block"' in mathml("x", True)


def test_operators_stand_closer_in_an_index() -> None:
    assert operators("i + 1") == ["<mo>"]
    assert operators("x_{i+1}") == ['<mo lspace="0" rspace="0">']
    (minus,) = operators("x^{-1}")
    assert 'form="prefix"' in minus


@pytest.mark.parametrize("tex", [r"\frac{1", r"\undefined x", "x_1_2"])
def test_what_cannot_be_read_is_named(tex: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        mathml(tex, False)


def test_what_no_space_parts_from_a_formula_goes_with_it() -> None:
    formula = nodes.math("", "k")
    text = nodes.paragraph("", "", nodes.Text("the ("), formula, nodes.Text("-th), then"))
    assert [str(one) for one in cut(text, 0, BEFORE)] == ["("]
    assert [str(one) for one in cut(text, 2, AFTER)] == ["-th),"]
    assert text.astext() == "the k then"
    assert cut(text, 0, BEFORE) == cut(text, 3, AFTER) == []


def test_the_font_has_the_slanted_letters_too() -> None:
    found = characters(["<p>é</p>", mathml(r"x \in A", False)])
    assert {ord("∈"), 0x1D465, 0x1D434} <= found
    assert ord("é") not in found


def test_what_chromium_alone_aligns_is_for_it_alone() -> None:
    # in WebKit, so on every iPhone, "-webkit-right" moves the parts of a cell over each other
    css = (Path(__file__).parents[1] / "book/_assets/book-math.css").read_text(encoding="utf8")
    chromium = (
        "@supports (not (-webkit-backdrop-filter: blur(1px))) and (not (-moz-appearance: none))"
    )
    rest, found = re.subn(re.escape(chromium) + r" \{\n(?:  .*\n)*\}", "", css)
    assert found == 1
    assert "text-align: -webkit" not in rest
    assert ".tml-right { text-align: right; }" in rest


def test_no_paragraph_is_wrapped_prettily() -> None:
    # WebKitGTK 2.50.6 crashes where a paragraph with "text-wrap: pretty" has many names or formulas
    for path in (Path(__file__).parents[1] / "book/_assets").glob("*.css"):
        assert not re.search(r"text-wrap[a-z-]*: pretty", path.read_text(encoding="utf8")), (
            path.name
        )
