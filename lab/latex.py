r"""Read the LaTeX of a displayed formula: what it says, as statements with operations and names.

A formula is a list of statements, such as ``a = b \le c``. Each side of a statement is an
expression: a tuple of the operation and its operands, for example ``("add", ("name", "a"),
("num", 1))``. :mod:`lab.formulas` computes the value of an expression.

Only the LaTeX that this book writes is understood. Anything else raises :class:`UnreadError`.
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple, TypeAlias

Node: TypeAlias = Any
"""An expression, as a tuple ``(operation, operand, ...)``."""
Statement: TypeAlias = list[Any]
"""Expressions with the relations between them, such as ``[left, "=", right]``."""


class UnreadError(ValueError):
    """The LaTeX has a form that the reader does not know, or a name has no value."""


LAYOUT = {
    *("\\,", "\\;", "\\!", "\\:", "\\ ", "\\quad", "\\qquad", "~", "&", "\\left", "\\right"),
    *("\\big", "\\Big", "\\bigg", "\\Bigg", "\\bigl", "\\bigr", "\\middle", "\\limits"),
    *("\\displaystyle", "\\textstyle"),
}
"""Commands that change how a formula looks and not what it says."""
WIDE = {"\\,", "\\;", "\\!", "\\:", "\\ ", "\\quad", "\\qquad", "~"}
"""Spaces. One of them ends the argument of a function without brackets, as in ``\\cos a\\, b``."""
RELATIONS = {
    "=": "=",
    "<": "<",
    ">": ">",
    "\\le": "<=",
    "\\ge": ">=",
    "\\ne": "!=",
    "\\approx": "~",
    "\\to": "->",
    "\\mapsto": "->",
    "\\leftarrow": "->",
    ":": ":",
    "\\iff": "iff",
    "\\in": "in",
    "\\notin": "notin",
    "\\mid": "|",
    "\\ll": "<<",
    "\\gg": ">>",
}
LETTERS = """alpha beta gamma delta epsilon varepsilon zeta eta theta kappa lambda mu nu xi pi rho
    sigma tau phi varphi chi psi omega ell varrho Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi
    Omega"""
OPERATORS = """sin cos tan cot sinh cosh tanh arctan exp log ln det max min Re Im rank diag tril
    dist conv arg softmax FFT circ Rot"""
ENDS = r"""+ - , . ; ) ] } ! ^ _ ' & / * \} \rangle \rfloor \\ \cdot \odot \bmod \times \pm"""
GREEK, FUNCTIONS = set(LETTERS.split()), set(OPERATORS.split())
AFTER_FACTOR = set(ENDS.split())
"""What cannot begin a factor."""
DOTS = {"\\cdots", "\\dots", "\\ddots", "\\ldots"}
# words between statements: what follows them up to the next comma or line is a condition
ASIDE = re.compile(r"\W*(for|if|or|and|else|never|neither|where|with|in)\b")
TOKEN = re.compile(
    r"\\(?:begin|end)\{[a-z*]+\}"
    r"|\\(?:text|mathrm|operatorname\*?|mathbb|mathcal|mathbf)\s*\{[^{}]*\}"
    r"|\\(?:mathrm|mathbf|mathbb|mathcal)\s*[A-Za-z0-9]"
    r"|\\[A-Za-z]+|\\\\|\\.|\s+|."
)
FONT = re.compile(
    r"\\(text|mathrm|operatorname\*?|mathbb|mathcal|mathbf)\s*\{?([^{}]*)\}?$", re.DOTALL
)
MATRIX = re.compile(r"\\begin\{pmatrix\}(.*?)\\end\{pmatrix\}", re.DOTALL)
# a condition in brackets at the end of a line, such as "1 is much smaller than t"
CONDITION = re.compile(r"(?:\\q?quad|&&|\\ )\s*\([^()]*(?:=|\\ll|\\gg|\\ne)[^()]*\)")


class Token(NamedTuple):
    """A piece of LaTeX.

    Attributes:
        is_: The command or character, or a tuple for what is an expression already.
        apart: Whether any space stands before it.
        wide: Whether a visible space stands before it.
    """

    is_: Any
    apart: bool
    wide: bool


def parse(tex: str) -> list[Statement]:
    """Return the statements of a formula.

    Raises:
        UnreadError: If the LaTeX has a form that is not understood.
    """
    tex = CONDITION.sub("", tex)
    # names that would otherwise read as an operation
    tex = tex.replace(r"_{\max}", r"_{\mathrm{mx}}").replace(r"C\cdot}", "C}")
    tex = re.sub(r"\\(begin|end)\{(aligned|gathered)\}", "", tex)
    tex = re.sub(r"\\overset\{[^{}]*\{[^{}]*\}\}\{=\}", "=", tex)
    braced = r"\{((?:[^{}]|\{[^{}]*\})*)\}"
    tex = re.sub(rf"\\underbrace{braced}_{braced}", r"{\1}", tex)
    tex = re.sub(r"(?<![\w}])\{\}", "", tex).replace("{-}", "-")
    matrices: list[Node] = []

    def keep(found: re.Match[str]) -> str:
        rows = [row.split("&") for row in found[1].split("\\\\") if row.strip()]
        cells = tuple(tuple(_cell(cell.strip()) for cell in row) for row in rows)
        matrices.append(("matrix", cells))
        return rf"\mathrm{{MATRIX{len(matrices) - 1}}}"

    tokens = []
    for token in _tokens(MATRIX.sub(keep, tex)):
        kept = re.fullmatch(r"MATRIX(\d+)", str(token.is_[-1]))
        tokens.append(token._replace(is_=matrices[int(kept[1])]) if kept else token)
    return Reader(tokens).statements()


def _cell(tex: str) -> Node:
    return parse(tex)[0][0] if tex else ("num", 0)


def _tokens(tex: str) -> list[Token]:
    """Return the tokens, without spaces and layout."""
    found, apart, wide = [], False, False
    for piece in TOKEN.findall(tex):
        if piece.isspace() or piece in LAYOUT:
            apart, wide = True, wide or piece in WIDE
            continue
        found.append(Token(_symbol(piece), apart, wide))
        apart = wide = False
    return found


def _symbol(piece: str) -> Any:
    r"""Return what a piece with a font says: ``\mathrm{out}`` is the name ``out``."""
    font = FONT.match(piece)
    if not font:
        return piece
    kind, word = font[1], font[2]
    if kind == "text":
        return ("text", word)
    if (kind, word) == ("mathrm", "i"):
        return ("num", 1j)
    if (kind, word) == ("mathbb", "E"):
        return ("E",)
    if word in FUNCTIONS:
        return "\\" + word
    plain = kind in ("mathrm", "mathcal") or kind.startswith("operatorname")
    return ("name", word if plain else f"bf {word}")


class Reader:
    """A reader by recursive descent, with one method for each level of precedence."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens, self.at = tokens, 0
        self.open: list[str] = []  # the brackets that are open, so that | can close one
        self.integrals = 0  # how many integrals are open, in which d begins a differential
        self.variable: str | None = None

    def peek(self, ahead: int = 0) -> Any:
        """Return the next token, or None at the end."""
        at = self.at + ahead
        return self.tokens[at].is_ if at < len(self.tokens) else None

    def next(self) -> Any:
        """Return the next token and step over it."""
        token = self.peek()
        self.at += 1
        return token

    def eat(self, expected: str) -> None:
        """Step over a token that must come now."""
        if self.peek() != expected:
            raise UnreadError(f"expected {expected}, got {self.peek()!r}")
        self.at += 1

    def lines(self) -> None:
        """Step over ends of lines."""
        while self.peek() == "\\\\":
            self.next()

    def after_lines(self) -> int:
        """Return how many ends of lines come now."""
        count = 0
        while self.peek(count) == "\\\\":
            count += 1
        return count

    # --- statements ---

    def statements(self) -> list[Statement]:
        """Return all statements."""
        found = []
        while self.peek() is not None:
            if self.peek() in (",", ".", ";", "\\\\"):
                self.next()
            elif self.is_text() and self.peek()[1].strip().endswith(":"):
                self.next()  # the heading of a line
            elif self.is_text() and re.fullmatch(r"\W*(or|and|else|where|with)\W*", self.peek()[1]):
                self.next()
            elif self.is_text() and ASIDE.match(self.peek()[1]):
                while self.peek() not in (None, "\\\\", ","):
                    self.next()
            else:
                found.append(self.statement())
        return found

    def is_text(self) -> bool:
        """Tell whether words come now."""
        return isinstance(self.peek(), tuple) and self.peek()[0] == "text"

    def statement(self) -> Statement:
        """Return expressions with the relations between them."""
        found = [self.expression()]
        while True:
            if self.peek(self.after_lines()) in RELATIONS:
                self.lines()
            if self.peek() not in RELATIONS:
                return found
            relation = RELATIONS[self.next()]
            if self.peek() is None or (relation == ":" and self.peek() == "\\\\"):
                return found
            self.lines()
            found += [relation, self.expression()]

    # --- sums and products ---

    def expression(self) -> Node:
        """Return a sum of terms."""
        self.lines()
        sign = self.next() if self.peek() in ("+", "-", "\\pm") else "+"
        node = self.term()
        node = {"+": node, "-": ("neg", node), "\\pm": ("pm", node)}[sign]
        while self.peek(self.after_lines()) in ("+", "-"):
            self.lines()
            sign = self.next()
            self.lines()
            node = ("add" if sign == "+" else "minus", node, self.term())
        return node

    def term(self) -> Node:
        r"""Return products joined by ⊙, which binds less tightly than a product."""
        node = self.product()
        while self.peek(self.after_lines()) == "\\odot":
            self.lines()
            self.next()
            self.lines()
            node = ("hadamard", node, self.product())
        return node

    def product(self) -> Node:
        """Return factors, side by side or with a sign between them. A / takes all that follow."""
        node = self.factor()
        while True:
            sign = self.peek(self.after_lines())
            if sign in ("/", "\\cdot", "\\times", "\\bmod"):
                self.lines()
                self.next()
                self.lines()
                right = self.factor()
                while sign == "/" and self.starts():
                    right = ("times", right, self.factor())
                name = {"/": "over", "\\bmod": "mod"}.get(sign, "times")
                node = (name, node, right)
            elif self.starts():
                node = ("times", node, self.factor())
            else:
                return node

    def starts(self) -> bool:
        """Tell whether a factor comes now."""
        token = self.peek()
        if token is None or token in RELATIONS:
            return False
        if token in ("|", "\\|"):
            return not (self.open and self.open[-1] == token)
        if isinstance(token, str):
            return token not in AFTER_FACTOR and not token.startswith("\\end")
        return not (token[0] == "text" and ASIDE.match(token[1]))

    def argument(self, of_function: bool = True) -> Node:
        """Return the argument of a function, sum or integral that is written without brackets."""
        alone = of_function and self.peek() in ("\\frac", "\\tfrac")
        node = self.factor()
        while not alone:
            if self.peek() == "/":
                self.next()
                right = self.factor()
                while self.starts() and not (of_function and self.ends_argument()):
                    right = ("times", right, self.factor())
                node = ("over", node, right)
            elif not self.starts() or (of_function and self.ends_argument()):
                break
            else:
                node = ("times", node, self.factor())
        return node

    def ends_argument(self) -> bool:
        """Tell whether the argument of a function without brackets ends here."""
        token = self.peek()
        function = isinstance(token, str) and token[1:] in FUNCTIONS
        return self.tokens[self.at].wide or function or token in ("(", "\\sum", "\\prod")

    # --- factors ---

    def factor(self) -> Node:
        """Return a base with its indices, exponents and arguments."""
        node = self.base()
        while True:
            token = self.peek()
            if token == "'":
                self.next()
                node = _primed(node)
            elif token in ("_", "^"):
                self.next()
                node = ("index" if token == "_" else "power", node, self.group())
            elif token == "!":
                self.next()
                node = ("factorial", node)
            elif token == "(" and _may_be_called(node):
                node = ("call", node, self.base()[1])
            elif token == "\\{":
                node = ("call", node, self.atom())
            else:
                return node

    def group(self) -> Node:
        """Return what an index, an exponent or a fraction consists of: braces or one symbol."""
        token = self.peek()
        if token in ("{", "\\frac", "\\tfrac", "\\sqrt"):
            return self.base()
        if isinstance(token, str) and (token in ("+", "-", "*", "\\top", "\\pm")):
            return ("name", self.next().lstrip("\\"))
        if isinstance(token, str) and token.isdigit():
            return ("num", int(self.next()))
        return self.atom()

    def inside(self, end: str) -> Node:
        """Return what stands in brackets: an expression, a relation, or several with commas."""
        token = self.peek()
        if token in ("*", "\\top", "+", "-") and self.peek(1) == end:
            return ("name", self.next().lstrip("\\"))
        if token == end:
            return ("empty",)
        if token in ("<", "\\le"):
            return ("relation", [("empty",), RELATIONS[self.next()], self.expression()])
        found = [self.statement()]
        while self.peek() in (",", "\\\\"):
            self.next()
            found.append(self.statement())
        nodes = [s[0] if len(s) == 1 else ("relation", s) for s in found]
        return nodes[0] if len(nodes) == 1 else ("list", nodes)

    def base(self) -> Node:
        """Return a factor without its indices and exponents."""
        token = self.peek()
        brackets = {"{": "}", "(": ")", "[": "]", "\\langle": "\\rangle", "\\lfloor": "\\rfloor"}
        if isinstance(token, str) and token in brackets:
            self.next()
            self.open.append(token)
            node = self.inside(brackets[token])
            self.open.pop()
            self.eat(brackets[token])
            kind = {"(": "par", "[": "bracket", "\\langle": "inner", "\\lfloor": "floor"}
            return (kind[token], node) if token in kind else node
        if token in ("|", "\\|"):
            self.next()
            self.open.append(token)
            node = self.expression()
            self.open.pop()
            self.eat(token)
            return ("abs" if token == "|" else "norm", node)
        if token in ("\\frac", "\\tfrac", "\\binom"):
            self.next()
            if self.peek() == "{" and self.peek(1) == "\\partial":
                return self.derivative()
            return ("binom" if token == "\\binom" else "over", self.group(), self.group())
        if token == "\\sqrt":
            self.next()
            return ("sqrt", self.group())
        if token in ("\\overline", "\\hat", "\\tilde", "\\bar"):
            self.next()
            node = self.group()
            if token == "\\overline":
                return ("conj", node)
            if node[0] != "name":
                raise UnreadError(f"{token} must be applied to a single name")
            return ("name", f"{token[1:]} {node[1]}")
        if token in ("\\sum", "\\prod", "\\int", "\\max", "\\min", "\\lim"):
            return self.over_range(self.next()[1:])
        if isinstance(token, str) and token[0] == "\\" and token[1:] in FUNCTIONS:
            return self.function(self.next()[1:])
        if token == ("E",):
            self.next()
            if self.peek() == "_":
                self.next()
                self.group()
            return ("expect", self.argument(False))
        return self.atom()

    def derivative(self) -> Node:
        r"""Return a partial derivative as a name, such as ``dL/dr``."""
        parts = []
        for _ in range(2):
            depth, text = 0, ""
            while True:
                token = self.next()
                text += token[-1] if isinstance(token, tuple) else token
                depth += (token == "{") - (token == "}")
                if depth == 0:
                    break
            parts.append(re.sub(r"[{}\\]", "", text.replace("\\partial", "d")))
        return ("name", "/".join(parts))

    def over_range(self, kind: str) -> Node:
        """Return a sum, a product, an integral, a maximum or a limit, with its range."""
        low = high = None
        while self.peek() in ("_", "^"):
            if self.next() == "_":
                low = self.group()
            else:
                high = self.group()
        if kind in ("max", "min") and self.peek() == "(":
            return (f"{kind} of", low, self.base()[1])
        if kind == "int":
            self.integrals += 1
            self.variable = None
            body = self.argument(False)
            self.integrals -= 1
            return ("int", low, high, self.variable, body)
        self.lines()
        body = self.argument(False)
        while self.peek(self.after_lines()) == "\\cdot":
            self.lines()
            self.next()
            body = ("times", body, self.factor())
        return (kind, low, high, body)

    def function(self, name: str) -> Node:
        """Return the value of a known function: its name, index, exponent and argument."""
        index = exponent = None
        while self.peek() in ("_", "^"):
            if self.next() == "_":
                index = self.group()
            else:
                exponent = self.group()
        if self.peek() == "(":
            argument = self.base()[1]
        elif self.peek() == "\\{":
            argument = self.atom()
        else:
            argument = self.argument()
        return ("function", name, index, exponent, argument)

    def atom(self) -> Node:
        """Return a number or a name."""
        token = self.next()
        if token is None:
            raise UnreadError("the formula ends too early")
        if isinstance(token, tuple):
            return ("name", token[1]) if token[0] == "text" else token
        if token.isdigit():
            return self.number(token)
        if token.isalpha():
            following = self.peek()
            letter = isinstance(following, str) and (following.isalpha() or following[1:] in GREEK)
            if token == "d" and self.integrals and letter:
                self.variable = self.next().lstrip("\\")
                return ("num", 1)
            return ("name", token)
        if token[0] == "\\" and token[1:] in GREEK:
            return ("name", token[1:])
        if token == "\\infty":
            return ("num", math.inf)
        if token in ("\\top", "*"):
            return ("name", token.lstrip("\\"))
        if token in DOTS:
            return ("dots",)
        if token == "\\{":  # a set, which is a name as it is written
            text = ""
            while self.peek() not in (None, "\\}"):
                piece = self.next()
                text += str(piece[-1] if isinstance(piece, tuple) else piece)
            self.next()
            return ("name", "{" + text.replace("\\", "") + "}")
        raise UnreadError(f"{token} is not supported")

    def number(self, digits: str) -> Node:
        """Return a number, whose further digits follow without a space."""
        while self.peek() is not None and not self.tokens[self.at].apart:
            token, further = self.peek(), self.peek(1)
            point = token == "." and isinstance(further, str) and further.isdigit()
            if not (point or (isinstance(token, str) and token.isdigit())):
                break
            digits += self.next()
        return ("num", float(digits) if "." in digits else int(digits))


def _primed(node: Node) -> Node:
    """Return a name with a prime, also if it has an index already."""
    if node[0] == "name":
        return ("name", node[1] + "'")
    if node[0] in ("index", "power"):
        return (node[0], _primed(node[1]), node[2])
    raise UnreadError("a prime must follow a name")


def _may_be_called(node: Node) -> bool:
    """Tell whether brackets after an expression may hold arguments of a function."""
    while node[0] in ("index", "power"):
        inverse = node[2] == ("neg", ("num", 1))
        if node[0] == "power" and not (inverse or node[2][0] in ("name", "par")):
            return False
        node = node[1]
    return bool(node[0] == "name" and node != ("name", "e"))
