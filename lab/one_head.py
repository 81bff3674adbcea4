"""The smallest model that has to know places: one head of attention, and what is around it."""

from __future__ import annotations

import math

from torch import Tensor, nn

from stringlib.spec import Indices, Positions, checked


class OneHead(nn.Module):
    """An embedding, one head of attention over all tokens, and a readout.

    The values are the embeddings themselves. Who uses it sets ``encoder``, after the rest is drawn:
    so models of one seed that differ in their encoders start from the same weights.

    Args:
        symbols: How many tokens there are to read, and to answer with.
        dim: Channels of a token.
        head_dim: Channels of a query and of a key.

    Attributes:
        encoder: ``encoder(q, k, positions)`` tells queries and keys where they are.
    """

    encoder: nn.Module

    @checked
    def __init__(self, symbols: int, dim: int, head_dim: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(symbols, dim)
        self.to_q = nn.Linear(dim, head_dim)
        self.to_k = nn.Linear(dim, head_dim)
        self.readout = nn.Linear(dim, symbols)

    @checked
    def forward(
        self,
        symbols: Indices[Tensor, "batch seq"],
        positions: Positions[Tensor, "seq coord_dim"],
    ) -> Tensor:
        """Return a score for each symbol that may be the answer.

        Args:
            symbols: Integers, ``(batch, seq)``.
            positions: ``(seq, coord_dim)``.

        Returns:
            ``(batch, seq, symbols)``.
        """
        x = self.embed(symbols).unsqueeze(1)  # one head
        q, k = self.encoder(self.to_q(x), self.to_k(x), positions)
        found = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ x
        scores: Tensor = self.readout(found.squeeze(1))
        return scores
