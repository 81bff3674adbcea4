r"""Smeared keys: the key of a token takes in the key of the token before it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from stringlib.attention.cache import KeyValueCache
from stringlib.attention.weights import LinearState
from stringlib.inputs import per_head
from stringlib.spec import Floats, checked


class ShiftedState(NamedTuple):
    """What a layer with a shift keeps of earlier tokens.

    Attributes:
        key: The last token's own key, ``(..., heads, 1, head_dim)``, not yet mixed or encoded.
        rest: What the layer would keep without the shift.
    """

    key: Tensor
    rest: LinearState | KeyValueCache

    @property
    def length(self) -> int:
        """Number of tokens so far."""
        return self.rest.length


class KeyShift(nn.Module):
    r"""Mix each key with the one before: :math:`(1 - \beta_h) k_t + \beta_h k_{t-1}`.

    Equation :eq:`eq-key-shift`.

    Attention sums functions of single tokens. With this one number a head can find a token by
    what stands before it, as associative recall asks: without it a single layer cannot. Nothing
    stands before the first token: its earlier key is 0. The mixture is one number for a head, so
    it commutes with every basis that acts on the channels of a head, and folding stays exact.

    Args:
        heads: Number of heads.

    Attributes:
        logit: ``(heads,)``, :math:`\beta_h = \sigma(\mathrm{logit}_h)`. Starts at 0, where both
            count half.

    Source:
        Olsson et al. 2022, the smeared-key architecture.
    """

    @checked
    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = int(heads)
        self.logit = nn.Parameter(torch.zeros(heads))

    @checked
    def forward(
        self,
        k: Floats[Tensor, "... self.heads n d"],
        before: Floats[Tensor, "... self.heads 1 d"] | None = None,
        key_mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the mixed keys, and the last key as it was.

        Args:
            k: Keys, ``(..., heads, seq, head_dim)``.
            before: The key before the first of them, ``(..., heads, 1, head_dim)``; 0 if omitted.
            key_mask: False for padding, ``(..., seq)`` or ``(..., heads, seq)``, whose key is 0.

        Returns:
            Of the shape and dtype of ``k``, and ``(..., heads, 1, head_dim)``.
        """
        if before is not None and before.shape[:-2] != k.shape[:-2]:
            raise ValueError(
                f"before must have shape {(*k.shape[:-2], 1, k.shape[-1])}, one key like those "
                f"of k, got {tuple(before.shape)}"
            )
        if key_mask is not None:
            k = k.masked_fill(~per_head(key_mask, k.shape[:-1], k.device)[..., None], 0)
        if before is None:
            before = k.new_zeros(*k.shape[:-2], 1, k.shape[-1])
        own = torch.cat([before.to(k.dtype), k], -2)
        share = self.logit.sigmoid()[:, None, None].to(k.dtype)
        return torch.lerp(k, own[..., :-1, :], share), own[..., -1:, :]
