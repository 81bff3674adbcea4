"""Encoders by name: for commands, studies and comparisons that take one as an argument."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from stringlib.by_name import by_name
from stringlib.encoders.bias import ALiBi, KerpleLog, KerplePower, T5Bias
from stringlib.encoders.cayley import CayleySTRING
from stringlib.encoders.circulant import CirculantSTRING
from stringlib.encoders.mixed import MixedRoPE
from stringlib.encoders.reflection import ReflectionSTRING
from stringlib.encoders.relative_bias import RelativeBias
from stringlib.encoders.rope import AxialRoPE, RoPE
from stringlib.encoders.string import RotaryEncoder
from stringlib.parts import part
from stringlib.spec import checked

ENCODERS: dict[str, Callable[..., RotaryEncoder]] = {
    "rope": RoPE,
    "axial": AxialRoPE,
    "mixed": MixedRoPE,
    "reflection": ReflectionSTRING,
    "circulant": CirculantSTRING,
    "cayley": CayleySTRING,
    "cayley-sparse": partial(CayleySTRING, density=0.1),
}
"""Name → constructor, which is told what it names of ``head_dim``, ``coord_dim``, ``heads``.

An entry of your own, here and in the other registries, is known to models and commands at once.
"""

BIASES: dict[str, Callable[..., RelativeBias]] = {
    "alibi": ALiBi,
    "t5": T5Bias,
    "kerple-log": KerpleLog,
    "kerple-power": KerplePower,
}
"""Name → constructor, told what it names of ``heads``, ``causal``, ``bidirectional`` (not so)."""


@by_name("heads")
@checked
def make_encoder(
    name: str, head_dim: int, coord_dim: int = 1, *, heads: int = 1, **options: Any
) -> RotaryEncoder:
    """Return a new encoder by its name.

    Args:
        name: One of :data:`ENCODERS`.
        head_dim: Number of channels of a head.
        coord_dim: Number of coordinates of a position.
        heads: Heads with parameters of their own; 1 serves any number of heads.
        **options: What else its class takes, such as ``base``.

    Raises:
        TypeError: If the class does not take an option.

    Example:
        >>> make_encoder("mixed", head_dim=64, coord_dim=2, heads=6)
        MixedRoPE(head_dim=64, coord_dim=2, heads=6, base=10)
    """
    offered = {"head_dim": head_dim, "coord_dim": coord_dim, "heads": heads}
    made: RotaryEncoder = part("name", name, ENCODERS, offered, options)
    _require_none(options, name)
    if made.coord_dim != coord_dim:
        raise ValueError(
            f"coord_dim must be {made.coord_dim} for {name}, got {coord_dim}; axial takes more"
        )
    return made


@by_name("causal")
@checked
def make_bias(name: str, heads: int, *, causal: bool = False, **options: Any) -> RelativeBias:
    """Return a new relative bias by its name.

    Args:
        name: One of :data:`BIASES`.
        heads: Number of heads, each with a bias of its own.
        causal: Whether keys after the query are masked. Then T5 spends all its buckets on those
            before it.
        **options: What else its class takes.

    Raises:
        TypeError: If the class does not take an option.
    """
    offered = {"heads": heads, "causal": causal, "bidirectional": not causal}
    made: RelativeBias = part("name", name, BIASES, offered, options)
    _require_none(options, name)
    return made


def _require_none(options: dict[str, Any], name: str) -> None:
    for option in options:
        raise TypeError(f"{option} is no argument of encoder {name!r}")
