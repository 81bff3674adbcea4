"""Language models of named sizes."""

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
"""Arguments of a :class:`~stringlib.models.language.LanguageModel` by name.

``"tiny"`` and ``"small"`` can be trained on a CPU. ``"6x256"`` has 4.72 million parameters without
its embedding. Its SwiGLU layers of 682 hidden channels have about as many weights as an MLP of
1,024. ``"12x768"`` has the depth and width of the smallest GPT-2.
"""


@checked
def make_language_model(name: str, vocab: int, **options: Any) -> LanguageModel:
    """Return a new language model of a named size.

    Equation :eq:`eq-model-parameters` gives the number of parameters of the model.

    Args:
        name: A name in :data:`CONFIGS`.
        vocab: Number of different tokens.
        **options: Further arguments of :class:`~stringlib.models.language.LanguageModel`. An
            argument that is also part of the named size replaces the value of the named size.

    Raises:
        TypeError: If an option is not an argument of the model.
        ValueError: If ``name`` is not in :data:`CONFIGS`.
    """
    require_name("name", name, CONFIGS)
    return LanguageModel(vocab, **{**CONFIGS[name], **options})
