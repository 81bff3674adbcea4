"""Train the same layer with its frequencies as parameters and as angles between two mirrors.

    python results/reflections.py            # writes results/reflections.json
    python results/reflections.py --seeds 2 --steps 50 --output /tmp/try.json

One head of causal attention between an embedding and a readout returns the token five places
back. Its only positions are rotations, and they start far too slow to tell tokens apart: the
frequencies have to be learned. They are fixed, or parameters of their own at 1, 4 or 8 times a
rate, or twice the difference of two mirrors' angles at that rate. Everything else, the weights
at the start and the batches among it, is the same. With SGD and momentum, and with Adam.

Adam adds an epsilon to the size of a gradient. A mirror's gradient is twice that of its frequency,
so frequencies that are parameters get half the epsilon.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lab.one_head import OneHead
from lab.train.loop import minimise
from lab.train.study import Study
from stringlib import MixedRoPE, ReflectionSTRING, RotaryEncoder
from stringlib.inputs import require_name
from stringlib.kernels.rotation import geometric_frequencies
from stringlib.positions import grid_positions

METHODS = ("fixed", "omega-1", "omega-4", "omega-8", "mirrors")
FACTORS = {"fixed": 0.0, "omega-1": 1.0, "omega-4": 4.0, "omega-8": 8.0, "mirrors": 1.0}
OPTIMIZERS = ("SGD", "Adam")
TOKENS, LENGTH, BACK, DIM, HEAD_DIM = 16, 24, 5, 24, 8
START = 0.05 * geometric_frequencies(HEAD_DIM // 2, base=10.0)
RATE = 1e-4  # η, of the frequencies or the angles
WEIGHT_RATES = {"SGD": 0.1, "Adam": 0.01}
EVERY = 20  # batches whose losses make one point of a curve


class Run(NamedTuple):
    """The loss of every batch, ``(steps,)``, and the frequencies after it, ``(steps, pairs)``."""

    losses: Tensor
    frequencies: Tensor


class OneLayer(OneHead):
    """One head of causal attention, and a readout of what it returned.

    Args:
        method: One of ``METHODS``.
    """

    encoder: RotaryEncoder

    def __init__(self, method: str) -> None:
        require_name("method", method, METHODS)
        super().__init__(TOKENS, DIM, HEAD_DIM)
        self.double()  # so that another processor's rounding changes no figure
        if method == "mirrors":
            self.encoder = mirrors = ReflectionSTRING(HEAD_DIM).double()
            mirrors.angles.data = torch.stack([-START, START])[:, None, :, None] / 4
        else:
            self.encoder = mixed = MixedRoPE(HEAD_DIM, coord_dim=1, heads=1).double()
            mixed.omega.data = START[None, :, None].clone()

    def forward(self, tokens: Tensor) -> Tensor:
        """Return a score for each token that may be the answer, ``(batch, seq, TOKENS)``.

        Args:
            tokens: Integers, ``(batch, seq)``.
        """
        x = self.embed(tokens).unsqueeze(1)  # one head
        q, k = self.encoder(self.to_q(x), self.to_k(x), grid_positions(tokens.shape[-1]))
        found = nn.functional.scaled_dot_product_attention(q, k, x, is_causal=True)
        return self.readout(found.squeeze(1))


def make_optimizer(name: str, model: OneLayer, factor: float) -> torch.optim.Optimizer:
    """Return SGD or Adam, with the rate of the encoder ``factor`` times ``RATE``."""
    own = list(model.encoder.parameters())
    others = [p for n, p in model.named_parameters() if not n.startswith("encoder.")]
    groups: list[dict[str, Any]] = [{"params": others}, {"params": own, "lr": factor * RATE}]
    if name == "SGD":
        return torch.optim.SGD(groups, lr=WEIGHT_RATES[name], momentum=0.9)
    groups[1]["eps"] = 1e-8 if isinstance(model.encoder, ReflectionSTRING) else 5e-9
    return torch.optim.Adam(groups, lr=WEIGHT_RATES[name])


def train(method: str, optimizer: str, seed: int, steps: int = 400) -> Run:
    """Train on random tokens.

    Args:
        method: One of ``METHODS``.
        optimizer: ``"SGD"`` or ``"Adam"``.
        seed: Of the weights and the tokens.
        steps: Batches of 32 sequences.
    """
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = OneLayer(method)
    losses, frequencies = [], []

    def loss(step: int) -> Tensor:
        tokens = torch.randint(TOKENS, (32, LENGTH), generator=generator)
        guesses, answers = model(tokens)[:, BACK:], tokens[:, :-BACK]
        return nn.functional.cross_entropy(guesses.flatten(0, 1), answers.flatten())

    def note(step: int, loss: Tensor, norm: Tensor) -> None:
        losses.append(loss)
        # a copy: frequencies that are parameters change in place
        frequencies.append(model.encoder.frequencies().detach().flatten().clone())

    minimise(model, loss, make_optimizer(optimizer, model, FACTORS[method]), steps, after=note)
    return Run(torch.stack(losses), torch.stack(frequencies))


def power_of_ten(error: float) -> float:
    """Return the smallest power of ten that is not below ``error``, and at least 1e-12."""
    return 10.0 ** max(-12, math.ceil(math.log10(error))) if error > 0 else 1e-12


def run(seed: int, steps: int, optimizer: str) -> dict[str, Any]:
    """Return loss curves, and how far the frequencies of each method are from the mirrors'."""
    runs = {method: train(method, optimizer, seed, steps) for method in METHODS}
    turned = runs["mirrors"].frequencies
    return {
        "losses": {
            method: [round(x.mean().item(), 5) for x in run.losses.split(EVERY)]
            for method, run in runs.items()
        },
        "apart": {
            method: power_of_ten((run.frequencies - turned).abs().max().item())
            for method, run in runs.items()
        },
    }


CELLS = {optimizer: {"optimizer": optimizer} for optimizer in OPTIMIZERS}
STUDY = Study(__file__, __doc__, CELLS, run, steps=400, seeds=8, beside={"every": EVERY})


if __name__ == "__main__":
    STUDY.main()
