"""The kinds of layers that chapters 17, 18 and 22 say that released models alternate."""

from __future__ import annotations

import pytest

transformers = pytest.importorskip("transformers", minversion="5.23")
FOURTH = [(layer + 1) % 4 == 0 for layer in range(8)]


def test_local_layers_rotate_and_every_fourth_is_global_without_positions() -> None:
    llama, cohere, exaone = (
        getattr(transformers, f"{name}Config")() for name in ("Llama4Text", "Cohere2", "Exaone4")
    )
    for config, local in (
        (llama, "chunked_attention"),
        (cohere, "sliding_attention"),
        (exaone, "sliding_attention"),
    ):
        kinds = config.layer_types[:8]
        assert [kind == "full_attention" for kind in kinds] == FOURTH
        assert {*kinds} == {"full_attention", local}
    assert [rotates == 0 for rotates in llama.no_rope_layers[:8]] == FOURTH
    assert llama.attention_chunk_size == 8192


def test_smollm_is_global_and_kimi_mostly_linear() -> None:
    smollm, kimi = transformers.SmolLM3Config(), transformers.KimiLinearConfig()
    assert {*smollm.layer_types} == {"full_attention"}
    assert [rotates == 0 for rotates in smollm.no_rope_layers[:8]] == FOURTH
    assert {*kimi.layer_types} == {"full_attention", "linear_attention"}
    share = kimi.layer_types.count("linear_attention") / len(kimi.layer_types)
    assert 0.7 < share < 0.8
