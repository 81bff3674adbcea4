"""Let torchvision be imported beside a PyTorch that its compiled operators do not fit.

A package index may have torchvision for CUDA only. Beside a PyTorch for the CPU its operators
cannot be loaded, and then its import fails, for want of two of them whose shapes it describes in
Python. timm and transformers import it and call none of them. Declared here, without code, the two
let the import go on; where the operators are loaded nothing is declared.

tools/fit_torchvision.py copies this file into an environment that needs it, and has each Python
there import it at its start.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

KEPT: list[Any] = []  # gone, they would take their operators with them


class Declare:
    """Declares the operators when torchvision, whose library has been tried by then, needs them."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find nothing: what comes next in ``sys.meta_path`` does."""
        if name == "torchvision._meta_registrations" and not KEPT:
            import torch

            library = torch.library.Library("torchvision", "FRAGMENT")
            for operator in ("nms", "qnms"):
                if not hasattr(torch.ops.torchvision, operator):
                    library.define(
                        f"{operator}(Tensor dets, Tensor scores, float threshold) -> Tensor"
                    )
            KEPT.append(library)
        return None


sys.meta_path.insert(0, Declare)
