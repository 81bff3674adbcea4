"""Every feature map and every weight keeps the contract of ``stringlib.testing``."""

from __future__ import annotations

import pytest
import torch

import stringlib
from stringlib import linear_attention
from stringlib.testing.contract import Property
from stringlib.testing.features import FEATURE_MAP
from stringlib.testing.modes import Mode
from stringlib.testing.weights import WEIGHT, inputs
from tests.attention_cases import FEATURES, HEADS, WEIGHTS
from tests.thinned import hold, products
from tests.watched import LargestTensor

WEIGHTS_TRACED = ("constant", "toeplitz", "decay-vector", "decay-scalar")
FEATURES_TRACED = ("elu", "favor-hadamard", "hyperbolic")
"""One of each form: others differ from one of these in a number, or are compiled in a model."""


@pytest.mark.parametrize(
    ("name", "property", "modes"), products(WEIGHT, WEIGHTS, WEIGHTS_TRACED, every=2)
)
def test_contract_of_weights(name: str, property: Property, modes: list[Mode]) -> None:
    hold(property, WEIGHTS[name], modes)


@pytest.mark.parametrize(
    ("name", "property", "modes"), products(FEATURE_MAP, FEATURES, FEATURES_TRACED, every=2)
)
def test_contract_of_features(name: str, property: Property, modes: list[Mode]) -> None:
    hold(property, FEATURES[name], modes)


@pytest.mark.parametrize("mode", [None, "chunk"])
@pytest.mark.parametrize("name", ["constant", "cosine", "decay-heads", "decay-scalar"])
def test_the_chunked_form_never_holds_a_state_for_each_token(name: str, mode: str | None) -> None:
    n, m = 1024, 32
    leaves = [x.requires_grad_() for x in WEIGHTS[name].given(n, (), m=m, d_v=32)]
    with LargestTensor() as largest:
        torch.autograd.grad(WEIGHTS[name].attend(leaves, mode=mode).sum(), leaves)
    # a state for each token would be n·m·33: 32 times a feature tensor; a matrix n·n: as many
    assert largest.elements <= HEADS * n * m * 4


@pytest.mark.parametrize("mode", [None, "chunk"])
def test_vector_decays_hold_no_state_for_each_token(mode: str | None) -> None:
    n, m = 1024, 32
    leaves = [x.requires_grad_() for x in inputs(n, (), m, d_v=96)]
    weight = stringlib.DecayWeight(-torch.rand(HEADS, n, m, dtype=torch.float64))
    with LargestTensor() as largest:
        out = linear_attention(*leaves, weight, causal=True, mode=mode)
        torch.autograd.grad(out.sum(), leaves)
    assert largest.elements <= HEADS * n * m * 32
