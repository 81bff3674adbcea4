"""Language models by name."""

from __future__ import annotations

from typing import Any

from stringlib.inputs import require_name
from stringlib.models.language import LanguageModel
from stringlib.spec import checked

CONFIGS: dict[str, dict[str, Any]] = {
    "tiny": {"dim": 64, "depth": 2, "heads": 2, "hidden": 170, "mlp": "swiglu"},
    "small": {"dim": 128, "depth": 4, "heads": 4, "hidden": 341, "mlp": "swiglu"},
    "6x256": {"dim": 256, "depth": 6, "heads": 4, "hidden": 682, "mlp": "swiglu"},
    "12x768": {"dim": 768, "depth": 12, "heads": 12, "hidden": 2048, "mlp": "swiglu"},
}
"""Name → sizes of a :class:`~stringlib.models.language.LanguageModel`.

``"tiny"`` and ``"small"`` train on a CPU. ``"6x256"`` has 4.72 million parameters beside its
embedding: a SwiGLU of 682 has as many as a plain feed-forward part of 1,024. ``"12x768"`` has the
width and depth of the smallest GPT-2.
"""


@checked
def make_language_model(name: str, vocab: int, **options: Any) -> LanguageModel:
    """Return a new language model of a named size; :eq:`eq-model-parameters` counts it.

    Args:
        name: One of :data:`CONFIGS`.
        vocab: Number of different tokens.
        **options: What :class:`~stringlib.models.language.LanguageModel` takes; sizes given here
            replace those of the name.
    """
    require_name("name", name, CONFIGS)
    return LanguageModel(vocab, **{**CONFIGS[name], **options})
