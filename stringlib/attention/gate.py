r"""Output gate of attention: :math:`Y \odot \sigma(X W_\theta)`."""

from __future__ import annotations

from torch import Tensor, nn

from stringlib.inputs import did_you_mean, require_name, require_split
from stringlib.spec import Floats, checked

GATES = ("headwise", "elementwise")


class Gate(nn.Module):
    r"""Output gate: multiplies the outputs of the heads by numbers in (0, 1).

    The numbers are computed from the input of the layer. For the input :math:`x_i` of token i the
    numbers are :math:`g_i = \sigma(x_i W_\theta)`, equation :eq:`eq-gate`. The output :math:`y_i`
    of the heads becomes :math:`g_i \odot y_i`, before the output projection. The gate of a token
    depends on this token alone, and not on other tokens or on the attention weights.

    If several queries have the same weighted mean of values, different gates give these queries
    different outputs, :eq:`eq-gate-rank`. But a gate does not raise the rank of a head, which is at
    most the number of channels of the head, :eq:`eq-head-rank`.

    Args:
        dim: Number of channels of the input of the layer.
        heads: Number of heads; must divide ``dim``.
        kind: ``"headwise"`` for one number per token and head, or ``"elementwise"`` (default) for
            one number per token and channel.

    Attributes:
        to_gate: The projection :math:`W_\theta`, an ``nn.Linear`` without a bias. A headwise gate
            has ``dim * heads`` parameters, an elementwise gate ``dim * dim``. Before training,
            gates are about 1/2.

    Raises:
        ValueError: If ``kind`` is unknown or ``heads`` does not divide ``dim``.

    Source:
        Qiu et al. 2025. The best variant there is elementwise, specific to each head, and applied
        after attention.
    """

    @checked
    def __init__(self, dim: int, heads: int, kind: str = "elementwise") -> None:
        super().__init__()
        require_split(dim, heads)
        require_name("kind", kind, GATES)
        self.dim, self.heads, self.kind = int(dim), int(heads), kind
        numbers = self.heads if kind == "headwise" else self.dim
        self.to_gate = nn.Linear(self.dim, numbers, bias=False)

    @checked
    def forward(
        self, y: Floats[Tensor, "... self.heads n c"], x: Floats[Tensor, "... n self.dim"]
    ) -> Tensor:
        """Return the gated outputs of the heads.

        Args:
            y: Outputs of the heads, ``(..., heads, seq, head_dim)``.
            x: Input of the layer, ``(..., seq, dim)``.

        Returns:
            The product of ``y`` and the gates, in the shape and dtype of ``y``.

        Raises:
            ValueError: If the shape of ``y`` does not fit ``x``.
        """
        expected = (*x.shape[:-2], self.heads, x.shape[-2], self.dim // self.heads)
        if y.shape != expected:
            raise ValueError(f"y must have shape {tuple(expected)}, got {tuple(y.shape)}")
        return y * self.values(x).to(y.dtype)

    @checked
    def values(self, x: Floats[Tensor, "... n self.dim"]) -> Tensor:
        """Return the numbers in (0, 1) by which the outputs of the heads are multiplied.

        Args:
            x: Input of the layer, ``(..., seq, dim)``.

        Returns:
            ``(..., heads, seq, 1)`` if headwise, ``(..., heads, seq, head_dim)`` if elementwise.
        """
        open_by = self.to_gate(x).sigmoid()
        return open_by.unflatten(-1, (self.heads, -1)).transpose(-3, -2)

    def extra_repr(self) -> str:
        """Return the arguments that ``repr`` shows."""
        return f"dim={self.dim}, heads={self.heads}, kind={self.kind}"


def make_gate(kind: str | None, dim: int, heads: int) -> Gate | None:
    """Return the gate of a layer, or None without one.

    Args:
        kind: ``"headwise"``, ``"elementwise"`` or None.
        dim: Number of channels of the input of the layer.
        heads: Number of heads.

    Raises:
        ValueError: If ``kind`` is unknown.
    """
    if kind is not None and kind not in GATES:
        raise ValueError(
            f"gate must be None or one of {', '.join(GATES)}, got {kind!r}"
            f"{did_you_mean(kind, GATES)}"
        )
    return None if kind is None else Gate(dim, heads, kind)
