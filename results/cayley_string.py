"""Learn the basis of a rotation when the projections are frozen, and when they are free.

    python results/cayley_string.py      # writes results/cayley_string.json
    python results/cayley_string.py --seeds 2 --steps 50 --output /tmp/try.json

Every token of a random sequence asks which symbol stood three places before it. One attention
head of 16 channels answers; its only position encoding is Cayley-STRING. Frequencies and readout
are always learned. In the setting "frozen" the embedding and the query and key projections stay
as they were drawn, in the setting "free" they are learned too.

The methods are the density of S, with P before the rotation, and "after": a dense S whose
transform acts on the rotated queries and keys. Density 0 is RoPE with learned frequencies.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from lab.one_head import OneHead
from lab.train.learn import Training
from lab.train.study import Study
from stringlib import CayleySTRING
from stringlib.inputs import require_name
from stringlib.kernels.rotation import rotate_pairs, unit_phases

SETTINGS = ("frozen", "free")
METHODS = {"0": 0.0, "0.1": 0.1, "0.5": 0.5, "1": 1.0, "after": 1.0}  # name: density of S
LENGTH, SYMBOLS, BACK = 24, 8, 3
DIM, HEAD_DIM = 32, 16
BATCH, RATE, CONTENT = 16, 1e-2, 0.5


class AfterRotation(CayleySTRING):
    """Cayley-STRING the wrong way round: the transform acts on what has been rotated."""

    def forward(
        self, q: Tensor, k: Tensor, positions: Tensor, key_positions: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return U RoPE(Ωr)x for queries and keys at the same positions."""
        phases, transform = unit_phases(positions, self.frequencies()), self.basis()
        return rotate_pairs(q, phases) @ transform.mT, rotate_pairs(k, phases) @ transform.mT


class LookBack(OneHead):
    """One head whose only position encoding is Cayley-STRING.

    Args:
        setting: One of ``SETTINGS``.
        method: One of ``METHODS``.
    """

    def __init__(self, setting: str, method: str) -> None:
        require_name("setting", setting, SETTINGS)
        require_name("method", method, METHODS)
        super().__init__(SYMBOLS, DIM, HEAD_DIM)
        for projection in (self.to_q, self.to_k):
            nn.init.normal_(projection.weight, std=CONTENT / math.sqrt(DIM))
            nn.init.normal_(projection.bias)  # without it a query would not know where to look
            for parameter in projection.parameters():
                parameter.requires_grad_(setting == "free")
        self.embed.weight.requires_grad_(setting == "free")
        kind = AfterRotation if method == "after" else CayleySTRING
        self.encoder = kind(HEAD_DIM, density=METHODS[method])

    def forward(self, symbols: Tensor) -> Tensor:
        """Return a score for each symbol that may be the answer, ``(batch, LENGTH, SYMBOLS)``."""
        return super().forward(symbols, torch.arange(LENGTH)[:, None])


def loss(model: LookBack, generator: torch.Generator, count: int = BATCH) -> Tensor:
    """Return the mean cross-entropy, in nats, of the tokens that have an answer."""
    return cross_entropy(model, torch.randint(SYMBOLS, (count, LENGTH), generator=generator))


def cross_entropy(model: LookBack, symbols: Tensor) -> Tensor:
    """Return the loss on given symbols."""
    guesses = model(symbols)[:, BACK:].flatten(0, 1)
    return nn.functional.cross_entropy(guesses, symbols[:, :-BACK].flatten())


@torch.no_grad()
def held_out_loss(model: LookBack, sequences: int = 256) -> float:
    """Return the loss on new sequences; knowing nothing costs ln 8 = 2.08."""
    return loss(model, torch.Generator().manual_seed(10_000), sequences).item()


def measure(model: LookBack) -> dict[str, float]:
    """Return the loss on new sequences."""
    return {"loss": held_out_loss(model)}


CELLS = {f"{s} {m}": {"setting": s, "method": m} for s in SETTINGS for m in METHODS}
TRAINING = Training(LookBack, loss, measure, rates=RATE)
STUDY = Study(
    __file__,
    __doc__,
    CELLS,
    TRAINING,
    steps=300,
    seeds=10,
    beside={"knowing_nothing": math.log(SYMBOLS)},
)
train = TRAINING.train


if __name__ == "__main__":
    STUDY.main()
