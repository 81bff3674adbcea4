"""Random numbers for tests."""

from __future__ import annotations

import torch
from torch import Tensor


def generator(seed: int = 0) -> torch.Generator:
    """Return a generator that draws the same for the same seed."""
    return torch.Generator().manual_seed(seed)


def random(*shape: int, seed: int = 0) -> Tensor:
    """Return normal float64 numbers, the same for the same seed."""
    return torch.randn(*shape, dtype=torch.float64, generator=generator(seed))
