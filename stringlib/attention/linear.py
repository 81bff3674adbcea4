r"""Kernelised attention: softmax's exponential replaced by a product of features."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from stringlib.attention.causal import causal_sums
from stringlib.attention.decay import decayed_sums
from stringlib.attention.weights import PositionWeight, masked_product


class LinearState(NamedTuple):
    """What the tokens so far leave behind: all that later ones need to know of them.

    Attributes:
        sums: Features times [values, 1], ``(..., heads, m, d_v + 1)``.
        log_scale: Natural logarithm of the factor left out of ``sums``, ``(..., heads)``, or None.
        length: Number of tokens so far.
    """

    sums: Tensor
    log_scale: Tensor | None
    length: int


def linear_attention(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    weight: PositionWeight | None = None,
    causal: bool = False,
    normalize: bool = True,
    mode: str | None = None,
    *,
    key_scale: Tensor | None = None,
    key_mask: Tensor | None = None,
    state: LinearState | None = None,
    return_state: bool = False,
) -> Tensor | tuple[Tensor, LinearState]:
    """Skeleton: right, not fast."""
    ones = v.new_ones(*v.shape[:-1], 1)
    u = torch.cat([v, ones], -1)
    if key_mask is not None:
        phi_k = phi_k.masked_fill(~key_mask[..., None], 0)
        u = u.masked_fill(~key_mask[..., None], 0)
    start = 0 if state is None else state.length
    before = None if state is None else state.sums
    log_scale = None
    if key_scale is not None:
        if not causal:
            phi_k = phi_k * (key_scale - key_scale.amax(-1, keepdim=True)).exp()[..., None]
        else:
            running = key_scale.cummax(-1).values
            last = key_scale[..., :1] if state is None else state.log_scale[..., None]
            running = torch.maximum(running, last)
            log_decay = torch.cat([last, running[..., :-1]], -1) - running
            phi_k = phi_k * (key_scale - running).exp()[..., None]
            log_scale = running[..., -1]
            sums, after = decayed_sums(phi_q, phi_k, u, log_decay, mode=mode, state=before)
    if key_scale is None or not causal:
        if weight is not None:
            sums, after = weight.sums(
                phi_q, phi_k, u, causal=causal, mode=mode, state=before, start=start
            )
        elif causal:
            sums, after = causal_sums(phi_q, phi_k, u, mode=mode, state=before)
        elif mode == "parallel":
            sums, after = masked_product(phi_q, phi_k, u, None, False), None
        else:
            sums, after = phi_q @ (phi_k.mT @ u), None
    numerator, denominator = sums[..., :-1], sums[..., -1:]
    out = numerator / denominator.masked_fill(denominator == 0, 1) if normalize else numerator
    if return_state:
        return out, LinearState(after, log_scale, start + v.shape[-2])
    return out
