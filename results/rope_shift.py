"""Train one attention layer to look three tokens back, then move every position.

    python results/rope_shift.py            # writes results/rope_shift.json
    python results/rope_shift.py --seeds 2 --steps 100 --output /tmp/try.json

The position reaches the layer in one of three ways: RoPE turns queries and keys, a sinusoidal
table is added to the tokens, or not at all. Training uses the positions 0 ... 31; the test asks
how often the layer is right when every position is larger by the same shift. As a control, the
table is also trained with every batch moved by its own random shift of up to 512.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lab.train.learn import Training
from lab.train.study import Study
from stringlib import RoPE
from stringlib.inputs import require_name
from stringlib.kernels.rotation import geometric_frequencies

METHODS = ("rope", "sinusoidal", "sinusoidal-moved", "none")
TOKENS, LENGTH, BACK, DIM = 16, 32, 3, 32
MOVED = 512  # the largest shift that the control meets in training
SHIFTS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


def sinusoidal(positions: Tensor, dim: int = DIM) -> Tensor:
    """Return the sinusoidal vectors of positions ``(seq, 1)``: float64, ``(seq, dim)``."""
    angles = positions.double() * geometric_frequencies(dim // 2)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)


class OneLayer(nn.Module):
    """Embedding, one head of causal attention, and a readout of what it returned.

    Args:
        method: How the position enters, one of ``METHODS``.
    """

    def __init__(self, method: str) -> None:
        super().__init__()
        require_name("method", method, METHODS)
        self.method = method
        self.embed = nn.Embedding(TOKENS, DIM)
        self.to_qkv = nn.Linear(DIM, 3 * DIM)
        self.readout = nn.Linear(DIM, TOKENS)
        self.rope = RoPE(DIM)

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Return a score for each token that may be the answer.

        Args:
            tokens: Integers, ``(batch, seq)``.
            positions: ``(seq, 1)``.

        Returns:
            ``(batch, seq, TOKENS)``.
        """
        x = self.embed(tokens)
        if self.method.startswith("sinusoidal"):
            x = x + sinusoidal(positions).to(x)
        q, k, v = self.to_qkv(x).unsqueeze(1).chunk(3, -1)  # one head
        if self.method == "rope":
            q, k = self.rope(q, k, positions)
        out = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.readout(out.squeeze(1))


def batch(size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return random tokens ``(size, LENGTH)`` and the answers to those from ``BACK`` on."""
    tokens = torch.randint(TOKENS, (size, LENGTH), generator=generator)
    return tokens, tokens[:, :-BACK]


def span(shift: int = 0) -> Tensor:
    """Return the positions ``shift ... shift + LENGTH - 1``, shape ``(LENGTH, 1)``."""
    return torch.arange(shift, shift + LENGTH)[:, None]


def loss(model: OneLayer, generator: torch.Generator, method: str) -> Tensor:
    """Return the cross-entropy on 64 sequences; only ``"sinusoidal-moved"`` moves them."""
    tokens, answers = batch(64, generator)
    shift = 0
    if method == "sinusoidal-moved":
        shift = int(torch.randint(MOVED + 1, (), generator=generator))
    guesses = model(tokens, span(shift))[:, BACK:]
    return nn.functional.cross_entropy(guesses.flatten(0, 1), answers.flatten())


@torch.no_grad()
def accuracy(model: OneLayer, shift: int) -> float:
    """Return how often the best guess is right when every position is larger by ``shift``."""
    tokens, answers = batch(256, torch.Generator().manual_seed(10_000))
    guesses = model(tokens, span(shift))[:, BACK:].argmax(-1)
    return (guesses == answers).double().mean().item()


def measure(model: OneLayer) -> dict[str, list[float]]:
    """Return the accuracies over ``SHIFTS``."""
    return {"accuracy": [round(accuracy(model, shift), 5) for shift in SHIFTS]}


CELLS = {method: {"method": method} for method in METHODS}
TRAINING = Training(OneLayer, loss, measure, rates=1e-2, cosine=True)
STUDY = Study(__file__, __doc__, CELLS, TRAINING, steps=600, seeds=8, beside={"shifts": SHIFTS})
train = TRAINING.train


if __name__ == "__main__":
    STUDY.main()
