"""Checks of your own parts, which raise an error if a part breaks the contract of its kind."""

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
    position_steps_case,
    token_bias_case,
    weight_case,
)
from stringlib.testing.contract import Contract
from stringlib.testing.data_dependent import DATA_DEPENDENT
from stringlib.testing.encoders import ENCODER
from stringlib.testing.features import FEATURE_MAP
from stringlib.testing.modes import MODES, Mode
from stringlib.testing.weights import WEIGHT

Make = Callable[..., Any]
NAMES = tuple(mode.name for mode in MODES)


def check_encoder(make: Make, *, modes: Iterable[str] | None = None) -> None:
    """Check that your own encoder has the properties of all encoders (their contract).

    The contract of a rotary encoder says that scores depend on positions only through their
    differences, that norms do not change, that gradients are right, and that the encoder can be
    folded, moved, loaded and compiled. If ``make`` returns a relative bias, which a layer also
    accepts as its encoder, the contract of biases is checked.

    Args:
        make: Function or class that returns the encoder. It is called without arguments if
            possible. A subclass of :class:`~stringlib.encoders.relative_bias.RelativeBias` is
            otherwise called with the number of heads, 3. Anything else is called like an entry of
            :data:`~stringlib.encoders.registry.ENCODERS`, with ``(head_dim, coord_dim, heads)``
            equal to (8, 1, 1), (6, 1, 3) and (8, 2, 2). Shapes for which ``make`` raises
            ``ValueError`` are skipped. If ``make`` has an argument ``heads`` but no ``coord_dim``,
            the shape with two coordinates is skipped, too.
        modes: Modes in which the encoder is run, a selection of:

            - ``"eager"``: as it is.
            - ``"blind"``: reading a value of a tensor raises an error, because on a GPU the read
              would wait for the device.
            - ``"compiled"``: with ``torch.compile``.
            - ``"exported"``: with ``torch.export``.
            - ``"batched"``: with ``torch.func.vmap``.

            Default: all modes. The compiled and the exported mode then check only the core
            properties, which are values and gradients for any number of tokens, because checking
            all properties in these two modes would take minutes.

    Raises:
        AssertionError: If a property does not hold. The message has one line for each property and
            mode that fail, which states the size of the error or another reason.
        TypeError: If ``make`` returns neither a rotary encoder nor a relative bias, or is not
            callable.
        ValueError: If a mode is unknown, or ``make`` accepts none of the shapes.
    """
    for name, case in encoder_cases(make).items():
        contract = BIAS if isinstance(case(), RelativeBias) else ENCODER
        _check(contract, case, name, modes)


def check_bias(make: Make, *, modes: Iterable[str] | None = None) -> None:
    """Check that your own relative bias has the properties of all biases (their contract).

    The contract says that the bias depends only on the difference of the positions of query and
    key, that its gradients are right, and that it can be moved, loaded and compiled.

    Args:
        make: Function or class that returns the bias. It is called without arguments if possible.
            Otherwise it is called with the number of heads, 3.
        modes: Modes in which the bias is run, under the names that :func:`check_encoder` lists.
            Default: all modes. The modes ``"compiled"`` and ``"exported"`` then check only the core
            properties, which are values and gradients for any number of tokens.

    Raises:
        AssertionError: If a property does not hold. The message has one line for each property and
            mode that fail, which states the size of the error or another reason.
        TypeError: If ``make`` does not return a relative bias, or is not callable. For a
            data-dependent bias call :func:`check_token_bias` instead.
        ValueError: If a mode is unknown.
    """
    for name, case in bias_cases(make).items():
        _check(BIAS, case, name, modes)


def check_token_bias(make: Make, *, modes: Iterable[str] | None = None) -> None:
    """Check that your own data-dependent bias has the properties of all such biases.

    The contract says that outputs of a causal layer with this bias do not depend on later tokens,
    that they continue from a state, that packed documents, padding and other entries of a batch do
    not change them, that gradients are right, and that the layer can be moved, loaded, compiled and
    run in lower precision.

    Args:
        make: Function or class that returns the bias. Like an entry of
            :data:`~stringlib.attention.token_bias.TOKEN_BIASES`, it is called with those of the
            arguments ``dim`` (12), ``heads`` (3) and ``head_dim`` (4) that occur in its signature.
            The bias may have another number of heads, which must divide 12.
        modes: Modes in which the layer is run, under the names that :func:`check_encoder` lists.
            Default: all modes. The modes ``"compiled"`` and ``"exported"`` then check only the core
            properties, which are values and gradients for any number of tokens.

    Raises:
        AssertionError: If a property does not hold. The message has one line for each property and
            mode that fail, which states the size of the error or another reason.
        TypeError: If ``make`` does not return a :class:`~stringlib.attention.logit_bias.TokenBias`,
            or is not callable.
        ValueError: If a mode is unknown.
    """
    name, case = token_bias_case(make)
    _check(DATA_DEPENDENT, case, name, modes)


def check_position_steps(make: Make, *, modes: Iterable[str] | None = None) -> None:
    """Check that your own module of position steps has the properties of all such modules.

    The contract is that of :func:`check_token_bias`, for a causal layer whose rotary encoder gets
    the sums of the steps as positions.

    Args:
        make: Function or class that returns the module. Like an entry of
            :data:`~stringlib.attention.path.POSITION_STEPS`, it is called with those of the
            arguments ``dim`` (12), ``heads`` (3), ``head_dim`` (4) and ``coord_dim`` (1) that occur
            in its signature. The module may return any number of coordinates.
        modes: Modes in which the layer is run, under the names that :func:`check_encoder` lists.
            Default: all modes. The modes ``"compiled"`` and ``"exported"`` then check only the core
            properties, which are values and gradients for any number of tokens.

    Raises:
        AssertionError: If a property does not hold. The message has one line for each property and
            mode that fail, which states the size of the error or another reason.
        TypeError: If ``make`` does not return a module, or is not callable.
        ValueError: If a mode is unknown.
    """
    name, case = position_steps_case(make)
    _check(DATA_DEPENDENT, case, name, modes)


def check_feature_map(make: Make, *, modes: Iterable[str] | None = None) -> None:
    """Check that your own feature map has the properties of all feature maps (their contract).

    The contract says that features have the sign that the attributes of the map state, that they do
    not depend on later tokens, that half precision rounds them at most once, and that their
    gradients are right.

    Args:
        make: Function or class that returns the map. Like an entry of
            :data:`~stringlib.attention.registry.FEATURES`, it gets the arguments ``head_dim`` and
            ``heads`` if its signature has them.
        modes: Modes in which the map is run, under the names that :func:`check_encoder` lists.
            Default: all modes. The modes ``"compiled"`` and ``"exported"`` then check only the core
            properties, which are values and gradients for any number of tokens.

    Raises:
        AssertionError: If a property does not hold. The message has one line for each property and
            mode that fail, which states the size of the error or another reason.
        TypeError: If ``make`` does not return a feature map, or is not callable.
        ValueError: If a mode is unknown. Also if the map accepts none of the numbers 4, 5, 6, 8,
            16, 32 and 64 of channels per head, nor the number in its attribute ``head_dim``.
    """
    name, case = feature_case(make)
    _check(FEATURE_MAP, case, name, modes)


def check_weight(make: Make, *, modes: Iterable[str] | None = None) -> None:
    """Check that your own position weight has the properties of all weights (their contract).

    The contract says that all algorithms for the sums of the weight agree with its matrix, that
    gradients are right, that causal sums do not depend on later tokens, and that a state is all
    that later outputs need of the earlier tokens. A weight has no matrix if the weight of two
    tokens depends on the tokens between them, which is the case for a delta rule. In this case the
    sums are compared with sums that the weight computes token by token.

    Args:
        make: Function or class that returns the weight. Like an entry of
            :data:`~stringlib.attention.registry.WEIGHTS`, it is called with those of the arguments
            ``dim``, ``heads`` and ``features`` that occur in its signature.
        modes: Modes in which the weight is run, under the names that :func:`check_encoder` lists.
            Default: all modes. The modes ``"compiled"`` and ``"exported"`` then check only the core
            properties, which are values and gradients for any number of tokens.

    Raises:
        AssertionError: If a property does not hold. The message has one line for each property and
            mode that fail, which states the size of the error or another reason.
        TypeError: If ``make`` does not return a position weight, or is not callable.
        ValueError: If a mode is unknown, or the weight has no sums for 1, 2, 3, 4, 6 or 8 heads and
            some number of tokens from 1 to 100.
    """
    name, case = weight_case(make)
    _check(WEIGHT, case, name, modes)


def _check(contract: Contract, case: Any, name: str, modes: Iterable[str] | None) -> None:
    contract.check(case, name, None if modes is None else [_mode(mode) for mode in modes])


def _mode(name: str) -> Mode:
    require_name("modes", name, NAMES)
    return MODES[NAMES.index(name)]
