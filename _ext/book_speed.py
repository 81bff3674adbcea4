"""What makes a build faster and changes no page: each of these saves about a tenth of the time.

* Python does not look for garbage: a build takes 2 GB without.
* Where processes can be forked safely, on Linux, pages are read and written by as many processes
  as there are cores, at most four. The parent uses one thread of PyTorch, since a pool of threads
  would not live on in a child.
* The sidebar lists titles. Sphinx copies all sections of all pages for it, on every page, and then
  drops them; here they are dropped first.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.builders import html
from sphinx.environment import BuildEnvironment
from sphinx.environment.adapters.toctree import global_toctree_for_doc
from sphinx.util.build_phase import BuildPhase
from sphinx.util.parallel import ParallelTasks, make_chunks

# These two do not say whether they are safe. One writes LaTeX, one numbers sections after reading.
SAFE = ("sphinx_jupyterbook_latex", "sphinx_multitoc_numbering")
# These keep nothing in their domain, so that there is nothing to merge.
EMPTY = ("prf",)


CHUNK = 4
"""About so many pages are given to a process at once."""


def read_in_parallel(app: Sphinx) -> None:
    """Let several processes read."""
    app.parallel = min(4, len(os.sched_getaffinity(0)))
    for name in SAFE:
        app.extensions[name].parallel_read_safe = True
    for name in EMPTY:
        type(app.env.get_domain(name)).merge_domaindata = lambda *_: None


def write_in_parallel(
    builder: html.StandaloneHTMLBuilder, names: Sequence[str], nproc: int
) -> None:
    """Write pages. Sphinx follows the links of all pages in one process, here each its own's."""

    def write(chunk: Sequence[str]) -> dict[str, str]:
        for name in chunk:
            page = builder.env.get_and_resolve_doctree(name, builder)
            builder.write_doc_serialized(name, page)
            builder.write_doc(name, page)
        return builder.images

    def merge(chunk: Sequence[str], images: dict[str, str]) -> None:
        builder.images.update(images)

    builder.app.phase = BuildPhase.WRITING
    write(names[:1])  # so that a process finds its templates read
    tasks = ParallelTasks(builder.app.parallel)
    for chunk in make_chunks(names[1:], nproc, CHUNK):
        tasks.add_task(write, chunk, merge)
    tasks.join()


@cache
def titles(env: BuildEnvironment) -> dict[str, nodes.bullet_list]:
    """Return the contents of each page without its sections; whole if other pages are below it."""
    found = {}
    for page, contents in env.tocs.items():
        if next(contents.findall(addnodes.toctree), None) is None:
            contents = contents.deepcopy()
            for item in contents:
                del item[1:]
        found[page] = contents
    return found


def sidebar(env: BuildEnvironment, *args: Any, titles_only: bool = False, **options: Any) -> Any:
    """Return what Sphinx's function of this name returns, sooner if it is of titles only."""
    whole = env.tocs
    env.tocs = titles(env) if titles_only else whole
    try:
        return global_toctree_for_doc(env, *args, titles_only=titles_only, **options)
    finally:
        env.tocs = whole


def setup(app: Sphinx) -> dict[str, Any]:
    """Set it up."""
    gc.disable()
    torch.set_num_threads(1)
    html.global_toctree_for_doc = sidebar
    if sys.platform == "linux":
        app.connect("builder-inited", read_in_parallel)
        html.StandaloneHTMLBuilder._write_parallel = write_in_parallel
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
