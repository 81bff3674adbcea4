r"""Data-dependent positions: each token moves the position by a step of its own.

The position of token i is the sum of the steps of the tokens up to i, :eq:`eq-path-sum`. With a
rotary encoder, scores depend only on differences of positions. So the score of a query and a key
depends on the sum of the steps between them, and not on earlier tokens, :prf:ref:`thm-path-sums`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from stringlib.documents import Documents
from stringlib.encoders.rope import SelectiveRoPE
from stringlib.encoders.rotary import RotaryEncoder
from stringlib.inputs import per_head, require_name
from stringlib.parts import build
from stringlib.precision import widen
from stringlib.spec import Floats, checked

if TYPE_CHECKING:
    from stringlib.attention.layer import AttentionLayer


class PositionSteps(nn.Module):
    r"""Steps of a position that are affine functions of the token, :math:`f(x) = W x + b`.

    At the start W is 0 and b is 1. Then the position of a token is its index, up to a constant. So
    training begins with the encoder, for example RoPE, as it is without steps.

    Args:
        dim: Number of channels of a token.
        coord_dim: Number of coordinates of a position; must be that of the encoder.

    Attributes:
        to_steps: The linear map, with a bias, which is 1 at the start.

    Source:
        Movahedi et al. 2025, who also apply a short convolution.
    """

    @checked
    def __init__(self, dim: int, coord_dim: int = 1) -> None:
        super().__init__()
        self.to_steps = nn.Linear(dim, coord_dim)
        nn.init.zeros_(self.to_steps.weight)
        nn.init.ones_(self.to_steps.bias)

    @checked
    def forward(self, x: Floats[Tensor, "... dim"]) -> Tensor:
        """Return the steps of the tokens ``x``, ``(..., coord_dim)``."""
        return self.to_steps(x)


POSITION_STEPS: dict[str, Callable[..., nn.Module]] = {"learned": PositionSteps}
"""Constructors of position steps by name.

A constructor receives those of the arguments ``dim``, ``heads``, ``head_dim`` and ``coord_dim`` for
which it has parameters.
"""

STEPPED_ENCODERS: dict[str, Callable[..., RotaryEncoder]] = {"selective-rope": SelectiveRoPE}
"""Constructors of rotary encoders by name, for data-dependent positions only.

A constructor receives ``head_dim``, ``heads`` and the options of the layer if it has parameters of
these names. The number of coordinates follows from these arguments. A layer with such an encoder
has the steps ``"learned"`` unless ``position_steps`` is given.
"""


def make_steps(
    steps: nn.Module | str | None, layer: AttentionLayer, given: Any = None
) -> nn.Module | None:
    """Return the module that makes the steps of a layer's positions, or None without one.

    Args:
        steps: The module, a name in :data:`POSITION_STEPS`, or None.
        layer: The layer, which has its encoder already.
        given: The encoder or its name, as the user gave it. With a name in
            :data:`STEPPED_ENCODERS` the steps are ``"learned"`` if ``steps`` is None. Default:
            None.

    Raises:
        ValueError: If the encoder is not a rotary encoder, or if the name is unknown.
    """
    if steps is None and given in STEPPED_ENCODERS:
        steps = "learned"
    if steps is None:
        return None
    encoder = rotary_of(layer.encoder)
    if not isinstance(steps, str):
        return steps
    require_name("position_steps", steps, POSITION_STEPS)
    sizes = {"dim": layer.dim, "heads": layer.heads, "head_dim": encoder.head_dim}
    sizes["coord_dim"] = encoder.coord_dim
    return build(f"position_steps {steps!r}", POSITION_STEPS[steps], sizes)


def rotary_of(encoder: Any) -> RotaryEncoder:
    """Return the encoder of a layer with steps; raise ``ValueError`` unless it is rotary."""
    if not isinstance(encoder, RotaryEncoder):
        raise ValueError(
            "encoder must be a rotary encoder if position_steps is given, got "
            f"{type(encoder).__name__}. Pass for example encoder='rope', or leave out "
            "position_steps."
        )
    return encoder


def path_positions(
    steps: Tensor,
    before: Tensor | None = None,
    key_mask: Tensor | None = None,
    documents: Documents | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the positions of tokens, the sums of the steps so far, and the last position.

    Args:
        steps: Steps of the tokens, ``(..., n, coord_dim)``.
        before: Position of the token before the first one, ``(..., 1, coord_dim)``. Default: None,
            which means 0.
        key_mask: False for padding, whose step is 0, ``(..., n)``. Default: None, no padding.
        documents: The documents of packed sequences. The sums restart at 0 in each document but the
            first, which continues ``before``. Default: None, one document.

    Returns:
        Positions, ``(..., n, coord_dim)``, and the last of them, ``(..., 1, coord_dim)``. Both are
        float64, or float32 on a device without float64.
    """
    lead, n = steps.shape[:-2], steps.shape[-2]
    # float64, because positions grow with the tokens and an encoder sees their differences
    steps = widen(steps)
    if key_mask is not None:
        padding = ~per_head(key_mask, (*lead, 1, n), steps.device).squeeze(-2)
        steps = steps.masked_fill(padding[..., None], 0)
    if before is None:
        before = steps.new_zeros(*lead, 1, steps.shape[-1])
    sums = torch.cat([before.to(steps.dtype), steps], -2).cumsum(-2)
    if documents is None or not n:
        return sums[..., 1:, :], sums[..., -1:, :]
    first = (-documents.offsets).clamp(min=0)  # index of the first token of each document
    of_start = sums.gather(-2, first[..., None].expand(steps.shape))
    of_start = of_start.masked_fill((documents.numbers == 0)[..., None], 0)
    positions = sums[..., 1:, :] - of_start
    return positions, positions[..., -1:, :]
