"""Layers as published: equal to the modules of transformers, and to formulas of their papers."""

from __future__ import annotations

import copy
import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, silu, softplus

from stringlib import DeltaWeight, KDAWeight, linear_attention, make_layer
from stringlib.attention.convolution import ShortConvolution
from stringlib.attention.gated_norm import GatedNorm
from tests.draws import random

transformers = pytest.importorskip("transformers")


def copied(target: nn.Module | Tensor, source: Tensor) -> None:
    """Write weights into a layer, of which the shape has to fit."""
    weight = target.weight if isinstance(target, nn.Module) else target
    assert weight.shape == source.shape, (weight.shape, source.shape)
    with torch.no_grad():
        weight.copy_(source)


def shaken(module: nn.Module) -> nn.Module:
    """Return a module in float64 with every parameter moved, so that none is 0 or 1."""
    torch.manual_seed(3)
    module = module.double()
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return module


def kda_pair() -> tuple[nn.Module, nn.Module]:
    from transformers.models.kimi_linear.configuration_kimi_linear import KimiLinearConfig
    from transformers.models.kimi_linear.modeling_kimi_linear import KimiLinearDeltaAttention

    config = KimiLinearConfig(
        hidden_size=12, num_hidden_layers=1, num_attention_heads=3, rms_norm_eps=1e-4,
        linear_head_dim=4, linear_num_heads=3, linear_conv_kernel_dim=4, hidden_act="silu",
    )  # fmt: skip
    config.layer_types = ["linear_attention"]
    other = KimiLinearDeltaAttention(config, 0)
    for unset in (other.forget_gate.dt_bias, other.forget_gate.A_log):
        nn.init.zeros_(unset)
    shaken(other)
    layer = make_layer("kda", 12, 3, eps=1e-4).double()
    copied(layer.to_q, other.q_proj.weight)
    copied(layer.to_k, other.k_proj.weight)
    copied(layer.to_v, other.v_proj.weight)
    copied(layer.to_out, other.o_proj.weight)
    copied(layer.convolution, other.conv1d.weight.squeeze(1))
    copied(layer.weight.to_rate, other.b_proj.weight)
    nn.init.zeros_(layer.weight.to_rate.bias)
    decay, gate = layer.weight.decay, other.forget_gate
    copied(decay.down, gate.f_a_proj.weight)
    copied(decay.up, gate.f_b_proj.weight)
    copied(decay.up.bias, gate.dt_bias)
    copied(decay.log_rate, gate.A_log.flatten())
    copied(layer.norm.to_gate[0], other.g_a_proj.weight)
    copied(layer.norm.to_gate[1], other.g_b_proj.weight)
    copied(layer.norm, other.o_norm.weight)
    return layer, other


def delta_pair(key_heads: int) -> tuple[nn.Module, nn.Module]:
    from transformers import Qwen3NextConfig
    from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet

    heads, width, wide = 4, 5, 6
    config = Qwen3NextConfig(
        hidden_size=12, num_hidden_layers=1, rms_norm_eps=1e-4, hidden_act="silu",
        linear_num_value_heads=heads, linear_num_key_heads=key_heads, linear_key_head_dim=width,
        linear_value_head_dim=wide, linear_conv_kernel_dim=3, layer_types=["linear_attention"],
    )  # fmt: skip
    other = shaken(Qwen3NextGatedDeltaNet(config, 0))
    layer = make_layer(
        "gated-deltanet", 12, heads, key_dim=key_heads * width, value_dim=heads * wide,
        key_heads=key_heads, convolution=3, eps=1e-4,
    ).double()  # fmt: skip
    # rows of the joint projection, from the module's own reordering
    eye = torch.eye(12, dtype=torch.float64)[None]
    parts = other.fix_query_key_value_ordering(other.in_proj_qkvz(eye), other.in_proj_ba(eye))
    q, k, v, z, b, a = (x[0].flatten(1).mT for x in parts)
    for target, rows in ((layer.to_q, q), (layer.to_k, k), (layer.to_v, v)):
        copied(target, rows)
    copied(layer.norm.to_gate, z)
    copied(layer.weight.to_rate, b)
    nn.init.zeros_(layer.weight.to_rate.bias)
    decay = layer.weight.decay
    copied(decay.to_step, a)
    copied(decay.to_step.bias, other.dt_bias)
    copied(decay.log_rate, other.A_log)
    copied(layer.convolution, other.conv1d.weight.squeeze(1))
    copied(layer.norm, other.norm.weight)
    copied(layer.to_out, other.out_proj.weight)
    return layer, other


def mamba_pair(groups: int) -> tuple[nn.Module, nn.Module]:
    from transformers import Mamba2Config
    from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

    config = Mamba2Config(
        hidden_size=12, num_heads=4, head_dim=6, state_size=5, expand=2, n_groups=groups,
        conv_kernel=4, use_bias=False, use_conv_bias=True, hidden_act="silu", chunk_size=8,
        layer_norm_epsilon=1e-4, num_hidden_layers=1, rms_norm=True,
    )  # fmt: skip
    other = shaken(Mamba2Mixer(config, 0))
    layer = make_layer("mamba2", 12, 4, state_size=5, groups=groups, eps=1e-4).double()
    n = groups * 5
    z, x, b, c, dt = other.in_proj.weight.split([24, 24, n, n, 4])
    for target, rows in (
        (layer.to_q, c), (layer.to_k, b), (layer.to_v, x), (layer.norm.to_gate, z),
        (layer.weight.to_step, dt), (layer.weight.to_step.bias, other.dt_bias),
        (layer.weight.log_rate, other.A_log), (layer.norm, other.norm.weight),
        (layer.skip, other.D), (layer.to_out, other.out_proj.weight),
    ):  # fmt: skip
        copied(target, rows)
    for target, source in (
        (layer.convolution.weight, other.conv1d.weight.squeeze(1)),
        (layer.convolution.bias, other.conv1d.bias),
    ):
        x, b, c = source.split([24, n, n])
        copied(target, torch.cat([c, b, x]))
    return layer, other


PAIRS = {
    "kda": kda_pair,
    "gated-deltanet": lambda: delta_pair(4),
    "gated-deltanet, shared keys": lambda: delta_pair(2),
    "mamba2": lambda: mamba_pair(1),
    "mamba2, two groups": lambda: mamba_pair(2),
}


@pytest.mark.parametrize("n", [1, 5, 70])
@pytest.mark.parametrize("name", PAIRS)
def test_equal_to_the_module_of_transformers(name: str, n: int) -> None:
    layer, other = PAIRS[name]()
    x, probe = random(2, n, 12), random(2, n, 12, seed=1)
    own, given = x.clone().requires_grad_(), x.clone().requires_grad_()
    found, expected = layer(own), other(given)
    # transformers computes states in float32
    assert (found - expected).abs().max() < 2e-5 * expected.abs().max().clamp(min=1)
    (found * probe).sum().backward()
    (expected * probe).sum().backward()
    assert own.grad is not None
    assert given.grad is not None
    assert (own.grad - given.grad).abs().max() < 5e-5 * given.grad.abs().max().clamp(min=1)
    last = getattr(other, "o_proj" if name == "kda" else "out_proj").weight.grad
    first = (layer.convolution.weight.grad, other.conv1d.weight.grad.squeeze(1))
    # the channels of Mamba-2 stand in another order
    first = tuple(grad.sort(0).values for grad in first)
    for got, want in ((layer.to_out.weight.grad, last), first):
        assert (got - want).abs().max() < 5e-5 * want.abs().max().clamp(min=1)


def heads(x: Tensor, count: int) -> Tensor:
    return x.unflatten(-1, (count, -1)).transpose(-3, -2)


def normed(layer: Any, out: Tensor, x: Tensor) -> Tensor:
    """Return what Sun et al. compute from the outputs of the heads."""
    out = out / (out.square().mean(-1, keepdim=True) + layer.norm.eps).sqrt() * layer.norm.weight
    joined = out.transpose(-3, -2).flatten(-2)
    return (joined * silu(x @ layer.norm.to_gate.weight.mT)) @ layer.to_out.weight.mT


def test_retnet_is_the_formula_of_its_paper() -> None:
    layer = shaken(make_layer("retnet", 12, 2, key_dim=8, value_dim=20))
    x, n = random(2, 9, 12), 9
    q, k, v = (heads(x @ p.weight.mT, 2) for p in (layer.to_q, layer.to_k, layer.to_v))
    theta = 10000.0 ** (-torch.arange(2).double() / 2)
    turn = torch.polar(torch.ones(n, 2).double(), torch.arange(n).double()[:, None] * theta)
    q, k = (torch.view_as_complex(y.unflatten(-1, (2, 2)).contiguous()) * turn for y in (q, k))
    gamma = 1 - 2.0 ** (-5 - torch.arange(2).double())
    i = torch.arange(n)
    distance = i[:, None] - i
    decay = torch.where(distance >= 0, gamma[:, None, None] ** distance.clamp(min=0), 0)
    scores = (q @ k.conj().mT).real / 2 * decay  # the square root of 4 channels
    expected = normed(layer, scores @ v, x)
    assert (layer(x) - expected).abs().max() < 1e-12


def test_retnet_made_in_float64_has_decays_in_float64() -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        decays = make_layer("retnet", 12, 2).weight.log_decay
    finally:
        torch.set_default_dtype(before)
    exact = torch.log1p(-(2.0 ** (-5 - torch.arange(2).double())))
    assert (decays - exact).abs().max() < 1e-17


def test_gla_is_the_recurrence_of_its_paper() -> None:
    layer = shaken(make_layer("gla", 12, 2, key_dim=8, value_dim=20, rank=3))
    x = random(2, 9, 12)
    q, k, v = (heads(x @ p.weight.mT, 2) for p in (layer.to_q, layer.to_k, layer.to_v))
    down, up = layer.weight.down, layer.weight.up
    alpha = heads(logsigmoid(x @ down.weight.mT @ up.weight.mT + up.bias) / 16, 2).exp()
    state, rows = torch.zeros(2, 2, 4, 10).double(), []
    for t in range(9):
        state = alpha[:, :, t, :, None] * state + k[:, :, t, :, None] * v[:, :, t, None]
        rows.append((q[:, :, t, None] @ state)[:, :, 0] / 2)
    assert (layer(x) - normed(layer, torch.stack(rows, -2), x)).abs().max() < 1e-10


def test_kda_is_the_recurrence_of_its_paper() -> None:
    layer = shaken(make_layer("kda", 12, 2, key_dim=8, value_dim=20, rank=3, convolution=2))
    x = random(2, 9, 12)
    joined = torch.cat([x @ p.weight.mT for p in (layer.to_q, layer.to_k, layer.to_v)], -1)
    late = torch.cat([torch.zeros_like(joined[:, :1]), joined[:, :-1]], 1)
    w = layer.convolution.weight
    q, k, v = silu(late * w[:, 0] + joined * w[:, 1]).split([8, 8, 20], -1)
    q, k, v = (heads(y, 2) for y in (q, k, v))
    q, k = (y / (y.square().sum(-1, keepdim=True) + 1e-6).sqrt() for y in (q, k))
    rule, decay = layer.weight, layer.weight.decay
    beta = (x @ rule.to_rate.weight.mT + rule.to_rate.bias).sigmoid().mT
    step = softplus(x @ decay.down.weight.mT @ decay.up.weight.mT + decay.up.bias)
    alpha = (-decay.log_rate.exp()[:, None, None] * heads(step, 2)).exp()
    state, rows = torch.zeros(2, 2, 4, 10).double(), []
    for t in range(9):
        key, rate = k[:, :, t, :, None], beta[:, :, t, None, None]
        state = alpha[:, :, t, :, None] * state
        state = state - rate * key @ (key.mT @ state) + rate * key * v[:, :, t, None]
        rows.append((q[:, :, t, None] @ state)[:, :, 0] / 2)
    out = torch.stack(rows, -2)
    out = out / (out.square().mean(-1, keepdim=True) + layer.norm.eps).sqrt() * layer.norm.weight
    gate = (x @ layer.norm.to_gate[0].weight.mT @ layer.norm.to_gate[1].weight.mT).sigmoid()
    expected = (out.transpose(-3, -2).flatten(-2) * gate) @ layer.to_out.weight.mT
    assert (layer(x) - expected).abs().max() < 1e-10


LENGTH = 9
IDS = torch.tensor([[0, 0, 0, 1, 5, 5, 5, 5, 5], [-3, 2, 2, 2, 2, 5, 5, 5, 5]])
SMALL = {
    "retnet": {"key_dim": 12},
    "gla": {"rank": 3},
    "mamba2": {"state_size": 3, "groups": 2, "convolution": 3},
    "gated-deltanet": {"key_heads": 1, "convolution": 2, "largest_rate": 2.0},
    "kda": {"rank": 3},
}


def small(name: str) -> Any:
    """Return a layer of 12 channels and 2 heads with options that are not the defaults."""
    return shaken(make_layer(name, 12, 2, **SMALL[name]))


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("cuts", [(0, 4, 9), tuple(range(10)), (0, 2, 2, 9)])
def test_decoding_equals_the_whole(name: str, cuts: tuple[int, ...]) -> None:
    layer, x = small(name), random(2, 3, LENGTH, 12)
    state, parts = layer.init_state((2, 3)), []
    for start, end in itertools.pairwise(cuts):
        part, state = layer(x[..., start:end, :], state=state, return_state=True)
        parts.append(part)
    assert (torch.cat(parts, -2) - layer(x)).abs().max() < 1e-11
    assert state.length == LENGTH
    assert state.with_room(5) is state


@pytest.mark.parametrize("name", SMALL)
def test_each_document_and_its_gradient_are_those_of_the_document_alone(name: str) -> None:
    layer, x = small(name), random(2, LENGTH, 12).requires_grad_()
    alone = torch.stack([
        torch.cat([layer(part) for part in row.split(ids.unique_consecutive(
            return_counts=True)[1].tolist())]) for row, ids in zip(x, IDS, strict=True)
    ])  # fmt: skip
    found, probe = layer(x, document_ids=IDS), random(2, LENGTH, 12, seed=4)
    assert (found - alone).abs().max() < 1e-11
    leaves = [x, *layer.parameters()]
    for got, want in zip(
        *(torch.autograd.grad((out * probe).sum(), leaves) for out in (found, alone)), strict=True
    ):
        assert (got - want).abs().max() < 1e-9
    # the state is that of the last document, and the next tokens continue it
    last = torch.tensor([0, 0, 0, 1, 1, 1, 1, 2, 2])
    later = random(2, 2, 12, seed=3)
    _, state = layer(x, document_ids=last, return_state=True)
    assert state.length == 2
    expected = layer(torch.cat([x[:, -2:], later], 1))[:, -2:]
    assert (layer(later, state=state) - expected).abs().max() < 1e-11
    ids = torch.tensor([7] * 2 + [8] * LENGTH)
    more = layer(torch.cat([later, x], 1), state=state, document_ids=ids)
    assert (more[:, :2] - expected).abs().max() < 1e-11
    assert (more[:, 2:] - layer(x)).abs().max() < 1e-11


@pytest.mark.parametrize("name", SMALL)
def test_padding_has_no_influence(name: str) -> None:
    layer, x = small(name), random(2, LENGTH, 12)
    mask = torch.ones(2, LENGTH, dtype=torch.bool)
    mask[0, [0, 3, 4]] = False
    before = layer(x, key_mask=mask)
    assert (before[1] - layer(x)[1]).abs().max() < 1e-12
    for padding in (random(2, LENGTH, 12, seed=9), torch.full_like(x, torch.nan)):
        after = layer(torch.where(mask[..., None], x, padding), key_mask=mask)
        assert (before - after)[mask].abs().max() < 1e-12
    # padding before a text is as if it were not there
    left = torch.arange(LENGTH) >= 4
    at = (torch.arange(LENGTH)[:, None] - 4).clamp(min=0)
    found = layer(x, at, key_mask=left.expand(2, -1))[:, 4:]
    assert (found - layer(x[:, 4:])).abs().max() < 1e-11


@pytest.mark.parametrize("name", SMALL)
def test_it_is_one_graph_and_maps_over_a_batch(name: str) -> None:
    layer, x = small(name), random(2, LENGTH, 12)
    expected = layer(x)
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    assert (compiled(x) - expected).abs().max() < 1e-12
    assert (torch.func.vmap(layer)(x) - expected).abs().max() < 1e-12
    own = {n: p.detach() for n, p in layer.named_parameters()}

    def loss(p: dict[str, Tensor], row: Tensor) -> Tensor:
        out: Tensor = torch.func.functional_call(layer, p, (row,))
        return out.square().sum()

    each = torch.func.vmap(torch.func.grad(loss), (None, 0))(own, x)
    whole = torch.func.grad(loss)(own, x)
    for key, grad in whole.items():
        assert (each[key].sum(0) - grad).abs().max() < 1e-9 * grad.abs().max().clamp(min=1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", SMALL)
def test_half_precision_stays_close_and_finite(name: str, dtype: torch.dtype) -> None:
    layer, x = small(name), random(2, 200, 12)
    expected = layer(x)
    narrow = copy.deepcopy(layer).to(dtype)
    out, state = narrow(x.to(dtype), return_state=True)
    assert out.dtype == dtype
    assert getattr(state, "rest", state).sums.dtype == torch.float32
    limit = {torch.float16: 0.05, torch.bfloat16: 0.3, torch.float32: 1e-4}[dtype]
    assert (out.double() - expected).abs().max() < limit * expected.abs().max()
    out.float().square().mean().backward()
    assert all(p.grad.isfinite().all() for p in narrow.parameters())


def test_a_decay_of_0_forgets_all_before_it() -> None:
    for make in (lambda b, a: KDAWeight(b, a), lambda b, a: DeltaWeight(b, a[..., 0])):
        q, k, v = random(3, 2, 3, 40, 4)
        beta, a = random(2, 3, 40).sigmoid(), -random(2, 3, 40, 4).exp()
        a[..., 33, :] = -torch.inf
        found = linear_attention(q, k, v, make(beta, a), causal=True, normalize=False)
        cut = linear_attention(
            *(y[..., 33:, :] for y in (q, k, v)), make(beta[..., 33:], a[..., 33:, :]),
            causal=True, normalize=False,
        )  # fmt: skip
        assert (found[..., 33:, :] - cut).abs().max() < 1e-12


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: make_layer("kda2", 12, 2), "name must be one of .* Did you mean 'kda'"),
        (lambda: make_layer("kda", 12, 5), "key_heads must divide key_dim 12, got 5"),
        (lambda: make_layer("gla", 12, 4, value_dim=10), "key_heads must divide key_dim 6, got 4"),
        (lambda: make_layer("mamba2", 12, 4, groups=3), "groups must divide heads = 4, got 3"),
        (lambda: make_layer("gated-deltanet", 12, 2, largest_rate=3.0), "must be at most 2, got 3"),
        (lambda: GatedNorm(12, 2, 6, groups=3), "groups must divide heads = 2, got 3"),
        (lambda: GatedNorm(12, 2, 6, activation="relu"), "activation must be one of silu, sig"),
        (lambda: ShortConvolution(12)(random(2, 5, 12).float(), random(2, 2, 12).float()),
         "before must have shape .*2, 3, 12.* .the last 3 inputs"),
    ],
)  # fmt: skip
def test_refusals(call: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()


def test_states_and_options_of_another_kind_are_refused() -> None:
    x = random(2, 3, 12)
    kda, gla, delta = small("kda"), small("gla"), small("gated-deltanet")
    with pytest.raises(TypeError, match="state must be a ConvolvedState, got LinearState"):
        kda(x, state=gla(x, return_state=True)[1])
    with pytest.raises(ValueError, match="state"):
        kda(x, state=delta(x, return_state=True)[1])
    with pytest.raises(TypeError, match="state_size is not an argument of the layer 'kda'"):
        make_layer("kda", 12, 2, state_size=3)


def test_a_state_can_be_saved_and_loaded(tmp_path: Path) -> None:
    layer, x = small("kda"), random(2, 3, 12)
    _, state = layer(x, return_state=True)
    torch.save(state, tmp_path / "state.pt")
    loaded = torch.load(tmp_path / "state.pt")
    assert torch.equal(layer(x, state=loaded), layer(x, state=state))
