"""Build the pages of the book, counting them; a warning is an error.

    python -m tools.build             # into _build
    python -m tools.build FOLDER      # into FOLDER/_build, from clean

After Ctrl-C the pages that are done are kept.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from tools import stoppable

ROOT = Path(__file__).resolve().parents[1]
OPTIONS = ("-W", "-n", "--keep-going", "--quiet")


def main(*folder: str) -> int:
    """Run Jupyter Book and return its exit status, 130 after Ctrl-C."""
    began = time.monotonic()
    book = Path(sys.executable).with_name("jupyter-book")
    where = ("--path-output", *folder) if folder else ()
    command = [sys.executable, str(book), "build", str(ROOT), *OPTIONS, *where]
    print("Building the pages ...", flush=True)
    try:
        code = stoppable.run(command, cwd=ROOT, env=os.environ | {"BOOK_COUNT": "1"})
    except KeyboardInterrupt:
        print(stoppable.STOPPED, flush=True)
        return 130
    if code == 0:
        print(f"The pages are built: {time.monotonic() - began:.0f} s.")
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
