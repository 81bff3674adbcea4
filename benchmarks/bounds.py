"""The least time of an operation on the machine as it is: its bytes copied, its numbers multiplied.

An operation says what it has to do (`Work`), and the rates are measured beside the times that are
compared with it: a copy of as many bytes, a product of square matrices, exponentials.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch

from benchmarks.timing import interleaved
from lab.theory.cost import least_seconds

SIDE = 1024  # of the matrices
EXPONENTIALS = 2**18
ROUNDS = 11
NUMBER = 4  # bytes of a float32


@dataclass(frozen=True)
class Work:
    """What an operation has to do in a forward pass, whatever its code.

    Attributes:
        numbers: What goes in and what comes out. A backward pass moves as many again: gradients of
            what came out, and of what went in.
        products: Multiplications in products of matrices, each with its addition. Both factors
            get gradients: two products more.
        fixed: The same, where one factor is fixed: one product more.
        exponentials: How many; their gradients are products with what is there.
    """

    numbers: int
    products: float = 0
    fixed: float = 0
    exponentials: int = 0

    def of(self, backward: bool) -> dict[str, float]:
        """Return the amount of each kind, of a forward pass or of both."""
        return {
            "bytes": NUMBER * self.numbers * (1 + backward),
            "multiplications": self.products * (1 + 2 * backward) + self.fixed * (1 + backward),
            "exponentials": self.exponentials,
        }


def least_ms(
    works: Mapping[str, Mapping[str, float]],
    device: torch.device,
    wait: Callable[[], object],
    seconds: dict[str, float],
) -> dict[str, float]:
    """Return name → the milliseconds below which this machine cannot do a work.

    Of each rate the best of all rounds so far counts, which ``seconds`` keeps: noise only takes
    time away. As many bytes are copied as the work has, since a copy inside a cache is faster than
    one from memory.
    """
    a, b, c = torch.randn(3, SIDE, SIDE, device=device)
    x, y = torch.randn(2, EXPONENTIALS, device=device)
    calls: dict[str, Callable[[], object]] = {
        "multiplications": partial(torch.mm, a, b, out=c),
        "exponentials": partial(torch.exp, x, out=y),
    }
    for size in {int(work["bytes"]) for work in works.values()}:
        one = torch.zeros(max(size // 2 // NUMBER, 1), device=device)  # read, and written
        calls[f"bytes {size}"] = partial(torch.ones_like(one).copy_, one)
    for name, times in interleaved(calls, ROUNDS, wait).items():
        seconds[name] = min(seconds.get(name, math.inf), min(times) / 1e3)
    products = SIDE**3 / seconds["multiplications"]
    exponentials = EXPONENTIALS / seconds["exponentials"]
    found = {}
    for name, work in works.items():
        size = int(work["bytes"])
        rates = {"bytes": size / seconds[f"bytes {size}"], "multiplications": products}
        found[name] = 1e3 * least_seconds(work, rates | {"exponentials": exponentials})
    return found
