r"""A gate behind attention: :math:`Y \odot \sigma(X W_\theta)`."""

from __future__ import annotations

from torch import Tensor, nn

from stringlib.inputs import require_split
from stringlib.spec import Floats, checked

GATES = ("headwise", "elementwise")


class Gate(nn.Module):
    r"""Multiply what each head says by numbers in (0, 1) that the layer's input decides.

    :math:`g_i = \sigma(x_i W_\theta)` and :math:`g_i \odot y_i`, equation :eq:`eq-gate`: after
    attention, before the output projection. With it one and the same mean becomes many outputs,
    :eq:`eq-gate-rank`, but a head stays in as many dimensions as it has channels,
    :eq:`eq-head-rank`. The gate of a token sees that token alone, not what its query has found.

    Args:
        dim: Number of channels of the layer's input.
        heads: Number of heads, a divisor of ``dim``.
        kind: ``"headwise"``, one number for a head of a token, or ``"elementwise"``, one for each
            channel of a head.

    Attributes:
        to_gate: :math:`W_\theta`, without a bias: ``dim * heads`` or ``dim * dim`` parameters.
            At its start a gate is about a half.

    Raises:
        ValueError: If ``kind`` is unknown or ``heads`` does not divide ``dim``.

    Source:
        Qiu et al. 2025: their best variant is elementwise, specific to each head, behind attention.
    """

    @checked
    def __init__(self, dim: int, heads: int, kind: str = "elementwise") -> None:
        super().__init__()
        require_split(dim, heads)
        if kind not in GATES:
            raise ValueError(f"gate must be None or one of {', '.join(GATES)}, got {kind!r}")
        self.dim, self.heads, self.kind = int(dim), int(heads), kind
        numbers = self.heads if kind == "headwise" else self.dim
        self.to_gate = nn.Linear(self.dim, numbers, bias=False)

    @checked
    def forward(
        self, y: Floats[Tensor, "... self.heads n c"], x: Floats[Tensor, "... n self.dim"]
    ) -> Tensor:
        """Return the gated outputs of the heads.

        Args:
            y: What attention gives, ``(..., heads, seq, head_dim)``.
            x: The layer's input, ``(..., seq, dim)``.

        Returns:
            Of the shape and dtype of ``y``.
        """
        expected = (*x.shape[:-2], self.heads, x.shape[-2], self.dim // self.heads)
        if y.shape != expected:
            raise ValueError(f"y must have shape {tuple(expected)}, got {tuple(y.shape)}")
        return y * self.values(x).to(y.dtype)

    @checked
    def values(self, x: Floats[Tensor, "... n self.dim"]) -> Tensor:
        """Return the gates themselves, ``(..., heads, seq, 1)`` or ``(..., heads, seq, head_dim)``.

        Args:
            x: The layer's input, ``(..., seq, dim)``.

        """
        open_by = self.to_gate(x).sigmoid()
        return open_by.unflatten(-1, (self.heads, -1)).transpose(-3, -2)

    def extra_repr(self) -> str:
        """Describe the arguments in ``repr``."""
        return f"dim={self.dim}, heads={self.heads}, kind={self.kind}"
