"""How well structured rows estimate the exponential, and what training makes of a circulant.

    python results/circulant_favor.py      # writes results/circulant_favor.json
    python results/circulant_favor.py --seeds 2 --steps 20 --output /tmp/try.json

Five parts, in float64, with heads of 64 channels and, unless said otherwise, 64 features.

Kernel: relative error and bias of the estimate of exp(x·y) for z = x + y of square length 2 in
three directions, over 4,000 draws of the projection for each seed.

Signs: the same in closed form given the signs, for unit-modulus circulants and Hadamard rows of 16
and of 64 channels, and for those whose rows are a simplex, as multiples of the error of independent
rows, averaged over 50 choices of the signs for each seed; z has two equal channels d/2 apart as a
fourth direction. What the signs add that has a known mean, the correlation of pairs to second order
and beyond, is subtracted.

Attention: the distance of the normalised weights of 64 queries and keys of unit length from
softmax's, over the length of the latter (Frobenius norms), for several numbers of features.
"uniform" gives every key the same weight. Short: the same for queries and keys of length 1/2.

Learning: tokens of which a few channels are larger than the rest. A circulant is trained to bring
the normalised weights close to softmax's. Its error is measured on new tokens, and so is the mean
of what its features give over exp(x·y), on such tokens and on tokens of equal channels. What is
learned is the column r ("column"); its coordinates in the orthonormal Fourier basis, which are r at
the start too ("fourier"); a column whose nearest orthogonal circulant, times the root of d, takes
its place ("nearest"); or the phases of a unit-modulus circulant ("phases"). "adam" has three rates;
"descent", plain gradient descent, one, for the first two.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.utils.parametrize import register_parametrization

from lab.theory.structured_variance import (
    circulant_mean_mse,
    circulant_mse,
    hadamard_moments,
    unit_circulant_moments,
)
from lab.train.learn import adam
from lab.train.loop import minimise
from lab.train.study import Study
from stringlib import FavorFeatures
from stringlib.algebra import fourier_basis, hadamard, nearest_orthogonal_circulant
from stringlib.attention.projections import PROJECTIONS

DIM = 64
SIMPLEX = ("simplex", "simplex-hadamard", "simplex-circulant")
KINDS = ("iid", "orthogonal", "hadamard", "circulant", "unit-circulant", *SIMPLEX)
SQUARE, DRAWS = 2.0, 4000
DIRECTIONS = ("random", "constant", "one-hot")
SIGNS = 50
LENGTHS = {"attention": 1.0, "short": 0.5}  # of queries and keys
SIZES = (16, 32, 64, 128, 256, 512)
LARGE, LARGER = 8, 6.0  # channels that are larger, and how much
RATES = {"adam": (0.005, 0.02, 0.08), "descent": (3.0,)}
WAYS = ("column", "fourier", "nearest", "phases")


def directions(seed: int, dim: int = DIM) -> dict[str, Tensor]:
    """Return z of square length ``SQUARE`` for each of ``DIRECTIONS``, and for two channels."""
    random = torch.randn(dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    channels = torch.eye(dim, dtype=torch.float64)
    made = {"random": random, "constant": torch.ones_like(random), "one-hot": channels[0]}
    made["two"] = channels[0] + channels[dim // 2]
    return {name: normalize(z, dim=0) * math.sqrt(SQUARE) for name, z in made.items()}


def kernel_errors(kind: str, seed: int) -> dict[str, tuple[float, float]]:
    """Return for each direction the mean square error and the bias, relative to exp(x·y)."""
    generator = torch.Generator().manual_seed(seed)
    matrices = PROJECTIONS[kind](DIM, DIM, DRAWS, generator=generator).matrix().double()
    errors = {}
    for name in DIRECTIONS:
        error = torch.exp(matrices @ directions(seed)[name] - SQUARE / 2).mean(-1) - 1
        errors[name] = round(error.square().mean().item(), 6), round(error.mean().item(), 6)
    return errors


def chance(kind: str, z: Tensor, signs: Tensor) -> Tensor:
    """Return the part of an error that is due to the signs: its mean over them is 0."""
    dim = len(z)
    if kind.endswith("circulant"):
        return circulant_mse(z, signs[0], dim) - circulant_mean_mse(z, dim)
    v = hadamard(dim) @ (signs[1] * z) / dim**0.5
    index = torch.arange(dim)
    pairs = v * v[index ^ index[:, None]]  # row δ: the products of channels n and n ⊕ δ
    found = (pairs * signs[0] * signs[0][index ^ index[:, None]]).sum(-1).exp()
    return (found - (2 * pairs).cosh().log().sum(-1).div(2).exp())[1:].mean()


def closed_errors(kind: str, seed: int, dim: int) -> dict[str, tuple[float, float]]:
    """Return for each direction error over that of independent rows, and bias, over ``SIGNS``."""
    generator = torch.Generator().manual_seed(seed)
    independent, errors = math.expm1(SQUARE) / dim, {}
    for name, z in directions(seed, dim).items():
        signs = 2.0 * torch.randint(2, (SIGNS, 2, dim), generator=generator).double() - 1
        simplex = kind in SIMPLEX
        if kind.endswith("circulant"):
            found = [unit_circulant_moments(z, s[0], dim, simplex) for s in signs]
        else:
            found = [hadamard_moments(z, s, simplex) for s in signs]
        mean, square = torch.tensor(found, dtype=torch.float64).T
        error, luck = square - 2 * mean + 1, torch.stack([chance(kind, z, s) for s in signs])
        slope = 0 if luck.std() < 1e-9 else torch.cov(torch.stack([error, luck]))[0, 1] / luck.var()
        ratio = (error - slope * luck).mean() / independent
        errors[name] = round(ratio.item(), 5), round(mean.mean().item() - 1, 7)
    return errors


def weights(phi: FavorFeatures, q: Tensor, k: Tensor) -> Tensor:
    """Return normalised attention weights, one row a query."""
    scores = phi(q[None])[0] @ phi(k[None], is_query=False)[0].mT
    return scores / scores.sum(-1, keepdim=True)


def distance(estimate: Tensor, exact: Tensor) -> Tensor:
    """Return the relative distance of two matrices of weights."""
    return (estimate - exact).norm() / exact.norm()


def attention_errors(kind: str, seed: int, length: float, draws: int = 20) -> list[float]:
    """Return the error for each of ``SIZES``; the uniform one for ``kind="uniform"``."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(2, 64, DIM, generator=generator, dtype=torch.float64)
    q, k = length * normalize(drawn, dim=-1)
    exact = (q @ k.mT).softmax(-1)
    if kind == "uniform":
        return [round(distance(torch.full_like(exact, 1 / 64), exact).item(), 5)] * len(SIZES)
    errors = []
    for size in SIZES:
        phi = FavorFeatures(DIM, size, kind, generator=generator).double()
        total = 0.0
        for _ in range(draws):
            phi.redraw(generator)
            total += distance(weights(phi, q, k), exact).item() / draws
        errors.append(round(total, 5))
    return errors


def tokens(count: int, generator: torch.Generator, scale: Tensor | float) -> Tensor:
    """Return queries and keys whose channels have the given scale, of mean square length 1."""
    x = torch.randn(2, count, DIM, generator=generator, dtype=torch.float64) * scale
    return x / x.square().sum(-1).mean().sqrt()


class InFourierBasis(nn.Module):
    """A column by its coordinates in the orthonormal Fourier basis."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("basis", fourier_basis(DIM))

    def forward(self, coordinates: Tensor) -> Tensor:
        """Return the column."""
        return coordinates @ self.basis.to(coordinates).mT

    def right_inverse(self, column: Tensor) -> Tensor:
        """Return the coordinates."""
        return column @ self.basis.to(column)


class Nearest(nn.Module):
    """The nearest orthogonal circulant, with rows of the length that Gaussian ones have."""

    def forward(self, column: Tensor) -> Tensor:
        """Return its column."""
        return math.sqrt(DIM) * nearest_orthogonal_circulant(column)


def learned_features(way: str, generator: torch.Generator) -> FavorFeatures:
    """Return features that learn in one of ``WAYS``."""
    kind = "unit-circulant" if way == "phases" else "circulant"
    phi = FavorFeatures(DIM, DIM, kind, learnable=True, generator=generator).double()
    if way in ("fourier", "nearest"):
        part = InFourierBasis() if way == "fourier" else Nearest()
        register_parametrization(phi.projection, "column", part)
    return phi


def learning(seed: int, steps: int, way: str, optimizer: str, rate: float) -> dict[str, Any]:
    """Train a circulant, and measure before and after."""
    generator = torch.Generator().manual_seed(seed)
    scale = torch.ones(DIM, dtype=torch.float64)
    scale[torch.randperm(DIM, generator=generator)[:LARGE]] = LARGER
    phi = learned_features(way, generator)
    test = {"skewed": tokens(256, generator, scale), "even": tokens(256, generator, 1.0)}

    @torch.no_grad()
    def measure() -> dict[str, float]:
        found = {"length": phi.projection.matrix().norm(dim=-1).mean().item()}
        phi.stabilize = False
        for name, (q, k) in test.items():
            found[f"error {name}"] = distance(weights(phi, q, k), (q @ k.mT).softmax(-1)).item()
            ratio = (phi(q[None]) @ phi(k[None]).mT)[0] / (q @ k.mT).exp()
            found[f"mean {name}"] = ratio.mean().item()
        phi.stabilize = True
        return {name: round(value, 5) for name, value in found.items()}

    def loss(step: int) -> Tensor:
        q, k = tokens(64, generator, scale)
        return distance(weights(phi, q, k), (q @ k.mT).softmax(-1))

    before = measure()
    descent = torch.optim.SGD(phi.parameters(), rate)
    minimise(phi, loss, adam(phi, rate) if optimizer == "adam" else descent, steps)
    return {"before": before, "after": measure()}


def run(seed: int, steps: int, part: str, kind: str, **told: Any) -> dict[str, Any]:
    """Return one of the five parts."""
    if part == "learned":
        return {part: learning(seed, steps, kind, **told)}
    if part == "signs":
        return {part: closed_errors(kind, seed, **told)}
    if part == "kernel":
        return {part: kernel_errors(kind, seed)}
    return {part: attention_errors(kind, seed, LENGTHS[part])}


PARTS = {"kernel": KINDS, **dict.fromkeys(LENGTHS, (*KINDS, "uniform"))}
CELLS: dict[str, dict[str, Any]] = {
    f"{part} {kind}": {"part": part, "kind": kind}
    for part, kinds in PARTS.items()
    for kind in kinds
}
CELLS |= {
    f"signs {kind}, d = {dim}": {"part": "signs", "kind": kind, "dim": dim}
    for kind in ("hadamard", "unit-circulant", *SIMPLEX[1:])
    for dim in (16, 64)
}
for way, (optimizer, rates) in itertools.product(WAYS, RATES.items()):
    if optimizer == "adam" or way in WAYS[:2]:
        CELLS |= {
            f"learned {way}, {optimizer} {rate}": {
                "part": "learned",
                "kind": way,
                "optimizer": optimizer,
                "rate": rate,
            }
            for rate in rates
        }
STUDY = Study(
    __file__,
    __doc__,
    CELLS,
    run,
    steps=300,
    seeds=10,
    steps_are="training steps of each circulant",
    beside={"sizes": SIZES},
)


if __name__ == "__main__":
    STUDY.main()
