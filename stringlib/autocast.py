"""Where digits matter, automatic mixed precision is switched off."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor


def without_autocast(x: Tensor) -> AbstractContextManager[Any]:
    """Return a context in which products on the device of ``x`` keep the dtype of their factors."""
    device = x.device.type
    # the meta device, of shapes without memory, has no autocast
    known = torch.amp.is_autocast_available(device)
    return torch.autocast(device, enabled=False) if known else nullcontext()
