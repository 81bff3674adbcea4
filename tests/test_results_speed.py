"""What the chapter on speed rests on: counts, bounds, the figure, and what the records say."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import recorded
from benchmarks.goals import MODES
from book.figures import speed
from book.figures.speed import attention_work
from lab.theory.cost import (
    amdahl,
    cache_numbers,
    least_seconds,
    moved_numbers,
    state_numbers,
)
from stringlib import FavorFeatures, MultiHeadAttention, ToeplitzWeight, linear_attention


def cpu(part: str) -> recorded.Record:
    return recorded.records(part)["cpu"]


# --- counts ----------------------------------------------------------------------------------


@pytest.mark.proves("eq-moved")
@pytest.mark.parametrize(("n", "d", "d_v"), [(1, 1, 1), (10, 4, 6), (7, 8, 8)])
def test_what_is_moved_is_what_goes_in_and_comes_out(n: int, d: int, d_v: int) -> None:
    q, k, v = torch.rand(n, d), torch.rand(n, d), torch.rand(n, d_v)
    out = (q @ k.mT).softmax(-1) @ v
    assert moved_numbers(n, d, d_v) == sum(x.numel() for x in (q, k, v, out))


@pytest.mark.proves("eq-roofline")
def test_the_slowest_kind_of_work_sets_the_least_time() -> None:
    rates = {"bytes": 10.0, "multiplications": 4.0}
    assert least_seconds({"bytes": 30, "multiplications": 8}, rates) == 3
    assert least_seconds({"bytes": 30, "multiplications": 80}, rates) == 20
    assert least_seconds({"bytes": 30}, rates) == 3
    assert least_seconds({}, rates) == 0
    with pytest.raises(ValueError, match=r"got none for \['exponentials'\]"):
        least_seconds({"bytes": 1, "exponentials": 1}, rates)


@pytest.mark.proves("eq-amdahl")
def test_amdahl_is_old_time_over_new_time() -> None:
    for share in (0.0, 0.04, 0.5, 0.9):
        for factor in (0.5, 1.0, 2.0, 100.0):
            parts = [share * 7, (1 - share) * 7]
            assert amdahl(share, factor) == pytest.approx(7 / (parts[0] / factor + parts[1]))
        assert amdahl(share) == pytest.approx(1 / (1 - share))
    assert amdahl(1.0) == math.inf
    for share in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="share must be between 0 and 1"):
            amdahl(share)
    for factor in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="factor must be positive"):
            amdahl(0.5, factor)


@pytest.mark.proves("eq-kept")
def test_what_is_kept_is_what_layers_keep() -> None:
    heads, dim, tokens = 3, 24, 11
    x = torch.rand(tokens, dim)
    _, cache = MultiHeadAttention(dim, heads, causal=True)(x, return_state=True)
    numbers = cache.keys.numel() + cache.values.numel()
    assert numbers == heads * cache_numbers(tokens, 8, 8)
    for length in (1, tokens):
        layer = MultiHeadAttention(dim, heads, attention="elu", causal=True)
        _, state = layer(x[:length], return_state=True)
        assert state.sums.numel() == heads * state_numbers(8, 8)


@pytest.mark.parametrize("method", speed.METHODS)
def test_the_work_of_each_method_is_what_its_code_multiplies(method: str) -> None:
    n, d, m = 48, 8, 16
    q, k, v = torch.rand(3, 1, n, d)
    phi_q, phi_k, bias = torch.rand(1, n, m), torch.rand(1, n, m), torch.rand(1, 2 * n - 1)
    favor = FavorFeatures(d, m)
    forms: dict[str, Callable[[], object]] = {
        "softmax": lambda: (q @ k.mT).softmax(-1) @ v,
        "relu": lambda: linear_attention(q.relu(), k.relu(), v),
        "favor": lambda: linear_attention(favor(q), favor(k, is_query=False), v),
        "toeplitz": lambda: linear_attention(phi_q, phi_k, v, ToeplitzWeight(bias)),
    }
    work = attention_work(method, n, d, m)
    if method == "toeplitz-fft":
        assert work["operations"] == pytest.approx(10 * n * math.log2(2 * n) * m * (d + 1))
        assert "multiplications" not in work
        return
    with FlopCounterMode(display=False) as counter:
        forms[method]()
    assert counter.get_total_flops() == 2 * work["multiplications"]
    assert work.get("exponentials", 0) == {"softmax": n * n, "favor": 2 * n * m}.get(method, 0)
    width = m if method == "toeplitz" else d
    assert work["bytes"] == 4 * 2 * n * (width + d)


# --- what the records say --------------------------------------------------------------------


def test_of_one_thread_no_contestant_is_below_what_the_machine_allows() -> None:
    for part in ("encoders", "attention", "states", "delta", "models", "decoding"):
        for block in cpu(part)["data"]["blocks"]:
            for name in block["times_ms"]:
                at = (part, block["shape"]["name"], name)
                assert block["threads"] == 2 or recorded.over_bound(block, name) > 0.9, at


def test_a_layer_that_learns_its_encoder_trains_at_about_the_price_of_rope() -> None:
    for threads in (1, 2):
        for place, block in recorded.blocks(cpu("models"), MODES[1], threads).items():
            if place.endswith("layer"):
                times, saved = block["times_ms"], block["saved_mb"]
                for name in ("layer, Mixed", "layer, Circulant", "layer, Cayley"):
                    ratio = statistics.median(recorded.ratios(times, name, "layer, RoPE"))
                    assert 0.99 < ratio < 1.08
                    assert saved[name] < 1.1 * saved["layer, Mixed"]
