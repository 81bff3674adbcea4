"""Claims of a record: ``{verdict}`better by 5% <text: ELU, GLA>``` in a sentence.

On the built page the words open a note with the mean, its interval and where they come from, in the
display names of :mod:`book.cells`; so do those of a score, ``{recorded}`.88 to .91 <named, 1,600
steps: mean: *>```. Words that do not agree with the record stop the build; :mod:`book.verdicts` has
what is claimed and measured, and :mod:`book.claims` what words may say of it.
"""

from __future__ import annotations

from html import escape
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import ReferenceRole
from sphinx.writers.html5 import HTML5Translator

from book.cells import shown
from book.claims import cells_of, faults, misquoted, scores_of
from book.notes import note
from book.verdicts import FAMILIES, MEASURES
from lab.theory.spread import interval, mean


class Verdict(nodes.inline):
    """The words of a claim."""


class VerdictRole(ReferenceRole):
    """Read ``words <family: cell>``, ``<family: one | another>`` or, for all, ``<family>``."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Return the words, checked."""
        name, _, cells = self.target.partition(": ")
        wrong = self.faults(self.title, name, cells)
        if wrong:
            message = self.inliner.reporter.error("; ".join(wrong), line=self.lineno)
            return [nodes.inline(self.rawtext, self.title)], [message]
        node = Verdict(self.rawtext, self.title, told=self.told(name, cells))
        node["ids"] = [f"verdict-{self.env.new_serialno('verdict')}"]
        return [node], []

    def faults(self, words: str, name: str, cells: str) -> list[str]:
        """Return what is wrong with the words."""
        return faults(words, name, cells)

    def told(self, name: str, cells: str) -> str:
        """Return what the note says."""
        return note(FAMILIES[name], cells_of(name, cells))


class RecordedRole(VerdictRole):
    """Read ``numbers <measure: cell>`` or ``<measure: one | another>``."""

    def faults(self, words: str, name: str, cells: str) -> list[str]:
        """Return what is wrong with the numbers."""
        return misquoted(words, name, cells)

    def told(self, name: str, cells: str) -> str:
        """Return the means, their intervals, and what they rest on."""
        measure, scores = MEASURES[name], scores_of(name, cells)
        found = []
        for cell, row in scores.items():
            low, high = interval(row)
            unit = f"{mean(row):.3f} {measure.unit}".rstrip()
            found.append(f"“{shown(cell, measure.record)}”: {unit} [{low:.3f}, {high:.3f}]")
        studies = " and ".join(f"results/{record}.py" for record in measure.record.split(", "))
        return f"{'; '.join(found)} (95% interval). {len(row)} seeds of {studies}."


def open_words(self: HTML5Translator, node: Verdict) -> None:
    """Make the words a button that opens the note, without a script."""
    self.body.append(
        f'<button type="button" class="book-verdict" popovertarget="{node["ids"][0]}">'
    )


def close_words(self: HTML5Translator, node: Verdict) -> None:
    """Write the note behind the words."""
    told = escape(node["told"])
    self.body.append(
        f'</button><span popover class="book-told" id="{node["ids"][0]}">{told}</span>'
    )


def only_words(self: Any, node: Verdict) -> None:
    """Write nothing but the words."""


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the roles."""
    app.add_node(
        Verdict,
        html=(open_words, close_words),
        text=(only_words, only_words),
    )
    app.add_role("verdict", VerdictRole())
    app.add_role("recorded", RecordedRole())
    return {"parallel_read_safe": True, "parallel_write_safe": True}
