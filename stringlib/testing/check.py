"""Checks of a part of one's own: each raises unless it keeps the contract of its kind."""

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
    """Raise unless an encoder of one's own keeps the contract.

    That of a rotary encoder: scores see differences of positions alone, norms stay, gradients are
    right, it folds, moves, loads and compiles. A bias, which a layer takes as its encoder too, is
    held to the contract of biases.

    Args:
        make: Returns the encoder: without arguments, or, as an entry of
            :data:`~stringlib.encoders.registry.ENCODERS`, of ``(head_dim, coord_dim, heads)``. Then
            the shapes (8, 1, 1), (6, 1, 3) and (8, 2, 2) are checked, those that it takes.
        modes: Ways to run it: ``"eager"``, ``"blind"`` (no value is looked at, as on a GPU),
            ``"compiled"``, ``"exported"`` and ``"batched"`` (``torch.func.vmap``). If omitted, all
            of them, compiled and exported with the properties from which the others follow:
            values and gradients for any number of tokens. All properties take minutes there.

    Raises:
        AssertionError: If a property does not hold: each in a line, with how much it is off.
        TypeError: If ``make`` does not return an encoder.
        ValueError: If a mode is unknown.
    """
    for name, case in encoder_cases(make).items():
        contract = BIAS if isinstance(case(), RelativeBias) else ENCODER
        _check(contract, case, name, modes)


def check_bias(make: Make, *, modes: Iterable[str] | None = None) -> None:
    """Raise unless a bias of one's own keeps the contract.

    Args:
        make: Returns the bias: without arguments, or of a number of heads.
        modes: As for :func:`check_encoder`.
    """
    for name, case in bias_cases(make).items():
        _check(BIAS, case, name, modes)


def check_feature_map(make: Make, *, modes: Iterable[str] | None = None) -> None:
    """Raise unless a feature map of one's own keeps the contract.

    Features have the sign and shape that the map says, see no later token, are rounded once, and
    their gradients are right.

    Args:
        make: Returns the map: without arguments, or, as an entry of
            :data:`~stringlib.attention.registry.FEATURES`, of what it names of ``head_dim`` and
            ``heads``.
        modes: As for :func:`check_encoder`.

    Raises:
        ValueError: If the map takes no heads of 4, 5, 6, 8, 16, 32 or 64 channels.
    """
    name, case = feature_case(make)
    _check(FEATURE_MAP, case, name, modes)


def check_weight(make: Make, *, modes: Iterable[str] | None = None) -> None:
    """Raise unless a position weight of one's own keeps the contract.

    Every way to its sums equals its matrix, gradients are right, a causal sum sees no later token,
    a state is all that later tokens need. A weight without a matrix, whose pairs depend on what is
    between, is compared with its own sums token by token.

    Args:
        make: Returns the weight: without arguments, or, as an entry of
            :data:`~stringlib.attention.registry.WEIGHTS`, of what it names of ``dim``, ``heads``
            and ``features``.
        modes: As for :func:`check_encoder`.

    Raises:
        ValueError: If the weight takes no sequence that is tried.
    """
    name, case = weight_case(make)
    _check(WEIGHT, case, name, modes)


def _check(contract: Contract, case: Any, name: str, modes: Iterable[str] | None) -> None:
    contract.check(case, name, None if modes is None else [_mode(mode) for mode in modes])


def _mode(name: str) -> Mode:
    require_name("modes", name, NAMES)
    return MODES[NAMES.index(name)]
