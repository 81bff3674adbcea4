"""The dtype in which to compute, and a check that a dtype represents given positions."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from stringlib.inputs import can_inspect

HAS_FLOAT64 = {"cpu": True, "cuda": True, "meta": True, "mps": False}
"""Whether a type of device supports float64. Types of device that are not listed are tried once.

``mps`` is the GPU of Apple.
"""

LEAST = -1e30
"""Finite substitute for log 0 = −∞, because the difference −∞ − (−∞) is not a number."""


LARGEST_ERROR = 1 / 128
"""Largest rounding error of a position in half precision that is accepted."""


def largest_exponent(dtype: torch.dtype) -> float:
    """Return an exponent x for which a sum of many terms exp(x) does not overflow in a dtype."""
    return 0.75 * math.log(torch.finfo(dtype).max)


def widest(device: torch.device | None = None) -> torch.dtype:
    """Return float64, or float32 on a device that has no float64.

    Args:
        device: The device. Default: the default device of torch.
    """
    device = device or torch.empty(0).device  # torch.compile cannot trace get_default_device
    if device.type not in HAS_FLOAT64:
        try:
            torch.ones(1, dtype=torch.float64, device=device).add(1)
        except (RuntimeError, TypeError):  # which of them depends on the device
            HAS_FLOAT64[device.type] = False
        else:
            HAS_FLOAT64[device.type] = True
    return torch.float64 if HAS_FLOAT64[device.type] else torch.float32


def widen(x: Tensor) -> Tensor:
    """Return ``x`` in float64, or in float32 on a device that has no float64."""
    return x.to(widest(x.device))


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """Return the given dtype, or float32 if the given dtype is narrower than float32."""
    if dtype in (torch.float32, torch.float64):  # takes a third of the time of promote_types
        return dtype
    return torch.promote_types(dtype, torch.float32)


def without_autocast(x: Tensor) -> AbstractContextManager[Any]:
    """Return a context that disables autocast on the device of ``x``.

    In this context, matrix products keep the dtype of their factors.
    """
    device = x.device.type
    # the meta device has no autocast
    on = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    return torch.autocast(device, enabled=False) if on else nullcontext()


def wide_parameter(*shape: int) -> nn.Parameter:
    """Return an uninitialised parameter of the default dtype, but of at least float32.

    Learned frequencies are parameters of this kind. Rounding to bfloat16 changes a frequency by up
    to 0.4 %. At a frequency near 1 radian per position, the angle at a distance of 1,000 is then
    wrong by up to several radians.
    """
    return nn.Parameter(torch.empty(*shape, dtype=at_least_float32(torch.get_default_dtype())))


def require_exact(name: str, positions: Tensor) -> None:
    """Raise ``ValueError`` if positions are not finite, or too large for their dtype.

    Every position must be in the range in which both the dtype and float64 represent each integer.
    In half precision, the rounding error of a position that is not an integer must also be small.
    The values are checked only on the CPU, outside compiled code.
    """
    dtype = positions.dtype
    if dtype == torch.int32 or not can_inspect(positions) or not positions.numel():
        return  # float64 represents every int32
    x = positions.detach()
    exact = 2 / torch.finfo(dtype).eps if dtype.is_floating_point else 2.0**53
    try:
        least, most = x.min().item(), x.max().item()  # a tenth of the time of aminmax
    except RuntimeError:  # under vmap
        return
    half = dtype.is_floating_point and dtype.itemsize < 4
    if not half and -exact <= least and most <= exact:
        return
    if not (math.isfinite(least) and math.isfinite(most)):
        raise ValueError(f"{name} must be finite, got {most if math.isfinite(least) else least}")
    if max(-least, most) > exact:
        wide = dtype if dtype.is_floating_point else torch.float64
        far = max(-least, most) > 2.0**53
        fix = "Use smaller values" if far else f"Create {name} as integers or in float64"
        raise ValueError(
            f"{name} must be within ±{exact:.0f}, got {max(least, most, key=abs)}. Beyond this "
            f"range {wide} does not represent every integer. {fix}."
        )
    rounded = x[(x != x.round()) & (x.abs() > LARGEST_ERROR * exact)]
    if rounded.numel():
        raise ValueError(
            f"{name} must be integers or within ±{LARGEST_ERROR * exact:g}, got "
            f"{rounded[0].item():g} in {dtype}, which rounds it too much. Create them in float64."
        )
