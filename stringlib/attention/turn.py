r"""A random rotation after which attention with any feature map is relative in distribution."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stringlib.encoders.rotary import RotaryEncoder
from stringlib.encoders.string import STRING
from stringlib.precision import widest
from stringlib.spec import checked


@torch.no_grad()
@checked
def random_turn(encoder: RotaryEncoder, generator: torch.Generator | None = None) -> Tensor:
    r"""Return a random matrix B that rotates every plane of an encoder by a uniform angle.

    The angles of different planes are independent. Multiply queries and keys by B, or use the
    projections :math:`BW_q` and :math:`BW_k`. Then attention with any feature map applied after the
    encoder is relative in distribution, :eq:`eq-torus-turn`. This means that shifting all positions
    by the same amount does not change the distribution of the outputs.

    The reason is as follows. With the rotation R(t) of the encoder, a shift of all positions by t
    replaces the random matrix W of a feature map by WR(t), :eq:`eq-torus-shift`. Attention is
    relative in distribution if WR(t) has the same distribution as W, :eq:`eq-torus-law`. B has this
    effect, because B commutes with R(t) and BR(t) has the same distribution as B.

    Draw one B for queries and keys together, and a new B whenever random features are resampled.

    Args:
        encoder: The rotary encoder that is applied before the feature map.
        generator: Random number generator. Default: the global generator.

    Returns:
        The orthogonal matrices B, float64, ``(heads, head_dim, head_dim)``.
    """
    frequencies = encoder.frequencies()
    device = frequencies.device if generator is None else generator.device
    shares = torch.rand(
        frequencies.shape[:2], generator=generator, dtype=widest(device), device=device
    )
    basis = encoder.basis()
    angles = 2 * math.pi * shares[..., None].to(basis.device)
    rotation = STRING(angles, basis, head_dim=encoder.head_dim, layout=encoder.layout)
    return rotation.matrix(basis.new_ones(1, 1)).squeeze(-3)
