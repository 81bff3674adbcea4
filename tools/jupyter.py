"""Open JupyterLab on the book.

    python -m tools.jupyter                                # as make jupyter does
    python -m tools.jupyter --no-browser --ip=0.0.0.0      # options of JupyterLab follow

It is any JupyterLab but for six settings, which hold for this server alone:

* Its root is the repository, so that the links of a chapter lead to their pages, and the functions
  of ``book/figures/`` can be opened beside it.
* A file that was edited is loaded again before the next cell runs (IPython's autoreload).
* A chapter is shown with the numbers and words of the book in the place of its roles
  (``tools/lab_form.py``).
* A chapter is saved with its roles and in its stable form (``tools/notebook_form.py``): a diff has
  only what changed.
* The chapters are trusted, so that their saved pictures are shown before they run.
* In a container, where one is root, it starts all the same.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from jupyterlab.labapp import LabApp
from nbformat.sign import NotebookNotary

from tools.lab_form import Numbers, restore, show
from tools.notebook_form import ENVIRONMENT, ROOT, dump, normalise

CHAPTERS = ROOT / "notebooks"
RELOAD = [f"--IPKernelApp.exec_lines=%{line}" for line in ("load_ext autoreload", "autoreload 2")]
OURS = ("STRINGLIB_DEVICE", "STRINGLIB_LIVE")  # for runs that nobody looks on at


class StableContents(AsyncLargeFileManager):
    """Shows and saves the chapters in forms of their own, any other file as JupyterLab does."""

    async def _notebook_model(self, path: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
        model: dict[str, Any] = await super()._notebook_model(path, *args, **kwargs)
        file = Path(self._get_os_path(path))
        if model["content"] and file.parent == CHAPTERS:
            show(model["content"], file.name, Numbers(ROOT))
        return model

    async def _save_notebook(
        self, os_path: str, nb: nbformat.NotebookNode, capture_validation_error: Any = None
    ) -> None:
        if Path(os_path).parent != CHAPTERS:
            await super()._save_notebook(os_path, nb, capture_validation_error)
            return
        trusted = self.notary.check_signature(nb)
        restore(nb)
        normalise(nb)
        if trusted:
            self.notary.sign(nb)
        with self.atomic_writing(os_path, encoding="utf8", newline="\n") as file:
            file.write(dump(nb))


class ReloadingKernels(AsyncMappingKernelManager):
    """Starts Python kernels that load an edited file again before the next cell runs."""

    async def start_kernel(self, **kwargs: Any) -> str:
        """Start a kernel."""
        if kwargs.get("kernel_name") in (None, "", "python3"):
            kwargs["extra_arguments"] = [*kwargs.get("extra_arguments", []), *RELOAD]
        started: str = await super().start_kernel(**kwargs)
        return started


def options() -> list[str]:
    """Return the options of JupyterLab."""
    settings = {
        "ServerApp.root_dir": ROOT,
        "LabApp.default_url": "/lab/tree/notebooks",
        "ServerApp.contents_manager_class": f"{__name__}.StableContents",
        "ServerApp.kernel_manager_class": f"{__name__}.ReloadingKernels",
        "ServerApp.allow_root": hasattr(os, "geteuid") and os.geteuid() == 0,
    }
    return [f"--{name}={value}" for name, value in settings.items()]


def main(argv: Sequence[str] | None = None) -> None:
    """Open it."""
    for name, value in ENVIRONMENT.items():
        if name not in OURS:
            os.environ.setdefault(name, value)
    notary = NotebookNotary()
    for path in CHAPTERS.glob("*.ipynb"):
        notary.sign(nbformat.read(path, as_version=4))
    LabApp.launch_instance([*options(), *(sys.argv[1:] if argv is None else argv)])


if __name__ == "__main__":
    # by its name, which the server imports: not __main__
    from tools import jupyter

    jupyter.main()
