"""Other libraries of models, beside a PyTorch that their torchvision was not built for."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import torch

_SCHEMAS: list[torch.library.Library] = []  # gone, they would take their operators with them


def import_other(name: str) -> ModuleType:
    """Import timm or transformers, or a module of theirs.

    Both import torchvision and need none of its compiled operators. A package index may have it
    for CUDA only: beside a PyTorch for the CPU these operators do not load, and torchvision then
    fails to import, for want of the two whose shapes it describes in Python. Declared here,
    without code, they let it go on.

    Raises:
        ImportError: If the module is not installed.
    """
    torchvision = find_spec("torchvision")
    if torchvision is not None and torchvision.origin is not None and not _SCHEMAS:
        try:
            torch.ops.load_library(Path(torchvision.origin).with_name("_C.so"))
        except OSError:
            library = torch.library.Library("torchvision", "DEF")
            for operator in ("nms", "qnms"):
                library.define(f"{operator}(Tensor dets, Tensor scores, float threshold) -> Tensor")
            _SCHEMAS.append(library)
    return import_module(name)
