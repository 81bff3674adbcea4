"""Properties that every module must have when it is copied, moved or used by ``torch.func``."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from stringlib.testing.contract import Contract, derives_both_ways, each_close, skip, true
from stringlib.testing.modes import Mode, on_meta

Make = Callable[[], nn.Module]


class Held(NamedTuple):
    """A module to be checked, with arguments for it.

    Attributes:
        make: Function that returns the module, with the same parameters at each call.
        gives: Function that returns the results of all methods of the module. It is called as
            ``gives(module, *given)``.
        given: Tensors that are passed to ``gives`` after the module.
    """

    make: Make
    gives: Callable[..., Sequence[Tensor]]
    given: tuple[Tensor, ...]


class _Asked(nn.Module):
    """A module that returns the results of all methods of another module."""

    def __init__(self, module: nn.Module, gives: Callable[..., Sequence[Tensor]]) -> None:
        super().__init__()
        self.module, self.gives = module, gives

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.gives(self.module, *given))


def holds_of_modules(contract: Contract, held: Callable[[Any], Held]) -> None:
    """Add the properties of modules to a contract.

    Args:
        contract: The contract to which the properties are added.
        held: Function that returns the :class:`Held` of a case.
    """

    @contract.holds()
    def every_kind_of_copy_says_the_same(case: Any, run: Mode) -> None:
        make, gives, given = held(case)
        want = run(_Asked(make(), gives), *given)
        for name, copied in COPIES.items():
            got = run(_Asked(copied(make), gives), *given)
            each_close(got, want, 0.0, f"a result of a module {name}")

    @contract.holds()
    def nothing_is_made_on_another_device(case: Any, run: Mode) -> None:
        make, gives, given = held(case)
        module, there = make().to("meta"), [x.to("meta") for x in given]
        for found in on_meta(lambda: gives(module, *there)):
            true(all(x.is_meta for x in found), "results must be on the device of the module")

    @contract.holds()
    def torch_func_takes_the_same_gradients(case: Any, run: Mode) -> None:
        make, gives, given = held(case)
        asked = _Asked(make(), gives)
        values = {name: x.detach() for name, x in asked.named_parameters()}

        def loss(values: dict[str, Tensor], *given: Tensor) -> Tensor:
            found = torch.func.functional_call(asked, values, given)
            return torch.cat([x.flatten() for x in found]).pow(3).sum()

        leaves = [x.clone().requires_grad_() for x in (*values.values(), *given)]
        named = dict(zip(values, leaves, strict=False))
        total = loss(named, *leaves[len(values) :])
        if not total.requires_grad:
            skip()  # a bias without parameters depends on nothing that has a derivative
        wanted = torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)
        with run.around():
            by_name, *rest = torch.func.grad(loss, tuple(range(1 + len(given))))(values, *given)
        each_close([*by_name.values(), *rest], wanted, 1e-10, "a gradient of torch.func")
        derives_both_ways(lambda x: gives(asked.module, x, *given[1:])[0], given[0])


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
        return module  # pickle does not support classes that are defined in a function
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
    """Return a context manager in which new memory is filled with NaN.

    New memory might otherwise contain the right numbers by chance, from a tensor that was freed.
    """
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
"""Ways to copy a module, by name.

Each entry is a function. Its argument is a function that makes the module. The result is a copy of
this module with the same numbers.
"""
