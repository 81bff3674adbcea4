"""Contract of feature maps, the list of the properties that every feature map must have."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from stringlib.attention.features import FeatureMap
from stringlib.attention.linear import CONSTANT, attend
from stringlib.testing.contract import Contract, close, each_close, refused, skip, true
from stringlib.testing.modes import EAGER, Mode
from stringlib.testing.modules import Held, holds_of_modules
from stringlib.testing.weights import EXACT, dense_attention, random

FEATURE_MAP = Contract()


@dataclass(frozen=True)
class Mapped:
    """A feature map to be checked, and the properties that are expected of it.

    Attributes:
        make: Function that returns the map in float64, with the same random numbers at each call.
        plain: Independent implementation of the features, which is called as ``plain(phi, x)``
            with the map ``phi`` and vectors x, ``(..., heads, n, d)``. This function reads the
            random vectors of the map. The features that the function returns may differ from those
            of the map by a factor per token. None if there is no independent implementation.
        head_dim: Number of channels of a head.
        heads: Number of heads.
        exponential: Whether the inner product of the features of x and y estimates exp(xᵀy). A
            layer then has to multiply queries and keys by head_dim^(−1/4).
        nonnegative: Whether no feature is ever negative.
        stabilized: Whether the map divides its features by factors that depend on the tokens and
            cancel in attention, to prevent overflow.
    """

    make: Callable[[], FeatureMap]
    plain: Callable[[FeatureMap, Tensor], Tensor] | None
    head_dim: int = 5
    heads: int = 3
    exponential: bool = False
    nonnegative: bool = True
    stabilized: bool = False

    def tokens(self, *batch: int, n: int = 7, seed: int = 0) -> Tensor:
        """Return random vectors, ``(*batch, heads, n, head_dim)``."""
        return random(*batch, self.heads, n, self.head_dim, seed=seed)

    def qkv(self, n: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return random queries, keys and values of n tokens, with a batch dimension of 2."""
        return (*self.tokens(2, 2, n=n), random(2, self.heads, n, 3, seed=1))

    def attend(self, phi: FeatureMap, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        """Return the outputs of causal linear attention with scaled keys, as a layer computes them.

        Args:
            phi: The feature map.
            q: Queries, ``(..., heads, n, head_dim)``.
            k: Keys, of the same shape.
            v: Values, ``(..., heads, n, d_v)``.
            **options: Further arguments of :func:`~stringlib.attention.linear.attend`, of which
                this is the first result.
        """
        return self.attend_and_state(phi, q, k, v, **options)[0]

    def attend_and_state(
        self, phi: FeatureMap, q: Tensor, k: Tensor, v: Tensor, **options: Any
    ) -> tuple[Tensor, Any]:
        """Return the outputs of :meth:`attend`, and the state after the last token."""
        features, scale = phi.scaled_keys(k)
        options = {"normalize": phi.normalized, "key_scale": scale, **options}
        return attend(phi(q), features, v, CONSTANT, True, **options)


def all_of(phi: FeatureMap, x: Tensor) -> tuple[Tensor, ...]:
    """Return all results of a feature map.

    The results are, in this order:

    - the features of the vectors as queries;
    - the features of the vectors as keys;
    - the features of the vectors as keys that ``scaled_keys`` returns, without a factor per key;
    - the logarithms of the factors of all keys, if there are any.
    """
    features, scale = phi.scaled_keys(x)
    return (phi(x), phi(x, is_query=False), features, *(() if scale is None else (scale,)))


@FEATURE_MAP.holds()
def features_have_the_sign_shape_and_scale_that_they_say(case: Mapped, run: Mode) -> None:
    phi = case.make()
    told = f"nonnegative must be {case.nonnegative}, got {phi.nonnegative}"
    true(phi.nonnegative == case.nonnegative, told)
    scale = case.head_dim**-0.25
    allowed = (scale,) if case.exponential else (1.0, scale)
    right = any(abs(phi.scale - one) < 1e-9 for one in allowed)
    true(right, f"scale must be {' or '.join(f'{one:.4f}' for one in allowed)}, got {phi.scale}")
    m = phi(torch.zeros(case.heads, 1, case.head_dim).double()).shape[-1]
    for batch, n in (((), 3), ((2,), 1), ((2, 3), 4), ((2,), 0), ((0,), 4)):
        if run.name == "exported" and 0 in (n, *batch):
            continue
        x = case.tokens(*batch, n=n)
        *features, last = run(lambda x: all_of(phi, x), x)
        if case.exponential:
            shape, got = tuple(x.shape[:-1]), tuple(last.shape)
            true(got == shape, f"scaled_keys must return one scale per key, {shape}, got {got}")
        else:
            features.append(last)
        for y in features:
            shape = (*x.shape[:-1], m)
            true(y.shape == shape, f"features must have shape {shape}, got {tuple(y.shape)}")
            true(
                (y >= 0).all() or not case.nonnegative,
                "features must not be negative if nonnegative is True, got a negative feature",
            )


@FEATURE_MAP.holds()
def features_are_those_of_their_formula(case: Mapped, run: Mode) -> None:
    if case.plain is None:
        skip()
    assert case.plain is not None
    phi = case.make()
    q, k, v = case.qkv(11)
    for causal in (False, True):
        got = run(
            lambda q, k: attend(
                *(phi(q), phi(k, is_query=False), v, CONSTANT, causal),  # noqa: B023
                normalize=phi.normalized,
            )[0],
            *(q, k),
        )
        ones = torch.ones(()).double()
        plain = case.plain(phi, q), case.plain(phi, k)
        expected = dense_attention(*plain, v, ones, causal, phi.normalized)
        # with ReLU a query may have a product of 0 with every key; the output is then 0
        close(got, expected.nan_to_num(), EXACT, "attention by the formula")


@FEATURE_MAP.holds()
def scaled_keys_times_their_scales_are_the_keys(case: Mapped, run: Mode) -> None:
    phi = case.make()
    q, k, v = case.qkv(25)
    got = run(lambda q, k, v: case.attend(phi, q, k, v), q, k, v)
    plain = phi(q), phi(k, is_query=False)
    want = attend(*plain, v, CONSTANT, True, normalize=phi.normalized)[0]
    close(got, want, EXACT, "attention with scales of the keys")


@FEATURE_MAP.holds(core=True)
def gradients_are_the_derivatives(case: Mapped, run: Mode) -> None:
    phi = case.make()
    learned = list(phi.parameters())
    q, k, v = (x.requires_grad_() for x in case.qkv(4))

    # attention, because in it the factors that a map leaves out cancel
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        found: Tensor = case.attend(phi, q, k, v)
        return found

    if run is EAGER:
        torch.autograd.gradcheck(attend, (q, k, v), fast_mode=True)
        return
    leaves = [q, k, v, *learned]
    expected = EAGER.gradients(attend(q, k, v), leaves)
    found = run.gradients(run(attend, q, k, v), leaves)
    each_close(found, expected, 1e-11, "a gradient")


HALF = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
"""Largest accepted error of attention in half precision, by dtype.

The error is relative to the largest absolute value of the exact result, or to 1 if that is larger.
"""


@FEATURE_MAP.holds()
def half_precision_rounds_features_at_most_once_and_autocast_never(case: Mapped, run: Mode) -> None:
    """Check features in half precision, which have the dtype of the vectors or float32."""
    phi = case.make().float()
    for dtype in HALF:
        x = case.tokens(2).to(dtype)
        for is_query in (True, False):

            def features(x: Tensor, is_query: bool = is_query) -> Tensor:
                return phi(x, is_query)

            wide, got = run(features, x.float()), run(features, x)
            told = f"features of {dtype} must be {dtype} or float32, got {got.dtype}"
            true(got.dtype in (dtype, torch.float32), told)
            close(got, wide.to(got.dtype), 0.0, f"a feature in {dtype}")
            with torch.autocast("cpu", dtype=torch.bfloat16):
                close(run(features, x.float()), wide, 0.0, "a feature under autocast")
        narrow, scale = phi.scaled_keys(x)
        told = f"features of {dtype} must be {dtype} or float32, got {narrow.dtype}"
        true(narrow.dtype in (dtype, torch.float32), told)
        wide_enough = scale is None or scale.dtype == torch.float32
        kind = None if scale is None else scale.dtype
        true(wide_enough, f"scales of keys in {dtype} must be {torch.float32}, got {kind}")


@FEATURE_MAP.holds()
def half_precision_attends_and_learns_as_float32_does(case: Mapped, run: Mode) -> None:
    """Check attention in half precision and its gradients for vectors of several lengths.

    Attention in float32 is the expected result. The map and the vectors are rounded to half
    precision first, so that half precision and float32 start from the same numbers.
    """
    for length in (1.0, 4.0, 12.0):
        for dtype, limit in HALF.items():
            narrow = case.make().to(dtype)
            wide = copy.deepcopy(narrow).float()
            q, k, v = (x.to(dtype) for x in case.qkv(30))
            q, k = (length * x / x.float().norm(dim=-1, keepdim=True).to(dtype) for x in (q, k))
            found = []
            for phi, used, mode in ((wide, torch.float32, EAGER), (narrow, dtype, run)):
                leaves = [x.to(used).requires_grad_() for x in (q, k, v)]
                out = mode(lambda q, k, v, phi=phi: case.attend(phi, q, k, v), *leaves)
                true(out.dtype == used, f"attention in {used} must be {used}, got {out.dtype}")
                found.append([out, *mode.gradients(out.float(), leaves)])
            for want, got in zip(*found, strict=True):
                what = f"attention in {dtype}, or a gradient, for vectors of length {length}"
                known = want.isfinite()  # without a stabiliser float32 may overflow too
                true(bool(got[known].isfinite().all()), f"{what} must be finite, as in float32")
                got, want = (x.float().where(known, 0) for x in (got, want))
                close(got, want, limit * max(want.abs().max().item(), 1.0), what)


@FEATURE_MAP.holds()
def later_tokens_change_nothing_and_nan_stays_in_its_token(case: Mapped, run: Mode) -> None:
    """Check causal attention after a change of later keys, and features where a token has a NaN."""
    phi = case.make()
    q, k, v = case.qkv(40)
    if not phi.normalized:
        skip()

    def attended(k: Tensor) -> Tensor:
        return case.attend(phi, q, k, v)

    loud = torch.cat([k[..., :20, :], 9 * k[..., 20:, :].flip(-2)], -2)
    before, after = run(attended, k), run(attended, loud)
    close(after[..., :20, :], before[..., :20, :], 0.0, "an output before a changed key")
    true(
        not torch.equal(after[..., 20:, :], before[..., 20:, :]),
        "outputs after a changed key must change, got the same outputs",
    )
    x = case.tokens(2)
    x[0, 0, 2, 0] = torch.nan
    for features in (phi(x), phi.scaled_keys(x)[0]):
        true(features[0, 0, 2].isnan().any(), "a NaN in a token must give a NaN in its features")
        true(features.isnan().any(-1).sum() == 1, "a NaN must stay in its token")


@FEATURE_MAP.holds()
def long_vectors_stay_finite(case: Mapped, run: Mode) -> None:
    phi = case.make().float()
    for length in (10, 30):
        q, k, v = (x.float() for x in case.qkv(30))
        k = length * k / k.norm(dim=-1, keepdim=True) * torch.rand(30, 1)
        q = length * q / q.norm(dim=-1, keepdim=True)
        if not phi.nonnegative or not case.stabilized:
            skip()
        out = run(lambda q, k: case.attend(phi, q, k, v), q, k)  # noqa: B023
        true(out.isfinite().all(), f"attention to vectors of length {length} must be finite")
        # at length 30 the products of a query with its only key may all underflow in float32
        if length == 10:
            wide = case.make()
            exact = case.attend(wide, q.double(), k.double(), v.double())
            close(out.double(), exact, 1e-3, "attention to vectors of length 10")


@FEATURE_MAP.holds()
def prefill_and_decoding_equal_the_whole_sequence(case: Mapped, run: Mode) -> None:
    phi = case.make()
    q, k, v = 3 * case.tokens(2, 2, n=25)[0], 3 * case.tokens(2, 2, n=25)[1], case.qkv(25)[2]
    whole, state, out = case.attend(phi, q, k, v), None, []
    with run.around():
        for start, end in [(0, 13), *((i, i + 1) for i in range(13, 25))]:
            part = (x[..., start:end, :] for x in (q, k, v))
            y, state = case.attend_and_state(phi, *part, state=state)
            out.append(y)
    close(torch.cat(out, -2), whole, EXACT * (1 + whole.abs().max().item()), "decoding")


@FEATURE_MAP.holds(core=True)
def any_number_of_tokens_and_batches(case: Mapped, run: Mode) -> None:
    phi = case.make()
    program = None
    for batch, n in ((2, 6), (3, 9), (4, 5)):
        x = case.tokens(batch, n=n)
        program = program or run.prepared(lambda x: all_of(phi, x), x, free=((0, 2),))
        with run.around():
            found = program(x)
        each_close(found, all_of(phi, x), EXACT, f"features of {batch} times {n} tokens")


holds_of_modules(FEATURE_MAP, lambda case: Held(case.make, all_of, (case.tokens(2, n=3, seed=4),)))


@FEATURE_MAP.holds()
def bad_input_is_refused_by_name_and_good_input_is_not_changed(case: Mapped, run: Mode) -> None:
    phi, x = case.make(), case.tokens(2)
    copied = x.clone()
    run(lambda x: all_of(phi, x), x)
    close(x, copied, 0.0, "an argument, which a call must not change,")
    refused(phi, x.long(), error=TypeError, words="x must be")
    refused(phi, [1.0], error=TypeError, words="x must be")
