"""Which digits survive a move to half precision, and that a device without float64 needs none."""

import copy

import pytest
import torch
from torch import Tensor, nn

from stringlib import (
    ENCODERS,
    FEATURES,
    AxialRoPE,
    CirculantSTRING,
    LanguageModel,
    MixedRoPE,
    MultiHeadAttention,
    RoPE,
    Sinusoidal,
    make_encoder,
    precision,
    random_turn,
)
from stringlib.attention.published import LAYERS as PUBLISHED
from stringlib.attention.published import make_layer
from stringlib.encoders.rotary import RotaryEncoder
from stringlib.encoders.scaling import ntk_aware, yarn
from stringlib.positions import grid_positions
from stringlib.testing.encoders import inputs
from tests.encoder_cases import CASES, make
from tests.model_cases import WEIGHTS, weight
from tests.watched import Watched


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


@pytest.mark.parametrize("name", ENCODERS)
def test_a_narrow_default_dtype_makes_no_narrow_frequencies(name: str) -> None:
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.bfloat16)
        encoder = make_encoder(name, 8)
    finally:
        torch.set_default_dtype(before)
    assert {p.dtype for p in encoder.parameters()} <= {torch.float32}


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
        monkeypatch.setitem(precision.HAS_FLOAT64, "cpu", False)
        return module.to("cpu")

    return move


def all_of(encoder: RotaryEncoder, q: Tensor, k: Tensor, positions: Tensor) -> list[Tensor]:
    rows = torch.linspace(-1, 1, q.shape[1] * encoder.head_dim)[:, None]
    folded = encoder.folded()(q, k, positions)[0]
    own = encoder.generators(), encoder.basis(), encoder.frequencies(), encoder.fold(rows)
    turned = encoder.rotate(q, positions), encoder.matrix(positions)
    return [*encoder(q, k, positions), *turned, *own, folded]


@pytest.mark.parametrize("name", CASES)
def test_every_encoder_works_without_float64(name: str, apple) -> None:
    exact = make(name, torch.float32)
    encoder, empty = copy.deepcopy(exact), copy.deepcopy(exact).to("meta")
    given = [t.float() for t in inputs(encoder, dtype=torch.float32)]
    leaves = [t.clone().requires_grad_() for t in given]
    wanted = all_of(exact, *given)
    apple(encoder)
    with NoFloat64():
        found = all_of(encoder, *leaves)
        sum(t.sum() for t in found).backward()
        encoder.matrix(given[2].long())
        for module in (encoder.half(), encoder.float(), empty.to_empty(device="cpu")):
            assert all(t.dtype != torch.float64 for t in module.state_dict().values())
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == torch.float32
        assert (a - b).abs().max().item() <= 3e-4 * max(1, b.abs().max().item()) if b.numel() else 1
    assert all(t.grad.isfinite().all() for t in leaves)


WEIGHTS = {**WEIGHTS, "toeplitz": {"length": 20}}
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


@pytest.mark.parametrize("size", [4, 100])
@pytest.mark.parametrize("name", [*LAYERS, *PUBLISHED])
def test_float16_is_finite_where_float32_fits_into_it(name: str, size: float) -> None:
    """Outputs and gradients; 100 is far beyond what the norm before a layer returns."""
    torch.manual_seed(0)
    if name in PUBLISHED:
        narrow: nn.Module = make_layer(name, 24, 2).half()
    else:
        narrow = MultiHeadAttention(24, 2, causal=True, **LAYERS[name]).half()
    if size == 100 and name in ("identity", "favor-after"):
        pytest.skip("sums that are not divided, or divided by next to nothing, do not fit")
    wide, x = copy.deepcopy(narrow).float(), (size * torch.randn(2, 20, 24)).half()
    found = []
    for layer, given in ((narrow, x.clone()), (wide, x.float())):
        out = layer(given.requires_grad_())
        out.float().square().mean().backward()
        found.append([out, given.grad, *(p.grad for p in layer.parameters())])
    for got, want in zip(*found, strict=True):
        fits = want.abs() < torch.finfo(torch.float16).max
        assert got[fits].isfinite().all()


@pytest.mark.parametrize("name", ["gla", "ssd", "delta", "gated-delta", "kda"])
def test_decays_and_rates_of_half_layers_are_float32(name: str) -> None:
    """Their gradients are sums over channels, which overflow in float16 beside a small sigmoid'."""
    made = weight(name).half()(torch.randn(3, 16).half())
    assert {t.dtype for t in made.buffers()} == {torch.float32}


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
            patch.setitem(precision.HAS_FLOAT64, "cpu", False)
            encoder.to("cpu")
            assert encoder.frequencies().dtype == torch.float32
        encoder.to("cpu")
        assert torch.equal(encoder.basis(), want[0])
        assert torch.equal(encoder.frequencies(), want[1])


FIXED = {
    "rope": lambda: RoPE(16),
    "half layout": lambda: RoPE(16, heads=3, layout="half"),
    "axial": lambda: AxialRoPE(16, 2),
    "sinusoidal": lambda: Sinusoidal(16),
    "circulant": lambda: copy.deepcopy(CIRCULANT),
}
CIRCULANT = CirculantSTRING(16, heads=2)  # its fixed basis is a buffer


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", FIXED)
def test_rounding_the_buffers_does_not_round_fixed_frequencies(name, dtype):
    """A wrapper casts buffers behind the module's back; ``to`` of the module asks the module."""
    exact, converted, wrapped = FIXED[name](), FIXED[name]().to(dtype), FIXED[name]()
    for buffer in wrapped.buffers():
        buffer.data = buffer.data.to(dtype)
    assert all(b.dtype == dtype for b in wrapped.buffers())
    for module in (converted, wrapped):
        rope, want = getattr(module, "rope", module), getattr(exact, "rope", exact)
        positions = torch.full((1, want.coord_dim), 4039)
        assert torch.equal(rope.frequencies(), want.frequencies())
        assert torch.equal(rope.basis(), want.basis())
        assert torch.equal(rope.phases(positions).cos_sin, want.phases(positions).cos_sin)
        q = torch.randn(want.heads, 1, 16)
        assert torch.equal(rope(q, q, positions)[0], want(q, q, positions)[0])
        if module is not rope:
            x = torch.zeros(1, 16, dtype=dtype)
            assert torch.equal(module(x, positions), exact(x, positions))
