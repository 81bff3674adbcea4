"""What is drawn for blocks, heads and layers is drawn for each: nothing is correlated.

Features of blocks that share what they draw are unbiased all the same, only worse; so no test of a
mean sees it. Correlations are averages over many draws of the product of two numbers, each less its
own mean. They would be 1 if both were drawn once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from stringlib import (
    ENCODERS,
    CirculantSTRING,
    FavorFeatures,
    MultiHeadAttention,
    make_encoder,
    make_features,
    random_turn,
)
from stringlib.attention.projections import PROJECTIONS, Projection, SimplexProjection
from stringlib.attention.registry import FEATURES, WEIGHTS
from stringlib.encoders.registry import BIASES, make_bias
from tests import model_cases

DRAWS = 400
MARGIN = 0.3  # six standard errors of 400 draws: 100,000 pairs stay below it
SIZE, HEADS, BLOCKS = 8, 2, 2


def correlations(draws: list[Tensor], others: list[Tensor] | None = None) -> Tensor:
    """Return the correlation of every number of one list with every number of the other.

    Those that are the same in each draw have none, and count 0.
    """
    first, second = (
        torch.stack([x.detach().double().flatten() for x in drawn])
        for drawn in (draws, draws if others is None else others)
    )
    first, second = (x - x.mean(0) for x in (first, second))
    sizes = [x.norm(dim=0).clamp(min=1e-6) for x in (first, second)]
    return first.mT @ second / sizes[0][:, None] / sizes[1]


def off_diagonal(matrix: Tensor) -> Tensor:
    return matrix - torch.diag(matrix.diagonal())


def parts_of(projection: Projection) -> dict[str, Tensor]:
    """Return what was drawn, ``(heads, blocks, numbers)``, and the lengths of the rows of W."""
    drawn = {name: getattr(projection, name) for name in projection.parts}
    if isinstance(projection, SimplexProjection):  # of its rows one says what the others are near
        drawn["weight"] = drawn["weight"].unflatten(1, (BLOCKS, SIZE))[:, :, 0]
    if "phases" in drawn:  # numbers on a circle
        phases = drawn.pop("phases")
        drawn |= {"cosines": phases.cos(), "sines": phases.sin().masked_fill(phases.cos() == -1, 0)}
    drawn["rows"] = projection.matrix().norm(dim=-1)
    return {name: x.detach().reshape(HEADS, BLOCKS, -1) for name, x in drawn.items()}


@pytest.fixture(scope="module", params=PROJECTIONS)
def draws(request: pytest.FixtureRequest) -> list[dict[str, Tensor]]:
    torch.manual_seed(0)
    make = partial(FavorFeatures, SIZE, BLOCKS * SIZE, request.param, heads=HEADS)
    return [parts_of(make().projection) for _ in range(DRAWS)]


def test_lengths_of_rows_of_other_blocks_and_heads_say_nothing_of_each_other(
    draws: list[dict[str, Tensor]],
) -> None:
    places = [(h, b) for h in range(HEADS) for b in range(BLOCKS)]
    for one, other in itertools.combinations(places, 2):
        found = correlations(*([d["rows"][place] for d in draws] for place in (one, other)))
        assert found.abs().max() < MARGIN, (one, other)


def test_all_numbers_that_are_drawn_are_uncorrelated(draws: list[dict[str, Tensor]]) -> None:
    """Those of a block, of other blocks and heads, and of other uses: signs and lengths."""
    drawn = [torch.cat([x.flatten() for key, x in d.items() if key != "rows"]) for d in draws]
    assert off_diagonal(correlations(drawn)).abs().max() < MARGIN


@pytest.mark.parametrize("name", PROJECTIONS)
def test_a_redraw_has_nothing_of_what_was_there(name: str) -> None:
    torch.manual_seed(0)
    features = FavorFeatures(SIZE, BLOCKS * SIZE, name, heads=HEADS)
    found = []
    for _ in range(DRAWS + 1):
        features.redraw()
        found.append(parts_of(features.projection))
    for one in found[0]:
        drawn = [d[one] for d in found]
        assert correlations(drawn[1:], drawn[:-1]).abs().max() < MARGIN


SHARED = {
    "support": "CayleySTRING: places are the same for all heads",
    "down.weight": "Yang et al. 2024 (GLA): W¹ is one for all heads",
    "alpha": "FavorFeatures: it follows from mean_square, one number for all heads unless told",
}
"""What is one for all heads, and who says so."""


def head_axis(make: Callable[[int], nn.Module], name: str) -> int | None:
    """Return along which dimension a tensor has one entry for each head."""
    sizes = [make(heads=heads).state_dict()[name].shape for heads in (2, 4)]
    axes = [i for i, (two, four) in enumerate(zip(*sizes, strict=True)) if four == 2 * two]
    return axes[0] if axes else None


def _layer(name: str, heads: int) -> nn.Module:
    features: Any = MultiHeadAttention(6 * heads, heads, attention=name).features
    return features


WITH_HEADS: dict[str, Callable[[int], nn.Module]] = {
    **{f"encoder {name}": partial(make_encoder, name, 6, 2) for name in ENCODERS if name != "rope"},
    **{f"bias {name}": partial(make_bias, name) for name in BIASES},
    **{f"weight {name}": partial(model_cases.weight, name) for name in WEIGHTS},
    **{f"features {name}": partial(make_features, name, 6, None) for name in FEATURES},
    **{f"layer {name}": partial(_layer, name) for name in FEATURES},
}
"""Name → constructor, of the number of heads, of whatever a registry has."""


@pytest.mark.parametrize("name", WITH_HEADS)
def test_heads_begin_apart(name: str) -> None:
    torch.manual_seed(0)
    make = WITH_HEADS[name]
    drawn = [make(heads=2).state_dict() for _ in range(DRAWS // 2)]
    for key in drawn[0]:
        if key not in SHARED:
            axis = head_axis(make, key)
            assert axis is not None, f"let heads have a {key} of their own, or say in SHARED why"
            one, other = zip(*(d[key].chunk(2, axis) for d in drawn), strict=True)
            assert correlations([*one], [*other]).abs().max() < 1.5 * MARGIN, key


def test_blocks_of_circulant_string_begin_apart() -> None:
    torch.manual_seed(0)
    encoder = CirculantSTRING(8, 2, heads=2, block_size=4)
    drawn = []
    for _ in range(DRAWS):
        encoder.reset_parameters()
        drawn.append(encoder.coefficients.clone())
    assert off_diagonal(correlations(drawn)).abs().max() < MARGIN


LAYERS = [f"{kind}-{n}" for kind in ("text", "images") for n in [*model_cases.COVERING][::2]]
FEWEST = 60  # products of two numbers that a correlation is the mean of


@pytest.mark.parametrize("case", LAYERS)
def test_layers_begin_apart(case: str) -> None:
    """Two blocks of a model, by all that they hold: one correlation for each tensor.

    A bias that has a name is one for all blocks, as Raffel et al. 2020 and Chi et al. 2022 have it.
    """
    kind, name = case.split("-", 1)
    make: Any = model_cases.language_model if kind == "text" else model_cases.vision_model
    drawn: dict[str, list[tuple[Tensor, Tensor]]] = {}
    for seed in range(30):
        one, other = (block.state_dict(keep_vars=True) for block in make(name, seed=seed).blocks)
        for key in one:
            if one[key] is other[key]:
                assert model_cases.CASES[name]["encoder"] in BIASES, key
            else:
                drawn.setdefault(key, []).append((one[key].detach(), other[key].detach()))
    assert drawn
    for key, pairs in drawn.items():
        first, second = (torch.stack(x).double() for x in zip(*pairs, strict=True))
        first, second = first - first.mean(0), second - second.mean(0)
        count = int((first * second != 0).sum())
        if first.abs().max() > 1e-6:
            assert count >= FEWEST, key
            found = (first * second).sum() / (first.norm() * second.norm())
            assert abs(found) < 5 / math.sqrt(count), key


@pytest.mark.parametrize("name", [*ENCODERS])
def test_a_random_turn_turns_planes_and_heads_apart(name: str) -> None:
    """The angle of a plane, from B in the encoder's own basis; one draw for each call."""
    encoder = make_encoder(name, 6, 1, heads=2)
    basis, generator = encoder.basis(), torch.Generator().manual_seed(0)
    cosines, sines = [], []
    for _ in range(DRAWS):
        turn = basis.mT @ random_turn(encoder, generator) @ basis
        pairs = encoder.frequencies().shape[1]
        planes = [turn[:, 2 * i : 2 * i + 2, 2 * i] for i in range(pairs)]
        cosines.append(torch.stack([p[:, 0] for p in planes]))
        sines.append(torch.stack([p[:, 1] for p in planes]))
    for drawn in (cosines, sines):
        assert off_diagonal(correlations(drawn)).abs().max() < MARGIN
        assert correlations(drawn[1:], drawn[:-1]).abs().max() < MARGIN
        assert torch.stack(drawn).mean(0).abs().max() < MARGIN / 2
    assert correlations(cosines, sines).abs().max() < MARGIN


def test_supports_of_sparse_encoders_are_drawn_for_each() -> None:
    """How often two have a place in common: as often as independent draws, a tenth of them."""
    torch.manual_seed(0)
    supports = [make_encoder("cayley-sparse", 16).support for _ in range(400)]
    places = torch.stack([torch.zeros(16, 16).index_put((*s,), torch.ones(())) for s in supports])
    shared = (places[1:] * places[:-1]).sum((-2, -1)) / 12
    assert abs(shared.mean() - 0.1) < 5 * math.sqrt(0.1 * 0.9 / 12 / 399)
