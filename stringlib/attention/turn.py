r"""One random turn that makes every feature map relative in law."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stringlib.encoders.string import STRING, RotaryEncoder
from stringlib.precision import widest
from stringlib.spec import checked


@torch.no_grad()
@checked
def random_turn(encoder: RotaryEncoder, generator: torch.Generator | None = None) -> Tensor:
    r"""Draw B, which turns every plane of an encoder by an angle of its own, uniform on the circle.

    Shifting positions turns the matrix W of a feature map, :eq:`eq-torus-shift`, and attention is
    relative in law if W has the law of WR(t), :eq:`eq-torus-law`. B commutes with R(r), and BR(r)
    has the law of B. So queries and keys that are multiplied by B, or come from projections
    :math:`BW_q` and :math:`BW_k`, make any feature map behind the encoder relative in law,
    :eq:`eq-torus-turn`. Draw one B for queries and keys together, and a new one whenever random
    features are redrawn.

    Args:
        encoder: The encoder that stands before the feature map.
        generator: Source of randomness; the global one if omitted.

    Returns:
        Orthogonal, float64, ``(heads, head_dim, head_dim)``.
    """
    frequencies = encoder.frequencies()
    device = frequencies.device if generator is None else generator.device
    shares = torch.rand(
        frequencies.shape[:2], generator=generator, dtype=widest(device), device=device
    )
    basis = encoder.basis()
    angles = 2 * math.pi * shares[..., None].to(basis.device)
    turn = STRING(angles, basis, head_dim=encoder.head_dim, layout=encoder.layout)
    return turn.matrix(basis.new_ones(1, 1)).squeeze(-3)
