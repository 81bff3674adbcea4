"""Time every way to encode queries and keys with Circulant-STRING, from the definition to RoPE.

    python results/inference_ladder.py      # writes results/inference_ladder.json
    python results/inference_ladder.py --seeds 2 --steps 1 --output /tmp/try.json

One layer of a small vision transformer: 32 images of 197 tokens, 6 heads of 64 channels, float32.
A round draws new queries and keys and runs all rungs in an order of its own, so that a slow moment
of the machine meets them all alike. Each figure is the median of ``--steps`` calls. The same rounds
time the product with P against a real FFT at other sizes of a head.
"""

from __future__ import annotations

import itertools
import random
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from lab.train.study import Study
from stringlib import CirculantSTRING, RoPE
from stringlib.algebra import fourier_basis
from stringlib.reference import ladder

BATCH, HEADS, TOKENS, DIM = 32, 6, 197, 64
THREADS = (1, 2)
SIZES = (16, 32, 64, 128, 256, 512, 1024)

Encode = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def rungs(encoder: CirculantSTRING, positions: Tensor) -> dict[str, Encode]:
    """Return each rung as a function from queries and keys to encoded ones.

    The rungs from the product on are the package's own. ``folded`` expects queries and keys from
    folded projections; the others agree on the scores.

    Args:
        encoder: With one block.
        positions: ``(seq, coord_dim)``.
    """
    coefficients = encoder.coefficients[:, :, 0]
    folded, rope = encoder.folded(), RoPE(encoder.head_dim)

    def each(encode: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Encode:
        return lambda q, k: (encode(q, positions, coefficients), encode(k, positions, coefficients))

    def matrix_exp(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        both = ladder.encode_by_matrix_exp(torch.stack([q, k]), positions, coefficients)
        return both[0], both[1]  # one exponential serves both

    return {
        "matrix_exp": matrix_exp,
        "fft": each(ladder.encode_by_fft),
        "rfft": each(ladder.encode_by_rfft),
        "half": each(ladder.encode_by_half_spectrum),
        "basis": lambda q, k: encoder(q, k, positions),
        "folded": lambda q, k: folded(q, k, positions),
        "rope": lambda q, k: rope(q, k, positions),
    }


def milliseconds(call: Callable[[], Any], calls: int) -> float:
    """Return the median time of a call."""
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - start))
    return round(statistics.median(times), 3)


def vectors(seed: int) -> tuple[Tensor, Tensor]:
    """Return queries and keys, ``(BATCH, HEADS, TOKENS, DIM)``."""
    generator = torch.Generator().manual_seed(seed)
    q, k = torch.randn(2, BATCH, HEADS, TOKENS, DIM, generator=generator)
    return q, k


def setting() -> tuple[CirculantSTRING, dict[str, Encode]]:
    """Return the encoder and its rungs at the positions of one layer."""
    torch.manual_seed(0)
    encoder = CirculantSTRING(DIM, heads=HEADS)
    return encoder, rungs(encoder, torch.arange(TOKENS, dtype=torch.float32)[:, None])


def layer_round(seed: int, calls: int) -> dict[str, dict[str, float]]:
    """Return the times of every rung and of its context, forward and with gradients.

    Gradients reach queries, keys and coefficients, except behind the fold and for RoPE, which have
    no coefficients. The exponential of every token is too slow to differentiate here.
    """
    encoder, ways = setting()
    q, k = vectors(seed)
    tokens = torch.randn(BATCH, TOKENS, HEADS * DIM)
    project = nn.Linear(HEADS * DIM, 2 * HEADS * DIM)
    forward: dict[str, Callable[[], Any]] = {
        "projections": lambda: project(tokens),
        "attention": lambda: nn.functional.scaled_dot_product_attention(q, k, q),
    }
    forward |= {name: partial(way, q, k) for name, way in ways.items()}

    order = list(forward)
    random.Random(seed).shuffle(order)
    times: dict[str, dict[str, float]] = {"forward": {}, "gradients": {}}
    for name in order:
        with torch.no_grad():
            encoded = forward[name]()  # a first call, not timed
            slow = name == "matrix_exp"
            times["forward"][name] = milliseconds(forward[name], 1 if slow else calls)
        if name in ways and not slow:
            train = partial(_with_gradients, ways[name], encoder, (q, k), encoded)
            train()
            times["gradients"][name] = milliseconds(train, calls)
    return times


def _with_gradients(
    way: Encode, encoder: nn.Module, inputs: Sequence[Tensor], upstream: Sequence[Tensor]
) -> None:
    encoder.zero_grad()
    q, k = (x.detach().requires_grad_() for x in inputs)
    torch.autograd.backward(way(q, k), upstream)


def size_round(seed: int, calls: int) -> dict[str, dict[str, list[float]]]:
    """Return the times of Pᵀx as a product and as a real FFT, one entry for each of ``SIZES``.

    Always the same number of channels in all, as many as the queries and keys of the layer have.
    """
    times: dict[str, dict[str, list[float]]] = {
        kind: {"product": [], "rfft": []} for kind in ("forward", "gradients")
    }
    for size in SIZES:
        generator = torch.Generator().manual_seed(seed)
        rows = 2 * BATCH * HEADS * TOKENS * DIM // size
        x, basis = torch.randn(rows, size, generator=generator), fourier_basis(size).float()
        ways: dict[str, Callable[[Tensor], Tensor]] = {
            "product": partial(torch.matmul, other=basis),
            "rfft": lambda x: torch.view_as_real(torch.fft.rfft(x)),
        }
        for name in random.Random(seed + size).sample(list(ways), 2):
            upstream = ways[name](x)
            times["forward"][name].append(milliseconds(partial(ways[name], x), calls))
            leaf = x.detach().requires_grad_()
            train = partial(_backward, ways[name], leaf, upstream)
            train()
            times["gradients"][name].append(milliseconds(train, calls))
    return times


def _backward(way: Callable[[Tensor], Tensor], leaf: Tensor, upstream: Tensor) -> None:
    leaf.grad = None
    way(leaf).backward(upstream)


def memory() -> dict[str, dict[str, float]]:
    """Return the memory of each rung, in units of the queries and keys themselves.

    ``peak``: the most that a forward pass without gradients holds at once, its result included.
    ``saved``: what a forward pass keeps for the backward pass.
    """
    _, ways = setting()
    q, k = vectors(0)
    unit = (q.numel() + k.numel()) * q.element_size()
    found: dict[str, dict[str, float]] = {"peak": {}, "saved": {}}
    for name, way in ways.items():
        with torch.no_grad(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as p:
            encoded = way(q, k)
        # the public events leave out what an operator allocates
        events = [e for e in p.profiler.kineto_results.events() if e.name() == "[memory]"]
        steps = [e.nbytes() for e in sorted(events, key=lambda e: e.start_ns())]
        found["peak"][name] = round(max(itertools.accumulate(steps)) / unit, 3)
        del encoded
        if name == "matrix_exp":
            continue
        saved: dict[int, int] = {}

        def keep(t: Tensor, saved: dict[int, int] = saved) -> Tensor:
            storage = t.untyped_storage()
            saved[storage.data_ptr()] = storage.nbytes()
            return t

        leaves = q.detach().requires_grad_(), k.detach().requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
            encoded = way(*leaves)
        found["saved"][name] = round(sum(saved.values()) / unit, 3)
        del encoded
    return found


def run(seed: int, steps: int, what: str, threads: int) -> dict[str, Any]:
    """Return the times of one round, of the layer or of other sizes of a head."""
    torch.set_num_threads(threads)
    try:
        return (layer_round if what == "layer" else size_round)(seed, steps)
    finally:
        torch.set_num_threads(1)


CELLS: dict[str, dict[str, Any]] = {
    **{f"layer, {t} threads": {"what": "layer", "threads": t} for t in THREADS},
    "sizes": {"what": "sizes", "threads": 1},
}
STUDY = Study(
    __file__,
    __doc__,
    CELLS,
    run,
    steps=3,
    seeds=11,
    steps_are="calls of each rung in a round",
    jobs=1,
    beside={"shape": [BATCH, HEADS, TOKENS, DIM], "sizes": SIZES, "memory": memory},
)


if __name__ == "__main__":
    STUDY.main()
