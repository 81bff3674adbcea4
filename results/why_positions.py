"""Train one attention layer to look back, with eight ways of telling it positions.

    python results/why_positions.py            # writes results/why_positions.json
    python results/why_positions.py --seeds 2 --steps 50 --output /tmp/try.json

Every token carries a number m and asks: which token stands m places before me? In the task
``previous`` m is always 1, so the answer needs order and nothing else. In the task ``asked`` m
is 1, 2 or 3 at random: how far to look depends on the content of the token. Training uses the
positions 0 ... 31. The test uses the same, then four times as many tokens, then 32 tokens that
start at position 1000. A learned table has no rows beyond 31: there it has no accuracy.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lab.train.learn import Training
from lab.train.study import Study
from stringlib import ALiBi, KerpleLog, KerplePower, LearnedAbsolute, RoPE, Sinusoidal, T5Bias
from stringlib.inputs import require_name

TOKENS, FARTHEST, LENGTH, DIM, HEADS = 16, 3, 32, 32, 4
TASKS = {"previous": 1, "asked": FARTHEST}  # the largest m that is asked
TESTS = {"as trained": (LENGTH, 0), "longer": (4 * LENGTH, 0), "shifted": (LENGTH, 1000)}
ADDED = {"sinusoidal": lambda: Sinusoidal(DIM), "learned": lambda: LearnedAbsolute(LENGTH, DIM)}
BIASES = {
    "alibi": lambda: ALiBi(HEADS),
    "t5": lambda: T5Bias(HEADS, bidirectional=False),
    "kerple-log": lambda: KerpleLog(HEADS),
    "kerple-power": lambda: KerplePower(HEADS),
}
METHODS = ("none", *ADDED, *BIASES, "rope")


class OneLayer(nn.Module):
    """Embedding, four heads of causal attention, and a readout of what they returned.

    Args:
        method: How positions enter, one of ``METHODS``.
    """

    def __init__(self, method: str) -> None:
        super().__init__()
        require_name("method", method, METHODS)
        self.embed = nn.Embedding(TOKENS, DIM)
        self.ask = nn.Embedding(FARTHEST, DIM)
        self.to_qkv = nn.Linear(DIM, 3 * DIM)
        self.readout = nn.Linear(DIM, TOKENS)
        self.add = ADDED[method]() if method in ADDED else None
        self.bias = BIASES[method]() if method in BIASES else None
        self.rope = RoPE(DIM // HEADS) if method == "rope" else None

    def forward(self, tokens: Tensor, back: Tensor, start: int = 0) -> Tensor:
        """Return a score for each token that may be the answer.

        Args:
            tokens: Integers, ``(batch, seq)``.
            back: How far each token asks to look, from 1, ``(batch, seq)``.
            start: Position of the first token.

        Returns:
            ``(batch, seq, TOKENS)``.
        """
        seq = tokens.shape[-1]
        positions = torch.arange(start, start + seq)[:, None]
        x = self.embed(tokens) + self.ask(back - 1)
        if self.add is not None:
            x = self.add(x, positions)
        q, k, v = self.to_qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        if self.rope is not None:
            q, k = self.rope(q, k, positions)
        mask = torch.ones(seq, seq, dtype=x.dtype).tril().log()
        if self.bias is not None:
            mask = mask + self.bias(seq, seq)  # of distances: where the tokens start is no matter
        out = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.readout(out.transpose(1, 2).flatten(-2))


def batch(
    task: str, size: int, length: int, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Return tokens and questions ``(size, length)``, and the answers from ``FARTHEST`` on."""
    tokens = torch.randint(TOKENS, (size, length), generator=generator)
    back = 1 + torch.randint(TASKS[task], (size, length), generator=generator)
    place = torch.arange(length) - back
    return tokens, back, tokens.gather(1, place.clamp(min=0))[:, FARTHEST:]


def loss(model: OneLayer, generator: torch.Generator, task: str) -> Tensor:
    """Return the cross-entropy on 32 random sequences at positions 0 ... LENGTH - 1."""
    tokens, back, answers = batch(task, 32, LENGTH, generator)
    guesses = model(tokens, back)[:, FARTHEST:]
    return nn.functional.cross_entropy(guesses.flatten(0, 1), answers.flatten())


@torch.no_grad()
def accuracy(model: OneLayer, task: str, test: str) -> float | None:
    """Return how often the best guess is right, or None if the model has no such positions."""
    length, start = TESTS[test]
    tokens, back, answers = batch(task, 128, length, torch.Generator().manual_seed(10_000))
    if isinstance(model.add, LearnedAbsolute) and start + length > model.add.num_positions:
        return None
    guesses = model(tokens, back, start)[:, FARTHEST:].argmax(-1)
    return (guesses == answers).double().mean().item()


def measure(model: OneLayer, task: str) -> dict[str, list[float | None]]:
    """Return the accuracies over ``TESTS``."""
    found = [accuracy(model, task, test) for test in TESTS]
    return {"accuracy": [a if a is None else round(a, 5) for a in found]}


CELLS = {f"{task} {m}": {"task": task, "method": m} for task in TASKS for m in METHODS}
TRAINING = Training(OneLayer, loss, measure, rates=1e-2, cosine=True)
STUDY = Study(__file__, __doc__, CELLS, TRAINING, steps=500, beside={"tests": list(TESTS)})
train = TRAINING.train


if __name__ == "__main__":
    STUDY.main()
