"""Every part exports to ONNX, and ONNX Runtime computes what PyTorch computes.

Export a layer or a model with a dynamic batch and a dynamic number of tokens::

    dynamic = torch.export.Dim.DYNAMIC
    example = torch.randn(2, 12, 16)
    program = torch.onnx.export(
        model.eval(), (example,), dynamo=True, dynamic_shapes=({0: dynamic, 1: dynamic},)
    )
    program.save("model.onnx")

Use at least 2 sequences of at least 2 tokens as the example, because PyTorch fixes sizes of 0 and 1
in the program. Merge learned bases into the weights before the export where possible, see
:meth:`stringlib.encoders.form.RotaryForm.fold`.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from stringlib import BIASES, ENCODERS, FEATURES, WEIGHTS, LanguageModel, MultiHeadAttention, ViT
from stringlib.algebra.skew import cayley, skew
from stringlib.attention import LAYERS as PUBLISHED
from stringlib.attention.scales import common_scale
from stringlib.documents import documents_of
from stringlib.kernels.delta import delta_sums
from stringlib.options import named
from stringlib.testing.contract import close
from stringlib.testing.modes import lines_of_a_graph
from tests.model_cases import CASES, CLASSES, DECAYS, SIZES, VOCAB

pytestmark = pytest.mark.filterwarnings("ignore")  # the exporter uses what PyTorch deprecates

LENGTHS = (1, 2, 5, 31, 64, 65, 100)
DIM = 16
WITHIN = 1e-5
"""Largest difference of outputs, relative to 1 plus the largest output, in float32."""


def weight(name: str) -> dict[str, Any]:
    """Return the arguments of a layer with a position weight for all lengths."""
    horizon = {"horizon": LENGTHS[-1]} if "horizon" in named(WEIGHTS[name]) else {}
    return {"attention": "elu", "weight": name, **horizon}


PARTS: dict[str, dict[str, Any]] = {
    **{name: {"encoder": name} for name in (*ENCODERS, *BIASES)},
    **{name: {"attention": name} for name in FEATURES},
    **{name: weight(name) for name in WEIGHTS},
    **{name: CASES[name] for name in ("favor-after", "relu-after", "gate", "normal", "grouped")},
    **{name: CASES[name] for name in ("alibi-rope", "fox", "fox-rope", "cope", "favor-steps")},
    "roll": {"attention": "elu", "encoder": None, "rotate": "roll"},
}
"""Name → arguments of a layer. PaTH is left out: ONNX has no operator that solves equations."""
CAUSAL = (*DECAYS, "fox", "fox-rope", "cope")
LAYERS = {
    f"{name}, {'causal' if causal else 'all keys'}": {**told, "causal": causal}
    for name, told in PARTS.items()
    for causal in (True, False)
    if causal or name not in CAUSAL
}
MODELS = {
    **PARTS,
    **{name: {"encoder": name} for name in ("sinusoidal", "learned")},
    **{f"layer-{name}": {"layer": name} for name in PUBLISHED},
}


@pytest.fixture
def runtime() -> Any:
    """Return ONNX Runtime, or skip the test without it."""
    how = "needs ONNX Runtime: pip install 'stringlib[onnx]'"
    pytest.importorskip("onnxscript", reason=how)
    return pytest.importorskip("onnxruntime", reason=how)


def compare(runtime: Any, model: nn.Module, example: Tensor, others: list[Tensor]) -> None:
    """Raise unless the exported model gives the outputs of the model, for all given inputs.

    Args:
        runtime: ONNX Runtime.
        model: The model.
        example: The input with which it is exported; its first two dimensions are dynamic if the
            others differ from it there.
        others: The inputs with which it is called.
    """
    dynamic = {i for i in (0, 1) if any(x.shape[i] != example.shape[i] for x in others)}
    program = torch.onnx.export(
        model.eval(),
        (example,),
        dynamo=True,
        dynamic_shapes=(dict.fromkeys(dynamic, torch.export.Dim.DYNAMIC),),
        verbose=False,
    )
    assert program is not None
    session = runtime.InferenceSession(program.model_proto.SerializeToString())
    (given,) = session.get_inputs()
    for x in others:
        with torch.no_grad():
            want = model(x)
        got = torch.from_numpy(session.run(None, {given.name: x.numpy()})[0])
        close(got, want, WITHIN * (1 + want.abs().max().item()), f"an output for {tuple(x.shape)}")


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_gives_the_same_in_onnx_runtime(runtime: Any, name: str) -> None:
    torch.manual_seed(0)
    told = LAYERS[name]
    length: dict[str, Any] = {"length": LENGTHS[-1]} if told.get("weight") == "toeplitz" else {}
    layer = MultiHeadAttention(DIM, 2, **told, **length)
    tokens = [torch.randn(1 + n % 3, n, DIM) for n in LENGTHS]
    compare(runtime, layer, torch.randn(2, 12, DIM), tokens)


@pytest.mark.parametrize("name", MODELS)
def test_a_language_model_gives_the_same_in_onnx_runtime(runtime: Any, name: str) -> None:
    torch.manual_seed(0)
    model = LanguageModel(VOCAB, DIM, 1, 2, length=LENGTHS[-1], **MODELS[name])
    tokens = [torch.randint(VOCAB, (1 + n % 3, n)) for n in LENGTHS]
    compare(runtime, model, torch.randint(VOCAB, (2, 12)), tokens)


@pytest.mark.parametrize("name", MODELS)
def test_a_vision_transformer_gives_the_same_in_onnx_runtime(runtime: Any, name: str) -> None:
    torch.manual_seed(0)
    told = {**MODELS[name], "channels": 2}
    if told.get("encoder") == "rope":
        told["encoder"] = "axial"
    if name in CAUSAL:
        told["causal"] = True
    if name in CAUSAL or name == "toeplitz":
        told["pool"] = "mean"
    size = SIZES["series" if name == "roll" else "image"]  # a roll has one coordinate
    model = ViT(*size, CLASSES, 24, 1, 2, **told)
    images = [torch.randn(batch, 2, *model.image_size) for batch in (1, 2, 5)]
    compare(runtime, model, images[1], images)


def compare_two(runtime: Any, model: nn.Module, given: list[tuple[Tensor, Tensor]]) -> None:
    """Raise unless the exported model of two inputs gives the outputs of the model, for all pairs.

    Args:
        runtime: ONNX Runtime.
        model: The model. It is exported with the first pair.
        given: Pairs of inputs, of which the first two dimensions are dynamic.
    """
    sizes = dict.fromkeys((0, 1), torch.export.Dim.DYNAMIC)
    program = torch.onnx.export(
        model, given[0], dynamo=True, dynamic_shapes=(sizes, sizes), verbose=False
    )
    assert program is not None
    session = runtime.InferenceSession(program.model_proto.SerializeToString())
    names = [x.name for x in session.get_inputs()]
    for pair in given:
        (got,) = session.run(None, dict(zip(names, (x.numpy() for x in pair), strict=True)))
        with torch.no_grad():
            want = model(*pair)
        close(torch.from_numpy(got), want, WITHIN * (1 + want.abs().max().item()), "an output")


class Packed(nn.Module):
    """A model of packed sequences."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, ids: Tensor) -> Tensor:
        found: Tensor = self.model(tokens, document_ids=ids)
        return found


@pytest.mark.parametrize(
    "name",
    ["circulant", "favor", "gla", "gated-delta", "favor-after", "fox-rope", "cope", "favor-steps"],
)
def test_packed_sequences_give_the_same_in_onnx_runtime(runtime: Any, name: str) -> None:
    torch.manual_seed(0)
    model = LanguageModel(VOCAB, DIM, 1, 2, **PARTS[name]).eval()
    given = [
        (torch.randint(VOCAB, (2, n)), torch.randint(2, (2, n)).cumsum(-1)) for n in (12, 5, 100)
    ]
    compare_two(runtime, Packed(model), given)


class Padded(nn.Module):
    """A layer that is told which of its tokens are padding."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        found: Tensor = self.layer(x, key_mask=mask)
        return found


PADDED: dict[str, dict[str, Any]] = {
    "softmax": {"encoder": "rope", "causal": True},
    "all keys": {"encoder": "rope", "causal": False},
    "bias": {"encoder": "alibi", "causal": True},
    "cope, window": {"position_bias": "cope", "causal": True, "window": 3},
    "grouped": {"encoder": "rope", "causal": True, "kv_heads": 1, "window": 3},
    "favor": {"attention": "favor", "encoder": None, "causal": True},
    "gla": {"attention": "elu", "encoder": None, "weight": "gla", "causal": True},
}


@pytest.mark.parametrize("name", PADDED)
def test_padding_gives_the_same_in_onnx_runtime(runtime: Any, name: str) -> None:
    """Also the outputs at padding: a query that attends to no key has the output 0."""
    torch.manual_seed(0)
    layer = Padded(MultiHeadAttention(DIM, 2, **PADDED[name])).eval()
    given = [(torch.randn(2, n, DIM), torch.rand(2, n) > 0.4) for n in (12, 5, 70)]
    for _, mask in given:
        mask[0, :4] = False
        if name != "softmax":  # a row of padding alone
            mask[1] = False
    compare_two(runtime, layer, given)


@pytest.mark.parametrize("head_dim", [192, 260])
def test_large_heads_give_the_same_in_onnx_runtime(runtime: Any, head_dim: int) -> None:
    """Eager layers of this size compute circulant products by FFT."""
    torch.manual_seed(0)
    parts: list[dict[str, Any]] = [{"encoder": "circulant"}, {"attention": "favor-unit-circulant"}]
    for told in parts:
        layer = MultiHeadAttention(head_dim, 1, **told)
        tokens = [torch.randn(2, n, head_dim) for n in LENGTHS[1:4]]
        compare(runtime, layer, torch.randn(2, 12, head_dim), tokens)


@pytest.mark.parametrize("size", [1, 2, 3, 8, 33, 64])
def test_the_exported_cayley_transform_equals_the_solution(size: int) -> None:
    """By elimination, with large entries too."""
    generator = torch.Generator().manual_seed(size)
    count = size * (size - 1) // 2
    for scale in (0.1, 1.0, 30.0):
        upper = torch.randn(2, count, generator=generator, dtype=torch.float64) * scale
        upper.requires_grad_()
        want = cayley(skew(upper))
        with lines_of_a_graph(exported=True):
            got = cayley(skew(upper))
        close(got, want, 1e-15 * (1 + size * scale) ** 2, f"an entry for scale {scale}")
        factors = torch.randn(want.shape, generator=generator, dtype=torch.float64)
        (a,), (b,) = (torch.autograd.grad((x * factors).sum(), upper) for x in (got, want))
        close(a, b, 1e-14 * (1 + size * scale) ** 2, f"a gradient for scale {scale}")


@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize("n", [1, 2, 5, 31, 32, 33, 100])
def test_exported_delta_rules_equal_those_with_a_triangular_solve(n: int, alike: bool) -> None:
    """With equal keys too, for which powers of the triangular matrix would be large."""
    generator = torch.Generator().manual_seed(n)

    def drawn(size: int) -> Tensor:
        return torch.randn(2, n, size, generator=generator, dtype=torch.float64)

    k = nn.functional.normalize(drawn(1 if alike else 6).expand(-1, -1, 6), dim=-1)
    q, v, rates, decays = drawn(6), drawn(4), 2 * drawn(1).sigmoid(), -drawn(1).square()
    leaves = [x.requires_grad_() for x in (q, k, v, rates, decays)]
    want = delta_sums(q, k, v, rates, decays)
    with lines_of_a_graph(exported=True):
        got = delta_sums(q, k, v, rates, decays)
    factors = drawn(4)
    for a, b in zip(got, want, strict=True):
        close(a, b, 1e-12, "an output or a state")
    grads = (torch.autograd.grad((out * factors).sum(), leaves) for out, _ in (got, want))
    for a, b in zip(*grads, strict=True):
        close(a, b, 1e-11, "a gradient")


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 200])
def test_the_exported_running_maximum_is_exact(n: int) -> None:
    scales = torch.randn(3, n, generator=torch.Generator().manual_seed(n))
    scales[0, :3] = scales[1] = -torch.inf
    want = common_scale(scales, causal=True)
    with lines_of_a_graph(exported=True):
        got = common_scale(scales, causal=True)
    assert torch.equal(got, want)


@pytest.mark.parametrize("earlier", [0, 4])
@pytest.mark.parametrize("n", [1, 2, 9, 200])
def test_the_exported_documents_and_their_running_maximum_are_exact(n: int, earlier: int) -> None:
    generator = torch.Generator().manual_seed(n)
    ids = torch.randint(2, (3, n), generator=generator).cumsum(-1) // 2
    scales = torch.randn(3, 2, n, generator=generator)
    before = torch.randn(3, 2, generator=generator) if earlier else None
    x = torch.zeros(3, 2, n, 1)
    want = documents_of(x, ids, earlier)
    largest = common_scale(scales, causal=True, before=before, documents=want)
    with lines_of_a_graph(exported=True):
        got = documents_of(x, ids, earlier)
        assert torch.equal(largest, common_scale(scales, True, before, got))
    for a, b in zip(got[:3], want[:3], strict=True):
        assert torch.equal(a, b)
