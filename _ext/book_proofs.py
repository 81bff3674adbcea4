"""Proofs by algebra and exercises run in the page: their source, and Python for the browser.

``book/proofs.py`` finds the proofs and exercises of a chapter, ``book-prove.js`` puts a button
under each proof and an editor into each exercise, and ``tools/engine.py`` packs Python and sympy
into one script, which a page loads when its reader first presses Run. Without npm that script
cannot be made: then the pages have no such buttons and editors, and the build says so in one line.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from book.proofs import Exercise, Proof, exercises_of, proofs_of

ENGINE = "book-prove-engine.js"
WITHOUT = "The pages have no buttons that run proofs and exercises: {}."


def begin(app: Sphinx) -> None:
    """Begin to make the script in a process of its own, if pages are built for a browser."""
    if app.builder.name in ("html", "dirhtml"):
        root = Path(__file__).resolve().parents[1]
        words, pipe = [sys.executable, "-m", "tools.engine"], subprocess.PIPE
        app._engine = subprocess.Popen(  # type: ignore[attr-defined]
            words, cwd=root, stdout=pipe, stderr=pipe, text=True
        )


def wait(app: Sphinx, env: Any) -> None:
    """Wait for the script before pages are written, and say why if it cannot be made.

    Processes that write pages are forked later: only this one can wait for its child.
    """
    process = getattr(app, "_engine", None)
    app._engine_path = None  # type: ignore[attr-defined]
    if process is not None:
        output, errors = process.communicate()
        if process.returncode == 0:
            app._engine_path = Path(output.strip())  # type: ignore[attr-defined]
        else:
            said = errors.strip().splitlines() or ["no reason was given"]
            print(WITHOUT.format(said[-1]), file=sys.stderr, flush=True)


def data(proofs: list[Proof], exercises: list[Exercise]) -> str:
    """Return the proofs and exercises of a page as a script of data."""
    rows: dict[str, list[dict[str, Any]]] = {
        "proofs": [
            {
                "number": proof.number,
                "before": proof.before,
                "source": proof.source,
                "left": proof.left_out,
                "mistakes": proof.mistakes,
            }
            for proof in proofs
        ],
        "exercises": [
            {"number": each.number, "before": each.before, "source": each.source, "mistakes": []}
            for each in exercises
        ],
    }
    # "<" would let a text inside the JSON end the script
    text = json.dumps(rows, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" class="book-proofs">{text}</script>'


def add_proofs(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """Put the proofs and exercises of a chapter into its page."""
    source = Path(app.env.doc2path(page)) if doctree is not None else Path()
    if source.suffix != ".ipynb" or getattr(app, "_engine_path", None) is None:
        return
    notebook = json.loads(source.read_text(encoding="utf-8"))
    proofs, exercises = proofs_of(notebook), exercises_of(notebook)
    if proofs or exercises:
        context["body"] += data(proofs, exercises)
        app.add_js_file("book-prove.js", loading_method="defer")
        app.add_css_file("book-prove.css")


def finish(app: Sphinx, error: Exception | None) -> None:
    """Put the script beside the pages."""
    path = getattr(app, "_engine_path", None)
    if path is not None and error is None:
        shutil.copyfile(path, Path(app.outdir, "_static", ENGINE))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the steps."""
    app.connect("builder-inited", begin)
    app.connect("env-updated", wait)
    app.connect("html-page-context", add_proofs)
    app.connect("build-finished", finish)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
