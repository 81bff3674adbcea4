"""The core of the pages in Firefox and in WebKit, from disk.

Each is driven by its own W3C WebDriver server, if that is installed: geckodriver, or
WebKitWebDriver (Debian's webkit2gtk-driver), which needs a display, for example that of xvfb-run.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

LIMIT_S = 300
DRIVERS: dict[str, tuple[str, dict[str, Any]]] = {
    "Firefox": ("geckodriver", {"moz:firefoxOptions": {"args": ["-headless"]}}),
    "WebKit": ("WebKitWebDriver", {}),
}

Script = Callable[..., Any]


def asked(address: str, **sent: Any) -> Any:
    """Send a command of WebDriver; return what the server answers."""
    head = {"Content-Type": "application/json"}
    with urlopen(Request(address, json.dumps(sent).encode(), head), timeout=LIMIT_S) as answer:
        return json.load(answer)["value"]


@pytest.fixture(scope="module", params=DRIVERS)
def opened(request: pytest.FixtureRequest) -> Iterator[Script]:
    """Open a page, run a function that may wait, and return what it returns."""
    name, options = DRIVERS[request.param]
    driver = shutil.which(name)
    if driver is None:
        pytest.skip(f"{name} is not installed")
    if request.param == "WebKit" and "DISPLAY" not in os.environ:
        pytest.skip("WebKit needs a display; run the tests with xvfb-run")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen([driver, f"--port={port}"]) as process:
        try:
            for _ in range(100):
                with socket.socket() as server:
                    if not server.connect_ex(("127.0.0.1", port)):
                        break
                time.sleep(0.1)
            root = f"http://127.0.0.1:{port}/session"
            capabilities = {
                "timeouts": {"script": 1000 * LIMIT_S, "pageLoad": 1000 * LIMIT_S},
                **options,
            }
            made = asked(root, capabilities={"alwaysMatch": capabilities})
            session = f"{root}/{made['sessionId']}"

            def run(page: Path, function: str) -> Any:
                asked(f"{session}/url", url=page.as_uri())
                waits = f"({function})().then(arguments[0], e => arguments[0](String(e)))"
                return asked(f"{session}/execute/async", script=waits, args=[])

            yield run
            with urlopen(Request(session, method="DELETE"), timeout=LIMIT_S):
                pass
        finally:
            process.terminate()


def test_a_proof_runs_and_a_mistake_in_it_is_found(opened: Script, site: Path) -> None:
    if not (site / "_static" / "book-prove-engine.js").is_file():
        pytest.skip("the book was built without npm")
    found = opened(
        site / "notebooks" / "02_rope.html",
        """async () => {
          document.querySelector(".prove-quick").click();
          const box = document.querySelector("details[open] .prove"), found = [];
          const wait = () => new Promise(done => setTimeout(done, 100));
          const idle = async () => {
            while (box.dataset.state === "runs") { await wait(); }
            found.push(box.dataset.state, box.querySelector(".prove-answer").textContent);
          };
          await idle();
          [...box.querySelectorAll("button")].find(b => b.textContent === "Make a mistake").click();
          await idle();
          return found;
        }""",
    )
    assert found[::2] == ["holds", "broken"], found
    assert "Equation (2.1): both sides are equal" in found[1]
    assert "Equation (2.1): the two sides differ" in found[3]


def test_an_instrument_follows_its_slider(opened: Script, site: Path) -> None:
    """Programs of the page run, in itself (an encoder) and in a worker (a memory)."""
    found = opened(
        site / "book" / "try.html",
        """async () => {
          const wait = () => new Promise(done => setTimeout(done, 100));
          const ready = async name => {
            const box = document.getElementById("live-" + name);
            box.scrollIntoView();
            while (!("ready" in box.dataset)) { await wait(); }
            while (!box.querySelector(".live-said").textContent) { await wait(); }
            return box;
          };
          const encoder = await ready("encoder"), slider = encoder.querySelector("[type=range]");
          const told = () => encoder.querySelector(".live-said").textContent, first = told();
          slider.value = slider.max;
          slider.dispatchEvent(new Event("input", { bubbles: true }));
          while (told() === first) { await wait(); }
          return [first, told(), (await ready("memory")).querySelector(".live-said").textContent];
        }""",
    )
    assert "the map with rotations is the same" in found[0], found
    assert "If the sentence is moved by 100,000" in found[1]
    assert "Right: Softmax + RoPE" in found[2]
