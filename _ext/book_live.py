"""Instruments: ``{live} name`` puts one into a page, with the programs that it runs.

With ``:state:`` it begins there: what stands in the address behind ``#live=name&``. What its poster
shows is ``ALT`` of its module, or ``:alt:``.

What it computes is ``book/live/NAME.py``, exported to ``_static/live-NAME-programs.js`` beside the
pages, so that it runs from disk too, and loaded when the reader comes near; models of further
runs, if it has ``RUNS``, to ``live-NAME-1-programs.js`` and so on, loaded when they are asked for.
What it draws is ``book/_assets/live-NAME.js``, with the further ``SCRIPTS`` of the module. The
directive's content is what a reader without JavaScript sees, below a poster (``tools/posters.py``).
"""

from __future__ import annotations

import html
import importlib
import inspect
import json
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from lab.program import bundle

SHARED = ("book-run.js", "book-live.js")


@cache
def written(name: str) -> dict[str, str]:
    """Return the scripts of an instrument: name → its programs, the first with its data."""
    module = importlib.import_module(f"book.live.{name}")
    parts = {name: {**bundle(module.programs(), half=module.HALF), "about": module.data()}}
    for run in range(1, getattr(module, "RUNS", 1)):
        parts[f"{name}-{run}"] = bundle(module.programs(run), half=module.HALF)
    return {
        f"live-{part}-programs.js": "(window.bookPrograms = window.bookPrograms || {})"
        f"[{json.dumps(part)}] = {json.dumps(made, separators=(',', ':'))};\n"
        for part, made in parts.items()
    }


class LiveDirective(SphinxDirective):
    """Put an instrument into the page."""

    required_arguments = 1
    option_spec: ClassVar = {"state": str, "alt": str}
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the instrument's box."""
        self.assert_has_content()
        name = self.arguments[0]
        module = importlib.import_module(f"book.live.{name}")
        self.env.note_dependency(inspect.getfile(module))
        box = nodes.container(classes=["book-live"], ids=[f"live-{name}"])
        if "state" in self.options:
            state = html.escape(self.options["state"])
            box += nodes.raw("", f'<span data-state="{state}"></span>', format="html")
        source = f"../_static/posters/live-{name}.png"
        alt = html.escape(self.options.get("alt") or module.ALT)
        poster = f'<img class="live-poster" src="{source}" alt="{alt}">'
        box += nodes.raw(text=f"<noscript>{poster}</noscript>", format="html")
        self.state.nested_parse(self.content, self.content_offset, box)
        return [box]


def add_scripts(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """Load the scripts of a page's instruments, and write their programs beside the pages."""
    if doctree is None:
        return
    found = [
        name.removeprefix("live-")
        for box in doctree.findall(nodes.container)
        if "book-live" in box["classes"]
        for name in box["ids"]
        if name.startswith("live-")
    ]
    if not found:
        return
    for script in SHARED:
        app.add_js_file(script, loading_method="defer")
    for name in found:
        module = importlib.import_module(f"book.live.{name}")
        for script in (*getattr(module, "SCRIPTS", ()), f"live-{name}.js"):
            app.add_js_file(script, loading_method="defer")
        folder = Path(app.outdir) / "_static"
        folder.mkdir(parents=True, exist_ok=True)
        for script, text in written(name).items():
            (folder / script).write_text(text, encoding="utf8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive and the scripts."""
    app.add_directive("live", LiveDirective)
    app.connect("html-page-context", add_scripts)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
