"""Every kernelised attention, in the forms that its contract must survive: add a new one here.

A case pairs feature maps with a position weight and says, by its own formula, what the dense
weights are: nothing here asks the package for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import stringlib
from stringlib import (
    CosineWeight,
    DecayWeight,
    FeatureMap,
    PositionWeight,
    RampWeight,
    ToeplitzWeight,
)

HEADS, HEAD_DIM = 3, 5
Draw = Callable[[tuple[int, ...], int, torch.Generator], Tensor]


@dataclass(frozen=True)
class Weight:
    """A position weight, with tensors that it learns from and its dense matrix by formula.

    Attributes:
        draw: From batch shape, length and generator to the tensor it is made from, or None.
        build: From that tensor (None) and the length to the weight.
        dense: From the same to w(i, j) ``(..., heads or 1, n, n)``; with a feature axis at the
            end if the features differ.
        modes: Those that it knows, beside None.
        causal: Whether it works causally, or not causally, or both.
        carries: Whether a state can be carried over.
    """

    draw: Draw | None
    build: Callable[[Tensor | None, int, int], PositionWeight | None]
    dense: Callable[[Tensor | None, int], Tensor]
    modes: tuple[str, ...]
    causal: tuple[bool, ...] = (False, True)
    carries: bool = True


def _distance(n: int) -> Tensor:
    """Return i − j."""
    i = torch.arange(n, dtype=torch.float64)
    return i[:, None] - i


def _ramp(n: int, power: int) -> Tensor:
    return (1 - _distance(n).clamp(min=0) / (n + 2.5))[None] ** power


def _toeplitz(bias: Tensor | None, n: int) -> Tensor:
    assert bias is not None
    rows = [[bias[:, n - 1 + (j - i)] for j in range(n)] for i in range(n)]
    return torch.stack([torch.stack(row, -1) for row in rows], -2).exp()


def _decays(log_decay: Tensor | None, n: int) -> Tensor:
    """Return the products of the decays from j+1 to i, one factor after the other."""
    assert log_decay is not None
    vector = log_decay.ndim > 1 and log_decay.shape[-1] != n
    if log_decay.ndim == 1:
        log_decay = log_decay[:, None].expand(-1, n)
    steps = log_decay.exp() if vector else log_decay.exp()[..., None]
    rows = []
    for i in range(n):
        row = [torch.zeros_like(steps[..., 0, :]) for _ in range(n)]
        product = torch.ones_like(steps[..., 0, :])
        for j in range(i, -1, -1):
            row[j] = product
            product = product * steps[..., j, :]
        rows.append(torch.stack(row, -2))
    dense = torch.stack(rows, -3)
    return dense if vector else dense[..., 0]


ALL = ("parallel", "recurrent", "chunk")


def _decay(draw: Draw) -> Weight:
    return Weight(draw, lambda t, n, start: DecayWeight(t), _decays, ALL, causal=(True,))


WEIGHTS: dict[str, Weight] = {
    "constant": Weight(
        None, lambda t, n, start: None, lambda t, n: torch.ones(1, n, n).double(), ALL
    ),
    "cosine": Weight(
        None,
        lambda t, n, start: CosineWeight(n + start + 2.5),
        lambda t, n: torch.cos(_distance(n) * (math.pi / 2 / (n + 2.5)))[None],
        ALL,
    ),
    "cosine-positive": Weight(
        None,
        lambda t, n, start: CosineWeight(6.0, positive=True),
        lambda t, n: (1 + torch.cos(_distance(n) * (math.pi / 12)))[None] / 2,
        ALL,
    ),
    "ramp": Weight(
        None,
        lambda t, n, start: RampWeight(n + start + 2.5),
        lambda t, n: _ramp(n, 1),
        ALL,
        causal=(True,),
    ),
    "ramp-squared": Weight(
        None,
        lambda t, n, start: RampWeight(n + start + 2.5, power=2),
        lambda t, n: _ramp(n, 2),
        ALL,
        causal=(True,),
    ),
    "toeplitz": Weight(
        lambda batch, n, g: torch.randn(HEADS, 2 * n - 1, generator=g, dtype=torch.float64),
        lambda t, n, start: ToeplitzWeight(t),
        _toeplitz,
        ("parallel", "fft"),
        carries=False,
    ),
    "decay-heads": _decay(lambda batch, n, g: -torch.rand(HEADS, generator=g).double()),
    "decay-scalar": _decay(
        lambda batch, n, g: -2 * torch.rand(*batch, HEADS, n, generator=g).double()
    ),
    "decay-vector": _decay(
        lambda batch, n, g: -3 * torch.rand(*batch, HEADS, n, 4, generator=g).double()
    ),
}
"""Name → weight. Lengths must differ from 4, the number of features that "decay-vector" wants."""


@dataclass(frozen=True)
class Features:
    """A feature map, with its formula written out once more.

    Attributes:
        make: Constructor of the map, of float64, for ``HEADS`` heads.
        plain: From the map, for what it has drawn, and ``(..., heads, n, d)`` to features that
            differ from those of the map by a factor for each token at most.
        head_dim: Channels of a head.
        exponential: Whether products stand for exp(xᵀy), so that a layer has to scale by d^(−1/4).
        nonnegative: Whether no feature is negative.
        stabilized: Whether the map leaves out factors that depend on the tokens.
    """

    make: Callable[[], FeatureMap]
    plain: Callable[[FeatureMap, Tensor], Tensor]
    head_dim: int = HEAD_DIM
    exponential: bool = False
    nonnegative: bool = True
    stabilized: bool = False


def _exponentials(phi: FeatureMap, x: Tensor) -> Tensor:
    w = phi.projection_matrix()
    w = torch.cat([w, -w], -2) if phi.hyperbolic else w
    alpha = torch.zeros(1, w.shape[-1]).double() if phi.alpha is None else phi.alpha
    along = (x * (1 - 4 * alpha).sqrt()[:, None]) @ w.mT + (w.square() @ alpha[..., None]).mT
    return torch.exp(along - x.square().sum(-1, keepdim=True) / 2)


def _favor(projection: str, m: int, head_dim: int = HEAD_DIM, **options: Any) -> Features:
    def make() -> FeatureMap:
        generator = torch.Generator().manual_seed(5)
        return stringlib.FavorFeatures(
            head_dim, m, projection, heads=HEADS, generator=generator, **options
        ).double()

    stabilized = options.get("stabilize", True)
    return Features(make, _exponentials, head_dim, exponential=True, stabilized=stabilized)


FEATURES: dict[str, Features] = {
    "identity": Features(stringlib.IdentityFeatures, lambda phi, x: x,
                         nonnegative=False),
    "relu": Features(stringlib.ReLUFeatures, lambda phi, x: x.clamp(min=0)),
    "elu": Features(stringlib.ELUFeatures, lambda phi, x: torch.where(x > 0, x + 1, x.exp())),
    "favor": _favor("orthogonal", 12),
    "favor-raw": _favor("orthogonal", 5, stabilize=False),
    "favor-iid": _favor("iid", 7),
    "favor-hadamard": _favor("hadamard", 9, head_dim=8),
    "favor-circulant": _favor("circulant", 3),
    "favor-circulant-stacked": _favor("circulant", 11),
    "favor-unit-circulant": _favor("unit-circulant", 8),
    "favor-learned": _favor("circulant", 5, learnable=True),
    "hyperbolic": _favor("orthogonal", 4, hyperbolic=True),
    "favor-optimal": _favor("orthogonal", 12, mean_square=2 * HEAD_DIM**0.5),
    "favor-diagonal": _favor("iid", 7, hyperbolic=True, mean_square=torch.rand(HEADS, HEAD_DIM)),
}  # fmt: skip
"""Name, that of the registry where it has one → feature map."""


def inputs(
    n: int, batch: tuple[int, ...] = (2,), m: int = 4, d_v: int = 6, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Return positive features of queries and keys, and values, all different, float64."""
    generator = torch.Generator().manual_seed(seed)
    phi_q, phi_k = torch.rand(2, *batch, HEADS, n, m, generator=generator, dtype=torch.float64)
    v = torch.randn(*batch, HEADS, n, d_v, generator=generator, dtype=torch.float64)
    return phi_q + 0.05, phi_k + 0.05, v


def dense_attention(
    phi_q: Tensor, phi_k: Tensor, v: Tensor, weights: Tensor, causal: bool, normalize: bool = True
) -> Tensor:
    """Return the attention by its definition: every weight written out, then the sums."""
    if weights.ndim == phi_q.ndim + 1 and weights.shape[-1] == phi_q.shape[-1]:
        a = torch.einsum("...im,...jm,...ijm->...ij", phi_q, phi_k, weights)
    else:
        a = torch.einsum("...im,...jm->...ij", phi_q, phi_k) * weights
    if causal:
        a = a.tril()
    out = torch.einsum("...ij,...jd->...id", a, v)
    return out / a.sum(-1)[..., None] if normalize else out
