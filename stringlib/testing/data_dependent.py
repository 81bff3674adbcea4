"""Contract of data-dependent biases and of position steps: the properties that all must have.

Both kinds of parts are computed from the tokens of a layer. Most properties are therefore
properties of the outputs of a layer that has the part.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from stringlib.attention.logit_bias import TokenBias
from stringlib.attention.multihead import MultiHeadAttention
from stringlib.encoders.string import STRING
from stringlib.precision import at_least_float32
from stringlib.testing.contract import Contract, close, each_close, skip, true
from stringlib.testing.modes import EAGER, Mode
from stringlib.testing.modules import Held, holds_of_modules
from stringlib.testing.weights import random

DATA_DEPENDENT = Contract()
DIM, HEADS = 12, 3
EXACT = 1e-11
NEAR = {torch.float32: (2e-6, 300), torch.float16: (2e-3, 20), torch.bfloat16: (2e-2, 20)}
"""For each dtype, the largest accepted error of an output, and the number of tokens."""


@dataclass(frozen=True)
class DataDependent:
    """A data-dependent bias, or a module of position steps, to be checked.

    Attributes:
        make: Function ``make(dtype)`` that returns the module. It has the same parameters at each
            call.
    """

    make: Callable[..., nn.Module]

    def layer(self, dtype: torch.dtype = torch.float64) -> MultiHeadAttention:
        """Return a causal layer of softmax attention that has the part."""
        part = self.make(dtype)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            if isinstance(part, TokenBias):
                layer = MultiHeadAttention(DIM, part.heads, causal=True, position_bias=part)
            else:
                coord_dim = part(torch.zeros(1, DIM, dtype=dtype)).shape[-1]
                frequencies = torch.linspace(0.2, 1, 2 * coord_dim).view(1, 2, coord_dim)
                encoder = STRING(frequencies, head_dim=DIM // HEADS)
                layer = MultiHeadAttention(DIM, HEADS, encoder, causal=True, position_steps=part)
        return layer.to(dtype)


@DATA_DEPENDENT.holds()
def values_have_the_shape_and_dtype_that_a_layer_expects(case: DataDependent, run: Mode) -> None:
    for dtype, batch, (n, keys) in itertools.product(
        (torch.float64, torch.bfloat16), ((), (2,), (2, 3)), ((5, 5), (2, 5), (1, 1))
    ):
        part, x = case.make(dtype), random(*batch, keys, DIM).to(dtype)
        if not isinstance(part, TokenBias):
            steps = run(part, x)
            shape = (*x.shape[:-1], part(x.new_zeros(1, DIM)).shape[-1])
            true(steps.shape == shape, f"steps must have shape {shape}, got {tuple(steps.shape)}")
            true(steps.is_floating_point(), f"steps must be floats, got {steps.dtype}")
            continue
        marks, heads = run(part.marks, x), part.heads
        told = f"marks must have shape ({', '.join(map(str, (*batch, heads, keys)))}, m), got "
        right = marks.ndim == len(batch) + 3 and marks.shape[:-1] == (*batch, heads, keys)
        true(right, f"{told}{tuple(marks.shape)}")
        exact = at_least_float32(dtype)
        q, k = (random(*batch, heads, m, DIM // heads).to(exact) for m in (n, keys))
        bias = run(part, q, k, marks.to(exact))
        shape = (*batch, heads, n, keys)
        true(bias.shape == shape, f"a bias must have shape {shape}, got {tuple(bias.shape)}")
        true(bias.dtype == exact, f"a bias must have the dtype of q, {exact}, got {bias.dtype}")


@DATA_DEPENDENT.holds()
def later_tokens_change_no_earlier_output(case: DataDependent, run: Mode) -> None:
    layer, x = case.layer(), random(2, 12, DIM)
    other = torch.cat([x[:, :7], 3 * x[:, 7:].flip(1)], 1)
    before, after = run(layer, x), run(layer, other)
    close(after[:, :7], before[:, :7], EXACT, "an output before a changed token")


@DATA_DEPENDENT.holds()
def outputs_continue_from_a_state(case: DataDependent, run: Mode) -> None:
    layer, x, mask = case.layer(), random(2, 12, DIM), random(2, 12, seed=1) > -0.5
    whole, state, out = layer(x, key_mask=mask), None, []
    for start, end in ((0, 5), *((i, i + 1) for i in range(5, 9)), (9, 12)):
        given, key_mask = x[:, start:end], mask[:, start:end]
        with run.around():
            y, state = layer(given, key_mask=key_mask, state=state, return_state=True)
        out.append(y)
    close(torch.cat(out, 1), whole, EXACT, "an output that continues from a state")


@DATA_DEPENDENT.holds()
def packed_documents_have_the_outputs_that_they_have_alone(case: DataDependent, run: Mode) -> None:
    layer, x, ids = case.layer(), random(2, 12, DIM), torch.tensor([0] * 4 + [1] * 2 + [2] * 6)
    packed = run(lambda x: layer(x, document_ids=ids), x)
    alone = torch.cat([layer(x[:, ids == i]) for i in range(3)], 1)
    close(packed, alone, EXACT, "an output of a packed document")


@DATA_DEPENDENT.holds()
def padding_changes_nothing_even_if_it_is_nan(case: DataDependent, run: Mode) -> None:
    layer, x, keep = case.layer(), random(2, 12, DIM), torch.ones(12, dtype=torch.bool)
    keep[[0, 4, 5]] = False
    padded = x.masked_fill(~keep[:, None], torch.nan)
    got = run(lambda x: layer(x, key_mask=keep.expand(2, -1)), padded)
    close(got[:, keep], layer(x[:, keep]), EXACT, "an output of tokens with padding between them")


@DATA_DEPENDENT.holds()
def each_entry_of_a_batch_has_the_output_that_it_has_alone(case: DataDependent, run: Mode) -> None:
    layer, x = case.layer(), random(2, 3, 5, DIM)
    alone = torch.stack([layer(y) for y in x.flatten(0, 1)]).view_as(x)
    close(run(layer, x), alone, EXACT, "an output of an entry of a batch")


@DATA_DEPENDENT.holds(core=True)
def gradients_are_the_derivatives(case: DataDependent, run: Mode) -> None:
    layer, x = case.layer(), random(2, 5, DIM).requires_grad_()
    leaves = [x, *layer.parameters()]
    if run is EAGER:
        torch.autograd.gradcheck(lambda x, *_: layer(x), leaves, fast_mode=True)
        return
    expected = EAGER.gradients(layer(x), leaves)
    each_close(run.gradients(run(layer, x), leaves), expected, 1e-10, "a gradient")


@DATA_DEPENDENT.holds()
def lower_precision_stays_near_float64(case: DataDependent, run: Mode) -> None:
    """Check outputs after a document of large tokens, over which sums must not lose digits."""
    for dtype, (limit, n) in NEAR.items():
        layer = case.layer(dtype)
        wide = copy.deepcopy(layer).double()
        x = random(2, n, DIM)
        x[:, : n // 2] *= 20
        x, ids = x.to(dtype), torch.arange(n) // (n // 2)
        got = run(lambda x: layer(x, document_ids=ids), x)  # noqa: B023
        true(got.dtype == dtype, f"an output in {dtype} must be {dtype}, got {got.dtype}")
        got, want = got.double()[:, n // 2 :], wide(x.double()[:, n // 2 :])
        close(got, want, limit * max(1, want.abs().max().item()), f"an output in {dtype}")


@DATA_DEPENDENT.holds()
def zeros_and_large_tokens_give_finite_outputs_and_gradients(
    case: DataDependent, run: Mode
) -> None:
    for factor in (0, 100):
        layer, x = case.layer(torch.float32), factor * random(2, 9, DIM).float()
        leaves = [x.requires_grad_(), *layer.parameters()]
        out = run(layer, x)
        finite = all(y.isfinite().all() for y in (out, *run.gradients(out, leaves)))
        what = "large tokens" if factor else "tokens of zeros"
        true(finite, f"outputs and gradients for {what} must be finite, got NaN or infinity")


@DATA_DEPENDENT.holds(core=True)
def any_number_of_tokens_and_batches(case: DataDependent, run: Mode) -> None:
    layer, program = case.layer(), None
    for batch, n in ((2, 6), (3, 9), (4, 5)):
        x = random(batch, n, DIM)
        program = program or run.prepared(lambda x: layer(x), x, free=((0, 1),))
        with run.around():
            got = program(x)
        close(got, layer(x), EXACT, f"an output for {batch} times {n} tokens")


@DATA_DEPENDENT.holds()
def a_bias_reads_queries_and_keys_only_if_it_says_so(case: DataDependent, run: Mode) -> None:
    bias = case.make()
    if not isinstance(bias, TokenBias) or bias.reads_keys:
        skip()
    assert isinstance(bias, TokenBias)
    q, k = random(2, 2, bias.heads, 7, DIM // bias.heads)
    marks = bias.marks(random(2, 7, DIM, seed=1))
    one, other = (run(bias, *given, marks).tril() for given in ((q, k), (-q, k.flip(-2))))
    close(other, one, EXACT, "a bias with reads_keys = False, for other queries and keys,")


@DATA_DEPENDENT.holds()
def each_call_of_make_returns_parameters_of_its_own(case: DataDependent, run: Mode) -> None:
    if run is not EAGER:
        skip()
    one, other = case.make(), case.make()
    shared = {*one.parameters()} & {*other.parameters()}
    true(not shared, f"two modules must have parameters of their own, got {len(shared)} shared")


holds_of_modules(
    DATA_DEPENDENT,
    lambda case: Held(case.layer, lambda layer, x: (layer(x),), (random(2, 7, DIM),)),
)
