r"""Norm of the outputs of the heads, combined with a gate."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm, silu

from stringlib.inputs import require_name
from stringlib.precision import at_least_float32
from stringlib.spec import Floats, NotNegative, checked

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"silu": silu, "sigmoid": torch.sigmoid}


class GatedNorm(nn.Module):
    r"""Root mean square norm of the outputs of heads, times a gate, :eq:`eq-gated-norm`.

    If linear attention does not divide its outputs by a sum of weights, their size depends on the
    number of tokens and on the decay. The norm removes this dependence. The output :math:`y_t` of a
    head becomes :math:`w \odot \frac{y_t}{\mathrm{rms}(y_t)} \odot f(W x_t)`, where f is an
    activation and w and W are learned.

    Args:
        dim: Number of channels of the input of the layer.
        heads: Number of heads.
        head_dim: Number of channels of the output of a head.
        activation: The function f of the gate, ``"silu"`` (default) or ``"sigmoid"``.
        rank: If given, W is a product of two matrices of this rank. Default: None.
        groups: If given, the gate is applied before the norm, and the norm is taken over the
            outputs of ``heads // groups`` heads together. Then w has one number for each channel of
            each head. Default: None: the gate is applied after the norm, the norm is taken over
            each head, and w is shared by the heads.
        eps: Number added to the mean square. Default: 1e-5.

    Attributes:
        to_gate: The projection W without a bias, an ``nn.Linear``, or an ``nn.Sequential`` of two
            if ``rank`` is given.
        weight: The factors w, ``(head_dim,)``, or ``(heads * head_dim,)`` with ``groups``. They are
            1 at the start.

    Raises:
        ValueError: If ``activation`` is unknown, or if ``groups`` does not divide ``heads``.

    Source:
        Sun et al. 2023, equation 8, for norm and gate; Zhang and Sennrich 2019 for the norm; Dao
        and Gu 2024 for the gate before the norm; Kimi Team 2025 for the gate of low rank.
    """

    @checked
    def __init__(
        self,
        dim: int,
        heads: int,
        head_dim: int,
        *,
        activation: str = "silu",
        rank: int | None = None,
        groups: int | None = None,
        eps: NotNegative = 1e-5,
    ) -> None:
        super().__init__()
        require_name("activation", activation, ACTIVATIONS)
        if groups is not None and (groups < 1 or heads % groups):
            raise ValueError(
                f"groups must divide heads = {heads}, got {groups}. For a norm of each head pass "
                f"groups={heads}, or leave out groups."
            )
        self.dim, self.heads, self.head_dim = int(dim), int(heads), int(head_dim)
        self.activation, self.groups, self.eps = activation, groups, eps
        width = self.heads * self.head_dim
        self.to_gate: nn.Module = nn.Linear(self.dim, width, bias=False)
        if rank is not None:
            self.to_gate = nn.Sequential(
                nn.Linear(self.dim, rank, bias=False), nn.Linear(rank, width, bias=False)
            )
        self.weight = nn.Parameter(torch.ones(self.head_dim if groups is None else width))

    @checked
    def forward(
        self,
        y: Floats[Tensor, "... self.heads n self.head_dim"],
        x: Floats[Tensor, "... n self.dim"],
    ) -> Tensor:
        """Return the outputs of the heads after norm and gate, side by side.

        Args:
            y: Outputs of the heads, ``(..., heads, seq, head_dim)``.
            x: Input of the layer, ``(..., seq, dim)``.

        Returns:
            ``(..., seq, heads * head_dim)``, in the dtype of ``y``. The norm is computed in float32
            or float64.
        """
        exact = at_least_float32(y.dtype)
        y, gate = y.transpose(-3, -2).to(exact), self.to_gate(x).to(exact)
        gate, weight = ACTIVATIONS[self.activation](gate), self.weight.to(exact)
        if self.groups is None:
            out = rms_norm(y, (self.head_dim,), weight, self.eps).flatten(-2) * gate
        else:
            out = (y.flatten(-2) * gate).unflatten(-1, (self.groups, -1))
            out = rms_norm(out, (out.shape[-1],), eps=self.eps).flatten(-2) * weight
        return out.to(x.dtype)

    def extra_repr(self) -> str:
        """Return the arguments that ``repr`` shows."""
        groups = "" if self.groups is None else f", groups={self.groups}"
        return f"heads={self.heads}, head_dim={self.head_dim}, {self.activation}{groups}"
