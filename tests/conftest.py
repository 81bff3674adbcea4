"""What holds for every test: sums are added in one order, and two workers share two cores."""

import gc
import os
from pathlib import Path
from typing import Any

import pytest
import setuptools  # noqa: F401  # before pip, or PyTorch's compiler cannot import it
import torch

from tests.thinned import LONG, quick

os.environ["STRINGLIB_DEVICE"] = "cpu"  # on a machine with a GPU too

torch.set_num_threads(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that chooses the quick tier."""
    parser.addoption("--quick", action="store_true", help="the quick tier: see CONTRIBUTING.md")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the files of the long tier."""
    return (config.getoption("--quick") and collection_path.name in LONG) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the cases of the quick tier."""
    if config.getoption("--quick"):
        items[:], left = quick(items)
        config.hook.pytest_deselected(items=left)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What opens and saves JupyterLab's files, with a temporary folder for the chapters."""
    pytest.importorskip("jupyterlab")
    from tools import jupyter

    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(jupyter, "CHAPTERS", tmp_path)
    return jupyter.StableContents(root_dir=str(tmp_path))


def pytest_collection_finish() -> None:
    """Look for garbage seldom, and among what a test makes, not among all the tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
