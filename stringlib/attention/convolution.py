r"""Short convolution: each channel of a token is mixed with that of the few tokens before it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from stringlib.documents import Documents, documents_of
from stringlib.inputs import per_head
from stringlib.spec import Floats, Indices, checked


class ShortConvolution(nn.Module):
    r"""Causal depthwise convolution of a few tokens, followed by SiLU, :eq:`eq-short-convolution`.

    In each channel c the output of token t is
    :math:`\mathrm{silu}\big(\sum_j w_{cj}\, x_{t-j,c} + b_c\big)` with j from 0 to ``width - 1``.
    The inputs before the first token are 0. Layers of linear attention use a short convolution
    because the key of a token can then depend on the tokens just before it.

    Args:
        channels: Number of channels.
        width: Number of tokens that are mixed, the token itself included. Default: 4.
        bias: If True, the convolution has a bias b. Default: False.

    Attributes:
        weight: The learned numbers w, ``(channels, width)``. Column ``width - 1 - j`` belongs to
            the token j positions earlier, as in ``nn.Conv1d``.
        bias: The bias, ``(channels,)``, or None.

    Source:
        Fu et al. 2023 for the convolution in linear attention; Gu and Dao 2023 for the form with
        SiLU.
    """

    bias: Tensor | None

    @checked
    def __init__(self, channels: int, width: int = 4, *, bias: bool = False) -> None:
        super().__init__()
        self.channels, self.width = int(channels), int(width)
        self.weight = nn.Parameter(torch.empty(self.channels, self.width))
        self.bias = nn.Parameter(torch.empty(self.channels)) if bias else None
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Resample weight and bias in place, as ``nn.Conv1d`` does."""
        reach = self.width**-0.5
        self.weight.uniform_(-reach, reach)
        if self.bias is not None:
            self.bias.uniform_(-reach, reach)

    @checked
    def forward(
        self,
        x: Floats[Tensor, "... n self.channels"],
        before: Floats[Tensor, "... earlier self.channels"] | None = None,
        key_mask: Tensor | None = None,
        *,
        document_ids: Indices[Tensor, "...? n"] | Documents | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the outputs, and the last inputs, from which the next tokens continue.

        Args:
            x: Inputs, ``(..., seq, channels)``.
            before: The last inputs of the earlier tokens, ``(..., width - 1, channels)``. Default:
                None, which means zeros.
            key_mask: False for padding, ``(..., seq)``. An input of padding is replaced by 0.
                Default: None, no padding.
            document_ids: Integers that increase from document to document, ``(..., seq)``, or the
                :class:`~stringlib.documents.Documents` that are made from such integers. No token
                is mixed with one of another document. Only the first document of each row continues
                ``before``. Default: None, one document.

        Returns:
            The outputs, in the shape and dtype of ``x``, and the last inputs of the last document,
            ``(..., width - 1, channels)``, to be passed as ``before`` with the next tokens.

        Raises:
            ValueError: If the shape of ``before`` does not fit.
        """
        lead, n = x.shape[:-2], x.shape[-2]
        kept = (*lead, self.width - 1, self.channels)
        if before is not None and before.shape != kept:
            raise ValueError(
                f"before must have shape {tuple(kept)} (the last {self.width - 1} inputs), got "
                f"{tuple(before.shape)}. Pass the second value that the previous call of this "
                "convolution returned."
            )
        if key_mask is not None:
            padding = ~per_head(key_mask, (*lead, 1, n), x.device).squeeze(-2)
            x = x.masked_fill(padding[..., None], 0)
        if before is None:
            before = x.new_zeros(kept)
        inputs = torch.cat([before.to(x.dtype), x], -2)
        numbers = None
        if document_ids is not None:
            # the inputs before the first token belong to its document, which has the number 0
            documents = documents_of(x.unsqueeze(-3), document_ids)
            numbers = nn.functional.pad(documents.numbers, (self.width - 1, 0))
        weight, out = self.weight.to(x.dtype), None
        for column in range(self.width):
            part = inputs[..., column : column + n, :]
            if numbers is not None and column < self.width - 1:
                apart = numbers[..., column : column + n] != documents.numbers
                part = part.masked_fill(apart[..., None], 0)
            part = part * weight[:, column]
            out = part if out is None else out + part
        assert out is not None
        if self.bias is not None:
            out = out + self.bias.to(x.dtype)
        last = inputs[..., n:, :]
        if numbers is not None and self.width > 1:
            ends = numbers[..., -1:]
            last = last.masked_fill((numbers[..., n:] != ends)[..., None], 0)
        return silu(out), last

    def extra_repr(self) -> str:
        """Return the arguments that ``repr`` shows."""
        return f"channels={self.channels}, width={self.width}, bias={self.bias is not None}"
