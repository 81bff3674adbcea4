"""Encoders and relative biases by name, for programs that take a name as an argument."""

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
from stringlib.encoders.rotary import RotaryEncoder
from stringlib.options import named, require_known_options
from stringlib.parts import make_part
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
"""Constructors of rotary encoders by name.

A constructor receives ``head_dim``, ``coord_dim`` and ``heads`` if it has parameters of these
names. If you add an encoder of your own, models and commands accept its name. You can add to the
other registries of the package in the same way.
"""

BIASES: dict[str, Callable[..., RelativeBias]] = {
    "alibi": ALiBi,
    "t5": T5Bias,
    "kerple-log": KerpleLog,
    "kerple-power": KerplePower,
}
"""Constructors of relative biases by name.

A constructor receives ``heads``, ``causal`` and ``bidirectional`` (the opposite of ``causal``) if
it has parameters of these names.
"""


@by_name("heads")
@checked
def make_encoder(
    name: str, head_dim: int, coord_dim: int = 1, *, heads: int = 1, **options: Any
) -> RotaryEncoder:
    """Return a new rotary encoder, given its name.

    Args:
        name: A name in :data:`ENCODERS`.
        head_dim: Number of channels of a head.
        coord_dim: Number of coordinates of a position. Default: 1.
        heads: Number of heads. If the encoder has learned parameters, each head has its own. With 1
            (default), the encoder can be used with any number of heads.
        **options: Further arguments of the encoder's class, such as ``base``.

    Raises:
        TypeError: If the class does not accept an option.
        ValueError: If the name is unknown, or if the encoder cannot have ``coord_dim`` coordinates.

    Example:
        >>> make_encoder("mixed", head_dim=64, coord_dim=2, heads=6)
        MixedRoPE(head_dim=64, coord_dim=2, heads=6, base=10)
    """
    context = {"head_dim": head_dim, "coord_dim": coord_dim, "heads": heads}
    made: RotaryEncoder = make_part("name", name, ENCODERS, context, options)
    require_known_options(f"encoder {name!r}", options, named(ENCODERS[name]))
    if made.coord_dim != coord_dim:
        raise ValueError(
            f"coord_dim must be {made.coord_dim} for encoder {name!r}, got {coord_dim}. Encoder "
            "'axial' is RoPE for any number of coordinates."
        )
    return made


@by_name("causal")
@checked
def make_bias(name: str, heads: int, *, causal: bool = False, **options: Any) -> RelativeBias:
    """Return a new relative bias, given its name.

    Args:
        name: A name in :data:`BIASES`.
        heads: Number of heads, each with a bias of its own.
        causal: Whether attention masks the keys after the query. If True, T5 uses all its buckets
            for keys up to the query. Default: False.
        **options: Further arguments of the class of the bias.

    Raises:
        TypeError: If the class does not accept an option.
        ValueError: If the name is unknown.
    """
    context = {"heads": heads, "causal": causal, "bidirectional": not causal}
    made: RelativeBias = make_part("name", name, BIASES, context, options)
    require_known_options(f"relative bias {name!r}", options, named(BIASES[name]))
    return made
