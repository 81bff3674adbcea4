"""The Makefile and the script that makes the environment, with stand-ins for Python and pip."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools import broken_packages

ROOT = Path(__file__).resolve().parents[1]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf8")
RECIPES = re.findall(r"^(?:test-all|form|types|pages): .*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)

# Notes its arguments in $LOG, fails at call number $FAIL_AT or with $FAIL_WITH among its arguments,
# and plays `python -m venv` and `python -m tools.install`.
STAND_IN = """\
#!/usr/bin/env bash
echo "$*" >>"$LOG"
[ "$(wc -l <"$LOG")" -ne "${FAIL_AT:-0}" ] || exit 3
[[ "$*" != *"${FAIL_WITH:-nothing}"* ]] || exit 3
case "$*" in
--version) echo "Python ${VERSION:-3.11.0}" ;;
*version_info*) [ -z "${OLD:-}" ] || exit 1 ;;
"-m venv --clear "*)
    rm -rf "$4" && mkdir -p "$4/bin" && touch "$4/pyvenv.cfg" && cp "$0" "$4/bin/python" ;;
"-m tools.install "*) touch "$VENV/.ready-$3-$4" ;;
esac
"""


class Project:
    """What make reads, and a Python that only notes what it is asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        for name in ("_ext", "book/_assets", "notebooks", "stringlib", "lab"):
            (folder / name).mkdir(parents=True)
        files = ["Makefile", "constraints.txt", "pyproject.toml", "_config.yml", "_toc.yml"]
        files += ["tools/environment.sh", "tools/install.py"]
        files += ["benchmarks/requirements.txt", "benchmarks/compiled.txt"]
        for name in files:
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
        (folder / "book/intro.md").write_text("# Intro\n")
        python = folder / "python"
        python.write_text(STAND_IN)
        python.chmod(0o755)
        # the stand-in as the environment's Python and as the builder of the book
        self.ready = [f"PY={python}", f"JB={python} build", "INSTALL=true"]

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Call make there."""
        (self.folder / "log").write_text("")
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
        for name in ("PYTHON", "VENV", "TORCH", "PIP_ARGS", "INSTALLER", "JUPYTER_ARGS", "JOBS"):
            clean.pop(name, None)
        return subprocess.run(
            ["make", f"PYTHON={self.folder / 'python'}", *arguments],
            cwd=self.folder,
            env={**clean, "LOG": str(self.folder / "log"), **environment},
            capture_output=True,
            text=True,
        )

    def make(self, *arguments: str, **environment: str) -> list[str]:
        """Return what Python was asked by a call of make that went well."""
        result = self.run(*arguments, **environment)
        assert result.returncode == 0, result.stderr
        return self.calls()

    def fail(self, *arguments: str, **environment: str) -> str:
        """Return what a call of make says that does not."""
        result = self.run(*arguments, **environment)
        assert result.returncode != 0
        return result.stderr

    def calls(self) -> list[str]:
        return (self.folder / "log").read_text().splitlines()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_help_is_the_default_and_lists_every_target(project: Project) -> None:
    listed = set(re.findall(r"^  make ([\w-]+)", project.run().stdout, re.MULTILINE))
    assert {"book", "help"} <= listed
    phony = re.search(r"^\.PHONY: (help .+)$", MAKEFILE, re.MULTILINE)[1].split()
    assert set(phony) == listed


def parts(calls: list[str]) -> list[str]:
    """Return the parts of the environment that were installed."""
    return [c.split()[2] for c in calls if c.startswith("-m tools.install ")]


def test_the_environment_is_made_once_and_again_when_a_pin_changes(project: Project) -> None:
    assert parts(project.make("env")) == ["test", "edit"]
    assert project.make("env") == []

    with (project.folder / "constraints.txt").open("a") as pins:
        pins.write("# another\n")
    again = project.make("env")
    assert not any("venv" in c for c in again)
    assert parts(again) == ["test", "edit"]
    assert parts(project.make("env", "TORCH=torch==9.9")) == ["test", "edit"]


@pytest.mark.parametrize(
    ("target", "needed"),
    [("book", ["book"]), ("serve", ["book"]), ("jupyter", ["edit"]), ("pdf", ["book", "browser"])],
)
def test_a_target_installs_what_it_needs_and_no_more(
    target: str, needed: list[str], project: Project
) -> None:
    assert parts(project.make(target, *project.ready[:2])) == needed
    assert parts(project.make(target, *project.ready[:2])) == []


def test_the_environment_and_the_checkout_may_have_a_space_in_their_names(tmp_path: Path) -> None:
    project = Project(tmp_path / "my book")
    assert parts(project.make("env", "VENV=my env")) == ["test", "edit"]
    assert (project.folder / "my env/bin/python").exists()
    assert project.make("jupyter", "VENV=my env", "JUPYTER_ARGS=--no-browser")[-1].startswith(
        "-m tools.jupyter --no-browser"
    )


def test_a_moved_folder_is_installed_where_it_is_now(tmp_path: Path) -> None:
    project = Project(tmp_path / "old")
    project.make("env")
    project.folder = project.folder.rename(tmp_path / "new")
    moved = project.make("env")
    assert not any("venv" in c for c in moved), "the environment stays"
    assert parts(moved) == ["test", "edit"]
    assert project.make("env") == []


@pytest.mark.parametrize("step", range(1, 5))
def test_an_environment_cut_off_at_any_step_is_finished_by_the_next_run(
    step: int, project: Project
) -> None:
    project.fail("book", *project.ready[:2], FAIL_AT=str(step))
    assert not list(project.folder.glob(".venv/.ready-*"))
    assert parts(project.make("book", *project.ready[:2])) == ["book"]


def test_an_environment_without_its_python_is_made_again(project: Project) -> None:
    project.make("env")
    (project.folder / ".venv/bin/python").unlink()
    assert any("-m venv" in c for c in project.make("env"))


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        ([], {"OLD": "1"}, "is Python 3.10.2, but the book needs Python 3.11 or newer"),
        (["PYTHON=python9.9"], {}, "python9.9 not found"),
    ],
)
def test_a_python_that_is_old_or_missing_is_named(
    arguments: list[str], environment: dict[str, str], message: str, project: Project
) -> None:
    assert message in project.fail("env", *arguments, VERSION="3.10.2", **environment)
    assert not (project.folder / ".venv").exists()


def test_a_folder_that_is_no_environment_is_left_alone(project: Project) -> None:
    precious = project.folder / "thesis" / "chapter.txt"
    precious.parent.mkdir()
    precious.touch()
    assert "is no virtual environment" in project.fail("env", "VENV=thesis")
    assert precious.exists()


def test_the_benchmark_has_an_environment_of_its_own(project: Project) -> None:
    # the fourth call fails: there is no compiler
    venv, *_, compiled, measure, moved = project.make("bench", "SUITES=limits", FAIL_AT="4")
    assert venv == "-m venv --clear .venv-bench"
    assert compiled.endswith("--no-deps --no-build-isolation -r benchmarks/compiled.txt")
    assert (measure, moved) == ("-m benchmarks.limits --rounds 15", "-m benchmarks.moved limits")
    assert not (project.folder / ".venv").exists()
    again = project.make("bench", "ROUNDS=3", "SUITES=attention")
    assert again == ["-m benchmarks.attention --rounds 3", "-m benchmarks.moved attention"]


SUITE = (
    *("mypy", "ruff check", "ruff format --check", "notebooks.py --check", "ledger.py --check"),
    *("--ignore=tests/site", "notebooks.py --replay", "build _build/test", "check_site.py"),
    "worksteal tests/site",
)
"""What stands in the commands of its steps: of what is computed, then of what is read. Types are
checked beside the form."""


def test_the_suite_runs_the_fast_checks_first(project: Project) -> None:
    run = " | ".join(project.make("test-all", *project.ready))
    places = [run.index(name) for name in SUITE[1:]]
    assert places == sorted(places)
    assert run.index("mypy") < run.index("--ignore=tests/site")
    commands = ("$(PY)", "$(JB)", "$(UNITS)")
    assert len(SUITE) == sum(r.count(command) for r in RECIPES for command in commands)


def test_the_quick_suite_is_part_of_it_and_needs_no_browser(project: Project) -> None:
    run = [call.removesuffix(" --quick") for call in project.make("test", *project.ready, "JOBS=1")]
    every = project.make("test-all", *project.ready, "JOBS=1")
    assert sorted(run) == sorted(every[: len(run)])
    assert all("build" in call or "site" in call for call in every[len(run) :])


@pytest.mark.parametrize("step", SUITE)
def test_a_failing_step_fails_the_suite_and_is_the_last(step: str, project: Project) -> None:
    project.fail("test-all", *project.ready, FAIL_WITH=step)
    called = " | ".join(project.calls())
    assert step in called
    after = 5 if step == "mypy" else SUITE.index(step) + 1
    assert not [later for later in SUITE[after:] if later in called]


@pytest.mark.parametrize(
    ("step", "waits"),
    [("ledger.py --check", "notebooks.py --replay"), ("mypy", "--ignore=tests/site")],
)
def test_chapters_wait_for_the_form_and_units_for_the_types(
    step: str, waits: str, project: Project
) -> None:
    said = project.fail("test", *project.ready, FAIL_WITH=step)
    assert waits not in " | ".join(project.calls())
    assert "Error" in said


@pytest.mark.parametrize("step", ["--ignore=tests/site", "notebooks.py --replay"])
def test_failing_units_or_chapters_fail_the_quick_suite(step: str, project: Project) -> None:
    project.fail("test", *project.ready, FAIL_WITH=step)
    assert step in " | ".join(project.calls())


@pytest.mark.parametrize("jobs", [1, 2, 8])
def test_chapters_have_all_workers_and_quick_units_half(jobs: int, project: Project) -> None:
    called = " | ".join(project.make("test", *project.ready, f"JOBS={jobs}"))
    workers = "" if jobs < 4 else f"-n {jobs // 2} --dist worksteal "
    assert f"no:nbval {workers}--ignore" in called
    assert f"--replay --jobs {jobs}" in called


def later(project: Project, name: str) -> None:
    """Change a file after the book was built."""
    time = (project.folder / "_build/book.stamp").stat().st_mtime + 5
    os.utime(project.folder / name, (time, time))


def test_the_book_is_built_once_and_again_when_a_page_changes(project: Project) -> None:
    last = f"The book is at file://{project.folder}/_build/html/index.html"
    assert project.run("book", *project.ready).stdout.splitlines()[-1] == last
    assert project.calls() == ["build"]

    assert project.run("book", *project.ready).stdout.splitlines()[-1] == last
    assert project.calls() == []

    later(project, "book/intro.md")
    assert project.make("book", *project.ready) == ["build"]


def test_a_failed_build_is_not_taken_for_done(project: Project) -> None:
    project.make("book", *project.ready)
    later(project, "book/intro.md")
    doctrees = project.folder / "_build/.doctrees"
    doctrees.mkdir()
    project.fail("book", *project.ready, FAIL_AT="1")
    assert not doctrees.exists()
    assert project.make("book", *project.ready) == ["build"]


def test_packages_with_missing_or_short_files_are_found_and_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"whole": "6", "short": "60", "gone": "6", "un_finished": None, "other": "60"}
    for name, size in sizes.items():
        (tmp_path / f"{name}.py").write_text("x = 1\n")
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        if size:
            (info / "RECORD").write_text(f"{name}.py,,{size}\n__pycache__/{name}.pyc,,\n")
    (tmp_path / "gone.py").unlink()
    pins = tmp_path / "constraints.txt"
    pins.write_text(
        "# pins\nwhole==1.0\nshort==1.0 ; os_name == 'posix'\ngone==1.0\nun-finished==1.0\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert broken_packages.forget(pins) == ["gone==1.0", "short==1.0", "un_finished==1.0"]
    left = [info.name.partition("-")[0] for info in tmp_path.glob("*.dist-info")]
    assert sorted(left) == ["other", "whole"]


def run_ci(folder: Path, *commands: str) -> tuple[int, list[str], str]:
    """Run .ci/run where only some commands exist, each of which notes how it was called."""
    log, bin_ = folder / "log", folder / "bin"
    bin_.mkdir()
    log.touch()
    bash = shutil.which("bash")
    assert bash
    for command in commands:
        stand_in = bin_ / command
        stand_in.write_text(
            f'#!{bash}\necho "{command} $* in $PWD, browser ${{REQUIRE_BROWSER:-free}}" >>{log}\n'
            f"! read -r line || exit 9\n"
        )
        stand_in.chmod(0o755)
    for name in ("dirname", "env"):
        (bin_ / name).symlink_to(shutil.which(name) or name)
    result = subprocess.run(
        [bash, str(ROOT / ".ci/run")],
        cwd=folder,
        env={"PATH": str(bin_)},
        input="not for the suite\n",
        capture_output=True,
        text=True,
    )
    return result.returncode, log.read_text().splitlines(), result.stderr


MADE = f"make test pages lab QUICK=--quick in {ROOT}, browser 1"
APT = ["apt-get update", "apt-get install"]


@pytest.mark.parametrize(
    ("there", "code", "first", "suite"),
    [(["chromium", "apt-get"], 0, [], [MADE]), (["apt-get"], 0, APT, [MADE]), ([], 1, [], [])],
)
def test_ci_runs_the_suite_with_a_browser_or_not_at_all(
    there: list[str], code: int, first: list[str], suite: list[str], tmp_path: Path
) -> None:
    found, log, error = run_ci(tmp_path, "make", *there)
    assert found == code
    assert [" ".join(line.split()[:2]) for line in log[: len(first)]] == first
    assert log[len(first) :] == suite
    assert ("no Chromium" in error) == bool(code)
