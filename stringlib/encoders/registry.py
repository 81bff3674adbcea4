"""Encoders by name: for commands, studies and comparisons that take one as an argument."""

from __future__ import annotations

from collections.abc import Callable

from stringlib.encoders.axial import AxialRoPE
from stringlib.encoders.bias import ALiBi, KerpleLog, KerplePower, RelativeBias, T5Bias
from stringlib.encoders.cayley import CayleySTRING
from stringlib.encoders.circulant import CirculantSTRING
from stringlib.encoders.mixed import MixedRoPE
from stringlib.encoders.reflection import ReflectionSTRING
from stringlib.encoders.rope import RoPE
from stringlib.encoders.string import RotaryEncoder
from stringlib.inputs import require_bool, require_name


def _rope(head_dim: int, coord_dim: int, heads: int) -> RotaryEncoder:
    if coord_dim != 1:
        raise ValueError(f"coord_dim must be 1 for rope, got {coord_dim}; axial takes more")
    return RoPE(head_dim, heads=heads)


ENCODERS: dict[str, Callable[[int, int, int], RotaryEncoder]] = {
    "rope": _rope,
    "axial": lambda head_dim, coord_dim, heads: AxialRoPE(head_dim, coord_dim, heads=heads),
    "mixed": MixedRoPE,
    "reflection": ReflectionSTRING,
    "circulant": CirculantSTRING,
    "cayley": CayleySTRING,
    "cayley-sparse": lambda head_dim, coord_dim, heads: CayleySTRING(
        head_dim, coord_dim, heads, density=0.1
    ),
}
"""Name → constructor of ``(head_dim, coord_dim, heads)``, other arguments at their defaults."""

BIASES: dict[str, Callable[[int, bool], RelativeBias]] = {
    "alibi": lambda heads, causal: ALiBi(heads),
    "t5": lambda heads, causal: T5Bias(heads, bidirectional=not causal),
    "kerple-log": lambda heads, causal: KerpleLog(heads),
    "kerple-power": lambda heads, causal: KerplePower(heads),
}
"""Name → constructor of ``(heads, causal)``, other arguments at their defaults."""


def make_encoder(name: str, head_dim: int, coord_dim: int = 1, heads: int = 1) -> RotaryEncoder:
    """Return a new encoder by its name.

    Args:
        name: One of :data:`ENCODERS`.
        head_dim: Number of channels of a head.
        coord_dim: Number of coordinates of a position.
        heads: Heads with parameters of their own; 1 serves any number of heads.

    Raises:
        TypeError: If a number is not an integer.
        ValueError: If the name is unknown or a number does not fit the encoder.
    """
    require_name("name", name, ENCODERS)
    return ENCODERS[name](head_dim, coord_dim, heads)


def make_bias(name: str, heads: int, causal: bool = False) -> RelativeBias:
    """Return a new relative bias by its name.

    Args:
        name: One of :data:`BIASES`.
        heads: Number of heads, each with a bias of its own.
        causal: Whether keys after the query are masked. Then T5 spends all its buckets on those
            before it.

    Raises:
        TypeError: If ``heads`` is not an integer or ``causal`` not a bool.
        ValueError: If the name is unknown or ``heads`` is below 1.
    """
    require_name("name", name, BIASES)
    require_bool(causal=causal)
    return BIASES[name](heads, causal)
