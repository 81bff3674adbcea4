"""What installs the project agrees: metadata, pinned versions, conda's file and the imports."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import textwrap
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import stringlib
from tools import install

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf8"))["project"]
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf8"))["dependencies"]
CONDA_NAMES = {"pytorch-cpu": "torch"}
PYTHONS = ("3.11", "3.12", "3.13")


@cache
def declared(*extras: str) -> dict[str, Requirement]:
    """Return the requirements of the package with some extras, those that extras name followed."""
    found: dict[str, Requirement] = {}
    todo = [*PROJECT["dependencies"]]
    for extra in extras:
        todo += PROJECT["optional-dependencies"][extra]
    for text in todo:
        requirement = Requirement(text)
        if requirement.name == PROJECT["name"]:
            found |= declared(*requirement.extras)
        else:
            found[canonicalize_name(requirement.name)] = requirement
    return found


def pinned() -> dict[str, str]:
    """Return the exact version of each package of constraints.txt."""
    found = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf8").splitlines():
        if line and not line.startswith("#"):
            requirement = Requirement(line)
            (pin,) = requirement.specifier
            assert pin.operator == "==", line
            name = canonicalize_name(requirement.name)
            assert name not in found, f"{name} is pinned twice"
            found[name] = pin.version
    return found


def needs_of(name: str, extras: Iterable[str] = ("",)) -> list[Requirement]:
    """Return what an installed package requires; nothing of one that is for another system."""
    try:
        needs = [Requirement(text) for text in requires(name) or []]
    except PackageNotFoundError:
        return []
    return [n for e in extras for n in needs if not n.marker or n.marker.evaluate({"extra": e})]


# --- metadata, constraints and environment ---


def test_every_range_admits_the_pinned_version() -> None:
    pins, ranges = pinned(), declared("dev")
    assert set(ranges) <= set(pins)
    wrong = [f"{r} but {pins[n]}" for n, r in ranges.items() if pins[n] not in r.specifier]
    assert wrong == []


def test_everything_that_is_brought_in_is_pinned() -> None:
    pins = pinned()
    todo, seen, missing = list(declared("dev").values()), set(), set()
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        # torch pins the libraries of its own build
        if name == "torch" or (name, *requirement.extras) in seen:
            continue
        seen.add((name, *requirement.extras))
        if name not in pins:
            missing.add(name)
        todo += needs_of(name, ("", *requirement.extras))
    assert missing == set()
    assert len(seen) > 100


def test_no_pin_holds_back_another_pytorch() -> None:
    """``make TORCH=...`` leaves free what wants one version of PyTorch and no other."""
    held = [name for name, pin in pinned().items() if not re.match(install.FIT, f"{name}=={pin}")]
    assert held
    for name in held:
        torch = [n.specifier for n in needs_of(name) if n.name == "torch"]
        assert not any("==" in str(versions) for versions in torch), name


def test_the_conda_environment_has_the_same_ranges() -> None:
    conda = [d for d in CONDA if isinstance(d, str)]
    (pip,) = (d["pip"] for d in CONDA if isinstance(d, dict))
    found = {}
    for text in [*conda, *pip]:
        if text not in ("pip", "-e .") and not text.startswith("python>"):
            requirement = Requirement(text)
            name = CONDA_NAMES.get(requirement.name, canonicalize_name(requirement.name))
            found[name] = requirement.specifier
    assert found == {name: r.specifier for name, r in declared("dev").items()}
    assert "-e ." in pip
    assert "pytorch-cpu" in {Requirement(text).name for text in conda}, "Binder needs the CPU build"


def test_the_python_versions_agree_everywhere() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf8"))["tool"]
    oldest, newest = PYTHONS[0], PYTHONS[-1]
    assert PROJECT["requires-python"] == f">={oldest}"
    assert tools["ruff"]["target-version"] == f"py{oldest.replace('.', '')}"
    assert tools["mypy"]["python_version"] == oldest
    assert f"sys.version_info < ({oldest.replace('.', ', ')})" in read("tools/environment.sh")
    (conda,) = (d for d in CONDA if isinstance(d, str) and d.startswith("python>"))
    admitted = [f"3.{n}" for n in range(20) if f"3.{n}" in Requirement(conda).specifier]
    assert admitted == list(PYTHONS)
    jobs = yaml.safe_load(read(".github/workflows/test.yml"))["jobs"]
    assert jobs["test"]["strategy"]["matrix"]["python"] == [oldest, newest]


def test_the_version_stands_in_one_place() -> None:
    citation = yaml.safe_load(read("CITATION.cff"))
    assert citation["version"] == stringlib.__version__
    assert citation["license"] == PROJECT["license"] == "MIT"
    (edition,) = re.findall(r"edition += {Version (.*)}", read("book/new.md"))
    assert edition == stringlib.__version__


def test_actions_are_pinned() -> None:
    for path in (ROOT / ".github/workflows").glob("*.yml"):
        for action in re.findall(r"uses: (?!\./)(\S+.*)", path.read_text(encoding="utf8")):
            assert re.fullmatch(r"\S+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf8")


# --- imports ---


@cache
def providers() -> dict[str, set[str]]:
    """Return for each importable name the installed packages that provide it."""
    return {
        name: {canonicalize_name(d) for d in ds} for name, ds in packages_distributions().items()
    }


# part of the tree -> the extras whose packages it may import
PARTS = {
    "stringlib": [],
    "stringlib/interop/adapters": ["interop"],  # inside functions only
    "lab": ["lab"],
    "lab/tasks": ["lab", "data"],  # inside functions only
    "book": ["lab"],
    "tools": ["test"],
    "tools/jupyter": ["edit"],
    "_ext": ["book"],
    "tests": ["test"],
    "notebooks": ["book", "interop"],
    "results": ["book"],
    "benchmarks": [],  # the peers are looked for by name, and may be missing
}
OURS = {part.split("/")[0] for part in PARTS} | {"book_assets"}


def part_of(path: Path) -> str:
    """Return the longest name in ``PARTS`` that leads to a file."""
    name = str(path.relative_to(ROOT).with_suffix(""))
    return max((p for p in PARTS if name == p or name.startswith(f"{p}/")), key=len)


def texts() -> Iterator[tuple[Path, str]]:
    """Yield the Python text of every module, script, test and notebook."""
    for folder in {part.split("/")[0] for part in PARTS}:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path, path.read_text(encoding="utf8")
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf8"))["cells"]:
            if cell["cell_type"] == "code":
                yield path, re.sub(r"(?m)^[ \t]*[%!].*$", "", "".join(cell["source"]))


def imported(text: str) -> Iterator[str]:
    """Yield the top-level names that a text imports."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


@cache
def sources() -> list[tuple[Path, str, set[str]]]:
    """Return every text with its file and the top-level names that it imports."""
    return [(path, text, set(imported(text))) for path, text in texts()]


@cache
def local() -> set[str]:
    """Return the names of files beside a test, a tool or an extension, which are ours as well."""
    return {p.stem for folder in ("_ext", "tests", "tools") for p in (ROOT / folder).rglob("*.py")}


def undeclared(names: Iterable[str], extras: list[str]) -> set[str]:
    """Return the names that no package of some extras provides."""
    allowed = set(declared(*extras))
    ours = sys.stdlib_module_names | OURS | local() | {"pip"}  # pip is in every environment
    outside = {name for name in names if name not in ours}
    # what is not installed, as JupyterLab beside the tests, has the name of its package
    return {n for n in outside if not allowed & providers().get(n, {canonicalize_name(n)})}


def test_every_import_is_declared() -> None:
    wrong = {}
    for path, _, names in sources():
        found = undeclared(names, PARTS[part_of(path)])
        if found:
            wrong[str(path.relative_to(ROOT))] = sorted(found)
    assert wrong == {}


def test_what_colab_is_told_to_install_is_what_the_chapters_need() -> None:
    (told,) = re.findall(r"%pip install .*copy\[([\w,]+)\]", read("book/running.md"))
    needed: set[str] = set()
    for path, text, names in sources():
        if path.parent.name in ("notebooks", "results"):
            assert undeclared(names, told.split(",")) == set(), path.name
            parts = re.findall(r"(?:from|import) ((?:stringlib|lab)(?:\.\w+)*)", text)
            needed |= {e for p in parts for e in PARTS[part_of(ROOT / p.replace(".", "/"))]}
    assert set(declared(*needed - {"data"})) <= set(declared(*told.split(",")))


def test_what_pages_compute_needs_the_extra_of_the_book_alone() -> None:
    """``make book`` installs no more than it: what else the tests bring may not be imported."""
    others = (
        declared("data", "interop", "edit").keys() - declared("book") - {"pillow"}
    )  # matplotlib's
    blocked = [name for name, packages in providers().items() if packages <= others]
    code = f"""
        import importlib, pkgutil, sys
        sys.modules |= dict.fromkeys({blocked})  # an import of it raises ImportError
        import _ext.book_live, book.live
        for found in pkgutil.iter_modules(book.live.__path__):
            module = importlib.import_module(f"book.live.{{found.name}}")
            if hasattr(module, "programs"):
                _ext.book_live.written(found.name)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_imports_run_one_way() -> None:
    """The package knows nothing of the laboratory, and that nothing of the book and its results."""
    above = {"stringlib": {"lab", "results", "benchmarks", "book", "tools", "tests"}}
    above["lab"] = above["stringlib"] - {"lab"}
    wrong = {
        str(path.relative_to(ROOT)): sorted(found)
        for path, _, names in sources()
        if (found := above.get(path.relative_to(ROOT).parts[0], set()) & names)
    }
    assert wrong == {}


def test_the_package_imports_with_torch_alone() -> None:
    assert [*declared()] == ["torch"]
    only_extras = set(declared("dev")) - {"torch"}
    blocked = {name for name, packages in providers().items() if packages & only_extras}
    program = textwrap.dedent(f"""
        import sys
        for name in {sorted(blocked)!r}:
            sys.modules[name] = None  # an import of it raises ImportError
        import warnings
        warnings.simplefilter("ignore")  # torch says that it runs without numpy
        import pkgutil, stringlib
        for module in pkgutil.walk_packages(stringlib.__path__, "stringlib."):
            __import__(module.name)
    """)
    assert {"plotly", "ipywidgets", "sympy", "numpy", "matplotlib"} <= blocked
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


# --- the wheel ---


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package and of what stands beside it, so that the tree stays clean."""
    folder = tmp_path_factory.mktemp("tree")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "stringlib", folder / "stringlib", ignore=ignore)
    for name in ("tests", "lab", "results", "book/figures"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").touch()
    return folder


@pytest.fixture(scope="module")
def wheel(tree: Path) -> zipfile.ZipFile:
    """The wheel that is built from the copy."""
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    result = subprocess.run([*command, "-w", "out", "."], cwd=tree, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    (built,) = (tree / "out").glob("stringlib-*.whl")
    return zipfile.ZipFile(built)


def test_the_wheel_holds_the_whole_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    inside = {name for name in wheel.namelist() if ".dist-info/" not in name}
    files = {str(p.relative_to(ROOT)) for p in (ROOT / "stringlib").rglob("*.py")}
    assert inside == files | {"stringlib/py.typed"}
    assert any(name.endswith("licenses/LICENSE") for name in wheel.namelist())
    folders = {str(Path(name).parent) for name in files}
    assert {f"{folder}/__init__.py" for folder in folders} <= files, "a folder is no package"


def test_an_editable_install_finds_what_stands_beside_the_package(tree: Path) -> None:
    program = "import setuptools.build_meta as b; print(b.build_editable('editable'))"
    (tree / "editable").mkdir()
    subprocess.run([sys.executable, "-c", program], cwd=tree, capture_output=True, check=True)
    (built,) = (tree / "editable").glob("*.whl")
    archive = zipfile.ZipFile(built)
    (path,) = (n for n in archive.namelist() if n.endswith(".pth"))
    assert Path(archive.read(path).decode().strip()) == tree
