"""The picture of the package's layout: as its files import, and each part has its sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from _ext.book_layout import GROUND, OTHERS, imports, lines, parts, picture, reach, storeys

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
    assert storeys(found) == [["alone", GROUND], ["low"], ["top"], [OTHERS]]
    assert lines(found)["top"] == ["low"]  # the ground is reached through it
    drawn = picture(small)
    assert "top on low" in drawn
    assert "alone stands alone." in drawn
    assert drawn.count("<rect") == 5
    assert drawn.count("<line") == 3


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
