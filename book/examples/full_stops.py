"""A bias that tokens decide, to copy: the penalty of a key grows with the full stops after it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from stringlib import TOKEN_BIASES, TokenBias
from stringlib.precision import widen


class FullStops(TokenBias):
    """Minus a learned slope times the number of full stops after the key, up to the query."""

    reads_keys = False

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(heads)
        self.is_stop = nn.Linear(dim, heads)
        self.slope = nn.Parameter(torch.ones(heads))

    def marks(self, tokens: Tensor) -> Tensor:
        """Return a number between 0 and 1 for each token and head, ``(..., heads, n, 1)``."""
        return self.is_stop(tokens).sigmoid().mT[..., None]

    def forward(self, q: Tensor, k: Tensor, marks: Tensor) -> Tensor:
        """Return the bias of each pair of a query and a key, ``(..., heads, n, keys)``."""
        stops = widen(marks[..., 0]).cumsum(-1)  # in float64, because a long sum loses digits
        queries = stops[..., stops.shape[-1] - q.shape[-2] :]  # they belong to the last tokens
        between = (queries[..., :, None] - stops[..., None, :]).to(q.dtype)
        return -self.slope[:, None, None] * between


TOKEN_BIASES["full-stops"] = FullStops
