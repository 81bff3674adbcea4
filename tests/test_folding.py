"""A basis is merged into a weight only if the projection is a product with this weight."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.utils.parametrizations as parametrizations
from torch import Tensor, nn
from torch.nn.modules import module as every
from torch.nn.utils import parametrize, prune

from stringlib import CayleySTRING, LanguageModel, MultiHeadAttention, ViT
from stringlib.attention import fold
from stringlib.interop import Rotated, fold_norms, fold_qkv, foldable
from stringlib.testing.properties import largest_difference
from tests.draws import random

DIM, HEADS, D = 24, 4, 6
TEXT, IMAGES = torch.arange(18).view(2, 9), random(2, 1, 8, 8)
Change = Callable[[nn.Module, str], Any]


def encoder_of(coord_dim: int = 1, heads: int = HEADS) -> CayleySTRING:
    torch.manual_seed(1)
    encoder = CayleySTRING(D, coord_dim, heads=heads)
    for parameter in encoder.parameters():
        nn.init.normal_(parameter)
    return encoder.double()


def layer_of(**options: Any) -> MultiHeadAttention:
    torch.manual_seed(1)
    return MultiHeadAttention(DIM, HEADS, encoder_of(), **options).double()


# one entry for each fold: the owner of a projection, its name there, the fold, and the argument
def whole_layer() -> tuple[nn.Module, str, Callable[[], Any], str]:
    layer = layer_of(bias=True)
    return layer, "to_k", layer.folded, "to_k"


def whole_text() -> tuple[nn.Module, str, Callable[[], Any], str]:
    model = LanguageModel(18, DIM, 2, HEADS, encoder="cayley").double()
    return model.blocks[1].attention, "to_q", model.folded, "to_q"


def whole_images() -> tuple[nn.Module, str, Callable[[], Any], str]:
    model = ViT(8, 4, 3, DIM, 2, HEADS, encoder="cayley").double()
    return model.blocks[0].attention, "to_q", model.folded, "to_q"


def fused() -> tuple[nn.Module, str, Callable[[], Any], str]:
    owner = nn.ModuleDict({"qkv": nn.Linear(DIM, 3 * DIM).double()})
    return owner, "qkv", lambda: fold_qkv(owner["qkv"], encoder_of(), HEADS), "linear"


def rotated() -> tuple[nn.Module, str, Callable[[], Any], str]:
    module = Rotated(nn.Linear(DIM, DIM).double(), encoder_of(), torch.arange(9)[:, None])
    return module, "linear", module.folded, "linear"


FOLDS = [whole_layer, whole_text, whole_images, fused, rotated]


class Own(nn.Linear):
    """As quantisation-aware layers are: a subclass with a forward."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.round(decimals=1))


class Called(nn.Linear):
    def __call__(self, x: Tensor) -> Tensor:
        return 2 * super().__call__(x)


class Computed(nn.Linear):
    """Whose weight is a property of the class."""

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        return 2 * self._parameters["weight"]


class LowRank(nn.Module):
    """As adapters of low rank are: a module around the projection."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base, self.scale = base, nn.Parameter(torch.ones(1))
        self.weight, self.bias = base.weight, base.bias
        self.in_features, self.out_features = base.in_features, base.out_features
        self.down = nn.Linear(base.in_features, 2, bias=False).double()
        self.up = nn.Linear(2, base.out_features, bias=False).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))


class Direction(LowRank):
    """As DoRA: the rows of the sum have learned norms."""

    def forward(self, x: Tensor) -> Tensor:
        weight = self.base.weight + self.up.weight @ self.down.weight
        return nn.functional.linear(x, self.scale * nn.functional.normalize(weight, dim=-1))


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


class Marked(Tensor):
    """As weights of torchao are: a subclass of Tensor."""


def of_class(kind: type[nn.Linear]) -> Change:
    return lambda owner, name: setattr(getattr(owner, name), "__class__", kind)


def on_it(change: Callable[[Any], Any]) -> Change:
    return lambda owner, name: change(getattr(owner, name))


def in_its_place(change: Callable[[Any], nn.Module]) -> Change:
    return lambda owner, name: owner.register_module(name, change(getattr(owner, name)))


def normed(linear: nn.Linear) -> nn.Module:
    return nn.Sequential(linear, nn.RMSNorm(linear.out_features).double())


def quantized(linear: nn.Linear) -> nn.Module:
    dynamic = torch.ao.nn.quantized.dynamic.Linear
    return dynamic(linear.in_features, linear.out_features)


def patched(linear: nn.Linear) -> None:
    forward = linear.forward
    linear.forward = lambda x: 2 * forward(x)  # type: ignore[method-assign]


def patched_call(linear: nn.Linear) -> None:
    call = linear._call_impl
    linear._call_impl = lambda x: 2 * call(x)  # type: ignore[method-assign]


def marked(linear: nn.Linear) -> None:
    linear.weight = nn.Parameter(linear.weight.detach().as_subclass(Marked))


def sparse(linear: nn.Linear) -> None:
    linear.weight = nn.Parameter(linear.weight.detach().to_sparse_csr())


def unbound(linear: nn.Linear) -> None:
    """As FSDP leaves a weight: a view of its own flat parameter."""
    weight = linear.weight.detach()
    del linear.weight
    linear.weight = weight


CHANGES: dict[str, Change] = {
    "weight_norm": on_it(parametrizations.weight_norm),
    "spectral_norm": on_it(parametrizations.spectral_norm),
    "orthogonal": on_it(parametrizations.orthogonal),
    "old weight_norm": on_it(nn.utils.weight_norm),
    "old spectral_norm": on_it(nn.utils.spectral_norm),
    "parametrized": on_it(lambda m: parametrize.register_parametrization(m, "weight", Doubled())),
    "prune": on_it(lambda linear: prune.l1_unstructured(linear, "weight", 0.5)),
    "hook": on_it(lambda m: m.register_forward_hook(lambda m, x, out: 2 * out)),
    "hook with kwargs": on_it(
        lambda m: m.register_forward_hook(lambda m, x, named, out: 2 * out, with_kwargs=True)
    ),
    "hook before": on_it(lambda m: m.register_forward_pre_hook(lambda m, x: (2 * x[0],))),
    "hook backward": on_it(
        lambda m: m.register_full_backward_hook(lambda m, given, out: (2 * given[0],))
    ),
    "hook backward before": on_it(
        lambda m: m.register_full_backward_pre_hook(lambda m, out: (2 * out[0],))
    ),
    "patched": on_it(patched),
    "patched call": on_it(patched_call),
    "subclass": of_class(Own),
    "called": of_class(Called),
    "computed": of_class(Computed),
    "tensor": on_it(marked),
    "sparse": on_it(sparse),
    "unbound": on_it(unbound),
    "low rank": in_its_place(LowRank),
    "direction": in_its_place(Direction),
    "norm": in_its_place(normed),
}
GLOBAL = [
    every.register_module_forward_hook,
    every.register_module_forward_pre_hook,
    every.register_module_full_backward_hook,
    every.register_module_full_backward_pre_hook,
]
MERGED: dict[str, Change] = {
    "parametrized": on_it(
        lambda m: (
            parametrizations.weight_norm(m),
            parametrize.remove_parametrizations(m, "weight"),
        )
    ),
    "prune": on_it(lambda m: prune.remove(prune.l1_unstructured(m, "weight", 0.5), "weight")),
    "hook": on_it(lambda m: m.register_forward_hook(lambda m, x, out: 2 * out).remove()),
    "compiled": on_it(lambda m: m.compile()),
    "subclass": of_class(nn.modules.linear.NonDynamicallyQuantizableLinear),
    "frozen": on_it(lambda m: m.requires_grad_(False)),
}
every_fold = pytest.mark.parametrize("fold_of", FOLDS)
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning"),
    pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning"),
    pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning"),
]


@every_fold
@pytest.mark.parametrize("name", CHANGES)
@torch.no_grad()
def test_a_projection_that_is_more_than_its_weight_is_not_folded(
    name: str, fold_of: Callable[[], Any]
) -> None:
    owner, place, folds, argument = fold_of()
    CHANGES[name](owner, place)
    if fold_of is fused and not isinstance(getattr(owner, place), nn.Linear):
        with pytest.raises(TypeError, match=r"^linear must be a Linear, got"):
            folds()
        return
    kind = type(getattr(owner, place)).__name__
    match = f"^{argument} must be .* got {kind} with .*merge adapters.* or fold before"
    with pytest.raises(ValueError, match=match):
        folds()


@every_fold
def test_weights_without_numbers_are_not_folded(fold_of: Callable[[], Any]) -> None:
    owner, place, folds, argument = fold_of()
    getattr(owner, place).to("meta")
    with pytest.raises(ValueError, match=f"^{argument} must be .* weight on the meta device"):
        folds()


def test_quantised_layers_are_not_folded() -> None:
    layer = layer_of()
    layer.to_k = quantized(layer.to_k)
    with pytest.raises(ValueError, match=r"^to_k must be .*dequantise"):
        layer.folded()


@every_fold
@pytest.mark.parametrize("register", GLOBAL)
def test_global_hooks_are_not_skipped(
    register: Callable[..., Any], fold_of: Callable[[], Any]
) -> None:
    folds = fold_of()[2]
    with register(lambda *given: None), pytest.raises(ValueError, match="with global hooks of"):
        folds()
    folds()


@every_fold
def test_a_patched_class_is_not_skipped(
    fold_of: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    folds, forward, call = fold_of()[2], nn.Linear.forward, nn.Module.__call__
    for owner, name, now in ((nn.Linear, "forward", forward), (nn.Module, "__call__", call)):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, lambda self, *x, now=now: now(self, *x))
            with pytest.raises(ValueError, match="of its own"):
                folds()
    folds()


@every_fold
@pytest.mark.parametrize("name", MERGED)
def test_what_is_merged_or_removed_is_folded(name: str, fold_of: Callable[[], Any]) -> None:
    owner, place, folds, _ = fold_of()
    MERGED[name](owner, place)
    folds()


def test_a_lazy_projection_is_folded_once_it_has_a_weight() -> None:
    layer, x = layer_of(), random(2, 9, DIM)
    layer.to_q = nn.LazyLinear(DIM, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"^to_q must be"):
        layer.folded()
    out = layer(x)
    assert largest_difference(layer.folded()(x), out) <= 1e-12


@pytest.mark.parametrize("what", ["module", "query and key", "key and value"])
def test_projections_that_share_a_weight_are_folded_once(what: str) -> None:
    layer, x = layer_of(bias=True), random(2, 9, DIM)
    if what == "module":
        layer.to_k = layer.to_q
    else:
        one, other = (getattr(layer, f"to_{name[0]}") for name in what.split(" and "))
        one.weight, one.bias = other.weight, other.bias
    out, kept = layer(x), layer.to_k.weight.clone()
    assert largest_difference(layer.folded()(x), out) <= 1e-12
    assert torch.equal(layer.to_k.weight, kept)


@pytest.mark.parametrize("part", ["encoder", "core", "shift"])
def test_parts_that_read_queries_and_keys_have_no_hooks(part: str) -> None:
    layer = layer_of(shift=True, causal=True)
    with (
        getattr(layer, part).register_forward_pre_hook(lambda m, given: None),
        pytest.raises(ValueError, match=f"^{part} must be free of hooks .* with hooks"),
    ):
        layer.folded()
    layer.folded()


def test_a_hook_on_the_whole_is_not_lost() -> None:
    module = rotated()[0]
    module.register_forward_hook(lambda m, x, out: 2 * out)
    with pytest.raises(ValueError, match=r"^Rotated must be free of hooks"):
        module.folded()


def test_a_core_that_does_more_is_not_folded() -> None:
    class Sharp(fold.SoftmaxAttention):
        def forward(self, q: Tensor, *given: Any, **named: Any) -> Any:
            return super().forward(q.relu(), *given, **named)

    layer, x = layer_of(), random(2, 2 * DIM, DIM)
    core, layer.core = layer.core, Sharp(encoder_of())
    assert largest_difference(layer(x), layer_of()(x)) > 0.01
    with pytest.raises(ValueError, match="attention must be softmax"):
        layer.folded()
    layer.core = core
    layer.folded()


def test_an_encoder_that_does_more_is_not_folded() -> None:
    class Sharp(CayleySTRING):
        def forward(self, q: Tensor, *given: Any) -> Any:
            return super().forward(q.relu(), *given)

    layer = layer_of()
    layer.encoder = Sharp(D)
    with pytest.raises(ValueError, match=r"encoder must not override forward"):
        layer.folded()


@pytest.mark.parametrize("wrap", [torch.compile, nn.DataParallel, nn.Sequential])
def test_blocks_that_are_wrapped_fold_or_say_what_to_do(wrap: Callable[..., Any]) -> None:
    model = LanguageModel(18, DIM, 2, HEADS, encoder="cayley").double()
    out = model(TEXT)
    model.blocks[0] = wrap(model.blocks[0])
    if hasattr(model.blocks[0], "_orig_mod"):
        made = model.folded()
        made.blocks[0] = made.blocks[0]._orig_mod
        assert largest_difference(made(TEXT), out) <= 1e-12
        return
    with pytest.raises(ValueError, match=r"^attention of every block must .* before you wrap"):
        model.folded()


def test_blocks_may_be_one_and_the_same() -> None:
    model = LanguageModel(18, DIM, 3, HEADS, encoder="cayley").double()
    model.blocks[2] = model.blocks[0]
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    made = model.folded()
    assert largest_difference(made(TEXT), model(TEXT)) <= 1e-11
    assert made.blocks[2] is made.blocks[0]


NORMS: dict[str, Callable[[nn.RMSNorm], Any]] = {
    "hook": lambda m: m.register_forward_hook(lambda m, x, out: 2 * out),
    "parametrized": lambda m: parametrize.register_parametrization(m, "weight", Doubled()),
    "patched": lambda m: setattr(m, "forward", lambda x: 2 * type(m).forward(m, x)),
    "tensor": lambda m: setattr(
        m, "weight", nn.Parameter(m.weight.detach().as_subclass(Marked))
    ),
    "meta": lambda m: m.to("meta"),
}  # fmt: skip


@pytest.mark.parametrize("name", NORMS)
def test_scales_that_cannot_be_replaced_are_not_folded(name: str) -> None:
    encoder, plain, norm = encoder_of(heads=1), nn.RMSNorm(D), nn.RMSNorm(D)
    NORMS[name](norm)
    for norms, argument in (((norm, plain), "norm_q"), ((plain, nn.Sequential(norm)), "norm_k")):
        assert not foldable(encoder, *norms)
        with pytest.raises(ValueError, match=f"^{argument} must be free of hooks and adapters"):
            fold_norms(encoder, *norms)
    assert foldable(encoder, plain, nn.Sequential(plain))


# while training: more tokens than channels


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], None]:
    """Compares a result with the one of layers that do not fold."""

    def check(call: Callable[[], Any]) -> None:
        got = torch.utils._pytree.tree_leaves(call())
        with monkeypatch.context() as patch:
            patch.setattr(fold, "_is_exact", lambda layer: False)
            want = torch.utils._pytree.tree_leaves(call())
        for a, b in zip(got, want, strict=True):
            a, b = (x.as_subclass(Tensor) for x in (a, b))
            assert largest_difference(a, b) <= 1e-12 * (1 + b.abs().max())

    return check


@pytest.mark.parametrize("name", CHANGES)
def test_a_layer_calls_what_is_added_to_its_projections(name: str, exact: Any) -> None:
    layer, x = layer_of(bias=True), random(2, 2 * DIM, DIM).requires_grad_()
    with torch.no_grad():
        CHANGES[name](layer, "to_k")
    layer.eval()  # the old spectral_norm changes its vectors in each call while training
    if name == "sparse":
        layer.requires_grad_(False)
    exact(lambda: (out := layer(x), *torch.autograd.grad(out.square().sum(), x)))


@pytest.mark.parametrize("register", GLOBAL)
def test_a_layer_runs_global_hooks(register: Callable[..., Any]) -> None:
    layer, x, seen = layer_of(), random(2, 2 * DIM, DIM).requires_grad_(), []
    with register(lambda module, *given: seen.append(module)):
        layer(x).sum().backward()
    assert {layer.to_q, layer.to_k} <= {*seen}


def test_a_layer_calls_a_patched_class(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x, seen, forward = layer_of(), random(2, 2 * DIM, DIM), [], nn.Linear.forward

    def spy(self: nn.Linear, x: Tensor) -> Tensor:
        seen.append(self)
        return forward(self, x)

    monkeypatch.setattr(nn.Linear, "forward", spy)
    layer(x)
    assert {layer.to_q, layer.to_k} <= {*seen}


def test_weights_given_to_a_call_are_those_used(exact: Any) -> None:
    layer, x = layer_of(bias=True), random(2, 2 * DIM, DIM)
    given = {name: p.detach() + 1 for name, p in layer.named_parameters()}

    def call(given: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.func.functional_call(layer, given, (x,))

    def loss(given: dict[str, Tensor], x: Tensor) -> Tensor:
        return call(given, x).square().sum()

    several = {name: torch.stack([p, 2 * p]) for name, p in given.items()}
    one = {name: torch.ones_like(p) for name, p in given.items()}
    exact(lambda: call(given, x))
    exact(lambda: torch.func.grad(loss)(given, x))
    exact(lambda: torch.func.vmap(call, (0, None))(several, x))
    exact(lambda: torch.func.vmap(torch.func.grad(loss), (None, 0))(given, x[:, None]))
    exact(lambda: torch.func.jvp(lambda given: call(given, x), (given,), (one,)))
    exact(lambda: torch.func.functional_call(layer, {"to_q.weight": given["to_q.weight"]}, (x,)))


@pytest.fixture
def mesh() -> Iterator[Any]:
    """One process that is all of a mesh."""
    import torch.distributed as dist

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29541"}
    store = dist.HashStore()
    dist.init_process_group("gloo", rank=0, world_size=1, store=store)
    yield dist.device_mesh.init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def test_distributed_weights_are_called(mesh: Any, exact: Any) -> None:
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    layer, x = layer_of(), random(2, 2 * DIM, DIM)
    parallelize_module(layer, mesh, {"to_q": ColwiseParallel(), "to_k": ColwiseParallel()})
    assert isinstance(layer.to_q.weight, DTensor)
    exact(lambda: layer(x))
    with pytest.raises(ValueError, match=r"^to_q must be .* DTensor"):
        layer.folded()
