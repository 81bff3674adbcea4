"""Instruments: ``{live} name`` puts one into a page, with the programs that it runs.

With ``:state:`` it begins there: what stands in the address behind ``#live=name&``. What its poster
shows in each state is ``ALT`` of its module. On paper the poster stands for the instrument, above
the address of the page.

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
import re
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
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


def instrument(env: BuildEnvironment, name: str, state: str) -> nodes.container:
    """Return the box of an instrument, with the state in which it begins and its poster."""
    module = importlib.import_module(f"book.live.{name}")
    env.note_dependency(inspect.getfile(module))
    if state not in module.ALT:
        raise ValueError(f"book/live/{name}.py: ALT has no text for the state {state!r}. Add one.")
    address = f"{env.config.html_baseurl}{env.docname}.html#live-{name}"
    box = nodes.container(classes=["book-live"], ids=[f"live-{name}"])
    if state:
        first = f'<span data-state="{html.escape(state)}"></span>'
        box += nodes.raw(text=first, format="html")
    poster = "-".join([f"live-{name}", *re.findall(r"[\w.]+", state)])
    box += nodes.raw(
        text=f'<div class="live-paper"><img class="live-poster" loading="lazy" '
        f'src="../_static/posters/{poster}.png" alt="{html.escape(module.ALT[state])}">'
        f"<p>Interactive version: {address}</p></div>",
        format="html",
    )
    return box


class LiveDirective(SphinxDirective):
    """Put an instrument into the page."""

    required_arguments = 1
    option_spec: ClassVar = {"state": str}
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the instrument's box."""
        self.assert_has_content()
        box = instrument(self.env, self.arguments[0], self.options.get("state", ""))
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
