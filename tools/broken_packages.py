"""Print the pinned packages of which a file is missing or cut short, as name==version.

python tools/broken_packages.py constraints.txt
"""

from __future__ import annotations

import csv
import re
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution
from pathlib import Path


def canonical(name: str) -> str:
    """Return the one spelling of a package's name that pip compares."""
    return re.sub(r"[-_.]+", "-", name).lower()


def whole(distribution: Distribution) -> bool:
    """Tell whether every file that the package's record lists is there in its full size."""
    record = distribution.read_text("RECORD")  # from Python 3.12 on .files leaves out what is gone
    if not record:
        return False  # an installer writes it last: the package was never finished
    for name, _, size in csv.reader(record.splitlines()):
        path = Path(str(distribution.locate_file(name)))
        if path.suffix == ".pyc":  # written and removed by the interpreter
            continue
        if not path.exists() or (size and path.stat().st_size != int(size)):
            return False
    return True


def broken(constraints: Path) -> Iterator[tuple[str, Path]]:
    """Yield name==version and folder of what is not whole, of the packages that are pinned."""
    lines = constraints.read_text(encoding="utf8").splitlines()
    pinned = {canonical(line.split("==")[0]) for line in lines if "==" in line}
    for place in map(Path, sys.path):
        for folder in sorted(place.glob("*.dist-info")):
            # by the folder's name, for the file with the name may be missing as well
            name, _, version = folder.stem.rpartition("-")
            if canonical(name) in pinned and not whole(Distribution.at(folder)):
                yield f"{name}=={version}", folder


def forget(constraints: Path) -> list[str]:
    """Let pip and uv take what is not whole as not installed; return name==version of it."""
    found = [*broken(constraints)]
    for _, folder in found:
        shutil.rmtree(folder)
    return [name for name, _ in found]


if __name__ == "__main__":
    for pin, _ in broken(Path(sys.argv[1])):
        print(pin)
