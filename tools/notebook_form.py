"""The one form in which a notebook is saved: by ``tools/notebooks.py``, and by ``make jupyter``.

Whatever differs from run to run or from editor to editor goes: a difference between two versions
of a notebook is one of its content. What a cell says about its figure (``mystnb`` metadata, such as
alternative text) and its tags are kept.
"""

from __future__ import annotations

import re
from decimal import Decimal
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import nbformat

ROOT = Path(__file__).resolve().parents[1]

# What a kernel sees, here and under nbval: one thread each, so that sums are added in one order.
ENVIRONMENT = {
    "COLUMNS": "100",
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "PLOTLY_RENDERER": "plotly_mimetype",
    "PYTHONHASHSEED": "0",
    "STRINGLIB_DEVICE": "cpu",  # a GPU adds in another order
    "STRINGLIB_LIVE": "0",  # nobody looks on: a live plot shows its last picture alone
}

SETUP = "# Setup"
PLOTLY = "application/vnd.plotly.v1+json"
SVG = "image/svg+xml"
WIDGET = "application/vnd.jupyter.widget-view+json"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
KEPT_METADATA = ("tags", "mystnb")
SCRUB = [
    (re.compile(re.escape(str(ROOT)) + "/"), ""),  # a traceback names the checkout
    (re.compile(r"(?<!\S)\S*/site-packages/"), ".../site-packages/"),  # once for each word
    (re.compile(r"/tmp/ipykernel_\d+/\d+\.py"), "<cell>"),  # a warning names the process
    (re.compile(r" at 0x[0-9a-f]{6,}"), " at 0x..."),
]
NUMBER = r"(?:-?\d[\d.eE+-]*|null)"
NUMBERS = re.compile(rf"\[\n\s*({NUMBER}(?:,\n\s*{NUMBER})*)\n\s*\]")


def dump(nb: nbformat.NotebookNode) -> str:
    """Return a notebook's text as Jupyter writes it, but a list of numbers on one line."""
    # a line break never stands bare inside a JSON string, so only lists match
    text = nbformat.writes(nb) + "\n"
    return NUMBERS.sub(lambda m: "[" + re.sub(r",\s*", ", ", m[1]) + "]", text)


def scrub(value: Any) -> Any:
    """Take what differs from run to run out of every text of an output."""
    if isinstance(value, str):
        for pattern, new in SCRUB:
            value = pattern.sub(new, value)
        return value
    if isinstance(value, list):
        return [scrub(v) for v in value]
    if isinstance(value, dict):
        return {k: scrub(v) for k, v in value.items()}
    return value


def as_a_browser_writes(value: Any) -> Any:
    """Return JSON with its numbers as JavaScript has them, for an editor in a browser saves so."""
    if isinstance(value, dict):
        return {key: as_a_browser_writes(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [as_a_browser_writes(entry) for entry in value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    whole_number = float(value).is_integer() and abs(value) < 1e21
    return int(Decimal(repr(float(value)))) if whole_number else value


def slim(svg: str) -> str:
    """Return a picture without what a page decides, its coordinates in tenths of a point.

    A screen shows no more, and the notebook's own text stays short.
    """

    def tenths(match: re.Match[str]) -> str:
        text = re.sub(r"\s+", " ", match[0]).replace(' "', '"')
        return re.sub(r"-?\d+\.\d{2,}", lambda number: f"{float(number[0]):.1f}", text)

    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"\n\s+", "\n", svg)
    svg = re.sub(r"font-family: [^;\"]*", "font-family: sans-serif", svg)
    return re.sub(r'\s(?:d|x|y|points)="[^"]*"', tenths, svg)


def renumber(cells: list[nbformat.NotebookNode]) -> None:
    """Count cells that ran in order from 1, wherever their kernel had begun to count."""
    counts = [cell.execution_count or 0 for cell in cells]
    if counts and counts[0] > 0 and all(a < b for a, b in pairwise(counts)):
        for number, cell in enumerate(cells, 1):
            cell.execution_count = number
            for output in cell.outputs:
                if output.output_type == "execute_result":
                    output.execution_count = number


def name(cells: list[nbformat.NotebookNode]) -> None:
    """Give an id to each cell that has none of the form ``cell-07``; the others keep theirs."""
    taken: set[str] = set()
    for cell in cells:
        if not re.fullmatch(r"cell-\d\d\d?", cell.id) or cell.id in taken:
            cell.id = ""
        taken.add(cell.id)
    fresh = (f"cell-{n:02d}" for n in count())
    for cell in cells:
        cell.id = cell.id or next(new for new in fresh if new not in taken)


def tell(cell: nbformat.NotebookNode) -> None:
    """Give each of several images of a cell its own paragraph of the cell's alternative text."""
    text = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
    images = [output for output in cell.outputs if SVG in output.get("data", {})]
    each = text.split("\n\n")
    if len(each) == len(images) > 1:
        for output, alt in zip(images, each, strict=True):
            output.metadata = nbformat.from_dict({SVG: {"alt": alt}})


def normalise(nb: nbformat.NotebookNode) -> None:
    """Bring a run notebook into its stable form, in place."""
    nb.metadata = nbformat.from_dict({"kernelspec": KERNEL, "language_info": {"name": "python"}})
    nb.nbformat, nb.nbformat_minor = 4, 5
    renumber([cell for cell in nb.cells if cell.cell_type == "code" and cell.source.strip()])
    name(nb.cells)
    for cell in nb.cells:
        kept = {key: cell.metadata[key] for key in KEPT_METADATA if cell.metadata.get(key)}
        figure = any(PLOTLY in output.get("data", {}) for output in cell.get("outputs", []))
        if figure or cell.source.startswith(SETUP):
            # an editor shows the figure and folds its call, and the setup: JupyterLab, Colab
            kept |= {"jupyter": {"source_hidden": True}, "cellView": "form"}
        cell.metadata = nbformat.from_dict(kept)
        cell.source = cell.source.rstrip()
        for output in cell.get("outputs", []):
            if output.output_type in ("display_data", "execute_result"):
                if len(output.data) > 1:
                    output.data.pop(WIDGET, None)
                said = output.metadata.get(SVG, {}).get("alt")  # a picture's own words
                output.metadata = nbformat.from_dict({SVG: {"alt": said}} if said else {})
                output.data = nbformat.from_dict(
                    {
                        k: v if k.startswith("image/png") else scrub(v)
                        for k, v in output.data.items()
                    }
                )
                if SVG in output.data:
                    output.data[SVG] = slim(output.data[SVG])
                if PLOTLY in output.data:
                    output.data[PLOTLY] = as_a_browser_writes(output.data[PLOTLY])
            elif output.output_type == "stream":
                output.text = scrub(output.text)
            else:  # the rest of a traceback names paths and versions
                output.traceback = [f"{output.ename}: {output.evalue}"]
        if cell.cell_type == "code":
            tell(cell)
