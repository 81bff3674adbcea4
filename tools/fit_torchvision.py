"""Have torchvision imported in plain Python beside a PyTorch that it was not built for.

    python -m tools.fit_torchvision

Where its compiled operators can be loaded, or where it is not installed, this changes nothing.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

SAID = """\
torchvision was built for another PyTorch than the one that is here, so its compiled operators (nms,
roi_align ...) are missing. timm and transformers do not need them, and can be imported."""


def main() -> None:
    """Put tools/torchvision_operators.py at the start of this Python if it is needed there."""
    folder = Path(sysconfig.get_path("purelib"))
    code, start = folder / "torchvision_operators.py", folder / "torchvision_operators.pth"
    for file in (code, start):
        file.unlink(missing_ok=True)
    found = find_spec("torchvision")
    if found is None or found.origin is None:
        return
    library = str(Path(found.origin).with_name("_C.so"))
    load = f"import torch; torch.ops.load_library({library!r})"
    if subprocess.run([sys.executable, "-c", load], capture_output=True).returncode:
        shutil.copy(Path(__file__).with_name("torchvision_operators.py"), code)
        start.write_text("import torchvision_operators\n")
        print(SAID)


if __name__ == "__main__":
    main()
