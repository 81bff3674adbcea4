"""Whole models say the same in every mode, wherever they come from: of text and of images."""

from __future__ import annotations

import io
import itertools
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from stringlib import LanguageModel, MultiHeadAttention, ViT
from stringlib.testing.contract import Contract, Property, close, skip, true
from stringlib.testing.modes import EAGER, Exported, Mode, on_meta
from stringlib.testing.modules import COPIES
from tests.model_cases import (
    COVERING,
    LENGTH,
    PUBLISHED,
    has_state,
    model_and_input,
    pictures,
    text,
)
from tests.thinned import hold, products

MODEL = Contract()
WHOLE = ("softmax-rope", "softmax-mixed")
"""Two blocks, that share phases or do not; of others one is traced as the next."""
EXACT = 1e-11


class Case(NamedTuple):
    """A composition of ``tests.model_cases``, of text or of images."""

    kind: str
    name: str

    def make(self) -> LanguageModel | ViT:
        """Return the model, of float64, the same each time, with parameters of order one."""
        model = model_and_input(self.kind, self.name)[0].double()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
        return model.eval()

    def given(self, batch: int = 3, length: int = LENGTH) -> Tensor:
        """Return tokens ``(batch, length)``, or so many images."""
        if self.kind == "text":
            return text(batch, length)
        images = pictures(self.make()).double()
        return images.repeat(2, 1, 1, 1)[:batch]

    @property
    def free(self) -> tuple[tuple[int, ...]]:
        """The dimensions that may have any size."""
        return ((0, 1) if self.kind == "text" else (0,),)


def near(got: Tensor, want: Tensor, what: str) -> None:
    """Raise unless scores are those that they should be."""
    close(got, want, EXACT * (1 + want.abs().max().item()), what)


@MODEL.holds(core=True)
def any_batch_and_length_of_one_graph_with_gradients(case: Case, run: Mode) -> None:
    model, exact = case.make(), case.make()
    if not run.cheap and case.name not in WHOLE:
        for one in (model, exact):
            one.blocks = one.blocks[:1]
    sizes = ((3, 6), (2, 5), (4, 3)) if case.kind == "text" else ((3, 0), (2, 0), (4, 0))
    program, parameters = None, [*model.parameters()]
    for size in sizes:
        given = case.given(*size)
        if program is None:
            program = run.prepared(model, given, free=case.free)
        with run.around():
            got = program(given)
        want = exact(given)
        near(got, want, f"a score of {size[0]} times {size[1]}")
        if run.name != "exported":  # a program has parameters of its own
            found = run.gradients(got, parameters), EAGER.gradients(want, [*exact.parameters()])
            for (name, _), a, b in zip(model.named_parameters(), *found, strict=True):
                near(a, b, f"the gradient of {name}")


@MODEL.holds()
def torch_func_takes_the_same_gradients(case: Case, run: Mode) -> None:
    model, given = case.make(), case.given()
    values: dict[str, Tensor] = {name: x.detach() for name, x in model.named_parameters()}
    wanted = torch.autograd.grad(model(given).pow(2).sum(), [*model.parameters()])

    def loss(values: dict[str, Tensor]) -> Tensor:
        return torch.func.functional_call(model, values, (given,)).pow(2).sum()

    with run.around():
        found = torch.func.grad(loss)(values)
    for (name, got), want in zip(found.items(), wanted, strict=True):
        near(got, want, f"the gradient of torch.func of {name}")


@MODEL.holds()
def every_kind_of_copy_says_the_same(case: Case, run: Mode) -> None:
    if run is not EAGER:
        skip()
    given = case.given()
    want = run(case.make(), given)
    for name, copied in COPIES.items():
        model = copied(case.make)
        close(run(model, given), want, 0.0, f"a score of a model {name}")
        if isinstance(model, LanguageModel):
            tied = model.readout.weight is model.embed.weight
            true(tied, f"the readout must be the embedding in a model {name}")


@MODEL.holds()
def nothing_is_made_on_another_device(case: Case, run: Mode) -> None:
    """The meta device stands for any other one: so a graph of a GPU can be captured."""
    if run is not EAGER:
        skip()
    model, given = case.make().to("meta"), case.given().to("meta")
    if case.name not in WHOLE:
        model.blocks = model.blocks[:1]
    steps = case.kind == "text" and has_state(case.name)

    def scores() -> list[Tensor]:
        if not steps:
            return [model(given)]
        _, state = model(given[:, :4], return_state=True)
        return [model(given), model(given[:, 4:], state=state)]

    for found in on_meta(scores):
        true(all(x.is_meta for x in found), "scores must stay on the device, and those of a step")


@MODEL.holds()
def a_state_is_all_that_later_tokens_need(case: Case, run: Mode) -> None:
    """One by one, several at once, and saved and loaded by the defaults of both."""
    if case.kind != "text" or not has_state(case.name) or not run.cheap or run.name == "batched":
        skip()
    model, tokens = case.make(), case.given()
    with run.around():
        whole = model(tokens)
    state, out = None, []
    for start, end in itertools.pairwise((0, 1, 2, 5, 6, LENGTH)):
        with run.around():
            scores, state = model(tokens[:, start:end], state=state, return_state=True)
        out.append(scores)
        file = io.BytesIO()
        torch.save(state, file)
        file.seek(0)
        state = torch.load(file)
    near(torch.cat(out, 1), whole, "a score of tokens piece by piece")


@MODEL.holds()
def padding_is_never_read(case: Case, run: Mode) -> None:
    if case.kind != "text":
        skip()
    model, tokens = case.make(), case.given()
    mask = torch.arange(LENGTH) >= torch.tensor([[0], [2], [3]])
    other = torch.where(mask, tokens, (tokens + 1) % 11)
    want, got = (run(lambda t, m: model(t, key_mask=m), t, mask) for t in (tokens, other))
    near(got[mask], want[mask], "a score beside padding")


NAMES = [
    name
    for name in COVERING
    if not name.startswith("relu") or name in ("relu-None", "relu-rope", "relu-mixed", "relu-alibi")
]
IMAGES = NAMES[::2]
NAMES += PUBLISHED
CASE = {
    f"{kind}-{name}": Case(kind, name)
    for kind, names in (("text", NAMES), ("images", IMAGES))
    for name in names
}
"""Features meet each kind of encoder; which of them it is, softmax shows."""
TRACED = (
    *("text-softmax-rope", "text-softmax-t5", "images-softmax-sinusoidal", "text-favor-after"),
    *("images-elu-toeplitz-None", "text-elu-gla-None", "text-elu-gated-delta-None"),
    *("text-shift", "text-grouped", "text-window", "text-layer-mamba2", "text-layer-kda"),
)
"""Those that are compiled, every second exported: of each way through a layer one. Parts have
their own contracts, in which each form of them is compiled."""


@pytest.mark.parametrize(("name", "property", "modes"), products(MODEL, CASE, TRACED, every=4))
def test_contract(name: str, property: Property, modes: list[Mode]) -> None:
    hold(property, CASE[name], modes)


@pytest.mark.parametrize("weight", ["delta", "toeplitz", None])
def test_a_program_of_a_layer_serves_fewer_and_many_more_tokens(weight: str | None) -> None:
    causal, length = weight == "delta", 1030 if weight == "toeplitz" else None
    layer = MultiHeadAttention(4, 2, attention="elu", weight=weight, causal=causal, length=length)
    program = Exported().prepared(layer, torch.randn(2, 12, 4), free=((0, 1),))
    for batch, n in ((2, 1), (1, 2), (3, 3), (2, 1030)):
        x = torch.randn(batch, n, 4)
        close(program(x), layer(x), 1e-4, f"a program for {batch} times {n} tokens")
