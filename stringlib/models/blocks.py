"""The pre-norm block of a transformer, and its two kinds of feed-forward part."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from stringlib.attention.multihead import MultiHeadAttention


class MLP(nn.Module):
    """Two projections with a GELU between them."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.to_hidden = nn.Linear(dim, hidden)
        self.to_out = nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``(..., dim)``."""
        return self.to_out(nn.functional.gelu(self.to_hidden(x)))


class SwiGLU(nn.Module):
    """Three projections: one, through SiLU, gates another."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.to_gate = nn.Linear(dim, hidden, bias=False)
        self.to_hidden = nn.Linear(dim, hidden, bias=False)
        self.to_out = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``(..., dim)``."""
        return self.to_out(nn.functional.silu(self.to_gate(x)) * self.to_hidden(x))


FEED_FORWARD = {"mlp": MLP, "swiglu": SwiGLU}


class Block(nn.Module):
    """x + attention(norm(x)), then x + feed-forward(norm(x))."""

    def __init__(
        self, dim: int, heads: int, *, mlp: str | None = "mlp", hidden: int, **attention: Any
    ) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(dim)
        self.attention = MultiHeadAttention(dim, heads, **attention)
        self.norm_mlp = nn.LayerNorm(dim) if mlp else None
        self.mlp = FEED_FORWARD[mlp](dim, hidden) if mlp else None

    def forward(self, x: Tensor, positions: Tensor | None = None, **options: Any) -> Any:
        """Return tokens, ``(..., seq, dim)``; with ``return_state`` the state as well."""
        found = self.attention(self.norm_attention(x), positions, **options)
        added, state = found if isinstance(found, tuple) else (found, None)
        x = x + added
        if self.mlp is not None:
            assert self.norm_mlp is not None
            x = x + self.mlp(self.norm_mlp(x))
        return (x, state) if state is not None else x


@torch.no_grad()
def initialize(model: nn.Module) -> None:
    """Draw every projection and embedding anew, normal with standard deviation 0.02."""
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
