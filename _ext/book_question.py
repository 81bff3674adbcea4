"""Questions at the end of a chapter: ``{question}`` asks for a number or a choice, and says why.

    ```{question}
    :answer: 64 / 2

    In how many planes does RoPE turn a head of 64 channels?

    ---

    Each plane takes two channels.
    ```

``:answer:`` is computed when the book is built; it may name what ``math`` has, and the
package, ``sl.name``. ``:within:`` is the relative error that still counts as right (1% if it is
not given, 0 for counts), ``:unit:`` stands behind the number. With ``:right: 2`` instead the
question ends in a list whose second point is right. What follows ``---`` says why, in a fold.
``book-predict.js`` lets the reader answer; without a script, she thinks and opens the fold.
"""

from __future__ import annotations

import ast
import html
import math
from collections.abc import Sequence
from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import stringlib as sl

NAMES: dict[str, Any] = {
    "sl": sl,
    "abs": abs,
    "min": min,
    "max": max,
    **{name: value for name, value in vars(math).items() if name[0] != "_"},
}
ALLOWED = (
    ast.Expression,
    ast.BinOp,
    ast.UnaryOp,
    ast.operator,
    ast.unaryop,
    ast.Constant,
    ast.Name,
    ast.Load,
    ast.Call,
    ast.keyword,
    ast.Attribute,
    ast.Subscript,
    ast.Tuple,
    ast.List,
)
DIGITS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def computed(expression: str) -> float:
    """Return the number that an expression stands for.

    Raises:
        ValueError: If it is no finite number, or names anything but ``math`` and the package.
    """
    try:
        tree = ast.parse(expression, mode="eval")
        for node in ast.walk(tree):
            known = isinstance(node, ALLOWED)
            if isinstance(node, ast.Name):
                known = node.id in NAMES
            elif isinstance(node, ast.Attribute):
                known = not node.attr.startswith("_")
            if not known:
                raise ValueError(f"it may not have {ast.unparse(node) or type(node).__name__}")
        number = float(eval(compile(tree, "answer", "eval"), {"__builtins__": {}}, NAMES))
    except (SyntaxError, AttributeError, TypeError, ArithmeticError, ValueError) as error:
        raise ValueError(f"answer must be a number, got {expression}: {error}") from error
    if not math.isfinite(number):
        raise ValueError(f"answer must be finite, got {expression}")
    return number


def relative(text: str) -> float:
    """Return a relative error, given as 0, 0.02 or 2%.

    Raises:
        ValueError: If it is no number from 0 to 0.5.
    """
    value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    if not 0 <= value <= 0.5:
        raise ValueError(f"within must be from 0 to 50%, got {text}")
    return value


def written(number: float) -> str:
    """Return a number as the page shows it: "about" where three digits or more are not all."""
    if math.isclose(number, round(number), rel_tol=1e-12) and abs(number) < 1e15:
        return f"{round(number):,}".replace("-", "−")
    if 1e-3 <= abs(number) < 100:
        text, shown = f"{number:.3g}", float(f"{number:.3g}")
    elif 100 <= abs(number) < 1e7:
        text, shown = f"{number:,.0f}", round(number)
    else:
        digits, _, power = f"{number:.2e}".partition("e")
        text, shown = f"{digits} × 10{str(int(power)).translate(DIGITS)}", float(f"{number:.2e}")
    about = "" if math.isclose(number, shown, rel_tol=1e-12) else "about "
    return about + text.replace("-", "−")


def parted(lines: Sequence[str]) -> tuple[str, str]:
    """Return the question and why, which a line ``---`` parts.

    Raises:
        ValueError: If one of them is missing.
    """
    at = next((i for i, line in enumerate(lines) if line.strip() == "---"), len(lines))
    question, why = ("\n".join(part).strip() for part in (lines[:at], lines[at + 1 :]))
    if not question or not why:
        missing = "why, behind a line ---" if question else "a question, before a line ---"
        raise ValueError(f"a question must have {missing}")
    return question, why


class Question(SphinxDirective):
    """Ask, and say why."""

    has_content = True
    option_spec: ClassVar = dict.fromkeys(("answer", "within", "unit", "right"), str)

    def run(self) -> list[nodes.Node]:
        """Return the question and the fold with its answer."""
        try:
            return [self.box()]
        except ValueError as error:
            raise self.error(str(error)) from error

    def box(self) -> nodes.container:
        """Return a box that holds both.

        Raises:
            ValueError: If the directive does not say what it must.
        """
        question, why = parted(list(self.content))
        if ("answer" in self.options) == ("right" in self.options):
            raise ValueError("a question must have one of answer and right")
        asked = nodes.container("", *self.parse_text_to_nodes(question), classes=["book-asked"])
        answer = nodes.paragraph("", "Answer: ", classes=["book-value"])
        if "answer" in self.options:
            number, unit = computed(self.options["answer"]), self.options.get("unit", "")
            data = {
                "answer": repr(number),
                "within": repr(relative(self.options.get("within", "1%"))),
                "unit": unit,
            }
            answer += nodes.Text(f"{written(number)} {unit}".strip() + ".")
        else:
            right = choice(asked, self.options["right"])
            right["classes"].append("book-right")
            data = {}
            first = right[0] if len(right) else right
            answer += [child.deepcopy() for child in first.children]
        marks = "".join(f' data-{key}="{html.escape(value)}"' for key, value in data.items())
        return nodes.container(
            "",
            asked,
            nodes.raw(
                "", f'<details class="book-why"{marks}><summary>Answer</summary>', format="html"
            ),
            answer,
            *self.parse_text_to_nodes(why),
            nodes.raw("", "</details>", format="html"),
            classes=["book-question"],
        )


def choice(asked: nodes.Element, place: str) -> nodes.list_item:
    """Return the point of a question's list that is right.

    Raises:
        ValueError: If the question does not end in a list, or the list is shorter.
    """
    points = asked[-1]
    if not isinstance(points, nodes.bullet_list) or len(points) < 2:
        raise ValueError("a question with right must end in a list of choices")
    if not place.isdigit() or not 1 <= int(place) <= len(points):
        raise ValueError(f"right must be 1 to {len(points)}, got {place}")
    point: nodes.list_item = points[int(place) - 1]
    return point


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive; its script is that of predictions."""
    app.add_directive("question", Question)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
