"""Source code of the package in a notebook, always in its current version."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable

__all__ = ["Source"]


class Source:
    """The source code of functions, without their docstrings, which are on the API pages.

    Args:
        *functions: Functions, methods or classes with a source file.
    """

    def __init__(self, *functions: Callable[..., object]) -> None:
        self.text = "\n\n".join(map(_body, functions))

    def __repr__(self) -> str:
        return self.text

    def _repr_markdown_(self) -> str:
        return f"```python\n{self.text}\n```"


def _body(function: Callable[..., object]) -> str:
    lines = textwrap.dedent(inspect.getsource(function)).rstrip().splitlines()
    defined = ast.parse("\n".join(lines)).body[0]
    for node in [*ast.walk(defined)][::-1]:
        has_one = isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node)
        if has_one and isinstance(node, ast.FunctionDef | ast.ClassDef) and len(node.body) > 1:
            first = node.body[0]
            del lines[first.lineno - 1 : first.end_lineno]
    return "\n".join(lines)
