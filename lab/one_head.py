"""The smallest model that needs positions: an embedding, one head of attention, and a readout."""

from __future__ import annotations

import math

from torch import Tensor, nn

from stringlib.spec import Indices, Positions, checked


class OneHead(nn.Module):
    """Model with an embedding, one head of attention over all tokens, and a readout.

    The values are the embeddings themselves. Set the attribute ``encoder`` after the model is
    built. Then models with the same seed and different encoders start from the same weights.

    Args:
        symbols: Number of different tokens, which is also the number of possible answers.
        dim: Number of channels of a token.
        head_dim: Number of channels of a query and of a key.

    Attributes:
        encoder: Module that encodes queries and keys. It is called as
            ``encoder(q, k, positions)``.
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
        """Return a score for each possible answer at each token.

        Args:
            symbols: Tokens, integers from 0 to ``symbols - 1`` of the model, ``(batch, seq)``.
            positions: Position of each token, ``(seq, coord_dim)``.

        Returns:
            The scores, ``(batch, seq, symbols)``.
        """
        x = self.embed(symbols).unsqueeze(1)  # one head
        q, k = self.encoder(self.to_q(x), self.to_k(x), positions)
        found = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ x
        scores: Tensor = self.readout(found.squeeze(1))
        return scores
