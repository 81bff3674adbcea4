"""Complete models built from the layers: a vision transformer and a causal language model."""

from stringlib.models.configs import CONFIGS, make_language_model
from stringlib.models.language import LanguageModel
from stringlib.models.vit import ViT

__all__ = ["CONFIGS", "LanguageModel", "ViT", "make_language_model"]
