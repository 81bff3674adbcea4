"""What installs the environment: pip's options in the words of uv, and what went wrong in words."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tools import install, install_trouble, stoppable, uv_options

ROOT = Path(__file__).resolve().parents[1]


def words(listing: str, *given: str) -> tuple[list[str], dict[str, str]]:
    """Return uv's arguments and variables for a configuration and arguments of pip."""
    options = [*uv_options.configured(listing), *uv_options.given(given)]
    return uv_options.for_uv(options)


def test_uv_is_told_what_pip_is_told() -> None:
    listing = (
        ":env:.find-links='/wheels'\n:env:.disable-pip-version-check='1'\nglobal.cert='/ca.pem'\n"
        "global.constraint='/a.txt /b.txt'\nglobal.find-links='/not this one'\n"
        "global.index-url='one'\nlist.format='columns'"
    )
    given = ("--extra-index-url", "more", "--index-url=two", "-v", "--pre")
    options, variables = words(listing, *given)
    assert " ".join(options) == (
        "--index-strategy unsafe-best-match --constraint /a.txt --constraint /b.txt "
        "--find-links /wheels --extra-index-url more --prerelease=allow --index-url two"
    )
    assert variables == {"SSL_CERT_FILE": "/ca.pem"}


@pytest.mark.parametrize(
    ("listing", "given"),
    [
        ("install.index-url='one'", []),
        ("global.use-feature='fast-deps'", []),
        ("", ["--no-deps"]),
        ("", ["torch"]),
        ("", ["--index-url"]),
    ],
)
def test_what_uv_does_not_know_is_left_to_pip(listing: str, given: list[str]) -> None:
    with pytest.raises(uv_options.UntranslatableError):
        words(listing, *given)


def test_settings_of_uv_that_choose_packages_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_TORCH_BACKEND", "cu130")
    monkeypatch.setenv("UV_HTTP_TIMEOUT", "9")
    found = uv_options.environment({"SSL_CERT_FILE": "x"})
    assert "UV_TORCH_BACKEND" not in found
    assert (found["UV_HTTP_TIMEOUT"], found["SSL_CERT_FILE"]) == ("9", "x")


RETRY = "WARNING: Retrying (Retry(total=0)) after connection broken by "
NOTHING = "ERROR: No matching distribution found for numpy==2.4.6"
LOGS = {
    "is full": "ERROR: Could not install packages: [Errno 28] No space left on device",
    "the proxy does not let": f"{RETRY}'ProxyError(NewConnectionError(...))'\n{NOTHING}",
    "certificate of": f"{RETRY}'SSLError(SSLCertVerificationError(1, ...))'\n{NOTHING}",
    "cannot be reached": f"{RETRY}'NewConnectionError(...: Name or service not known)'\n{NOTHING}",
    "no version that fits": NOTHING,
    "as it says above": "ERROR: Command errored out with exit status 1",
}


@pytest.mark.parametrize("said", LOGS)
def test_why_pip_failed_is_one_sentence(said: str, tmp_path: Path) -> None:
    sentence = install_trouble.reason(LOGS[said], tmp_path)
    assert [other for other in LOGS if other in sentence] == [said]


def test_what_is_lacking_is_followed_to_what_a_package_brings_in() -> None:
    assert install.lacking(["pytest>=9", "nowhere>1"], {}) == {"nowhere"}
    assert install.lacking(["pytest>=9"], {"pluggy": "==0.1"}) == {"pluggy"}
    assert install.lacking(["pytest @ file:///pytest.whl"], {}) == set()
    assert install.lacking(["./torch.whl"], {}) == {"./torch.whl"}
    assert install.lacking(install.requirements(["test"]), install.pinned()) == set()


def test_a_part_has_the_parts_that_it_names() -> None:
    book, test = (set(install.requirements([part])) for part in ("book", "test"))
    assert {"sphinx<8,>=7.4", "torch>=2.12,<3", "setuptools>=77"} <= book < test
    assert not [need for need in book if need.startswith(("timm", "transformers", "jupyterlab"))]


@pytest.mark.parametrize("part", ["edit", "test", "book"])
def test_as_many_packages_come_as_is_said(part: str) -> None:
    if part == "edit":  # what a package brings in is known once it is installed
        pytest.importorskip("jupyterlab")
    none = dict.fromkeys(install.pinned(), "==0")  # so that everything is lacking
    come, book = (install.lacking(install.requirements([p]), none) for p in (part, "book"))
    come -= book if part != "book" else set()
    (said,) = re.findall(r"(\d+) packages", install.COMES[part][1])
    assert len(come) == pytest.approx(int(said), rel=0.15)


class Calls(install.Installation):
    """Notes the commands and runs none; some fail."""

    def __init__(self, folder: Path, failing: str = "nothing") -> None:
        super().__init__(folder, ["--no-cache-dir"], in_terminal=False)
        self.commands: list[list[str]] = []
        self.failing = failing

    def call(self, doing: str, words: list[str], env: dict[str, str] | None = None) -> bool:
        self.commands.append(words[2:])
        if "download" in words:
            self.wheels.mkdir()
            (self.wheels / "torch-9.9+cpu-cp311-cp311-linux_x86_64.whl").touch()
        return self.failing not in words


def test_uv_unpacks_the_file_of_pytorch_that_pip_chooses(tmp_path: Path) -> None:
    work = Calls(tmp_path)
    work.install_torch("torch==9.9", install.Uv(["--extra-index-url", "one"], {}))
    download, unpack = work.commands
    assert download[:5] == ["pip", "download", "-q", "--no-cache-dir", "--no-deps"]
    assert unpack[:3] == ["uv", "pip", "install"]
    assert unpack[-1] == "torch==9.9+cpu"
    assert "--no-index" in unpack
    assert "one" not in unpack
    held = (tmp_path / ".pins.txt").read_text()
    assert held.count("torch==") == 1, "the version that is installed, and not that of the pins"


def test_pip_goes_on_where_uv_fails(tmp_path: Path) -> None:
    work = Calls(tmp_path, failing="uv")
    work.install_torch("torch==9.9", install.Uv([], {}))
    work.install_others(["numpy"], install.Uv([], {}))
    assert [words[0] for words in work.commands] == ["pip", "uv", "pip", "uv", "pip"]
    assert work.commands[2][-1] == "torch==9.9"
    assert work.commands[4][-1] == "numpy"


def test_the_list_of_packages_is_left_out_and_bars_are_shown_at_once() -> None:
    text = b"Resolved 2\r\n \x1b[32m+\x1b[39m one\r\n\r[##-]\r[###]\r\n + two\r\nDone\r\n"
    for size in (1, 7, 100):
        pieces = [text[i : i + size] for i in range(0, len(text), size)]
        shown = [*stoppable.without_packages(iter(pieces))]
        assert b"".join(shown) == b"Resolved 2\r\n\r[##-]\r[###]\r\nDone\r\n"
    assert [*stoppable.without_packages(iter([b"[##-]"]))] == [b"", b"[##-]"]


def test_a_port_that_is_taken_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "tools.serve", str(tmp_path), str(port)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert f"port {port} cannot be used" in line
    assert f"PORT={port + 1}" in line


def test_every_extension_of_the_book_is_loaded() -> None:
    sphinx = yaml.safe_load((ROOT / "_config.yml").read_text("utf8"))["sphinx"]
    assert set(sphinx["local_extensions"]) <= set(sphinx["config"]["extensions"])
