"""Models and layers under what training wraps around them: each gives what the bare model gives."""

from __future__ import annotations

import copy
import io
import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.nn.modules import module as hooks
from torch.nn.utils import parametrizations, parametrize, prune
from torch.utils.checkpoint import checkpoint

from stringlib import (
    CayleySTRING,
    FavorFeatures,
    KerpleLog,
    LanguageModel,
    MultiHeadAttention,
    RoPE,
    ViT,
    precision,
    softmax_attention,
)
from stringlib.encoders.relative_bias import RelativeBias
from stringlib.models.blocks import Block
from tests import two_ranks
from tests.model_cases import COVERING, LENGTH, PUBLISHED, has_state, language_model, text
from tests.two_ranks import exact

pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{words}")
    for words in (
        "FSDP2-wrapped module .* returned a view",
        "FSDP is switching to use `NO_SHARD`",  # in one process
        "The `NO_SHARD` sharding strategy is deprecated",
        "Full backward hook is firing when gradients are computed",
        "For backward hooks to be called, module output should be",  # of a weight for these tokens
        "There is a performance drop because we have not yet implemented the batching rule",
        "The .grad attribute of a Tensor that is not a leaf",  # read by torch.compile itself
        "torch.ao.quantization is deprecated",
        "torch.quantize_per_tensor",
        "Converting a tensor to a Python",  # of torch.jit.trace, as are the next two
        "Iterating over a tensor might cause",
        "`torch.jit.trace` is deprecated",
        "`torch.jit.trace_method` is deprecated",
    )
]
PARTS = ("block", "layer")
KINDS = ("text", "images")
MODELS = [(kind, name) for name in COVERING for kind in KINDS]
MODELS += [("text", name) for name in PUBLISHED]
EVERY = pytest.mark.parametrize(("kind", "name"), MODELS)
STATES = [name for name in (*COVERING, *PUBLISHED) if has_state(name)]


class Own(nn.Module):
    """A module of somebody's own around another one, which hides all that the other one has."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Any, **named: Any) -> Any:
        return self.inner(*args, **named)


class Again(Own):
    """A module whose activations are computed again in the backward pass."""

    def forward(self, *args: Any, **named: Any) -> Any:
        return checkpoint(self.inner, *args, use_reentrant=False, **named)


WRAPPERS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "own": Own,
    "checkpoint": Again,
    "checkpoint_wrapper": checkpoint_wrapper,
}


def step(model: nn.Module, x: Tensor, run: Callable[[Tensor], Tensor] | None = None) -> Any:
    """Return the outputs of a model, and its gradients by the names of the bare model."""
    model.zero_grad()
    out = (run or model)(x)
    out.square().mean().backward()
    around = re.compile(r"(inner|_checkpoint_wrapped_module|_orig_mod)\.")
    return out.detach(), {around.sub("", n): p.grad for n, p in model.named_parameters()}


def same(found: Any, wanted: Any) -> None:
    assert torch.allclose(found[0], wanted[0], rtol=0, atol=1e-10)
    assert found[1].keys() == wanted[1].keys()
    for name, grad in wanted[1].items():
        if grad is not None:
            assert torch.allclose(found[1][name], grad, rtol=1e-8, atol=1e-10), name


def wrapped(model: nn.Module, wrap: Callable[[nn.Module], nn.Module], part: str) -> nn.Module:
    """Return a copy of a model with each block, or each layer in a block, inside a wrapper."""
    model = copy.deepcopy(model)
    for i, block in enumerate(model.blocks):
        if part == "block":
            model.blocks[i] = wrap(block)
        else:
            block.attention = wrap(block.attention)
    return model


@EVERY
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_wrapped_parts_give_the_values_and_gradients_of_bare_ones(wrapper, part, kind, name):
    model, x = exact(kind, name)
    found = wrapped(model, WRAPPERS[wrapper], part)
    same(step(found, x), step(model, x))
    if kind == "text" and name in STATES:
        told = {"count": 3, "temperature": 0}
        assert torch.equal(found.generate(x[:, :2], **told), model.generate(x[:, :2], **told))


@pytest.mark.parametrize("wrap", [checkpoint_wrapper, partial(torch.compile, backend="eager")])
@pytest.mark.parametrize("name", ["softmax-sinusoidal", "softmax-learned"])
@pytest.mark.parametrize("kind", KINDS)
def test_wrapped_absolute_positions_are_not_lost(kind, name, wrap):
    model, x = exact(kind, name)
    found = copy.deepcopy(model)
    found.absolute = wrap(found.absolute)
    same(step(found, x), step(model, x))
    bare = copy.deepcopy(model)
    bare.absolute = None
    bare.learned = bare.sinusoidal = False
    assert not torch.allclose(bare(x), model(x))


def test_wrapped_blocks_share_phases_if_they_show_their_encoder():
    """A wrapper that hides it is given positions; so the encoder runs in each of its blocks."""
    for wrap, wanted in ((checkpoint_wrapper, 1), (Own, 2)):
        model, calls = wrapped(language_model("softmax-rope"), wrap, "block"), []
        encoder = next(m for m in model.modules() if isinstance(m, RoPE))
        phases = encoder.phases
        encoder.phases = lambda r, phases=phases, calls=calls: calls.append(1) or phases(r)
        model(text(2, 5))
        assert len(calls) == wanted


def test_a_block_of_ones_own_needs_the_forward_of_a_block_alone():
    class Mean(nn.Module):
        def forward(self, x, positions, *, key_mask=None, state=None, return_state=False):
            return x + x.mean(-1, keepdim=True), state

    model = language_model("softmax-rope")
    model.blocks[1] = Mean()
    assert model(text(2, 5)).isfinite().all()


def test_layers_without_a_state_are_refused_also_in_wrappers():
    model = language_model("relu-t5")
    with pytest.raises(ValueError, match="needs layers with a state"):
        model.generate(text(2, 3), 2)
    with pytest.raises(ValueError, match="need a weight with a recurrent form"):
        wrapped(model, Own, "block").generate(text(2, 3), 2)
    with pytest.raises(
        ValueError, match=r"batch_shape must contain .* the size of the batch, got \(2, 3\)"
    ):
        model.init_state((2, 3))


@pytest.mark.parametrize("wrapper", [Own, torch.compile])
@pytest.mark.parametrize(
    ("attention", "encoder", "part"),
    [
        ("softmax", "rope", "encoder"),
        ("softmax", "t5", "encoder"),
        ("relu", "t5", "weight"),
        ("favor", "rope", "features"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_wrapper_around_a_part_is_refused(kind, attention, encoder, part, wrapper):
    """It would hide the class of the part, and the part would be left out without a word."""
    options = {"encoder": encoder, "attention": attention}
    if kind == "text":
        model: Any = LanguageModel(11, 16, 1, 2, length=8, **options)
    else:
        options["encoder"] = "axial" if encoder == "rope" else encoder
        model = ViT(8, 4, 3, 16, 1, 2, **options)
    owner = model.blocks[0].attention
    wrapped = wrapper(getattr(owner, part))
    message = rf"^{part} must be a .* or None, got {type(wrapped).__name__}. A wrapper"
    with pytest.raises(TypeError, match=message):
        setattr(owner, part, wrapped)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@EVERY
def test_a_sharded_model_of_one_process(alone, kind, name):
    two_ranks.fsdp(kind, name)


@EVERY
def test_a_model_of_one_process_in_the_older_wrapper(alone, kind, name):
    two_ranks.fsdp1(kind, name)


def test_a_sharded_encoder_that_blocks_share(alone, monkeypatch):
    torch.manual_seed(0)
    shared = LanguageModel(11, 16, 2, 2, encoder=CayleySTRING(8)).double()
    plain = copy.deepcopy(shared)
    two_ranks.shard(shared)
    two_ranks.compare(shared, plain, text(4, LENGTH))


def in_two_processes(work: str, folder: Path, cases: list[tuple[str, str]]) -> None:
    torch.multiprocessing.spawn(two_ranks.run, (work, folder, cases), nprocs=two_ranks.WORLD)
    for rank in range(two_ranks.WORLD):
        assert json.loads((folder / f"{rank}.json").read_text()) == {}


@pytest.mark.parametrize("work", ["fsdp", "fsdp1", "ddp"])
def test_two_processes_have_the_gradients_of_one(work, tmp_path):
    in_two_processes(work, tmp_path, MODELS)


def test_features_that_are_drawn_with_one_seed_are_equal_in_two_processes(tmp_path):
    in_two_processes("redrawn", tmp_path, [("text", "favor-learned-None"), ("text", "favor-rope")])


def replica(module: nn.Module, made: dict[nn.Module, nn.Module] | None = None) -> nn.Module:
    """Return a copy as ``nn.DataParallel`` makes it: parameters are attributes, not parameters."""
    made = {} if made is None else made
    if module not in made:
        made[module] = copied = module._replicate_for_data_parallel()
        for name, child in module._modules.items():
            copied._modules[name] = None if child is None else replica(child, made)
        for name, parameter in module._parameters.items():
            vars(copied)[name] = None if parameter is None else parameter.view_as(parameter)
        for name, buffer in module._buffers.items():
            copied._buffers[name] = None if buffer is None else buffer.clone()
    return made[module]


@EVERY
def test_replicas_have_the_values_and_gradients_of_the_model(kind, name):
    model, x = exact(kind, name)
    copied = replica(model)
    assert not list(copied.parameters())
    same(step(model, x, copied), step(model, x))


@pytest.mark.parametrize("bias", [KerpleLog(2).to("meta"), RelativeBias(2)])
def test_a_replica_of_a_bias_is_on_its_device(bias):
    bias.at = lambda distances: torch.zeros(2, len(distances), device=distances.device)
    learned = next(bias.parameters(), torch.zeros(1))
    assert replica(bias)(2, 3).device == learned.device


@EVERY
def test_hooks_run_and_change_nothing(kind, name):
    """Among them those that take every argument of a call for a tensor, as Opacus does."""
    model, x = exact(kind, name)
    wanted, seen = step(copy.deepcopy(model), x), set()
    plain = copy.deepcopy(model)
    for module in model.modules():
        if module is not model and module._parameters:
            module.register_forward_pre_hook(lambda module, given: None)
            module.register_forward_hook(
                lambda module, given, out: seen.add((module, *(x.detach() for x in given))[0])
            )
            module.register_full_backward_hook(lambda module, given, out: None)
    same(step(model, x), wanted)
    assert {m for m in model.modules() if isinstance(m, nn.Linear)} <= seen
    seen = set()
    handles = [
        hooks.register_module_forward_hook(lambda module, given, out: seen.add(module)),
        hooks.register_module_full_backward_hook(lambda module, given, out: None),
    ]
    try:
        same(step(plain, x), wanted)
    finally:
        for handle in handles:
            handle.remove()
    assert {m for m in plain.modules() if isinstance(m, nn.Linear)} <= seen


@EVERY
def test_gradients_of_each_sample_by_vmap(kind, name):
    model, x = exact(kind, name)
    # a copy, because functional_call does not give a shared module its parameters back (torch 2.13)
    called, parameters = copy.deepcopy(model), dict(model.named_parameters())

    def loss(given: dict[str, Tensor], one: Tensor) -> Tensor:
        return torch.func.functional_call(called, given, (one[None],)).square().mean()

    each = torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, x)
    for i in range(len(x)):
        _, wanted = step(model, x[i : i + 1])
        for key, grad in wanted.items():
            if grad is not None:
                assert torch.allclose(each[key][i], grad, rtol=1e-8, atol=1e-10), key


@EVERY
def test_low_rank_adapters(kind, name):
    peft = pytest.importorskip("peft")
    model, x = exact(kind, name)
    names = ["to_q", "to_k", "to_v", "to_out"]
    config = peft.LoraConfig(r=4, target_modules=names, init_lora_weights=False)
    adapted = peft.get_peft_model(model, config)
    out = adapted(x)
    out.square().mean().backward()
    assert all(p.grad is not None for p in adapted.parameters() if p.requires_grad)
    assert torch.allclose(adapted.merge_and_unload()(x), out, rtol=0, atol=1e-10)


@EVERY
def test_offloaded_models(kind, name):
    accelerate = pytest.importorskip("accelerate")
    model, x = exact(kind, name)
    wanted, moved = model(x), copy.deepcopy(model)
    whole = {"preload_module_classes": ["MultiHeadAttention", "RecurrentAttention"]}
    accelerate.cpu_offload(moved, torch.device("cpu"), **whole)
    with torch.no_grad():
        assert torch.allclose(moved(x), wanted, rtol=0, atol=1e-10)
    accelerate.cpu_offload(model, torch.device("cpu"))
    if all(next(block.attention.core.parameters(), None) is None for block in model.blocks):
        with torch.no_grad():
            assert torch.allclose(model(x), wanted, rtol=0, atol=1e-10)
    else:
        with pytest.raises(ValueError, match="preload_module_classes"), torch.no_grad():
            model(x)


COMPILED = {
    "eager": {"backend": "eager"},
    "eager dynamic": {"backend": "eager", "dynamic": True},
    "aot_eager": {"backend": "aot_eager"},
    "aot_eager dynamic": {"backend": "aot_eager", "dynamic": True},
}


def cycled(names: list[Any], options: list[Any]) -> list[Any]:
    """Return each name with one of the options."""
    return [(name, options[i % len(options)]) for i, name in enumerate(names)]


@pytest.mark.parametrize(("model", "how"), cycled(MODELS, [*product(COMPILED, PARTS)]))
def test_compiled_parts_give_the_values_and_gradients_of_bare_ones(model, how):
    torch.compiler.reset()
    given, x = exact(*model)
    compile = lambda part: torch.compile(part, fullgraph=True, **COMPILED[how[0]])  # noqa: E731
    same(step(wrapped(given, compile, how[1]), x), step(given, x))


@pytest.mark.parametrize(("name", "dynamic"), cycled(STATES, [True, None]))
def test_a_compiled_step_of_decoding_is_compiled_once(name, dynamic):
    torch.compiler.reset()
    block, x, counter = (
        language_model(name).blocks[0].eval(),
        torch.randn(2, 9, 16),
        CompileCounter(),
    )
    compiled = torch.compile(block, backend=counter, fullgraph=True, dynamic=dynamic)
    with torch.no_grad():
        wanted, _ = block(x)
        out, state = compiled(x[:, :2], return_state=True)
        found, counts = [out], []
        for token in x[:, 2:].split(1, -2):
            out, state = compiled(token, state=state, return_state=True)
            found.append(out)
            counts.append(counter.frame_count)
    assert torch.allclose(torch.cat(found, 1), wanted, rtol=0, atol=1e-5)
    assert counts[1:] == counts[1:2] * (len(counts) - 1)  # sizes are dynamic from the second on


def test_symbolic_traces_are_refused():
    modules = language_model("softmax-rope"), Block(8, 2), MultiHeadAttention(8, 2), RoPE(8)
    for module in (*modules, KerpleLog(2), FavorFeatures(8)):
        with pytest.raises(TypeError, match=r"torch\.fx cannot trace .*torch\.export"):
            torch.fx.symbolic_trace(module)


@pytest.mark.parametrize("seq", [1, 2, 5])
def test_causal_random_features_are_exported_from_few_tokens(seq):
    layer = language_model("favor-None").blocks[0].attention
    sizes = None if seq == 1 else ({1: torch.export.Dim.DYNAMIC},)  # torch fixes a size of 1
    x = torch.randn(2, seq, 16)
    program = torch.export.export(layer, (x,), dynamic_shapes=sizes).module()
    for n in (1, 2, 40) if sizes else (seq,):
        x = torch.randn(2, n, 16)
        assert torch.allclose(program(x), layer(x), rtol=0, atol=1e-5)


class Int8(nn.Module):
    """A projection or a table whose weight is an array of integers, as in weight-only schemes."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner, weight = inner, inner.weight.detach()
        self.scale = nn.Parameter(weight.abs().amax(1, keepdim=True) / 127)
        self.register_buffer("weight", (weight / self.scale).round().to(torch.int8))

    def forward(self, x: Tensor) -> Tensor:
        found = copy.deepcopy(self.inner)
        found.weight = nn.Parameter(self.weight * self.scale)
        return found(x)


AROUND: dict[str, Callable[[nn.Module, str], Any]] = {
    "int8": lambda model, name: setattr(model, name, Int8(getattr(model, name))),
    "weight_norm": lambda model, name: parametrizations.weight_norm(getattr(model, name)),
    "prune": lambda model, name: prune.l1_unstructured(getattr(model, name), "weight", 0.5),
    "another": lambda model, name: getattr(model, name).reset_parameters(),
    "own": lambda model, name: setattr(model, name, nn.Sequential(getattr(model, name))),
    "dynamic": lambda model, name: setattr(model, name, dynamic(getattr(model, name))),
}


def dynamic(linear: nn.Module) -> nn.Module:
    scheme = {nn.Linear: torch.ao.quantization.default_dynamic_qconfig}
    if isinstance(linear, nn.Embedding):
        scheme = {nn.Embedding: torch.ao.quantization.float_qparams_weight_only_qconfig}
    return torch.ao.quantization.quantize_dynamic(nn.Sequential(linear.float()), scheme)[0]


@pytest.mark.parametrize("part", ["embed", "readout"])
@pytest.mark.parametrize("name", AROUND)
def test_a_readout_or_an_embedding_of_ones_own_stays_as_it_is(name, part):
    """A move of a tied model would otherwise put the weight of the embedding into the readout."""
    torch.manual_seed(0)
    model, x = language_model("softmax-rope"), text(2, 5)
    model.readout = nn.Linear(16, 11, bias=False) if name == "another" else model.readout
    AROUND[name](model, part)
    wanted = model(x).detach()
    assert torch.allclose(model.to("cpu").float()(x), wanted, rtol=0, atol=1e-6)
    model.load_state_dict(model.state_dict())
    assert torch.allclose(model(x), wanted, rtol=0, atol=1e-6)
    model.generate(x, 2)
    assert model.init_state(2)[0].length == 0


class Adapted(nn.Module):
    """A projection or a table with a trained matrix beside it, as in LoRA."""

    def __init__(self, base: Any) -> None:
        super().__init__()
        self.base_layer, (rows, columns) = base, base.weight.shape
        self.added = nn.Linear(columns, rows, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base_layer(x) if x.dtype == torch.int64 else self.base_layer(x) + self.added(x)


@pytest.mark.parametrize("left_out", [None, "embed.weight", "readout.weight"])
@pytest.mark.parametrize("source", [True, False])
def test_a_tied_model_loads_the_same_with_and_without_assign(source, left_out):
    """Of two weights the later one is kept, and of one weight this one."""
    state = language_model("softmax-rope", tied=source).state_dict()
    state = {name: x for name, x in state.items() if name != left_out}
    want = state["embed.weight" if left_out == "readout.weight" else "readout.weight"]
    for assign in (False, True):
        model = language_model("softmax-rope")
        given = {name: x.clone() for name, x in state.items()}
        model.load_state_dict(given, strict=False, assign=assign)
        assert model.readout.weight is model.embed.weight
        assert torch.equal(model.readout.weight, want)


@pytest.mark.parametrize("parts", [("readout",), ("embed",), ("embed", "readout")])
def test_a_shared_weight_under_a_parametrisation_stays_shared(parts):
    model, x = language_model("softmax-rope"), text(2, 5)
    for part in parts:
        parametrize.register_parametrization(getattr(model, part), "weight", nn.Identity())
    count = sum(p.numel() for p in model.parameters())
    wanted = model(x).detach()
    given = {name: y.clone() for name, y in model.state_dict().items()}
    model.double().float().load_state_dict(given, assign=True)
    assert sum(p.numel() for p in model.parameters()) == count
    assert torch.equal(model(x), wanted)


@pytest.mark.parametrize("meta", [False, True])
@pytest.mark.parametrize("parts", [("readout",), ("embed",), ("embed", "readout")])
def test_a_shared_weight_inside_adapters_stays_shared(parts, meta):
    model, x = language_model("softmax-rope"), text(2, 5)
    for part in parts:
        setattr(model, part, Adapted(getattr(model, part)))
    loaded = copy.deepcopy(model).to("meta" if meta else "cpu")
    loaded.load_state_dict(model.state_dict(), assign=True)
    held = [getattr(module, "base_layer", module) for module in (loaded.embed, loaded.readout)]
    assert held[0].weight is held[1].weight
    assert torch.equal(loaded(x), model(x))
    assert sum(p.numel() for p in loaded.parameters()) == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("name", ["int8", "dynamic"])
@pytest.mark.parametrize("case", ["softmax-rope", "favor-rope", "layer-retnet"])
def test_layers_with_quantised_projections_decode(case, name):
    layer, x = language_model(case).blocks[0].attention, torch.randn(2, 5, 16)
    for part in ("to_q", "to_k", "to_v", "to_out"):
        AROUND[name](layer, part)
    state, found = layer.init_state(2), []
    for token in x.split(1, 1):
        out, state = layer(token, state=state, return_state=True)
        found.append(out)
    assert torch.allclose(torch.cat(found, 1), layer(x), rtol=0, atol=0.05)


def test_weights_of_torchao_at_every_length():
    """As many tokens as channels, 16, and more: layers would merge the basis into plain weights."""
    quantization = pytest.importorskip("torchao.quantization")
    model = LanguageModel(11, 16, 2, 2, "cayley")
    quantization.quantize_(model, quantization.Int8WeightOnlyConfig())
    plain = copy.deepcopy(model)
    for linear in plain.modules():
        if isinstance(linear, nn.Linear) and hasattr(linear.weight, "dequantize"):
            linear.weight = nn.Parameter(linear.weight.dequantize())
    for n in (1, 7, 8, 9, 33):
        x = text(2, n)
        assert torch.allclose(model(x), plain(x), rtol=0, atol=1e-4)
    attention = model.blocks[0].attention
    assert attention.init_state(2).length == 0
    with pytest.raises(ValueError, match="to be folded"):
        attention.folded()


@pytest.mark.parametrize("name", ["int8", "dynamic"])
def test_images_with_a_quantised_projection(name):
    """Its tokens are no integers."""
    model = ViT(8, 4, 3, 16, 1, 2)
    bare, x = copy.deepcopy(model), torch.randn(2, 1, 8, 8)
    AROUND[name](model, "embed")
    assert torch.allclose(model(x), bare(x), rtol=0, atol=0.05)


TRACED = ("softmax-rope", "softmax-t5", "relu-kerple-log", "gate", "elu-retnet-None",
          "favor-circulant-None", "favor-hadamard-None", "layer-kda")  # fmt: skip


@pytest.mark.parametrize("name", TRACED)
def test_traced_models_can_be_saved(name):
    model, x = exact("text", name)
    traced, file = torch.jit.trace(model.eval(), x, check_trace=False), io.BytesIO()
    torch.jit.save(traced, file)
    file.seek(0)
    for found in (traced, torch.jit.load(file)):
        assert torch.allclose(found(x.flip(0)), model(x.flip(0)), rtol=0, atol=1e-10)


def test_numbers_of_eight_bits_are_refused():
    narrow = torch.zeros(1, 2, 3, 8).to(torch.float8_e4m3fn)
    layer, positions = MultiHeadAttention(8, 2), torch.arange(3)[:, None]
    for call in (
        lambda: layer(narrow),
        lambda: RoPE(8).rotate(narrow, positions),
        lambda: RoPE(8).phases(narrow[0, 0, :, :1]),
        lambda: FavorFeatures(8)(narrow),
        lambda: softmax_attention(narrow, narrow, narrow),
    ):
        with pytest.raises(TypeError, match=r"got torch\.float8_e4m3fn.* \.to\(torch\.bfloat16\)"):
            call()


def test_a_device_is_tried_for_float64(monkeypatch):
    monkeypatch.setattr(precision, "HAS_FLOAT64", {})
    assert precision.widest(torch.device("cpu")) == torch.float64

    def refuse(*args: Any, **named: Any) -> None:
        raise RuntimeError("no fp64")

    monkeypatch.setattr(torch, "ones", refuse)
    assert precision.widest(torch.device("xpu")) == torch.float32
    assert precision.HAS_FLOAT64 == {"cpu": True, "xpu": False}
