"""Measure the delta rule in chunks, token by token and as published, against a sum with decay.

Run with python -m benchmarks.delta or `make bench`. Keys have norm 1, and rates are between 0 and
2. On a GPU with fla-core, the kernel of flash-linear-attention is measured, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks import literal_attention as literal
from benchmarks import peers
from benchmarks.bounds import Work
from benchmarks.goals import Goal
from benchmarks.harness import Contestant, Entry, Shape, Suite, main
from stringlib import delta_rule
from stringlib.attention import decayed_sums


class Data(NamedTuple):
    """Queries, keys of norm 1, values, a rate per token, and logarithms of decays."""

    q: Tensor
    k: Tensor
    v: Tensor
    beta: Tensor
    log_decay: Tensor


def make_data(shape: Shape, device: torch.device) -> Data:
    """Return random data for one shape.

    Queries, keys and values have shape ``(batch, heads, seq, head_dim)``. There is one rate and one
    logarithm of a decay per token.
    """
    q, k, v = torch.randn(3, shape.batch, shape.heads, shape.seq, shape.head_dim)
    beta, forget = torch.rand(2, shape.batch, shape.heads, shape.seq)
    made = (q * shape.head_dim**-0.5, normalize(k, dim=-1), v, 2 * beta, -forget / 8)
    return Data(*(t.to(device) for t in made))


def _delta(mode: str | None) -> Callable[[Shape, Data], Entry]:
    def build(shape: Shape, data: Data) -> Entry:
        return Entry(lambda *x: (delta_rule(*x, mode=mode)[0],), data[:4])

    return build


def _literal(shape: Shape, data: Data) -> Entry:
    return Entry(lambda *x: (literal.delta_chunks(*x),), data[:4])


def _fla(shape: Shape, data: Data) -> Entry:
    """Build the kernel of flash-linear-attention, which does not accept float32."""
    call = peers.fla("delta_rule", data.q.device)
    inputs = [x.transpose(1, 2).contiguous().bfloat16() for x in data[:4]]
    return Entry(lambda *x: (call(*x),), inputs, (), lambda y: y.transpose(1, 2).float())


def _decay(shape: Shape, data: Data) -> Entry:
    inputs = (*data[:3], data.log_decay)
    return Entry(lambda *x: (decayed_sums(*x)[0],), inputs)


BFLOAT16 = 5e-2  # how far a kernel may be off that is given numbers of eight bits

CONTESTANTS: Sequence[Contestant] = (
    Contestant("delta rule", "delta", _delta(None)),
    # its backward is quadratic in seq: each token's slice has a gradient as long as the sequence
    Contestant("delta rule, token by token", "delta", _delta("recurrent"), longest=1024),
    Contestant("delta rule, literal chunks", "delta", _literal),
    Contestant("fla delta rule, bfloat16", "delta", _fla, tolerance=BFLOAT16),
    Contestant("decay", "decay", _decay),
)

SHAPES = tuple(Shape(f"N{n}", 1, 4, n, 64, ("delta", "decay")) for n in (256, 1024, 4096))
GOALS = (
    Goal("delta rule, literal chunks", "delta rule", "N1024", at_least=1),
    Goal("delta rule, token by token", "delta rule", "N1024", at_least=1),
)


def _work(products: int) -> Callable[[Shape], Work]:
    """Return a function that computes the work of some products per token with the state."""

    def work(shape: Shape) -> Work:
        numbers = shape.batch * shape.heads * shape.seq * shape.head_dim
        return Work(4 * numbers, products * numbers * shape.head_dim)

    return work


# the delta rule reads what a key holds, replaces it, and answers the query; sums only add
WORK = {"delta": _work(3), "decay": _work(2)}
PEERS = ("fla-core",)
SUITE = Suite("delta", CONTESTANTS, SHAPES, GOALS, make_data, WORK, PEERS)


def run(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the benchmark of the delta rule with the options of the command line."""
    return main(SUITE, argv)


if __name__ == "__main__":
    run()
