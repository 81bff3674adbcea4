"""Relative biases: values, gradients, kernels, and what a bias cannot do."""

from functools import partial

import pytest
import torch

from stringlib import ALiBi, KerpleLog, KerplePower, T5Bias, reference
from stringlib.encoders.registry import BIASES, make_bias
from stringlib.testing import properties
from stringlib.testing.biases import BIAS
from tests.refusals import refusals
from tests.thinned import hold, products

CASES = {
    "alibi-8": partial(ALiBi, 8),
    "alibi-12": partial(ALiBi, 12),
    "t5": partial(T5Bias, 3),
    "t5-causal": partial(T5Bias, 2, bidirectional=False),
    "t5-few": partial(T5Bias, 2, num_buckets=6, max_distance=9),
    "t5-least": partial(T5Bias, 1, num_buckets=2, max_distance=2, bidirectional=False),
    "kerple-log": partial(KerpleLog, 4),
    "kerple-power": partial(KerplePower, 3),
}


def by_name(registry):
    """Return cases of those biases of a registry whose class has none here."""
    written = {type(make()) for make in CASES.values()}
    made = {name: partial(make_bias, name, 3) for name in registry}
    return {name: make for name, make in made.items() if type(make()) not in written}


CASES |= by_name(BIASES)
LEARNED = [name for name in CASES if not name.startswith("alibi")]
biases = pytest.mark.parametrize("name", CASES)
learned = pytest.mark.parametrize("name", LEARNED)


def make(name, dtype=torch.float64):
    torch.manual_seed(0)
    module = CASES[name]().to(dtype)
    with torch.no_grad():
        for parameter in module.parameters():  # not what it starts as
            parameter.add_(torch.randn(parameter.shape, dtype=torch.float64).to(dtype))
    return module


@pytest.mark.parametrize(("name", "property", "modes"), products(BIAS, CASES, ("t5",)))
def test_contract(name, property, modes):
    hold(property, lambda dtype=torch.float64: make(name, dtype), modes)


def literal(name, module, *sizes):
    """The reference's value for what was asked, with the numbers of the module."""
    kind, (heads,), asked = CASES[name].func, CASES[name].args, CASES[name].keywords
    if kind is ALiBi:
        return reference.alibi_bias(heads, *sizes)
    if kind is T5Bias:
        assert module.weight.shape == (asked.get("num_buckets", 32), heads)
        reach = asked.get("max_distance", 128)
        return reference.t5_bias(module.weight, *sizes, reach, asked.get("bidirectional", True))
    r1 = module.log_r1.double().exp()
    assert r1.shape == (heads,)
    if kind is KerpleLog:
        return reference.kerple_log_bias(r1, module.log_r2.double().exp(), *sizes)
    return reference.kerple_power_bias(r1, 2 / (1 + (-module.logit_r2.double()).exp()), *sizes)


@biases
@pytest.mark.proves("eq-bias-alibi", "eq-bias-t5", "eq-bias-kerple")
@pytest.mark.parametrize(
    ("num_queries", "num_keys", "offset"), [(9, 9, 0), (3, 170, 150), (20, 4, -7)]
)
def test_values_are_those_of_the_literal_form(name, num_queries, num_keys, offset):
    module = make(name)
    got = module(num_queries, num_keys, offset=offset)
    expected = literal(name, module, num_queries, num_keys, offset)
    assert got.shape == expected.shape
    assert properties.largest_difference(got, expected) <= 1e-12 * (1 + expected.abs().max().item())


@pytest.mark.proves("eq-bias-alibi")
@pytest.mark.parametrize("heads", range(1, 34))
def test_slopes_for_every_number_of_heads(heads):
    got = ALiBi(heads).double().slopes.tolist()
    assert got == pytest.approx(reference.alibi_slopes(heads), rel=1e-12)


@pytest.mark.proves("eq-bias-t5")
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(
    ("num_buckets", "max_distance"), [(32, 128), (64, 256), (32, 1000), (12, 40), (4, 3), (20, 16)]
)
def test_buckets_are_those_of_t5(num_buckets, max_distance, bidirectional):
    distances = torch.arange(-1100, 1101)
    sizes = {"num_buckets": num_buckets, "max_distance": max_distance}
    bias = T5Bias(1, bidirectional=bidirectional, **sizes)
    got = bias.buckets(distances).tolist()
    literal = [
        reference.t5_bucket(-delta, num_buckets, max_distance, bidirectional)
        for delta in distances.tolist()
    ]
    assert got == literal


def test_boundaries_are_exact_where_a_float_is_not():
    """Buckets from 5, 10, 20, 40, 80: printed, log 2 / log 32 · 5 is rounded down to 0."""
    module = T5Bias(1, num_buckets=10, max_distance=160, bidirectional=False)
    assert module.boundaries.tolist() == [1, 2, 3, 4, 5, 10, 20, 40, 80]
    assert module.buckets(torch.tensor([9, 10])).tolist() == [5, 6]
    assert reference.t5_bucket(-10, 10, 160, bidirectional=False) == 5


@learned
def test_gradients(name):
    module = make(name)
    names = [n for n, _ in module.named_parameters()]
    values = [p.detach().clone().requires_grad_() for p in module.parameters()]

    def bias(*values):
        state = dict(zip(names, values, strict=True))
        return torch.func.functional_call(module, state, (4, 5), {"offset": 1})

    assert torch.autograd.gradcheck(bias, values)
    assert torch.autograd.gradgradcheck(bias, values)


@pytest.mark.parametrize("logit", [-6.0, -1.0, 0.0, 3.0])
def test_the_gradient_of_a_power_at_distance_0_is_0(logit):
    """0 to the power r is 0 for every r > 0, although 0 · log 0 is not a number."""
    module = KerplePower(1).double()
    with torch.no_grad():
        module.logit_r2.fill_(logit)
    here = module(1, 1).sum()
    for gradient in torch.autograd.grad(here, list(module.parameters()), create_graph=True):
        assert gradient.item() == 0
        for second in torch.autograd.grad(
            gradient.sum(), list(module.parameters()), retain_graph=True
        ):
            assert second.item() == 0


test_bad_arguments_are_named = refusals(
    (lambda: T5Bias(2, num_buckets=31), "num_buckets must be even and at least 4 .*got 31"),
    (lambda: T5Bias(2, num_buckets=2), "num_buckets must be even and at least 4 .*got 2"),
    (lambda: T5Bias(2, max_distance=8), "max_distance must be at least 9, got 8"),
    (lambda: ALiBi(2)(3, 3, 1), "TypeError: positional"),
)
