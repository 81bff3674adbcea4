"""The map of all methods: buttons by what a reader needs, and a row for each method, which opens.

    ```{methods}
    gla: What the records found, in Markdown.
    ```

stands for the rows of ``book.methods``, one for every registered name, with the words that are
given here in those that have some. A row has the display name of its method and its name in code,
says what it has and, as a mark on a scale, what it costs or what the pressed button asks for;
opened it has the words, all numbers, its code and its chapter. ``book-methods.js`` lets rows stay
or go; without it all stand. The address of a choice is ``[these](methods:images,relative)``.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from _ext.book_choice import FOLDER, numbers, told
from _ext.book_tables import rounded
from book.methods import MISSING, MUST, NEEDS, READS, Row, amount, attentions, encoders
from book.names import display


class Column(NamedTuple):
    """What a cell is called.

    Attributes:
        label: In an opened row; "" for what its dots say.
        caption: Above the marks, with where it was measured, in Markdown; none has no marks.
        less: Whether less is better.
    """

    label: str
    caption: str = ""
    less: bool = False


LENGTHS = "[chapter 22](../notebooks/22_length_extrapolation.ipynb)"
VISION = "[chapter 20](../notebooks/20_vision_transformer.ipynb)"
SPEED = "[chapter 23](../notebooks/23_speed.ipynb)"
LONGER = Column(
    "bits per byte, 1,024 minus 64",
    f"Bits per byte of text at 1,024 bytes minus those at 64, the training length ({LENGTHS})",
    less=True,
)
KINDS: dict[str, tuple[str, Callable[[], list[Row]], dict[str, Column]]] = {
    "encoders": (
        "Position encodings",
        encoders,
        {
            "relative": Column(""),
            "axes": Column("coordinates"),
            "learned": Column("learned numbers per head"),
            "state": Column(""),
            "folds": Column("basis can be merged"),
            "cost": Column(
                "training time ÷ RoPE’s",
                f"Time ÷ RoPE’s: forward and backward pass, 64 images of 197 patches ({SPEED})",
                less=True,
            ),
            "inference": Column("inference time after merging ÷ RoPE’s"),
            "text": Column(
                "bits per byte at 64",
                f"Bits per byte of text at 64 bytes, the training length ({LENGTHS})",
                less=True,
            ),
            "longer": LONGER,
            "lookup": Column(
                "needles found",
                f"Share of needles found among 1,024 tokens, training length 64 ({LENGTHS})",
            ),
            "images": Column(
                "images, new positions",
                f"Accuracy for digits at positions that do not occur in training ({VISION})",
            ),
            "volumes": Column(
                "volumes, opposite corner",
                f"Accuracy for directions in the corner opposite to the training corner ({VISION})",
            ),
        },
    ),
    "attentions": (
        "Attention methods",
        attentions,
        {
            "kind": Column("similarity from"),
            "causal": Column(""),
            "kept": Column("stored numbers per head"),
            "rope": Column("exact with RoPE"),
            "learned": Column("learned numbers per head"),
            "from": Column("faster than softmax from (tokens)"),
            "cost": Column(
                "time, % of softmax’s",
                f"Time of a forward pass over 16,384 tokens, in % of fused softmax’s ({SPEED})",
                less=True,
            ),
            "text": Column(
                "bits per byte, and combined with",
                "Bits per byte of text ([chapter 21](../notebooks/21_language_model.ipynb))",
                less=True,
            ),
            "longer": LONGER,
            "lookup": Column(
                "recall",
                "Share of the values of 32 pairs that are recalled, with a key shift "
                "([chapter 19](../notebooks/19_associative_recall.ipynb))",
            ),
            "images": Column("MNIST, Axial RoPE", f"Accuracy on MNIST with axial RoPE ({VISION})"),
            "volumes": Column(
                "volumes, Axial RoPE",
                f"Accuracy for directions in the opposite corner, with axial RoPE ({VISION})",
            ),
        },
    ),
}
"""Kind → its title, its rows, and what their cells are called."""
COST = "cost"


def buttons() -> list[str]:
    """Return the buttons, which wait for the script, and below them what they mean."""
    lines = ['<div class="book-needs" hidden>']
    groups: dict[str, dict[str, str]] = {
        "I look for": {kind: KINDS[kind][0].lower() for kind in KINDS}
    }
    for key, need in NEEDS.items():
        groups.setdefault(need.group, {})[key] = need.label
    for group, needs in groups.items():
        made = "".join(
            f'<button type="button" id="need-{key}" aria-pressed="false">{label}</button>'
            for key, label in needs.items()
        )
        one = "" if group == MUST else " data-one"  # a press lets go of the others
        lines.append(
            f'<div role="group" aria-label="{group}"{one}><span>{group}</span>{made}</div>'
        )
    lines += ['<p role="status"></p>', "</div>"]
    meanings = "".join(f"<dt>{n.label}</dt><dd>{n.meaning}</dd>" for n in NEEDS.values())
    lines.append(f"<details class='book-meanings'><summary>What these words mean</summary>"
                 f"<dl>{meanings}</dl></details>")  # fmt: skip
    return lines


def measure(key: str) -> str:
    """Return the attributes of what shows one measure: at first that of what methods cost."""
    return f'data-measure="{key}"' + " hidden" * (key != COST)


def mark(key: str, text: str, axis: tuple[float, float], less: bool) -> str:
    """Return a number beside its place on an axis: a cost's bar, or a mean in its interval."""
    middle, half = amount(text) or (0.0, 0.0)
    low, high = axis
    at = (f"{100 * (x - low) / (high - low):.0f}%" for x in (middle, middle - half, middle + half))
    style = ";".join(f"{n}:{x}" for n, x in zip(("--mean", "--low", "--high"), at, strict=True))
    return (
        f'<span class="book-mark" {measure(key)} data-order="{middle if less else -middle:g}">'
        f"{text.partition(',')[0]}"
        f'<i class="book-{"cost" if key == COST else "bar"}" style="{style}"></i></span>'
    )


def axis_of(key: str, rows: Iterable[Row]) -> tuple[float, float]:
    """Return where the axis of a measure begins and ends; that of a cost at 0."""
    known = [found for row in rows if (found := amount(row.cells[key]))]
    low, high = min(x - half for x, half in known), max(x + half for x, half in known)
    return rounded(0 if key == COST else low, high)


def listed(words: dict[str, str], chapters: dict[str, int]) -> str:
    """Return the map, in Markdown.

    Args:
        words: Name → what the records found.
        chapters: Document → number.

    Raises:
        ValueError: If a chapter is not in the table of contents, or a name has no row.
    """
    lines = [
        '<div class="book-map" role="group" aria-label="All methods" tabindex="-1">',
        *buttons(),
    ]
    spare = dict(words)
    for kind, (title, rows, columns) in KINDS.items():
        made = rows()
        spans = {key: axis_of(key, made) for key, column in columns.items() if column.caption}
        asked = [need.label for need in NEEDS.values() if kind in need.holds]
        lines += [f'<div class="book-kind" style="--needs:{len(asked)}">', ""]
        lines += [f"```{{rubric}} {title}", "```", ""]
        for key in spans:
            lines += [f'<div class="book-scale" {measure(key)}>', "", columns[key].caption, ""]
            lines += ["</div>", ""]
        labels = "".join(f"<span>{label}</span>" for label in asked)
        axes = "".join(
            f'<i class="book-axis" {measure(key)}><span>{low:g}</span><span>{high:g}</span></i>'
            for key, (low, high) in spans.items()
        ).replace(">-", ">−")
        dots = "<span>○ trained in this book ● has the property</span>"
        heads = f'{dots}<span class="book-tags">{labels}</span>{axes}'
        lines += [f'<div class="book-heads" aria-hidden="true">{heads}</div>', ""]
        for row in made:
            lines += one(kind, row, columns, spans, spare.pop(row.name, ""), chapters)
        lines += ["</div>", ""]
    if spare:
        raise ValueError(f"methods must be names of rows, got {', '.join(spare)}")
    return "\n".join([*lines, "</div>"])


def one(
    kind: str,
    row: Row,
    columns: dict[str, Column],
    spans: dict[str, tuple[float, float]],
    words: str,
    chapters: dict[str, int],
) -> list[str]:
    """Return a row, in Markdown."""
    document = FOLDER + row.chapter
    if document not in chapters:
        raise ValueError(f"chapter of {row.name} must be in _toc.yml, got {document}")
    asked = {key: need for key, need in NEEDS.items() if kind in need.holds}
    has = [key for key, need in asked.items() if need.holds[kind](row.cells)]
    stays = [kind, *has, *(key for key in NEEDS if key not in asked)]
    dots = {READS: "i", MUST: "b"}
    tags = " ".join(
        f"<{dots[need.group]}>{need.label if key in has else ''}</{dots[need.group]}>"
        for key, need in asked.items()
    )
    known = {key: text for key, text in row.cells.items() if text != MISSING}
    marks = "".join(
        mark(key, known[key], span, columns[key].less)
        for key, span in spans.items()
        if key in known
    )
    cells = "".join(
        f"<div><dt>{columns[key].label}</dt><dd>{html.escape(text)}</dd></div>"
        for key, text in known.items()
        if columns[key].label
    )
    role = "func" if row.code.rpartition(".")[2].islower() else "class"
    links = [f"{{doc}}`Chapter {chapters[document]} </{document}>`"]
    if row.code:
        links.append(f"{{py:{role}}}`{row.code.rpartition('.')[2]} <{row.code}>`")
    return [
        f'<details class="book-method" id="method-{row.name}" data-has="{" ".join(stays)}">'
        f'<summary><span class="book-name">{display(row.name)} <code>{row.name}</code></span>'
        f'<span class="book-tags">{tags}</span>{marks}</summary>',
        "",
        words,
        "",
        f"<dl>{cells}</dl>",
        "",
        " · ".join(links),
        "",
        "</details>",
        "",
    ]


class Methods(SphinxDirective):
    """Show the map."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Make the map anew in every build: a registry or a record may have changed."""
        self.env.note_reread()
        try:
            text = listed(told(self.content), numbers(Path(self.env.srcdir)))
        except ValueError as error:
            raise self.error(str(error)) from error
        found: list[nodes.Node] = self.parse_text_to_nodes(text)
        return found


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive and the script."""
    app.add_directive("methods", Methods)
    app.add_js_file("book-methods.js", loading_method="defer")
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
