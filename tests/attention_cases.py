"""Every kernelised attention, in the forms that its contract must survive: add a new one here.

A case pairs feature maps with a position weight and says, by its own formula, what the dense
weights are: nothing here asks the package for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

import stringlib
from lab.methods import METHODS
from stringlib import (
    CosineWeight,
    DecayWeight,
    FallingWeight,
    FeatureMap,
    RampWeight,
    ToeplitzWeight,
)
from stringlib.attention import registry
from stringlib.attention.decay import SteppedDecay
from stringlib.parts import Registry
from stringlib.reference import falling_weight
from stringlib.testing.cases import feature_case, weight_case
from stringlib.testing.features import Mapped
from stringlib.testing.weights import Draw, Weighted

HEADS, HEAD_DIM = 3, 5


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


def decays(log_decay: Tensor) -> Tensor:
    """Return the products of the decays from j+1 to i, for ``(..., n, m)``: ``(..., n, n, m)``."""
    steps, n = log_decay.exp(), log_decay.shape[-2]
    rows = [[steps[..., j + 1 : i + 1, :].prod(-2) * (j <= i) for j in range(n)] for i in range(n)]
    return torch.stack([torch.stack(row, -2) for row in rows], -3)


ALL = ("parallel", "recurrent", "chunk")


def _decay(draw: Draw, dense: Callable[[Any, int], Tensor], **options: Any) -> Weighted:
    build = lambda t, n, start: DecayWeight(t)  # noqa: E731
    return Weighted(draw, build, dense, ALL, causal=(True,), **options)


WEIGHTS: dict[str, Weighted] = {
    "constant": Weighted(
        None, lambda t, n, start: None, lambda t, n: torch.ones(1, n, n).double(), ALL
    ),
    "cosine": Weighted(
        None,
        lambda t, n, start: CosineWeight(n + start + 2.5),
        lambda t, n: torch.cos(_distance(n) * (math.pi / 2 / (n + 2.5)))[None],
        ALL,
    ),
    "cosine-positive": Weighted(
        None,
        lambda t, n, start: CosineWeight(6.0, positive=True),
        lambda t, n: (1 + torch.cos(_distance(n) * (math.pi / 12)))[None] / 2,
        ALL,
    ),
    **{
        name: Weighted(
            None,
            lambda t, n, start, power=power: RampWeight(n + start + 2.5, power=power),
            lambda t, n, power=power: _ramp(n, power),
            ALL,
            causal=(True,),
        )
        for name, power in (("ramp", 1), ("ramp-squared", 2))
    },
    "falling": Weighted(
        None,
        lambda t, n, start: FallingWeight(n + start + 2.5, degree=4),
        lambda t, n: falling_weight(_distance(n).clamp(min=0) / (n + 2.5), 4)[None],
        ALL,
        causal=(True,),
    ),
    "toeplitz": Weighted(
        lambda batch, n, g: torch.randn(HEADS, 2 * n - 1, generator=g, dtype=torch.float64),
        lambda t, n, start: ToeplitzWeight(t),
        _toeplitz,
        ("parallel", "fft"),
        carries=False,
        rectangular=False,
    ),
    "decay-heads": _decay(
        lambda batch, n, g: -torch.rand(HEADS, generator=g).double(),
        lambda t, n: decays(t[:, None, None].expand(-1, n, 1))[..., 0],
    ),
    "decay-scalar": _decay(
        lambda batch, n, g: -2 * torch.rand(*batch, HEADS, n, generator=g).double(),
        lambda t, n: decays(t[..., None])[..., 0],
        cut=lambda t, start, end: t[..., start:end],
    ),
    "stepped": Weighted(
        lambda batch, n, g: -2 * torch.rand(*batch, HEADS, n, generator=g).double(),
        lambda t, n, start: SteppedDecay(t, -t),
        lambda t, n: decays(t[..., None])[..., 0] * -t[..., None, :],
        ALL,
        causal=(True,),
        cut=lambda t, start, end: t[..., start:end],
    ),
    "decay-vector": _decay(
        lambda batch, n, g: -3 * torch.rand(*batch, HEADS, n, 4, generator=g).double(),
        lambda t, n: decays(t),
        cut=lambda t, start, end: t[..., start:end, :],
    ),
}
"""Name → weight; "decay-vector" is for 4 features."""


def _exponentials(phi: FeatureMap, x: Tensor, hyperbolic: bool, optimal: bool) -> Tensor:
    w = phi.projection_matrix()
    w = torch.cat([w, -w], -2) if hyperbolic else w
    alpha = phi.alpha if optimal else torch.zeros(1, w.shape[-1]).double()
    along = (x * (1 - 4 * alpha).sqrt()[:, None]) @ w.mT + (w.square() @ alpha[..., None]).mT
    return torch.exp(along - x.square().sum(-1, keepdim=True) / 2)


def _favor(projection: str, m: int, head_dim: int = HEAD_DIM, **options: Any) -> Mapped:
    def make() -> FeatureMap:
        generator = torch.Generator().manual_seed(5)
        return stringlib.FavorFeatures(
            head_dim, m, projection, heads=HEADS, generator=generator, **options
        ).double()

    plain = partial(
        _exponentials,
        hyperbolic=options.get("hyperbolic", False),
        optimal="mean_square" in options,
    )
    stabilized = options.get("stabilize", True)
    return Mapped(make, plain, head_dim, HEADS, exponential=True, stabilized=stabilized)


def _hedgehog(phi: FeatureMap, x: Tensor) -> Tensor:
    y = torch.einsum("hij,...hnj->...hni", phi.weight, x)
    positive, negative = y.exp(), (-y).exp()
    total = (positive + negative).sum(-1, keepdim=True)
    return torch.cat([positive, negative], -1) / total


def _taylor(phi: FeatureMap, x: Tensor) -> Tensor:
    pairs = torch.einsum("...i,...j->...ij", x, x) / 2**0.5
    return torch.cat([torch.ones_like(x[..., :1]), x, pairs.flatten(-2)], -1)


def _shaken(phi: FeatureMap) -> FeatureMap:
    """Return a map in float64 whose learned numbers are not those of its start."""
    torch.manual_seed(6)
    with torch.no_grad():
        for parameter in phi.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
    return phi.double()


FEATURES: dict[str, Mapped] = {
    "identity": Mapped(stringlib.IdentityFeatures, lambda phi, x: x,
                       nonnegative=False),
    "relu": Mapped(stringlib.ReLUFeatures, lambda phi, x: x.clamp(min=0)),
    "elu": Mapped(stringlib.ELUFeatures, lambda phi, x: torch.where(x > 0, x + 1, x.exp())),
    "hedgehog": Mapped(lambda: _shaken(stringlib.HedgehogFeatures(HEAD_DIM, HEADS)), _hedgehog,
                       HEAD_DIM, HEADS),
    "taylor": Mapped(lambda: stringlib.TaylorFeatures(HEAD_DIM), _taylor, HEAD_DIM, HEADS,
                     nonnegative=False),
    "favor": _favor("orthogonal", 12),
    "favor-raw": _favor("orthogonal", 5, stabilize=False),
    "favor-iid": _favor("iid", 7),
    "favor-hadamard": _favor("hadamard", 9, head_dim=8),
    "favor-simplex": _favor("simplex", 11),
    "favor-simplex-hadamard": _favor("simplex-hadamard", 9, head_dim=6),
    "favor-circulant": _favor("circulant", 3),
    "favor-circulant-stacked": _favor("circulant", 11),
    "favor-unit-circulant": _favor("unit-circulant", 8),
    "favor-simplex-circulant": _favor("simplex-circulant", 8),
    "favor-learned": _favor("circulant", 5, learnable=True),
    "hyperbolic": _favor("orthogonal", 4, hyperbolic=True),
    "favor-optimal": _favor("orthogonal", 12, mean_square=2 * HEAD_DIM**0.5),
    "favor-diagonal": _favor("iid", 7, hyperbolic=True, mean_square=torch.rand(HEADS, HEAD_DIM)),
}  # fmt: skip
"""Name, that of the registry where it has one → feature map."""


def features_by_name(known: Registry) -> dict[str, Mapped]:
    """Return cases of those maps of a registry that have none here: without a formula."""
    return {name: feature_case(make)[1] for name, make in known.items() if name not in FEATURES}


def weights_by_name(known: Registry) -> dict[str, Weighted]:
    """Return cases of those weights of a registry that are of no class with a matrix here.

    What a layer learns makes one of these classes for its tokens.
    """
    draws = torch.Generator().manual_seed(0)
    written = tuple(
        type(case.build(case.draw and case.draw((2,), 5, draws), 5, 0)) for case in WEIGHTS.values()
    )
    found = {}
    for name, make in known.items():
        case = weight_case(partial(make, **METHODS[name].options))[1]
        one = case.build(case.draw and case.draw((2,), 5, draws), 5, 0)
        if not isinstance(one, written):
            found[name] = case
    return found


FEATURES |= features_by_name(registry.FEATURES)
WEIGHTS |= weights_by_name(registry.WEIGHTS)
