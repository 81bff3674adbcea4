"""Time the vision transformers and Performers of ``mnist``: what does a learned bias cost a model?

    python results/mnist_speed.py      # writes results/mnist_speed.json
    python results/mnist_speed.py --seeds 1 --steps 3 --output /tmp/try.json

Images a second, forward alone and in a whole step of training: loss, gradients, AdamW. Pictures of
28 × 28 random pixels are cut into 49 or 196 tokens, for models of 48 or 192 channels; both have two
blocks of three heads. All models take turns within a round, on one thread; a "seed" is a repetition
of the whole, its number that of the median round.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from results.mnist import MODELS
from stringlib.models import ViT
from stringlib.train.study import Study

BATCH = 32
TIMED = ("none", "circulant", "toeplitz", "circulant, toeplitz", "unit, toeplitz")
MODES = ("forward", "step")
CELLS = {
    "49 tokens": {"patch": 4, "dim": 48},
    "196 tokens": {"patch": 2, "dim": 48},
    "196 tokens, 192 channels": {"patch": 2, "dim": 192},
}


def calls(seed: int, patch: int, dim: int) -> dict[str, Callable[[str], object]]:
    """Return, for each model, what does one of ``MODES`` with a batch.

    Args:
        seed: Of weights and pictures.
        patch: Side of a patch in pixels.
        dim: Number of channels of a token.
    """
    torch.manual_seed(seed)
    images, labels = torch.rand(BATCH, 1, 28, 28), torch.randint(10, (BATCH,))

    def one(options: dict[str, object]) -> Callable[[str], object]:
        model = ViT(28, patch, 10, dim, heads=3, hidden=2 * dim, pool="mean", **options)
        optimizer = torch.optim.AdamW(model.parameters())

        def call(mode: str) -> object:
            if mode == "forward":
                with torch.no_grad():
                    return model(images)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            return optimizer.step()

        return call

    return {n: one(told) for n, told in MODELS.items() if n.partition(": ")[2] in TIMED}


def run(seed: int, steps: int, patch: int, dim: int) -> dict[str, dict[str, float]]:
    """Return images a second of each model in each mode, in the median of the rounds."""
    made = calls(seed, patch, dim)
    times: dict[tuple[str, str], list[float]] = {(m, name): [] for m in MODES for name in made}
    for _ in range(steps + 1):
        for mode, name in times:
            start = time.perf_counter()
            made[name](mode)
            times[mode, name].append(time.perf_counter() - start)
    return {
        mode: {n: round(BATCH / statistics.median(times[mode, n][1:]), 1) for n in made}
        for mode in MODES
    }


STUDY = Study(
    __file__, __doc__, CELLS, run, steps=11, steps_are="rounds, after a first that warms up", jobs=1
)


if __name__ == "__main__":
    STUDY.main()
