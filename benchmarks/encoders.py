"""Measure rotary encoders against other libraries, published formulas and a copy of q and k.

Run with python -m benchmarks.encoders, or with `make bench`, which installs the other libraries.
Every call encodes q and k once. Encoders of this package compute their angles in every call, in
float64, unless the name says that the phases are given. Other libraries keep their own caches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

import stringlib
from benchmarks import literal, peers
from benchmarks.bounds import Work
from benchmarks.goals import MODES, Goal
from benchmarks.harness import Contestant, Entry, Shape, Suite, compiled, main
from stringlib.algebra import layout_permutation
from stringlib.positions import grid_positions


class Data(NamedTuple):
    """Queries, keys, and the positions of the tokens on a line and on a grid."""

    q: Tensor
    k: Tensor
    line: Tensor
    grid: Tensor


def make_data(shape: Shape, device: torch.device) -> Data:
    """Return random queries and keys, and positions.

    The grid is square. If there is one token more than the grid has cells, it is a class token at
    (0, 0).
    """
    q, k = torch.randn(2, shape.batch, shape.heads, shape.seq, shape.head_dim)
    side = math.isqrt(shape.seq)
    grid = grid_positions(side, side)
    grid = torch.cat([grid.new_zeros(shape.seq - len(grid), 2), grid])
    line = torch.arange(float(shape.seq))[:, None]
    return Data(*(t.to(device) for t in (q, k, line, grid)))


def _ours(
    make: Callable[[Shape], stringlib.RotaryEncoder], where: str = "grid", given: bool = False
) -> Callable[[Shape, Data], Entry]:
    """Return a ``build`` function for an encoder of this package.

    The encoder is drawn with the same seed each time. If ``given`` is True, the phases are computed
    before the measured call, as in a model whose layers share them.
    """

    def build(shape: Shape, data: Data) -> Entry:
        encoder = _seeded(make, shape).to(data.q.device)
        positions = getattr(data, where)
        positions = encoder.phases(positions).to(data.q.dtype) if given else positions
        return Entry(
            lambda q, k: encoder(q, k, positions), (data.q, data.k), [*encoder.parameters()]
        )

    return build


def _folded(make: Callable[[Shape], stringlib.RotaryEncoder]) -> Callable[[Shape, Data], Entry]:
    """Build an encoder whose basis is folded, so that its inputs are already in the basis."""

    def build(shape: Shape, data: Data) -> Entry:
        encoder = _seeded(make, shape).to(data.q.device)
        folded = encoder.folded()
        with torch.no_grad():
            inputs = [encoder.to_basis(x).contiguous() for x in (data.q, data.k)]
        return Entry(lambda q, k: folded(q, k, data.grid), inputs)

    return build


def _seeded(
    make: Callable[[Shape], stringlib.RotaryEncoder], shape: Shape
) -> stringlib.RotaryEncoder:
    torch.manual_seed(1)
    return make(shape)


def _half_inputs(shape: Shape, data: Data) -> tuple[list[Tensor], Callable[[Tensor], Tensor]]:
    """Return q and k in the half layout, and a function that converts results back.

    In the half layout, the channels of a pair are d/2 apart.
    """
    order = layout_permutation(shape.head_dim).to(data.q.device)
    back = order.argsort()
    return [x[..., order].contiguous() for x in (data.q, data.k)], lambda y: y[..., back]


def _half(given: bool = False) -> Callable[[Shape, Data], Entry]:
    """Return a ``build`` function for RoPE in the half layout, with inputs in this layout."""

    def build(shape: Shape, data: Data) -> Entry:
        inputs, restore = _half_inputs(shape, data)
        entry = _ours(lambda s: stringlib.RoPE(s.head_dim, layout="half"), "line", given)
        return replace(entry(shape, data), inputs=inputs, restore=restore)

    return build


def _rotary_embedding_torch(shape: Shape, data: Data) -> Entry:
    call = peers.rotary_embedding_torch(shape.head_dim, shape.seq, data.q.device)
    return Entry(call, (data.q, data.k))


def _transformers(shape: Shape, data: Data) -> Entry:
    inputs, restore = _half_inputs(shape, data)
    call = peers.transformers(shape.head_dim, shape.seq, data.q.device)
    return Entry(call, inputs, restore=restore)


def _torchtune(shape: Shape, data: Data) -> Entry:
    call = peers.torchtune(shape.head_dim, shape.seq, data.q.device)
    inputs = [x.transpose(1, 2).contiguous() for x in (data.q, data.k)]
    return Entry(call, inputs, restore=lambda y: y.transpose(1, 2))


def _patches(shape: Shape, data: Data) -> Tensor:
    """Return the positions of the patches, without the class token.

    The models of these encoders split off the class token and join it again.
    """
    return data.grid[shape.seq - math.isqrt(shape.seq) ** 2 :]


def _ropevit_axial(shape: Shape, data: Data) -> Entry:
    table = literal.axial_table(_patches(shape, data), shape.head_dim)
    turn = literal.turn_complex
    return Entry(lambda q, k: (turn(q, table), turn(k, table)), (data.q, data.k))


def _ropevit_mixed(shape: Shape, data: Data) -> Entry:
    omega = _seeded(_mixed, shape).to(data.q.device).get_parameter("omega")

    def call(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        table = literal.mixed_table(_patches(shape, data), omega)
        return literal.turn_complex(q, table), literal.turn_complex(k, table)

    return Entry(call, (data.q, data.k), [omega])


def _circulant_fft(shape: Shape, data: Data) -> Entry:
    encoder = _seeded(_circulant, shape).to(data.q.device)
    columns = encoder.get_parameter("coefficients")
    positions = data.grid.expand(shape.batch, -1, -1)
    basis = encoder.basis().to(data.q.dtype)

    def call(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        first = columns.squeeze(2)
        return (
            literal.circulant_fft(q, positions, first),
            literal.circulant_fft(k, positions, first),
        )

    return Entry(call, (data.q, data.k), [columns], restore=lambda y: y @ basis)


def _cayley_by(
    rotate: Callable[[Tensor, Tensor, Tensor], Tensor],
) -> Callable[[Shape, Data], Entry]:
    """Return a ``build`` function for Cayley-STRING in a form written out from the formula."""

    def build(shape: Shape, data: Data) -> Entry:
        encoder = _seeded(_cayley, shape).to(data.q.device)
        entries, omega = (encoder.get_parameter(name) for name in ("entries", "omega"))
        rows, columns = encoder.get_buffer("support")
        heads = torch.arange(shape.heads, device=data.q.device)[:, None]

        def call(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
            table = literal.mixed_table(data.grid, omega)
            zeros = entries.new_zeros(shape.heads, shape.head_dim, shape.head_dim)
            upper = zeros.index_put((heads, rows, columns), entries)
            skew = upper - upper.mT
            return rotate(q, skew, table), rotate(k, skew, table)

        return Entry(call, (data.q, data.k), [entries, omega])

    return build


class _Clone(torch.autograd.Function):
    """A copy whose gradient is a copy, which takes less time than any rotation."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g.clone()


def _copy(shape: Shape, data: Data) -> Entry:
    return Entry(lambda q, k: (_Clone.apply(q), _Clone.apply(k)), (data.q, data.k))


def _rope(shape: Shape) -> stringlib.RotaryEncoder:
    return stringlib.RoPE(shape.head_dim)


def _axial(shape: Shape) -> stringlib.RotaryEncoder:
    return stringlib.AxialRoPE(shape.head_dim, 2)


def _mixed(shape: Shape) -> stringlib.RotaryEncoder:
    return stringlib.MixedRoPE(shape.head_dim, 2, heads=shape.heads)


def _circulant(shape: Shape) -> stringlib.RotaryEncoder:
    return stringlib.CirculantSTRING(shape.head_dim, 2, heads=shape.heads)


def _cayley(shape: Shape) -> stringlib.RotaryEncoder:
    return stringlib.CayleySTRING(shape.head_dim, 2, heads=shape.heads)


def _dense(shape: Shape) -> stringlib.RotaryEncoder:
    return stringlib.DenseSTRING(_circulant(shape).generators())


def _dense_entry(shape: Shape, data: Data) -> Entry:
    encoder = _seeded(_dense, shape).to(data.q.device)
    basis = encoder.basis().to(data.q.dtype)
    return Entry(
        lambda q, k: encoder(q, k, data.grid), (data.q, data.k), restore=lambda y: y @ basis
    )


def _dense_in_basis(shape: Shape) -> stringlib.RotaryEncoder:
    dense = _dense(shape)
    return stringlib.STRING(dense.frequencies(), dense.basis())


NEIGHBOURS, HALVES = "neighbours", "halves"  # the two channels of a pair: i, i+1, or i, i+d/2

CONTESTANTS: Sequence[Contestant] = (
    Contestant("clone", "copy", _copy),
    Contestant("RoPE", "rope", _ours(_rope, "line"), layout=NEIGHBOURS),
    Contestant("RoPE, phases given", "rope", _ours(_rope, "line", given=True), layout=NEIGHBOURS),
    Contestant(
        "torch.compile RoPE",
        "rope",
        compiled(_ours(_rope, "line")),
        only=("ViT",),
        layout=NEIGHBOURS,
    ),
    Contestant("RoPE half", "rope", _half(), layout=HALVES),
    Contestant("RoPE half, phases given", "rope", _half(given=True), layout=HALVES),
    Contestant("torch.compile RoPE half", "rope", compiled(_half()), only=("ViT",), layout=HALVES),
    Contestant("rotary-embedding-torch", "rope", _rotary_embedding_torch, layout=NEIGHBOURS),
    Contestant("transformers", "rope", _transformers, layout=HALVES),
    Contestant("torchtune", "rope", _torchtune, layout=NEIGHBOURS),
    Contestant("AxialRoPE", "axial", _ours(_axial)),
    Contestant("AxialRoPE, phases given", "axial", _ours(_axial, given=True)),
    Contestant("rope-vit axial", "axial", _ropevit_axial),
    Contestant("MixedRoPE", "mixed", _ours(_mixed)),
    Contestant("torch.compile MixedRoPE", "mixed", compiled(_ours(_mixed)), only=("ViT",)),
    Contestant("rope-vit mixed", "mixed", _ropevit_mixed),
    Contestant(
        "ReflectionSTRING",
        "reflection",
        _ours(lambda s: stringlib.ReflectionSTRING(s.head_dim, 2, heads=s.heads)),
    ),
    Contestant("CirculantSTRING", "circulant", _ours(_circulant)),
    Contestant("CirculantSTRING folded", "circulant", _folded(_circulant)),
    Contestant("CirculantSTRING by FFT", "circulant", _circulant_fft),
    Contestant("CayleySTRING", "cayley", _ours(_cayley)),
    Contestant("CayleySTRING folded", "cayley", _folded(_cayley)),
    Contestant("CayleySTRING by solving", "cayley", _cayley_by(literal.cayley_solve)),
    Contestant("CayleySTRING by token", "cayley", _cayley_by(literal.cayley_tokens), 3000),
    Contestant("DenseSTRING", "dense", _dense_entry),
    Contestant("DenseSTRING in its basis", "dense", _ours(_dense_in_basis)),
    Contestant("DenseSTRING folded", "dense", _folded(_dense_in_basis)),
)


def _work(shape: Shape) -> Work:
    """Return the work of an encoder, which is to read and to write queries and keys."""
    return Work(4 * shape.batch * shape.heads * shape.seq * shape.head_dim)


FAST = ("copy", "rope", "axial", "mixed", "reflection", "circulant", "cayley")
SHAPES = (
    Shape("ViT", 64, 6, 197, 64, FAST),
    Shape("text", 8, 8, 1024, 64, FAST),
    Shape("long", 2, 8, 4096, 64, FAST),
    Shape("two", 2, 6, 197, 64, FAST),
    Shape("small", 2, 2, 16, 64, ("copy", "dense")),
    Shape("step", 1, 8, 1, 64, ("copy", "rope", "circulant", "cayley")),
)

GOALS = (
    Goal("rotary-embedding-torch", "RoPE", "ViT", at_least=6),
    Goal("transformers", "RoPE", "ViT", at_least=4),
    # the other layout, and tables on both sides
    Goal("transformers", "RoPE half", "ViT", at_least=1.2),
    Goal("transformers", "RoPE half, phases given", "text", at_least=1.2),
    Goal("transformers", "RoPE half, phases given", "text", at_least=1, mode=MODES[0]),
    *(
        Goal(
            "RoPE half, phases given", "transformers", "step", at_most=1.2, mode=MODES[0], threads=t
        )
        for t in (1, 2)
    ),
    *(
        Goal("AxialRoPE, phases given", "rope-vit axial", shape, at_most=1, mode=mode)
        for shape in ("text", "long")
        for mode in MODES
    ),
    Goal("RoPE", "clone", "ViT", at_most=1.3),
    Goal("RoPE, phases given", "clone", "long", at_most=1.5, mode=MODES[0]),
    Goal("torch.compile RoPE", "clone", "ViT", at_most=1.6),
    Goal("torch.compile RoPE half", "clone", "ViT", at_most=1.6),
    Goal("rope-vit mixed", "MixedRoPE", "ViT", at_least=1.8),
    Goal("CirculantSTRING by FFT", "CirculantSTRING folded", "ViT", at_least=30),
    Goal("CirculantSTRING", "RoPE", "ViT", at_most=3.5),
    Goal("CayleySTRING by solving", "CayleySTRING", "ViT", at_least=5),
    Goal("CayleySTRING by token", "CayleySTRING", "two", at_least=5),
)

PEERS = ("rotary-embedding-torch", "transformers", "torchtune")
WORK = dict.fromkeys((*FAST, "dense"), _work)
SUITE = Suite("encoders", CONTESTANTS, SHAPES, GOALS, make_data, WORK, PEERS)


def run(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the benchmark of rotary encoders with the options of the command line."""
    return main(SUITE, argv)


if __name__ == "__main__":
    run()
