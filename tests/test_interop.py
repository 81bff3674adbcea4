"""The lines that build the encoders of released models, against the models' own code.

The models compute angles in float32: positions here are small, so that the two agree.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from book.released import PHI_3_LONG, RELEASED, text_and_image
from stringlib import STRING, ALiBi, MixedRoPE, RoPE, T5Bias
from stringlib.encoders import scaling
from stringlib.encoders.rotary import RotaryEncoder
from stringlib.inputs import LAYOUTS
from stringlib.positions import grid_positions
from stringlib.testing import properties
from tests.draws import random

EQUAL, OTHER = 5e-7, 1e-3  # of logits, in products of norms: equal if below, others if above
ROWS, COLUMNS, WORDS = 4, 6, 3
SIZES = {1: (16,), 2: (ROWS, COLUMNS), 3: (WORDS, ROWS, COLUMNS)}

Turn = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


# --- the models' own code ---


def other(name: str) -> Any:
    """Return a module of another library, or skip the test."""
    if find_spec(name.partition(".")[0]) is None:
        pytest.skip(f"could not import {name!r}")
    return import_module(name)


def part(name: str, what: str) -> Any:
    """Return a module of one of the models of transformers."""
    return other(f"transformers.models.{name}.{what}_{name}")


def config(name: str, kind: str, **options: Any) -> Any:
    """Return a model's configuration; the defaults are those of the library."""
    return getattr(part(name, "configuration"), f"{kind}Config")(**options)


def rope(base: float, **options: Any) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": base, **options}


class Text:
    """The rotations of a language model of transformers: its module, and what it does with it."""

    def __init__(self, name: str, kind: str, of: str = "", layers: str = "", **options: Any):
        self.name, self.layers = name, layers
        self.make = f"{kind}RotaryEmbedding", of or kind, options

    @cached_property
    def rotary(self) -> Any:
        kind, of, options = self.make
        return getattr(self.model, kind)(config(self.name, of, **options))

    @property
    def model(self) -> Any:
        return part(self.name, "modeling")

    def tables(self, q: Tensor, positions: Tensor) -> Any:
        ids = positions.mT if positions.shape[-1] == 1 else positions.mT[:, None]
        return self.rotary(q, ids, *[self.layers] * bool(self.layers))

    def frequencies(self) -> Tensor:
        return getattr(self.rotary, f"{self.layers}_inv_freq".lstrip("_"))

    def __call__(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        return self.model.apply_rotary_pos_emb(q, k, *self.tables(q, positions))


def behind_tokens(turn: Any, q: Tensor, k: Tensor, *tables: Tensor) -> tuple[Tensor, Tensor]:
    """Return what a function makes of queries and keys that wants heads behind tokens."""
    q, k = turn(q.transpose(1, 2), k.transpose(1, 2), *tables)
    return q.transpose(1, 2), k.transpose(1, 2)


class Llama4(Text):
    def __call__(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        return behind_tokens(self.model.apply_rotary_emb, q, k, self.tables(q, positions))


class Gemma4(Text):
    """Turns queries and keys one after the other."""

    def __call__(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        tables = self.tables(q, positions)
        q, k = (self.model.apply_rotary_pos_emb(x, *tables) for x in (q, k))
        return q, k


class LongPhi3(Text):
    """One token far away makes the text a long one."""

    def tables(self, q: Tensor, positions: Tensor) -> Any:
        far = torch.cat([positions, torch.tensor([[5000.0]])])
        return [table[:, :-1] for table in super().tables(q, far)]


class DeepSeek(Text):
    """Turns the last channels of a head."""

    def __call__(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        sizes = self.rotary.config.qk_nope_head_dim, self.rotary.config.qk_rope_head_dim
        tables = self.tables(q, positions)
        (q, turning_q), (k, turning_k) = (x.split(sizes, -1) for x in (q, k))
        turned = self.model.apply_rotary_pos_emb_interleave(turning_q, turning_k, *tables)
        return torch.cat([q, turned[0]], -1), torch.cat([k, turned[1]], -1)


def qwen2_vl_tower(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    model, made = part("qwen2_vl", "modeling"), config("qwen2_vl", "Qwen2VLVision")
    grid = torch.tensor([[1, ROWS, COLUMNS]])
    ids = model.get_vision_position_ids(grid, made.spatial_merge_size)
    assert torch.equal(ids.double(), positions)
    tables = model.Qwen2VLVisionRotaryEmbedding(made)(q, ids.mT[None])
    return behind_tokens(model.apply_rotary_pos_emb_vision, q, k, *tables)


def llama_4_tower(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    model = part("llama4", "modeling")
    made = config("llama4", "Llama4Vision", hidden_size=1408, image_size=14 * ROWS)
    table = model.Llama4VisionRotaryEmbedding(made)(q)
    return behind_tokens(model.vision_apply_rotary_emb, q, k, table)


def dinov3(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    model, made = part("dinov3_vit", "modeling"), config("dinov3_vit", "DINOv3ViT")
    pixels = torch.zeros(1, 3, made.patch_size * ROWS, made.patch_size * COLUMNS)
    rotary = model.DINOv3ViTRopePositionEmbedding(made).eval()
    return model.apply_rotary_pos_emb(q, k, *rotary(pixels))


def sam_2(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    model = part("sam2_video", "modeling")
    made = config("sam2_video", "Sam2Video", memory_attention_rope_feat_sizes=[COLUMNS, ROWS])
    ids = model.Sam2VideoMemoryAttention.precompute_positions(made)
    assert torch.equal(ids.double(), positions)
    tables = model.Sam2VideoVisionRotaryEmbedding(made)(q, ids)
    return model.apply_rotary_pos_emb_2d(q, k, *tables)


def vit(name: str) -> Any:
    """Return one layer of a model of timm for a small image that is wider than high."""
    size = 14 if "patch14" in name else 16
    shape = size * ROWS, size * COLUMNS
    return other("timm").create_model(name, img_size=shape, depth=1, num_classes=0).eval()


def turned(model: Any, q: Tensor, k: Tensor, tables: Tensor) -> tuple[Tensor, Tensor]:
    """Return what the attention of a model of timm makes of its tables."""
    layers = other("timm.layers")
    half = model.blocks[0].attn.rotate_half
    q, k = (layers.apply_rot_embed_cat(x, tables, half=half) for x in (q, k))
    return q, k


def tower(name: str) -> Turn:
    """Return what turns queries and keys in a vision transformer of timm."""

    def turn(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        model = vit(name)
        return turned(model, q, k, model.rope.get_embed([ROWS, COLUMNS]))

    return turn


LLAMA_3 = {
    **rope(5e5, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0),
    "rope_type": "llama3",
    "original_max_position_embeddings": 8192,
}
LONG_LLAMA = {"max_position_embeddings": 131_072, "rope_parameters": LLAMA_3}
DEEPSEEK = {
    **rope(1e4, factor=40.0, original_max_position_embeddings=4096, beta_fast=32, beta_slow=1),
    "rope_type": "yarn",
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
}
LONG_DEEPSEEK = {"max_position_embeddings": 163_840, "rope_parameters": DEEPSEEK}
PHI_3 = {
    **rope(1e4, short_factor=[1.0] * 48, long_factor=PHI_3_LONG.tolist()),
    "rope_type": "longrope",
    "original_max_position_embeddings": 4096,
}
LONG_PHI_3 = {"max_position_embeddings": 131_072, "rope_parameters": PHI_3}
GEMMA_3 = {
    "sliding_attention": rope(1e4),
    "full_attention": {**rope(1e6, factor=8.0), "rope_type": "linear"},
}
LOCAL, GLOBAL = "sliding_attention", "full_attention"

THEIRS: list[tuple[str, Turn]] = [
    ("Llama 2, Mistral 7B v0.1", Text("llama", "Llama")),
    ("Llama 3", Text("llama", "Llama", rope_parameters=rope(5e5))),
    ("Llama 3.1", Text("llama", "Llama", **LONG_LLAMA)),
    ("Mistral 7B v0.3, Qwen2.5", Text("mistral", "Mistral", rope_parameters=rope(1e6))),
    ("Llama 4, text", Llama4("llama4", "Llama4Text")),
    ("Gemma 3, local layers", Text("gemma3", "Gemma3", "Gemma3Text", LOCAL)),
    (
        "Gemma 3, global layers",
        Text("gemma3", "Gemma3", "Gemma3Text", GLOBAL, rope_parameters=GEMMA_3),
    ),
    ("Gemma 4, global layers", Gemma4("gemma4", "Gemma4Text", layers=GLOBAL)),
    ("ModernBERT, global layers", Text("modernbert", "ModernBert", layers=GLOBAL)),
    ("ModernBERT, local layers", Text("modernbert", "ModernBert", layers=LOCAL)),
    ("GPT-NeoX", Text("gpt_neox", "GPTNeoX")),
    ("GLM-4", Text("glm4", "Glm4")),
    ("Cohere", Text("cohere", "Cohere")),
    ("Phi-3 mini 128k, long texts", LongPhi3("phi3", "Phi3", **LONG_PHI_3)),
    ("gpt-oss", Text("gpt_oss", "GptOss")),
    ("DeepSeek-V3", DeepSeek("deepseek_v3", "DeepseekV3", **LONG_DEEPSEEK)),
    ("Qwen2-VL, text", Text("qwen2_vl", "Qwen2VL", "Qwen2VLText")),
    (
        "Qwen3-VL, text",
        Text("qwen3_vl", "Qwen3VLText", rope_parameters=rope(5e6, mrope_section=[24, 20, 20])),
    ),
    ("Qwen2-VL, tower", qwen2_vl_tower),
    ("Llama 4, tower", llama_4_tower),
    ("EVA-02", tower("eva02_tiny_patch14_224")),
    ("Perception Encoder", tower("vit_pe_core_tiny_patch16_384")),
    ("RoPE-ViT, axial", tower("vit_small_patch16_rope_224")),
    ("DINOv3", dinov3),
    ("DINOv3", tower("vit_small_patch16_dinov3")),
    ("SAM 2, memory attention", sam_2),
]


# --- each row of the table ---


def drawn(encoder: RotaryEncoder, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Return a query and a key for each position."""
    heads = encoder.heads if encoder.heads > 1 else 2
    q, k = random(2, 1, heads, len(positions), encoder.head_dim)
    return q, k


def gap(encoder: RotaryEncoder, positions: Tensor, wanted: Tensor, factor: float = 1.0) -> float:
    """Return how far the logits of an encoder are from others, in products of norms."""
    q, k = drawn(encoder, positions)
    turning = 2 * encoder.frequencies().shape[-2]
    grown = torch.ones(encoder.head_dim, dtype=torch.float64)
    grown[:turning] = factor
    found = [x * grown for x in encoder(q, k, positions)]
    return properties.relative_logit_error(found[0] @ found[1].mT, wanted, q, k)


def in_another_layout(encoder: RotaryEncoder) -> STRING:
    (other,) = {*LAYOUTS} - {encoder.layout}
    return STRING(encoder.frequencies(), encoder.basis(), layout=other)


def same_and_others(
    encoder: RotaryEncoder, positions: Tensor, wanted: Tensor, factor: float = 1.0
) -> None:
    """Hold an encoder to logits that its neighbours miss."""
    assert gap(encoder, positions, wanted, factor) < EQUAL
    assert gap(in_another_layout(encoder), positions, wanted, factor) > OTHER
    assert gap(encoder, positions, wanted, 1.01 * factor) > OTHER
    if encoder.coord_dim > 1:
        assert gap(encoder, positions.flip(-1), wanted, factor) > OTHER


@pytest.mark.parametrize(("name", "theirs"), THEIRS, ids=[name for name, _ in THEIRS])
def test_a_line_gives_the_logits_of_the_model(name: str, theirs: Turn) -> None:
    row = RELEASED[name]
    encoder = row.encoder()
    positions = row.positions(*SIZES[encoder.coord_dim])
    if name == "Llama 4, tower":
        positions = row.positions(ROWS, ROWS)  # its images are square
    q, k = theirs(*drawn(encoder, positions), positions)
    same_and_others(encoder, positions, q @ k.mT, row.factor)
    assert gap(row.encoder(3 * row.base), positions, q @ k.mT, row.factor) > OTHER
    if not row.moves_channels:  # vectors show what logits do not, such as from where one counts
        ours = encoder(*drawn(encoder, positions), positions)
        for x, y in zip(ours, (q, k), strict=True):
            assert properties.largest_difference(row.factor * x, y) < 1e-5


MODULES = [(name, theirs) for name, theirs in THEIRS if isinstance(theirs, Text)]


@pytest.mark.parametrize(("name", "theirs"), MODULES, ids=[name for name, _ in MODULES])
def test_slow_pairs_too_have_the_frequencies_of_the_model(name: str, theirs: Text) -> None:
    """Near tokens hardly tell them apart."""
    encoder = RELEASED[name].encoder()
    positions = torch.zeros(1, encoder.coord_dim).double()
    theirs.tables(drawn(encoder, positions)[0], positions)  # LongRoPE looks at the length first
    wanted, found = encoder.frequencies()[0].sum(-1), theirs.frequencies()
    assert found.shape == wanted.shape
    assert ((found - wanted).abs() <= EQUAL * wanted).all()
    if encoder.coord_dim > 1:  # and read the same coordinate: at 0 they are not turned at all
        for axis in torch.eye(encoder.coord_dim).double():
            _, sines = theirs.tables(drawn(encoder, positions)[0], 4096 * axis[None])
            reads = encoder.frequencies()[0] @ axis != 0
            assert torch.equal(sines[0, 0, : len(reads)] != 0, reads)


def test_a_learned_line_takes_the_frequencies_of_the_model() -> None:
    row, model = RELEASED["RoPE-ViT, mixed"], vit("vit_small_patch16_rope_mixed_224")
    encoder, positions = row.encoder(), row.positions(ROWS, COLUMNS)
    assert isinstance(encoder, MixedRoPE)
    learned = model.rope.freqs[:, 0].permute(1, 2, 0)
    # at the start: the same lengths, along directions of its own in each head
    lengths = [omega.norm(dim=-1) for omega in (learned, encoder.omega)]
    assert properties.largest_difference(*lengths) < 1e-6
    with torch.no_grad():
        encoder.omega.copy_(learned)
    q, k = turned(model, *drawn(encoder, positions), model.rope.get_embed([ROWS, COLUMNS])[0])
    same_and_others(encoder, positions, q @ k.mT)


def test_every_row_is_held_to_a_model() -> None:
    assert {name for name, _ in THEIRS} | {"RoPE-ViT, mixed"} == {*RELEASED}
    assert len(RELEASED) > 20


@pytest.mark.parametrize("kind", ["Qwen2VL", "Qwen3VL"])
def test_words_after_an_image_go_on_behind_its_longer_side(kind: str) -> None:
    """And the image stands in the text as one token of time."""
    name = {"Qwen2VL": "qwen2_vl", "Qwen3VL": "qwen3_vl"}[kind]
    model = getattr(part(name, "modeling"), f"{kind}Model")

    class Stub:
        config = SimpleNamespace(vision_config=SimpleNamespace(spatial_merge_size=2))
        get_vision_position_ids = model.get_vision_position_ids

    kinds = torch.tensor([[0] * WORDS + [1] * (ROWS * COLUMNS) + [0] * WORDS])
    grid = torch.tensor([[1, 2 * ROWS, 2 * COLUMNS]])  # patches, four of which make a token
    found, _ = model.get_rope_index(Stub(), torch.ones_like(kinds), kinds, grid)
    assert torch.equal(found[:, 0].mT.double(), text_and_image(WORDS, ROWS, COLUMNS))


# --- scalings ---


def test_checkpoints_with_two_scales_have_the_factors_of_yarn() -> None:
    """The second one's square is in the scale of the softmax, the quotient in the tables."""
    told = {"factor": 8.0, "original_max_position_embeddings": 512}
    told |= {"mscale": 1.0, "mscale_all_dim": 0.7}
    made = config("llama", "Llama", rope_parameters=rope(1e4, **told) | {"rope_type": "yarn"})
    _, found = other("transformers.modeling_rope_utils").ROPE_INIT_FUNCTIONS["yarn"](made, None)
    factors = [scaling.yarn_attention_factor(8, weight) for weight in (1, 0.7)]
    assert found == pytest.approx(factors[0] / factors[1], rel=1e-12)
    grown = part("deepseek_v3", "modeling").yarn_apply_mscale(DEEPSEEK, 1.0)
    assert grown == pytest.approx(scaling.yarn_attention_factor(40) ** 2)


def test_channels_that_stay_still_escape_the_factor_of_longrope() -> None:
    """In Phi-4 mini three quarters of the channels turn; the test above has no still ones."""
    model, lists = part("phi3", "modeling"), {"short_factor": [1.5] * 24, "long_factor": [3.0] * 24}
    parameters = rope(1e4, **lists, partial_rotary_factor=0.75) | {"rope_type": "longrope"}
    lengths = {"max_position_embeddings": 4096, "original_max_position_embeddings": 1024}
    sizes = {"hidden_size": 128, "num_attention_heads": 2, "rope_parameters": parameters}
    made = config("phi3", "Phi3", **lengths, **sizes)
    slower = scaling.long_rope(RoPE(48).frequencies(), torch.full((24,), 1.5))
    encoder, positions = STRING(slower, head_dim=64, layout="half"), grid_positions(16)
    q, k = drawn(encoder, positions)
    tables = model.Phi3RotaryEmbedding(made)(q, positions.mT)
    q, k = model.apply_rotary_pos_emb(q, k, *tables)
    factor = scaling.long_rope_attention_factor(4, 1024)
    assert gap(encoder, positions, q @ k.mT, factor) < EQUAL
    assert gap(encoder, positions, q @ k.mT) > OTHER


# --- what turns nothing ---


@pytest.mark.parametrize("causal", [False, True])
def test_the_buckets_of_t5(causal: bool) -> None:
    model = part("t5", "modeling")
    made = config("t5", "T5", d_model=32, d_kv=8, num_heads=4, is_decoder=causal)
    theirs = model.T5Attention(made, has_relative_attention_bias=True, layer_idx=0)
    ours = T5Bias(4, bidirectional=not causal)
    nn.init.normal_(ours.weight)
    with torch.no_grad():
        theirs.relative_attention_bias.weight.copy_(ours.weight)
    assert torch.equal(theirs.compute_bias(300, 300)[0], ours(300, 300))


@pytest.mark.parametrize("heads", [8, 12, 20])
def test_the_slopes_of_bloom_and_mpt(heads: int) -> None:
    """Their biases grow with the key alone: what the query adds drops out of the softmax."""
    length = 9
    bloom = part("bloom", "modeling").build_alibi_tensor(
        torch.ones(1, length), heads, torch.float32
    )
    mpt = part("mpt", "modeling").build_mpt_alibi_tensor(heads, length)
    seen = torch.ones(length, length).tril() > 0

    def weights(bias: Tensor) -> Tensor:
        spread = bias.double().reshape(heads, -1, length).expand(-1, length, -1)
        return spread.masked_fill(~seen, -torch.inf).softmax(-1)

    ours = weights(ALiBi(heads)(length, length))
    for theirs in (bloom, mpt):
        assert properties.largest_difference(weights(theirs), ours) < 1e-7
        assert properties.largest_difference(weights(2 * theirs), ours) > 1e-3


def test_the_libraries_are_imported_in_plain_python() -> None:
    """Beside a torchvision that was built for another PyTorch, too (tools/fit_torchvision.py)."""
    program = "import timm; from transformers import LlamaForCausalLM"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
