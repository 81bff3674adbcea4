"""Build the core of a layer from names, such as ``attention="favor"``, and their options."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from stringlib.attention.core import AttentionCore
from stringlib.attention.features import FeatureMap
from stringlib.attention.kernelised import LinearAttention, side_of_rotation
from stringlib.attention.logit_bias import TokenBias
from stringlib.attention.path import STEPPED_ENCODERS
from stringlib.attention.registry import FEATURES, WEIGHTS
from stringlib.attention.roll import Roll
from stringlib.attention.softmax import SoftmaxAttention
from stringlib.attention.token_bias import TOKEN_BIASES
from stringlib.attention.weights import PositionWeight
from stringlib.encoders.registry import BIASES, ENCODERS, make_bias, make_encoder
from stringlib.encoders.relative_bias import RelativeBias
from stringlib.encoders.rotary import RotaryEncoder
from stringlib.inputs import require_name
from stringlib.parts import make_part, pop_options, reject_unused
from stringlib.spec import Positive, require

SIDES = ("before", "after")


def make_core(
    attention: Any,
    encoder: Any,
    weight: Any,
    position_bias: Any = None,
    *,
    dim: int,
    heads: int,
    kv_heads: int,
    causal: bool,
    rotate: str | None,
    grid: tuple[int, int] | None,
    window: int | None,
    attention_dropout: float,
    options: dict[str, Any],
) -> AttentionCore:
    """Return the core of an attention layer, built from the arguments of the layer.

    Args:
        attention: ``"softmax"``, the name of a feature map, or a feature map.
        encoder: A rotary encoder, a relative bias, the name of either, or None.
        weight: A position weight, the name of a position weight, or None.
        position_bias: A relative bias, a token bias, the name of either, or None.
        dim: Number of channels of a token.
        heads: Number of query heads.
        kv_heads: Number of key heads.
        causal: If True, a token attends only to itself and to earlier tokens.
        rotate: Where positions are applied: ``"before"`` the feature map, ``"after"`` it,
            ``"roll"``, or None for the default of the feature map.
        grid: ``(rows, columns)`` of an image, or None.
        window: Number of tokens in the sliding window of softmax attention, or None.
        attention_dropout: Probability with which softmax attention sets a weight to 0 in training.
        options: Arguments of the parts that are given by name. The options that a part uses are
            removed from this dictionary.

    Returns:
        A :class:`~stringlib.attention.softmax.SoftmaxAttention` for softmax, and otherwise a
        :class:`~stringlib.attention.kernelised.LinearAttention`.

    Raises:
        TypeError: If ``weight`` is not a position weight, a name or None.
        ValueError: If a name is unknown, or if the parts cannot be combined.
    """
    require("attention", attention, str | FeatureMap)
    require("weight", weight, PositionWeight | str | None)
    head_dim = dim // heads
    features, width = _features(attention, head_dim, heads, options)
    rotary = isinstance(encoder, RotaryEncoder | str) and encoder not in [*BIASES]
    _require_side(rotary, features, rotate)
    roll = _roll(rotate, width, options)
    side = None
    if features is not None and rotary:
        side = side_of_rotation(encoder, features, rotate)
    # after the feature map, the encoder rotates features of all heads; before it, keys of kv_heads
    rotated = (heads, width) if side == "after" else (kv_heads, head_dim)
    made = _encoder(encoder, options, heads, *rotated, causal=causal, grid=grid)
    reads_grid = isinstance(made, RotaryEncoder) and made.coord_dim == 2
    if grid is not None and weight != "toeplitz" and not reads_grid:
        raise ValueError(
            "grid must be None unless weight is 'toeplitz' or encoder is a rotary encoder with two "
            f"coordinates, got {grid!r}. Leave out grid."
        )
    if features is None:
        if weight is not None:
            raise ValueError(
                f"weight must be None for softmax attention, got {weight!r}. Use a relative bias "
                "instead, for example encoder='alibi'."
            )
        return SoftmaxAttention(
            made,
            position_bias=_position_bias(position_bias, options, dim, heads, causal),
            causal=causal,
            grid=grid,
            window=window,
            dropout=attention_dropout,
        )
    if position_bias is not None:
        raise ValueError(
            f"position_bias must be None unless attention is 'softmax', got {position_bias!r}. "
            "Leave out position_bias. In linear attention use a decay, for example weight='ssd', "
            "or give a relative bias as encoder."
        )
    if window is not None:
        raise ValueError(
            f"window must be None unless attention is 'softmax', got {window}. Leave out window. "
            "In a causal layer a decay, for example weight='retnet', also favours near tokens."
        )
    if attention_dropout:
        raise ValueError(
            f"attention_dropout must be 0 unless attention is 'softmax', got {attention_dropout}. "
            "Linear attention never forms the matrix of attention weights. Leave out "
            "attention_dropout, or use residual_dropout of the block or model instead."
        )
    if isinstance(weight, str) and not isinstance(made, RelativeBias):
        context = {"dim": dim, "heads": heads, "features": width, "grid": grid}
        weight = make_part("weight", weight, WEIGHTS, context, options)
    return LinearAttention(features, made, weight, rotate=side, roll=roll, causal=causal, grid=grid)


def _features(
    attention: Any, head_dim: int, heads: int, options: dict[str, Any]
) -> tuple[FeatureMap | None, int]:
    """Return the feature map and its number of features per head.

    For softmax the feature map is None, and the number is the number of channels of a head.
    """
    generator = options.pop("generator", None)
    require("generator", generator, torch.Generator | None)
    if isinstance(attention, str):
        require_name("attention", attention, ("softmax", *FEATURES))
        if attention == "softmax":
            return None, head_dim
        context = {"head_dim": head_dim, "heads": heads, "generator": generator}
        attention = make_part("attention", attention, FEATURES, context, options)
    require("scale of the feature map", attention.scale, Positive)
    return attention, _count_features(attention, head_dim, heads)


@torch.no_grad()
def _count_features(features: FeatureMap, head_dim: int, heads: int) -> int:
    """Return the number of features per head, found by applying the map to zeros.

    Raises:
        ValueError: If the map does not accept ``heads`` heads of ``head_dim`` channels.
    """
    tensors = (*features.parameters(), *features.buffers())
    like: Tensor = next((t for t in tensors if t.is_floating_point()), torch.zeros(()))
    try:
        return int(features(like.new_zeros(heads, 1, head_dim)).shape[-1])
    except ValueError as error:
        raise ValueError(
            f"attention must be a feature map for {heads} heads of {head_dim} channels, "
            f"got {type(features).__name__}, which raised: {error}"
        ) from error


def _require_side(rotary: bool, features: FeatureMap | None, rotate: str | None) -> None:
    """Raise ``ValueError`` unless ``rotate`` fits the encoder and the kind of attention.

    Args:
        rotary: True if the encoder is a rotary encoder, or the name of one.
        features: The feature map, or None for softmax.
        rotate: None, ``"before"``, ``"after"`` or ``"roll"``.
    """
    allowed: list[str | None]
    if features is None:
        allowed = [None, "before"] if rotary else [None]
    else:
        allowed = [None, *SIDES] if rotary else [None, "roll"]
    if rotate not in allowed:
        if rotary and features is not None and features.place is None:
            allowed.remove(None)  # the map has no default
        if rotary and features is not None and not features.nonnegative:
            allowed.remove("after")
        expected = " or ".join(map(repr, allowed))
        kind = "softmax" if features is None else "linear"
        raise ValueError(
            f"rotate must be {expected} for {kind} attention {'with' if rotary else 'without'} a "
            f"rotary encoder, got {rotate!r}"
        )


def _roll(rotate: str | None, width: int, options: dict[str, Any]) -> Roll | None:
    """Return the roll of the features of a head, or None unless ``rotate`` is ``"roll"``.

    Args:
        rotate: None, ``"before"``, ``"after"`` or ``"roll"``.
        width: Number of features of a head.
        options: Options of the layer, from which ``cycles`` is removed: the lengths of the cycles
            of the roll. Default: one cycle of all features.
    """
    cycles = options.pop("cycles", None)
    if rotate != "roll":
        if cycles is not None:
            raise ValueError(f"cycles must be None unless rotate is 'roll', got {cycles!r}")
        return None
    roll = Roll((width,) if cycles is None else cycles)
    if sum(roll.cycles) != width:
        raise ValueError(
            f"cycles must have the sum {width}, the number of features of a head, got "
            f"{roll.cycles}, which has the sum {sum(roll.cycles)}"
        )
    return roll


def _encoder(
    encoder: Any,
    options: dict[str, Any],
    all_heads: int,
    heads: int,
    channels: int,
    *,
    causal: bool,
    grid: tuple[int, int] | None,
) -> RotaryEncoder | RelativeBias | None:
    """Return the encoder of a layer, built from its name if a name is given, after checks.

    Args:
        encoder: A rotary encoder, a relative bias, the name of either, or None.
        options: Options of the layer. The options of an encoder given by name are removed.
        all_heads: Number of query heads, which is the number of heads of a bias.
        heads: Number of heads that a rotary encoder rotates.
        channels: Number of channels, or of features, that a rotary encoder rotates.
        causal: Whether the layer is causal. A bias given by name is made for this case.
        grid: ``(rows, columns)`` of an image, or None. With a grid, a rotary encoder given by name
            takes two coordinates unless the option ``coord_dim`` is given.

    Raises:
        ValueError: If the name is unknown, or if the encoder does not fit the layer.
    """
    coord_dim = options.pop("coord_dim", None)
    if coord_dim is not None and (not isinstance(encoder, str) or encoder not in ENCODERS):
        raise ValueError(
            f"coord_dim must be None unless encoder is one of {', '.join(ENCODERS)}, "
            f"got {coord_dim}"
        )
    if encoder is None:
        return None
    if isinstance(encoder, str):
        known = ENCODERS | STEPPED_ENCODERS | BIASES
        require_name("encoder", encoder, known)
        if encoder in STEPPED_ENCODERS:
            context = {"head_dim": channels, "heads": heads}
            stepped: RotaryEncoder = make_part("encoder", encoder, known, context, options)
            return stepped
        own = pop_options(options, known[encoder])
        if encoder in BIASES:
            return make_bias(encoder, all_heads, causal=causal, **own)
        if coord_dim is None:
            coord_dim = 1 if grid is None else 2
        try:
            return make_encoder(encoder, channels, coord_dim, heads=heads, **own)
        except ValueError as error:
            raise ValueError(
                f"encoder must accept head_dim={channels} and coord_dim={coord_dim}, "
                f"got {encoder!r}, which raised: {error}"
            ) from error
    rotary = isinstance(encoder, RotaryEncoder)
    if encoder.heads not in ((1, heads) if rotary else (all_heads,)):
        expected = f"1 or {heads}" if rotary and heads > 1 else str(heads if rotary else all_heads)
        raise ValueError(f"encoder must have heads={expected}, got heads={encoder.heads}")
    if rotary and encoder.head_dim != channels:
        raise ValueError(
            f"encoder must have head_dim {channels}, the number of channels or features to be "
            f"rotated, got head_dim {encoder.head_dim}"
        )
    return encoder


def _position_bias(
    bias: Any, options: dict[str, Any], dim: int, heads: int, causal: bool
) -> RelativeBias | TokenBias | None:
    """Return the bias of the logits of a layer, built from its name if a name is given.

    Args:
        bias: A relative bias, a token bias, the name of either, or None.
        options: Options of the layer. The options of a bias given by name are removed.
        dim: Number of channels of a token.
        heads: Number of query heads.
        causal: Whether the layer is causal.

    Raises:
        ValueError: If the name is unknown, or if the number of heads is not that of the layer.
    """
    if isinstance(bias, str):
        require_name("position_bias", bias, TOKEN_BIASES | BIASES)
        if bias in BIASES:
            return make_bias(bias, heads, causal=causal, **pop_options(options, BIASES[bias]))
        context = {"dim": dim, "heads": heads, "head_dim": dim // heads}
        made: TokenBias = make_part("position_bias", bias, TOKEN_BIASES, context, options)
        return made
    if bias is not None and bias.heads != heads:
        raise ValueError(f"position_bias must have heads={heads}, got heads={bias.heads}")
    return bias


def require_all_used(options: dict[str, Any]) -> None:
    """Raise ``ValueError`` if an option is left that no part of the layer has used."""
    registries: Any = {
        "attention": FEATURES,
        "weight": WEIGHTS,
        "encoder": ENCODERS | STEPPED_ENCODERS | BIASES,
        "position_bias": TOKEN_BIASES | BIASES,
    }
    reject_unused(options, registries)
