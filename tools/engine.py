"""Pack Python and sympy into one script that a page loads to run its cells, from disk too.

    python -m tools.engine      # prints the path of the script

The script holds Pyodide, which is Python compiled to WebAssembly, with sympy, mpmath and the
code that runs proofs and exercises. Pyodide comes from npm. The script is made once, and kept in
``_build`` under a digest of all that it is made from.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "_build" / "engine"
PYODIDE = "314.0.7"
SHA512 = "0YvXxEhfEdpLfb/XkM2BFAeMROq0iMUX2bzzH9pOttyMcWkwq+HbE5uyuGD82LN7y2q+SNvi/6V5JEsOlD2R1A=="
"""Digest of npm's package of this version, as npm prints it."""

OWN = ("lab/__init__.py", "lab/symbolic.py", "lab/page_proof.py")
LIBRARIES = ("sympy", "mpmath")
UNUSED = re.compile(
    r"(^|/)(tests|benchmarks)/"
    r"|^(codegen|diffgeom|stats|sandbox|crypto|liealgebras|categories|holonomic|testing)/"
    r"|^parsing/(latex|autolev|c|fortran)/|^physics/(?!__init__|units/|matrices)"
)
"""Parts of sympy that no proof and no exercise needs."""


class MissingEngineError(Exception):
    """The script cannot be made; the message says why."""


def digest() -> str:
    """Return a digest of all that the script is made from."""
    parts = [PYODIDE, SHA512, *(f"{name} {version(name)}" for name in LIBRARIES)]
    files = [Path(__file__), Path(__file__).with_suffix(".mjs"), *(ROOT / name for name in OWN)]
    content = "\n".join(parts).encode() + b"".join(file.read_bytes() for file in files)
    return hashlib.sha256(content).hexdigest()[:16]


def engine() -> Path:
    """Return the path of the script, which is made if it is not there.

    Raises:
        MissingEngineError: If there is no npm, if it cannot get Pyodide, or if Node.js fails.
    """
    path = KEPT / f"{digest()}.js"
    if not path.is_file():
        KEPT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=KEPT) as folder:
            made = Path(folder, path.name)
            made.write_text(_packed(_pyodide(Path(folder)), Path(folder)), encoding="utf-8")
            made.replace(path)
    return path


def _pyodide(folder: Path) -> Path:
    """Get Pyodide from npm, check that it is the package that is meant, and unpack it."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise MissingEngineError("npm and Node.js are not installed")
    words = [npm, "pack", f"pyodide@{PYODIDE}", "--silent", "--pack-destination", str(folder)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    archive = folder / f"pyodide-{PYODIDE}.tgz"
    if done.returncode or not archive.is_file():
        said = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise MissingEngineError(f"npm could not get pyodide@{PYODIDE} ({said})")
    found = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if found != SHA512:
        raise MissingEngineError(f"npm's pyodide@{PYODIDE} is not the file that is expected")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder / "package"


def _packed(pyodide: Path, folder: Path) -> str:
    """Return the text of the script."""
    sources = folder / "sources"
    for library in LIBRARIES:
        root = _folder_of(library)
        for file in root.rglob("*.py"):
            name = file.relative_to(root).as_posix()
            if not UNUSED.search(name):
                _copied(file, sources / library / name)
    for name in OWN:
        _copied(ROOT / name, sources / name)
    parts = [f"{name}={sources / name}" for name in (*LIBRARIES, "lab")]
    compiled = folder / "site.zip"
    script = Path(__file__).with_suffix(".mjs")
    words = ["node", str(script), str(pyodide), str(compiled), *parts]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip() or "no message").splitlines()[-1]
        raise MissingEngineError(f"Node.js could not compile sympy for the page ({said})")
    loader = (pyodide / "pyodide.js").read_text(encoding="utf-8")
    wasm = (pyodide / "pyodide.asm.mjs").read_text(encoding="utf-8")
    # a worker that was made from text is no module, and has no address
    wasm = wasm.replace("import.meta.url", "self.location.href")
    wasm = wasm.replace(
        "export default _createPyodideModule;", "self._createPyodideModule=_createPyodideModule;"
    )
    lock = json.loads((pyodide / "pyodide-lock.json").read_text(encoding="utf-8"))
    content = {
        "scripts": _zipped(f"{loader};self.loadPyodide=loadPyodide;\n{wasm}".encode()),
        "wasm": _zipped((pyodide / "pyodide.asm.wasm").read_bytes()),
        "library": _zipped((pyodide / "python_stdlib.zip").read_bytes()),
        "site": _zipped(compiled.read_bytes()),
        "lock": json.dumps({"info": lock["info"], "packages": {}}),
    }
    return f"window.bookEngine = {json.dumps(content)};\n"


def _folder_of(library: str) -> Path:
    found = importlib.util.find_spec(library)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def _copied(file: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, to)


def _zipped(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode()


if __name__ == "__main__":
    try:
        print(engine())
    except MissingEngineError as error:
        sys.exit(str(error))
