"""The rotations of released models: the line that builds each encoder, and where its tokens stand.

``RELEASED`` is a table of such lines, each a function whose one parameter is the base. What an
encoder can say of itself is asked of it; the rest stands above the line.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from stringlib import STRING, AxialRoPE, MixedRoPE, RoPE
from stringlib.encoders.rope import mrope
from stringlib.encoders.rotary import RotaryEncoder
from stringlib.encoders.scaling import (
    long_rope,
    long_rope_attention_factor,
    position_interpolation,
    yarn,
    yarn_attention_factor,
    yarn_by_index,
)
from stringlib.kernels.rotation import geometric_frequencies
from stringlib.positions import grid_positions

# --- where tokens stand ---


def sequence(length: int) -> Tensor:
    """Return the numbers of the tokens of a text, ``(length, 1)``."""
    return grid_positions(length, dtype=torch.float64)


def image(rows: int, columns: int) -> Tensor:
    """Return (row, column) of each patch, ``(rows * columns, 2)``."""
    return grid_positions(rows, columns, dtype=torch.float64)


def image_xy(rows: int, columns: int) -> Tensor:
    """Return (column, row) of each patch."""
    return image(rows, columns).flip(-1)


def image_in_blocks(rows: int, columns: int) -> Tensor:
    """Return (row, column) in blocks of 2 x 2 patches, which become one token of the text."""
    blocks = image(rows, columns).unflatten(0, (rows // 2, 2, columns // 2, 2))
    return blocks.transpose(1, 2).flatten(0, 3)


def image_and_class(rows: int, columns: int) -> Tensor:
    """Return (column, row) from 1, then the class token at the origin."""
    return nn.functional.pad(image_xy(rows, columns) + 1, (0, 0, 0, 1))


def image_as_16(rows: int, columns: int) -> Tensor:
    """Return (row, column) of an image that is stretched to 16 x 16 patches."""
    return image(rows, columns) * 16 / torch.tensor([rows, columns])


def image_as_24(rows: int, columns: int) -> Tensor:
    """Return (column, row), counted from 1, of an image that is stretched to 24 x 24 patches."""
    return (image_xy(rows, columns) + 1) * 24 / torch.tensor([columns, rows])


def image_from_centre(rows: int, columns: int) -> Tensor:
    """Return (row, column) of the patches' centres; the image's edges are at -1 and 1."""
    return (2 * image(rows, columns) + 1) / torch.tensor([rows, columns]) - 1


def text_and_image(words: int, rows: int, columns: int) -> Tensor:
    """Return (time, row, column) of words, an image and as many words again."""
    first = sequence(words).expand(-1, 3)
    cells = nn.functional.pad(image(rows, columns), (1, 0)) + words
    return torch.cat([first, cells, first + words + max(rows, columns)])


# --- the table ---


class Released(NamedTuple):
    """One model, or those of its layers that turn alike.

    Attributes:
        name: Of the model.
        encoder: Builds the encoder, of :attr:`base` if not told another.
        positions: Where tokens stand, for a length, for rows and columns, or for both.
        checkpoint: Whose configuration the numbers are from; if empty, they are the defaults of
            the library that has the model.
        factor: Multiplies queries and keys, in the channels that turn.
        note: What surprises.
    """

    name: str
    encoder: Callable[..., RotaryEncoder]
    positions: Callable[..., Tensor]
    checkpoint: str
    factor: float
    note: str

    @property
    def base(self) -> float:
        """The base of the frequencies."""
        return inspect.signature(self.encoder).parameters["base"].default

    @property
    def line(self) -> str:
        """What builds the encoder, as it stands in this file."""
        return inspect.cleandoc(inspect.getsource(self.encoder).partition("    return ")[2])

    @property
    def scaling(self) -> str:
        """The function of ``stringlib.encoders.scaling`` that its line calls, or nothing."""
        names = [scaling.__name__ for scaling in SCALINGS]
        return next((name for name in names if f"{name}(" in self.line), "")

    @property
    def turning(self) -> int:
        """How many channels of a head turn."""
        return 2 * int(self._speeds().count_nonzero())

    @property
    def slowest(self) -> float:
        """Positions that the slowest pair takes for a turn."""
        speeds = self._speeds()
        return 2 * math.pi / speeds[speeds > 0].min().item()

    @property
    def moves_channels(self) -> bool:
        """Whether P is not the identity."""
        basis = self.encoder().basis()
        return not torch.equal(basis, torch.eye(basis.shape[-1]).expand_as(basis).to(basis))

    def _speeds(self) -> Tensor:
        """Return how fast each pair of a head turns, in radians per unit of position."""
        return self.encoder().frequencies()[0].norm(dim=-1)


RELEASED: dict[str, Released] = {}
SCALINGS = (position_interpolation, yarn, yarn_by_index, long_rope)


def released(
    name: str,
    positions: Callable[..., Tensor] = sequence,
    *,
    checkpoint: str = "",
    factor: float = 1.0,
    note: str = "",
) -> Callable[[Callable[..., RotaryEncoder]], Callable[..., RotaryEncoder]]:
    """Put a line into the table; see :class:`Released` for the arguments."""

    def add(encoder: Callable[..., RotaryEncoder]) -> Callable[..., RotaryEncoder]:
        RELEASED[name] = Released(name, encoder, positions, checkpoint, factor, note)
        return encoder

    return add


# --- language ---


@released("Llama 2, Mistral 7B v0.1")
def _llama_2(base: float = 10_000) -> RotaryEncoder:
    return RoPE(128, base=base, layout="half")


@released("Llama 3", checkpoint="Meta-Llama-3-8B")
def _llama_3(base: float = 500_000) -> RotaryEncoder:
    return RoPE(128, base=base, layout="half")


@released(
    "Llama 3.1",
    checkpoint="Llama-3.1-8B",
    note="the scaling `llama3` is YaRN, linear in the number of turns from 1 to 4",
)
def _llama_3_1(base: float = 500_000) -> RotaryEncoder:
    return STRING(yarn(RoPE(128, base=base).frequencies(), 8, 8192, slow=1, fast=4), layout="half")


@released("Mistral 7B v0.3, Qwen2.5", checkpoint="Mistral-7B-v0.3, Qwen2.5-7B")
def _mistral(base: float = 1_000_000) -> RotaryEncoder:
    return RoPE(128, base=base, layout="half")


@released("Llama 4, text", note="interleaved layout; every fourth layer has no rotation")
def _llama_4(base: float = 500_000) -> RotaryEncoder:
    return RoPE(128, base=base)


@released("Gemma 3, local layers")
def _gemma_3_local(base: float = 10_000) -> RotaryEncoder:
    return RoPE(256, base=base, layout="half")


@released(
    "Gemma 3, global layers",
    checkpoint="gemma-3-4b",
    note="every sixth layer, with positions divided by 8",
)
def _gemma_3_global(base: float = 1_000_000) -> RotaryEncoder:
    return STRING(position_interpolation(RoPE(256, base=base).frequencies(), 8), layout="half")


@released(
    "Gemma 4, global layers",
    note="`proportional`: frequencies for 256 pairs, of which only the 64 fastest rotate",
)
def _gemma_4_global(base: float = 1_000_000) -> RotaryEncoder:
    return STRING.from_inv_freq(geometric_frequencies(256, base) * (torch.arange(256) < 64))


@released("ModernBERT, global layers", note="every third layer")
def _modernbert_global(base: float = 160_000) -> RotaryEncoder:
    return RoPE(64, base=base, layout="half")


@released("ModernBERT, local layers")
def _modernbert_local(base: float = 10_000) -> RotaryEncoder:
    return RoPE(64, base=base, layout="half")


@released("GPT-NeoX", note="only the first quarter of the channels rotates")
def _gpt_neox(base: float = 10_000) -> RotaryEncoder:
    return STRING.from_inv_freq(geometric_frequencies(12, base), head_dim=96)


@released("GLM-4", note="interleaved layout; only the first half of the channels rotates")
def _glm_4(base: float = 10_000) -> RotaryEncoder:
    return STRING.from_inv_freq(geometric_frequencies(32, base), "interleaved", head_dim=128)


@released("Cohere", note="interleaved layout")
def _cohere(base: float = 500_000) -> RotaryEncoder:
    return RoPE(128, base=base)


# A factor for each pair, found by search: `long_factor`, for texts of more than 4096 tokens.
PHI_3_LONG = torch.tensor(
    [
        [1.03, 1.05, 1.05, 1.08, 1.23, 1.23, 1.3, 1.45, 1.6, 1.65, 1.9, 2.86],
        [3.69, 5.42, 5.49, 5.49, 9.09, 11.58, 15.66, 15.77, 15.79, 18.36, 21.99, 23.08],
        [30.01, 32.35, 32.59, 35.56, 39.95, 53.84, 56.2, 57.95, 59.29, 59.77, 59.92, 61.19],
        [61.96, 62.5, 63.37, 63.48, 63.48, 63.66, 63.85, 64.08, 64.76, 64.8, 64.81, 64.81],
    ],
    dtype=torch.float64,
).flatten()


@released(
    "Phi-3 mini 128k, long texts",
    checkpoint="Phi-3-mini-128k-instruct",
    factor=long_rope_attention_factor(131_072 / 4096, 4096),
    note="LongRoPE; other frequencies up to 4096 tokens, with the same factor",
)
def _phi_3(base: float = 10_000) -> RotaryEncoder:
    return STRING(long_rope(RoPE(96, base=base).frequencies(), PHI_3_LONG), layout="half")


@released(
    "gpt-oss",
    factor=yarn_attention_factor(32),
    note="YaRN, linear in the index, ends of the ramp not rounded; a sink in each head",
)
def _gpt_oss(base: float = 150_000) -> RotaryEncoder:
    return STRING(
        yarn_by_index(RoPE(64, base=base).frequencies(), 32, 4096, truncate=False), layout="half"
    )


@released(
    "DeepSeek-V3",
    checkpoint="DeepSeek-V3",
    note="only the last 64 channels rotate; YaRN's factor is in the scale of the softmax",
)
def _deepseek_v3(base: float = 10_000) -> RotaryEncoder:
    return STRING(
        yarn_by_index(RoPE(64, base=base).frequencies(), 40, 4096), torch.eye(192).roll(64, 1)[None]
    )


# --- images ---


@released("Qwen2-VL, text", text_and_image, note="blocks of pairs rotate with time, row and column")
def _qwen2_vl(base: float = 1_000_000) -> RotaryEncoder:
    return STRING(mrope(RoPE(128, base=base).frequencies(), (16, 24, 24)), layout="half")


@released(
    "Qwen3-VL, text",
    text_and_image,
    checkpoint="Qwen3-VL-8B-Instruct",
    note="pairs rotate with time, row and column alternately; the slowest with time",
)
def _qwen3_vl(base: float = 5_000_000) -> RotaryEncoder:
    return STRING(
        mrope(RoPE(128, base=base).frequencies(), (24, 20, 20), interleaved=True), layout="half"
    )


@released("Qwen2-VL, tower", image_in_blocks, note="tokens come in blocks of 2 x 2 patches")
def _qwen2_vl_tower(base: float = 10_000) -> RotaryEncoder:
    return STRING(AxialRoPE(80, 2, base=base).frequencies(), layout="half")


@released(
    "Llama 4, tower",
    image_and_class,
    checkpoint="Llama-4-Scout-17B-16E",
    note="column first, counted from 1; the class token is last, at the origin",
)
def _llama_4_tower(base: float = 10_000) -> RotaryEncoder:
    return AxialRoPE(88, 2, base=base)


@released("EVA-02", image_as_16, note="every image spans 16 x 16 positions")
def _eva_02(base: float = 10_000) -> RotaryEncoder:
    return AxialRoPE(64, 2, base=base)


@released(
    "Perception Encoder",
    image_as_24,
    note="column first, counted from 1; every image spans 24 x 24 positions",
)
def _perception_encoder(base: float = 10_000) -> RotaryEncoder:
    return AxialRoPE(64, 2, base=base)


@released("RoPE-ViT, axial", image_xy, note="column first")
def _rope_vit_axial(base: float = 100) -> RotaryEncoder:
    return AxialRoPE(64, 2, base=base)


@released(
    "RoPE-ViT, mixed",
    image_xy,
    note="column first; each head of each layer has its own frequencies",
)
def _rope_vit_mixed(base: float = 10) -> RotaryEncoder:
    return MixedRoPE(64, 2, heads=6, base=base)


@released("DINOv3", image_from_centre, note="the image spans -1 to 1, and one unit is a full turn")
def _dinov3(base: float = 100) -> RotaryEncoder:
    return STRING(2 * math.pi * AxialRoPE(64, 2, base=base).frequencies(), layout="half")


@released("SAM 2, memory attention", image_xy, note="column first; one head of 256 channels")
def _sam_2(base: float = 10_000) -> RotaryEncoder:
    return AxialRoPE(256, 2, base=base)
