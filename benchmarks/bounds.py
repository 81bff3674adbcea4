"""Compute a lower bound of the time of an operation on the present machine.

`Work` states what an operation has to do. Three rates of the machine are measured together with the
times: the copying of bytes, the product of square matrices, and exponentials.
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
    """Amount of work of an operation in a forward pass, whatever its code.

    Attributes:
        numbers: How many numbers the inputs and outputs have together. A backward pass moves as
            many again, the gradients of outputs and inputs.
        products: Number of multiplications in matrix products, each with one addition. A backward
            pass needs two more products, one for the gradient of each factor.
        fixed: The same number for matrix products with a fixed factor. A backward pass needs one
            more product.
        exponentials: Number of exponentials. Their gradients need no new exponentials.
    """

    numbers: int
    products: float = 0
    fixed: float = 0
    exponentials: int = 0

    def of(self, backward: bool) -> dict[str, float]:
        """Return the amount of each kind of work.

        Args:
            backward: If True, the amount of a forward and a backward pass. If False, of a forward
                pass alone.
        """
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
    """Return a lower bound of the time of each work in milliseconds, by name.

    Other processes can only slow a measurement down. So each rate is the best of all rounds so far.
    The number of copied bytes is that of the work, because a copy inside a cache is faster than a
    copy from memory.

    Args:
        works: Amounts of work, as :meth:`Work.of` returns them, by name.
        device: Device that is measured.
        wait: Function that waits until the device has finished.
        seconds: Shortest time so far of each measured call. It is updated.
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
