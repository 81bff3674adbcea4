r"""Layers of linear attention as their papers define them, by name.

Each layer is a :class:`~stringlib.attention.recurrent.RecurrentAttention`: a recurrence together
with the rotation, short convolution, norm and gate that its paper gives it. The recurrences alone
are position weights, for example ``weight="retnet"`` of
:class:`~stringlib.attention.multihead.MultiHeadAttention`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stringlib.attention.convolution import ShortConvolution
from stringlib.attention.gated_norm import GatedNorm
from stringlib.attention.learned import GLADecay, RetNetDecay, SSDDecay
from stringlib.attention.learned_delta import LearnedDelta, LearnedKDA
from stringlib.attention.recurrent import RecurrentAttention
from stringlib.encoders.rope import RoPE
from stringlib.inputs import require_name, require_split
from stringlib.options import named, require_known_options
from stringlib.spec import NotNegative, Positive, checked


@checked
def retnet(
    dim: int,
    heads: int,
    *,
    key_dim: int | None = None,
    value_dim: int | None = None,
    base: Positive = 10000.0,
    eps: NotNegative = 1e-5,
) -> RecurrentAttention:
    r"""Return a layer of RetNet: RoPE, one constant decay per head, norm of each head, gate.

    Args:
        dim: Number of channels of a token.
        heads: Number of heads. Head h has the decay :math:`1 - 2^{-5-h}`, :eq:`eq-retnet-decay`.
        key_dim: Number of channels of all queries together. Default: ``dim``.
        value_dim: Number of channels of all values together. Default: ``2 * dim``.
        base: The base of RoPE. Default: 10,000.
        eps: Number that the norm adds to the mean square. Default: 1e-5.

    Source:
        Sun et al. 2023, equations 5 and 8, with a root mean square norm, as in the code of its
        authors.
    """
    key_dim, value_dim = key_dim or dim, value_dim or 2 * dim
    width, per_head = _split(heads, key_dim, value_dim)
    return RecurrentAttention(
        dim,
        heads,
        RetNetDecay(heads),
        GatedNorm(dim, heads, per_head, eps=eps),
        encoder=RoPE(width, base=base),
        key_dim=key_dim,
        value_dim=value_dim,
        scale=width**-0.5,
    )


@checked
def gla(
    dim: int,
    heads: int,
    *,
    key_dim: int | None = None,
    value_dim: int | None = None,
    rank: int = 16,
    eps: NotNegative = 1e-5,
) -> RecurrentAttention:
    r"""Return a layer of gated linear attention (GLA): one decay per token and feature.

    Args:
        dim: Number of channels of a token.
        heads: Number of heads.
        key_dim: Number of channels of all queries together. Default: ``dim // 2``.
        value_dim: Number of channels of all values together. Default: ``dim``.
        rank: Rank of the projection that computes the decays. Default: 16.
        eps: Number that the norm adds to the mean square. Default: 1e-5.

    Source:
        Yang et al. 2024, section 4.4.
    """
    key_dim, value_dim = key_dim or dim // 2, value_dim or dim
    width, per_head = _split(heads, key_dim, value_dim)
    return RecurrentAttention(
        dim,
        heads,
        GLADecay(dim, heads, width, rank),
        GatedNorm(dim, heads, per_head, eps=eps),
        key_dim=key_dim,
        value_dim=value_dim,
        scale=width**-0.5,
    )


@checked
def mamba2(
    dim: int,
    heads: int,
    *,
    state_size: int = 64,
    groups: int = 1,
    value_dim: int | None = None,
    convolution: int = 4,
    eps: NotNegative = 1e-5,
) -> RecurrentAttention:
    r"""Return a layer of Mamba-2: a short convolution, one decay per token, a gate before the norm.

    :math:`C_t`, :math:`B_t` and :math:`x_t` of Mamba-2 are queries, keys and values, :eq:`eq-ssd`.

    Args:
        dim: Number of channels of a token.
        heads: Number of heads.
        state_size: Number of channels of the query and key of a group. Default: 64.
        groups: Number of groups; must divide ``heads``. The heads of a group share queries and
            keys, and are normalised together. Default: 1.
        value_dim: Number of channels of all values together. Default: ``2 * dim``.
        convolution: Number of tokens that the convolution mixes. Default: 4.
        eps: Number that the norm adds to the mean square. Default: 1e-5.

    Source:
        Dao and Gu 2024, section 7.
    """
    key_dim, value_dim = groups * state_size, value_dim or 2 * dim
    _, per_head = _split(heads, key_dim, value_dim, groups)
    return RecurrentAttention(
        dim,
        heads,
        SSDDecay(dim, heads, stepped=True),
        GatedNorm(dim, heads, per_head, groups=groups, eps=eps),
        key_dim=key_dim,
        value_dim=value_dim,
        key_heads=groups,
        convolution=ShortConvolution(2 * key_dim + value_dim, convolution, bias=True),
        skip=True,
    )


@checked
def gated_deltanet(
    dim: int,
    heads: int,
    *,
    key_dim: int | None = None,
    value_dim: int | None = None,
    key_heads: int | None = None,
    convolution: int = 4,
    largest_rate: Positive = 1.0,
    eps: NotNegative = 1e-5,
) -> RecurrentAttention:
    r"""Return a layer of Gated DeltaNet: a short convolution, the delta rule, one decay per token.

    Args:
        dim: Number of channels of a token.
        heads: Number of heads.
        key_dim: Number of channels of all queries together. Default: ``dim``.
        value_dim: Number of channels of all values together. Default: ``2 * dim``.
        key_heads: Number of heads of queries and keys. Default: ``heads``.
        convolution: Number of tokens that the convolution mixes. Default: 4.
        largest_rate: Largest rate of the delta rule. A rate above 1 reverses the sign of the old
            value of a key. Default: 1.
        eps: Number that the norm adds to the mean square. Default: 1e-5.

    Source:
        Yang et al. 2025, section 3.4.
    """
    key_dim, value_dim = key_dim or dim, value_dim or 2 * dim
    key_heads = key_heads or heads
    width, per_head = _split(heads, key_dim, value_dim, key_heads)
    return RecurrentAttention(
        dim,
        heads,
        LearnedDelta(dim, heads, gated=True, largest_rate=largest_rate, eps=KEY_EPS),
        GatedNorm(dim, heads, per_head, eps=eps),
        key_dim=key_dim,
        value_dim=value_dim,
        key_heads=key_heads,
        convolution=ShortConvolution(2 * key_dim + value_dim, convolution),
        scale=width**-0.5,
    )


@checked
def kda(
    dim: int,
    heads: int,
    *,
    key_dim: int | None = None,
    value_dim: int | None = None,
    rank: int | None = None,
    convolution: int = 4,
    largest_rate: Positive = 1.0,
    eps: NotNegative = 1e-5,
) -> RecurrentAttention:
    r"""Return a layer of Kimi Delta Attention (KDA): the delta rule, one decay per feature.

    Args:
        dim: Number of channels of a token.
        heads: Number of heads.
        key_dim: Number of channels of all queries together. Default: ``dim``.
        value_dim: Number of channels of all values together. Default: ``dim``.
        rank: Rank of the projections that compute the decays and the gate. Default: the number of
            channels of the value of a head.
        convolution: Number of tokens that the convolution mixes. Default: 4.
        largest_rate: Largest rate of the delta rule. Default: 1.
        eps: Number that the norm adds to the mean square. Default: 1e-5.

    Source:
        Kimi Team 2025, section 4.
    """
    key_dim, value_dim = key_dim or dim, value_dim or dim
    width, per_head = _split(heads, key_dim, value_dim)
    rank = rank or per_head
    return RecurrentAttention(
        dim,
        heads,
        LearnedKDA(dim, heads, width, rank, largest_rate=largest_rate, eps=KEY_EPS),
        GatedNorm(dim, heads, per_head, activation="sigmoid", rank=rank, eps=eps),
        key_dim=key_dim,
        value_dim=value_dim,
        convolution=ShortConvolution(2 * key_dim + value_dim, convolution),
        scale=width**-0.5,
    )


KEY_EPS = 1e-6
"""Number that the released layers add to the squared norms of queries and keys."""

LAYERS: dict[str, Callable[..., RecurrentAttention]] = {
    "retnet": retnet,
    "gla": gla,
    "mamba2": mamba2,
    "gated-deltanet": gated_deltanet,
    "kda": kda,
}
"""Layers as published, by name. Each value is a function of ``dim``, ``heads`` and options."""


SIZES = {"dim", "heads"}
"""Arguments of a published layer that are not options."""


def layer_options() -> set[str]:
    """Return the names of the options of all published layers."""
    return {option for make in LAYERS.values() for option in named(make)} - SIZES


@checked
def make_layer(name: str, dim: int, heads: int, **options: Any) -> RecurrentAttention:
    """Return a layer of linear attention as its paper defines it.

    Args:
        name: A name in :data:`LAYERS`.
        dim: Number of channels of a token.
        heads: Number of heads.
        **options: Options of the function in :data:`LAYERS`, such as ``value_dim``.

    Raises:
        TypeError: If an option is not one of the layer.
        ValueError: If the name is unknown, or if a size does not fit.

    Example:
        >>> import torch
        >>> layer = make_layer("kda", 64, 4)
        >>> out, state = layer(torch.randn(2, 10, 64), return_state=True)
        >>> layer(torch.randn(2, 1, 64), state=state).shape  # the next token
        torch.Size([2, 1, 64])
    """
    require_name("name", name, LAYERS)
    known = {*named(LAYERS[name])} - SIZES
    require_known_options(f"the layer {name!r}", options, known)
    return LAYERS[name](dim, heads, **options)


def _split(
    heads: int, key_dim: int, value_dim: int, key_heads: int | None = None
) -> tuple[int, int]:
    """Return the number of channels of the key and of the value of a head.

    Raises:
        ValueError: If a size does not fit the number of heads.
    """
    key_heads = key_heads or heads
    require_split(key_dim, key_heads, name="key_dim", by="key_heads")
    require_split(value_dim, heads, name="value_dim")
    return key_dim // key_heads, value_dim // heads
