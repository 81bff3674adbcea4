"""The diagram of the package: parts as the files import them, sizes as the files have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from _ext.book_layout import (
    CORE,
    GROUND,
    LAYER,
    closure,
    imported,
    imports,
    lines,
    parts,
    paths,
    picture,
    reach,
    size,
    sizes,
    storeys,
    total,
)

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "book/architecture.md").read_text(encoding="utf8")
FILES = {
    "__init__.py": "from stringlib.top import f\n",
    "low/__init__.py": "",
    "low/a.py": "from stringlib.shared import x\n",
    "top/__init__.py": "from stringlib import low\n",
    "top/b.py": "def f():\n    import stringlib.low.a\n    from stringlib.shared import x\n",
    "alone/__init__.py": "import torch\n",
    "shared.py": "from stringlib.deep import y\n",
    "deep.py": "",
    "outside.py": "from stringlib.top.b import f\n",
}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_a_part_stands_above_what_it_imports(small: Path) -> None:
    assert parts(small)[GROUND] == ["deep", "shared"]
    found = imports(small)
    assert found["top"] == {"low", GROUND}
    assert storeys(found) == [["alone", GROUND], ["low"], ["top"]]
    assert lines(found)["top"] == ["low"]  # the ground is reached through it
    drawn = picture(small)
    assert "top imports low" in drawn
    assert "alone imports no other part." in drawn
    assert drawn.count("<rect") == 4
    assert drawn.count("<line") == 2
    assert "2 lines, 1 of code" not in drawn
    assert ">4 lines, 4 of code<" in drawn  # top: of two files, one in three lines


def test_the_package_stands_as_the_page_says() -> None:
    found = imports()
    assert all(part not in reach(part, found) for part in found)
    rows = [line.split("|")[1].strip() for line in PAGE.splitlines() if line.startswith("| ")][1:]
    said = [row.removeprefix("{py:mod}`stringlib.").rstrip("`") for row in rows]
    assert sorted(said) == sorted(found)
    heights = {part: h for h, floor in enumerate(storeys(found)) for part in floor}
    order = [part for part in said if part != "reference"]
    assert [heights[p] for p in order] == sorted((heights[p] for p in order), reverse=True)
    assert not found["reference"]
    assert not any("reference" in below for below in found.values())


def test_an_import_inside_a_function_is_not_read_with_a_file(small: Path) -> None:
    read = closure("__init__.py", small)
    assert {path.name for path in read} == {"__init__.py"}  # stringlib.top is a folder
    assert {path.name for path in closure("outside.py", small)} == {"outside.py", "b.py"}
    assert {path.name for path in closure("low/a.py", small)} == {"a.py", "shared.py", "deep.py"}


def test_the_attention_layer_is_read_in_an_afternoon() -> None:
    read = closure(LAYER)
    assert sum(len(path.read_text(encoding="utf8").splitlines()) for path in read) <= 3500
    # linear attention, the parts that a layer may have, and the registries are not among the files
    others = {"build", "fold", "gate", "linear", "path", "registry", "shift", "weights"}
    assert not others & {path.stem for path in read}
    both = closure("attention/softmax.py") | read
    assert "linear" not in {path.stem for path in both}


def test_only_the_file_of_the_layer_is_longer_than_350_lines() -> None:
    core = {path: path.read_text(encoding="utf8") for part in CORE for path in paths(part)}
    longer = [path.stem for path, text in core.items() if len(text.splitlines()) > 350]
    assert longer == ["multihead"]


def test_lines_of_code_are_those_that_are_not_documentation() -> None:
    text = '"""Doc.\n\nMore.\n"""\n\nx = 1  # said\n"""Of x."""\n# alone\ny = """a\nb"""\n'
    assert size(text) == (10, 3)


def test_the_core_imports_no_door_and_is_as_small_as_it_says() -> None:
    found, counted = imports(), sizes()
    doors = set(found) - set(CORE)
    assert doors == {"interop", "reference", "testing"}
    assert not any(doors & reach(part, found) for part in CORE)
    core = [path for part in CORE for path in paths(part)]
    assert sum(counted[p][0] for p in CORE) == sum(len(p.read_text().splitlines()) for p in core)
    assert f"{sum(counted[part][1] for part in CORE):,} contain code" in total()
    left = {p.stem for p in (ROOT / "stringlib").glob("*.py")} - {*parts()[GROUND], "__init__"}
    for name in left:  # old import paths, and nothing else
        assert imported(ROOT / f"stringlib/{name}.py") == {"moved"}
