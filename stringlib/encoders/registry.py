"""Encoders by name: for commands, studies and comparisons that take one as an argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stringlib.encoders.bias import ALiBi, KerpleLog, KerplePower, RelativeBias, T5Bias
from stringlib.encoders.cayley import CayleySTRING
from stringlib.encoders.circulant import CirculantSTRING
from stringlib.encoders.mixed import MixedRoPE
from stringlib.encoders.reflection import ReflectionSTRING
from stringlib.encoders.rope import AxialRoPE, RoPE
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
"""Name → constructor of ``(head_dim, coord_dim, heads)``, other arguments at their defaults.

An entry of your own, here and in the other registries, is known to models and commands at once.
"""

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

    Example:
        >>> make_encoder("mixed", head_dim=64, coord_dim=2, heads=6)
        MixedRoPE(head_dim=64, coord_dim=2, heads=6, base=10)
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


def layer_encoder(
    encoder: Any, head_dim: int, heads: int, coord_dim: int | None, default_coord_dim: int = 1
) -> RotaryEncoder | RelativeBias | None:
    """Return the encoder of a layer, asked for by name or given.

    Args:
        encoder: A name in :data:`ENCODERS`, a rotary encoder, a bias, or None.
        head_dim: Number of channels, or features, that it is to rotate.
        heads: Number of heads of the layer.
        coord_dim: Number of coordinates for an encoder asked for by name.
        default_coord_dim: The same if that is None.

    Raises:
        TypeError: If it has the wrong kind.
        ValueError: If it is not made for such heads.
    """
    if isinstance(encoder, str):
        require_name("encoder", encoder, ENCODERS)
        coord_dim = default_coord_dim if coord_dim is None else coord_dim
        try:
            return make_encoder(encoder, head_dim, coord_dim, heads=heads)
        except ValueError as error:
            raise ValueError(
                f"encoder must fit heads of {head_dim} channels and {coord_dim} coordinates, "
                f"got {encoder!r}: {error}"
            ) from error
    if coord_dim is not None:
        raise ValueError(f"coord_dim must be None unless encoder is a name, got {coord_dim}")
    if encoder is None:
        return None
    if not isinstance(encoder, (RotaryEncoder, RelativeBias)):
        raise TypeError(
            "encoder must be a RotaryEncoder or its name, a RelativeBias or None, "
            f"got {type(encoder).__name__}"
        )
    rotary = isinstance(encoder, RotaryEncoder)
    if encoder.heads not in ((1, heads) if rotary else (heads,)):
        raise ValueError(f"encoder must have {heads} heads, got {encoder.heads}")
    if rotary and encoder.head_dim != head_dim:
        raise ValueError(
            f"encoder must have head_dim {head_dim}, the number of channels or features that it "
            f"rotates, got {encoder.head_dim}"
        )
    return encoder
