"""Train attention to look three tokens back, with rotated features and no denominator.

    python results/rotations_normed.py      # writes results/rotations_normed.json
    python results/rotations_normed.py --seeds 2 --steps 50 --output /tmp/try.json

The task, the sizes and the frequencies are those of ``results/rotations_linear.py``. Features are
rotated, and the output of a query is the sum of the values with the products of the rotated
features, which is not divided by a sum of weights. "undivided" divides this output by the number of
tokens. "normed" instead divides it by its root mean square, as RetNet does. The features are the
queries and keys themselves ("identity"), their ReLU, or positive random features. All heads have
64 features.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn.functional import rms_norm

from lab.train.learn import Training
from lab.train.study import Study
from results.rotations_linear import (
    BANDS,
    FEATURES,
    LENGTH,
    RATE,
    SHIFTS,
    LookBack,
    loss,
    measure,
)
from stringlib.attention import IdentityFeatures, linear_attention
from stringlib.inputs import require_name

WAYS = ("undivided", "normed")
METHODS = tuple(
    f"{phi} {way} {band}" for phi in ("identity", "relu", "favor") for way in WAYS for band in BANDS
)


class Undivided(LookBack):
    """One head of attention over the whole sequence, without a denominator.

    Args:
        method: One of ``METHODS``.
    """

    def __init__(self, method: str) -> None:
        require_name("method", method, METHODS)
        kind, way, band = method.split()
        super().__init__(f"{'favor' if kind == 'favor' else 'relu'} after {band}")
        self.way = way
        if kind == "identity":
            self.phi = IdentityFeatures()

    def forward(self, symbols: Tensor, start: float = 0.0) -> Tensor:
        """Return a score for each symbol that may be the answer, ``(batch, LENGTH, SYMBOLS)``."""
        q, k, x, places = self.inputs(symbols, start)
        phi_q, phi_k = self.phi(q, is_query=True), self.phi(k, is_query=False)
        phi_q, phi_k = self.encoder(phi_q, phi_k, places)
        mixed = linear_attention(phi_q, phi_k, x, normalize=False)
        if self.way == "normed":
            return self.readout(rms_norm(mixed, mixed.shape[-1:]))[:, 0]
        return self.readout(mixed / LENGTH)[:, 0]


def run(seed: int, steps: int, method: str) -> dict[str, Any]:
    """Return the accuracies of one model."""
    return measure(train(seed=seed, steps=steps, method=method))


CELLS = {method: {"method": method} for method in METHODS}
train = Training(Undivided, loss, measure, rates=RATE, clip=1.0).train
beside = {"shifts": SHIFTS, "features": FEATURES}
STUDY = Study(__file__, __doc__, CELLS, run, steps=400, seeds=6, beside=beside)


if __name__ == "__main__":
    STUDY.main()
