"""Print the installed packages of which a file is missing or cut short, as name==version."""

from __future__ import annotations

from importlib.metadata import Distribution, distributions
from pathlib import Path


def whole(distribution: Distribution) -> bool:
    """Tell whether every file that the package's record lists is there in its full size."""
    for file in distribution.files or []:
        path = Path(str(file.locate()))
        if path.suffix == ".pyc":  # written and removed by the interpreter
            continue
        if not path.exists() or (file.size is not None and path.stat().st_size != file.size):
            return False
    # pip writes the record last, so a package without one was never finished
    return distribution.files is not None


def main() -> None:
    """Look at every package of the environment that runs this."""
    for distribution in distributions():
        if not whole(distribution):
            print(f"{distribution.metadata['Name']}=={distribution.version}")


if __name__ == "__main__":
    main()
