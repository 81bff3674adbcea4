"""Measure the time of decoding a token, against a bare function and the Llama of transformers.

Run with python -m benchmarks.decoding or `make bench`. A call decodes ``TOKENS`` tokens one by one.
The bare function has the weights of our model and consists of tensor operations alone, without
modules or checks. It computes queries, keys and values by one product and allocates its cache once.
Llama has the same sizes and random weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks import peers
from benchmarks.bounds import Work
from benchmarks.goals import MODES, Goal
from benchmarks.harness import Contestant, Entry, Shape, Suite, main
from stringlib import LanguageModel
from stringlib.models.blocks import Block, SwiGLU

VOCAB, DEPTH = 256, 4
TOKENS, ROOM = 20, 1024
"""Tokens of a call, and how many tokens all calls together may decode."""

FAMILIES: dict[str, dict[str, Any]] = {
    "softmax": {"encoder": "rope"},
    "FAVOR+": {"encoder": "rope", "attention": "favor"},
    "ELU": {"attention": "elu"},
}

Step = Callable[[Tensor, int], Tensor]
"""From a token, ``(batch, 1)``, and its position to the logits, ``(batch, 1, vocab)``."""


def make_data(shape: Shape, device: torch.device) -> Tensor:
    """Return a random text, and the first token to be decoded after it."""
    return torch.randint(VOCAB, (shape.batch, shape.seq + 1)).to(device)


def _entry(step: Step, text: Tensor) -> Entry:
    """Return an entry whose call runs ``TOKENS`` decoding steps.

    The token of each step is the last token of the text.
    """
    position, token = text.shape[-1] - 1, text[:, -1:]

    def call() -> tuple[Tensor]:
        nonlocal position
        for _ in range(TOKENS):
            logits = step(token, position)
            position += 1
        return (logits,)

    return Entry(call, ())


def _model(family: str, shape: Shape, device: torch.device) -> LanguageModel:
    torch.manual_seed(1)
    sizes = VOCAB, shape.heads * shape.head_dim, DEPTH, shape.heads
    return LanguageModel(*sizes, **FAMILIES[family]).to(device).eval()


def _ours(family: str) -> Callable[[Shape, Tensor], Entry]:
    def build(shape: Shape, text: Tensor) -> Entry:
        model = _model(family, shape, text.device)
        state = model.init_state(shape.batch, shape.seq + ROOM)
        with torch.no_grad():
            _, state = model(text[:, :-1], state=state, return_state=True)

        def step(token: Tensor, position: int) -> Tensor:
            nonlocal state
            logits: Tensor
            logits, state = model(token, state=state, return_state=True)
            return logits

        return _entry(step, text)

    return build


def _llama(cache_name: str) -> Callable[[Shape, Tensor], Entry]:
    def build(shape: Shape, text: Tensor) -> Entry:
        sizes = VOCAB, shape.heads * shape.head_dim, DEPTH, shape.heads
        torch.manual_seed(1)
        model, cache = peers.llama(cache_name, *sizes, shape.seq + ROOM, text.device)
        with torch.no_grad():
            model(text[:, :-1], past_key_values=cache)

        def step(token: Tensor, position: int) -> Tensor:
            logits: Tensor = model(token, past_key_values=cache).logits
            return logits

        return _entry(step, text)

    return build


def _bare(family: str) -> Callable[[Shape, Tensor], Entry]:
    def build(shape: Shape, text: Tensor) -> Entry:
        model = _model(family, shape, text.device)
        step = bare_step(model, shape, family)
        with torch.no_grad():
            for position, token in enumerate(text[:, :-1].split(1, -1)):
                step(token, position)
        return _entry(step, text)

    return build


def bare_step(model: LanguageModel, shape: Shape, family: str) -> Step:
    """Return a function that decodes a token by tensor operations alone, with a model's weights."""
    heads, d, dim = shape.heads, shape.head_dim, shape.heads * shape.head_dim
    attend = {"softmax": _bare_softmax, "FAVOR+": _bare_favor, "ELU": _bare_elu}[family]
    layers = []
    for block in model.blocks:
        assert isinstance(block, Block)
        assert isinstance(block.mlp, SwiGLU)
        assert block.norm_mlp is not None
        layer, mlp = block.attention, block.mlp
        layers.append(
            (
                torch.cat([p.weight for p in (layer.to_q, layer.to_k, layer.to_v)]),
                attend(layer, shape),
                layer.to_out.weight,
                torch.cat([mlp.to_gate.weight, mlp.to_hidden.weight]),
                mlp.to_out.weight,
                (block.norm_attention.weight, block.norm_attention.bias),
                (block.norm_mlp.weight, block.norm_mlp.bias),
            )
        )

    def step(token: Tensor, position: int) -> Tensor:
        x = functional.embedding(token, model.embed.weight)
        for qkv, heads_out, out, up, down, norm, norm_mlp in layers:
            y = functional.linear(functional.layer_norm(x, (dim,), *norm), qkv)
            y = heads_out(y.view(-1, 3, heads, 1, d), position)
            x = x + functional.linear(y.transpose(1, 2).reshape(-1, 1, dim), out)
            y = functional.linear(functional.layer_norm(x, (dim,), *norm_mlp), up)
            gate, hidden = y.chunk(2, -1)
            x = x + functional.linear(functional.silu(gate) * hidden, down)
        x = functional.layer_norm(x, (dim,), model.norm.weight, model.norm.bias)
        return functional.linear(x, model.readout.weight)

    return step


Heads = Callable[[Tensor, int], Tensor]
"""From queries, keys and values, ``(batch, 3, heads, 1, d)``, and their position to outputs."""


def _rotated(frequencies: Tensor, qk: Tensor, position: int) -> Tensor:
    angles = position * frequencies
    turns = torch.complex(angles.cos(), angles.sin()).to(torch.complex64)
    pairs = torch.view_as_complex(qk.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * turns).flatten(-2)


def _bare_softmax(layer: Any, shape: Shape) -> Heads:
    frequencies = layer.encoder.frequencies()[0, :, 0]
    sizes = shape.batch, shape.heads, shape.seq + ROOM, shape.head_dim
    keys, values = layer.to_q.weight.new_zeros(2, *sizes)

    def heads(qkv: Tensor, position: int) -> Tensor:
        q, k = _rotated(frequencies, qkv[:, :2], position).unbind(1)
        keys[:, :, position], values[:, :, position] = k[:, :, 0], qkv[:, 2, :, 0]
        kept = keys[:, :, : position + 1], values[:, :, : position + 1]
        return functional.scaled_dot_product_attention(q, *kept)

    return heads


def _bare_favor(layer: Any, shape: Shape) -> Heads:
    frequencies = layer.encoder.frequencies()[0, :, 0]
    rows = layer.features.projection_matrix().mT  # (heads, d, m)
    d, m = rows.shape[-2:]
    state = rows.new_zeros(shape.batch, shape.heads, m, d + 1)
    largest = rows.new_full((shape.batch, shape.heads, 1, 1), -1e30)

    def heads(qkv: Tensor, position: int) -> Tensor:
        nonlocal state, largest
        qk = _rotated(frequencies, qkv[:, :2] * d**-0.25, position)
        exponents = qk @ rows - qk.square().sum(-1, keepdim=True) / 2
        own = exponents.amax(-1, keepdim=True)
        q, k = (exponents - own).exp().unbind(1)
        before, largest = largest, torch.maximum(largest, own[:, 1])
        v = functional.pad(qkv[:, 2], (0, 1), value=1.0)
        state = state * (before - largest).exp() + (k * (own[:, 1] - largest).exp()).mT * v
        out = q @ state
        return out[..., :-1] / out[..., -1:]

    return heads


def _bare_elu(layer: Any, shape: Shape) -> Heads:
    d = shape.head_dim
    state = layer.to_q.weight.new_zeros(shape.batch, shape.heads, d, d + 1)

    def heads(qkv: Tensor, position: int) -> Tensor:
        nonlocal state
        q, k = (functional.elu(qkv[:, :2]) + 1).unbind(1)
        state = state + k.mT * functional.pad(qkv[:, 2], (0, 1), value=1.0)
        out = q @ state
        return out[..., :-1] / out[..., -1:]

    return heads


# The bare function is the first of a family, which the others must match.
CONTESTANTS: Sequence[Contestant] = (
    *(
        Contestant(name, family, build(family), modes=MODES[:1])
        for family in FAMILIES
        for name, build in ((f"{family}, bare", _bare), (family, _ours))
    ),
    *(
        Contestant(f"transformers, {cache}", cache, _llama(cache), modes=MODES[:1])
        for cache in ("DynamicCache", "StaticCache")
    ),
)
ALL = tuple(dict.fromkeys(c.family for c in CONTESTANTS))
CACHED = ("softmax", "DynamicCache", "StaticCache")  # a state has the same size after any text
SHAPES = (
    Shape("after 32", 1, 4, 32, 64, ALL),
    Shape("after 512", 1, 4, 512, 64, CACHED),
    Shape("after 4096", 1, 4, 4096, 64, CACHED),
)


def _work(shape: Shape) -> Work:
    """Return the work of decoding, which is to read all weights once per token.

    The numbers in a cache or a state are not counted.
    """
    dim = shape.heads * shape.head_dim
    weights = DEPTH * 12 * dim**2 + VOCAB * dim
    return Work(TOKENS * weights, TOKENS * shape.batch * weights)


GOALS = tuple(
    Goal(family, f"{family}, bare", f"after {n}", at_most=most, mode=MODES[0], threads=1)
    for family, n, most in (
        ("softmax", 32, 1.5),
        ("softmax", 4096, 1.25),
        ("FAVOR+", 32, 1.6),
        ("ELU", 32, 1.6),
    )
)
WORK = dict.fromkeys(ALL, _work)
SUITE = Suite(
    "decoding", CONTESTANTS, SHAPES, GOALS, make_data, WORK, ("transformers",), modes=MODES[:1]
)


def run(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the benchmark of decoding with the options of the command line."""
    return main(SUITE, argv)


if __name__ == "__main__":
    run()
