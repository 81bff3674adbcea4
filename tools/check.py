"""Check one file while it is being changed: its form, its types and its tests, in seconds.

    python tools/check.py stringlib/encoders/rope.py
    python tools/check.py notebooks/02_rope.ipynb
    python tools/check.py tests/test_rope.py

The tests of a module are those named after it, those that import it, and its cases of the contract;
of a chapter, its form and its replay. All of it, with what other files make of the change, is
``make test``.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from lab.console import allow_every_letter

ROOT = Path(__file__).resolve().parents[1]
PYTEST = ("pytest", "-q", "-p", "no:nbval")
CONTRACTS = {
    "stringlib/encoders": "tests/test_encoder_contract.py",
    "stringlib/attention": "tests/test_attention_contract.py",
    "book/figures": "tests/test_figures.py",
}
"""Folder → the tests whose cases are named after its files."""


def covering(path: Path, root: Path = ROOT) -> list[str]:
    """Return the tests of a file, relative to the root.

    Args:
        path: Of a Python file, relative to the root.
        root: Of the checkout.
    """
    folder = root / "tests"
    if path.parts[0] == "tests" and path.name.startswith("test_"):
        return [str(path)]
    module = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    package, _, name = module.rpartition(".")
    imports = re.compile(
        rf"^\s*(from {module} import|import {module}\b|from {package} import .*\b{name}\b)", re.M
    )
    found = set(folder.glob(f"test_{path.stem}*.py"))
    found |= {test for test in folder.glob("test_*.py") if imports.search(test.read_text("utf8"))}
    return sorted(str(test.relative_to(root)) for test in found)


def commands(path: Path, root: Path = ROOT) -> list[list[str]]:
    """Return what to run for a file, each the arguments of ``python -m`` or a script.

    Args:
        path: Of the file, relative to the root.
        root: Of the checkout.

    Raises:
        ValueError: If it is no Python file, notebook or page.
    """
    if path.suffix == ".md":
        return [["tools/ledger.py", "--check"]]
    form = [["-m", "ruff", "check", str(path)], ["-m", "ruff", "format", "--check", str(path)]]
    if path.suffix == ".ipynb":
        made = [["tools/notebooks.py", flag, str(path)] for flag in ("--check", "--replay")]
        return [*form, *made, ["tools/ledger.py", "--check"]]
    if path.suffix != ".py":
        raise ValueError(f"FILE must be a .py, .ipynb or .md, got {path}")
    types = [] if path.parts[0] in ("tests", "results") else [["-m", "mypy", str(path)]]
    tests = covering(path, root)
    contract = CONTRACTS.get(path.parent.as_posix())
    run = [["-m", *PYTEST, *tests]] if tests else []
    if contract is not None:
        run.append(["-m", *PYTEST, contract, "-k", path.stem])
    return [*form, *types, *run]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the checks of a file; stop at the first that fails."""
    words = sys.argv[1:] if argv is None else argv
    if len(words) != 1:
        print("FILE must be one file: make check FILE=stringlib/encoders/rope.py", file=sys.stderr)
        return 2
    given = words[0]
    path = Path(given).resolve()
    if not path.is_file() or not path.is_relative_to(ROOT):
        print(f"FILE must be a file of the checkout, got {given}", file=sys.stderr)
        return 2
    for command in commands(path.relative_to(ROOT)):
        print("python", *command, flush=True)
        code = subprocess.run([sys.executable, *command], cwd=ROOT).returncode
        if code not in (0, 5) or (code == 5 and "pytest" not in command):  # 5: no case has the name
            return code
    return 0


if __name__ == "__main__":
    allow_every_letter()
    sys.exit(main())
