"""Which digits survive a move to half precision, and that a device without float64 needs none."""

import copy

import pytest
import torch
from torch import nn

from stringlib import (
    ENCODERS,
    FEATURES,
    AxialRoPE,
    CayleySTRING,
    CirculantSTRING,
    LanguageModel,
    MixedRoPE,
    MultiHeadAttention,
    ReflectionSTRING,
    RoPE,
    Sinusoidal,
    make_encoder,
    precision,
    random_turn,
)
from stringlib.encoders.scaling import ntk_aware, yarn
from stringlib.encoders.string import RotaryEncoder
from stringlib.positions import grid_positions
from stringlib.testing.encoders import inputs
from tests.encoder_cases import CASES, make
from tests.model_cases import WEIGHTS
from tests.watched import Watched

LEARNED = {
    "mixed": lambda: MixedRoPE(6, 3, heads=2),
    "reflection": lambda: ReflectionSTRING(10, 2),
    "circulant": lambda: CirculantSTRING(9, 2, heads=3, block_size=3),
    "cayley": lambda: CayleySTRING(7, 2, density=0.6),
}


def frequencies(model: nn.Module) -> list[torch.Tensor]:
    return [m.frequencies() for m in model.modules() if isinstance(m, RotaryEncoder)]


@pytest.mark.parametrize(
    "move", [nn.Module.half, nn.Module.bfloat16, lambda m: m.to("cpu", torch.half)]
)
@pytest.mark.parametrize("name", ENCODERS)
def test_models_keep_frequencies_and_round_the_rest(name: str, move) -> None:
    model = LanguageModel(5, 12, 2, 2, name)
    before = [f.detach().clone() for f in frequencies(model)]
    move(model)
    for a, b in zip(before, frequencies(model), strict=True):
        assert torch.equal(a, b)
    for key, p in model.named_parameters():
        assert (p.dtype == torch.float32) == (".encoder." in key)


@pytest.mark.parametrize("name", LEARNED)
def test_an_optimizer_goes_on_after_the_move(name: str) -> None:
    torch.manual_seed(1)
    encoder = LEARNED[name]()
    twin = copy.deepcopy(encoder)
    steps = []
    for module, dtype in ((encoder, torch.bfloat16), (twin, torch.float32)):
        optimizer = torch.optim.Adam(module.parameters(), lr=1e-4)
        module.to(dtype)
        heads = max(module.heads, 2)
        q = torch.linspace(-1, 1, heads * 4 * module.head_dim).view(heads, 4, module.head_dim)
        at = torch.arange(4.0 * module.coord_dim).view(4, -1)
        a, b = module(q, q.flip(-1), at)
        (a @ b.mT)[..., 0].square().sum().backward()
        optimizer.step()
        steps.append([p.detach().clone() for p in module.parameters()])
    for a, b in zip(*steps, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", LEARNED)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_checkpoints_of_any_dtype_are_read(name: str, dtype: torch.dtype) -> None:
    encoder = LEARNED[name]().bfloat16()
    state = {
        k: v.to(dtype) if v.is_floating_point() else v for k, v in encoder.state_dict().items()
    }
    encoder.load_state_dict(state)
    assert {p.dtype for p in encoder.parameters()} == {torch.float32}
    for key, value in encoder.named_parameters():
        assert torch.equal(value, state[key].float())


@pytest.mark.parametrize("name", LEARNED)
def test_a_narrow_default_dtype_makes_no_narrow_frequencies(name: str) -> None:
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.bfloat16)
        encoder = LEARNED[name]()
    finally:
        torch.set_default_dtype(before)
    assert {p.dtype for p in encoder.parameters()} == {torch.float32}


class NoFloat64(Watched):
    """Stands for Apple's GPU: no tensor may be float64 or complex128."""

    def saw(self, operation, made):
        for t in made:
            if t.dtype in (torch.float64, torch.complex128):
                raise TypeError(f"{operation} made a tensor of {t.dtype}")


@pytest.fixture
def apple(monkeypatch: pytest.MonkeyPatch):
    """Return a way to move modules made on the CPU to a device without float64."""

    def move(module: nn.Module) -> nn.Module:
        monkeypatch.setattr(precision, "WITHOUT_FLOAT64", ("cpu",))
        return module.to("cpu")

    return move


@pytest.mark.parametrize("name", CASES)
def test_every_encoder_works_without_float64(name: str, apple) -> None:
    exact = make(name, torch.float32)
    encoder = copy.deepcopy(exact)
    q, k, positions = inputs(encoder, dtype=torch.float32)
    positions = positions.float()
    leaves = [t.clone().requires_grad_() for t in (q, k, positions)]
    rows = torch.randn(q.shape[1] * encoder.head_dim, 5)
    wanted = (*exact(q, k, positions), exact.rotate(q, positions), exact.matrix(positions),
              exact.generators(), exact.basis(), exact.frequencies(), exact.fold(rows),
              exact.folded()(q, k, positions)[0])  # fmt: skip
    empty = copy.deepcopy(exact).to("meta")
    apple(encoder)
    with NoFloat64():
        found = (*encoder(*leaves), encoder.rotate(leaves[0], leaves[2]), encoder.matrix(positions),
                 encoder.generators(), encoder.basis(), encoder.frequencies(), encoder.fold(rows),
                 encoder.folded()(q, k, positions)[0])  # fmt: skip
        sum(t.sum() for t in found).backward()
        encoder.matrix(positions.long())
        for module in (encoder.half(), encoder.float(), empty.to_empty(device="cpu")):
            assert all(t.dtype != torch.float64 for t in module.state_dict().values())
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == torch.float32
        assert (a - b).abs().max().item() <= 3e-4 * max(1, b.abs().max().item()) if b.numel() else 1
    assert all(t.grad.isfinite().all() for t in leaves)


WEIGHTS = {**WEIGHTS, "toeplitz": {"length": 6}}
LAYERS = {
    **{f"softmax-{name}": {"encoder": name} for name in (None, *ENCODERS)},
    **{name: {"attention": name} for name in FEATURES},
    **{f"elu-{name}": {"attention": "elu", "weight": name, **options}
       for name, options in WEIGHTS.items()},
    "favor-after": {"encoder": "circulant", "attention": "favor", "rotate": "after"},
    "relu-roll": {"attention": "relu", "rotate": "roll", "cycles": (5, 7)},
    "normal": {"encoder": "cayley", "normalize_qk": True, "gate": "headwise", "shift": True},
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_every_attention_works_without_float64(name: str, apple) -> None:
    layer = MultiHeadAttention(24, 2, causal=True, **LAYERS[name])
    apple(layer)
    with NoFloat64():
        layer(torch.randn(3, 6, 24, requires_grad=True)).sum().backward()
        layer.attention_weights(torch.randn(1, 6, 24))
        if layer.features is None and layer.encoder is not None:
            layer.folded()(torch.randn(1, 6, 24))


def test_everything_is_made_without_float64(apple) -> None:
    """As under ``torch.device("mps")``: what an encoder starts with is computed on the device."""
    apple(nn.Identity())
    with NoFloat64():
        for name in ENCODERS:
            make_encoder(name, 8)
        grid_positions(3, 4)
        random_turn(MixedRoPE(6, 2, heads=1))
        yarn(RoPE(8).frequencies(), 4, 100)
        ntk_aware(RoPE(8).frequencies(), 4)
        for attention in FEATURES:
            MultiHeadAttention(12, 2, attention=attention)
        for weight, options in WEIGHTS.items():
            MultiHeadAttention(12, 2, attention="elu", weight=weight, causal=True, **options)


def test_what_comes_back_from_such_a_device_is_exact_again(monkeypatch) -> None:
    """Fixed frequencies are written anew, not only widened."""
    encoders = RoPE(8), AxialRoPE(8, 2), CirculantSTRING(5), Sinusoidal(6).rope
    for encoder in encoders:
        want = encoder.basis(), encoder.frequencies()
        with monkeypatch.context() as patch:
            patch.setattr(precision, "WITHOUT_FLOAT64", ("cpu",))
            encoder.to("cpu")
            assert encoder.frequencies().dtype == torch.float32
        encoder.to("cpu")
        assert torch.equal(encoder.basis(), want[0])
        assert torch.equal(encoder.frequencies(), want[1])
