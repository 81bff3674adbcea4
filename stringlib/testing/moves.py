"""The ways in which a module comes to be where it is: copied, saved, loaded, without memory."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

Make = Callable[[], nn.Module]


def _saved(make: Make) -> nn.Module:
    file = io.BytesIO()
    torch.save(make().state_dict(), file)
    file.seek(0)
    other = copy.deepcopy(make())
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.fill_(torch.nan)
    other.load_state_dict(torch.load(file))
    return other


def _pickled(make: Make) -> nn.Module:
    module, file = make(), io.BytesIO()
    if any("<locals>" in type(part).__qualname__ for part in module.modules()):
        return module  # pickle knows no class that is defined in a function
    torch.save(module, file)
    file.seek(0)
    found: nn.Module = torch.load(file, weights_only=False)
    return found


def _assigned(make: Make) -> nn.Module:
    with torch.device("meta"):
        empty = make()
    with _empty_is_nan():
        empty.load_state_dict(make().state_dict(), assign=True)
    return empty


def _from_meta(make: Make) -> nn.Module:
    with torch.device("meta"):
        empty = make()
    return _emptied(lambda: empty, make)


def _emptied(empty: Make, make: Make) -> nn.Module:
    with _empty_is_nan():
        module = copy.deepcopy(empty()).to_empty(device="cpu")
    module.load_state_dict(make().state_dict())
    return module


@contextmanager
def _empty_is_nan() -> Iterator[None]:
    """Fill new memory with NaN, where it could happen to hold the numbers that were freed."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


COPIES: dict[str, Callable[[Make], nn.Module]] = {
    "copied": lambda make: copy.deepcopy(make()),
    "pickled": _pickled,
    "saved and loaded": _saved,
    "emptied and loaded": lambda make: _emptied(make, make),
    "made on meta, emptied and loaded": _from_meta,
    "made on meta and assigned": _assigned,
}
"""What was done → from a constructor of a module to another module of the same numbers."""
