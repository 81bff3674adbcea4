"""A layer of softmax whose basis meets the projections says and learns what it does on tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from stringlib import CayleySTRING, CirculantSTRING, DenseSTRING, MultiHeadAttention, RotaryEncoder
from stringlib.attention import fold
from stringlib.encoders.rotary import Phases
from stringlib.encoders.string import STRING
from stringlib.testing.properties import largest_difference
from tests.draws import random

DIM, HEADS, TOKENS = 24, 4, 40  # heads of 6 channels; more tokens than channels

ENCODERS: dict[str, Callable[[int], Any]] = {
    "cayley": lambda heads: CayleySTRING(6, 1, heads=heads),
    "circulant": lambda heads: CirculantSTRING(6, 1, heads=heads),
    "string": lambda heads: STRING(
        CayleySTRING(6, 1, heads=heads).frequencies(),
        CayleySTRING(6, 1, heads=heads).basis(),
        layout="half",
    ),
    "own": lambda heads: Own(heads),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "bias": {"bias": True},
    "norm": {"normalize_qk": True, "bias": True},
    "causal": {"causal": True},
    "two-keys": {"kv_heads": 2, "bias": True},
    "one-key": {"kv_heads": 1, "normalize_qk": True, "causal": True},
}


class Own(RotaryEncoder):
    """With a basis that is learned, as somebody would write it; one channel stays still."""

    def __init__(self, heads: int) -> None:
        super().__init__(6, 1, heads=heads)
        self.entries = nn.Parameter(random(heads, 6, 6, seed=4))
        self.omega = nn.Parameter(random(heads, 2, 1, seed=5))

    def frequencies(self) -> Tensor:
        return self.omega.double()

    def basis(self) -> Tensor:
        return torch.linalg.qr(self.entries.double()).Q


def layer_of(name: str, heads: int | None = None, **options: Any) -> MultiHeadAttention:
    torch.manual_seed(1)
    heads = options.get("kv_heads", HEADS) if heads is None else heads
    layer = MultiHeadAttention(DIM, HEADS, ENCODERS[name](heads), **options).double()
    for parameter in layer.parameters():  # no bias of 0, no temperature of 1
        parameter.data += 0.1 * torch.randn_like(parameter)
    return layer


@pytest.fixture
def on_tokens(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Calls what it is given while no layer folds."""

    def call(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(fold, "_is_exact", lambda layer: False)
            return function(*args, **options)

    return call


@pytest.fixture
def folds(monkeypatch: pytest.MonkeyPatch) -> Callable[..., bool]:
    """Tells whether a call leaves its projections' weights to be multiplied by P."""

    def told(layer: MultiHeadAttention, *args: Any, **options: Any) -> bool:
        called: list[nn.Module] = []
        plain = fold.folded_linear

        def spy(linear: nn.Linear, x: Tensor, basis: Tensor) -> Tensor:
            called.append(linear)
            return plain(linear, x, basis)

        with monkeypatch.context() as patch:
            patch.setattr(fold, "folded_linear", spy)
            layer(*args, **options)
        assert called in ([], [layer.to_q, layer.to_k])
        return bool(called)

    return told


def results(layer: MultiHeadAttention, x: Tensor, **options: Any) -> list[Tensor]:
    """Return outputs, and gradients of the tokens and of all that learns."""
    x = x.detach().requires_grad_()
    out = layer(x, **options)
    loss = (out * random(*out.shape, seed=9)).sum()
    return [out, *torch.autograd.grad(loss, [x, *layer.parameters()])]


@pytest.mark.parametrize("heads", [None, 1])
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("name", ENCODERS)
def test_values_and_gradients_are_those_on_tokens(
    name: str, option: str, heads: int | None, on_tokens: Any, folds: Any
) -> None:
    layer, x = layer_of(name, heads, **OPTIONS[option]), random(2, TOKENS // 2, DIM)
    assert folds(layer, x)
    mask = torch.ones(2, TOKENS // 2, dtype=torch.bool)
    mask[1, :3] = False
    places = torch.randn(TOKENS // 2, 1) * 10
    for told in ({}, {"key_mask": mask}, {"positions": places}):
        for got, want in zip(
            results(layer, x, **told), on_tokens(results, layer, x, **told), strict=True
        ):
            assert largest_difference(got, want) <= 1e-12 * (1 + want.abs().max())


def test_few_tokens_are_multiplied_themselves(folds: Any) -> None:
    layer = layer_of("cayley")
    assert not folds(layer, random(DIM, DIM))
    assert folds(layer, random(DIM + 1, DIM))
    assert not folds(layer, random(2, 0, DIM))


def test_a_cache_of_both_holds_keys_of_one_basis(on_tokens: Any, folds: Any) -> None:
    """The first tokens fold, those that follow one by one do not."""
    layer, x = layer_of("cayley", causal=True, kv_heads=2), random(TOKENS, DIM)
    assert folds(layer, x[:30])
    whole = on_tokens(layer, x)
    y, state = layer(x[:30], return_state=True)
    parts = [y]
    for t in range(30, TOKENS):
        assert not folds(layer, x[t : t + 1], state=state)
        y, state = layer(x[t : t + 1], state=state, return_state=True)
        parts.append(y)
    assert largest_difference(torch.cat(parts), whole) <= 1e-13


def test_a_shift_keeps_keys_as_they_were(folds: Any) -> None:
    layer, x = layer_of("cayley", shift=True, causal=True), random(TOKENS, DIM)
    assert not folds(layer, x)
    _, state = layer(x, return_state=True)
    assert largest_difference(state.key, layer.to_k(x[-1:]).view(HEADS, 1, 6)) <= 1e-13


class Adapted(nn.Linear):
    """A projection with something added, as adapters have it."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + x.flip(-1)


def _adapted(layer: MultiHeadAttention) -> None:
    own, layer.to_q = layer.to_q, Adapted(DIM, DIM, bias=False).double()
    layer.to_q.load_state_dict(own.state_dict())


def _patched(layer: MultiHeadAttention) -> None:
    forward = layer.to_k.forward
    layer.to_k.forward = lambda x: 2 * forward(x)  # type: ignore[method-assign]


ADDITIONS: dict[str, Callable[[MultiHeadAttention], Any]] = {
    "adapter": _adapted,
    "patched": _patched,
    "hook": lambda layer: layer.to_q.register_forward_hook(lambda m, given, out: 2 * out),
    "hook-before": lambda layer: layer.to_k.register_forward_pre_hook(lambda m, x: (2 * x[0],)),
    "hook-backward": lambda layer: layer.to_k.register_full_backward_hook(
        lambda m, grad, out: (2 * grad[0],)
    ),
    "hook-of-encoder": lambda layer: layer.encoder.register_forward_pre_hook(
        lambda m, given: (given[0].relu(), *given[1:])
    ),
    "parametrized": lambda layer: nn.utils.parametrizations.weight_norm(layer.to_q),
}


@pytest.mark.parametrize("name", ADDITIONS)
def test_what_is_added_to_a_projection_is_called(name: str, on_tokens: Any) -> None:
    layer, x = layer_of("cayley"), random(TOKENS, DIM)
    ADDITIONS[name](layer)
    for got, want in zip(results(layer, x), on_tokens(results, layer, x), strict=True):
        assert torch.equal(got, want)


class Scaled(CayleySTRING):
    """That does something else before it goes to its basis, or in place of it."""

    def _encode(self, x: Tensor, phases: Phases, whole: bool = False) -> Tensor:
        return super()._encode(x.relu(), phases, whole)


class Forwarded(CayleySTRING):
    """The same, in its own ``forward``."""

    def forward(self, q: Tensor, k: Tensor, *positions: Any) -> tuple[Tensor, Tensor]:
        return super().forward(q.relu(), k, *positions)


ALONE: dict[str, tuple[Any, ...]] = {
    "scaled": (Scaled(6, 1, heads=HEADS),),
    "forwarded": (Forwarded(6, 1, heads=HEADS),),
    "dense": (DenseSTRING(CirculantSTRING(6).generators()),),
    "no basis": (STRING(torch.rand(1, 3, 1)),),
    "before a feature map": ("cayley", "elu"),
}


@pytest.mark.parametrize("name", ALONE)
def test_encoders_that_do_more_get_their_vectors(name: str, folds: Any) -> None:
    rotate = {"rotate": "before"} if "elu" in ALONE[name] else {}
    layer = MultiHeadAttention(DIM, HEADS, *ALONE[name], **rotate).double()
    assert not folds(layer, random(TOKENS, DIM))
