"""An encoder to copy: axial RoPE whose heads each learn how fast they turn."""

from __future__ import annotations

from torch import Tensor, nn

from stringlib import ENCODERS, AxialRoPE
from stringlib.precision import wide_parameter, widen


class TempoRoPE(AxialRoPE):
    """Axial RoPE with one learned number for each head: its frequencies times exp(tempo)."""

    def __init__(self, head_dim: int, coord_dim: int, heads: int) -> None:
        super().__init__(head_dim, coord_dim, heads=heads)
        self.tempo = wide_parameter(heads)
        nn.init.normal_(self.tempo)

    def frequencies(self) -> Tensor:
        """Return Ω: float64, ``(heads, pairs, coord_dim)``."""
        return widen(self.tempo).exp()[:, None, None] * super().frequencies()


ENCODERS["tempo"] = TempoRoPE
