"""Measure causal sums with a state by length: without decay, and with those of RetNet, SSD and GLA.

Run with python -m benchmarks.states or `make bench`. There are as many features as channels, and no
contestant divides by the sum of the weights. On a GPU with fla-core, the kernels of
flash-linear-attention are measured, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

import stringlib
from benchmarks import peers
from benchmarks.bounds import Work
from benchmarks.harness import Contestant, Entry, Shape, Suite, main
from benchmarks.scaling import Ladder
from lab.theory.cost import linear_products, pair_products
from stringlib import linear_attention
from stringlib.attention.state import retnet_log_decay


class Data(NamedTuple):
    """Queries, keys, values, and logarithms of decays per head, per token, and per feature."""

    q: Tensor
    k: Tensor
    v: Tensor
    constant: Tensor
    scalar: Tensor
    vector: Tensor


def make_data(shape: Shape, device: torch.device) -> Data:
    """Return random data for one shape, with decays as in the papers.

    Queries, keys and values have shape ``(batch, heads, seq, head_dim)``.
    """
    sizes = shape.batch, shape.heads, shape.seq, shape.head_dim
    q, k, v, gates = torch.randn(4, *sizes)
    constant, scalar = retnet_log_decay(shape.heads), -torch.rand(sizes[:3]) / 8
    vector = torch.nn.functional.logsigmoid(gates) / 16
    made = (q * shape.head_dim**-0.5, k, v, constant, scalar, vector)
    return Data(*(t.to(device) for t in made))


def _softmax(shape: Shape, data: Data) -> Entry:
    attend = torch.nn.functional.scaled_dot_product_attention
    return Entry(lambda q, k, v: (attend(q, k, v, is_causal=True),), data[:3])


def _sums(decay: str | None = None) -> Callable[[Shape, Data], Entry]:
    """Return a ``build`` function for causal sums with a decay.

    The decay of RetNet is constant and has no gradient.
    """

    def build(shape: Shape, data: Data) -> Entry:
        constant = data.constant if decay == "constant" else None
        inputs = data[:3] if decay in (None, "constant") else (*data[:3], getattr(data, decay))

        def call(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor | None = constant) -> Any:
            weight = None if log_decay is None else stringlib.DecayWeight(log_decay)
            return (linear_attention(q, k, v, weight, causal=True, normalize=False),)

        return Entry(call, inputs)

    return build


def _fla(form: str, decay: str | None = None) -> Callable[[Shape, Data], Entry]:
    def build(shape: Shape, data: Data) -> Entry:
        call = peers.fla(form, data.q.device)
        inputs = data[:3] if decay is None else (*data[:3], getattr(data, decay))
        inputs = [x.transpose(1, 2).contiguous() for x in inputs]
        return Entry(lambda *x: (call(*x),), inputs, (), lambda y: y.transpose(1, 2))

    return build


TF32 = 1e-2  # how far kernels may be off that multiply numbers of ten bits

CONTESTANTS: Sequence[Contestant] = (
    Contestant("SDPA causal", "softmax", _softmax),
    Contestant("no decay", "none", _sums()),
    Contestant("RetNet", "retnet", _sums("constant")),
    Contestant("fla RetNet", "retnet", _fla("retention"), tolerance=TF32),
    Contestant("SSD", "ssd", _sums("scalar")),
    Contestant("fla SSD", "ssd", _fla("simple_gla", "scalar"), tolerance=TF32),
    Contestant("GLA", "gla", _sums("vector")),
    Contestant("fla GLA", "gla", _fla("gla", "vector"), tolerance=TF32),
)


def _softmax_work(shape: Shape) -> Work:
    heads, n, d = shape.batch * shape.heads, shape.seq, shape.head_dim
    products = heads * pair_products(n, d, d) / 2
    return Work(4 * heads * n * d, products, exponentials=heads * n * n // 2)


def _sums_work(shape: Shape) -> Work:
    heads, n, d = shape.batch * shape.heads, shape.seq, shape.head_dim
    return Work(4 * heads * n * d, heads * linear_products(n, d, d))


FAMILIES = ("softmax", "none", "retnet", "ssd", "gla")
SHAPES = tuple(
    Shape(f"N{n}", 1, 2, n, 64, FAMILIES, rounds=5 if n > 10_000 else 1000)
    for n in (256, 512, 1024, 2048, 4096, 8192, 16384)
)
LADDERS = (
    Ladder(
        "Causal",
        tuple(shape.name for shape in SHAPES),
        "SDPA causal",
        ("no decay", "RetNet", "SSD", "GLA", "fla RetNet", "fla SSD", "fla GLA"),
    ),
)

WORK = dict.fromkeys(FAMILIES, _sums_work) | {"softmax": _softmax_work}
PEERS = ("fla-core",)
SUITE = Suite("states", CONTESTANTS, SHAPES, (), make_data, WORK, PEERS, LADDERS)


def run(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the benchmark of states with the options of the command line."""
    return main(SUITE, argv)


if __name__ == "__main__":
    run()
