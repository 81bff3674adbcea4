"""A proof by algebra runs in the page: its source, what it needs, and Python for the browser.

``book/proofs.py`` finds the proofs of a chapter, ``book-prove.js`` puts a button under each, and
``tools/engine.py`` packs Python and sympy into one script, which a page loads when its reader
presses the button. Without npm that script cannot be made: then the pages have no such button, and
the build says so in one line.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from book.proofs import Proof, proofs_of

ENGINE = "book-prove-engine.js"
WITHOUT = "The pages have no button that runs a proof: {}."


@dataclass
class Engine:
    """The script with Python and sympy, made in a process of its own beside the build."""

    process: subprocess.Popen[str]
    path: Path | None = None

    @classmethod
    def begun(cls) -> Engine:
        """Begin to make the script."""
        root = Path(__file__).resolve().parents[1]
        words = [sys.executable, "-m", "tools.engine"]
        pipe = subprocess.PIPE
        return cls(subprocess.Popen(words, cwd=root, stdout=pipe, stderr=pipe, text=True))

    def made(self) -> Path | None:
        """Wait for the script and return its path, or None after a line that says why not."""
        if self.process.stdout is not None and not self.process.stdout.closed:
            output, errors = self.process.communicate()
            if self.process.returncode == 0:
                self.path = Path(output.strip())
            else:
                said = errors.strip().splitlines() or ["no reason was given"]
                print(WITHOUT.format(said[-1]), file=sys.stderr, flush=True)
        return self.path


def begin(app: Sphinx) -> None:
    """Begin to make the script, if pages are built that a browser reads."""
    if app.builder.name in ("html", "dirhtml"):
        app._book_engine = Engine.begun()  # type: ignore[attr-defined]


def data(proofs: list[Proof]) -> str:
    """Return the proofs of a page as a script of data."""
    rows = [
        {
            "number": proof.number,
            "before": proof.before,
            "source": proof.source,
            "left": proof.left_out,
            "mistakes": proof.mistakes,
        }
        for proof in proofs
    ]
    # "<" would let a text inside the JSON end the script
    text = json.dumps(rows, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" class="book-proofs">{text}</script>'


def add_proofs(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """Put the proofs of a chapter into its page."""
    engine = getattr(app, "_book_engine", None)
    source = Path(app.env.doc2path(page)) if doctree is not None else None
    if engine is None or source is None or source.suffix != ".ipynb" or not engine.made():
        return
    proofs = proofs_of(json.loads(source.read_text(encoding="utf-8")))
    if proofs:
        context["body"] += data(proofs)
        app.add_js_file("book-prove.js", loading_method="defer")
        app.add_css_file("book-prove.css")


def finish(app: Sphinx, error: Exception | None) -> None:
    """Put the script beside the pages."""
    engine = getattr(app, "_book_engine", None)
    path = engine.made() if engine is not None and error is None else None
    if path is not None:
        shutil.copyfile(path, Path(app.outdir, "_static", ENGINE))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the steps."""
    app.connect("builder-inited", begin)
    app.connect("html-page-context", add_proofs)
    app.connect("build-finished", finish)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
