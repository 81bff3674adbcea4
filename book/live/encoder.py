"""The instrument "Build an encoder": scores and attention maps for chosen frequencies."""

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

HALF = False  # frequencies need their full precision
ALT = {
    "": "A figure with the frequencies of RoPE. Lines on a logarithmic axis with eight handles "
    "show the frequencies of 32 pairs of channels. Below, a curve shows the score of two equal "
    "words against their distance: it falls from 1 at distance 1 to about 0 at distance 10,000, "
    "and the horizon is at 22. Two maps on a grid show the score of the middle patch with every "
    "patch: the high scores form a cross for axial pairs, and a hill for pairs with many "
    "directions. On the right, four maps show the attention among 13 words, with the sentence at "
    "position 0 and at position 1,000. With rotations the two maps are the same. With added "
    "sinusoids a weight changes by up to 28 percentage points.",
    "preset=drawn at random": "A figure with 32 frequencies drawn at random, as lines on a "
    "logarithmic axis with eight handles. Below, a curve shows the score of two equal words "
    "against their distance: it falls from 1 at distance 1 to about 0 at distance 1,000, and the "
    "horizon is at 30. Two maps on a grid show the score of the middle patch with every patch: "
    "the high scores form a cross for axial pairs, and a round hill for pairs with many "
    "directions. On the right, four maps show the attention among 13 words, with the sentence at "
    "position 0 and at position 1,000. With rotations the two maps are the same. With added "
    "sinusoids a weight changes by up to 38 percentage points.",
    "basis=1": "A figure with the frequencies of RoPE in the Fourier basis of a circulant "
    "matrix. On the left, the frequencies, the score of two equal words against their distance "
    "and two maps on a grid are the same as for RoPE. On the right, four maps show the attention "
    "among 13 words, with the sentence at position 0 and at position 1,000. With rotations the "
    "two maps are the same. With added sinusoids a weight changes by up to 28 percentage points. "
    "Below is the code: a STRING with the basis of CirculantSTRING.",
    "slope=0.2": "A figure with the frequencies of RoPE and a bias of 0.20 per token. On the left "
    "are the frequencies, the score of two equal words against their distance and two maps on a "
    "grid. On the right, four maps show the attention among 13 words, in which distant words have "
    "less weight. With rotations the maps at position 0 and at position 1,000 are the same. With "
    "added sinusoids a weight changes by up to 18 percentage points. Below is the code: RoPE with "
    "a bias that lowers the weight by 18% per token.",
}
"""Alternative texts of the posters, by the state of the instrument."""
SCRIPTS = ("live-rope.js",)
HEAD_DIM, PAIRS, WORDS, SIDE = 64, 32, 16, 15
MOST = 128
"""Number of pairs of the largest head whose frequencies a reader may paste.

The frequencies of smaller heads are padded.
"""
FARTHEST = 100_000
NEAR = 0.12
"""The thick curve is a mean over distances that differ by about this share of the distance."""

SHARPNESS = 5.0
"""Factor of the logits, so that equal words get clearly more weight in the softmax."""


def distances() -> Tensor:
    """Return the distances at which the score is drawn.

    These are all integers up to 400, and then distances with equal steps of the logarithm.
    """
    far = torch.logspace(math.log10(400), math.log10(FARTHEST), 400, dtype=torch.float64)
    return torch.cat([torch.arange(401).double(), far.round()]).unique()


class Score(nn.Module):
    """The score of two equal words against their distance, and its mean over near distances."""

    def forward(self, frequencies: Tensor, shares: Tensor) -> dict[str, Tensor]:
        """Return the scores and their means, ``(distances,)``.

        Args:
            frequencies: Frequencies of the pairs, ``(pairs,)``.
            shares: Share of each pair in the score, ``(pairs,)``; 0 for padding.
        """
        angles = distances()[:, None] * frequencies.double()
        waves = angles.cos() * shares.double()
        blurred = waves * (-0.5 * (NEAR * angles) ** 2).exp()
        return {"score": waves.sum(-1), "mean": blurred.sum(-1)}


class Maps(nn.Module):
    """Attention maps of a sentence at position 0, and of the same sentence after a move.

    Args:
        pairs: Number of pairs of a head. If it is ``PAIRS``, there are three bases to choose from,
            otherwise one.
    """

    def __init__(self, pairs: int = PAIRS) -> None:
        super().__init__()
        self.pairs = pairs
        generator = torch.Generator().manual_seed(0)
        fourier = CirculantSTRING(HEAD_DIM).basis()[0]
        drawn = haar_orthogonal(HEAD_DIM, generator=generator).double()
        self.bases = torch.stack([torch.eye(HEAD_DIM).double(), fourier.double(), drawn]).float()

    def forward(
        self,
        words: Tensor,
        mask: Tensor,
        frequencies: Tensor,
        shares: Tensor,
        basis: Tensor,
        slope: Tensor,
        moved: Tensor,
    ) -> dict[str, Tensor]:
        """Return the maps, each ``(words, words)``.

        Args:
            words: Unit vectors of the words, ``(words, head_dim)``.
            mask: 1 for a word, 0 for padding after the last word, ``(words,)``.
            frequencies: Frequencies of the pairs, ``(pairs,)``.
            shares: Share of each pair in the score, ``(pairs,)``; 0 for padding.
            basis: 1 for the chosen basis, 0 for the other bases, ``(3,)``.
            slope: The bias lowers a logit by this number per token of distance, ``(1,)``.
            moved: Number of tokens by which the sentence is moved, ``(1,)``.
        """
        here = torch.arange(WORDS).double()[:, None]
        there = here + moved.double()
        p = None
        if self.pairs == PAIRS:
            p = (self.bases.double() * basis.double()[:, None, None]).sum(0)[None]
        encoder = STRING(frequencies.double()[None, :, None], p)
        bias = -slope * (here - here.mT).abs()
        far = torch.where(mask > 0, 0.0, -math.inf)

        def attention(q: Tensor, k: Tensor) -> Tensor:
            unit = torch.eye(WORDS, dtype=q.dtype)[None]
            wide = SHARPNESS * (2 * self.pairs) ** 0.5
            return softmax_attention(q * wide, k, unit, (bias + far).to(q.dtype)[None])[0]

        def turned(positions: Tensor) -> Tensor:
            q = words.double()[None]
            return attention(*encoder(q, q, encoder.phases(positions)))

        # the angles of a model that stores positions and frequencies in bfloat16
        narrow = there.bfloat16() * frequencies.bfloat16()
        cos_sin = torch.stack([narrow.float().cos(), narrow.float().sin()], -1)[None]
        q = words.double()[None]
        rough = encoder(q, q, Phases(cos_sin.double(), encoder.phases(here).basis))

        def added(positions: Tensor) -> Tensor:
            phases = unit_phases(positions, frequencies.double()[None, :, None])[0]
            size = shares.double().sqrt()[:, None]
            x = words.double() + (phases.flip(-1) * size).flatten(-2)
            return attention(x[None], x[None])

        return {
            "rotated": turned(here),
            "rotated_moved": turned(there),
            "rough": attention(*rough),
            "added": added(here),
            "added_moved": added(there),
        }


class Grid(nn.Module):
    """The score of the middle patch of a grid with every other patch, if all patches are equal."""

    def forward(self, frequencies: Tensor, shares: Tensor) -> dict[str, Tensor]:
        """Return two maps, ``(side, side)``, for the arguments of :class:`Score`."""
        steps = torch.arange(SIDE).double() - SIDE // 2
        rows, columns = steps[:, None, None], steps[None, :, None]
        w, share = frequencies.double(), shares.double()
        axial = ((rows * w[::2]).cos() * share[::2]).sum(-1)
        axial = axial + ((columns * w[1::2]).cos() * share[1::2]).sum(-1)
        # directions at multiples of the golden angle, which spread evenly
        turn = torch.arange(len(w)).double() * math.pi * (3 - math.sqrt(5))
        mixed = (rows * (turn.cos() * w) + columns * (turn.sin() * w)).cos() * share
        return {"axial": axial, "mixed": mixed.sum(-1)}


def programs() -> dict[str, Traced]:
    """Return the programs that the page runs, by name and number of pairs."""
    found = {}
    for pairs in (PAIRS, MOST):
        given = {
            "frequencies": RoPE(2 * pairs).frequencies().flatten().double(),
            "shares": torch.full((pairs,), 1 / pairs, dtype=torch.float64),
        }
        found[f"score {pairs}"] = traced(Score(), **given)
        found[f"grid {pairs}"] = traced(Grid(), **given)
        words = torch.nn.functional.normalize(torch.randn(WORDS, 2 * pairs), dim=-1)
        found[f"maps {pairs}"] = traced(
            Maps(pairs),
            words=words,
            mask=torch.ones(WORDS),
            **given,
            basis=torch.tensor([1.0, 0.0, 0.0]),
            slope=torch.zeros(1),
            moved=torch.tensor([1000.0]),
        )
    return found


def data() -> dict[str, Any]:
    """Return the constants of the page: presets, distances, colours and names for the listing."""
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
        # a name in the listing → the module from which it is imported
        "modules": {
            **dict.fromkeys(("STRING", "CirculantSTRING", "RoPE"), "stringlib"),
            **dict.fromkeys(("ntk_aware", "position_interpolation", "yarn"), scaling),
            "haar_orthogonal": haar,
        },
        "distances": distances().tolist(),
        "most": MOST,
        "pasted": COLOURS["axial"],
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
