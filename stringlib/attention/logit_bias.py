r"""The base class of data-dependent biases of softmax attention, :eq:`eq-token-bias`.

A bias of a query and a key is added to the scaled logits. The methods of this package are in
:mod:`stringlib.attention.token_bias`.
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from stringlib.inputs import expands
from stringlib.precision import at_least_float32, without_autocast
from stringlib.spec import checked


class TokenBias(nn.Module):
    r"""Base class of data-dependent biases of causal softmax attention.

    A subclass implements :meth:`forward`. If the bias needs numbers that are computed from one
    token each, such as a forget gate, the subclass also implements :meth:`marks`, which returns
    these numbers (the marks of the tokens). The cache keeps the marks of all tokens. So a layer
    with a token bias can decode token by token and accepts packed documents, like other layers.

    A bias must depend only on the query, the key, and the tokens from the key to the query, as
    products along the path do, :eq:`eq-path-product`, which compose, :eq:`eq-path-compose`. Marks
    of padding are set to 0, so a mark of 0 must mean that the token changes nothing.

    Args:
        heads: Number of query heads.

    Attributes:
        reads_keys: Whether the bias uses queries and keys. Such a bias refuses a rotary encoder,
            because it would depend on the positions themselves, and not only on their differences.
            A bias that uses only their products can set this to False. Default: True.
    """

    reads_keys: ClassVar[bool] = True

    @checked
    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = int(heads)

    def marks(self, tokens: Tensor) -> Tensor:
        """Return the numbers of each token that the bias needs, ``(..., heads, n, m)``.

        Args:
            tokens: The tokens of the layer, ``(..., n, dim)``.

        Returns:
            By default ones, ``(..., heads, n, 1)``, which are 0 for padding.
        """
        return tokens.new_ones(*tokens.shape[:-2], self.heads, tokens.shape[-2], 1)

    def forward(self, q: Tensor, k: Tensor, marks: Tensor) -> Tensor:
        """Return the bias of every pair of a query and a key, in the dtype of ``q``.

        Args:
            q: Queries in at least float32, ``(..., heads, n, d)``. They belong to the last n of the
                keys' tokens.
            k: Keys in the same dtype, ``(..., heads, keys, d)``.
            marks: The marks of the keys' tokens in the same dtype, ``(..., heads, keys, m)``.

        Returns:
            The bias, ``(..., heads, n, keys)``. Entries of keys after the query have no effect.
        """
        raise NotImplementedError(f"{type(self).__name__} must define forward(q, k, marks)")

    def extra_repr(self) -> str:
        """Return the arguments that ``repr`` shows."""
        return f"heads={self.heads}"


def marks_of(bias: TokenBias, q: Tensor, tokens: Tensor | None, key_mask: Tensor | None) -> Tensor:
    """Return the marks of tokens for a bias, in at least float32, with 0 for padding.

    Args:
        bias: The bias.
        q: Queries, ``(..., heads, n, d)``.
        tokens: The tokens of the layer, ``(..., n, dim)``.
        key_mask: False for padding, ``(..., heads, n)``, or None.
    """
    if tokens is None:
        raise ValueError(
            f"tokens must be given for a {type(bias).__name__}, got None. Pass the tokens from "
            "which the queries are computed."
        )
    marks = bias.marks(tokens)
    lead = q.shape[:-1]
    if marks.ndim < 3 or not expands(marks.shape[:-1], lead):
        raise ValueError(
            f"marks of a {type(bias).__name__} must have shape ({', '.join(map(str, lead))}, m), "
            f"one row for each head and token, got {tuple(marks.shape)}"
        )
    marks = marks.to(at_least_float32(marks.dtype)).expand(*lead, -1)
    return marks if key_mask is None else marks.masked_fill(~key_mask[..., None], 0)


def bias_of_tokens(
    bias: TokenBias, q: Tensor, k: Tensor, marks: Tensor, key_mask: Tensor | None
) -> Tensor:
    """Return the bias of every pair of a query and a key, computed in at least float32.

    Args:
        bias: The bias.
        q: Queries, ``(..., heads, n, d)``.
        k: Keys, ``(..., kv_heads, keys, d)``.
        marks: Marks of the keys' tokens, ``(..., heads, keys, m)``.
        key_mask: False for padding, ``(..., heads, keys)``, or None.
    """
    exact = at_least_float32(q.dtype)
    with without_autocast(q):
        k = k.to(exact).repeat_interleave(q.shape[-3] // k.shape[-3], -3)
        if key_mask is not None:
            k = k.masked_fill(~key_mask[..., None], 0)  # padding may be NaN
        return bias(q.to(exact), k, marks.to(exact))
