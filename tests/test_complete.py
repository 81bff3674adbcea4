"""Whatever has a name in a registry has all that belongs to it; a failure says where to add it."""

from __future__ import annotations

import pytest
import torch

from lab.methods import method
from stringlib import ENCODERS, TOKEN_BIASES, make_encoder, make_features
from stringlib.attention.path import STEPPED_ENCODERS
from stringlib.attention.projections import PROJECTIONS
from stringlib.attention.registry import FEATURES, WEIGHTS
from stringlib.encoders.registry import BIASES
from tests import attention_cases, encoder_cases, model_cases


@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_of_the_package_has_a_literal_twin(name: str) -> None:
    kind = type(make_encoder(name, 8))
    assert kind in encoder_cases.TWINS, (
        f"add the literal form of {kind.__name__} to stringlib/reference, and to TWINS in "
        "tests/encoder_cases.py"
    )


@pytest.mark.parametrize("name", FEATURES)
def test_a_feature_map_has_a_case_with_its_formula(name: str) -> None:
    case = attention_cases.FEATURES.get(name)
    assert case is not None, f"add {name!r} to FEATURES in tests/attention_cases.py"
    tested, named = case.make(), make_features(name, 8)
    learned = [[key for key, _ in phi.named_parameters()] for phi in (tested, named)]
    assert type(tested) is type(named), f"FEATURES[{name!r}] in tests/attention_cases.py is another"
    assert learned[0] == learned[1], f"FEATURES[{name!r}] in tests/attention_cases.py is another"


@pytest.mark.parametrize("name", PROJECTIONS)
def test_a_projection_has_a_case(name: str) -> None:
    maps = [case.make() for case in attention_cases.FEATURES.values()]
    kinds = {type(phi.projection) for phi in maps if hasattr(phi, "projection")}
    assert PROJECTIONS[name] in kinds, f"add {name!r} to FEATURES in tests/attention_cases.py"


@pytest.mark.parametrize("name", [name for name in WEIGHTS if model_cases.weight(name).normalized])
def test_a_weight_has_a_case_with_its_matrix(name: str) -> None:
    cases = attention_cases.WEIGHTS.values()
    tensors = [case.draw and case.draw((2,), 5, torch.Generator()) for case in cases]
    made = [case.build(tensor, 5, 0) for case, tensor in zip(cases, tensors, strict=True)]
    weight = model_cases.weight(name)(torch.zeros(5, 16))  # of a layer, for given tokens
    assert any(isinstance(weight, type(case)) for case in made if case is not None), (
        f"add {type(weight).__name__} to WEIGHTS in tests/attention_cases.py"
    )


@pytest.mark.parametrize("name", [*ENCODERS, *BIASES, *FEATURES, *WEIGHTS])
def test_a_name_has_a_record(name: str) -> None:
    assert method(name).chapter


@pytest.mark.parametrize(
    "name", [*ENCODERS, *STEPPED_ENCODERS, *BIASES, *FEATURES, *WEIGHTS, *TOKEN_BIASES]
)
def test_a_model_is_made_of_every_name(name: str) -> None:
    used = {str(value) for case in model_cases.CASES.values() for value in case.values()}
    assert name in used, "let tests/model_cases.py read it from the registry"
