"""Lists of what stands in the chapters, made while the book is built.

    ```{correction-list}
    ```

stands for all corrections, by the source that they correct, and ``{exercise-list}`` for all
exercises, by chapter. A correction is a box of class ``correction`` in a chapter, with a name that
can be linked and the fields ``**Source.**`` to ``**Corrected.**``; what a box lacks is a warning.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.util import logging

from tools.ledger import cells, document, pages

# the notes, and the headings of those that do not number their sections, in order
NOTES: dict[str, tuple[str, ...]] = {
    "Circulant-STRING Implementation Guide": (),
    "Circulant FAVOR+ for Linear Attention and SSM Readout": (
        "Hypothesis",
        "Background",
        "Mathematical Formulation",
        "Method",
        "Expected Outcome",
        "Minimum Viable Experiment",
        "Theoretical Analysis",
        "Risks & Limitations",
    ),
    "Position Embeddings: Sinusoidal, RoPE": ("Decay estimates",),
    "Positional Encodings and ViT Attention – Key Equations": (),
    "KERPLE: Kernelized Attention with Relative Positional Encoding": (
        "Overview",
        "Core Formulation",
        "FFT Acceleration",
        "Algorithm Overview",
        "Key Components",
        "Computational Complexity",
        "Benchmarked Performance",
        "Q/K Normalization",
        "Compatibility",
        "Testing KERPLE",
        "Implementation Correctness",
    ),
}
VERDICTS = (
    "Wrong",
    "Contradicts itself",
    "Overstated",
    "Unsupported",
    "Incomplete",
    "Ambiguous",
    "Holds with a condition",
    "Redundant",
)
FIELDS = ("Source", "Claim", "Verdict", "Evidence", "Corrected")

BOX = re.compile(
    r"^(?P<fence>`{3,}|:{3,})\{admonition\} (?P<title>.+)\n(?P<options>(?::.+\n)*)"
    r"(?P<body>[\s\S]*?)^(?P=fence)$",
    re.MULTILINE,
)
OPTION = re.compile(r"^:(\w+): (.+)$", re.MULTILINE)
# a source is a title in italics or a paper as the chapter cites it, then the section
SOURCE = re.compile(r"\*([^*]+)\*, (.+?)\.(?=\s+\*|$)")
EXERCISE = re.compile(r"^`{3,}\{exercise(?:-start)?\} (.+)\n:label: (\S+)$", re.MULTILINE)
CHAPTER = re.compile(r"\]\((\w+\.ipynb)")


@dataclass
class Correction:
    """One box: where it stands, and what each of its fields says, on one line."""

    page: str
    place: str
    title: str
    label: str
    classes: list[str]
    fields: dict[str, str] = field(default_factory=dict)

    def sources(self) -> list[tuple[str, str]]:
        """Return the notes that are corrected, each with its sections; none for a paper."""
        return SOURCE.findall(self.fields.get("Source", ""))

    def faults(self) -> Iterator[str]:
        """Yield what the box lacks."""
        if not self.title.startswith("Correction: "):
            yield "the title does not begin with 'Correction: '"
        if "dropdown" not in self.classes:
            yield "the class dropdown is missing: the box would not fold"
        if not re.fullmatch(r"correction-[a-z0-9-]+", self.label):
            yield f"the name is {self.label!r}, expected one like correction-kerple"
        if tuple(self.fields) != FIELDS or not all(self.fields.values()):
            yield f"its fields are {', '.join(self.fields)}; expected {', '.join(FIELDS)}"
        verdict = self.fields.get("Verdict", "")
        if verdict and verdict.removesuffix(".") not in VERDICTS:
            yield f"the verdict is {verdict!r}, expected one of {', '.join(VERDICTS)}"
        for title, section in self.sources():
            if title not in NOTES:
                yield f"the source is {title!r}, expected one of {', '.join(NOTES)}"
            elif NOTES[title] and not set(re.findall('"(.+?)"', section)) <= {*NOTES[title]}:
                yield f"{section} is no section of {title}: {', '.join(NOTES[title])}"
            elif not NOTES[title] and not re.match(r"§\d", section):
                yield f"{section} is no section of {title}, which numbers them: §3.1"


def markdown(root: Path) -> Iterator[tuple[str, str, str]]:
    """Yield page, place and text of every Markdown cell of the chapters, in the book's order."""
    for path in pages(root):
        if path.suffix == ".ipynb":
            for place, cell in cells(root, path):
                if cell["cell_type"] == "markdown":
                    yield document(root, path), place, cell["source"]


def corrections(root: Path) -> list[Correction]:
    """Return all corrections of the book."""
    found = []
    for page, place, text in markdown(root):
        for box in BOX.finditer(text):
            options = dict(OPTION.findall(box["options"]))
            classes = options.get("class", "").split()
            if "correction" in classes or box["title"].startswith("Correction"):
                name = options.get("name", "")
                one = Correction(page, f"{place}, {box['title']}", box["title"], name, classes)
                _, *parts = re.split(r"\*\*(\w+)\.\*\*", box["body"])
                said = (" ".join(text.split()) for text in parts[1::2])
                one.fields = dict(zip(parts[::2], said, strict=True))
                found.append(one)
    return found


def faults(found: list[Correction]) -> Iterator[str]:
    """Yield what is wrong with the boxes, each with its place."""
    first: dict[str, str] = {}
    for one in found:
        yield from (f"{one.place}: {fault}" for fault in one.faults())
        if first.setdefault(one.label, one.place) != one.place:
            yield f"{one.place}: the name {one.label} is taken, in {first[one.label]}"


def order(title: str, section: str) -> tuple[int, ...]:
    """Return where in its source a section stands, by the first that is named."""
    number = re.match(r"§([\d.]+)", section)
    if number:
        return tuple(map(int, number[1].split(".")))
    name = re.search('"(.+?)"', section)
    return (NOTES[title].index(name[1]),) if name else (0,)


def entry(one: Correction, section: str) -> str:
    """Return a correction as an entry of the list."""
    title = one.title.removeprefix("Correction: ")
    said = {k: CHAPTER.sub(r"](../notebooks/\1", v) for k, v in one.fields.items()}
    number = int(Path(one.page).name[:2])
    where = f"{section}, boxed in [chapter {number}](../{one.page}.ipynb)"
    return (
        f"[{title[0].upper()}{title[1:]}](#{one.label})\n"
        f": **{said['Verdict']}** {where}.\n"
        f": **Claim.** {said['Claim']}\n"
        f": **Corrected.** {said['Corrected']}\n"
    )


def correction_list(root: Path) -> tuple[str, list[str]]:
    """Return the corrections in Markdown, and what is wrong with their boxes."""
    found = corrections(root)
    wrong = list(faults(found))
    if wrong:
        return "", wrong
    count = Counter(one.fields["Verdict"].removesuffix(".") for one in found)
    verdicts = ", ".join(f"{v[0].lower()}{v[1:]} {count[v]}" for v in VERDICTS if count[v])
    others = [one for one in found if not one.sources()]
    notes = f"{len(found) - len(others)} are about the notes and {len(others)} about a paper"
    blocks = [
        f"Of the {len(found)} boxes, {notes}. **In {count['Wrong']} the claim is wrong.** "
        f"By verdict: {verdicts}.\n"
    ]
    for title in NOTES:
        cited = [(s, one) for one in found for t, s in one.sources() if t == title]
        cited.sort(key=lambda pair: order(title, pair[0]))
        blocks += [f"## {title}\n", *(entry(one, section) for section, one in cited)]
    if others:
        source = (one.fields["Source"].removesuffix(".") for one in others)
        blocks += ["## Papers\n", *map(entry, others, source)]
    return "\n".join(blocks), []


def exercise_list(root: Path) -> tuple[str, list[str]]:
    """Return the exercises in Markdown."""
    titles: dict[str, str] = {}
    lines: dict[str, list[str]] = {}
    for page, _, text in markdown(root):
        title = re.search(r"^# (.+)$", text, re.MULTILINE)
        if title:
            titles.setdefault(page, title[1].strip())
        for exercise in EXERCISE.finditer(text):
            lines.setdefault(page, []).append(f"- {{ref}}`{exercise[2]}`: {exercise[1]}")
    count = sum(map(len, lines.values()))
    blocks = [f"{count} exercises in {len(lines)} chapters.\n"]
    # chapters are listed in the order of the table of contents, which numbers them
    for number, page in enumerate(titles, 1):
        if page in lines:
            blocks += [f"## {number}. {titles[page]}\n", *lines[page], ""]
    return "\n".join(blocks), []


LISTS: dict[str, Callable[[Path], tuple[str, list[str]]]] = {
    "correction-list": correction_list,
    "exercise-list": exercise_list,
}
PAGES = ("book/corrections", "book/exercises")


def fill_in(app: Sphinx, page: str, source: list[str]) -> None:
    """Write the lists in their places while the book is built."""
    for name, made in LISTS.items():
        place = f"```{{{name}}}\n```\n"
        if place in source[0]:
            text, wrong = made(Path(app.srcdir))
            for fault in wrong:
                logging.getLogger(__name__).warning(fault)
            source[0] = source[0].replace(place, text)


def setup(app: Sphinx) -> dict[str, Any]:
    """Make the pages in every build: whatever they list may have changed."""
    app.connect("source-read", fill_in)
    app.connect("env-get-outdated", lambda _app, env, *_: [p for p in PAGES if p in env.found_docs])
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
