"""Build the pages of the book, counting them; a warning is an error.

    python -m tools.build             # into _build
    python -m tools.build FOLDER      # into FOLDER/_build, from clean

After Ctrl-C the pages that are done are kept.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OPTIONS = ("-W", "-n", "--keep-going", "--quiet")


def main(*folder: str) -> int:
    """Run Jupyter Book and return its exit status, 130 after Ctrl-C."""
    began = time.monotonic()
    book = Path(sys.executable).with_name("jupyter-book")
    where = ("--path-output", *folder) if folder else ()
    command = [sys.executable, str(book), "build", str(ROOT), *OPTIONS, *where]
    print("Building the pages ...", flush=True)
    # a group of its own: Ctrl-C reaches this process alone, which stops the whole group
    process = subprocess.Popen(
        command, cwd=ROOT, env=os.environ | {"BOOK_COUNT": "1"}, start_new_session=True
    )
    try:
        code = process.wait()
    except KeyboardInterrupt:
        print("\nStopped. The same command goes on from here.", flush=True)
        return 130
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    if code == 0:
        print(f"The pages are built: {time.monotonic() - began:.0f} s.")
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
