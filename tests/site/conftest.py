"""The built book and a browser to read it with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.site.reader import book, pages_of
from tools.browser import MISSING, chromium

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def site() -> Path:
    """The folder of the built pages."""
    root = book()
    if not (root / "index.html").is_file():
        pytest.fail(f"no built book at {root}: run `make book`, or set BOOK_HTML", pytrace=False)
    return root


@pytest.fixture(scope="session")
def pages(site: Path) -> list[Path]:
    """Every page of the book."""
    return pages_of(site)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium; without one skip, unless REQUIRE_BROWSER=1."""
    path = chromium()
    if path is None:
        if os.environ.get("REQUIRE_BROWSER") == "1":
            pytest.fail(MISSING, pytrace=False)
        pytest.skip(MISSING)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield opened
        opened.close()
