"""How to train: the numbers of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass

from stringlib.spec import Count0, NotNegative, Positive, require


@dataclass(frozen=True)
class Settings:
    """How to train.

    Attributes:
        steps: Number of updates.
        batch_size: Examples an update, over all processes.
        rate: Largest learning rate of AdamW; it grows linearly for ``warmup`` steps and falls
            as half a cosine to 0.
        warmup: Steps before the rate is at its largest.
        weight_decay: AdamW's, on the matrices of ``nn.Linear`` alone: not on embeddings, norms,
            biases and whatever belongs to an encoder; what it would do there is
            :eq:`eq-circulant-decay`.
        clip: Largest norm of the whole gradient; None for no limit.
        penalty: λ of the penalty λ Σ c² on all coefficients of Circulant-STRING,
            :eq:`eq-circulant-penalty`.
        encoder_rate: Largest learning rate of the parameters of rotary encoders; ``rate`` if None.
        seed: Decides the batches. The model is drawn by whoever makes it.
        log_every: Steps between two entries of the history.
        checkpoint_every: Steps between two checkpoints, where a folder is given.
        evaluate_every: Steps between two evaluations; None for the end alone.
        betas: AdamW's.
    """

    steps: int = 1000
    batch_size: int = 64
    rate: float = 1e-3
    warmup: int = 0
    weight_decay: float = 0.0
    clip: float | None = 1.0
    penalty: float = 0.0
    encoder_rate: float | None = None
    seed: int = 0
    log_every: int = 20
    checkpoint_every: int = 500
    evaluate_every: int | None = None
    betas: tuple[float, float] = (0.9, 0.999)

    def __post_init__(self) -> None:
        """Refuse numbers that make no sense."""
        for name in ("steps", "batch_size", "log_every", "checkpoint_every"):
            require(name, getattr(self, name), int)
        for name in ("warmup", "seed"):
            require(name, getattr(self, name), Count0)
        require("rate", self.rate, Positive)
        for name in ("weight_decay", "penalty"):
            require(name, getattr(self, name), NotNegative)
        for name in ("clip", "encoder_rate"):
            if getattr(self, name) is not None:
                require(name, getattr(self, name), Positive)
        if self.evaluate_every is not None:
            require("evaluate_every", self.evaluate_every, int)
        if len(self.betas) != 2 or not all(0 <= b < 1 for b in self.betas):
            raise ValueError(f"betas must be two numbers in [0, 1), got {self.betas}")


def half_cosine(step: int, steps: int, warmup: int) -> float:
    """Return the learning rate of a step, as a factor of its largest.

    Linear from 1/warmup to 1, then half a cosine towards 0.

    Args:
        step: The step, from 0.
        steps: Number of all steps.
        warmup: Steps before the rate is at its largest.
    """
    if step < warmup:
        return (step + 1) / warmup
    done = (step - warmup) / max(1, steps - warmup)
    return 0.5 * (1 + math.cos(math.pi * done))
