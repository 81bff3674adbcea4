"""Kernelised attention: its forms, its state, its masks and its numbers, against literal twins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from stringlib import DecayWeight, ToeplitzWeight, linear_attention, reference
from stringlib.attention.weights import ConstantWeight
from stringlib.kernels import recurrence
from stringlib.kernels.decays import log_decay_matrix
from stringlib.kernels.recurrence import PLAIN_CHUNK as CHUNK
from stringlib.testing.properties import largest_difference
from tests.refusals import refusals
from tests.test_dense_weight import Given
from tests.watched import Watched

MODES = ("parallel", "recurrent", "chunk")
EXACT = 1e-12


def draw(*shape: int, seed: int = 0) -> Tensor:
    """Return positive float64 numbers."""
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def tokens(n: int, heads: int = 2, m: int = 3, d_v: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    values = draw(heads, n, d_v, seed=3) - 0.5
    return draw(heads, n, m, seed=1), draw(heads, n, m, seed=2), values


@pytest.mark.proves("eq-linear-attention", "eq-linear-ones")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("normalize", [True, False])
def test_the_sum_equals_the_double_sum(causal: bool, normalize: bool) -> None:
    phi_q, phi_k, v = tokens(7)
    got = linear_attention(phi_q, phi_k, v, ConstantWeight(), causal, normalize)
    for ones in (None, ConstantWeight().matrix(7, 7).expand(2, 7, 7)):
        expected = reference.linear_attention(phi_q, phi_k, v, ones, causal, normalize)
        assert largest_difference(got, expected) <= EXACT


@pytest.mark.proves("eq-linear-state", "eq-linear-chunk")
@pytest.mark.parametrize("mode", [None, *MODES])
@pytest.mark.parametrize("n", [1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 3])
def test_matrix_recurrence_and_chunks_equal_their_literal_form(mode: str | None, n: int) -> None:
    phi_q, phi_k, v = tokens(n)
    out, state = linear_attention(phi_q, phi_k, v, causal=True, mode=mode, return_state=True)
    by_recurrence, S, z = reference.recurrent_attention(phi_q, phi_k, v)
    assert largest_difference(out, by_recurrence) <= EXACT
    assert largest_difference(state.sums, torch.cat([S, z[..., None]], -1)) <= EXACT
    assert (state.length, state.log_scale) == (n, None)


@pytest.fixture
def all_chunks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few tokens of few heads be computed as many are that two threads share."""
    monkeypatch.setattr(recurrence, "PLAIN_CHUNK", 2)
    monkeypatch.setattr(recurrence, "FEW_CHUNKS", 1)
    # not two threads: on a busy machine they wait for each other thousands of times
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)


@pytest.mark.usefixtures("all_chunks_at_once")
@pytest.mark.parametrize("n", [3, 6, 7])
def test_what_threads_share_is_the_same(n: int) -> None:
    def sums(q: Tensor, k: Tensor, u: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return recurrence.causal_sums(q, k, u, state=state)

    def by_token(*x: Tensor) -> tuple[Tensor, Tensor]:
        return recurrence.causal_sums(*x[:3], mode="recurrent", state=x[3])

    given = (*tokens(n), draw(2, 3, 5, seed=4))
    tangents = tuple(draw(*x.shape, seed=5) for x in given)
    (found, moved), (want, wanted) = (torch.func.jvp(f, given, tangents) for f in (sums, by_token))
    for one, other in zip((*found, *moved), (*want, *wanted), strict=True):
        assert largest_difference(one, other) <= EXACT
    batch = tuple(torch.stack([x, x.flip(-1)]) for x in given)
    alone = torch.stack([by_token(*(x[i] for x in batch))[0] for i in (0, 1)])
    assert largest_difference(torch.func.vmap(sums)(*batch)[0], alone) <= EXACT
    leaves = [x.requires_grad_() for x in given]
    assert torch.autograd.gradcheck(sums, leaves, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(sums, leaves)


def test_gradients_of_gradients() -> None:
    leaves = [x.requires_grad_() for x in tokens(5)]
    assert torch.autograd.gradgradcheck(
        lambda *x: linear_attention(*x, causal=True, mode="chunk"), leaves
    )


def test_a_mask_may_have_the_batch_that_keys_and_values_have_not() -> None:
    phi_q, phi_k, v = tokens(6)
    mask = torch.tensor([[True] * 6, [False] + [True] * 5, [True] * 5 + [False]])
    got = linear_attention(phi_q.expand(3, -1, -1, -1), phi_k, v, key_mask=mask)
    for out, kept in zip(got, mask, strict=True):
        assert largest_difference(out, linear_attention(phi_q, phi_k, v, key_mask=kept)) <= EXACT


def test_one_scale_for_all_heads_of_a_single_token() -> None:
    """As many sequences as heads: the scales of a batch are not those of the features of a head."""
    phi_q, phi_k, v = (x.expand(2, 2, 2, -1) * draw(2, 1, 1, 1, seed=9) for x in tokens(2))
    scale = 3 * draw(2, 1, 2, seed=4)
    whole = linear_attention(phi_q, phi_k, v, causal=True, key_scale=scale.expand(2, 2, 2))
    state, out = None, []
    for t in range(2):
        part = (x[..., t : t + 1, :] for x in (phi_q, phi_k, v))
        y, state = linear_attention(
            *part, causal=True, key_scale=scale[..., t : t + 1], state=state, return_state=True
        )
        out.append(y)
    assert largest_difference(torch.cat(out, -2), whole) <= EXACT


def in_two_pieces(tensors: Sequence[Tensor], cut: int) -> Tensor:
    """Return causal outputs under a decay, with the state after the first ``cut`` tokens."""
    state, out = None, []
    for piece in (slice(cut), slice(cut, None)):
        q, k, u, log_decay, key_scale = (x[:, piece] for x in tensors)
        options = {"key_scale": key_scale, "state": state, "return_state": True}
        y, state = linear_attention(q, k, u, DecayWeight(log_decay), True, **options)
        out.append(y)
    return torch.cat(out, -2)


@pytest.mark.parametrize("form", ["token", "feature", "matrix", "documents"])
@pytest.mark.parametrize("n", [2, 3, 70, 200])
@pytest.mark.parametrize("strength", [0.1, 1.0, 30.0])
def test_a_key_that_has_decayed_away_does_not_set_the_scale(
    strength: float, n: int, form: str
) -> None:
    """In float32 the features of the keys that count would be rounded to 0."""
    if form == "matrix":
        strength = min(strength, 1.0)  # float32 cannot represent the products of stronger decays
    logs, scale = -strength * draw(2, n, seed=4), 200 * draw(2, n, seed=5)
    logs[:, n // 2] = -torch.inf  # the second half forgets the first, whose scales are larger
    scale[:, n // 2 :] -= 400
    phi_q, phi_k, v = tokens(n)
    exponents = log_decay_matrix(logs) + scale[:, None, :] + (phi_q @ phi_k.mT).log()
    want = exponents.softmax(-1) @ v
    ids = None
    if form == "documents":
        ids = (torch.arange(n) >= n // 2).long()
        logs[:, n // 2] = 0
    if form == "feature":
        logs = logs[..., None].expand(2, n, phi_k.shape[-1])
    given = [x.float() for x in (phi_q, phi_k, v)]
    kind = Given if form == "matrix" else DecayWeight
    weight = kind(log_decay_matrix(logs).exp().float() if form == "matrix" else logs.float())
    options = {"causal": True, "key_scale": scale.float(), "document_ids": ids}
    got = linear_attention(*given, weight, **options)
    assert largest_difference(got.double(), want) <= 1e-4
    if form != "token":
        return
    found = in_two_pieces([*given, logs.float(), scale.float()], n // 2 + 1)
    assert largest_difference(found.double(), want) <= 1e-4


@pytest.mark.parametrize("cut", [0, 1, 40, 64])
def test_features_that_forget_separately_have_separate_scales(cut: int) -> None:
    """Each feature forgets a loud key at another token, so no decay of a token is small in both."""
    n = 70
    logs = -0.1 * draw(2, n, 2, seed=4)
    logs[:, 1::2, 0] = logs[:, 2::2, 1] = -40.0
    scale = 2 * draw(2, n, seed=5)
    scale[:, 0] = 300.0
    phi_q, phi_k, v = tokens(n, m=2)
    reach = log_decay_matrix(logs.mT) + scale[:, None, None, :]  # (heads, m, n, n)
    parts = reach + (phi_q.mT[..., :, None] * phi_k.mT[..., None, :]).log()
    want = parts.logsumexp(1).softmax(-1) @ v
    found = in_two_pieces([x.float() for x in (phi_q, phi_k, v, logs, scale)], cut)
    assert largest_difference(found.double(), want) <= 1e-4


def test_an_empty_batch_carries_a_scale_on() -> None:
    empty = [x.expand(0, *x.shape) for x in tokens(4)]
    given = {"causal": True, "key_scale": torch.zeros(0, 2, 4).double(), "return_state": True}
    _, state = linear_attention(*empty, **given)
    out, _ = linear_attention(*empty, **given, state=state)
    assert out.shape == (0, 2, 4, 5)


def test_a_long_sum_in_bfloat16_keeps_counting() -> None:
    """In bfloat16 a sum of ones ends at 256: 256 + 1 rounds to 256."""
    n = 5000
    ones = torch.ones(1, n, 1).bfloat16()
    v = ones * (torch.arange(n)[:, None] < n // 2)
    out, state = linear_attention(ones, ones, v, causal=True, return_state=True)
    assert out.dtype == torch.bfloat16
    assert out[0, -1].item() == 0.5
    assert state.sums.dtype == torch.float32
    assert state.sums[0, 0].tolist() == [n / 2, n]


class Written(Watched):
    """Counts the bytes of the tensors that operations make."""

    bytes = 0

    def saw(self, operation: Any, made: Sequence[Tensor]) -> None:
        self.bytes += sum(x.nbytes for x in made)


def written(n: int) -> float:
    """Return what a forward and backward pass writes, in sizes of one input."""
    data = [torch.rand(1, 1, n, 8, requires_grad=True) for _ in range(3)]
    with Written() as counted:
        torch.autograd.grad(linear_attention(*data, causal=True).sum(), data)
    return counted.bytes / data[0].nbytes


def test_the_gradient_of_many_chunks_is_linear_too() -> None:
    """A slice's gradient is as long as the whole, so a loop over slices would be quadratic."""
    assert written(8192) < 1.1 * written(1024)


MADE = linear_attention(*tokens(6), causal=True, return_state=True)[1]
TOEPLITZ = ToeplitzWeight(torch.zeros(2, 11).double())


def attend(**changes: Any) -> Any:
    phi_q, phi_k, v = tokens(6)
    return linear_attention(**{"phi_q": phi_q, "phi_k": phi_k, "v": v, **changes})


test_bad_arguments_are_named = refusals(
    (lambda: attend(mode="recurrent"), "causal must be True with mode='recurrent', got False"),
    (lambda: attend(mode="fft"), "mode must be None or one of parallel, .*got 'fft'"),
    (lambda: attend(phi_q=draw(2, 4, 3), causal=True), "phi_k must have 4 tokens, as many"),
    (lambda: attend(state=MADE), "^state must be None unless causal"),
    *[(lambda bad=bad: attend(state=MADE._replace(sums=bad), causal=True),
       rf"state must have sums of shape \(2, 3, 6\), .*got \({len(bad)}, {bad.shape[1]}, 6\)")
      for bad in (draw(2, 4, 6), draw(3, 3, 6))],
    (lambda: attend(return_state=True), "return_state must be False unless causal"),
    (lambda: attend(key_mask=torch.ones(5).bool()), r"key_mask must have .*got \(5,\)"),
    (lambda: attend(causal=True, state=MADE, key_scale=draw(2, 6)),
     r"key_scale must be None, got a tensor .* The state was computed without key scales"),
    (lambda: attend(weight=TOEPLITZ, causal=True, mode="chunk", key_scale=draw(2, 6)),
     "mode must be None or 'parallel' for a causal ToeplitzWeight with key_scale"),
    (lambda: attend(weight=TOEPLITZ, causal=True, return_state=True),
     "return_state must be False for ToeplitzWeight, got True"),
)  # fmt: skip


@pytest.mark.proves("eq-linear-ssm")
def test_a_state_space_model_whose_transition_is_the_identity_is_linear_attention() -> None:
    phi_q, phi_k, v = tokens(9, heads=1)
    out = linear_attention(phi_q, phi_k, v, causal=True, normalize=False)
    identity = torch.eye(3).double().expand(9, 3, 3)
    literal = reference.state_space(identity, phi_k[0], phi_q[0], v[0])
    assert largest_difference(out[0], literal) <= EXACT
