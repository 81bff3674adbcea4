"""How far attention with random features is from softmax, and from two maps without chance.

    python results/favor_plus.py      # writes results/favor_plus.json
    python results/favor_plus.py --seeds 2 --steps 32 --output /tmp/try.json

Queries and keys lie on a sphere in 64 dimensions; t is the square of its radius, and so the inverse
temperature of softmax on unit vectors. "spread": all of them are independent. "matched": key i has
the cosine 0.8 with query i, and so every query has one key to find.

The error of a map is the distance of its matrix of attention weights from softmax's, over the
length of the latter (Frobenius norms). All maps get the same number m of features: those with two
features a row of W have m/2 rows. "optimal" has orthogonal rows and the features of least variance
for the mean of ||q + k||^2 over all pairs, "optimal-hyperbolic" both signs of these. Two maps look
at no random numbers: "uniform" gives every key the same weight, and "line" takes exp(x) for 1 + x,
which needs 65 features.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from lab.train.study import Study
from stringlib import FavorFeatures
from stringlib.reference import trigonometric_features

DIM = 64
KINDS = ("spread", "matched")
SQUARES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
SIZES = (16, 32, 64, 128, 256, 512, 1024, 2048)
PROJECTIONS = ("iid", "orthogonal", "hadamard", "circulant", "unit-circulant")
ORTHOGONAL = ("hyperbolic", "optimal", "optimal-hyperbolic")  # these too have orthogonal rows
MAPS = (*PROJECTIONS, *ORTHOGONAL, "trigonometric")  # which has independent ones


def tokens(kind: str, square: float, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return queries and keys, ``(count, DIM)``, of squared length ``square``.

    Args:
        kind: One of ``KINDS``.
        square: t.
        count: How many of each.
        seed: Decides the directions, which are the same for every ``square``.
    """
    generator = torch.Generator().manual_seed(seed)
    draws = torch.randn(2, count, DIM, generator=generator, dtype=torch.float64)
    q, k = normalize(draws, dim=-1)
    if kind == "matched":
        aside = normalize(k - (k * q).sum(-1, keepdim=True) * q, dim=-1)
        k = 0.8 * q + 0.6 * aside
    return math.sqrt(square) * q, math.sqrt(square) * k


def scores(name: str, size: int, q: Tensor, k: Tensor, seed: int) -> Tensor:
    """Return an estimate of exp(q·k), each row up to a factor.

    Args:
        name: One of ``MAPS``.
        size: Number of features m.
        q: Queries, ``(n, DIM)``.
        k: Keys, ``(n, DIM)``.
        seed: Of the random matrix.
    """
    if name == "trigonometric":
        generator = torch.Generator().manual_seed(1000 + seed)
        matrix = torch.randn(size // 2, DIM, generator=generator, dtype=torch.float64)
        return trigonometric_features(q, matrix) @ trigonometric_features(k, matrix).T
    # the mean of ||q + k||^2 over all pairs
    square = (q.square().mean(0) + k.square().mean(0) + 2 * q.mean(0) * k.mean(0)).sum().item()
    phi = features(name, size, seed, square if "optimal" in name else 0.0)
    return (phi(q[None]) @ phi(k[None], is_query=False).mT)[0]


@functools.cache
def features(name: str, size: int, seed: int, mean_square: float) -> FavorFeatures:
    """Return the feature map of a name, with ``size`` features, in float64."""
    both = name.endswith("hyperbolic")
    return FavorFeatures(
        DIM,
        size // 2 if both else size,
        "orthogonal" if name in ORTHOGONAL else name,
        hyperbolic=both,
        generator=torch.Generator().manual_seed(1000 + seed),
        mean_square=mean_square,
    ).double()


def attention(estimate: Tensor) -> Tensor:
    """Return the rows over their sums."""
    return estimate / estimate.sum(-1, keepdim=True)


def error(weights: Tensor, exact: Tensor) -> float:
    """Return the distance of attention weights from the exact ones, over the length of these."""
    return float(f"{(torch.linalg.norm(weights - exact) / torch.linalg.norm(exact)).item():.4g}")


def run(seed: int, steps: int, kind: str, square: float) -> dict[str, Any]:
    """Return the error of each map, of those with random features for each of ``SIZES``.

    Args:
        seed: Of tokens and random matrices.
        steps: Number of queries, and of keys.
        kind: One of ``KINDS``.
        square: t.
    """
    q, k = tokens(kind, square, steps, seed)
    exact = attention((q @ k.T).exp())
    found: dict[str, Any] = {
        "uniform": error(attention(torch.ones(steps, steps)), exact),
        "line": error(attention(1 + q @ k.T), exact),
    }
    for name in MAPS:
        found[name] = [error(attention(scores(name, m, q, k, seed)), exact) for m in SIZES]
    return {"error": found}


CELLS = {f"{kind}, t = {t:g}": {"kind": kind, "square": t} for kind in KINDS for t in SQUARES}
STUDY = Study(
    __file__,
    __doc__,
    CELLS,
    run,
    steps=128,
    seeds=12,
    steps_are="queries, and keys",
    beside={"dim": DIM, "sizes": SIZES},
)


if __name__ == "__main__":
    STUDY.main()
