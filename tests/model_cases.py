"""Every composition that a model can be asked for by name: small ones, for the tests of models."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from lab.methods import METHODS
from stringlib import (
    ENCODERS,
    LAYERS,
    TOKEN_BIASES,
    LanguageModel,
    PositionWeight,
    TokenBias,
    ViT,
)
from stringlib.attention import registry
from stringlib.attention.registry import FEATURES
from stringlib.encoders.registry import BIASES
from stringlib.parts import make_part

NAMES: tuple[str | None, ...] = (None, *ENCODERS, *BIASES, "sinusoidal", "learned")
LENGTH, VOCAB, CLASSES = 7, 11, 5
OPTIONS: dict[str, Any] = {"horizon": 20}
"""What a weight is told here in place of what its record says; a model says the length itself."""

WEIGHTS: dict[str, dict[str, Any]] = {
    name: {o: OPTIONS.get(o, told) for o, told in METHODS[name].options.items() if o != "length"}
    for name in registry.WEIGHTS
}
"""Name → options."""


def weight(name: str, heads: int = 2) -> PositionWeight:
    """Return the weight of a layer of 16 channels, for at most ``LENGTH`` tokens."""
    options = {"length": LENGTH} if name == "toeplitz" else WEIGHTS[name]
    layer = {"dim": 16, "heads": heads, "features": 8}
    made: PositionWeight = make_part("weight", name, registry.WEIGHTS, layer, {**options})
    return made


def token_bias(name: str) -> TokenBias:
    """Return the token bias of a layer of 16 channels and two heads."""
    layer = {"dim": 16, "heads": 2, "head_dim": 8}
    made: TokenBias = make_part("position_bias", name, TOKEN_BIASES, layer, {})
    return made


DECAYS = tuple(name for name in WEIGHTS if weight(name).causal_only)


def place(encoder: str | None, attention: str) -> dict[str, Any]:
    """Return the place of the rotation, which ReLU and ELU must be told."""
    return {"rotate": "before"} if encoder in ENCODERS and attention in ("relu", "elu") else {}


CASES: dict[str, dict[str, Any]] = {
    **{
        f"{attention}-{encoder}": {
            "encoder": encoder,
            "attention": attention,
            **place(encoder, attention),
        }
        for attention in ("softmax", *FEATURES)
        for encoder in NAMES
        if attention in ("softmax", "relu", "favor") or encoder in (None, "mixed", "learned")
    },
    **{
        f"{attention}-{weight}-{encoder}": {
            "encoder": encoder,
            "attention": attention,
            "weight": weight,
            **options,
            **place(encoder, attention),
        }
        for attention in ("elu", "favor-circulant")
        for weight, options in WEIGHTS.items()
        for encoder in (None, "circulant")
    },
    "favor-after": {"encoder": "mixed", "attention": "favor", "rotate": "after", "num_features": 6},
    "relu-after": {"encoder": "axial", "attention": "relu", "rotate": "after"},
    "gate": {"encoder": "mixed", "gate": "elementwise"},
    "normal": {"encoder": "mixed", "normalize_qk": True, "gate": "headwise"},
    "shift": {"encoder": "mixed", "shift": True, "bias": False},
    "grouped": {"encoder": "circulant", "kv_heads": 1},
    "window": {"encoder": "circulant", "window": 3},
    "alibi-rope": {"encoder": "rope", "position_bias": "alibi"},
    "fox": {"position_bias": "fox", "window": 3},
    "fox-rope": {"encoder": "circulant", "position_bias": "fox", "kv_heads": 1},
    "path": {"position_bias": "path"},
    "cope": {"position_bias": "cope", "cope_positions": 4, "kv_heads": 1},
    "steps": {"encoder": "rope", "position_steps": "learned", "shift": True},
    "selective-rope": {"encoder": "selective-rope", "kv_heads": 1},
    "favor-steps": {"encoder": "mixed", "attention": "favor", "position_steps": "learned"},
    "c-cosgate": {"attention": "favor-circulant", "weight": "cosine", "horizon": 20,
                  "gate": "elementwise"},
}  # fmt: skip
"""Name → encoder, attention, gate and options of a model."""


def _covering() -> list[str]:
    """Return cases that have each encoder, with softmax and with features, and each other part."""
    seen: set[tuple[Any, ...]] = set()
    found = []
    for name, told in CASES.items():
        softmax = told.get("attention", "softmax") == "softmax"
        parts = {(key, str(value)) for key, value in told.items() if key != "encoder"}
        parts |= {("encoder", told.get("encoder"), softmax)}
        if not parts <= seen:
            seen |= parts
            found.append(name)
    return found


COVERING = _covering()
"""For what a model does part by part: be saved, moved, rounded."""


PUBLISHED = tuple(f"layer-{name}" for name in LAYERS)
"""Published layers, of which a language model can be made, and no model of images."""


@cache
def has_state(name: str) -> bool:
    """Return whether the layers of a case can be continued token by token."""
    return all(block.attention.has_state for block in language_model(name).blocks)


def language_model(name: str, seed: int = 0, **options: Any) -> LanguageModel:
    """Return a small language model of a case, two blocks of two heads of eight channels."""
    torch.manual_seed(seed)
    told = {"layer": name.removeprefix("layer-")} if name in PUBLISHED else CASES[name]
    return LanguageModel(VOCAB, 16, 2, 2, length=LENGTH, **{**told, **options})


def text(*shape: int, seed: int = 0) -> Tensor:
    """Return random tokens."""
    return torch.randint(VOCAB, shape, generator=torch.Generator().manual_seed(seed))


SIZES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "series": ((12,), (3,)),
    "image": ((6, 8), (3, 2)),
    "volume": ((4, 4, 6), (2, 2, 3)),
}
"""Name → size of an image, size of a patch."""


def vision_model(name: str, size: str = "image", seed: int = 0, **options: Any) -> ViT:
    """Return a small vision transformer of a case: RoPE is axial, what only looks back causal."""
    torch.manual_seed(seed)
    told = {"channels": 2, **CASES[name]}
    if told.get("encoder") == "rope":
        told["encoder"] = "axial"
    if told.get("weight") in DECAYS or told.get("position_bias") in TOKEN_BIASES:
        told["causal"] = True
    if told.get("weight") == "toeplitz" or told.get("causal"):
        told["pool"] = "mean"
    return ViT(*SIZES[size], CLASSES, 24, 2, 2, **{**told, **options})


def pictures(model: ViT, *sizes: int) -> Tensor:
    """Return three random images, of the size of the model unless told."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(3, model.channels, *(sizes or model.image_size), generator=generator)


def model_and_input(kind: str, name: str, **options: Any) -> tuple[LanguageModel | ViT, Tensor]:
    """Return a model of ``"text"`` or of ``"images"``, and three of what it reads."""
    if kind == "text":
        return language_model(name, **options), text(3, LENGTH)
    model = vision_model(name, **options)
    return model, pictures(model)
