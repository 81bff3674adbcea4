"""What may be known of the values of a tensor, where a shortcut depends on them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def is_known(x: Tensor, test: Callable[[Tensor], Tensor]) -> bool:
    """Return whether all numbers pass a test, or False where looking at them is not free.

    A GPU would have to be waited for, a compiled graph would break, and a batch of ``vmap`` has
    no single answer.
    """
    if not may_look(x):
        return False
    try:
        return bool(test(x.detach()).all())
    except RuntimeError:
        return False


def may_look(x: Tensor) -> bool:
    """Return whether values are at hand: those of a GPU or of a compiled graph are not."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()
