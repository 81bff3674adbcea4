"""On a GPU whole models say what they say on a processor, wait for nothing, and can be captured."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor, nn

import stringlib
from stringlib.inputs import Layout
from stringlib.kernels.delta import delta_sums
from stringlib.kernels.recurrence import causal_sums
from tests.model_cases import COVERING, LENGTH, has_state, model_and_input

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
    pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream"),
]

EXACT, ROUGH = 1e-9, 1e-4
"""How far float64 and float32 may be off, as a share of the largest number."""

MODELS = pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in ("text", "images") for name in COVERING]
)


def made(kind: str, name: str) -> tuple[nn.Module, Tensor]:
    """Return a model of float64 and what it reads."""
    model, given = model_and_input(kind, name)
    return model.double().eval(), given.double() if given.is_floating_point() else given


def scores_and_gradients(model: nn.Module, given: Tensor) -> list[Tensor]:
    """Return the scores and the gradient of the sum of their squares by each parameter."""
    scores = model(given)
    leaves = [*model.parameters()]
    return [scores, *torch.autograd.grad(scores.pow(2).sum(), leaves, materialize_grads=True)]


def near(got: Tensor, want: Tensor, share: float) -> None:
    torch.testing.assert_close(
        got.cpu(), want.cpu(), rtol=0, atol=share * (1 + want.abs().max().item())
    )


@contextmanager
def no_waiting() -> Iterator[None]:
    """Make whatever waits for the GPU an error."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype")
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@MODELS
def test_scores_and_gradients_are_those_of_a_processor_and_nothing_waits(kind, name):
    model, given = made(kind, name)
    there, at = copy.deepcopy(model).cuda(), given.cuda()
    torch.cuda.synchronize()
    with no_waiting():
        found = scores_and_gradients(there, at)
    for got, want in zip(found, scores_and_gradients(model, given), strict=True):
        near(got, want, EXACT)


@pytest.mark.parametrize("name", [name for name in COVERING if has_state(name)])
def test_tokens_that_come_later_wait_for_nothing(name):
    model, tokens = made("text", name)
    there, at = copy.deepcopy(model).cuda(), tokens.cuda()
    with no_waiting(), torch.no_grad():
        _, state = there(at[:, :4], return_state=True)
        steps = []
        for i in range(4, LENGTH):
            scores, state = there(at[:, i : i + 1], state=state, return_state=True)
            steps.append(scores)
    near(torch.cat(steps, 1), model(tokens)[:, 4:], EXACT)


def captured(call: Callable[[], list[Tensor]]) -> tuple[torch.cuda.CUDAGraph, list[Tensor]]:
    """Return a graph of a call, and the tensors that it writes into."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = call()
    return graph, out


@MODELS
def test_a_training_step_is_captured_and_replayed_with_other_inputs(kind, name):
    model, given = made(kind, name)
    there, at = model.float().cuda(), given.cuda() if kind == "text" else given.float().cuda()
    held = at.clone()
    graph, out = captured(lambda: scores_and_gradients(there, held))
    held.copy_(at.flip(0))
    graph.replay()
    for got, want in zip(out, scores_and_gradients(there, at.flip(0)), strict=True):
        near(got, want, ROUGH)


def hold_of_a_function(f: Callable[..., Tensor], *inputs: Tensor) -> None:
    """Hold that a value and the gradients of the sum of its squares are those of a processor."""

    def found(given: list[Tensor]) -> list[Tensor]:
        leaves = [x.detach().requires_grad_() for x in given]
        out = f(*leaves)
        return [out, *torch.autograd.grad(out.pow(2).sum(), leaves)]

    for got, want in zip(found([x.cuda() for x in inputs]), found([*inputs]), strict=True):
        near(got, want, EXACT)


@pytest.mark.parametrize("n", [64, 65, 300])
@pytest.mark.parametrize("rule", ["plain", "a token", "a feature", "delta"])
def test_sums_over_chunks_are_those_of_a_processor(rule, n):
    draw = torch.Generator().manual_seed(0)
    q, k, u = torch.randn(3, 2, 3, n, 8, dtype=torch.float64, generator=draw)
    decay = -torch.rand(2, 3, n, 8, dtype=torch.float64, generator=draw)
    inputs = {
        "plain": (q, k, u),
        "a token": (q, k, u, decay[..., :1]),
        "a feature": (q, k, u, decay),
        "delta": (q, torch.nn.functional.normalize(k, dim=-1), u, -decay[..., 1:2], decay[..., :1]),
    }[rule]
    sums = delta_sums if rule == "delta" else causal_sums
    hold_of_a_function(lambda *x: sums(*x)[0], *inputs)


class Learned(stringlib.RotaryEncoder):
    """Frequencies that are given, and have a gradient."""

    def __init__(self, omega: Tensor, layout: Layout) -> None:
        super().__init__(8, 2, heads=3, layout=layout)
        self.omega = omega

    def frequencies(self) -> Tensor:
        return self.omega


@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_learned_frequencies_have_the_gradient_of_a_processor(layout):
    draw = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 20, 3, 9, 8, dtype=torch.float64, generator=draw)
    omega, at = (torch.randn(*s, 2, dtype=torch.float64, generator=draw) for s in ((3, 4), (9,)))

    def product(q: Tensor, k: Tensor, omega: Tensor) -> Tensor:
        q, k = Learned(omega, layout)(q, k, at.to(q.device))
        return q @ k.mT

    hold_of_a_function(product, q, k, omega)
