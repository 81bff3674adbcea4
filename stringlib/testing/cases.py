"""Find out with which arguments and shapes your own part works, before its contract is checked."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from stringlib import parts
from stringlib.attention.features import FeatureMap
from stringlib.attention.logit_bias import TokenBias
from stringlib.attention.weights import PositionWeight
from stringlib.encoders.relative_bias import RelativeBias
from stringlib.encoders.rotary import RotaryEncoder
from stringlib.spec import require
from stringlib.testing.data_dependent import DIM, HEADS, DataDependent
from stringlib.testing.features import Mapped
from stringlib.testing.weights import Weighted, inputs

Make = Callable[..., Any]

SHAPES = ((8, 1, 1), (6, 1, 3), (8, 2, 2))
"""``(head_dim, coord_dim, heads)`` of the encoders that are checked."""
LAYER = {"dim": 12, "heads": 3, "features": 4}
"""Arguments that a layer passes to the constructor of its position weight."""
LENGTHS = tuple(range(1, 101))
"""Numbers of tokens that are tried with a position weight."""
CHANNELS = (5, 8, 4, 6, 16, 32, 64)
"""Numbers of channels per head that are tried with a feature map."""


def encoder_cases(make: Make) -> dict[str, Callable[..., Any]]:
    """Return the cases of an encoder, one per shape that it accepts.

    Args:
        make: Function or class that returns the encoder, as
            :func:`~stringlib.testing.check.check_encoder` takes it.

    Returns:
        Dictionary from the name of each case to a function ``make(dtype)`` that returns the
        encoder.

    Raises:
        TypeError: If ``make`` is not callable, or returns neither a rotary encoder nor a bias.
        ValueError: If ``make`` accepts none of the shapes.
    """
    if _takes_nothing(make):
        one = make()
        require("the return value of make", one, RotaryEncoder | RelativeBias)
        return {type(one).__name__: of_dtype(make)}
    if _is_bias(make):
        return bias_cases(make)
    found: dict[str, Callable[..., Any]] = {}
    errors: list[str] = []
    for shape in SHAPES:

        def build(shape: tuple[int, int, int] = shape) -> Any:
            head_dim, coord_dim, heads = shape
            names = inspect.signature(make).parameters
            if {"coord_dim", "heads"} <= names.keys():  # in any order
                return make(head_dim, coord_dim=coord_dim, heads=heads)
            if "heads" in names:  # an encoder for one coordinate only
                if coord_dim != 1:
                    raise ValueError(
                        f"coord_dim must be 1, got {coord_dim}. make has no argument coord_dim."
                    )
                return make(head_dim, heads=heads)
            return make(*shape)

        try:
            one = build()
        except ValueError as raised:  # for example, an encoder for one coordinate only
            errors.append(f"{shape}: {raised}")
            continue
        require("the return value of make", one, RotaryEncoder | RelativeBias)
        found["{}(head_dim={}, coord_dim={}, heads={})".format(_name(make), *shape)] = of_dtype(
            build
        )
    if not found:
        raise ValueError(
            "make must accept one of the shapes (head_dim, coord_dim, heads) that are tried, got "
            f"an error for each of them. {'; '.join(errors)}. To check another shape, pass a "
            "function without arguments that returns an encoder of this shape."
        )
    return found


def bias_cases(make: Make) -> dict[str, Callable[..., RelativeBias]]:
    """Return the case with which the contract of a bias is checked.

    Args:
        make: Function or class that returns the bias, as
            :func:`~stringlib.testing.check.check_bias` takes it.

    Returns:
        Dictionary with one entry, from the name of the case to a function ``make(dtype)`` that
        returns the bias.

    Raises:
        TypeError: If ``make`` is not callable, or does not return a bias.
    """
    kind: Any = make
    if isinstance(kind, type) and issubclass(kind, TokenBias):
        raise TypeError(
            f"make must return a RelativeBias, got the class {kind.__name__} of data-dependent "
            "biases. Call check_token_bias instead."
        )
    tried = {"": make} if _takes_nothing(make) else {" of 3 heads": lambda: make(3)}
    require("the return value of make", next(iter(tried.values()))(), RelativeBias)
    return {f"{_name(make)}{words}": of_dtype(build) for words, build in tried.items()}


def token_bias_case(make: Make) -> tuple[str, DataDependent]:
    """Return the name of a data-dependent bias, and what its contract is checked on.

    Args:
        make: Function or class that returns the bias, as
            :func:`~stringlib.testing.check.check_token_bias` takes it.

    Raises:
        TypeError: If ``make`` is not callable, or does not return a data-dependent bias.
    """
    layer = {"dim": DIM, "heads": HEADS, "head_dim": DIM // HEADS}
    return _data_dependent(make, layer, TokenBias)


def position_steps_case(make: Make) -> tuple[str, DataDependent]:
    """Return the name of a module of position steps, and what its contract is checked on.

    Args:
        make: Function or class that returns the module, as
            :func:`~stringlib.testing.check.check_position_steps` takes it.

    Raises:
        TypeError: If ``make`` is not callable, or does not return a module.
        ValueError: If the module does not return at least one coordinate for each token.
    """
    sizes = {"dim": DIM, "heads": HEADS, "head_dim": DIM // HEADS, "coord_dim": 1}
    name, case = _data_dependent(make, sizes, nn.Module)
    steps = case.make()(torch.zeros(2, DIM, dtype=torch.float64))
    if isinstance(steps, Tensor) and steps.shape[-1:] == (0,):
        raise ValueError(
            "make must return a module that returns at least one coordinate for each token, got "
            f"steps of shape {tuple(steps.shape)} from {name} for 2 tokens. Return one number for "
            "each coordinate of the encoder."
        )
    return name, case


def _data_dependent(
    make: Make, layer: dict[str, Any], kind: type[nn.Module]
) -> tuple[str, DataDependent]:
    """Return the name of a module of this kind, and what its contract is checked on.

    Args:
        make: Function or class that returns the module.
        layer: Arguments of a layer, of which ``make`` gets those in its signature.
        kind: Class that the module must have.
    """
    require("make", make, Callable)

    def build() -> Any:
        return parts.build("make", make, layer)

    made = build()
    require("the return value of make", made, kind)
    return type(made).__name__, DataDependent(of_dtype(build))


def feature_case(make: Make) -> tuple[str, Mapped]:
    """Return the name of a feature map, and the case with which its contract is checked.

    Args:
        make: Function or class that returns the map, as
            :func:`~stringlib.testing.check.check_feature_map` takes it.

    Raises:
        TypeError: If ``make`` is not callable, or does not return a feature map.
        ValueError: If the map accepts none of the numbers of channels that are tried.
    """
    require("make", make, Callable)

    def drawn() -> FeatureMap:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            made: FeatureMap = parts.build("make", make, {"head_dim": 8, "heads": 3})
            return made.double()

    phi = drawn()
    require("the return value of make", phi, FeatureMap)
    error = None
    for head_dim in (getattr(phi, "head_dim", 5), *CHANNELS):
        for heads in (3, 1, 2, 4, 8):
            try:
                phi(torch.zeros(heads, 2, head_dim).double())
                _, scale = phi.scaled_keys(torch.zeros(heads, 2, head_dim).double())
            except (ValueError, RuntimeError) as raised:
                error = raised
                continue
            exponential = scale is not None
            signs, drops = phi.nonnegative, exponential
            shape = (head_dim, heads, exponential, signs, drops)
            return type(phi).__name__, Mapped(drawn, None, *shape)
    raise ValueError(
        "make must return a feature map that accepts one of the numbers "
        f"{', '.join(map(str, sorted(CHANNELS)))} of channels per head, or the number in its "
        "attribute head_dim, got an error for each of these numbers with 1, 2, 3, 4 and 8 heads. "
        f"The last error: {error}. If the map needs another number of channels, set its attribute "
        "head_dim to this number."
    )


def weight_case(make: Make) -> tuple[str, Weighted]:
    """Return the name of a position weight, and the case with which its contract is checked.

    Args:
        make: Function or class that returns the weight, as
            :func:`~stringlib.testing.check.check_weight` takes it.

    Raises:
        TypeError: If ``make`` is not callable, or does not return a position weight.
        ValueError: If the weight accepts none of the numbers of tokens and heads that are tried.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        require("make", make, Callable)
        weight = parts.build("make", make, LAYER)
    require("the return value of make", weight, PositionWeight)
    weight = weight.double()
    reads = type(weight).forward is not PositionWeight.forward
    return type(weight).__name__, _reading(weight) if reads else _plain(weight)


def _reading(weight: PositionWeight) -> Weighted:
    """Return the case of a data-dependent weight, which needs the tokens of a layer."""

    def draw(batch: tuple[int, ...], n: int, generator: torch.Generator) -> Tensor:
        return torch.randn(*batch, n, LAYER["dim"], generator=generator, dtype=torch.float64)

    def build(x: Tensor, n: int = 0, start: int = 0) -> PositionWeight:
        own = next(weight.parameters())
        alike = (x.device, x.dtype) == (own.device, own.dtype)
        return (weight if alike else copy.deepcopy(weight).to(x.device, x.dtype))(x)

    return Weighted(
        draw=draw,
        build=build,
        dense=lambda x, n: _matrix(build(x), n),
        cut=lambda x, start, end: x[..., start:end, :],
        heads=LAYER["heads"],
        parameters=tuple(weight.parameters()),
        **_told(build(draw((2,), 5, torch.Generator())), LAYER["heads"], 5),
    )


def _plain(weight: PositionWeight) -> Weighted:
    """Return the case of a weight that does not depend on the tokens."""
    heads = next((h for h in (3, 1, 2, 4, 8, 6) if any(_sums(weight, h, n) for n in LENGTHS)), 0)
    lengths = [n for n in LENGTHS if heads and _sums(weight, heads, n)]
    if not lengths:
        raise ValueError(
            "make must return a weight whose sums() accepts 1, 2, 3, 4, 6 or 8 heads and some "
            f"number of tokens from 1 to {max(LENGTHS)}, got {type(weight).__name__}, whose sums() "
            "raises an error for all of these numbers. Call its sums() to see the error."
        )
    far = 16384 if weight.has_state else 1024  # without a state all pairs are in memory at once
    return Weighted(
        draw=None,
        build=lambda x, n, start: weight,
        dense=lambda x, n: _matrix(weight, n),
        heads=heads,
        lengths=() if lengths == [*LENGTHS] and _sums(weight, heads, far) else tuple(lengths),
        parameters=tuple(weight.parameters()),
        **{
            **_told(weight, heads, lengths[-1]),
            "carries": weight.has_state and len(lengths) > 1,
        },
    )


def _told(weight: PositionWeight, heads: int, n: int) -> dict[str, Any]:
    """Return the fields of :class:`Weighted` that can be found by trying a weight.

    Args:
        weight: The weight.
        heads: Number of heads.
        n: Number of tokens with which the weight is tried.
    """
    causal = [way for way in (False, True) if _sums(weight, heads, n, causal=way)]
    names = ("parallel", "recurrent", "chunk", "fft")
    return {
        "modes": tuple(m for m in names if _sums(weight, heads, n, causal=causal[-1], mode=m)),
        "causal": tuple(causal),
        "carries": weight.has_state,
        "rectangular": _works(lambda: weight.matrix(3, 8)) and not weight.causal_only,
        "normalized": weight.normalized,
    }


def _sums(weight: PositionWeight, heads: int, n: int, **options: Any) -> bool:
    """Return whether a weight can compute its sums for given numbers of heads and tokens.

    Args:
        weight: The weight.
        heads: Number of heads.
        n: Number of tokens.
        **options: Further arguments of ``weight.sums``.
    """
    options = {"causal": weight.causal_only, **options}
    return _works(lambda: weight.sums(*inputs(n, heads=heads), **options))


def _matrix(weight: PositionWeight, n: int) -> Tensor | None:
    """Return the n × n matrix of a weight, or None if the weight has no matrix.

    A weight has no matrix if the weight of two tokens depends on the tokens between them.
    """
    try:
        return weight.matrix(n, n)
    except ValueError:
        return None


def _works(call: Callable[[], Any]) -> bool:
    try:
        call()
    except (ValueError, RuntimeError):
        return False
    return True


def of_dtype(build: Make) -> Make:
    """Return a function ``make(dtype)`` that builds a module, always with the same parameters.

    Random numbers are added to the initial values of the parameters. In each row, the norm of these
    random numbers is about 1.
    """

    def make(dtype: torch.dtype = torch.float64) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            module: nn.Module = build().to(dtype)
            with torch.no_grad():
                for parameter in module.parameters():  # initial values may be special, such as 0
                    size = max(1, parameter.shape[-1]) ** -0.5
                    parameter.add_(torch.randn_like(parameter), alpha=size)
        return module

    return make


def _is_bias(make: object) -> bool:
    return inspect.isclass(make) and issubclass(make, RelativeBias)


def _takes_nothing(make: Make) -> bool:
    """Return whether ``make`` can be called without arguments."""
    require("make", make, Callable)
    try:
        inspect.signature(make).bind()
    except TypeError:
        return False
    return True


def _name(make: Make) -> str:
    return getattr(make, "__name__", type(make).__name__)
