"""Install what a part of the project needs into the environment whose Python runs this.

    python -m tools.install PART KEY     # called by tools/environment.sh

PART is an extra of pyproject.toml, KEY names the state of the files that decide what is installed.
The versions are those of constraints.txt. pip chooses and downloads PyTorch, of which there are
several builds; all else, whose file does not matter, uv installs where it can be had (see
INSTALLER), in a fifth of pip's time. Of the environment's variables are read:

    VENV        the folder of the environment
    TORCH       the PyTorch that is asked for: a requirement, such as torch==2.13.0
    PIP_ARGS    further arguments of pip
    INSTALLER   "uv": uv, or pip where there is none (the default); "pip": pip
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import invalidate_caches
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

from pip._vendor.packaging.requirements import InvalidRequirement, Requirement

from tools import broken_packages, fit_torchvision, install_trouble, stoppable, uv_options

ROOT = Path(__file__).resolve().parents[1]
PIP = [sys.executable, "-m", "pip"]
UV = [sys.executable, "-m", "uv", "pip"]
FIT = r"torch(vision)?=="
"""The pins that another PyTorch than the pinned one has to do without: each has its torchvision."""

COMES = {
    "book": ("book", "PyTorch and 130 packages, 0.4 GB to download, 1.4 GB on disk"),
    "browser": (
        "pdf",
        "4 packages for pages in Chromium and for PDF, 60 MB to download, 0.2 GB on disk",
    ),
    "edit": ("jupyter", "JupyterLab and 60 packages, 60 MB to download, 0.2 GB on disk"),
    "test": ("test", "50 packages for the tests, 0.2 GB to download, 0.8 GB on disk"),
}
"""Part → a target of make that needs it, and what it brings to what ``book`` has."""

CPU = """\
On Linux PyTorch may come with CUDA, 3 GB more to download. For the build without it, press Ctrl-C
and type
    make {} PIP_ARGS="--extra-index-url ADDRESS"
with the ADDRESS that https://pytorch.org/get-started/locally/ shows for pip and CPU."""


class InstallationError(Exception):
    """It cannot be installed; the message says why, and what to do."""


@dataclass(frozen=True)
class Uv:
    """uv, told what pip is told.

    Args:
        options: Its arguments.
        environment: Its environment variables.
    """

    options: list[str]
    environment: dict[str, str]

    def install(self, *words: str) -> list[str]:
        """Return a command that installs into this environment."""
        return [*UV, "install", "--python", sys.executable, *self.options, *words]


class Installation:
    """One call: where to, with which options, and what is said meanwhile.

    Args:
        folder: Of the environment.
        pip_args: Further arguments of pip.
        in_terminal: Whether somebody looks on, who sees the progress of pip and uv themselves.
    """

    def __init__(self, folder: Path, pip_args: Sequence[str], in_terminal: bool) -> None:
        self.folder, self.pip_args, self.in_terminal = folder, [*pip_args], in_terminal
        self.log, self.wheels = folder / ".install.log", folder / ".wheels"
        self.pins, self.temporary = folder / ".pins.txt", folder / ".tmp"
        shutil.rmtree(self.temporary, ignore_errors=True)  # of an installation that was cut off
        self.temporary.mkdir()
        lines = (ROOT / "constraints.txt").read_text("utf8").splitlines()
        self.pins.write_text("".join(f"{x}\n" for x in lines if not re.match(FIT, x)), "utf8")

    def call(self, doing: str, words: Sequence[str], env: dict[str, str] | None = None) -> bool:
        """Run a command, and return whether it went well; every minute say what it does."""
        print(doing, "...", flush=True)
        env = {**(env or os.environ), "TMPDIR": str(self.temporary)}
        if self.in_terminal:
            run = stoppable.run_uv if "uv" in words[:3] else stoppable.run
            return run(words, cwd=ROOT, env=env) == 0
        with self.log.open("a") as log:
            code = stoppable.run(
                words,
                output=log,
                each_minute=lambda n: print(f"{doing}: {n} min", flush=True),
                cwd=ROOT,
                env=env,
                stdin=subprocess.DEVNULL,
            )
        return code == 0

    def pip(self, doing: str, command: str, *words: str) -> bool:
        """Run a command of pip."""
        options = ["--log", str(self.log)] if self.in_terminal else ["-q"]
        return self.call(doing, [*PIP, command, *options, *self.pip_args, *words])

    def pip_install(self, doing: str, *words: str) -> None:
        """Install with pip, or say why it cannot be."""
        self.log.unlink(missing_ok=True)
        if not self.pip(doing, "install", "-c", str(self.pins), *words):
            text = self.log.read_text("utf8", "replace") if self.log.exists() else ""
            sentence = install_trouble.reason(text, self.folder)
            if "above" in sentence and not self.in_terminal:
                print(*re.findall(r"(?m)^ERROR: .*$", text), sep="\n", file=sys.stderr)
            raise InstallationError(sentence)

    def find_uv(self, fetch: bool) -> Uv | None:
        """Return uv; nothing where pip has to install.

        Args:
            fetch: Whether to download uv if it is not there.
        """
        if os.environ.get("INSTALLER", "uv") == "pip":
            return None
        listing = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True).stdout
        try:
            told = [*uv_options.configured(listing), *uv_options.given(self.pip_args)]
            words, variables = uv_options.for_uv(told)
        except uv_options.UntranslatableError as option:
            print(f"pip installs, for uv does not know {option}.")
            return None
        get = ("install", "--retries", "1", "-c", str(self.pins), "uv")
        if lacking(["uv"], pinned()) and not (
            fetch and self.pip("Getting uv, which installs faster than pip", *get)
        ):
            return None
        # a cache on the same disk, so that files are linked and not copied
        cache = {"UV_CACHE_DIR": str(self.folder / ".uv-cache")}
        return Uv(words, uv_options.environment(cache | variables))

    def install_torch(self, asked: str, uv: Uv | None) -> None:
        """Install the file of PyTorch that pip chooses, and hold on to its version."""
        if lacking([asked], {}) and not (uv and self.unpack_torch(asked, uv)):
            self.pip_install("Installing PyTorch", asked)
        with self.pins.open("a") as pins:  # what needs one PyTorch and no other has to fit this one
            pins.write(f"torch=={version('torch')}\n")

    def unpack_torch(self, asked: str, uv: Uv) -> bool:
        """Download PyTorch with pip and unpack that file with uv; tell whether it went well."""
        download = ("download", "--no-deps", "--dest", str(self.wheels), asked)
        if not self.pip("Downloading PyTorch", *download):
            return False
        wheels = sorted(self.wheels.glob("torch-*.whl"), key=lambda p: p.stat().st_mtime)
        if not wheels:
            return False
        exact = f"torch=={wheels[-1].name.split('-')[1]}"
        alone = Uv(["--no-index", "--find-links", str(self.wheels)], uv.environment)
        return self.call("Unpacking PyTorch", alone.install("--no-deps", exact), uv.environment)

    def install_others(self, needs: list[str], uv: Uv | None) -> None:
        """Install the packages around PyTorch."""
        doing = "Installing the other packages"
        if uv:
            if self.call(doing, uv.install("-c", str(self.pins), *needs), uv.environment):
                return
            print("uv could not: pip goes on.")
        self.pip_install(doing, *needs)

    def install_here(self) -> None:
        """Install the package from this folder, without the network too, and see that all fits."""
        doing, uv = "Installing stringlib from this folder", self.find_uv(fetch=False)
        here = ("--no-deps", "--no-build-isolation", "--no-index", "-q", "-e", ".")
        if not (uv and self.call(doing, uv.install(*here), uv.environment)):
            self.pip_install(doing, *here)
        check = [*UV, "check", "--python", sys.executable] if uv else [*PIP, "check"]
        done = subprocess.run(check, capture_output=True, text=True)
        if done.returncode:
            said = (done.stdout + done.stderr).strip()
            raise InstallationError(f"the packages do not fit together:\n{said}")

    def clean(self) -> None:
        """Remove what only the installation needed."""
        for folder in (self.wheels, self.temporary, self.folder / ".uv-cache"):
            shutil.rmtree(folder, ignore_errors=True)
        for file in (self.pins, self.log):
            file.unlink(missing_ok=True)


def requirements(parts: Iterable[str]) -> list[str]:
    """Return what some extras of pyproject.toml ask for, and what builds the package."""
    file = tomllib.loads((ROOT / "pyproject.toml").read_text("utf8"))
    project, extras = file["project"], file["project"]["optional-dependencies"]
    todo = [f"{project['name']}[{','.join(parts)}]"]
    found = [*project["dependencies"], *file["build-system"]["requires"]]
    while todo:
        one = Requirement(todo.pop())
        if one.name == project["name"]:
            todo += [need for extra in sorted(one.extras) for need in extras[extra]]
        else:
            found.append(str(one))
    return [*dict.fromkeys(found)]


def pinned() -> dict[str, str]:
    """Return ``==version`` for each package of constraints.txt but PyTorch and torchvision."""
    found = {}
    for line in (ROOT / "constraints.txt").read_text("utf8").splitlines():
        if line and not line.startswith("#") and not re.match(FIT, line):
            pin = Requirement(line)
            found[broken_packages.canonical(pin.name)] = str(pin.specifier)
    return found


@cache
def requirement(text: str) -> Requirement:
    """Read a requirement; packages name the same ones many times, and reading takes long."""
    return Requirement(text)


def lacking(needs: Iterable[str], pins: dict[str, str]) -> set[str]:
    """Return the names of packages that are not there as asked, followed to what they bring in.

    Args:
        needs: Requirements.
        pins: Name → the version that a package must have besides, as ``==version``.
    """
    try:
        todo = [requirement(text) for text in needs]
    except InvalidRequirement:  # an address or a path: pip knows
        return {*needs}

    @cache
    def there(name: str) -> tuple[str, list[Requirement]]:
        package = distribution(name)
        return package.version, [requirement(text) for text in package.requires or []]

    missing: set[str] = set()
    followed: set[tuple[str, str]] = set()
    while todo:
        need = todo.pop()
        name = broken_packages.canonical(need.name)
        try:
            number, brought = there(name)
        except PackageNotFoundError:
            missing.add(name)
            continue
        wanted = need.specifier & pins.get(name, "")
        if not wanted.contains(number, prereleases=True):
            missing.add(name)
        for extra in {"", *need.extras} - {e for n, e in followed if n == name}:
            followed.add((name, extra))
            todo += [n for n in brought if not n.marker or n.marker.evaluate({"extra": extra})]
    return missing


def announce(part: str, first: bool, pip_args: Sequence[str]) -> None:
    """Say what comes, and how PyTorch comes without CUDA."""
    command, words = COMES[part]
    more = "" if first or part == "book" else ", less what is there"
    if first and part != "book":
        words = f"{COMES['book'][1]}; and {words}"
    print(f"Installing into {os.environ['VENV']}: {words}{more}.", flush=True)
    if first and sys.platform == "linux" and not re.search("index|find-links", " ".join(pip_args)):
        print(CPU.format(command), flush=True)


def main(part: str, key: str) -> None:
    """Install what is missing for a part, and again what is there for other parts."""
    folder, torch = Path(os.environ["VENV"]).absolute(), os.environ["TORCH"]
    pip_args = os.environ.get("PIP_ARGS", "").split()
    stamps = [*folder.glob(".ready-*-*")]
    parts = sorted({part} | {stamp.name.split("-")[1] for stamp in stamps} & COMES.keys())
    for name in broken_packages.forget(ROOT / "constraints.txt"):
        print(f"{name} is not whole: it is installed again.")
    needs = requirements(parts)
    missing = lacking([torch, *needs], pinned())
    work = Installation(folder, pip_args, sys.stdout.isatty())
    if missing:
        announce(part, "torch" in missing, pip_args)
        uv = work.find_uv(fetch=True)
        work.install_torch(torch, uv)
        work.install_others(needs, uv)
        invalidate_caches()
    if missing & {"torch", "torchvision"}:
        fit_torchvision.main()
    work.install_here()
    work.clean()
    for stamp in stamps:
        stamp.unlink()
    for one in parts:
        (folder / f".ready-{one}-{key}").touch()


if __name__ == "__main__":
    began = time.monotonic()
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        print(stoppable.STOPPED, flush=True)
        sys.exit(130)
    except InstallationError as failure:
        print(f"error: {failure}", file=sys.stderr)
        sys.exit(1)
    print(f"The environment is ready: {time.monotonic() - began:.0f} s.")
