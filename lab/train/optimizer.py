"""The optimiser of a run: which parameters decay, and which have a rate of their own."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lab.train.settings import Settings, rate_factor
from stringlib.encoders.circulant import CirculantSTRING
from stringlib.encoders.string import RotaryEncoder


def make_optimizer(model: nn.Module, settings: Settings) -> torch.optim.AdamW:
    """Return AdamW with three groups: matrices, which decay, the rest, and rotary encoders."""
    encoder = _ids(model, RotaryEncoder)
    spared = encoder | _ids(model, nn.Embedding)  # a readout tied to an embedding is one
    decaying = {id(m.weight) for m in model.modules() if isinstance(m, nn.Linear)} - spared
    groups: dict[str, list[nn.Parameter]] = {"matrix": [], "other": [], "encoder": []}
    for p in model.parameters():
        if p.requires_grad:
            kind = "matrix" if id(p) in decaying else "encoder" if id(p) in encoder else "other"
            groups[kind].append(p)
    return torch.optim.AdamW(
        [
            {
                "params": parameters,
                "kind": kind,
                "weight_decay": settings.weight_decay if kind == "matrix" else 0.0,
            }
            for kind, parameters in groups.items()
            if parameters
        ],
        lr=settings.rate,
        betas=settings.betas,
    )


def set_rate(optimizer: torch.optim.Optimizer, step: int, settings: Settings) -> float:
    """Set the learning rates of a step and return that of the matrices."""
    factor = rate_factor(step, settings)
    for group in optimizer.param_groups:
        own = settings.encoder_rate if group["kind"] == "encoder" else None
        group["lr"] = factor * (settings.rate if own is None else own)
    return factor * settings.rate


def coefficients(model: nn.Module) -> list[Tensor]:
    """Return the coefficients of every Circulant-STRING: what the penalty acts on."""
    return [m.coefficients for m in model.modules() if isinstance(m, CirculantSTRING)]


def _ids(model: nn.Module, kind: type[nn.Module]) -> set[int]:
    """Return the ids of all parameters inside modules of a kind."""
    return {id(p) for m in model.modules() if isinstance(m, kind) for p in m.parameters()}
