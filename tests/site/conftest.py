"""The built book and a browser to read it with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.site.reader import DESKTOP, WINDOWS, Reader, book, pages_of
from tools.browser import MISSING, chromium

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]


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


@contextmanager
def started() -> Iterator[Any]:
    """Start a headless Chromium; without one skip, unless REQUIRE_BROWSER=1."""
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


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    with started() as opened:
        yield opened


@pytest.fixture(scope="session")
def readers(browser: Any) -> Iterator[dict[str, Reader]]:
    """A window of each size."""
    windows = {
        name: Reader(browser, color_scheme="light", **size) for name, size in WINDOWS.items()
    }
    yield windows
    for window in windows.values():
        window.close()


@pytest.fixture
def reader(readers: dict[str, Reader]) -> Reader:
    """The large window, for what does not depend on the size."""
    return readers["desktop"]


@pytest.fixture
def phone(readers: dict[str, Reader]) -> Reader:
    """The small one."""
    return readers["phone"]


@pytest.fixture
def fresh(browser: Any) -> Iterator[Reader]:
    """A large window that remembers nothing of another test."""
    window = Reader(browser, **DESKTOP)
    yield window
    window.close()


@pytest.fixture
def plain(browser: Any) -> Iterator[Any]:
    """A page of a browser without JavaScript."""
    context = browser.new_context(java_script_enabled=False, offline=True, has_touch=True)
    yield context.new_page()
    context.close()
