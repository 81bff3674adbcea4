"""The commands that README.md, CONTRIBUTING.md, the pages and the chapters print."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from lab.train.__main__ import main as train
from results import rope_shift

ROOT = Path(__file__).resolve().parents[1]
MAKEFILE = (ROOT / "Makefile").read_text("utf8")
TARGETS = set(re.findall(r"(?m)^([a-z][\w-]*):", MAKEFILE))
SETTINGS = set(re.findall(r"(?m)^([A-Z_]+) *\?=", MAKEFILE)) | {"FILE", "JUPYTER_ARGS"}
ELSEWHERE = {"conda", "git", "pip"}
"""Commands that are not of this environment."""

FENCE = re.compile(r"(?ms)^[ >]*```(?:bash|sh|console)\n(.*?)^[ >]*```")
INLINE = re.compile(r"`((?:make|python3?|\.venv/bin/\S+) [^`\n]+)`")


def texts() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of all that a reader reads."""
    pages = sorted((ROOT / "book").rglob("*.md"))
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *pages):
        yield str(path.relative_to(ROOT)), path.read_text("utf8")
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        for cell in json.loads(path.read_text("utf8"))["cells"]:
            if cell["cell_type"] == "markdown":
                yield path.name, "".join(cell["source"])


@cache
def commands() -> dict[str, list[str]]:
    """Return command → where it is printed."""
    found: dict[str, list[str]] = {}
    for name, text in texts():
        blocks = [re.sub(r"\\\n\s*", "", block) for block in FENCE.findall(text)]
        lines = [line.strip() for block in blocks for line in block.splitlines()]
        for line in [*lines, *INLINE.findall(text)]:
            for command in re.split(r" (?:&&|\|\|) ", line.split(" #")[0].strip()):
                if command and not command.startswith("#"):
                    found.setdefault(command, []).append(name)
    return found


@cache
def options(main: Callable[[Sequence[str]], object]) -> set[str]:
    """Return the options of a program, from the help that it prints."""
    with redirect_stdout(io.StringIO()) as out, suppress(SystemExit):
        main(["--help"])
    return set(re.findall(r"--[\w-]+", out.getvalue()))


def faults(command: str) -> Iterator[str]:
    """Yield what would stop a command in a fresh shell, in the folder of a checkout."""
    program, *words = shlex.split(command)
    if program == "make":
        yield from (w for w in words if re.fullmatch(r"[a-z-]+", w) and w not in TARGETS)
        yield from (w for w in words if "=" in w and w.split("=")[0] not in SETTINGS)
    elif (program == "python3" and words[:2] == ["-m", "venv"]) or program in ELSEWHERE:
        return
    elif program == ".venv/bin/python":
        module = words[1] if words[0] == "-m" else words[0].removesuffix(".py").replace("/", ".")
        if words[0] == "-c" or module.isupper() or module == "pip":
            return
        if words[0] == "-m" and find_spec(module) is None:
            yield f"no module {module}"
        elif words[0] != "-m" and not (ROOT / words[0]).exists():
            yield f"no file {words[0]}"
        given = {word for word in words if word.startswith("--")}
        if module == "lab.train":
            yield from given - options(train)
        elif module.startswith("results."):  # all studies have the same
            yield from given - options(rope_shift.STUDY.main)
    elif program.startswith((".venv/bin/", ".venv-bench/bin/")):
        name = program.rpartition("/")[2]
        missing = name != "jupytext"  # make jupyter brings it, make test does not
        if name != "python" and missing and not Path(sys.executable).with_name(name).exists():
            yield f"no command {name}"
    else:
        yield f"{program} is not there before .venv is activated"


def test_every_printed_command_is_there_with_its_options() -> None:
    wrong = {c: (where, found) for c, where in commands().items() if (found := [*faults(c)])}
    assert wrong == {}
    assert len(commands()) > 80


@pytest.mark.parametrize("program", ["-m lab.train", "results/rope_shift.py"])
def test_help_is_printed_where_letters_are_missing(program: str) -> None:
    env = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    words = [sys.executable, *program.split(), "--help"]
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_command_that_does_not_run_is_found() -> None:
    bad = ("python results/rope.py", "make tests", "make book PIPARGS=x", "dask scheduler")
    bad += (".venv/bin/python results/none.py", ".venv/bin/python results/rope_shift.py --seed 3")
    assert [c for c in bad if not [*faults(c)]] == []
