"""Checks of your own parts: each raises an error if a part breaks the contract of its kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from stringlib.encoders.relative_bias import RelativeBias
from stringlib.inputs import require_name
from stringlib.testing.biases import BIAS
from stringlib.testing.cases import (
    bias_cases,
    encoder_cases,
    feature_case,
    weight_case,
)
from stringlib.testing.contract import Contract
from stringlib.testing.encoders import ENCODER
from stringlib.testing.features import FEATURE_MAP
from stringlib.testing.modes import MODES, Mode
from stringlib.testing.weights import WEIGHT

Make = Callable[..., Any]
NAMES = tuple(mode.name for mode in MODES)


def check_encoder(make: Make, *, modes: Iterable[str] | None = None) -> None:
    """Check that your own encoder keeps the contract of encoders.

    For a rotary encoder: scores depend on positions only through their differences, norms do not
    change, gradients are right, and the encoder can be folded, moved, loaded and compiled. A
    relative bias, which a layer also accepts as its encoder, is checked by the contract of biases.

    Args:
        make: Function or class that returns the encoder. It is called without arguments if
            possible. Otherwise it is called like an entry of
            :data:`~stringlib.encoders.registry.ENCODERS`, with ``(head_dim, coord_dim, heads)``
            equal to (8, 1, 1), (6, 1, 3) and (8, 2, 2). Shapes for which it raises ``ValueError``
            are skipped.
        modes: Modes in which the encoder is run: ``"eager"``, ``"blind"`` (reading values of a
            tensor is an error, because on a GPU it would wait for the device), ``"compiled"``,
            ``"exported"`` and ``"batched"`` (``torch.func.vmap``). Default: all modes, but
            compiled and exported only with the core properties, values and gradients for any
            number of tokens. The other properties mostly follow from these, and would take minutes
            in these two modes.

    Raises:
        AssertionError: If a property does not hold. The message has one line per violated property,
            with the size of the error.
        TypeError: If ``make`` does not return an encoder.
        ValueError: If a mode is unknown, or ``make`` accepts none of the shapes.
    """
    for name, case in encoder_cases(make).items():
        contract = BIAS if isinstance(case(), RelativeBias) else ENCODER
        _check(contract, case, name, modes)


def check_bias(make: Make, *, modes: Iterable[str] | None = None) -> None:
    """Check that your own relative bias keeps the contract of biases.

    Args:
        make: Function or class that returns the bias. It is called without arguments if possible,
            otherwise with the number of heads, 3.
        modes: As for :func:`check_encoder`.

    Raises:
        AssertionError: If a property does not hold.
        TypeError: If ``make`` does not return a bias.
        ValueError: If a mode is unknown.
    """
    for name, case in bias_cases(make).items():
        _check(BIAS, case, name, modes)


def check_feature_map(make: Make, *, modes: Iterable[str] | None = None) -> None:
    """Check that your own feature map keeps the contract of feature maps.

    Features have the sign and shape that the attributes of the map state, do not depend on later
    tokens, are rounded only once in half precision, and have the right gradients.

    Args:
        make: Function or class that returns the map. Like an entry of
            :data:`~stringlib.attention.registry.FEATURES`, it is called with those of the
            arguments ``head_dim`` and ``heads`` that occur in its signature.
        modes: As for :func:`check_encoder`.

    Raises:
        AssertionError: If a property does not hold.
        TypeError: If ``make`` does not return a feature map.
        ValueError: If a mode is unknown, or the map accepts no heads of 4, 5, 6, 8, 16, 32 or 64
            channels.
    """
    name, case = feature_case(make)
    _check(FEATURE_MAP, case, name, modes)


def check_weight(make: Make, *, modes: Iterable[str] | None = None) -> None:
    """Check that your own position weight keeps the contract of position weights.

    All algorithms for its sums agree with its matrix, gradients are right, causal sums do not
    depend on later tokens, and later tokens can be computed from the state alone. A weight has no
    matrix if the weight of a pair depends on the tokens between them, as for a delta rule. Its sums
    are then compared with those that it computes token by token.

    Args:
        make: Function or class that returns the weight. Like an entry of
            :data:`~stringlib.attention.registry.WEIGHTS`, it is called with those of the arguments
            ``dim``, ``heads`` and ``features`` that occur in its signature.
        modes: As for :func:`check_encoder`.

    Raises:
        AssertionError: If a property does not hold.
        TypeError: If ``make`` does not return a position weight.
        ValueError: If a mode is unknown, or the weight has no sums for up to 8 heads and 1 to 100
            tokens.
    """
    name, case = weight_case(make)
    _check(WEIGHT, case, name, modes)


def _check(contract: Contract, case: Any, name: str, modes: Iterable[str] | None) -> None:
    contract.check(case, name, None if modes is None else [_mode(mode) for mode in modes])


def _mode(name: str) -> Mode:
    require_name("modes", name, NAMES)
    return MODES[NAMES.index(name)]
