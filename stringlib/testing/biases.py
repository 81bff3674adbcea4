"""Contract of relative biases, the list of the properties that every bias must have."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor

from stringlib.encoders.relative_bias import RelativeBias
from stringlib.testing.contract import Contract, close, each_close, refused, true
from stringlib.testing.modes import EAGER, Mode
from stringlib.testing.modules import Held, holds_of_modules

Make = Callable[..., RelativeBias]
"""Function ``make(dtype)`` that returns the bias, with the same parameters at each call."""

BIAS = Contract()


def of_tokens(bias: RelativeBias) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the bias as a function of queries and keys.

    The result depends only on the number of queries and the number of keys.
    """
    return lambda q, k: bias(q.shape[-2], k.shape[-2])


def tokens(n: int) -> Tensor:
    """Return zeros that stand for a batch of n tokens, ``(2, n, 3)``."""
    return torch.zeros(2, n, 3, dtype=torch.float64)


@BIAS.holds()
def a_bias_depends_on_the_distance_alone(make: Make, run: Mode) -> None:
    """Check that the bias is a Toeplitz matrix, and that ``offset`` and ``at`` give its entries."""
    bias = make()
    whole = run(of_tokens(bias), tokens(40), tokens(40))
    shape = (bias.heads, 40, 40)
    true(whole.shape == shape, f"the bias must have shape {shape}, got {tuple(whole.shape)}")
    limit = 1e-14 * (1 + whole.abs().max().item())  # vectorised powers differ in the last bit
    close(whole[:, 1:, 1:], whole[:, :-1, :-1], limit, "a bias one step further")
    close(bias(1, 40, offset=39), whole[:, 39:], limit, "a row by its offset")
    close(bias(3, 170, offset=-7)[..., :40], bias(3, 40, offset=-7), limit, "more keys")
    distances = torch.arange(40)
    close(bias.at(distances), whole[:, :, 0], limit, "at(distances)")
    close(bias.at(-distances), whole[:, 0], limit, "at(−distances)")


@BIAS.holds(core=True)
def gradients_are_those_of_each_distance(make: Make, run: Mode) -> None:
    bias = make()
    learned = list(bias.parameters())
    out = run(of_tokens(bias), tokens(9), tokens(7))
    if not learned:
        true(out.isfinite().all(), "a bias must be finite, got NaN or infinity")
        return
    i, j = torch.arange(9)[:, None], torch.arange(7)
    one_by_one = bias.at((i - j).flatten()).unflatten(-1, (9, 7))
    close(out, one_by_one, 1e-13 * (1 + out.abs().max().item()), "a bias")
    expected = EAGER.gradients(one_by_one, learned)
    each_close(run.gradients(out, learned), expected, 1e-11, "a gradient")


@BIAS.holds()
def biases_have_the_dtype_of_the_module_and_are_rounded_once(make: Make, run: Mode) -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        bias = make(dtype)
        exact = copy.deepcopy(bias).double()(9, 20)
        got = run(of_tokens(bias), tokens(9), tokens(20))
        true(got.dtype == dtype, f"a bias of {dtype} must be {dtype}, got {got.dtype}")
        limit = 8 * torch.finfo(dtype).eps * (1 + exact.abs().max().item())
        close(got.double(), exact, limit, f"a bias in {dtype}")


@BIAS.holds(core=True)
def any_number_of_tokens(make: Make, run: Mode) -> None:
    bias = make()
    program = None
    for queries, keys in ((6, 8), (9, 9), (5, 12)):
        given = tokens(queries), tokens(keys)
        program = program or run.prepared(of_tokens(bias), *given, free=((1,), (1,)))
        with run.around():
            got = program(*given)
        close(got, bias(queries, keys), 0.0, f"a bias of {queries} queries and {keys} keys")
    for queries, keys in ((0, 3), (1, 1), (3, 0)):
        few = bias(queries, keys, offset=3)
        true(
            few.shape == (bias.heads, queries, keys),
            f"a bias must have shape {(bias.heads, queries, keys)}, got {tuple(few.shape)}",
        )
        if few.requires_grad:
            few.sum().backward()


def all_of(bias: RelativeBias, q: Tensor, k: Tensor) -> tuple[Tensor, ...]:
    """Return the results of a call of a bias and of its method ``at``."""
    return bias(q.shape[-2], k.shape[-2]), bias.at(torch.arange(5, device=q.device))


holds_of_modules(BIAS, lambda make: Held(make, all_of, (tokens(7), tokens(9))))


@BIAS.holds()
def bad_numbers_are_refused_by_name(make: Make, run: Mode) -> None:
    bias = make()
    refused(bias, -1, 3, words="num_queries")
    refused(bias, 3, 1.5, error=TypeError, words="num_keys")
    refused(bias.at, torch.zeros(2, 3), words="distances")
    refused(bias.at, [1.0], error=TypeError, words="distances")
