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
from stringlib import STRING, RoPE
from stringlib.adapters import RotaryTables

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


# --- transformers ---


@own("DINOv3ViTRopePositionEmbedding", "EomtDinov3RotaryEmbedding", "Sapiens2RopePositionEmbedding")
def dinov3(rotary: Any) -> nn.Module:
    """The model hands the picture over."""
    size = rotary.config.patch_size

    def places(pixels: Tensor) -> Tensor:
        return image_from_centre(pixels.shape[-2] // size, pixels.shape[-1] // size)

    return RotaryTables(two_axes(2 * math.pi * rotary.inv_freq), positions=places)


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
    encoder = STRING.from_inv_freq(rotary.inv_freq)

    class Angles(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            angles = sequence(x.shape[1]) @ encoder.frequencies()[0].mT
            return angles.repeat(1, 2)[None].to(x.dtype)

    return Angles()


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
    embedding.weight.data = tables.get_embed((embedding.num_embeddings,))
    return embedding


# --- timm ---


@own("RotaryEmbeddingCat")
def timm_axial(rope: Any) -> nn.Module:
    """Rows and columns, or columns and rows, from an offset, perhaps stretched to a given size."""

    def places(*shape: int) -> Tensor:
        scale = torch.tensor(rope.ref_feat_shape or shape) / torch.tensor(shape)
        cells = (image(*shape) + rope.grid_offset) * scale
        return cells.flip(-1) if rope.grid_indexing == "xy" else cells

    return RotaryTables(two_axes(rope.bands), LAYOUTS[rope.rotate_half], positions=places)


@own("RotaryEmbeddingDinoV3")
def timm_dinov3(rope: Any) -> nn.Module:
    """The picture spans -1 to 1, and a unit is a turn."""
    encoder = two_axes(2 * math.pi / rope.periods)
    return RotaryTables(encoder, LAYOUTS[rope.rotate_half], positions=image_from_centre)


@own("RotaryEmbeddingMRope")
def timm_mrope(rope: Any) -> nn.Module:
    """Of three coordinates a picture has two; the pairs of time stand still."""
    omega = rope.inv_freq[:, None] * nn.functional.one_hot(rope.axis, 3)[:, 1:]
    return RotaryTables(STRING(omega[None], layout="half"), positions=image)


@own("RotaryEmbeddingMixed")
def timm_mixed(rope: Any) -> nn.Module:
    """Each head of each layer has frequencies of its own: its tables are a stack."""

    class Mixed(nn.Module):
        layers = tuple(map(STRING, rope.freqs.permute(1, 2, 3, 0)))

        def get_embed(self, shape: Any, dtype: torch.dtype = torch.float32) -> Tensor:
            at = image_xy(*shape)
            turns = torch.stack([each.phases(at).turns for each in self.layers])
            return torch.cat([*turns.repeat_interleave(2, -2).unbind(-1)][::-1], -1).to(dtype)

    return Mixed()
