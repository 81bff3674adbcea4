"""Whole models of other libraries, with random weights, whose rotations come from encoders."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from book.own_lines import OWN
from book.released import image_as_16
from stringlib import (
    STRING,
    AxialRoPE,
    CayleySTRING,
    CirculantSTRING,
    RoPE,
)
from stringlib.encoders.rope import mrope
from stringlib.encoders.rotary import RotaryEncoder
from stringlib.encoders.scaling import (
    position_interpolation,
    yarn_attention_factor,
    yarn_by_index,
)
from stringlib.interop.adapters import (
    KeptPatches,
    PatchPositions,
    RotaryTables,
    Rotated,
    load_encoders,
)
from stringlib.positions import grid_positions
from stringlib.testing.properties import largest_difference
from tests.draws import random
from tests.test_interop import other

SIZES: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
HEAD = 16
TOKENS = torch.arange(2, 42).view(2, 20)


def filled(model: nn.Module) -> Any:
    """Return the model with weights that make logits differ."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        if parameter.ndim > 1 or parameter.std() == 0:
            nn.init.normal_(parameter, std=0.3)
    return model.eval()


def causal(kind: str, text: str = "", **options: Any) -> Any:
    """Return a language model of transformers, of the sizes here but for the options."""
    transformers = other("transformers")
    config = getattr(transformers, f"{kind}{text}Config")(**SIZES | options)
    return filled(getattr(transformers, f"{kind}ForCausalLM")(config))


def tower(kind: str, **options: Any) -> Any:
    """Return a vision transformer of transformers; ``kind`` is that of its configuration."""
    transformers = other("transformers")
    sizes = {"hidden_size": 64, "intermediate_size": 96}
    sizes |= {"num_hidden_layers": 2, "num_attention_heads": 4}
    config = getattr(transformers, f"{kind}Config")(**sizes, **options)
    return filled(getattr(transformers, f"{kind}Model")(config))


def random_encoder(**options: Any) -> CirculantSTRING:
    encoder = CirculantSTRING(HEAD, **options)
    nn.init.normal_(encoder.coefficients, generator=torch.Generator().manual_seed(1))
    return encoder


def far(a: Tensor, b: Tensor) -> float:
    """Return the largest difference, in units of the largest entry."""
    return largest_difference(a, b) / b.abs().max().item()


@pytest.fixture
def llama() -> Any:
    return causal("Llama", attention_bias=True)


HALF = ("Exaone4", "Glm4", "GPTNeoX", "Llama", "Olmo2", "Persimmon", "Phi", "Qwen3")
FAMILIES = {**dict.fromkeys(HALF, "half"), "Cohere2": "interleaved"}


@torch.no_grad()
@pytest.mark.parametrize("name", FAMILIES)
def test_two_lines_leave_other_families_as_they_were(name: str) -> None:
    model = causal(name)
    before, body = model(TOKENS).logits, model.base_model
    encoder = STRING.from_inv_freq(body.rotary_emb.inv_freq)  # fewer channels where a part turns
    body.rotary_emb = RotaryTables(encoder, FAMILIES[name])
    assert far(model(TOKENS).logits, before) < 1e-5
    slower = position_interpolation(encoder.frequencies(), 2)
    body.rotary_emb = RotaryTables(STRING(slower), FAMILIES[name])
    assert far(model(TOKENS).logits, before) > 1e-3


@torch.no_grad()
def test_global_layers_alone_have_the_factor_of_yarn() -> None:
    longer = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64}
    types = {"sliding_attention": {"rope_type": "default"}, "full_attention": longer}
    ropes = {name: {**rope, "rope_theta": 5e5} for name, rope in types.items()}
    model = causal("Olmo3", sliding_window=7, layer_types=[*types], rope_parameters=ropes)
    before, plain = model(TOKENS).logits, RoPE(HEAD, base=5e5)
    slow = STRING(yarn_by_index(plain.frequencies(), 8, 64))
    encoders = dict(zip(types, (plain, slow), strict=True))
    factor = yarn_attention_factor(8)
    model.model.rotary_emb = RotaryTables(encoders, scale={"full_attention": factor})
    assert far(model(TOKENS).logits, before) < 1e-5
    model.model.rotary_emb = RotaryTables(encoders, scale=factor)
    assert far(model(TOKENS).logits, before) > 1e-3


@torch.no_grad()
@pytest.mark.parametrize("kind", ["Qwen2VL", "Qwen3VL"])
def test_text_with_images_has_three_coordinates(kind: str) -> None:
    transformers = other("transformers")
    sections = [4, 2, 2]
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": sections}
    size = {"head_dim": HEAD} if kind == "Qwen3VL" else {}
    config = getattr(transformers, f"{kind}TextConfig")(**SIZES, **size, rope_parameters=rope)
    model = filled(getattr(transformers, f"{kind}TextModel")(config))
    places = torch.randint(16, (3, 2, 20), generator=torch.Generator().manual_seed(0))
    before = model(TOKENS, position_ids=places).last_hidden_state
    plain = RoPE(HEAD, base=1e6).frequencies()
    for interleaved in (False, True):
        encoder = STRING(mrope(plain, sections, interleaved=interleaved))
        model.rotary_emb = RotaryTables(encoder)
        error = far(model(TOKENS, position_ids=places).last_hidden_state, before)
        assert error < 1e-5 if interleaved == (kind == "Qwen3VL") else error > 1e-2


MIXTURE = {"num_local_experts": 2, "num_experts_per_tok": 1}
BY_PAIR: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt-oss": ("GptOss", "pairs", {"head_dim": HEAD, **MIXTURE}),
    "llama 4": ("Llama4", "complex", {"head_dim": HEAD, "intermediate_size_mlp": 96, **MIXTURE}),
    "deepseek v2": (
        "DeepseekV2",
        "complex",
        {"head_dim": HEAD, "qk_rope_head_dim": HEAD, "first_k_dense_replace": 2,
         "num_key_value_heads": 4},
    ),
}  # fmt: skip


@torch.no_grad()
@pytest.mark.parametrize("name", BY_PAIR)
def test_models_whose_tables_have_one_entry_a_pair(name: str) -> None:
    kind, layout, options = BY_PAIR[name]
    model = causal(kind, "Text" if kind == "Llama4" else "", **options)
    before, own = model(TOKENS).logits, model.model.rotary_emb
    encoder = STRING.from_inv_freq(own.inv_freq)
    assert encoder.head_dim == HEAD
    model.model.rotary_emb = tables = RotaryTables(encoder, layout, own.attention_scaling)
    assert far(model(TOKENS).logits, before) < 2e-6
    told = torch.zeros(1, 20, 64), torch.arange(20)[None]
    traced = torch.compile(tables, fullgraph=True, backend="eager")(*told)
    assert all(torch.equal(*pair) for pair in zip(traced, tables(*told), strict=True))
    model.model.rotary_emb = RotaryTables(RoPE(HEAD, base=100), layout)
    assert far(model(TOKENS).logits, before) > 1e-2


PER_PAIR = {
    "short_factor": [1 + i / 10 for i in range(8)],
    "long_factor": [2.0 + i for i in range(8)],
}
EIGHT = {"factor": 8.0, "original_max_position_embeddings": 32}
SCALED: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 2.0},
    "yarn": EIGHT,
    "llama3": {**EIGHT, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "longrope": EIGHT | PER_PAIR,
    "proportional": {"partial_rotary_factor": 0.25},
}


def text(length: int) -> Tensor:
    return (torch.arange(2 * length) % 59 + 2).view(2, length)


@torch.no_grad()
@pytest.mark.parametrize("kind", [*SCALED, "longrope of Phimoe"])
def test_a_line_reads_whatever_scaling_a_model_has(kind: str) -> None:
    """Also where texts that are longer and shorter than those of training follow each other."""
    kind, _, family = kind.partition(" of ")
    rope = {"rope_type": kind, "rope_theta": 1e4, **SCALED[kind]}
    if family:  # one factor for short texts and one for long ones
        rope |= {"short_mscale": 1.1, "long_mscale": 1.3}
    more = MIXTURE if family else {"max_position_embeddings": 32}
    model = causal(family or "Llama", **more, rope_parameters=rope)
    ours = copy.deepcopy(model)
    ours.model.rotary_emb = RotaryTables.from_module(ours.model.rotary_emb)
    for length in (20, 32, 33, 50, 40, 20, 45):
        assert far(ours(text(length)).logits, model(text(length)).logits) < 5e-6
    told = {"attention_mask": torch.ones(2, 20).long(), "max_new_tokens": 20, "do_sample": False}
    assert torch.equal(ours.generate(text(20), **told), model.generate(text(20), **told))


@torch.no_grad()
def test_pictures_of_any_size_have_their_own_positions() -> None:
    model = tower("PixtralVision", image_size=64, patch_size=8)
    pixels, sizes = random(2, 3, 48, 64).float(), [(48, 64), (32, 40)]
    before = model(pixels, image_sizes=sizes).last_hidden_state
    tables = RotaryTables.from_module(model.patch_positional_embedding)
    assert tables.encoder.coord_dim == 2
    model.patch_positional_embedding = tables
    assert far(model(pixels, image_sizes=sizes).last_hidden_state, before) < 5e-6
    flipped = STRING(tables.encoder.frequencies().flip(-1))
    model.patch_positional_embedding = RotaryTables(flipped, coordinates="last")
    assert far(model(pixels, image_sizes=sizes).last_hidden_state, before) > 1e-2


def exchange(model: nn.Module) -> int:
    """Put the lines of the book in for every module that has some; return for how many."""
    found = [(name, x) for name, x in model.named_modules() if type(x).__name__ in OWN]
    for name, module in found:
        parent, _, own = name.rpartition(".")
        setattr(model.get_submodule(parent), own, OWN[type(module).__name__](module))
    return len(found)


EVA = {"embed_dim": 64, "num_heads": 4, "depth": 2, "num_classes": 5}
TOWERS = {
    "eva02_tiny_patch14_224": {},
    "vit_pe_core_tiny_patch16_384": {},
    "vit_small_patch16_rope_224": {},
    "vit_small_patch16_rope_mixed_224": {},
    "vit_small_patch16_dinov3": {},
    "vit_small_patch16_rope_ape_224": {"rope_type": "mrope", "rope_mrope_section": (2, 3, 3)},
}


def small(name: str) -> tuple[Any, Tensor]:
    """Return one of them, and pictures for it that are wider than high."""
    size = 14 if "patch14" in name else 16
    sizes = {**EVA, "img_size": (4 * size, 6 * size), **TOWERS[name]}
    if "mrope" in TOWERS[name].values():
        sizes["rope_grid_indexing"] = "ij"
    pixels = random(2, 3, 4 * size, 6 * size).float()
    return filled(other("timm").create_model(name, **sizes)), pixels


@torch.no_grad()
@pytest.mark.parametrize("name", TOWERS)
def test_the_rope_of_a_model_of_timm_is_exchanged(name: str) -> None:
    model, pixels = small(name)
    before = model(pixels)
    assert exchange(model) == 1
    assert far(model(pixels), before) < 5e-6
    narrow = copy.deepcopy(model).bfloat16()(pixels.bfloat16())
    assert far(narrow.float(), before) < 0.05
    (model.rope.freqs if "mixed" in name else model.rope.encoder._frequencies).mul_(1.1)
    assert far(model(pixels), before) > 1e-3


MOVED: dict[str, Any] = {"shift_coords": 0.5, "jitter_coords": 1.5, "rescale_coords": 2.0}


@torch.no_grad()
@pytest.mark.parametrize("name", TOWERS)
def test_a_model_of_timm_goes_on_moving_its_patches_while_it_learns(name: str) -> None:
    theirs = small(name)[0].train().rope
    at_rest = OWN[type(theirs).__name__](theirs.eval()).get_embed((4, 6))
    for told in ({}, MOVED, *({each: MOVED[each]} for each in MOVED)):
        vars(theirs).update({**dict.fromkeys(MOVED), **told}, aug_active=bool(told))
        ours = OWN[type(theirs).__name__](theirs.train())
        made = []
        for rope in (theirs, copy.deepcopy(ours)):
            torch.manual_seed(3)
            made.append(rope.get_embed((4, 6)))
        assert far(made[1], made[0]) < 1e-5
        assert (far(made[1], at_rest) > 1e-2) == bool(told)
        assert torch.equal(ours.eval().get_embed((4, 6)), at_rest)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("vit_small_patch16_dinov3", {"normalize_coords": "max"}),
        ("vit_small_patch16_dinov3", {"grid_offset": 0.5}),
        ("vit_small_patch16_dinov3", {"grid_indexing": "xy"}),
        ("eva02_tiny_patch14_224", {"grid_type": "pixel"}),
    ],
)
def test_a_grid_that_no_line_reads_is_refused(name: str, told: dict[str, Any]) -> None:
    rope = other("timm").create_model(name, **EVA).rope
    vars(rope).update(told)
    with pytest.raises(ValueError, match=f"{next(iter(told))} of {type(rope).__name__}"):
        OWN[type(rope).__name__](rope)


def test_mixed_frequencies_are_learned_under_the_key_of_the_model() -> None:
    model = other("timm").create_model("vit_small_patch16_rope_mixed_224", **EVA)
    keys, spared = {*model.state_dict()}, model.no_weight_decay()
    exchange(model)
    assert {*model.state_dict()} == keys
    assert "rope.freqs" in model.no_weight_decay() == spared
    model(torch.randn(1, 3, 224, 224)).square().sum().backward()
    assert (model.rope.freqs.grad != 0).any(-1).all()
    assert [p.device.type for p in model.to("meta").rope.parameters()] == ["meta"]


@torch.no_grad()
@pytest.mark.parametrize("kind", ["axial", "mixed", "dinov3"])
def test_pictures_of_several_sizes_in_a_model_of_timm(kind: str) -> None:
    """NaFlexViT: a dictionary of patches, each with its place."""
    sizes = {"embed_dim": 64, "num_heads": 4, "depth": 2, "num_classes": 5, "pos_embed": "none"}
    create = other("timm").create_model
    model = filled(create("naflexvit_base_patch16_gap", rope_type=kind, **sizes))
    places = [torch.cartesian_prod(torch.arange(rows), torch.arange(4)) for rows in (3, 2)]
    given = {
        "patches": random(2, 12, 16 * 16 * 3).float(),
        "patch_coord": torch.stack([places[0], nn.functional.pad(places[1], (0, 0, 0, 4))]),
        "patch_valid": torch.arange(12) < torch.tensor([[12], [8]]),
    }
    before = model(given)
    assert exchange(model) == 1
    assert far(model(given), before) < 5e-6
    (model.rope.freqs if kind == "mixed" else model.rope.encoder._frequencies).mul_(2)
    assert far(model(given), before) > 1e-3


@pytest.mark.parametrize("compiled", [False, True])
def test_a_model_that_multiplies_by_the_weight_itself_is_turned_too(compiled: bool) -> None:
    """EVA-02 adds the biases of queries and values by hand."""
    model = other("timm").create_model("eva02_tiny_patch14_224", img_size=(56, 84), **EVA)
    model, pixels = filled(model), random(2, 3, 56, 84).float()
    for block in model.blocks:
        nn.init.normal_(block.attn.q_bias)
    before = model(pixels)
    model.rope = None
    assert far(model(pixels), before) > 1e-2
    places = torch.cat([torch.zeros(1, 2), image_as_16(4, 6)])
    for block in model.blocks:
        encoder = AxialRoPE(16, 2, base=10_000)
        block.attn.qkv = Rotated(block.attn.qkv, encoder, places, heads=8)
        assert block.attn.qkv.weight.shape == (192, 64)
    run = torch.compile(model, fullgraph=True, backend="aot_eager") if compiled else model
    assert far(run(pixels), before) < 5e-6
    run(pixels).square().sum().backward()
    assert (model.blocks[0].attn.qkv.linear.weight.grad != 0).any()


@torch.no_grad()
def test_each_picture_of_a_batch_has_positions_of_its_own() -> None:
    """SigLIP 2 NaFlex: pictures of several shapes, the smaller ones padded."""
    model = tower("Siglip2Vision", num_patches=16, patch_size=4)
    pixels, seen, shapes = random(2, 12, 48).float(), torch.ones(2, 12), [[3, 4], [2, 5]]
    seen[1, 10:] = 0

    def run(of: slice, length: int = 12) -> Tensor:
        told = pixels[of, :length], seen[of, :length], torch.tensor(shapes[of])
        return model(*told).last_hidden_state[:, :length]

    before, encoder = run(slice(2)), random_encoder(coord_dim=2)
    places = PatchPositions(model.embeddings, "spatial_shapes")
    for layer in model.encoder.layers:
        for name in ("q_proj", "k_proj"):
            turned = Rotated(getattr(layer.self_attn, name), encoder, places)
            setattr(layer.self_attn, name, turned)
    after = run(slice(2))
    assert far(after, before) > 1e-2
    assert far(run(slice(0, 1)), after[:1]) < 5e-6
    assert far(run(slice(1, 2), 10), after[1:, :10]) < 5e-6
    shapes[1] = [5, 2]
    assert far(run(slice(1, 2), 10), after[1:, :10]) > 1e-3


class Chosen(nn.Module):
    """Keep the tokens of these numbers."""

    def __init__(self, kept: Tensor) -> None:
        super().__init__()
        self.kept = kept

    def forward(self, x: Tensor) -> Tensor:
        return x.gather(1, self.kept[..., None].expand(-1, -1, x.shape[-1]))


@torch.no_grad()
def test_a_model_of_timm_drops_patches() -> None:
    """Those that are kept are rotated by their positions: as if the model had no others."""
    sizes = {"img_size": (64, 96), "embed_dim": 64, "num_heads": 4, "depth": 2, "num_classes": 5}
    create = other("timm").create_model
    model = filled(create("vit_tiny_patch16_224", **sizes, patch_drop_rate=0.4))
    encoder, places = random_encoder(coord_dim=2), grid_positions(4, 6, num_prefix=1)
    pixels = random(2, 3, 64, 96).float()

    def rotated(positions: Tensor | None = None) -> Any:
        made = copy.deepcopy(model)
        given = KeptPatches(made.patch_drop, places) if positions is None else positions
        for block in made.blocks:
            block.attn.qkv = Rotated(block.attn.qkv, encoder, given, heads=8)
        return made

    ours = rotated()
    torch.manual_seed(3)
    found = ours.train()(pixels)
    torch.manual_seed(3)
    kept = torch.argsort(torch.randn(2, 24), dim=-1)[:, :14] + 1
    kept = torch.cat([torch.zeros(2, 1, dtype=torch.int64), kept], 1)
    alone = rotated(places[kept])
    alone.patch_drop = Chosen(kept)
    assert far(found, alone(pixels)) < 5e-6
    elsewhere = rotated(places[kept.flip(0)])
    elsewhere.patch_drop = Chosen(kept)
    assert far(found, elsewhere(pixels)) > 1e-3
    assert far(ours.eval()(pixels), rotated(places)(pixels)) < 5e-6


@torch.no_grad()
def test_a_model_that_moves_its_patches_while_it_learns_does_so_still() -> None:
    moved = {"pos_embed_shift": 0.1, "pos_embed_jitter": 1.2, "pos_embed_rescale": 2.0}
    model = tower("DINOv3ViT", image_size=64, patch_size=16, num_register_tokens=2, **moved)
    pixels, ours = random(2, 3, 64, 96).float(), copy.deepcopy(model)
    assert exchange(ours) == 1
    at_rest, found = model(pixels).last_hidden_state, []
    assert far(ours(pixels).last_hidden_state, at_rest) < 5e-6
    for each in (model, ours):
        torch.manual_seed(3)
        found.append(each.train()(pixels).last_hidden_state)
    assert far(found[1], found[0]) < 1e-5
    assert far(found[1], at_rest) > 1e-3


@torch.no_grad()
def test_a_learned_encoder_comes_back_from_a_directory(llama: Any, tmp_path: Path) -> None:
    llama.model.rotary_emb = RotaryTables(random_encoder())
    before = llama(TOKENS).logits
    llama.save_pretrained(tmp_path)
    loaded = type(llama).from_pretrained(tmp_path)
    assert far(loaded(TOKENS).logits, before) > 1e-2
    with pytest.raises(ValueError, match="model must contain a RotaryTables or a Rotated, got"):
        load_encoders(loaded, tmp_path)
    loaded.model.rotary_emb = RotaryTables(CirculantSTRING(HEAD, block_size=8))
    with pytest.raises(RuntimeError, match="size mismatch"):
        load_encoders(loaded, tmp_path)
    loaded.model.rotary_emb = RotaryTables(CirculantSTRING(HEAD))
    load_encoders(loaded, tmp_path)
    assert torch.equal(loaded(TOKENS).logits, before)
    loaded.model.rotary_emb = RotaryTables(STRING(RoPE(HEAD).frequencies()))
    missing = "Missing: .*_frequencies. Unexpected: model.rotary_emb.encoder.coefficients."
    with pytest.raises(ValueError, match=missing):
        load_encoders(loaded, tmp_path)


@torch.no_grad()
def test_a_directory_without_weights_is_refused(llama: Any, tmp_path: Path) -> None:
    """Also for an encoder that has nothing to load: the path may be misspelt."""
    llama.save_pretrained(tmp_path, variant="ema")
    llama.model.rotary_emb = RotaryTables.from_module(llama.model.rotary_emb)
    load_encoders(llama, tmp_path, "ema")
    for variant in (None, "other"):
        with pytest.raises(ValueError, match=r"directory must contain model\S*\.safetensors or"):
            load_encoders(llama, tmp_path, variant)


@torch.no_grad()
@pytest.mark.parametrize("order", [("5GB", "20KB"), ("20KB", "50KB")])
@pytest.mark.parametrize("variant", [None, "ema"])
def test_an_encoder_comes_from_the_files_that_the_weights_come_from(
    llama: Any, tmp_path: Path, order: tuple[str, str], variant: str | None
) -> None:
    """Also where files of an earlier model are left in a directory."""
    for at, size in enumerate(order):
        llama.model.rotary_emb = RotaryTables(random_encoder())
        llama.model.rotary_emb.encoder.coefficients.mul_(at + 1)
        llama.model.norm.weight.fill_(at + 1)
        llama.save_pretrained(tmp_path / size, max_shard_size=size, variant=variant)
        for file in (tmp_path / size).iterdir():
            shutil.copy(file, tmp_path)
    loaded = type(llama).from_pretrained(tmp_path, variant=variant)
    loaded.model.rotary_emb = RotaryTables(random_encoder())
    load_encoders(loaded, tmp_path, variant)
    factor = loaded.model.norm.weight[0]
    assert torch.equal(
        loaded.model.rotary_emb.encoder.coefficients, factor * random_encoder().coefficients
    )


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_table_that_is_a_weight_has_the_dtype_of_the_model(dtype: torch.dtype) -> None:
    model = causal("RoFormer", embedding_size=64, is_decoder=True)
    narrow = copy.deepcopy(model).to(dtype)
    assert exchange(model) == exchange(narrow) == 1
    before = model(TOKENS).logits
    assert far(narrow(TOKENS).logits.float(), before) < 0.02


@torch.no_grad()
def test_turned_projections_come_back_from_a_directory(tmp_path: Path) -> None:
    pixels, places = random(2, 3, 32, 32).float(), grid_positions(4, 4, num_prefix=1)

    def put_in(model: Any) -> Any:
        for layer in model.layers:
            encoder = random_encoder(coord_dim=2, heads=4)
            for name in ("q_proj", "k_proj"):
                turned = Rotated(getattr(layer.attention, name), encoder, places)
                setattr(layer.attention, name, turned)
        return model.eval()

    model = put_in(tower("ViT", image_size=32, patch_size=8))
    for layer in model.layers:
        nn.init.normal_(layer.attention.q_proj.encoder.coefficients)
    before = model(pixels).last_hidden_state
    told = {name: x.clone() for name, x in model.state_dict().items()}
    model.save_pretrained(tmp_path, state_dict=told, save_original_format=False)
    loaded = put_in(type(model).from_pretrained(tmp_path))
    assert far(loaded(pixels).last_hidden_state, before) > 1e-2
    load_encoders(loaded, tmp_path)
    assert torch.equal(loaded(pixels).last_hidden_state, before)


@torch.no_grad()
@pytest.mark.parametrize("name", ["circulant", "cayley", "rope", "given", "turned"])
def test_a_class_with_an_encoder_in_it_is_loaded_by_the_library(name: str, tmp_path: Path) -> None:
    """It is built without memory, and what is in no file is set to anything."""
    transformers = other("transformers")
    places = torch.arange(20.0)[:, None]

    class Own(transformers.LlamaForCausalLM):  # type: ignore[misc, name-defined]
        def __init__(self, config: Any) -> None:
            super().__init__(config)
            if name == "turned":
                layer = self.model.layers[0].self_attn
                layer.q_proj = Rotated(layer.q_proj, CirculantSTRING(HEAD), places)
                return
            encoders: dict[str, RotaryEncoder] = {
                "circulant": CirculantSTRING(HEAD),
                "cayley": CayleySTRING(HEAD),
                "rope": RoPE(HEAD, base=500),
                "given": STRING(RoPE(HEAD, base=300).frequencies()),
            }
            self.model.rotary_emb = RotaryTables(encoders[name])

    model = filled(Own(transformers.LlamaConfig(**SIZES)))
    before = model(TOKENS).logits
    model.save_pretrained(tmp_path)
    loaded, told = Own.from_pretrained(tmp_path, output_loading_info=True)
    assert not told["missing_keys"] | told["unexpected_keys"]
    assert torch.equal(loaded(TOKENS).logits, before)
