"""Build an encoder: frequencies in; out come the score over distance and maps of attention."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from lab.explore.style import COLOURS
from lab.program import Traced, traced
from stringlib import STRING, CirculantSTRING, RoPE, softmax_attention
from stringlib.algebra.haar import haar_orthogonal
from stringlib.encoders.rotary import Phases
from stringlib.encoders.scaling import ntk_aware, position_interpolation, yarn
from stringlib.kernels.rotation import unit_phases

HALF = False  # frequencies need every digit that they have
ALT = {
    "": "The instrument with the frequencies of RoPE: 32 pairs, their frequencies as lines on a "
    "logarithmic axis with eight handles. Below, the score of a word with itself falls from 1 "
    "at distance 1 to about 0 at 10,000, with the horizon at 22, and two maps on a grid show a "
    "cross for axial pairs and a hill for pairs of all directions. On the right, maps of "
    "attention among 13 words: rotated, the map is the same from position 0 and from 1,000; "
    "with added sinusoids it changes by up to 28 points.",
    "preset=drawn at random": "The instrument with 32 frequencies drawn at random, as lines on "
    "a logarithmic axis with eight handles. Below, the score of a word with itself falls from 1 "
    "at distance 1 to about 0 at 1,000, with the horizon at 30, and two maps on a grid show a "
    "cross for axial pairs and a round hill for pairs of all directions. On the right, maps of "
    "attention among 13 words: rotated, the map is the same from position 0 and from 1,000; "
    "with added sinusoids it changes by up to 38 points.",
    "basis=1": "The instrument with the frequencies of RoPE in the Fourier basis of a circulant "
    "matrix. On the left, the frequencies, the score of a word with itself over distance and "
    "two maps on a grid are those of RoPE. On the right, maps of attention among 13 words: "
    "rotated, the map is the same from position 0 and from 1,000; with added sinusoids it "
    "changes by up to 28 points. Below is the code, a STRING with the basis of CirculantSTRING.",
    "slope=0.2": "The instrument with the frequencies of RoPE and a bias of 0.20 per token. On "
    "the left are the frequencies, the score of a word with itself over distance and two maps "
    "on a grid. On the right, maps of attention among 13 words, in which distant words get less "
    "weight: rotated, the map is the same from position 0 and from 1,000; with added sinusoids "
    "it changes by up to 18 points. Below is the code, RoPE with a bias that lowers the weight "
    "by 18% per token.",
}
"""What the poster shows: state in which the instrument begins → text."""
HEAD_DIM, PAIRS, WORDS, SIDE = 64, 32, 16, 15
FARTHEST = 100_000
NEAR = 0.12
"""What is drawn thick is the mean over distances that differ by about this share."""

SHARPNESS = 5.0
"""Unit vectors are multiplied by its root, so that in the softmax equal words stand out."""


def distances() -> Tensor:
    """Return where the score is drawn: every distance to 400, then evenly in the logarithm."""
    far = torch.logspace(math.log10(400), math.log10(FARTHEST), 400, dtype=torch.float64)
    return torch.cat([torch.arange(401).double(), far.round()]).unique()


class Score(nn.Module):
    """The score of a word with itself, over distance, and what of it is slow."""

    def forward(self, frequencies: Tensor) -> dict[str, Tensor]:
        """Return for frequencies ``(pairs,)`` the scores and their means, ``(distances,)``."""
        angles = distances()[:, None] * frequencies.double()
        blurred = angles.cos() * (-0.5 * (NEAR * angles) ** 2).exp()
        return {"score": angles.cos().mean(-1), "mean": blurred.mean(-1)}


class Maps(nn.Module):
    """Who attends to whom in a sentence, and in the same sentence further on."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        fourier = CirculantSTRING(HEAD_DIM).basis()[0]
        drawn = haar_orthogonal(HEAD_DIM, generator=generator).double()
        self.bases = torch.stack([torch.eye(HEAD_DIM).double(), fourier.double(), drawn]).float()

    def forward(
        self,
        words: Tensor,
        mask: Tensor,
        frequencies: Tensor,
        basis: Tensor,
        slope: Tensor,
        moved: Tensor,
    ) -> dict[str, Tensor]:
        """Return the maps, ``(words, words)`` each.

        Args:
            words: Unit vectors, ``(words, head_dim)``.
            mask: 1 for a word, 0 for an empty place behind the last, ``(words,)``.
            frequencies: ``(pairs,)``.
            basis: 1 for the basis that is taken, 0 for the others, ``(3,)``.
            slope: What a step away takes off a logit, ``(1,)``.
            moved: How far the second sentence stands behind the first, ``(1,)``.
        """
        here = torch.arange(WORDS).double()[:, None]
        there = here + moved.double()
        p = (self.bases.double() * basis.double()[:, None, None]).sum(0)[None]
        encoder = STRING(frequencies.double()[None, :, None], p)
        bias = -slope * (here - here.mT).abs()
        far = torch.where(mask > 0, 0.0, -math.inf)

        def attention(q: Tensor, k: Tensor) -> Tensor:
            unit = torch.eye(WORDS, dtype=q.dtype)[None]
            wide = SHARPNESS * HEAD_DIM**0.5
            return softmax_attention(q * wide, k, unit, (bias + far).to(q.dtype)[None])[0]

        def turned(positions: Tensor) -> Tensor:
            q = words.double()[None]
            return attention(*encoder(q, q, encoder.phases(positions)))

        # angles as a model computes them that keeps positions and frequencies in bfloat16
        narrow = there.bfloat16() * frequencies.bfloat16()
        cos_sin = torch.stack([narrow.float().cos(), narrow.float().sin()], -1)[None]
        q = words.double()[None]
        rough = encoder(q, q, Phases(cos_sin.double(), encoder.phases(here).basis))

        def added(positions: Tensor) -> Tensor:
            phases = unit_phases(positions, frequencies.double()[None, :, None])[0]
            x = words.double() + phases.flip(-1).flatten(-2) / PAIRS**0.5
            return attention(x[None], x[None])

        return {
            "rotated": turned(here),
            "rotated_moved": turned(there),
            "rough": attention(*rough),
            "added": added(here),
            "added_moved": added(there),
        }


class Grid(nn.Module):
    """The score of the patch in the middle of a grid with every other, of equal content."""

    def forward(self, frequencies: Tensor) -> dict[str, Tensor]:
        """Return for frequencies ``(pairs,)`` two maps, ``(side, side)``."""
        steps = torch.arange(SIDE).double() - SIDE // 2
        rows, columns = steps[:, None, None], steps[None, :, None]
        w = frequencies.double()
        axial = torch.cat(
            (
                (rows * w[::2]).cos().expand(SIDE, SIDE, -1),
                (columns * w[1::2]).cos().expand(SIDE, SIDE, -1),
            ),
            -1,
        )
        # directions that divide the half turn evenly in the golden ratio
        turn = torch.arange(PAIRS).double() * math.pi * (3 - math.sqrt(5))
        mixed = ((rows * turn.cos() + columns * turn.sin()) * w).cos()
        return {"axial": axial.mean(-1), "mixed": mixed.mean(-1)}


def programs() -> dict[str, Traced]:
    """Return what the page runs, by name."""
    frequencies = RoPE(HEAD_DIM).frequencies().flatten().double()
    words = torch.nn.functional.normalize(torch.randn(WORDS, HEAD_DIM), dim=-1)
    return {
        "score": traced(Score(), frequencies=frequencies),
        "grid": traced(Grid(), frequencies=frequencies),
        "maps": traced(
            Maps(),
            words=words,
            mask=torch.ones(WORDS),
            frequencies=frequencies,
            basis=torch.tensor([1.0, 0.0, 0.0]),
            slope=torch.zeros(1),
            moved=torch.tensor([1000.0]),
        ),
    }


def data() -> dict[str, Any]:
    """Return what the page has to know besides: where it begins, and names."""
    rope = RoPE(HEAD_DIM).frequencies()
    generator = torch.Generator().manual_seed(3)
    drawn = 10 ** (-4 * torch.rand(PAIRS, generator=generator, dtype=torch.float64))
    presets = {
        "RoPE": (rope, "rope", "RoPE(64).frequencies()"),
        "base 500,000": (
            RoPE(64, base=5e5).frequencies(),
            "mixed",
            "RoPE(64, base=5e5).frequencies()",
        ),
        "interpolated × 4": (
            position_interpolation(rope, 4),
            "pi",
            "position_interpolation(RoPE(64).frequencies(), scale=4)",
        ),
        "NTK × 4": (ntk_aware(rope, 4), "ntk", "ntk_aware(RoPE(64).frequencies(), scale=4)"),
        "YaRN × 4": (
            yarn(rope, scale=4, length=2048),
            "yarn",
            "yarn(RoPE(64).frequencies(), scale=4, length=2048)",
        ),
        "drawn at random": (drawn.sort(descending=True).values, "dense", ""),
    }
    scaling, haar = position_interpolation.__module__, haar_orthogonal.__module__
    return {
        # what the listing names → where it is imported from
        "modules": {
            **dict.fromkeys(("STRING", "CirculantSTRING", "RoPE"), "stringlib"),
            **dict.fromkeys(("ntk_aware", "position_interpolation", "yarn"), scaling),
            "haar_orthogonal": haar,
        },
        "distances": distances().tolist(),
        "presets": {
            name: {
                "frequencies": [float(f"{w:.9g}") for w in given.flatten().tolist()],
                "colour": COLOURS[colour],
                "code": code,
            }
            for name, (given, colour, code) in presets.items()
        },
        "added": COLOURS["sinusoidal"],
    }
