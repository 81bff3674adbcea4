"""The settings of a training run."""

from __future__ import annotations

import math
from dataclasses import dataclass

from stringlib.spec import Count0, NotNegative, Positive, require


@dataclass(frozen=True)
class Settings:
    """Settings of a training run.

    Attributes:
        steps: Number of updates.
        batch_size: Number of examples per update, over all processes.
        rate: Largest learning rate of AdamW. The learning rate grows linearly for ``warmup`` steps
            and then falls to 0 as half a cosine.
        warmup: Number of steps until the learning rate is largest.
        weight_decay: Weight decay of AdamW. It applies only to the matrices of ``nn.Linear``, not
            to embeddings, norms, biases and parameters of an encoder. For its effect on an encoder
            see :eq:`eq-circulant-decay`.
        clip: Largest norm of the whole gradient. None means no limit.
        penalty: Factor λ of the penalty λ Σ c² on all coefficients of Circulant-STRING,
            :eq:`eq-circulant-penalty`.
        encoder_rate: Largest learning rate of the parameters of rotary encoders. None means
            ``rate``.
        seed: Seed of the batches. The caller of the training draws the weights of the model.
        log_every: Number of steps between two entries of the history.
        checkpoint_every: Number of steps between two checkpoints, if a folder is given.
        evaluate_every: Number of steps between two evaluations. None means only at the end.
        betas: The betas of AdamW.
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
        """Raise an error for values that are not valid."""
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
    """Return the learning rate of a step, divided by the largest learning rate.

    The result grows linearly from 1/warmup to 1, and then falls towards 0 as half a cosine.

    Args:
        step: Index of the step, counted from 0.
        steps: Number of all steps.
        warmup: Number of steps until the learning rate is largest.
    """
    if step < warmup:
        return (step + 1) / warmup
    done = (step - warmup) / max(1, steps - warmup)
    return 0.5 * (1 + math.cos(math.pi * done))
