"""Train attention to look three tokens back, with rotations before and behind a feature map.

    python results/rotations_linear.py      # writes results/rotations_linear.json
    python results/rotations_linear.py --seeds 2 --steps 50 --output /tmp/try.json

Every token of a random sequence asks which symbol stands three places before it. One head, no mask;
rotations are all that tells the places. Queries and keys are turned before the feature map, or
features are turned behind it, or behind it in the numerator alone, or nothing is turned. Softmax
attention is the control. Frequencies are geometric, as RoPE's, or spread evenly up to 3 radians a
token. Or the 64 features are rolled by position, in one cycle or in cycles of 31 and 33. Each model
is trained at the positions 0 to 31, then tested there and with every position moved. "moving" turns
before the feature map and is trained with positions that start anywhere, at another place for each
batch: the shift becomes part of the training data.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lab.one_head import OneHead
from lab.train.learn import Training
from lab.train.study import Study
from stringlib import STRING, Roll, RoPE, RotaryEncoder
from stringlib.attention import FavorFeatures, ReLUFeatures, linear_attention, softmax_attention
from stringlib.attention.rotated_linear import rotated_linear_attention
from stringlib.inputs import require_name

PLACES = ("before", "moving", "after", "numerator")
BANDS = ("geometric", "even")
CYCLES = {"64": (64,), "31+33": (31, 33)}
METHODS = (
    *(f"softmax before {band}" for band in BANDS),
    "relu none",
    "favor none",
    *(f"{phi} {place} {band}" for phi in ("relu", "favor") for place in PLACES for band in BANDS),
    *(f"{phi} roll {cycles}" for phi in ("relu", "favor") for cycles in CYCLES),
)
LENGTH, SYMBOLS, BACK = 32, 16, 3
DIM, HEAD_DIM, FEATURES = 32, 16, 64
SHIFTS = (0, 1, 3, 10, 30, 100, 300, 1000)
RATE, BATCH = 1e-2, 16


def encoder(size: int, band: str) -> RotaryEncoder | Roll:
    """Return what turns vectors of ``size`` channels, with frequencies of a band, or rolls them."""
    if band in CYCLES:
        return Roll(CYCLES[band])
    if band == "even":
        pairs = size // 2
        rates = 3 * (torch.arange(pairs, dtype=torch.float64) + 0.5) / pairs
        return STRING(rates[None, :, None])
    return RoPE(size, base=100.0)


class LookBack(OneHead):
    """One head of attention over the whole sequence, and a readout of what it returned.

    A head has 16 channels; 64 before ReLU, so that both feature maps have 64 features.

    Args:
        method: One of ``METHODS``.
    """

    def __init__(self, method: str) -> None:
        require_name("method", method, METHODS)
        kind, place, band = (*method.split(), "geometric")[:3]
        head_dim = FEATURES if kind == "relu" else HEAD_DIM
        super().__init__(SYMBOLS, DIM, head_dim)
        self.kind, self.place = kind, place
        favor = kind == "favor"
        self.phi: nn.Module = FavorFeatures(HEAD_DIM, FEATURES) if favor else ReLUFeatures()
        self.encoder = encoder(head_dim if place in ("none", *PLACES[:2]) else FEATURES, band)

    def forward(self, symbols: Tensor, start: float = 0.0) -> Tensor:
        """Return a score for each symbol that may be the answer, ``(batch, LENGTH, SYMBOLS)``."""
        q, k, x, places = self.inputs(symbols, start)
        if self.kind == "softmax":
            return self.readout(softmax_attention(q, k, x))[:, 0]
        phi_q, phi_k = self.phi(q, is_query=True), self.phi(k, is_query=False)
        if self.place in ("after", "numerator"):
            only = self.place == "numerator"
            mixed = rotated_linear_attention(
                phi_q, phi_k, x, self.encoder, places, numerator_only=only
            )
        else:
            if self.place == "roll":
                phi_q, phi_k = self.encoder(phi_q, phi_k, places.long())
            mixed = linear_attention(phi_q, phi_k, x)
        return self.readout(mixed)[:, 0]

    def inputs(self, symbols: Tensor, start: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return queries and keys as the feature map gets them, values and positions."""
        x = self.embed(symbols)[:, None]
        places = start + torch.arange(symbols.shape[-1], dtype=torch.float64)[:, None]
        q, k = self.to_q(x), self.to_k(x)
        if self.place in ("before", "moving"):
            q, k = self.encoder(q, k, places)
        if self.kind == "favor":  # its features estimate exp(q·k); softmax attention scales itself
            q, k = q * HEAD_DIM**-0.25, k * HEAD_DIM**-0.25
        return q, k, x, places


def batch(size: int, generator: torch.Generator) -> Tensor:
    """Return random sequences, ``(size, LENGTH)``."""
    return torch.randint(SYMBOLS, (size, LENGTH), generator=generator)


def loss(model: LookBack, generator: torch.Generator) -> Tensor:
    """Return the cross-entropy on random sequences; those of "moving" start anywhere."""
    symbols = batch(BATCH, generator)
    start = torch.randint(2048, (), generator=generator).item()
    scores = model(symbols, start if model.place == "moving" else 0)[:, BACK:]
    return nn.functional.cross_entropy(scores.flatten(0, 1), symbols[:, :-BACK].flatten())


@torch.no_grad()
def accuracy(model: LookBack, start: float = 0.0, sequences: int = 64) -> float:
    """Return how often the best guess is right on new sequences at positions from ``start``."""
    symbols = batch(sequences, torch.Generator().manual_seed(10_000))
    guesses = model(symbols, start)[:, BACK:].argmax(-1)
    return (guesses == symbols[:, :-BACK]).double().mean().item()


@torch.no_grad()
def negative_denominators(model: LookBack, sequences: int = 64) -> float:
    """Return which share of the queries has turned products whose sum is negative."""
    symbols = batch(sequences, torch.Generator().manual_seed(10_000))
    q, k, _, places = model.inputs(symbols, 0.0)
    phi_q, phi_k = model.phi(q, is_query=True), model.phi(k, is_query=False)
    turned_q, turned_k = model.encoder(phi_q, phi_k, places)
    return ((turned_q @ turned_k.mT).sum(-1) < 0).double().mean().item()


def measure(model: LookBack) -> dict[str, list[float]]:
    """Return the accuracy at every shift."""
    return {"accuracy": [round(accuracy(model, shift), 5) for shift in SHIFTS]}


def run(seed: int, steps: int, method: str) -> dict[str, list[float]]:
    """Return the accuracies, and signs of denominators at the start and the end."""
    model = train(seed=seed, steps=steps, method=method)
    found = measure(model)
    if model.place == "after":
        models = (train(seed=seed, steps=0, method=method), model)
        found["negative denominators"] = [round(negative_denominators(m), 5) for m in models]
    return found


CELLS = {method: {"method": method} for method in METHODS}
train = Training(LookBack, loss, measure, rates=RATE, clip=1.0).train
STUDY = Study(__file__, __doc__, CELLS, run, steps=400, seeds=6, beside={"shifts": SHIFTS})


if __name__ == "__main__":
    STUDY.main()
