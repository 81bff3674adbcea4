"""A feature map to copy: that of Hedgehog, a softmax of a learned matrix times the vector."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from stringlib import FeatureMap
from stringlib.attention.registry import FEATURES
from stringlib.precision import at_least_float32, without_autocast
from stringlib.spec import Floats, require


class Mimic(FeatureMap):
    """The softmax of Wx and -Wx, with a learned matrix W for each head."""

    place = "before"

    def __init__(self, head_dim: int, heads: int = 1) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(head_dim).repeat(heads, 1, 1))

    def forward(self, x: Tensor, is_query: bool = True) -> Tensor:
        """Return the features, ``(..., heads, n, 2 * head_dim)``."""
        require("x", x, Floats[Tensor, "..."])
        exact = at_least_float32(x.dtype)
        with without_autocast(x):
            y = x.to(exact) @ self.weight.to(exact).mT
            return torch.cat([y, -y], -1).softmax(-1).to(x.dtype)


FEATURES["mimic"] = Mimic
