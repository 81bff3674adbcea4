"""An option that nothing takes is named, with the nearest one that there is."""

from __future__ import annotations

from stringlib import LanguageModel, MultiHeadAttention, ViT, make_encoder
from stringlib.attention.registry import WEIGHTS, make_features
from stringlib.encoders.registry import make_bias
from stringlib.parts import make_part
from tests.refusals import refusals

test_an_unknown_option_is_named_with_the_nearest_known_one = refusals(
    (lambda: MultiHeadAttention(12, 3, horizn=8),
     r"TypeError: ^horizn is not .* of MultiHeadAttention, got horizn=8\. .* 'horizon'\?$"),
    (lambda: MultiHeadAttention(12, num_heads=3), "TypeError: num_heads is not .* mean 'heads'"),
    (lambda: LanguageModel(5, 12, 1, num_heads=3), "TypeError: num_heads is not .* mean 'heads'"),
    (lambda: LanguageModel(n_vocab=5, dim=12), "TypeError: n_vocab is .* mean 'vocab'"),
    (lambda: ViT(4, 2, 3, num_heads=3), "TypeError: num_heads is .* of ViT, .* mean 'heads'"),
    (lambda: ViT(4, 2, 3, theta=3), "TypeError: theta is not .* got theta=3. Known .* heads, "),
    (lambda: make_encoder("mixed", 8, bas=3), "TypeError: bas .* encoder 'mixed', .* mean 'base'"),
    (lambda: make_bias("t5", 2, num_bucket=8), "TypeError: num_bucket .* mean 'num_buckets'"),
)  # fmt: skip

test_an_unknown_name_is_given_with_the_nearest_known_one = refusals(
    (lambda: MultiHeadAttention(12, 3, "ropee"), "encoder must be one of .* mean 'rope'"),
    (lambda: MultiHeadAttention(12, 3, attention="zz"), "attention must be one of .*, got 'zz'$"),
    (lambda: LanguageModel(5, 12, 1, 3, "ropee"), "encoder must be .* mean 'rope'"),
    (lambda: ViT(4, 2, 3, mlp="swiglo"), "mlp must be .* mean 'swiglu'"),
    (lambda: make_features("favr", 8), "name must be .* mean 'favor'"),
)

test_an_option_that_the_layer_sets_is_refused_with_the_reason = refusals(
    (lambda: LanguageModel(5, 12, 1, 3, causal=False), "TypeError: causal .* is always causal"),
    (lambda: MultiHeadAttention(12, 3, attention="favor", head_dim=3),
     "TypeError: head_dim must not be given to MultiHeadAttention, got 3. It is dim // heads"),
    (lambda: MultiHeadAttention(12, 3, "t5", bidirectional=True), "TypeError: bidirectional must "),
    (lambda: make_part("weight", "delta", WEIGHTS, {"dim": 8, "heads": 2}, {"dim": 3}),
     "TypeError: dim must not be given for weight 'delta', got 3. It follows from the other arg"),
)  # fmt: skip
