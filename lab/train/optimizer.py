"""The optimiser of a run: weight decay and learning rate of each group of parameters."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lab.train.settings import Settings
from stringlib.encoders.circulant import CirculantSTRING
from stringlib.encoders.rotary import RotaryEncoder


def make_optimizer(model: nn.Module, settings: Settings) -> torch.optim.AdamW:
    """Return AdamW with three groups of parameters: matrices, rotary encoders, and all others.

    Only the matrices have weight decay.
    """
    encoder = _ids(model, RotaryEncoder)
    spared = encoder | _ids(model, nn.Embedding)  # a readout tied to an embedding is one
    decaying = {id(m.weight) for m in model.modules() if isinstance(m, nn.Linear)} - spared
    own = settings.rate if settings.encoder_rate is None else settings.encoder_rate
    groups: dict[str, dict[str, Any]] = {
        "matrix": {"lr": settings.rate, "weight_decay": settings.weight_decay},
        "other": {"lr": settings.rate, "weight_decay": 0.0},
        "encoder": {"lr": own, "weight_decay": 0.0},
    }
    for p in model.parameters():
        if p.requires_grad:
            kind = "matrix" if id(p) in decaying else "encoder" if id(p) in encoder else "other"
            groups[kind].setdefault("params", []).append(p)
    return torch.optim.AdamW(
        [{"kind": kind, **group} for kind, group in groups.items() if "params" in group],
        betas=settings.betas,
    )


def coefficients(model: nn.Module) -> list[Tensor]:
    """Return the coefficients of all Circulant-STRING encoders, to which the penalty applies."""
    return [m.coefficients for m in model.modules() if isinstance(m, CirculantSTRING)]


def _ids(model: nn.Module, kind: type[nn.Module]) -> set[int]:
    """Return the ids of all parameters inside modules of a kind."""
    return {id(p) for m in model.modules() if isinstance(m, kind) for p in m.parameters()}
