"""Proofs and exercises that the reader runs, edits, stops and resets: Python in the browser."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.site.reader import DESKTOP, PHONE

SLOW_MS = 180_000
"""A slow processor may take so long to start Python."""

CHAPTER = "notebooks/02_rope.html"


class Quiet(SimpleHTTPRequestHandler):
    """A server that prints nothing."""

    def log_message(self, *args: Any) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """The address of a server of the pages."""
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(autouse=True)
def engine(site: Path) -> None:
    """Without npm the pages have no button."""
    if not (site / "_static" / "book-prove-engine.js").is_file():
        pytest.skip("the book was built without npm")


def in_state(page: Any, state: str) -> Any:
    """Wait until the proof that is open is in a state; return its box."""
    page.locator(f'details[open] .prove[data-state="{state}"]').wait_for(timeout=SLOW_MS)
    return page.locator("details[open] .prove")


def test_a_proof_runs_breaks_and_is_mended_from_disk(site: Path, browser: Any) -> None:
    """A green answer, the difference of both sides, an error of the reader's, and Reset."""
    page = browser.new_page(**DESKTOP)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto((site / CHAPTER).as_uri())
    quick = page.locator(".prove-quick").first
    quick.click()
    box = in_state(page, "holds")
    assert not quick.is_visible()
    assert "Every check holds." in box.inner_text()
    assert "Equation (2.1): both sides are equal" in box.inner_text()

    editor = box.get_by_role("textbox")
    source = editor.input_value()
    assert "where=" not in source
    box.get_by_role("button", name="Make a mistake").click()
    box = in_state(page, "broken")
    assert "Equation (2.1): the two sides differ" in box.inner_text()
    assert box.locator(".prove-gap math").count() == 1
    number = 1 + next(k for k, line in enumerate(source.split("\n")) if "proves(" in line)
    assert f"A check fails in line {number}." in box.inner_text()
    assert box.locator(".prove-bad").inner_text() == editor.input_value().split("\n")[number - 1]

    editor.fill("assert 1 + 1 == 3")
    editor.press("Shift+Enter")
    page.get_by_text("AssertionError: this check is false").wait_for(timeout=SLOW_MS)
    box = in_state(page, "broken")
    box.get_by_role("button", name="Reset").click()
    assert editor.input_value() == source
    assert not box.locator(".prove-lead").count()
    assert errors == []
    page.close()


def test_a_proof_without_end_is_stopped_and_the_next_one_runs(address: str, browser: Any) -> None:
    """On a phone, from a server, where the loading shows how far it is."""
    context = browser.new_context(**PHONE)
    page = context.new_page()
    page.goto(address + CHAPTER)
    page.get_by_role("button", name="Run this proof").first.tap()
    page.get_by_text("MB of").wait_for(timeout=SLOW_MS)
    box = in_state(page, "holds")
    box.get_by_role("textbox").fill("while True:\n    pass")
    box.get_by_role("button", name="Run", exact=True).tap()
    page.get_by_text("Running for").wait_for(timeout=SLOW_MS)
    box.get_by_role("button", name="Stop").tap()
    page.get_by_text("Stopped.").wait_for()
    box.get_by_role("button", name="Reset").tap()
    box.get_by_role("button", name="Run", exact=True).tap()
    in_state(page, "holds")
    context.close()


def test_an_exercise_fails_at_its_start_and_is_solved(site: Path, browser: Any) -> None:
    """The check's own words, the line of an error, Reset; one that needs PyTorch has no editor."""
    page = browser.new_page(**DESKTOP)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto((site / "notebooks/07_cayley_string.html").as_uri())
    assert not page.locator("#ex-cayley-back .prove").count()
    box = page.locator("#ex-cayley-density .prove")
    editor, lead = box.get_by_role("textbox"), box.locator(".prove-lead")
    start = editor.input_value()
    assert start.startswith("# Exercise: isolated channels\ndef density(d):\n")
    assert not box.get_by_role("button", name="Make a mistake").is_visible()
    box.get_by_role("button", name="Run", exact=True).click()
    lead.wait_for(timeout=SLOW_MS)
    assert lead.inner_text() == "✗ d = 16: about 6.1 isolated channels, not 1"
    assert box.get_attribute("data-state") == "broken"

    editor.fill(start.replace("return 1 / d", "return math.log(d) / n"))
    editor.press("Shift+Enter")
    page.get_by_text("Line 3: NameError").wait_for(timeout=SLOW_MS)
    assert box.locator(".prove-bad").inner_text() == "    return math.log(d) / n"
    editor.fill(start.replace("return 1 / d", "return 1 - d ** (-1 / (d - 1))"))
    editor.press("Shift+Enter")
    page.get_by_text("✓ ok").wait_for(timeout=SLOW_MS)
    assert box.get_attribute("data-state") == "holds"
    box.get_by_role("button", name="Reset").click()
    assert editor.input_value() == start
    assert not lead.count()
    assert errors == []
    page.close()
