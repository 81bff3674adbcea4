"""Relative biases: values, gradients, kernels, and what a bias cannot do."""

from functools import partial

import pytest
import torch

from stringlib import ALiBi, KerpleLog, KerplePower, RoPE, T5Bias, reference
from stringlib.encoders.registry import BIASES, make_bias
from stringlib.testing import properties
from stringlib.testing.biases import BIAS
from tests.draws import random
from tests.refusals import refusals
from tests.thinned import hold, products

CASES = {
    "alibi-8": lambda: ALiBi(8),
    "alibi-12": lambda: ALiBi(12),
    "t5": lambda: T5Bias(3),
    "t5-causal": lambda: T5Bias(2, bidirectional=False),
    "t5-few": lambda: T5Bias(2, num_buckets=6, max_distance=9),
    "t5-least": lambda: T5Bias(1, num_buckets=2, max_distance=2, bidirectional=False),
    "kerple-log": lambda: KerpleLog(4),
    "kerple-power": lambda: KerplePower(3),
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


def literal(module, num_queries, num_keys, offset=0):
    """The reference's value for the same parameters."""
    sizes = num_queries, num_keys, offset
    if isinstance(module, ALiBi):
        return reference.alibi_bias(module.heads, *sizes)
    if isinstance(module, T5Bias):
        return reference.t5_bias(module.weight, *sizes, module.max_distance, module.bidirectional)
    r1 = module.log_r1.double().exp()
    if isinstance(module, KerpleLog):
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
    expected = literal(module, num_queries, num_keys, offset)
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


def test_one_bucket_of_a_two_sided_table_is_never_used():
    module = T5Bias(2)
    module(300, 300).square().sum().backward()
    used = (module.weight.grad != 0).all(-1)
    assert used.tolist() == [bucket != 16 for bucket in range(32)]


@pytest.mark.parametrize("name", ["kerple-log", "kerple-power", "alibi-8"])
def test_the_modules_are_conditionally_positive_semidefinite(name):
    """cᵀ b c >= 0 whenever the entries of c sum to 0; so exp(λb) is a kernel for every λ."""
    bias = make(name)(40, 40)
    centre = torch.eye(40).double() - 1 / 40
    assert (torch.linalg.eigvalsh(centre @ bias @ centre) > -1e-10 * bias.abs().max()).all()
    for scale in (0.1, 1.0, 10.0):
        assert (torch.linalg.eigvalsh((scale * bias).exp()) > -1e-11).all()


@biases
@pytest.mark.proves("eq-bias-softmax")
@pytest.mark.parametrize("causal", [False, True])
def test_torch_adds_the_bias_as_the_literal_attention_does(name, causal):
    module = make(name)
    q, k, v = random(3, module.heads, 7, 4)
    bias = module(7, 7)
    mask = bias + torch.ones(7, 7).tril().log().double() if causal else bias
    got = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    literal = reference.softmax_attention(q, k, v, bias, causal=causal)
    assert properties.largest_difference(got, literal) <= 1e-12


@pytest.mark.proves("eq-perm-equivariant")
def test_attention_without_positions_is_permutation_equivariant():
    q, k, v = random(3, 2, 7, 4)
    order = torch.randperm(7, generator=torch.Generator().manual_seed(0))

    def moved(**how):
        there = reference.softmax_attention(q[:, order], k[:, order], v[:, order], **how)
        return properties.largest_difference(
            there, reference.softmax_attention(q, k, v, **how)[:, order]
        )

    assert moved() <= 1e-13
    assert moved(causal=True) > 0.1
    assert moved(bias=ALiBi(2)(7, 7)) > 0.01


@biases
@pytest.mark.proves("eq-bias-ratio")
def test_a_bias_changes_the_ratio_of_two_weights_by_a_factor_that_content_does_not_touch(name):
    """And a rotation changes it by one that content does touch."""
    module = make(name)
    bias = module(6, 6)

    def factor(seed, bias=0.0, turn=None):
        q, k = random(2, module.heads, 6, 8, seed=seed)
        plain = (q @ k.mT / 8**0.5).softmax(-1)
        if turn:
            q, k = turn(q, k, torch.arange(6)[:, None])
        weights = (q @ k.mT / 8**0.5 + bias).softmax(-1)
        return (weights[..., 1] / weights[..., 0]) / (plain[..., 1] / plain[..., 0])

    expected = (bias[..., 1] - bias[..., 0]).exp()
    for seed in range(3):
        relative = factor(seed, bias) / expected
        assert properties.largest_difference(relative, torch.ones(()).double()) <= 1e-10
    gap = factor(0, turn=RoPE(8)).log() - factor(1, turn=RoPE(8)).log()
    assert gap.abs().max() > 0.1


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
    (lambda: T5Bias(2, num_buckets=31), "num_buckets must be at least 4 and even, .*got 31"),
    (lambda: T5Bias(2, num_buckets=2), "num_buckets must be at least 4 .*got 2"),
    (lambda: T5Bias(2, max_distance=8), "max_distance must be at least 9, got 8"),
    (lambda: ALiBi(2)(3, 3, 1), "TypeError: positional"),
)
