"""Contract of position weights, the list of the properties that every position weight must have."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from stringlib.attention.linear import linear_attention
from stringlib.attention.weights import PositionWeight
from stringlib.testing.contract import Contract, close, each_close, skip, true
from stringlib.testing.modes import EAGER, Mode, lines_of_a_graph, on_meta

WEIGHT = Contract()
EXACT = 1e-12

Draw = Callable[[tuple[int, ...], int, torch.Generator], Tensor]


@dataclass(frozen=True)
class Weighted:
    """A position weight to be checked, and the properties that are expected of it.

    Attributes:
        draw: For a data-dependent weight, the function that draws the tensor from which the weight
            is computed. It is called as ``draw(batch, n, generator)``. For any other weight, None.
        build: Function that returns the weight. It is called as ``build(tensor, n, start)``, with
            the drawn tensor (or None), the total number of tokens, and the number of tokens before
            the first token of the tensor.
        dense: Function that returns the matrix of the weights w(i, j) of all pairs of tokens. It is
            called as ``dense(tensor, n)``. The shape is ``(..., heads or 1, n, n)``, or
            ``(..., heads or 1, n, n, m)`` if the weight differs between features. The result is
            None if the weight of two tokens depends on the tokens between them. Attention is then
            compared with attention that the weight computes token by token.
        modes: Algorithms that the weight has for the sums, besides the default algorithm (None).
        causal: Values of ``causal`` that the weight accepts. Default: False and True.
        carries: Whether attention can continue from a state. Default: True.
        rectangular: Whether the numbers of queries and keys may differ. Default: True.
        heads: Number of heads. Default: 3.
        lengths: Numbers of tokens that the weight accepts. Default: all numbers.
        cut: Function that returns the part of the drawn tensor that belongs to the tokens from
            ``start`` to ``end``. It is called as ``cut(tensor, start, end)``. Default: a function
            that returns the whole tensor.
        parameters: Learned parameters of the weight. Default: none.
        normalized: Whether the sums of values are divided by the sums of the weights. Default:
            True.
    """

    draw: Draw | None
    build: Callable[[Any, int, int], PositionWeight | None]
    dense: Callable[[Any, int], Tensor | None]
    modes: tuple[str, ...]
    causal: tuple[bool, ...] = (False, True)
    carries: bool = True
    rectangular: bool = True
    heads: int = 3
    lengths: tuple[int, ...] = ()
    cut: Callable[[Tensor, int, int], Tensor] = lambda x, start, end: x
    parameters: Sequence[Tensor] = ()
    normalized: bool = True

    def ways(self, run: Mode, *, causal: Sequence[bool] = (False, True)) -> list[Any]:
        """Return the pairs (``causal``, algorithm) with which sums are checked.

        In a mode of execution that is slow to prepare, at most one pair is returned.

        Args:
            run: Mode of execution.
            causal: Values of ``causal`` from which the pairs are formed. Values that the weight
                does not accept are left out. Default: False and True.
        """
        found = [
            (which, mode)
            for which in causal
            if which in self.causal
            for mode in (None, *self.modes)
            if which or mode not in ("recurrent", "chunk")
        ]
        return found if run.cheap else found[:1]

    def given(self, n: int, batch: tuple[int, ...] = (2,), **sizes: int) -> list[Tensor]:
        """Return random features of queries and keys, and random values.

        For a data-dependent weight, the drawn tensor is returned as well.

        Args:
            n: Number of tokens.
            batch: Shape of the batch. Default: ``(2,)``.
            **sizes: Further arguments of :func:`inputs`.
        """
        generator = torch.Generator().manual_seed(3)
        made = [] if self.draw is None else [self.draw(batch, n, generator)]
        return [*inputs(n, batch, heads=self.heads, **sizes), *made]

    def attend(
        self,
        tensors: Sequence[Tensor],
        causal: bool = True,
        mode: str | None = None,
        length: int | None = None,
        **options: Any,
    ) -> Any:
        """Return the result of the package's ``linear_attention`` with this weight.

        Args:
            tensors: Features, values and the drawn tensor, as :meth:`given` returns them.
            causal: Whether attention is causal. Default: True.
            mode: Algorithm for the sums. Default: the default of the weight.
            length: Total number of tokens, if ``tensors`` contain only some of them. Default: the
                number of tokens in ``tensors``.
            **options: Further arguments of
                :func:`~stringlib.attention.linear.linear_attention`.
        """
        q, k, v, *made = tensors
        weight = self.build(made[0] if made else None, length or v.shape[-2], 0)
        options.setdefault("normalize", self.normalized)
        return linear_attention(q, k, v, weight, causal, mode=mode, **options)

    def by_definition(
        self, tensors: Sequence[Tensor], causal: bool = True, normalize: bool | None = None
    ) -> Tensor:
        """Return the output of attention, computed by its definition, as the expected result.

        The output is NaN where 0 is divided by 0. If the weight has no matrix, the package computes
        the expected result itself, token by token.

        Args:
            tensors: Features, values and the drawn tensor, as :meth:`given` returns them.
            causal: Whether attention is causal. Default: True.
            normalize: Whether to divide by the sums of the weights. Default: the attribute
                ``normalized``.
        """
        q, k, v, *made = tensors
        weights = self.dense(made[0] if made else None, v.shape[-2])
        normalize = self.normalized if normalize is None else normalize
        if weights is None:
            return self._token_by_token(tensors, normalize)
        return dense_attention(q, k, v, weights, causal, normalize)

    def _token_by_token(self, tensors: Sequence[Tensor], normalize: bool) -> Tensor:
        """Return the output of causal attention, computed token by token with a state."""
        state, out, n = None, [tensors[2][..., :0, :]], tensors[2].shape[-2]
        for i in range(n):
            told = {"state": state, "return_state": True, "normalize": normalize}
            y, state = self.attend(self.piece(tensors, i, i + 1), True, "recurrent", n, **told)
            out.append(y)
        return torch.cat(out, -2)

    def piece(self, tensors: Sequence[Tensor], start: int, end: int) -> list[Tensor]:
        """Return the part of all tensors that belongs to the tokens from ``start`` to ``end``."""
        cut = [x[..., start:end, :] for x in tensors[:3]]
        return [*cut, *(self.cut(x, start, end) for x in tensors[3:])]

    def some(self, *wanted: int) -> list[int]:
        """Return the wanted lengths that the weight allows; if it allows none, its last length."""
        return [n for n in wanted if not self.lengths or n in self.lengths] or [self.lengths[-1]]

    def length(self, wanted: int, run: Mode) -> int:
        """Return the wanted length if the weight allows it, otherwise a length that it allows.

        In a mode of execution that is slow to prepare, the wanted length is replaced by 7, because
        tracing many tokens takes long.

        Args:
            wanted: Wanted number of tokens.
            run: Mode of execution.
        """
        return self.some(wanted if run.cheap else 7)[0]


def inputs(
    n: int, batch: tuple[int, ...] = (2,), m: int = 4, d_v: int = 6, seed: int = 0, heads: int = 3
) -> tuple[Tensor, Tensor, Tensor]:
    """Return positive random features of queries and of keys, and random values, in float64.

    Args:
        n: Number of tokens.
        batch: Shape of the batch. Default: ``(2,)``.
        m: Number of features. Default: 4.
        d_v: Number of channels of a value. Default: 6.
        seed: Seed of the random numbers. Default: 0.
        heads: Number of heads. Default: 3.
    """
    generator = torch.Generator().manual_seed(seed)
    phi_q, phi_k = torch.rand(2, *batch, heads, n, m, generator=generator, dtype=torch.float64)
    v = torch.randn(*batch, heads, n, d_v, generator=generator, dtype=torch.float64)
    return phi_q + 0.05, phi_k + 0.05, v


def dense_attention(
    phi_q: Tensor, phi_k: Tensor, v: Tensor, weights: Tensor, causal: bool, normalize: bool = True
) -> Tensor:
    """Return the output of linear attention, computed from the matrix of all pairs of tokens.

    Args:
        phi_q: Features of the queries, ``(..., heads, n, m)``.
        phi_k: Features of the keys, ``(..., heads, keys, m)``.
        v: Values, ``(..., heads, keys, d_v)``.
        weights: Position weights, ``(..., n, keys)``, or ``(..., n, keys, m)`` if they differ
            between features.
        causal: Whether query i attends only to the keys 0 … i.
        normalize: Whether to divide the weighted sum of the values by the sum of their weights.
            Default: True.
    """
    if weights.ndim == phi_q.ndim + 1 and weights.shape[-1] == phi_q.shape[-1]:
        a = torch.einsum("...im,...jm,...ijm->...ij", phi_q, phi_k, weights)
    else:
        a = torch.einsum("...im,...jm->...ij", phi_q, phi_k) * weights
    if causal:
        a = a.tril()
    out = torch.einsum("...ij,...jd->...id", a, v)
    return out / a.sum(-1)[..., None] if normalize else out


def random(*shape: int, seed: int = 0) -> Tensor:
    """Return float64 numbers drawn from the standard normal distribution with a given seed."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def narrow(tensors: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Return features and values in a dtype, and the drawn tensor of the weight in float32."""
    return [*(x.to(dtype) for x in tensors[:3]), *(x.float() for x in tensors[3:])]


def scaled(tensors: Sequence[Tensor], scale: Tensor) -> list[Tensor]:
    """Return the tensors with the features of each key multiplied by the exponential of ``scale``.

    Args:
        tensors: Features, values and the drawn tensor, as :meth:`Weighted.given` returns them.
        scale: Logarithm of the factor of each key, ``(..., heads, n)``.
    """
    return [tensors[0], tensors[1] * scale.exp()[..., None], *tensors[2:]]


def attended(
    case: Weighted,
    run: Mode,
    tensors: Sequence[Tensor],
    causal: bool,
    mode: str | None,
    **more: Any,
) -> Tensor:
    """Return the result of the package's ``linear_attention``, run in a mode of execution.

    Args:
        case: The weight.
        run: Mode of execution.
        tensors: Features, values and the drawn tensor, as :meth:`Weighted.given` returns them.
        causal: Whether attention is causal.
        mode: Algorithm for the sums, or None for the default of the weight.
        **more: Further arguments of :meth:`Weighted.attend`.
    """
    found: Tensor = run(lambda *t: case.attend(t, causal, mode, **more), *tensors)
    return found


def in_pieces(
    case: Weighted,
    tensors: Sequence[Tensor],
    cuts: Sequence[int],
    mode: str | None = None,
    run: Mode = EAGER,
    *,
    key_scale: Tensor | None = None,
    key_mask: Tensor | None = None,
) -> tuple[Tensor, Any]:
    """Return the output of causal attention, computed piece by piece, and the last state.

    Each piece of tokens starts from the state of the tokens before the piece.

    Args:
        case: The weight.
        tensors: Features, values and the drawn tensor, as :meth:`Weighted.given` returns them.
        cuts: Numbers of tokens after which a new piece begins.
        mode: Algorithm for the sums. Default: the default of the weight.
        run: Mode of execution. Default: eager.
        key_scale: Scales of all keys, which are cut like the tokens. Default: no scales.
        key_mask: Mask of all keys, which is cut like the tokens. Default: no mask.
    """
    n, state, out = tensors[2].shape[-2], None, []
    for start, end in itertools.pairwise((0, *(cut for cut in cuts if cut < n), n)):
        told: dict[str, Any] = {"state": state, "return_state": True}
        for name, x in (("key_scale", key_scale), ("key_mask", key_mask)):
            told[name] = None if x is None else x[..., start:end]

        def call(*t: Tensor, told: dict[str, Any] = told) -> Any:
            return case.attend(t, True, mode, n, **told)

        y, state = run(call, *case.piece(tensors, start, end))
        out.append(y)
    return torch.cat(out, -2), state


def _way(causal: bool, mode: str | None) -> str:
    return f"{'causal ' if causal else ''}attention{'' if mode is None else f' by {mode}'}"


@WEIGHT.holds()
def equals_the_dense_sum(case: Weighted, run: Mode) -> None:
    lengths = case.some(1, 2, 7, 31, 32, 33, 65, 100) if run is EAGER else case.some(7, 33)
    for n, normalize in itertools.product(lengths, {case.normalized, False}):
        tensors = case.given(n)
        for causal, mode in case.ways(run):
            expected = case.by_definition(tensors, causal, normalize)
            got = attended(case, run, tensors, causal, mode, normalize=normalize)
            limit = EXACT if normalize else 1e-11 + EXACT * expected.abs().max().item()
            close(got, expected, limit, f"{_way(causal, mode)} of {n} tokens")


@WEIGHT.holds(core=True)
def gradients_equal_those_of_the_dense_sum(case: Weighted, run: Mode) -> None:
    for n in case.some(1, 7, 70) if run is EAGER else case.some(7):
        leaves = [x.requires_grad_() for x in case.given(n)]
        learned = [*leaves, *case.parameters]
        for causal in case.causal:
            expected = EAGER.gradients(case.by_definition(leaves, causal), learned)
            for _, mode in case.ways(run, causal=(causal,)):
                got = run.gradients(attended(case, run, leaves, causal, mode), learned)
                each_close(got, expected, 1e-10, f"a gradient of {_way(causal, mode)}")


@WEIGHT.holds()
def torch_func_takes_the_same_gradients(case: Weighted, run: Mode) -> None:
    n = case.length(7, run)
    tensors = case.given(n)
    for causal, mode in case.ways(EAGER):

        def loss(*t: Tensor, causal: bool = causal, mode: str | None = mode) -> Tensor:
            return case.attend(t, causal, mode).pow(3).sum()

        leaves = [x.clone().requires_grad_() for x in tensors]
        expected = torch.autograd.grad(
            loss(*leaves), leaves, allow_unused=True, materialize_grads=True
        )
        with run.around():
            got = torch.func.grad(loss, tuple(range(len(tensors))))(*tensors)
        each_close(got, expected, 1e-10, f"a gradient of torch.func of {_way(causal, mode)}")


@WEIGHT.holds()
def the_lines_of_a_graph_say_the_same(case: Weighted, run: Mode) -> None:
    """Check in eager mode the code that a compiler or an exporter would trace.

    In eager mode this code is fast enough to try many lengths, algorithms and states.
    """
    if run is not EAGER:
        skip()
    for exported, n in itertools.product((False, True), case.some(1, 33, 140)):
        leaves = [x.requires_grad_() for x in case.given(n)]
        scale = 8 * random(2, case.heads, n, seed=4).clamp(0, 1)
        for (causal, mode), by in itertools.product(case.ways(run), (None, scale)):
            if by is not None and causal and mode == "fft":
                continue  # a causal FFT does not accept a scale

            def call(
                causal: bool = causal, mode: str | None = mode, by: Tensor | None = by
            ) -> Tensor:
                if causal and case.carries:
                    return in_pieces(case, leaves, (n // 2,), mode, key_scale=by)[0]  # noqa: B023
                out: Tensor = case.attend(leaves, causal, mode, key_scale=by)  # noqa: B023
                return out

            want = call()
            with lines_of_a_graph(exported):
                got = call()
                found = EAGER.gradients(got, leaves)
            what = f"{_way(causal, mode)} of {n} tokens"
            close(got, want, EXACT, what)
            each_close(found, EAGER.gradients(want, leaves), 1e-10, f"a gradient of {what}")


@WEIGHT.holds(core=True)
def any_number_of_tokens_batches_and_heads_of_one_graph(case: Weighted, run: Mode) -> None:
    sizes = (33, 2), (140, 3), (9, 4), (2, 5)
    if len(case.some(*(n for n, _ in sizes))) < 4 or case.draw is not None:
        skip()  # the weight is for one length
    for causal in case.causal:

        def call(q: Tensor, k: Tensor, v: Tensor, causal: bool = causal) -> Any:
            weight = case.build(None, 140, 0)
            return linear_attention(q, k, v, weight, causal, normalize=case.normalized)

        program = None
        for n, batch in sizes:
            tensors = case.given(n, (batch,))
            free = ((0, 2), (0, 2), (0, 2))
            program = program or run.prepared(call, *tensors, free=free)
            with run.around():
                got = program(*tensors)
            q, k, v = tensors
            what = f"{_way(causal, None)} of {batch} times {n} tokens"
            close(got, call(q, k, v), EXACT, what)


@WEIGHT.holds()
def later_tokens_do_not_change_earlier_outputs(case: Weighted, run: Mode) -> None:
    n = case.length(70, run)
    t = n // 2
    for causal, mode in case.ways(run, causal=(True,)):
        tensors = case.given(n)
        before = attended(case, run, tensors, causal, mode)
        for x in tensors[:3]:
            x[..., t + 1 :, :] = 50 * x[..., t + 1 :, :].flip(-2)
        after = attended(case, run, tensors, causal, mode)
        # rounding errors of the FFT are relative to the largest values, including later tokens
        limit = 1e-9 if mode == "fft" else EXACT
        what = f"an earlier output of {_way(causal, mode)}"
        close(after[..., : t + 1, :], before[..., : t + 1, :], limit, what)
        changed = (before - after)[..., t + 1 :, :].abs().max() if n > t + 1 else 1
        true(
            changed > 1e-3,
            f"later outputs must change by more than 1e-3 with a token, got {changed:.1e}",
        )


@WEIGHT.holds()
def batches_heads_and_strides_do_not_matter(case: Weighted, run: Mode) -> None:
    n = case.length(9, run)
    for batch in ((), (1,), (2, 3)) if run.cheap else ((2, 3),):
        for causal, mode in case.ways(run):
            tensors = case.given(n, batch)
            odd = [x.transpose(-3, -2).contiguous().transpose(-3, -2) for x in tensors[:3]]
            got = attended(case, run, [*odd, *tensors[3:]], causal, mode)
            what = f"{_way(causal, mode)} with a batch of shape {batch}"
            close(got, case.by_definition(tensors, causal), EXACT, what)


@WEIGHT.holds()
def padded_keys_have_no_influence(case: Weighted, run: Mode) -> None:
    n = case.length(40, run)
    for (causal, mode), with_scale in itertools.product(case.ways(run), (False, True)):
        if with_scale and causal and mode == "fft":
            continue  # a causal FFT does not accept a scale
        for normalize in {case.normalized, False}:
            _padded(case, run, n, causal, mode, with_scale, normalize)


def _padded(
    case: Weighted,
    run: Mode,
    n: int,
    causal: bool,
    mode: str | None,
    with_scale: bool,
    normalize: bool,
) -> None:
    tensors = case.given(n, (3,))
    mask = torch.stack([random(n) > 0.1, torch.arange(n) < 2 * n // 3, torch.zeros(n).bool()])
    mask[0, 0] = mode == "fft"  # which is imprecise for early queries without keys
    scale = random(3, case.heads, n, seed=5).clamp(-1, 1) * with_scale
    kept = scaled(tensors, scale)
    kept[1] = kept[1] * mask[:, None, :, None]
    expected = case.by_definition(kept, causal, normalize).nan_to_num()  # without keys 0, not 0 / 0
    for x in (tensors[1], tensors[2], scale[..., None]):  # padding may contain anything
        x.masked_fill_(~mask[:, None, :, None], torch.nan)
    leaves = [x.requires_grad_() for x in tensors]
    limit = EXACT if normalize else 1e-11 + EXACT * expected.abs().max().item()
    what = f"{_way(causal, mode)} with padding"

    def attend(mask: Tensor, scale: Tensor, *tensors: Tensor) -> Tensor:
        options: dict[str, Any] = {"key_mask": mask, "key_scale": scale if with_scale else None}
        out: Tensor = case.attend(tensors, causal, mode, normalize=normalize, **options)
        return out

    for shape in ((3, n), (3, 1, n), (3, case.heads, n)) if run.cheap else ((3, n),):
        by_head = mask.view(3, *(1,) * (len(shape) - 2), n).expand(shape)
        got = run(attend, by_head, scale, *leaves)
        close(got, expected, limit, what)
    for one in range(3) if run is EAGER else ():  # a mask for the whole batch
        out = attend(mask[one], scale, *leaves)
        close(out[one], expected[one], limit, what)
    found = run.gradients(got, leaves)
    true(all(g.isfinite().all() for g in found), f"gradients of {what} must be finite")
    padding = [g.masked_select(~mask[:, None, :, None]) for g in found[1:3]]
    true(
        all((g == 0).all() for g in padding),
        f"the gradient of a padded key or value must be 0 in {what}",
    )


@WEIGHT.holds()
def a_query_similar_to_no_key_gets_zero_and_finite_gradients(case: Weighted, run: Mode) -> None:
    n = case.length(6, run)
    last = min(2, n - 1)
    for causal, mode in case.ways(run):
        for what in ("queries", "keys"):
            tensors = case.given(n)
            if what == "queries":
                tensors[0][..., last, :].zero_()
            else:
                tensors[1].zero_()
            leaves = [x.requires_grad_() for x in tensors]
            out = attended(case, run, leaves, causal, mode)
            said = f"{_way(causal, mode)} where {what} are 0"
            true((out[..., last, :] == 0).all(), f"{said} must be 0")
            true(out.isfinite().all(), f"{said} must be finite")
            finite = all(g.isfinite().all() for g in run.gradients(out, leaves))
            true(finite, f"gradients of {said} must be finite")
        true((out == 0).all(), f"{said} must be 0")


@WEIGHT.holds()
def gradients_of_tiny_features_are_finite(case: Weighted, run: Mode) -> None:
    if not case.normalized:
        skip()
    n = case.length(37, run)
    sizes_tried = (3e-21, 7e-20), (2e-38, 1.0), (1.0, 4e-39)
    for (causal, mode), sizes in itertools.product(case.ways(run), sizes_tried):
        tensors = case.given(n)
        tiny = [
            (size * x).float().requires_grad_()
            for x, size in zip(tensors, (*sizes, 1.0), strict=False)
        ]
        out = attended(case, run, [*tiny, *(x.float() for x in tensors[3:])], causal, mode)
        wide = [x.detach().double().requires_grad_() for x in tiny]
        exact = case.by_definition([*wide, *tensors[3:]], causal)
        what = f"{_way(causal, mode)} with features of {min(sizes):.0e}"
        close(out.double(), exact, 1e-4, what)
        with run.around():
            found = torch.autograd.grad(out.square().sum(), tiny)
        true(all(x.isfinite().all() for x in found), f"gradients of {what} must be finite")
        if min(sizes) > 1e-30:  # the gradient itself can be represented
            for a, b in zip(found, torch.autograd.grad(exact.square().sum(), wide), strict=True):
                close(a.double(), b, 1e-4 * b.abs().max().item(), f"a gradient of {what}")


@WEIGHT.holds()
def dtype_in_is_dtype_out(case: Weighted, run: Mode) -> None:
    n = case.length(50, run)
    dtypes = (torch.float32, torch.bfloat16, torch.float16) if run.cheap else (torch.bfloat16,)
    for (causal, mode), dtype in itertools.product(case.ways(run), dtypes):
        tensors = case.given(n)
        low = narrow(tensors, dtype)
        got = attended(case, run, low, causal, mode)
        what = f"{_way(causal, mode)} in {dtype}"
        true(got.dtype == dtype, f"{what} must be {dtype}, got {got.dtype}")
        exact = case.by_definition([*(x.double() for x in low[:3]), *tensors[3:]], causal)
        # sums are computed in float32 or wider, so half precision only rounds the result
        digits = (8 if case.normalized else 16) * torch.finfo(dtype).eps
        close(got.double(), exact, digits * max(1.0, exact.abs().max().item()), what)
        if not case.parameters:  # a data-dependent weight has projections, which autocast affects
            with torch.autocast("cpu", dtype=torch.bfloat16):
                close(attended(case, run, low, causal, mode), got, 0.0, f"{what} under autocast")


@WEIGHT.holds()
def nan_in_nan_out(case: Weighted, run: Mode) -> None:
    n = case.length(8, run)
    last = min(3, n - 1)
    for causal, mode in case.ways(run):
        tensors = case.given(n)
        tensors[0][..., last, 0] = torch.nan
        out = attended(case, run, tensors, causal, mode)
        what = _way(causal, mode)
        true(out[..., last, :].isnan().all(), f"a query with NaN must give NaN in {what}")
        tensors = case.given(n)
        tensors[1][0, 0, last, 0] = torch.nan
        out = attended(case, run, tensors, causal, mode)
        true(out[0, 0, last:].isnan().all(), f"a key with NaN must give NaN in {what}")
        true(out[0, 1:].isfinite().all(), f"a NaN must stay in its head in {what}")
        true(out[1].isfinite().all(), f"a NaN must stay in its batch entry in {what}")


@WEIGHT.holds()
def no_tokens(case: Weighted, run: Mode) -> None:
    shapes = ((1, (0,)),) if case.draw is not None else ((0, ()), (0, (2,)), (1, (0,)))
    for (causal, mode), (n, batch) in itertools.product(case.ways(run), shapes):
        if run.name == "exported" or (case.lengths and n not in case.lengths):
            continue
        tensors = case.given(n, batch)
        leaves = [x.requires_grad_() for x in tensors[:3]]
        out = attended(case, run, [*leaves, *tensors[3:]], causal, mode)
        true(
            out.shape == leaves[2].shape,
            f"{_way(causal, mode)} of no tokens must have the shape of the values, "
            f"{tuple(leaves[2].shape)}, got {tuple(out.shape)}",
        )
        out.sum().backward()


@WEIGHT.holds()
def the_numbers_of_keys_and_queries_may_differ(case: Weighted, run: Mode) -> None:
    if False not in case.causal or not case.rectangular:
        skip()
    sizes = (3, 8), (8, 3), (1, 5), (4, 0), (40, 3), (3, 40)
    for queries, keys in sizes if run.cheap else sizes[:2]:
        n = max(queries, keys)
        if case.lengths and n not in case.lengths:
            continue
        phi_q, phi_k, v, *made = case.given(n)
        cut = phi_q[..., :queries, :], phi_k[..., :keys, :], v[..., :keys, :]
        weights = case.dense(made[0] if made else None, n)
        assert weights is not None  # a rectangular weight has a matrix
        weights = weights[..., :queries, :keys]
        for normalize, mode in itertools.product((True, False), (None, "parallel")):
            if run.name == "exported" and keys == 0:
                continue
            out = attended(case, run, [*cut, *made], False, mode, length=n, normalize=normalize)
            expected = dense_attention(*cut, weights, False, normalize).nan_to_num()
            close(out, expected, EXACT, f"{queries} queries and {keys} keys")


CUTS = ((1,), (33,), (32, 64), (0, 5, 6, 6, 7, 50), tuple(range(1, 70)))


@WEIGHT.holds()
def a_state_is_all_that_later_tokens_need(case: Weighted, run: Mode) -> None:
    if not case.carries:
        skip()
    n = case.length(70, run)
    tensors = case.given(n)
    tried = itertools.product((mode for _, mode in case.ways(run, causal=(True,))), (False, True))
    for mode, with_scale in tried:
        scale = 8 * random(2, case.heads, n, seed=4).clamp(0, 1) if with_scale else None
        whole = case.attend(tensors, key_scale=scale)
        for cuts in CUTS if run is EAGER else CUTS[:1]:
            step = EAGER if run.name == "batched" else run  # state.length is no tensor
            out, state = in_pieces(case, tensors, cuts, mode, step, key_scale=scale)
            true(state.length == n, f"a state must have length {n}, got {state.length}")
            close(out, whole, EXACT, f"{_way(True, mode)} in pieces at {cuts[:5]}")


@WEIGHT.holds()
def gradients_flow_through_a_carried_state(case: Weighted, run: Mode) -> None:
    if not case.carries:
        skip()
    n = case.length(40, run)
    leaves = [x.requires_grad_() for x in case.given(n)]
    with run.around():
        out, _ = in_pieces(case, leaves, (n // 2,))
    learned = [*leaves, *case.parameters]
    got = run.gradients(out, learned)
    expected = EAGER.gradients(case.attend(leaves), learned)
    each_close(got, expected, 1e-10, "a gradient through a state")


@WEIGHT.holds()
def a_scale_kept_apart_equals_one_multiplied_in(case: Weighted, run: Mode) -> None:
    n = case.length(12, run)
    scale = (4 * random(2, case.heads, n, seed=4).clamp(-1, 1)).requires_grad_()
    leaves = [*(x.requires_grad_() for x in case.given(n)), scale]
    for normalize in {case.normalized, False}:
        for causal, mode in case.ways(run):
            if causal and mode == "fft":
                continue  # a causal FFT does not accept a scale
            expected = case.by_definition(scaled(leaves[:-1], scale), causal, normalize)
            wanted = EAGER.gradients(expected, leaves)
            more = 1 if normalize else 100

            def call(
                *t: Tensor, causal: bool = causal, mode: str | None = mode, by: bool = normalize
            ) -> Any:
                return case.attend(t[:-1], causal, mode, normalize=by, key_scale=t[-1])

            got = run(call, *leaves)
            what = f"{_way(causal, mode)} with a scale"
            close(got, expected, more * EXACT, what)
            each_close(run.gradients(got, leaves), wanted, more * 1e-11, f"a gradient of {what}")


@WEIGHT.holds()
def scales_far_beyond_float32_are_harmless(case: Weighted, run: Mode) -> None:
    n = case.length(90, run)
    scale = 200 * random(2, case.heads, n, seed=4).clamp(-1, 1)
    tensors = case.given(n)
    if not case.normalized:
        skip()
    for causal in case.causal:
        exact = case.attend(tensors, causal, key_scale=scale)  # e^200 overflows in float32
        low = narrow(tensors, torch.float32)
        got = attended(case, run, low, causal, None, key_scale=scale.float())
        true(got.dtype == torch.float32, f"outputs for float32 must be float32, got {got.dtype}")
        close(got.double(), exact, 2e-5, f"{_way(causal, None)} with scales up to e^200")
        shifted = attended(case, run, tensors, causal, None, key_scale=scale + 1000)
        close(shifted, exact, 1e-11, f"{_way(causal, None)} with all scales e^1000 times as large")


@WEIGHT.holds()
def a_scale_of_minus_infinity_is_a_factor_of_zero(case: Weighted, run: Mode) -> None:
    if not case.normalized:
        skip()
    n = case.length(7, run)
    absent = torch.tensor([1, 1, 0, 0, 1, 0, 1]).bool().repeat(n)[:n]
    for causal in case.causal:
        tensors, scale = case.given(n), (4 * random(2, case.heads, n, seed=4)).requires_grad_()

        def call(scale: Tensor, *t: Tensor, causal: bool = causal) -> Any:
            return case.attend(t, causal, key_scale=scale.masked_fill(absent, -torch.inf))

        hidden = scale.masked_fill(absent, -torch.inf)
        expected = case.by_definition(scaled(tensors, hidden), causal).nan_to_num()
        got = run(call, scale, *tensors)
        close(got, expected, EXACT, f"{_way(causal, None)} with a scale of −∞")
        (gradient,) = run.gradients(got, [scale])
        true(gradient.isfinite().all(), "the gradient of a scale must be finite")
        true((gradient[..., absent] == 0).all(), "the gradient of a scale of −∞ must be 0")


@WEIGHT.holds()
def gradients_stay_finite_however_far_scales_are_apart(case: Weighted, run: Mode) -> None:
    if True not in case.causal or not case.normalized:
        skip()
    n = case.length(12, run)
    leaves = [x.requires_grad_() for x in case.given(n)]
    scale = (1e4 * random(2, case.heads, n, seed=4)).requires_grad_()
    out = run(lambda s, *t: case.attend(t, key_scale=s), scale, *leaves)
    # the key with the largest scale so far has all the weight
    loudest = scale.cummax(-1).indices[..., None].expand_as(out)
    close(out, leaves[2].gather(-2, loudest), EXACT, "attention to the key of the largest scale")
    finite = all(g.isfinite().all() for g in run.gradients(out, [*leaves, scale]))
    true(finite, "gradients must be finite")


@WEIGHT.holds()
def padding_between_pieces_changes_no_scale(case: Weighted, run: Mode) -> None:
    """Check that a state keeps its keys if all, or the first, of the next tokens are padding."""
    if not case.carries or not case.normalized or not run.cheap or run.name == "batched":
        skip()
    n = case.length(6, run)
    tensors, loud = case.given(n), torch.arange(n) > 3
    scale = 8 * random(2, case.heads, n, seed=4).clamp(0, 1)
    for kept, level in itertools.product(
        ("001011", "110011", "100110", "000001"), (-1000.0, 1000.0)
    ):
        mask = torch.tensor([x == "1" for x in kept.ljust(n, "1")[:n]])
        # the scales of later keys are so large that a query gives them all its weight
        late, early = (
            case.by_definition(scaled(tensors, scale.masked_fill(~(mask & heard), -torch.inf)))
            for heard in (loud, ~loud)
        )
        has_late = (mask & loud).cumsum(0).bool()[:, None]
        expected = torch.where(has_late, late, early).nan_to_num()
        for cuts in ((), (2, 4), (1, 2, 3, 4, 5), (4,)):
            loudness = scale + level + 900 * loud
            with run.around():
                out, _ = in_pieces(case, tensors, cuts, key_scale=loudness, key_mask=mask)
            close(out, expected, EXACT, f"keys {kept} in pieces at {cuts}")


@WEIGHT.holds()
def no_sum_makes_a_tensor_on_another_device(case: Weighted, run: Mode) -> None:
    n = case.length(33, run)
    for causal, mode in case.ways(EAGER):
        q, k, v, *made = (x.to("meta") for x in case.given(n))
        if made:
            weight = case.build(made[0], n, 0)
        else:
            weight = copy.deepcopy(case.build(None, n, 0))
            weight = None if weight is None else weight.to("meta")
        way = (q, k, v, weight, causal, case.normalized, mode)
        for out in on_meta(lambda way=way: linear_attention(*way)):  # type: ignore[misc]
            true(
                out.is_meta and out.shape == v.shape,
                f"the result must have shape {tuple(v.shape)} and be on meta, got "
                f"{tuple(out.shape)} on {out.device}",
            )


@WEIGHT.holds()
def sixteen_thousand_tokens_in_float32(case: Weighted, run: Mode) -> None:
    if case.lengths or case.draw is not None or not case.carries or run is not EAGER:
        skip()
    tensors = case.given(16384, ())
    low = case.attend(narrow(tensors, torch.float32))
    close(low.double(), case.attend(tensors), 2e-4, "a sum of sixteen thousand tokens")
