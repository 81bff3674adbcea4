"""Released models whose rotations no module hands over as tables of positions: their own lines.

Most models need one line, ``RotaryTables.from_module``. Each function here is for the class of the
module that a model has instead: it returns what stands in for it, or writes into it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from book.released import image, image_and_class, image_from_centre, image_xy, sequence
from stringlib import STRING, AxialRoPE, RoPE
from stringlib.encoders.rotary import RotaryEncoder
from stringlib.interop.adapters import PatchPositions, RotaryTables, Rotated
from stringlib.precision import widen

OWN: dict[str, Callable[[Any], nn.Module]] = {}


def own(*classes: str) -> Callable[[Callable[[Any], nn.Module]], Callable[[Any], nn.Module]]:
    """Enter a function under the names of the classes that it is for."""

    def enter(function: Callable[[Any], nn.Module]) -> Callable[[Any], nn.Module]:
        OWN.update(dict.fromkeys(classes, function))
        return function

    return enter


LAYOUTS: dict[bool, Any] = {True: "half", False: "interleaved"}
"""Whether a model of timm rotates halves → how its tables are laid out."""


def two_axes(speeds: Tensor) -> STRING:
    """Return the encoder of two coordinates with these frequencies each."""
    return STRING(torch.block_diag(speeds[:, None], speeds[:, None])[None], layout="half")


class Moved(nn.Module):
    """Positions that are shifted and stretched while a model learns, as both libraries do it.

    Args:
        rotary: The module of the model; this one learns or not as that does.
        places: Makes the positions.
        shift: The farthest that all positions are shifted; None for not at all.
        jitter: By how much each coordinate is stretched or shrunk at most, in logarithms uniform.
        rescale: The same for all coordinates together.
    """

    def __init__(
        self,
        rotary: nn.Module,
        places: Callable[..., Tensor],
        shift: float | None,
        jitter: float | None,
        rescale: float | None,
    ) -> None:
        super().__init__()
        self.places, self.shift, self.stretches = places, shift, ((jitter, 2), (rescale, 1))
        self.train(rotary.training)

    def forward(self, *given: Any) -> Tensor:
        """Return where tokens stand, anew at each call while the model learns."""
        at = self.places(*given)
        if self.training and self.shift is not None:
            at = at + torch.empty(2).uniform_(-self.shift, self.shift)
        for most, axes in self.stretches:
            if self.training and most is not None:
                at = at * torch.empty(axes).uniform_(-math.log(most), math.log(most)).exp()
        return at


def moved(rope: Any, places: Callable[..., Tensor]) -> Moved:
    """Return positions that a model of timm moves while it learns."""
    return Moved(rope, places, rope.shift_coords, rope.jitter_coords, rope.rescale_coords)


def only(rope: Any, **told: Any) -> None:
    """Refuse a module of timm that was told something else, which the lines below do not read."""
    for name, value in told.items():
        if getattr(rope, name) != value:
            raise ValueError(
                f"{name} of {type(rope).__name__} must be {value!r}, got {getattr(rope, name)!r}"
            )


# --- transformers ---


@own("DINOv3ViTRopePositionEmbedding", "EomtDinov3RotaryEmbedding", "Sapiens2RopePositionEmbedding")
def dinov3(rotary: Any) -> nn.Module:
    """The model hands the picture over, and moves its patches while it learns."""
    told, size = rotary.config, rotary.config.patch_size

    def places(pixels: Tensor) -> Tensor:
        return image_from_centre(pixels.shape[-2] // size, pixels.shape[-1] // size)

    amounts = told.pos_embed_shift, told.pos_embed_jitter, told.pos_embed_rescale
    positions = Moved(rotary, places, *amounts)
    return RotaryTables(two_axes(2 * math.pi * rotary.inv_freq), positions=positions)


@own("Llama4VisionRotaryEmbedding")
def llama_4_tower(rotary: Any) -> nn.Module:
    """All pictures are of one size; the class token is last."""
    places = image_and_class(*[rotary.config.image_size // rotary.config.patch_size] * 2)
    speeds = rotary.freqs_ci[1, 0].angle()[: rotary.freqs_ci.shape[-1] // 2] / 2  # from x = 2
    return RotaryTables(two_axes(speeds), "complex", positions=lambda x: places[:, None])


@own("EfficientLoFTRRotaryEmbedding")
def efficient_loftr(rotary: Any) -> nn.Module:
    """Pairs read row and column in turns, counted from 1, of a map that is pooled."""
    told, speeds = rotary.config, rotary.inv_freq
    size, stride = told.q_aggregation_kernel_size, told.q_aggregation_stride
    turns = torch.stack([nn.functional.pad(speeds[:, None], at) for at in ((0, 1), (1, 0))], 1)

    def places(x: Tensor) -> Tensor:
        rows, columns = ((n - size) // stride + 1 for n in x.shape[-2:])
        return (image(rows, columns) + 1).view(1, rows, columns, 2)

    return RotaryTables(STRING(turns.flatten(0, 1)[None]), "interleaved", positions=places)


@own(
    "SeamlessM4TConformerRotaryPositionalEmbedding",
    "Wav2Vec2BertRotaryPositionalEmbedding",
    "Wav2Vec2ConformerRotaryPositionalEmbedding",
)
def stacked(rotary: Any) -> nn.Module:
    """Cosines and sines are one tensor, ``(2, seq, 1, 1, head_dim)``."""

    class Stacked(RotaryTables):
        def forward(self, x: Tensor, *_: Any) -> Tensor:
            tables = super().forward(x, torch.arange(x.shape[1])[None])
            return torch.stack([*tables])[:, 0, :, None, None]

    return Stacked(STRING.from_inv_freq(rotary.inv_freq))


@own("ClvpRotaryPositionalEmbedding")
def clvp(rotary: Any) -> nn.Module:
    """The model wants the angles themselves, and turns values too."""

    class Angles(RotaryTables):
        def forward(self, x: Tensor, *_: Any) -> Tensor:
            speeds = self._of(None)[0].frequencies()[0]
            angles = sequence(x.shape[1]).to(speeds.device) @ speeds.mT
            return angles.repeat(1, 2)[None].to(x.dtype)

    return Angles(STRING.from_inv_freq(rotary.inv_freq))


@own("GPTJAttention", "CodeGenAttention")
def gpt_j(attention: Any) -> nn.Module:
    """Every layer has a table of its own in a buffer."""
    tables = RotaryTables(RoPE(attention.pos_embd_dim), "pairs", positions=sequence)
    attention.embed_positions = tables.get_embed((attention.max_positions,))
    return attention


@own("RoFormerSinusoidalPositionalEmbedding")
def roformer(embedding: Any) -> nn.Module:
    """The table is the weight of an embedding, sines first."""
    tables = RotaryTables(RoPE(embedding.embedding_dim), "pairs", positions=sequence)
    embedding.weight.data = tables.get_embed((embedding.num_embeddings,)).to(embedding.weight)
    return embedding


@own("Siglip2VisionModel")
def siglip_2(model: Any) -> nn.Module:
    """It has no rotations. Each picture of a batch has a shape, and so positions, of its own."""
    attention = model.encoder.layers[0].self_attn
    encoder = AxialRoPE(attention.head_dim, 2)
    places = PatchPositions(model.embeddings, "spatial_shapes")
    for layer in model.encoder.layers:
        for name in ("q_proj", "k_proj"):
            old = getattr(layer.self_attn, name)
            setattr(layer.self_attn, name, Rotated(old, encoder, places))
    return model


# --- timm ---


@own("RotaryEmbeddingCat")
def timm_axial(rope: Any) -> nn.Module:
    """Rows and columns, or columns and rows, from an offset, perhaps stretched to a given size."""
    only(rope, grid_type="index")

    def places(*shape: int) -> Tensor:
        scale = torch.tensor(rope.ref_feat_shape or shape) / torch.tensor(shape)
        cells = (image(*shape) + rope.grid_offset) * scale
        return cells.flip(-1) if rope.grid_indexing == "xy" else cells

    layout = LAYOUTS[rope.rotate_half]
    return RotaryTables(two_axes(rope.bands), layout, positions=moved(rope, places))


@own("RotaryEmbeddingDinoV3")
def timm_dinov3(rope: Any) -> nn.Module:
    """The picture spans -1 to 1, and a unit is a turn."""
    only(rope, normalize_coords="separate", grid_offset=0, grid_indexing="ij")
    encoder, places = two_axes(2 * math.pi / rope.periods), moved(rope, image_from_centre)
    return RotaryTables(encoder, LAYOUTS[rope.rotate_half], positions=places)


@own("RotaryEmbeddingMRope")
def timm_mrope(rope: Any) -> nn.Module:
    """Of three coordinates a picture has two; the pairs of time stand still."""
    omega = rope.inv_freq[:, None] * nn.functional.one_hot(rope.axis, 3)[:, 1:]
    return RotaryTables(STRING(omega[None], layout="half"), positions=moved(rope, image))


@own("RotaryEmbeddingMixed")
def timm_mixed(rope: Any) -> nn.Module:
    """Heads of all layers learn their own frequencies, under the key that the model's have."""

    class Mixed(RotaryEncoder):
        depth, num_heads, dim = rope.depth, rope.num_heads, rope.dim
        no_weight_decay = rope.no_weight_decay

        def __init__(self) -> None:
            super().__init__(2 * rope.freqs.shape[-1], 2, heads=self.depth * self.num_heads)
            self.freqs = rope.freqs
            self.places = moved(rope, {"ij": image, "xy": image_xy}[rope.grid_indexing])

        def frequencies(self) -> Tensor:
            return widen(self.freqs.permute(1, 2, 3, 0).flatten(0, 1))

        def get_embed(self, shape: Any, dtype: torch.dtype = torch.float32) -> Tensor:
            at = self.places(*shape).to(self.freqs.device)
            tables = self.phases(at).cos_sin.flip(-1).repeat_interleave(2, -2)  # sines first
            return tables.mT.flatten(-2).unflatten(0, (self.depth, -1)).to(dtype)

    return Mixed()
