"""A method that somebody adds, a class, a name and a record, is in tables, models and suites."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from book import methods
from lab.methods import METHODS, Method
from stringlib import STRING, FeatureMap, MultiHeadAttention, PositionWeight, RotaryEncoder
from stringlib.attention.registry import FEATURES, WEIGHTS
from stringlib.encoders.registry import BIASES, ENCODERS
from stringlib.encoders.relative_bias import RelativeBias
from stringlib.spec import Floats, require
from stringlib.testing.contract import SkippedError
from stringlib.testing.encoders import ENCODER
from stringlib.testing.features import FEATURE_MAP
from stringlib.testing.modes import EAGER
from stringlib.testing.weights import WEIGHT
from tests import attention_cases, encoder_cases, model_cases, test_bias


class Octaves(STRING):
    """Each pair turns half as fast as the one before, along every coordinate alike."""

    def __init__(self, head_dim: int, coord_dim: int = 1, heads: int = 1) -> None:
        octaves = 0.5 ** torch.arange(head_dim // 2, dtype=torch.float64)
        super().__init__(octaves[:, None].expand(heads, -1, coord_dim).clone(), head_dim=head_dim)


class Halving(RelativeBias):
    """One bit less for each token in between, in all heads."""

    def at(self, distances: Tensor) -> Tensor:
        return -0.7 * distances.abs().double().expand(self.heads, -1)

    def reset_non_persistent_buffers(self) -> None:
        """Hold nothing."""


class Squares(FeatureMap):
    """The square of each channel."""

    nonnegative = True

    def forward(self, x: Tensor, is_query: bool = True) -> Tensor:
        require("x", x, Floats[Tensor, "..."])
        return x.square()


class Harmonic(PositionWeight):
    """1/(1 + sharpness · |i − j|)."""

    sharpness: Tensor

    def __init__(self, sharpness: float) -> None:
        super().__init__()
        self.register_buffer("sharpness", torch.tensor(float(sharpness)))

    def matrix(self, num_queries: int, num_keys: int) -> Tensor:
        device = self.sharpness.device
        i = torch.arange(max(num_queries, num_keys), device=device)
        gaps = i[:num_queries, None] - i[:num_keys]
        return 1 / (1 + self.sharpness * gaps.abs().double())


SHARP = {"sharpness": 2.0}
NEW: dict[str, tuple[dict[str, Any], Any, Method]] = {
    "octaves": (ENCODERS, Octaves, Method("mine", "blue", "02_rope")),
    "halving": (BIASES, Halving, Method("mine", "teal", "01_why_positions")),
    "squares": (FEATURES, Squares, Method("mine", "red", "10_linear_attention")),
    "harmonic": (WEIGHTS, Harmonic, Method("mine", "sky", "13_cosformer", options=SHARP)),
}


@pytest.fixture(autouse=True)
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, (registry, make, record) in NEW.items():
        monkeypatch.setitem(registry, name, make)
        monkeypatch.setitem(METHODS, name, record)


def test_it_has_its_row_in_the_table_of_all_methods() -> None:
    rows = {row.name: row for row in (*methods.encoders(), *methods.attentions())}
    assert rows["octaves"].cells["relative"] == rows["halving"].cells["relative"] == "yes"
    assert rows["squares"].cells["kind"] == "features"
    assert rows["harmonic"].cells["kind"] == "weight"
    assert rows["harmonic"].chapter == "13_cosformer"
    assert all(rows[name].code.endswith(make.__name__) for name, (_, make, _) in NEW.items())


def test_it_is_in_the_suites_and_passes_them() -> None:
    encoders = encoder_cases.by_name(ENCODERS)
    assert encoders
    for make in encoders.values():
        for property in ENCODER.properties:
            _held(property, lambda dtype=torch.float64, make=make: make().to(dtype))
    assert [*test_bias.by_name(BIASES)] == ["halving"]
    maps = attention_cases.features_by_name(FEATURES)
    weights = attention_cases.weights_by_name(WEIGHTS)
    assert [*maps] == ["squares"]
    assert [*weights] == ["harmonic"]
    for property in FEATURE_MAP.properties:
        _held(property, maps["squares"])
    for property in WEIGHT.properties:
        _held(property, weights["harmonic"])


def _held(property: Any, case: Any) -> None:
    try:
        property.check(case, EAGER)
    except SkippedError:
        return  # it does not apply


def test_a_layer_takes_it_by_name_with_options_of_its_own() -> None:
    layer = MultiHeadAttention(
        16, 2, "octaves", "squares", weight="harmonic", sharpness=3, rotate="before"
    )
    assert isinstance(layer.encoder, RotaryEncoder)
    assert isinstance(layer.weight, Harmonic)
    assert layer.weight.sharpness == 3
    assert layer(torch.randn(2, 5, 16)).shape == (2, 5, 16)
    with pytest.raises(ValueError, match="sharpness must be given for weight 'harmonic', got None"):
        MultiHeadAttention(16, 2, attention="squares", weight="harmonic")
    biased: nn.Module = MultiHeadAttention(16, 2, "halving")
    assert biased(torch.randn(5, 16)).shape == (5, 16)
    assert isinstance(model_cases.weight("cosine"), PositionWeight)
