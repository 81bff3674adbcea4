"""The vision transformer alone: its patches and places, other sizes, refusals."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import nn

from stringlib import ENCODERS, CirculantSTRING, ViT
from stringlib.positions import grid_positions
from stringlib.testing import properties
from tests.model_cases import CLASSES, SIZES, pictures, vision_model
from tests.refusals import refusals


@pytest.mark.parametrize("size", ["series", "volume"])
@pytest.mark.parametrize("pool", ["cls", "mean"])
@pytest.mark.parametrize("encoder", [None, *ENCODERS, "alibi", "sinusoidal", "learned"])
def test_one_axis_and_three(encoder: str | None, pool: str, size: str) -> None:
    if encoder == "rope" and size == "volume":
        with pytest.raises(ValueError, match="coord_dim must be 1 for encoder 'rope', got 3"):
            vision_model("gate", size, encoder=encoder, pool=pool)
        return
    model = vision_model("gate", size, encoder=encoder, pool=pool)
    assert model(pictures(model)).shape == (3, CLASSES)
    larger = [2 * n for n in model.image_size]
    assert model(pictures(model, *larger)).shape == (3, CLASSES)


def test_features_are_rolled_along_a_series() -> None:
    options: dict[str, Any] = {"attention": "relu", "rotate": "roll", "pool": "mean"}
    model = ViT((12,), 3, CLASSES, 24, **options)
    series = torch.randn(2, 1, 12)
    places = torch.arange(4)[:, None]
    assert torch.equal(model(series), model(series, places))
    assert properties.largest_difference(model(series), model(series, places + 7)) < 1e-5
    assert properties.largest_difference(model(series), model(series, places * 0)) > 1e-3


@pytest.mark.parametrize("size", SIZES)
def test_patches_in_reading_order(size: str) -> None:
    model = vision_model("gate", size)
    images = pictures(model)
    cells = [range(n) for n in model.grid]
    found = model.patches(images)
    for patch, cell in zip(found.unbind(1), itertools.product(*cells), strict=True):
        box = [slice(i * p, (i + 1) * p) for i, p in zip(cell, model.patch_size, strict=True)]
        assert torch.equal(patch, images[(slice(None), slice(None), *box)].flatten(1))


@pytest.mark.parametrize("encoder", ["axial", "circulant", "sinusoidal"])
def test_places_are_counted_in_patches_from_0(encoder: str) -> None:
    model = vision_model("gate", encoder=encoder)
    for sizes in ((2, 4), (4, 2), (4, 8), (1, 3)):
        images = pictures(model, 3 * sizes[0], 2 * sizes[1])
        assert torch.equal(model(images), model(images, grid_positions(*sizes)))


@pytest.mark.parametrize("encoder", ["axial", "mixed", "reflection", "circulant", "cayley"])
def test_only_a_class_token_sees_where_the_picture_is(encoder: str) -> None:
    for pool in ("mean", "cls"):
        model = vision_model("gate", encoder=encoder, pool=pool).double()
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.3)
        images, places = pictures(model).double(), grid_positions(*model.grid)
        moved = model(images, places + torch.tensor([5.0, -3.0]))
        gap = properties.largest_difference(model(images), moved)
        assert gap <= 1e-10 if pool == "mean" else gap > 1e-3, (pool, gap)


@pytest.mark.proves("eq-vit-patch", "eq-vit-heads", "eq-vit-block", "eq-vit-read")
@pytest.mark.parametrize("pool", ["cls", "mean"])
@pytest.mark.parametrize("encoder", [None, "axial", "circulant"])
def test_the_model_is_its_formulas_written_out(encoder: str | None, pool: str) -> None:
    """A convolution, then heads and tokens one by one, in float64."""
    model = vit(encoder=encoder, pool=pool, channels=2).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    images = torch.randn(1, 2, 8, 12, dtype=torch.float64)
    kernel = model.embed.weight.view(24, 2, 2, 2)
    x = nn.functional.conv2d(images, kernel, model.embed.bias, stride=2)[0].flatten(1).T
    places = grid_positions(4, 6, dtype=torch.float64)
    if pool == "cls":
        x = torch.cat([model.cls[None], x])
        places = torch.cat([torch.zeros(1, 2, dtype=torch.float64), places])
    for block in model.blocks:
        layer, z, added = block.attention, block.norm_attention(x), torch.zeros_like(x)
        for h, i in itertools.product(range(2), range(len(x))):
            part = slice(12 * h, 12 * h + 12)
            q, k, v = ((z @ to.weight.T)[:, part] for to in (layer.to_q, layer.to_k, layer.to_v))
            scores = k @ q[i]
            if encoder is not None:
                turned = layer.encoder.matrix(places - places[i])
                scores = torch.einsum("d,nde,ne->n", q[i], turned[h % len(turned)], k)
            heard = (scores / 12**0.5).softmax(0) @ v
            added[i] += layer.to_out.weight[:, part] @ heard
        x = x + added
        hidden = nn.functional.gelu(block.norm_mlp(x) @ block.mlp.to_hidden.weight.T
                                    + block.mlp.to_hidden.bias)  # fmt: skip
        x = x + hidden @ block.mlp.to_out.weight.T + block.mlp.to_out.bias
    votes = model.norm(x) @ model.readout.weight.T + model.readout.bias
    expected = votes[:1] if pool == "cls" else votes.mean(0, keepdim=True)
    assert properties.largest_difference(model(images), expected) <= 1e-10


def test_a_model_reads_its_table_at_given_places() -> None:
    model = vision_model("softmax-learned").double()
    images = pictures(model, 12, 16).double()
    stretched = model.absolute.places(4, 8)
    assert torch.equal(model(images), model(images, stretched))
    assert properties.largest_difference(model(images), model(images, grid_positions(4, 8))) > 1e-4


def vit(image: Any = 8, patch: Any = 2, **more: Any) -> ViT:
    return ViT(image, patch, CLASSES, **{"dim": 24, "heads": 2, **more})


@pytest.mark.parametrize("pool", ["cls", "mean"])
@pytest.mark.parametrize(
    "name", ["softmax-circulant", "softmax-sinusoidal", "softmax-None", "relu-mixed", "favor-axial"]
)
def test_images_of_several_sizes_in_one_batch(name: str, pool: str) -> None:
    model = vision_model(name, pool=pool).double()
    padded, mask, places, alone = 50 * pictures(model, 9, 12).double(), [], [], []
    for image, (rows, columns) in zip(padded, ((3, 6), (1, 4), (2, 2)), strict=True):
        own = pictures(model, 3 * rows, 2 * columns)[0].double()
        image[:, : 3 * rows, : 2 * columns] = own
        cells = grid_positions(3, 6)
        mask.append((cells < torch.tensor([rows, columns])).all(-1))
        places.append(cells / rows + 1)
        alone.append([model(own[None]), model(own[None], grid_positions(rows, columns) / rows + 1)])
    key_mask, given = torch.stack(mask), torch.stack(places)
    found = model(padded, key_mask=key_mask), model(padded, given, key_mask=key_mask)
    for got, wanted in zip(found, zip(*alone, strict=True), strict=True):
        assert properties.largest_difference(got, torch.cat(wanted)) <= 1e-12
    assert properties.largest_difference(model(padded)[1:], found[0][1:]) > 1e-3
    everything = model(padded, key_mask=torch.ones_like(key_mask))
    assert properties.largest_difference(everything, model(padded)) < 1e-12


TOEPLITZ = {"attention": "elu", "weight": "toeplitz", "pool": "mean"}
IMAGES = torch.zeros(2, 1, 8, 8)

test_bad_input_is_named = refusals(
    (lambda: vit(8, 3), r"image_size must have sizes that are multiples of patch_size \(3, 3\)"),
    (lambda: vit()(torch.zeros(2, 1, 8, 9)), r"images must have sizes that are multiples"),
    (lambda: vit()(torch.zeros(2, 3, 8, 8)), r"images must have 4 dimensions .* channels = 1"),
    (
        lambda: vit(**TOEPLITZ)(IMAGES[..., :4]),
        r"images must have the sizes .* \(8, 8\) for weight",
    ),
    (lambda: vit()(IMAGES, torch.zeros(17, 2)), "positions must have one row for each of the 16"),
    (lambda: vit()(IMAGES, key_mask=torch.ones(2, 17).bool()), r"key_mask must have shape \(2, 1"),
    (lambda: vit(encoder=CirculantSTRING(12)), "encoder must have coord_dim=2, .* got 1"),
    (lambda: vit(**{**TOEPLITZ, "pool": "cls"}), "pool must be 'mean' for weight 'toeplitz'"),
    (lambda: vit(causal=True), "pool must be 'mean' for causal attention"),
    (lambda: vit(attention="relu", rotate="roll"), "rotate must not be 'roll' for images"),
    (
        lambda: vit((4, 4, 4), attention="relu", rotate="roll"),
        "rotate must not be 'roll' for images",
    ),
    (lambda: vit((4, 4, 4), **TOEPLITZ), "image_size must have one or two axes for weight"),
)
