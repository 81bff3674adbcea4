"""Language models by name."""

from __future__ import annotations

from typing import Any

from stringlib.models.language import LanguageModel

CONFIGS: dict[str, dict[str, Any]] = {
    "tiny": {"dim": 64, "depth": 2, "heads": 2, "hidden": 170, "mlp": "swiglu"},
    "small": {"dim": 128, "depth": 4, "heads": 4, "hidden": 341, "mlp": "swiglu"},
    "6x256": {"dim": 256, "depth": 6, "heads": 4, "hidden": 682, "mlp": "swiglu"},
}
"""Name → sizes of a :class:`~stringlib.models.language.LanguageModel`."""


def make_language_model(name: str, vocab: int, **options: Any) -> LanguageModel:
    """Return a new language model of a named size."""
    if name not in CONFIGS:
        raise ValueError(f"name must be one of {', '.join(CONFIGS)}, got {name!r}")
    return LanguageModel(vocab, **{**CONFIGS[name], **options})
