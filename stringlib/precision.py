"""How many digits to compute with: as many as the device has, and never fewer than float32."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

WITHOUT_FLOAT64 = ("mps",)
"""Types of devices that have no float64, Apple's GPU among them."""

LEAST = -1e30
"""A logarithm below all others, in place of −∞, which has no difference from itself."""


def largest_exponent(dtype: torch.dtype) -> float:
    """Return up to which logarithm exponentials can be summed within the dtype."""
    return 0.75 * math.log(torch.finfo(dtype).max)


def widest(device: torch.device | None = None) -> torch.dtype:
    """Return float64, or float32 on a device that has no float64.

    Args:
        device: The device; that of new tensors if omitted.
    """
    device = device or torch.empty(0).device  # torch.compile cannot ask for the default device
    return torch.float32 if device.type in WITHOUT_FLOAT64 else torch.float64


def widen(x: Tensor) -> Tensor:
    """Return ``x`` in the widest dtype of its device."""
    return x.to(widest(x.device))


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype, or float32 for a narrower one."""
    if dtype in (torch.float32, torch.float64):  # a third of the time of asking torch
        return dtype
    return torch.promote_types(dtype, torch.float32)


def without_autocast(x: Tensor) -> AbstractContextManager[Any]:
    """Return a context in which products on the device of ``x`` keep the dtype of their factors."""
    device = x.device.type
    # the meta device, of shapes without memory, has no autocast
    on = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    return torch.autocast(device, enabled=False) if on else nullcontext()


def wide_parameter(*shape: int) -> nn.Parameter:
    """Return an empty parameter of the default dtype, but of float32 where that is narrower.

    For learned frequencies: bfloat16 rounds them by up to 0.4 %, so that the fast ones are wrong
    by radians at a distance of 1,000.
    """
    return nn.Parameter(torch.empty(*shape, dtype=at_least_float32(torch.get_default_dtype())))
