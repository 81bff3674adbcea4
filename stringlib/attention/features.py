r"""Feature maps: what takes the place of softmax's exponential."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from stringlib.attention.projections import PROJECTIONS, DenseProjection


class FeatureMap(nn.Module):
    """``phi(x, is_query=True)``: from ``(..., heads, seq, head_dim)`` to ``(..., heads, seq, m)``."""


class ReLUFeatures(FeatureMap):
    """max(x, 0)."""

    def forward(self, x: Tensor, is_query: bool = True) -> Tensor:
        """Return the features."""
        return torch.relu(x)


class ELUFeatures(FeatureMap):
    """elu(x) + 1."""

    def forward(self, x: Tensor, is_query: bool = True) -> Tensor:
        """Return the features."""
        return torch.nn.functional.elu(x) + 1


class FavorFeatures(FeatureMap):
    """Positive random features with E[φ(x)ᵀφ(y)] = exp(xᵀy). Skeleton."""

    def __init__(
        self,
        head_dim: int,
        num_features: int,
        projection: str = "orthogonal",
        heads: int = 1,
        learnable: bool = False,
        hyperbolic: bool = False,
        stabilize: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.head_dim, self.num_features, self.heads = head_dim, num_features, heads
        self.hyperbolic, self.stabilize = hyperbolic, stabilize
        self.projection = DenseProjection(
            PROJECTIONS[projection], head_dim, num_features, heads, generator
        )

    def projection_matrix(self) -> Tensor:
        """Return W, ``(heads, m, head_dim)``."""
        return self.projection.matrix()

    def redraw(self, generator: torch.Generator | None = None) -> None:
        """Draw W afresh."""
        self.projection.redraw(generator)

    def log_features(self, x: Tensor) -> Tensor:
        """Return the logarithms of the features."""
        y = self.projection(x)
        if self.hyperbolic:
            y = torch.cat([y, -y], -1)
        return (
            y
            - x.square().sum(-1, keepdim=True) / 2
            - 0.5 * torch.log(torch.tensor(float(y.shape[-1])))
        )

    def forward(self, x: Tensor, is_query: bool = True) -> Tensor:
        """Return the features."""
        logs = self.log_features(x)
        if self.stabilize and logs.numel():
            dims = (-1,) if is_query else (-2, -1)
            logs = logs - logs.detach().amax(dims, keepdim=True)
        return logs.exp()

    def scaled_keys(self, k: Tensor) -> tuple[Tensor, Tensor]:
        """Return features divided by their largest, and the logarithm of what was divided by."""
        logs = self.log_features(k)
        scale = logs.detach().amax(-1)
        return (logs - scale[..., None]).exp(), scale
