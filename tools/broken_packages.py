"""Print the pinned packages of which a file is missing or cut short, as name==version.

python tools/broken_packages.py constraints.txt
"""

from __future__ import annotations

import csv
import re
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path


def canonical(name: str) -> str:
    """Return the one spelling of a package's name that pip compares."""
    return re.sub(r"[-_.]+", "-", name).lower()


def whole(distribution: Distribution) -> bool:
    """Tell whether every file that the package's record lists is there in its full size."""
    record = distribution.read_text("RECORD")  # from Python 3.12 on .files leaves out what is gone
    if not record:
        return False  # pip writes it last: the package was never finished
    for name, _, size in csv.reader(record.splitlines()):
        path = Path(str(distribution.locate_file(name)))
        if path.suffix == ".pyc":  # written and removed by the interpreter
            continue
        if not path.exists() or (size and path.stat().st_size != int(size)):
            return False
    return True


def main(constraints: Path) -> None:
    """Look at every installed package that the constraints pin, and at no other."""
    lines = constraints.read_text(encoding="utf8").splitlines()
    pinned = {canonical(line.split("==")[0]) for line in lines if "==" in line}
    for distribution in distributions():
        name = distribution.metadata["Name"]
        if canonical(name) in pinned and not whole(distribution):
            print(f"{name}=={distribution.version}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
