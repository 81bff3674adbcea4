"""How well structured rows estimate the exponential, and what training makes of a circulant.

    python results/circulant_favor.py      # writes results/circulant_favor.json
    python results/circulant_favor.py --seeds 2 --steps 20 --output /tmp/try.json

Three parts, in float64, with heads of 64 channels and, unless said otherwise, 64 features.

Kernel: relative error and bias of the estimate of exp(x·y) for z = x + y of square length 2 in
three directions, over 4,000 draws of the projection for each seed.

Attention: the distance of the normalised weights of 64 queries and keys of unit length from
softmax's, over the length of the latter (Frobenius norms), for several numbers of features.
"uniform" gives every key the same weight.

Learning: tokens of which a few channels are larger than the rest. The column r of a circulant is
trained to bring the normalised weights close to softmax's. Its error is measured on new tokens, and
so is the mean of what its features give over exp(x·y), on such tokens and on tokens of equal
channels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from stringlib import FavorFeatures
from stringlib.attention.projections import PROJECTIONS
from stringlib.records import record_study

DIM = 64
KINDS = tuple(PROJECTIONS)
SQUARE, DRAWS = 2.0, 4000
DIRECTIONS = ("random", "constant", "one-hot")
SIZES = (16, 32, 64, 128, 256, 512)
LARGE, LARGER = 8, 6.0  # channels that are larger, and how much


def directions(seed: int) -> dict[str, Tensor]:
    """Return z of square length ``SQUARE`` for each of ``DIRECTIONS``."""
    random = torch.randn(DIM, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    one_hot = torch.zeros(DIM, dtype=torch.float64)
    one_hot[0] = 1.0
    made = {"random": random, "constant": torch.ones_like(random), "one-hot": one_hot}
    return {name: normalize(z, dim=0) * math.sqrt(SQUARE) for name, z in made.items()}


def kernel_errors(kind: str, seed: int) -> dict[str, tuple[float, float]]:
    """Return for each direction the mean square error and the bias, relative to exp(x·y)."""
    generator = torch.Generator().manual_seed(seed)
    matrices = PROJECTIONS[kind](DIM, DIM, DRAWS, generator=generator).matrix().double()
    errors = {}
    for name, z in directions(seed).items():
        error = torch.exp(matrices @ z - SQUARE / 2).mean(-1) - 1
        errors[name] = round(error.square().mean().item(), 6), round(error.mean().item(), 6)
    return errors


def weights(phi: FavorFeatures, q: Tensor, k: Tensor) -> Tensor:
    """Return normalised attention weights, one row a query."""
    scores = phi(q[None])[0] @ phi(k[None], is_query=False)[0].mT
    return scores / scores.sum(-1, keepdim=True)


def distance(estimate: Tensor, exact: Tensor) -> Tensor:
    """Return the relative distance of two matrices of weights."""
    return (estimate - exact).norm() / exact.norm()


def attention_errors(kind: str, seed: int, draws: int = 20) -> list[float]:
    """Return the error for each of ``SIZES``; the uniform one for ``kind="uniform"``."""
    generator = torch.Generator().manual_seed(seed)
    q, k = normalize(torch.randn(2, 64, DIM, generator=generator, dtype=torch.float64), dim=-1)
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


def learn(seed: int, steps: int) -> dict[str, Any]:
    """Train r, and measure before and after."""
    generator = torch.Generator().manual_seed(seed)
    scale = torch.ones(DIM, dtype=torch.float64)
    scale[torch.randperm(DIM, generator=generator)[:LARGE]] = LARGER
    phi = FavorFeatures(DIM, DIM, "circulant", learnable=True, generator=generator).double()
    test = {"skewed": tokens(256, generator, scale), "even": tokens(256, generator, 1.0)}

    @torch.no_grad()
    def measure() -> dict[str, float]:
        found = {"length": phi.projection.column.norm().item()}
        phi.stabilize = False
        for name, (q, k) in test.items():
            found[f"error {name}"] = distance(weights(phi, q, k), (q @ k.mT).softmax(-1)).item()
            ratio = (phi(q[None]) @ phi(k[None]).mT)[0] / (q @ k.mT).exp()
            found[f"mean {name}"] = ratio.mean().item()
        phi.stabilize = True
        return {name: round(value, 5) for name, value in found.items()}

    before = measure()
    optimizer = torch.optim.Adam(phi.parameters(), lr=0.02)
    for _ in range(steps):
        q, k = tokens(64, generator, scale)
        loss = distance(weights(phi, q, k), (q @ k.mT).softmax(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {"before": before, "after": measure()}


def study(seeds: Sequence[int], steps: int) -> dict[str, Any]:
    """Return the three parts, each with one entry a seed."""
    kernel = {kind: [kernel_errors(kind, s) for s in seeds] for kind in KINDS}
    attention = {k: [attention_errors(k, s) for s in seeds] for k in (*KINDS, "uniform")}
    learned = [learn(s, steps) for s in seeds]
    return {
        "steps": steps,
        "sizes": SIZES,
        "kernel": kernel,
        "attention": attention,
        "learned": learned,
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run the study and write its record."""
    assert __doc__
    data = record_study(
        Path(__file__),
        __doc__,
        study,
        seeds=10,
        steps=300,
        steps_are="training steps of each r",
        argv=argv,
    )
    place = SIZES.index(64)
    for kind in KINDS:
        rows = data["kernel"][kind]
        mean = {z: sum(r[z][0] for r in rows) / len(rows) for z in DIRECTIONS}
        error = sum(row[place] for row in data["attention"][kind]) / len(rows)
        print(f"{kind:>14}: {mean}, attention {error:.3f}")
    for when in ("before", "after"):
        rows = [row[when] for row in data["learned"]]
        print(when, {name: sum(r[name] for r in rows) / len(rows) for name in rows[0]})


if __name__ == "__main__":
    main()
