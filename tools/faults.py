"""Plant the faults of tests/faults.toml, one at a time, and say which test catches each.

    make faults                                # those caught before are caught still
    python tools/faults.py --search            # look on for tests that catch the others
    python tools/faults.py --tier quick        # the same, by what `make test` runs
    python tools/faults.py --only 'delta-*'    # some of them
    python tools/faults.py --list              # run nothing: who catches what

A fault is planted in a copy of the checkout in a temporary folder, never in the working tree.
There the test that caught it last time runs, and then, if that passes and with ``--search``, the
others: tests named after the file, those that import it, its contract, the chapters that name it,
then the rest, the quickest first. The first test that fails catches the fault, if it passes without
the fault. Every answer is written to tests/faults.json at once, so that ``--new`` goes on where a
run was stopped.

Scripts of the pages are tried in a built book, ``--html``; without one they are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any

from lab.console import allow_every_letter
from tools.check import CONTRACTS, covering

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tests" / "faults.toml"
RECORD = ROOT / "tests" / "faults.json"
ASSETS = Path("book/_assets")

# What pytest is told besides the test file, and whether the pages are tried: of each tier.
TIERS: dict[str, tuple[list[str], bool]] = {"all": ([], True), "quick": (["--quick"], False)}

PYTEST = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:nbval", "-p", "no:cacheprovider"]
FORM = {
    "ruff": ["-m", "ruff", "check", "--quiet", "--no-cache", "."],
    "ruff format": ["-m", "ruff", "format", "--check", "--quiet", "--no-cache", "."],
    "notebooks --check": ["tools/notebooks.py", "--check"],
    "ledger --check": ["tools/ledger.py", "--check"],
}
FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
LONGEST = 900  # seconds: whoever hangs longer has caught the fault too
USUAL = 30.0  # seconds of a test file that has not been timed


@dataclass(frozen=True)
class Fault:
    """One text of one file, and what stands in its place when the fault is planted."""

    id: str
    file: str
    before: str
    after: str
    wrong: str
    set: str

    def planted(self, text: str) -> str:
        """Return the text of the file with the fault in it.

        Raises:
            ValueError: If the text before is not there exactly once.
        """
        count = text.count(self.before)
        if count != 1:
            raise ValueError(
                f"before of {self.id}: expected once in {self.file}, got {count} times. "
                "Write the text that is there now into tests/faults.toml."
            )
        return text.replace(self.before, self.after)


def faults() -> list[Fault]:
    """Return all faults, in the order of the list."""
    return [Fault(**entry) for entry in tomllib.loads(LIST.read_text(encoding="utf8"))["fault"]]


# --- a copy of the checkout ---


class Copy:
    """A copy of the checkout, in which one fault at a time is planted."""

    def __init__(self, folder: Path, html: Path | None) -> None:
        self.root, self.html = folder, None
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True, text=True).stdout
        for name in filter(None, names.split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        who = ["-c", "user.name=faults", "-c", "user.email=faults@localhost"]
        for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-q", "-m", "All"]):
            subprocess.run(["git", *words], cwd=folder, check=True)
        if html is not None:
            self.html = folder / "_build" / "html"
            shutil.copytree(html, self.html)

    def write(self, file: str, text: str) -> None:
        """Write a file, and forget what Python has compiled of it."""
        path = self.root / file
        path.write_text(text, encoding="utf8")
        for old in path.parent.glob(f"__pycache__/{path.stem}.*"):
            old.unlink()
        if path.is_relative_to(self.root / ASSETS) and self.html is not None:
            shutil.copy(path, self.html / "_static" / path.name)

    def run(self, command: Sequence[str]) -> tuple[bool, str]:
        """Return whether a command succeeds there, and what it prints."""
        env = {**os.environ, "PYTHONPATH": str(self.root), "OMP_NUM_THREADS": "1"}
        if self.html is not None:
            env |= {"BOOK_HTML": str(self.html), "REQUIRE_BROWSER": "1"}
        try:
            done = subprocess.run(
                command, cwd=self.root, env=env, capture_output=True, text=True, timeout=LONGEST
            )
        except subprocess.TimeoutExpired:
            return False, ""
        return done.returncode in (0, 5), done.stdout + done.stderr  # 5: no test of that tier


# --- what is tried ---


@dataclass(frozen=True)
class Check:
    """Something that is run: a test file or one test, a chapter, a check of form."""

    name: str
    options: tuple[str, ...] = ()

    @property
    def command(self) -> list[str]:
        """What runs it."""
        if self.name in FORM:
            return [sys.executable, *FORM[self.name]]
        if self.name.startswith("notebooks/"):
            file = self.name.partition("::")[0]
            return [sys.executable, "tools/notebooks.py", "--replay", "--jobs", "1", file]
        return [*PYTEST, *self.options, self.name]

    def failure(self, printed: str) -> str:
        """Return the name of the test that failed."""
        found = FAILED.search(printed)
        return found[1] if found and self.name not in FORM else self.name


def checks(fault: Fault, tier: str, seconds: dict[str, float], pages: bool) -> Iterator[Check]:
    """Yield all that may catch a fault, the likeliest first."""
    options, site = TIERS[tier]
    path = Path(fault.file)
    chapters = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "notebooks").glob("*.ipynb"))
    first = ["notebooks --check", "ledger --check"] if path.suffix == ".ipynb" else []
    first += [fault.file] if path.suffix == ".ipynb" else []

    def quickest(names: Iterable[str]) -> list[str]:
        return sorted(names, key=lambda name: seconds.get(name, USUAL))

    near = quickest(covering(path)) if path.suffix == ".py" else []
    near.sort(key=lambda name: not name.startswith(f"tests/test_{path.stem}"))
    contract = CONTRACTS.get(path.parent.as_posix())
    near += [contract] if contract and contract not in near else []
    tests = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "tests").glob("test_*.py"))
    tests.remove("tests/test_faults.py")  # it fails for every planted fault
    for folder in [ROOT / "tests" / "site"] * (site and pages):
        own = sorted(str(p.relative_to(ROOT)) for p in folder.glob("test_*.py"))
        near, tests = (near + own, tests) if path.suffix == ".js" else (near, tests + own)
    naming = [name for name in chapters if path.stem in words_of(name)]
    for name in dict.fromkeys([*first, *near, *naming, *quickest(tests), *FORM, *chapters]):
        yield Check(name, tuple(options))


@cache
def words_of(name: str) -> set[str]:
    """Return the words of a chapter."""
    return set(re.findall(r"\w+", (ROOT / name).read_text(encoding="utf8")))


# --- what is found ---


class Record:
    """tests/faults.json: by tier who catches which fault, and how long test files take."""

    def __init__(self, path: Path) -> None:
        self.path, self.lock = path, Lock()
        known = json.loads(path.read_text(encoding="utf8")) if path.exists() else {}
        self.caught: dict[str, dict[str, Any]] = known.get("caught", {})
        self.seconds: dict[str, float] = known.get("seconds", {})

    def write(self) -> None:
        """Write it, sorted, to be read as a change."""
        self.caught = {tier: dict(sorted(by.items())) for tier, by in sorted(self.caught.items())}
        told = {"caught": self.caught, "seconds": dict(sorted(self.seconds.items()))}
        self.path.write_text(json.dumps(told, indent=1) + "\n", encoding="utf8")

    def note(self, tier: str, fault: Fault, found: dict[str, Any]) -> None:
        """Keep what was found of a fault."""
        with self.lock:
            self.caught.setdefault(tier, {})[fault.id] = found
            self.write()

    def time(self, name: str, seconds: float) -> None:
        """Keep how long a test file takes that passes."""
        with self.lock:
            self.seconds[name] = round(seconds, 1)


def search(
    fault: Fault, copy: Copy, tier: str, record: Record, known: str | None, far: bool
) -> dict[str, Any]:
    """Plant a fault and return who catches it, ``by``, and what was tried in vain.

    Args:
        fault: The fault.
        copy: Where it is planted.
        tier: What may catch it.
        record: Has the times of test files.
        known: The test that caught it before.
        far: Whether to go on when that one passes.
    """
    sound = (copy.root / fault.file).read_text(encoding="utf8")
    planted = fault.planted(sound)
    options, site = tuple(TIERS[tier][0]), TIERS[tier][1]
    if known and options:  # a case that is named alone is run in every tier
        known = known.partition("::")[0]
    if known and known.startswith("tests/site/") and not site:
        known = None
    order = [Check(known, options)] if known else []
    if far or not known:
        order += checks(fault, tier, record.seconds, copy.html is not None)
    start, tried = time.monotonic(), list[str]()
    try:
        for check in order:
            copy.write(fault.file, planted)
            since = time.monotonic()
            passed, printed = copy.run(check.command)
            took = time.monotonic() - since
            if passed:
                tried.append(check.name)
                if "::" not in check.name:
                    record.time(check.name, took)
                continue
            by = check.failure(printed)
            copy.write(fault.file, sound)
            # a fault in the words of a page may have changed the name of the case
            names = dict.fromkeys([by, by.partition("[")[0]])
            if any(copy.run(replace(check, name=name).command)[0] for name in names):
                return {"by": by, "seconds": round(time.monotonic() - start, 1)}
            tried.append(f"{check.name}, which fails without the fault")
    finally:
        copy.write(fault.file, sound)
    return {"by": None, "seconds": round(time.monotonic() - start, 1), "tried": len(tried)}


def run(chosen: Sequence[Fault], args: argparse.Namespace, record: Record) -> int:
    """Plant each of some faults; return how many are no longer caught."""
    before = {**record.caught.get("all", {}), **record.caught.get(args.tier, {})}
    html = args.html if args.html.is_dir() else None
    lost = 0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(args.jobs) as pool:
        free: SimpleQueue[Copy] = SimpleQueue()
        for n in range(args.jobs):
            free.put(Copy(Path(folder) / str(n), html))

        def one(fault: Fault) -> dict[str, Any]:
            copy = free.get()
            try:
                known = before.get(fault.id, {}).get("by")
                return search(fault, copy, args.tier, record, known, args.search)
            finally:
                free.put(copy)

        going = {pool.submit(one, fault): fault for fault in chosen}
        for number, done in enumerate(as_completed(going), 1):
            fault, found = going[done], done.result()
            lost += found["by"] is None and before.get(fault.id, {}).get("by") is not None
            record.note(args.tier, fault, found)
            by = found["by"] or "nothing"
            print(f"{number}/{len(chosen)} {fault.id}: {by}, {found['seconds']} s", flush=True)
    return lost


def listing(chosen: Sequence[Fault], tier: str, record: Record) -> str:
    """Return who catches what, a line for each fault."""
    caught = record.caught.get(tier, {})
    lines = [
        f"{fault.set:8} {fault.id:20} {caught.get(fault.id, {}).get('by') or '-'}"
        for fault in chosen
    ]
    count = sum(bool(caught.get(fault.id, {}).get("by")) for fault in chosen)
    return "\n".join([*lines, f"{count} of {len(chosen)} are caught"])


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the arguments ask for; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tier", default="all", choices=TIERS, help="what may catch a fault")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="ids of faults")
    parser.add_argument("--set", choices=("tuned", "held-out"), help="one of the two sets")
    parser.add_argument("--new", action="store_true", help="those that nobody has looked for yet")
    parser.add_argument("--search", action="store_true", help="go on when the known test passes")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    parser.add_argument("--html", type=Path, default=ROOT / "_build" / "html", help="a built book")
    parser.add_argument("--list", action="store_true", help="run nothing, say what is known")
    args = parser.parse_args(argv)
    record = Record(RECORD)
    done = record.caught.get(args.tier, {})
    chosen = [
        fault
        for fault in faults()
        if fnmatch(fault.id, args.only)
        and args.set in (None, fault.set)
        and not (args.new and fault.id in done)
    ]
    if args.list:
        print(listing(chosen, args.tier, record))
        return 0
    lost = run(chosen, args, record)
    print(listing(chosen, args.tier, record).splitlines()[-1])
    return int(lost > 0)


if __name__ == "__main__":
    allow_every_letter()
    sys.exit(main())
