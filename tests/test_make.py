"""The Makefile and the script that makes the environment, with stand-ins for Python and pip."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tools import broken_packages

ROOT = Path(__file__).resolve().parents[1]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf8")
STEPS = re.search(r"^test: .*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)[1].splitlines()

# Notes its arguments in $LOG, fails at call number $FAIL_AT, and plays `python -m venv`.
STAND_IN = """\
#!/usr/bin/env bash
echo "$*" >>"$LOG"
[ "$(wc -l <"$LOG")" -ne "${FAIL_AT:-0}" ] || exit 3
case "$*" in
--version) echo "Python ${VERSION:-3.11.0}" ;;
*version_info*) [ -z "${OLD:-}" ] || exit 1 ;;
"-m venv --clear "*)
    rm -rf "$4" && mkdir -p "$4/bin" && touch "$4/pyvenv.cfg" && cp "$0" "$4/bin/python" ;;
esac
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Lay out what make reads, and a Python that only notes what it is asked."""
    for name in ("Makefile", "constraints.txt", "pyproject.toml", "_config.yml", "_toc.yml"):
        shutil.copy(ROOT / name, tmp_path)
    for folder in ("_ext", "book/_assets", "notebooks", "stringlib", "tools"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / "tools/environment.sh", tmp_path / "tools")
    (tmp_path / "book/intro.md").write_text("# Intro\n")
    python = tmp_path / "python"
    python.write_text(STAND_IN)
    python.chmod(0o755)
    return tmp_path


@pytest.fixture
def make(project: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that calls make there and brings back what was run."""

    def call(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        log = project / "log"
        log.write_text("")
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
        for name in ("PYTHON", "VENV", "TORCH", "PIP_ARGS", "JOBS"):
            clean.pop(name, None)
        return subprocess.run(
            ["make", f"PYTHON={project / 'python'}", *arguments],
            cwd=project,
            env={**clean, "LOG": str(log), **environment},
            capture_output=True,
            text=True,
        )

    return call


def calls(project: Path) -> list[str]:
    return (project / "log").read_text().splitlines()


def test_help_is_the_default_and_lists_every_target(make: Callable) -> None:
    result = make()
    assert result.returncode == 0
    listed = set(re.findall(r"^  make (\w+)", result.stdout, re.MULTILINE))
    assert listed >= {"book", "serve", "test", "lab", "notebooks", "help", "clean"}
    phony = re.search(r"^\.PHONY: (help .+)$", MAKEFILE, re.MULTILINE)[1].split()
    assert set(phony) == listed


def test_the_environment_is_made_once_and_again_when_a_pin_changes(
    project: Path, make: Callable
) -> None:
    assert make("env").returncode == 0
    installs = [c for c in calls(project) if "pip install" in c]
    assert re.search(r"-c \S+ torch==2\.\d+\.\d+$", installs[0]), "torch is named first, by its pin"
    assert installs[1].endswith("-e .[dev]")

    assert make("env").returncode == 0
    assert calls(project) == []

    pins = project / "constraints.txt"
    pins.write_text(pins.read_text() + "# another\n")
    assert make("env").returncode == 0
    assert not any("venv" in c for c in calls(project))
    assert any("pip install" in c for c in calls(project))
    assert len(list((project / ".venv").glob(".ready-*"))) == 1


@pytest.mark.parametrize("step", range(1, 8))
def test_an_environment_cut_off_at_any_step_is_finished_by_the_next_run(
    step: int, project: Path, make: Callable
) -> None:
    assert make("env", FAIL_AT=str(step)).returncode != 0
    assert not list(project.glob(".venv/.ready-*"))
    assert make("env").returncode == 0
    assert any(c.endswith("-e .[dev]") for c in calls(project))


def test_an_environment_without_its_python_is_made_again(project: Path, make: Callable) -> None:
    assert make("env").returncode == 0
    (project / ".venv/bin/python").unlink()
    assert make("env").returncode == 0
    assert any("-m venv" in c for c in calls(project))


@pytest.mark.parametrize(
    ("python", "environment", "message"),
    [
        ("python", {"OLD": "1"}, "is Python 3.10.2, but the book needs Python 3.11 or newer"),
        ("python9.9", {}, "python9.9 not found"),
    ],
)
def test_a_python_that_is_old_or_missing_is_named(
    python: str, environment: dict[str, str], message: str, project: Path, make: Callable
) -> None:
    path = f"{project}/python" if python == "python" else python
    result = make("env", f"PYTHON={path}", VERSION="3.10.2", **environment)
    assert result.returncode != 0
    assert message in result.stderr
    assert not (project / ".venv").exists()


def test_a_folder_that_is_no_environment_is_left_alone(project: Path, make: Callable) -> None:
    precious = project / "thesis" / "chapter.txt"
    precious.parent.mkdir()
    precious.touch()
    result = make("env", "VENV=thesis")
    assert result.returncode != 0
    assert "is no virtual environment" in result.stderr
    assert precious.exists()


def test_another_torch_is_taken_without_the_pin(project: Path, make: Callable) -> None:
    assert make("env", "TORCH=torch==9.9", "PIP_ARGS=--no-cache-dir -v").returncode == 0
    first = next(c for c in calls(project) if "pip install" in c)
    assert first.startswith("-m pip install -qq --no-cache-dir -v -c ")
    assert first.endswith(" torch==9.9")
    assert make("env").returncode == 0
    assert any("pip install" in c for c in calls(project)), "the pinned torch comes back"


def test_the_benchmark_has_an_environment_of_its_own(project: Path, make: Callable) -> None:
    (project / "benchmarks").mkdir()
    for name in ("requirements.txt", "compiled.txt"):
        shutil.copy(ROOT / "benchmarks" / name, project / "benchmarks")
    # the fourth call fails: there is no compiler
    assert make("bench", "TORCH=torch==2.14.0", "PIP_ARGS=-v", FAIL_AT="4").returncode == 0
    venv, torch_alone, others, compiled, *measure = calls(project)
    assert venv == "-m venv --clear .venv-bench"
    assert re.search(r"install -qq -v -c \S+ torch==2\.14\.0$", torch_alone)
    assert others.endswith("install -qq -v --no-deps -r benchmarks/requirements.txt")
    options = "--no-deps --no-build-isolation -r benchmarks/compiled.txt"
    assert compiled.endswith(f"install -qq -v {options}")
    suites = ("limits", "encoders", "attention", "states")
    assert measure == [f"-m benchmarks.{suite} --rounds 11" for suite in suites]
    make("bench", "ROUNDS=3", "SUITES=attention")
    assert calls(project) == ["-m benchmarks.attention --rounds 3"]
    assert not (project / ".venv").exists()


# --- make test ---


def ready(project: Path) -> list[str]:
    """Return what makes the stand-in the environment's Python and the builder of the book."""
    stand_in = project / "python"
    return [f"PY={stand_in}", f"JB={stand_in} build", "READY=python"]


def test_the_suite_runs_the_fast_checks_first(project: Path, make: Callable) -> None:
    assert make("test", *ready(project)).returncode == 0
    run = " | ".join(calls(project))
    order = [
        "ruff check",
        "ruff format --check",
        "mypy",
        "notebooks.py --check",
        "ledger.py --check",
        "--ignore=tests/site",
        "notebooks.py --replay",
        "build --path-output",
        "check_site.py",
        "tests/site",
    ]
    places = [run.index(name) for name in order[:-1]] + [run.rindex(order[-1])]
    assert places == sorted(places)


@pytest.mark.parametrize("step", range(1, 1 + sum("$(PY)" in s or "$(JB)" in s for s in STEPS)))
def test_a_failing_step_fails_the_suite_and_is_the_last(
    step: int, project: Path, make: Callable
) -> None:
    assert make("test", *ready(project), FAIL_AT=str(step)).returncode != 0
    assert len(calls(project)) == step


# --- make book ---


def test_the_book_is_built_once_and_again_when_a_page_changes(
    project: Path, make: Callable
) -> None:
    result = make("book", *ready(project))
    last = result.stdout.splitlines()[-1]
    assert last == f"The book is at file://{project}/_build/html/index.html"
    assert calls(project) == ["build"]

    assert make("book", *ready(project)).stdout.splitlines() == [last]
    assert calls(project) == []

    later = (project / "_build/book.stamp").stat().st_mtime + 5
    os.utime(project / "book/intro.md", (later, later))
    make("book", *ready(project))
    assert calls(project) == ["build"]


def test_what_dresses_every_page_builds_from_clean(project: Path, make: Callable) -> None:
    make("book", *ready(project))
    kept = project / "_build/html/page.html"
    kept.parent.mkdir()
    kept.touch()
    later = (project / "_build/book.stamp").stat().st_mtime + 5
    os.utime(project / "_config.yml", (later, later))
    make("book", *ready(project))
    assert calls(project) == ["build"]
    assert not kept.exists()


def test_a_failed_build_is_not_taken_for_done(project: Path, make: Callable) -> None:
    doctrees = project / "_build/.doctrees"
    doctrees.mkdir(parents=True)
    assert make("book", *ready(project), FAIL_AT="1").returncode != 0
    assert not doctrees.exists()
    assert make("book", *ready(project)).returncode == 0
    assert calls(project) == ["build"]


# --- mending ---


def test_packages_with_missing_or_short_files_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def package(name: str, size: int, record: bool = True) -> None:
        (tmp_path / f"{name}.py").write_text("x = 1\n")
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        if record:
            (info / "RECORD").write_text(f"{name}.py,,{size}\n__pycache__/{name}.pyc,,\n")

    package("whole", 6)
    package("short", 60)
    package("gone", 6)
    (tmp_path / "gone.py").unlink()
    package("un_finished", 6, record=False)
    package("other", 60)
    pins = tmp_path / "constraints.txt"
    pins.write_text(
        "# pins\nwhole==1.0\nshort==1.0 ; os_name == 'posix'\ngone==1.0\nun-finished==1.0\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    broken_packages.main(pins)
    found = sorted(capsys.readouterr().out.split())
    assert found == ["gone==1.0", "short==1.0", "un_finished==1.0"]


# --- continuous integration ---


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


SUITE = f"make test portable in {ROOT}, browser 1"


def test_ci_runs_the_suite_with_the_browser_that_is_there(tmp_path: Path) -> None:
    assert run_ci(tmp_path, "chromium", "make", "apt-get") == (0, [SUITE], "")
    assert (ROOT / ".ci/run").stat().st_mode & 0o111


def test_ci_installs_a_browser_first(tmp_path: Path) -> None:
    code, log, _ = run_ci(tmp_path, "make", "apt-get")
    assert code == 0
    assert [line.split(" in ")[0] for line in log[:2]] == [
        "apt-get update -qq",
        "apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core",
    ]
    assert log[2:] == [SUITE]


def test_ci_fails_without_a_browser(tmp_path: Path) -> None:
    code, log, error = run_ci(tmp_path, "make")
    assert code == 1
    assert log == []
    assert "no Chromium" in error
