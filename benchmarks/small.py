"""Build small models of transformers and timm with random weights, from their classes alone.

The names of sizes are the same in most families, so a configuration is made small by these names.
Further arguments of a family are in ``TOLD``. The arguments of a call follow from the arguments of
the model's ``forward``.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

SIZES: dict[str, int | None] = {
    name: size
    for size, names in {
        2: "num_hidden_layers num_layers depth n_layer encoder_layers decoder_layers "
        "num_encoder_layers num_decoder_layers encoder_num_hidden_layers "
        "decoder_num_hidden_layers num_key_value_heads num_kv_heads encoder_num_key_value_heads "
        "decoder_num_key_value_heads num_experts_per_tok moe_topk top_k_experts "
        "linear_num_key_heads",
        4: "num_attention_heads num_heads n_head encoder_attention_heads decoder_attention_heads "
        "encoder_num_attention_heads decoder_num_attention_heads num_experts num_local_experts "
        "n_routed_experts linear_num_value_heads patch_size",
        1: "n_group topk_group n_shared_experts first_k_dense_replace mamba_n_groups bos_token_id",
        8: "sliding_window hidden_size_per_layer_input rotary_dim mamba_n_heads",
        16: "head_dim d_kv kv_channels kv_lora_rank qk_nope_head_dim v_head_dim qk_rope_head_dim "
        "mamba_d_head mamba_d_state linear_key_head_dim linear_value_head_dim",
        24: "q_lora_rank",
        32: "image_size moe_intermediate_size shared_expert_intermediate_size",
        64: "hidden_size d_model embed_dim dim n_embd width hidden_dim out_hidden_size "
        "projection_dim n_positions vocab_size vocab_size_per_layer_input num_position_embeddings",
        96: "intermediate_size ffn_dim n_inner intermediate_size_mlp shared_intermediate_size "
        "encoder_ffn_dim decoder_ffn_dim",
        128: "max_position_embeddings mamba_d_ssm",
        0: "pad_token_id",
        None: "eos_token_id",
    }.items()
    for name in names.split()
}
"""Name of a size → how small it is made."""

OPTIONAL = ("head_dim", "num_key_value_heads", "q_lora_rank", "sliding_window")
"""Sizes that stay None where a family has them so, at the first attempt."""

ROPE = {"rope_type": "default", "rope_theta": 1e4}
MROPE: list[dict[str, Any]] = [
    {"rope_parameters": {**ROPE, "mrope_section": each}} for each in ([4, 2, 2], [2, 1, 1])
]
"""What models of three coordinates are told: where all channels turn, and where half of them do."""

TOLD: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1]},
    "chameleon": {"vocabulary_map": {"<image>": 5}},
    "clvp": {"hidden_size": 256, "projection_dim": 256},
    "eomt_dinov3": {"num_blocks": 1},
    "esm": {"position_embedding_type": "rotary"},
    "gemma3n": {"num_kv_shared_layers": 0},
    "granitemoehybrid": {"position_embedding_type": "rope", "layer_types": ["attention"] * 2},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "llama4": {"intermediate_size": 256},
    "longcat_flash": {
        "num_layers": 1,
        "ffn_hidden_size": 96,
        "expert_ffn_hidden_size": 32,
        "zero_expert_num": 2,
    },
    "mistral4": {
        "rope_parameters": {
            **ROPE,
            "original_max_position_embeddings": 128,
            "llama_4_scaling_beta": 0.1,
        }
    },
    "moonshine": {"encoder_num_key_value_heads": 4, "decoder_num_key_value_heads": 4},
    "recurrent_gemma": {"num_hidden_layers": 3, "attention_window_size": 8},
    "seamless_m4t": {"position_embeddings_type": "rotary"},
    "timesfm2_5": {"context_length": 128},
    "wav2vec2_bert": {"position_embeddings_type": "rotary"},
    "wav2vec2_conformer": {"position_embeddings_type": "rotary"},
    "zamba2": {"use_mem_rope": True, "layers_block_type": ["linear_attention", "hybrid"]},
}
"""Family → what its configuration has to be told besides sizes."""

NORM_FLAGS = ("qk_layernorm", "use_qk_norm")
"""What a configuration is told to normalise queries and keys, where it does not by itself."""

LARGEST = 5e7  # numbers of a model that did not become small


def known(config: Any, name: str) -> Any:
    """Return an attribute of a configuration, or None if there is no single value."""
    try:
        return getattr(config, name, None)
    except Exception:
        return None


def small(kind: type, told: dict[str, Any], whole: bool = False, types: bool = True) -> Any:
    """Return a small configuration of a class.

    Args:
        kind: The class.
        told: Arguments besides the sizes.
        whole: Whether sizes that are None by default get a value, too.
        types: Whether the configuration gets one layer of each layer type.
    """
    base, given = kind(), {}
    names = {name for each in kind.__mro__ for name in getattr(each, "__annotations__", {})}
    names |= {*inspect.signature(kind).parameters, *vars(base)}
    for name, part in (getattr(kind, "sub_configs", None) or {}).items():
        have = known(base, name)
        part = part if have is None else type(have)
        if inspect.isclass(part) and hasattr(part, "model_type") and part.model_type:
            with contextlib.suppress(Exception):  # it keeps its own
                given[name] = small(part, {}, whole, types)
    for name, size in SIZES.items():
        now = known(base, name)
        plain = now is None or (isinstance(now, int) and not isinstance(now, bool))
        if name not in names or not plain or (now is None and name in OPTIONAL and not whole):
            continue
        if name == "num_key_value_heads" and now == known(base, "num_attention_heads"):
            size = 4
        given[name] = size
    layers = [*dict.fromkeys(known(base, "layer_types") or [])]
    if types and len(layers) > 1 and "num_hidden_layers" in given:
        given |= {"layer_types": layers, "num_hidden_layers": len(layers)}
    return kind(**given | told)


def attempts(kind: type, family: str, mrope: bool, norms: bool = False) -> Iterator[Any]:
    """Yield small configurations of a class, the most promising first.

    Args:
        kind: The class.
        family: Name of the family.
        mrope: Whether positions have three coordinates.
        norms: Whether the configuration is told to normalise queries and keys. If it has no such
            option, nothing is yielded.
    """
    told = TOLD.get(family, {})
    if norms:
        flags = {n: True for n in NORM_FLAGS if known(kind, n) is False}
        if not flags:
            return
        told = {**told, **flags}
    done = []
    for extra in [*MROPE, {}] if mrope else [{}]:
        for whole in (False, True):
            for types in (True, False):
                with contextlib.suppress(Exception):  # its sizes do not fit together
                    config = small(kind, copy.deepcopy({**told, **extra}), whole, types)
                    if config.to_dict() not in done:  # most families have fewer ways to be small
                        done.append(config.to_dict())
                        yield config


def build(kind: Any, config: Any) -> nn.Module | None:
    """Return a model with random weights, or None if the model is not small."""
    with torch.device("meta"):
        count = sum(p.numel() for p in kind(copy.deepcopy(config)).parameters())
    return filled(kind(config)) if count < LARGEST else None


def filled(model: nn.Module) -> nn.Module:
    """Fill a model with random weights that make its outputs differ, and return it.

    Scales with an initial value close to 0, such as 1e-5 in LayerScale, are set to 1. Otherwise the
    layers would hardly change the outputs.
    """
    torch.manual_seed(0)
    for parameter in model.parameters():
        if parameter.ndim > 1 and parameter.requires_grad:  # no table of sines, as RoFormer has it
            nn.init.normal_(parameter, std=0.1)
        elif not parameter.isfinite().all() or near_zero(parameter):
            nn.init.ones_(parameter)
    return model.eval()


def near_zero(scales: Tensor) -> bool:
    """Return whether all numbers are equal and close to 0, but not 0 as in a bias."""
    return scales.numel() > 0 and bool(
        (scales == scales.flatten()[0]).all() and 0 < scales.flatten()[0] < 0.1
    )


def tokens(length: int = 20) -> Tensor:
    """Return the tokens of two texts, ``(2, length)``."""
    return (torch.arange(2 * length) % 50 + 5).view(2, length)


def calls(model: Any, config: Any) -> Iterator[dict[str, Any]]:
    """Yield arguments with which a model may be called."""
    own = inspect.signature(model.forward).parameters
    generator = torch.Generator().manual_seed(0)

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    def size(*names: str, otherwise: int) -> int:
        found = next((known(config, name) for name in names if known(config, name)), otherwise)
        return found if isinstance(found, int) else found[0]

    side, patch = size("image_size", otherwise=32), size("patch_size", otherwise=4)
    channels, width = (
        size("num_channels", "in_channels", otherwise=3),
        size("hidden_size", otherwise=64),
    )
    flat = channels * patch**2 * size("temporal_patch_size", otherwise=1)
    mels = size("num_mel_bins", "feature_size", "feature_projection_input_dim", otherwise=80)
    grid = {"grid_thw": torch.tensor([[1, 4, 6]]), "merge_sizes": torch.tensor([2])}
    grid = {name: each for name, each in grid.items() if name in own}
    cells = torch.cartesian_prod(torch.arange(4), torch.arange(6))[None]
    kinds: list[tuple[str, Any]] = [
        ("decoder_input_ids", {"input_ids": tokens(), "decoder_input_ids": tokens(7)}),
        ("input_ids", {"input_ids": tokens()}),
        ("grid_thw", {"hidden_states": noise(24, flat), **grid}),
        ("grid_thw", {"pixel_values": noise(24, flat), **grid}),
        ("grid_thw", {"hidden_states": noise(24, width), **grid}),
        ("pixel_position_ids", {"pixel_values": noise(1, 24, flat), "pixel_position_ids": cells}),
        ("pixel_values", {"pixel_values": noise(1, channels, side, side)}),
        ("pixel_values", {"pixel_values": noise(2, 1, 1, side, side)}),
        ("pixel_values_videos", {"pixel_values_videos": noise(1, 3, channels, side, side)}),
        ("past_values", {"past_values": [noise(64), noise(64)]}),
        ("input_features", {"input_features": noise(1, mels, 200)}),
        ("input_features", {"input_features": noise(1, 40, mels)}),
        ("input_values", {"input_values": noise(1, 4000)}),
        ("input_values", {"input_values": noise(1, 1, 4000)}),
        ("inputs_embeds", {"inputs_embeds": noise(2, 20, width)}),
        ("hidden_states", {"hidden_states": noise(2, 20, width)}),
    ]
    cache = {"use_cache": False} if "use_cache" in own else {}
    for name, given in kinds:
        if name in own and own.keys() >= given.keys():
            yield {**given, **cache}
