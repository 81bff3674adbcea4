"""The API pages describe every module of the package, whenever one comes or goes."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from sphinx.util import inspect

from _ext import api_pages
from stringlib import MultiHeadAttention

ROOT = Path(__file__).resolve().parents[1]


def built(root: Path, text: str) -> tuple[SimpleNamespace, str]:
    """Return the application and a page's text as Sphinx reads it."""
    app = SimpleNamespace(srcdir=root, env=SimpleNamespace(found_docs={"page"}))
    assert api_pages.outdated(app, app.env) == []
    source = [text]
    api_pages.fill_in(app, "page", source)
    return app, source[0]


def test_every_module_is_on_one_page() -> None:
    pages = "\n".join(p.read_text(encoding="utf8") for p in (ROOT / "book/api").glob("*.md"))
    described = Counter(re.findall(r"automodule:: (\S+)", built(ROOT, pages)[1]))
    folders = ("stringlib", "lab", "book/figures")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    files = [path.relative_to(ROOT).with_suffix("") for path in paths]
    modules = {".".join(p.parts).removesuffix(".__init__") for p in files}
    assert described == Counter(modules - {"lab.train.__main__"})


def test_a_page_follows_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(api_pages.logger, "warning", lambda words, *a, **_: said.append(words % a))
    for name in ("__init__", "__main__", "registry", "one"):
        (tmp_path / f"{name}.py").touch()
    app, text = built(tmp_path, "# Title\n\n```{modules} *.py\n```\n")
    assert [line for line in text.splitlines() if line.startswith(("#", "..", "   :no"))] == [
        "# Title",
        ".. automodule:: ",
        "   :no-members:",
        "## `one`",
        ".. automodule:: one",
        "## `registry`",
        ".. automodule:: registry",
        "   :no-value:",
    ]
    assert api_pages.outdated(app, app.env) == []
    (tmp_path / "two.py").touch()
    assert api_pages.outdated(app, app.env) == ["page"]
    built(tmp_path, "```{modules} nowhere/*.py\n```\n")
    assert "no module is nowhere/*.py" in said


def test_a_class_that_is_imported_for_type_checkers_is_named() -> None:
    make = MultiHeadAttention.__init__
    api_pages.complete(SimpleNamespace(), make, False)
    found = inspect.stringify_signature(inspect.signature(make))
    assert "attention: str | stringlib.attention.features.FeatureMap = 'softmax'" in found
    assert "weight: stringlib.attention.weights.PositionWeight | str | None = None" in found


def test_an_annotation_reads_as_a_shape_or_a_range() -> None:
    given = "(q: ~torch.Annotated[~torch.Tensor, '... n d'] | None, x: Annotated[float, 'finite'])"
    found = api_pages.shorten(SimpleNamespace(), "function", "f", None, None, given, "Tensor")
    assert found == ("(q: ~torch.Tensor['... n d'] | None, x: float['finite'])", "Tensor")
    assert api_pages.shorten(SimpleNamespace(), "module", "m", None, None, None, "") is None
