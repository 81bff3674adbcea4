"""The cache of softmax attention: old states never change, and no token is copied for a new one."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from torch import Tensor

from stringlib import LanguageModel, MultiHeadAttention
from stringlib.attention.cache import KeyValueCache

LAYERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "rope": {"encoder": "rope"},
    "alibi": {"encoder": "alibi"},
    "grouped": {"encoder": "circulant", "kv_heads": 2},
    "shift": {"encoder": "rope", "shift": True},
    "window": {"encoder": "rope", "window": 4, "kv_heads": 2},
    "window-alibi": {"encoder": "alibi", "window": 2},
    "fox": {"encoder": "rope", "position_bias": "fox", "kv_heads": 2},
    "path": {"position_bias": "path"},
    "cope": {"position_bias": "cope", "window": 4, "cope_positions": 3},
    "steps": {"encoder": "rope", "position_steps": "learned", "shift": True},
    "elu": {"attention": "elu", "weight": "ssd"},
    "favor": {"attention": "favor", "encoder": "rope", "weight": "cosine", "horizon": 99},
    "delta": {"attention": "identity", "weight": "gated-delta"},
}


def layer_of(name: str) -> MultiHeadAttention:
    torch.manual_seed(0)
    return MultiHeadAttention(24, 4, causal=True, **LAYERS[name])


def read(layer: MultiHeadAttention, x: Tensor, state: Any) -> tuple[Tensor, Any]:
    return layer(x, state=state, return_state=True)


def cache_of(state: Any) -> KeyValueCache:
    while hasattr(state, "rest"):
        state = state.rest
    assert isinstance(state, KeyValueCache)
    return state


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("max_length", [None, 3, 40])
def test_tokens_one_by_one_are_the_whole(name: str, grad: bool, max_length: int | None) -> None:
    layer, x = layer_of(name), torch.randn(2, 11, 24)
    with torch.set_grad_enabled(grad):
        state = layer.init_state(2, max_length)
        assert state.length == 0
        outs = []
        for i in range(11):
            out, state = read(layer, x[:, i : i + 1], state)
            outs.append(out)
        assert state.length == 11
        torch.testing.assert_close(torch.cat(outs, 1), layer(x), rtol=0, atol=2e-6)


@pytest.mark.parametrize("name", LAYERS)
@torch.no_grad()
def test_every_state_continues_as_often_as_you_like(name: str) -> None:
    """Two continuations of one state, in turn: neither writes over the other's tokens."""
    layer, x, y = layer_of(name), torch.randn(2, 9, 24), torch.randn(2, 9, 24)
    _, common = read(layer, x[:, :4], layer.init_state(2, 40))
    before = [t.clone() for t in common if isinstance(t, Tensor)]
    states = [common, common]
    for i in range(4, 9):
        for j, tokens in enumerate((x, y)):
            out, states[j] = read(layer, tokens[:, i : i + 1], states[j])
            whole = layer(torch.cat([x[:, :4], tokens[:, 4 : i + 1]], 1))
            torch.testing.assert_close(out, whole[:, -1:], rtol=0, atol=2e-6)
    for a, b in zip(before, (t for t in common if isinstance(t, Tensor)), strict=True):
        assert torch.equal(a, b)


@torch.no_grad()
def test_memory_is_allocated_once() -> None:
    layer, state = layer_of("rope"), layer_of("rope").init_state(2, 20)
    where = cache_of(state).slots.keys.data_ptr()
    for _ in range(20):
        _, state = read(layer, torch.randn(2, 1, 24), state)
        assert cache_of(state).keys.data_ptr() == where
    _, state = read(layer, torch.randn(2, 1, 24), state)  # full: it moves, with room for more
    assert cache_of(state).keys.data_ptr() != where
    where = cache_of(state).keys.data_ptr()
    for _ in range(9):
        _, state = read(layer, torch.randn(2, 1, 24), state)
    assert cache_of(state).keys.data_ptr() == where
    assert state.length == 30


@torch.no_grad()
def test_a_state_without_room_gets_it_at_the_first_token() -> None:
    layer = layer_of("rope")
    _, state = read(layer, torch.randn(2, 5, 24), None)
    assert cache_of(state).slots is None
    _, state = read(layer, torch.randn(2, 1, 24), state)
    where = cache_of(state).keys.data_ptr()
    _, state = read(layer, torch.randn(2, 1, 24), state)
    assert cache_of(state).keys.data_ptr() == where


def test_gradients_reach_all_tokens() -> None:
    layer = layer_of("rope")
    with torch.no_grad():
        state = layer.init_state(1, 20)
    x = torch.randn(1, 5, 24, requires_grad=True)
    outs = []
    for i in range(5):
        out, state = read(layer, x[:, i : i + 1], state)
        outs.append(out)
    torch.cat(outs, 1).square().sum().backward()
    got, x.grad = x.grad, None
    layer(x).square().sum().backward()
    torch.testing.assert_close(got, x.grad, rtol=0, atol=1e-5)


@torch.no_grad()
def test_saved_copied_and_pickled_caches_are_as_small_as_their_tokens() -> None:
    layer = layer_of("rope")
    _, state = read(layer, torch.randn(2, 3, 24), layer.init_state(2, 5000))
    file = io.BytesIO()
    torch.save(state, file)
    assert file.tell() < 10_000
    file.seek(0)
    x = torch.randn(2, 1, 24)
    expected, _ = read(layer, x, state)
    for other in (torch.load(file), copy.deepcopy(state)):
        assert cache_of(other).slots is None
        assert torch.equal(read(layer, x, other)[0], expected)


@pytest.mark.parametrize("fields", [("keys", "values"), ("keys",), ("values",)])
@pytest.mark.parametrize("rows", [[1, 1], [1, 0], [0]])
@torch.no_grad()
def test_a_cache_of_selected_rows_is_one_of_its_own(
    fields: tuple[str, ...], rows: list[int]
) -> None:
    """As in a beam search: the memory behind the old cache is not that of the new one."""
    if len(rows) == 1 and len(fields) == 1:
        pytest.skip("keys and values of one batch each")
    layer, x = layer_of("rope"), torch.randn(2, 4, 24)
    _, state = read(layer, x[:, :3], layer.init_state(2, 40))
    selected = state._replace(
        **{f: getattr(state, f)[:1] if rows == [0] else getattr(state, f)[rows] for f in fields}
    )
    _, plain = read(layer, x[:, :3], None)
    expected = plain._replace(**{f: getattr(plain, f)[rows].clone() for f in fields})
    last = x[: len(rows), 3:]
    out, longer = read(layer, last, selected)
    wanted, _ = read(layer, last, expected)
    torch.testing.assert_close(out, wanted, rtol=0, atol=1e-6)
    assert longer.keys.shape[0] == len(rows)


@torch.no_grad()
def test_selected_rows_of_an_empty_cache() -> None:
    layer, x = layer_of("rope"), torch.randn(1, 3, 24)
    empty = layer.init_state(2, 20)
    out, state = read(layer, x, empty._replace(keys=empty.keys[:1], values=empty.values[:1]))
    assert state.keys.shape[0] == 1
    torch.testing.assert_close(out, layer(x), rtol=0, atol=2e-6)


def test_a_state_of_inference_mode_serves_outside_of_it() -> None:
    layer, x = layer_of("rope"), torch.randn(2, 4, 24)
    with torch.inference_mode():
        _, state = read(layer, x[:, :2], layer.init_state(2, 20))
    with torch.no_grad():
        out, _ = read(layer, x[:, 2:], state)
        torch.testing.assert_close(out, layer(x)[:, 2:], rtol=0, atol=2e-6)


@torch.no_grad()
def test_values_are_not_rounded_to_the_dtype_of_earlier_values() -> None:
    keys, values = torch.randn(2, 1, 2, 3, 4)
    cache = KeyValueCache(keys, values.bfloat16(), None).with_room(9)
    longer = cache.extended(keys, values, None)
    assert torch.equal(longer.values[..., 3:, :], values)
    assert cache.values.dtype == torch.bfloat16


@pytest.mark.parametrize("grad", [False, True])
def test_another_dtype_than_that_of_the_room(grad: bool) -> None:
    layer, x = layer_of("rope"), torch.randn(2, 4, 24)
    state = layer.init_state(2, 20)
    with torch.set_grad_enabled(grad), torch.autocast("cpu", torch.bfloat16):
        for i in range(4):
            out, state = read(layer, x[:, i : i + 1], state)
    assert cache_of(state).keys.dtype == torch.bfloat16
    assert (out - layer(x)[:, -1:]).abs().max() < 0.03


MARKED = ("fox", "path", "cope")


@pytest.mark.parametrize("name", MARKED)
@torch.no_grad()
def test_marks_go_with_their_tokens(name: str) -> None:
    """In room for more, among the last tokens, in copies, in selected rows and in files."""
    layer, x = layer_of(name), torch.randn(2, 6, 24)
    mask = torch.tensor([[True, False, True, True], [True] * 4])
    _, state = layer(x[:, :4], key_mask=mask, return_state=True)
    out = layer(x[:, 4:], state=state)
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    for other in (state.with_room(40), copy.deepcopy(state), copy.copy(state), torch.load(file)):
        assert torch.equal(layer(x[:, 4:], state=other), out)
    assert not state.marks.mT[0, :, :, 1].any()
    last, rows = state.last(3), [1, 0]
    assert torch.equal(last.marks, state.marks[..., 1:, :])
    expected = layer(x[:, 1:4], key_mask=mask[:, 1:], return_state=True)[1]
    torch.testing.assert_close(last.marks, expected.marks, rtol=0, atol=1e-6)
    fields = ("keys", "values", "mask", "marks")
    chosen = state._replace(**{field: getattr(state, field)[rows] for field in fields})
    torch.testing.assert_close(layer(x[rows, 4:], state=chosen), out[rows], rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@torch.no_grad()
def test_marks_are_of_at_least_single_precision(dtype: torch.dtype) -> None:
    layer, x = layer_of("fox").to(dtype), torch.randn(2, 6, 24).to(dtype)
    whole, state = layer(x), layer.init_state(2, 40)
    for i in range(6):
        out, state = read(layer, x[:, i : i + 1], state)
        torch.testing.assert_close(out, whole[:, i : i + 1], rtol=0, atol=0.02)
    assert state.keys.dtype == dtype
    assert state.marks.dtype == torch.float32


@torch.no_grad()
def test_a_cache_and_new_tokens_both_have_marks_or_none() -> None:
    layer, x = layer_of("fox"), torch.randn(2, 4, 24)
    _, state = read(layer, x, None)
    for marks in (None, state.marks[:1]):
        with pytest.raises(
            ValueError,
            match=r"^state must have marks of the same batch",
        ):
            read(layer, x, state._replace(marks=marks))
    with pytest.raises(ValueError, match=r"^state must have marks .* new marks have shape None"):
        state.extended(state.keys, state.values, None)


@torch.no_grad()
def test_padding_and_room() -> None:
    layer, x = layer_of("rope"), torch.randn(2, 6, 24)
    mask = torch.tensor([[False, False, True, True, True, True], [True] * 6])
    positions = (mask.cumsum(-1) - 1).clamp(min=0)[..., None]
    state = layer.init_state(2, 20)
    _, state = layer(x[:, :4], positions[:, :4], key_mask=mask[:, :4], state=state,
                     return_state=True)  # fmt: skip
    outs = []
    for i in (4, 5):
        out, state = layer(x[:, i : i + 1], positions[:, i : i + 1], state=state, return_state=True)
        outs.append(out)
    alone = layer(x[:1, 2:])[:, -2:]
    torch.testing.assert_close(torch.cat(outs, 1)[:1], alone, rtol=0, atol=2e-6)


@pytest.mark.parametrize("name", LAYERS)
@torch.no_grad()
def test_a_model_generates_what_it_would_choose_without_states(name: str) -> None:
    torch.manual_seed(0)
    model = LanguageModel(31, 24, 2, 4, **LAYERS[name]).eval()
    tokens = torch.randint(31, (2, 5))
    expected = tokens
    for _ in range(7):
        best = model(expected)[:, -1].argmax(-1, keepdim=True)
        expected = torch.cat([expected, best], 1)
    assert torch.equal(model.generate(tokens, 7, temperature=0), expected)
    last = model(tokens, logits_to_keep=2)
    torch.testing.assert_close(last, model(tokens)[:, -2:], rtol=0, atol=1e-5)


@torch.no_grad()
def test_generation_copies_no_cache() -> None:
    """Each step may allocate what one token needs: not in proportion to the tokens before it."""
    model = LanguageModel(31, 64, 1, 1, encoder="rope").eval()

    def allocated(before: int) -> int:
        state = model.init_state(1, 4096)
        tokens = torch.zeros(1, before, dtype=torch.int64)
        _, state = model(tokens, state=state, return_state=True, logits_to_keep=1)
        with torch.profiler.profile(profile_memory=True) as profile:
            model(tokens[:, :1], state=state, return_state=True)
        return sum(max(e.cpu_memory_usage, 0) for e in profile.events() if e.cpu_memory_usage > 0)

    assert allocated(2048) < 1.2 * allocated(64) + 4 * 2048 * 4  # a row of logits at most


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda layer: layer.init_state(-1), "batch_shape"),
        (lambda layer: layer.init_state(2, 0), "max_length must be at least 1"),
    ],
)
def test_sizes_that_cannot_be(call: Any, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        call(layer_of("rope"))


def test_a_layer_without_a_state_refuses() -> None:
    with pytest.raises(ValueError, match="return_state"):
        MultiHeadAttention(24, 4).init_state(2)
