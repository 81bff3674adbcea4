"""Time the ways to a Toeplitz weight's sums: algorithm 1, rows of the matrix, FFTs, and softmax.

    python results/toeplitz_crossover.py      # writes results/toeplitz_crossover.json
    python results/toeplitz_crossover.py --seeds 1 --output /tmp/try.json

One thread, float32 inputs, values of 64 channels; times are milliseconds per head. The ways take
turns; a seed is a turn behind one that warms up. "algorithm 1" is the literal twin, whose FFT is of
float32 and which holds all products of features and channels at once; "fft" goes feature by feature
in float64. The matrix is that of `ToeplitzWeight`. "softmax" is PyTorch's attention with the bias
as a mask that stands ready, fused at 64 features only: keys have to be as wide as values. Where a
way would need gigabytes or minutes, there is no time.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from lab.train.study import Study
from stringlib import ToeplitzWeight, linear_attention, reference, softmax_attention
from stringlib.algebra import toeplitz

LENGTHS = {
    16: (512, 2048, 8192, 16384, 32768),
    64: (64, 197, 512, 2048, 8192, 16384, 32768),
}
"""Number of features → numbers of tokens."""
CHANNELS = 64
LARGEST = {"algorithm 1": 2048, "softmax": 8192}
Ways = dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]]


def heads(n: int) -> int:
    """Return for how many heads to compute at once."""
    return 4 if n <= 2048 else 1


def ways(mask: Tensor | None) -> Ways:
    """Return the ways, each a function of features, values and bias."""

    def attend(mode: str) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
        return lambda q, k, v, b: linear_attention(q, k, v, ToeplitzWeight(b), mode=mode)

    return {
        "algorithm 1": reference.nprf_attention,
        "matrix": attend("parallel"),
        "fft": attend("fft"),
        "softmax": lambda q, k, v, b: softmax_attention(q, k, v, mask),
    }


def inputs(n: int, m: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return features of queries and keys, values and bias of some heads."""
    draw = torch.Generator().manual_seed(seed)
    q, k = torch.rand(2, heads(n), n, m, generator=draw)
    v = torch.randn(heads(n), n, CHANNELS, generator=draw)
    return q, k, v, torch.randn(heads(n), 2 * n - 1, generator=draw)


def milliseconds(way: Callable[..., Tensor], args: Sequence[Tensor], train: bool, n: int) -> float:
    """Return the time a head, with the gradients of all arguments or without."""
    args = [x.detach().requires_grad_(train) for x in args]
    start = time.perf_counter()
    out = way(*args)
    if train:
        torch.autograd.grad(out.sum(), args, allow_unused=True)
    return (time.perf_counter() - start) * 1e3 / heads(n)


def run(seed: int, steps: int, kind: str, m: int, n: int) -> dict[str, dict[str, float]]:
    """Return the times of all ways that are not too large, the median of ``steps`` turns."""
    args = inputs(n, m, seed=0)
    ready = n <= LARGEST["softmax"]
    known = ways(toeplitz(args[3]) if ready else None)
    known = {name: way for name, way in known.items() if n <= LARGEST.get(name, n)}
    times: dict[str, list[float]] = {name: [] for name in known}
    for _ in range(1 + steps):  # the first turn warms up
        for name, way in known.items():
            times[name].append(milliseconds(way, args, kind == "training", n))
    return {"ms": {name: round(statistics.median(ts[1:]), 4) for name, ts in times.items()}}


CELLS = {
    f"{kind}, m = {m}, n = {n}": {"kind": kind, "m": m, "n": n}
    for m, lengths in LENGTHS.items()
    for n in lengths
    for kind in (("forward",) if n > 8192 else ("forward", "training"))
}
STUDY = Study(
    __file__,
    __doc__,
    CELLS,
    run,
    steps=1,
    steps_are="turns of all ways, behind one that warms up",
    jobs=1,
    beside={"channels": CHANNELS},
)


if __name__ == "__main__":
    STUDY.main()
