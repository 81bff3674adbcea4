"""How fast the machine is at most, how time grows, and what is read from the records."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import harness, limits, recorded, scaling

CPU = torch.device("cpu")

# --- growth and crossovers -----------------------------------------------------------------------


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0])
def test_growth_is_the_power(power):
    lengths = [1024, 2048, 4096, 16384]
    assert scaling.growth(lengths, [3 * n**power for n in lengths]) == pytest.approx(power)
    assert scaling.growth([1024], [1.0]) is None


def test_a_crossover_lies_where_the_curves_meet():
    lengths = [128, 256, 512, 1024]
    square, line = [n**2 / 300 for n in lengths], [float(n) for n in lengths]
    assert scaling.crossover(lengths, square, line) == pytest.approx(300)
    assert scaling.crossover(lengths, line, square) is None, "slower in the end"
    assert scaling.crossover(lengths, line, [t / 2 for t in line]) == 128, "always faster"
    assert scaling.crossover(lengths, line, [9.0, 100.0, 600.0, 100.0]) > 512, "for good"


def test_scaling_reads_the_tables():
    def block(n, **times):
        shape = {"name": f"N{n}", "seq": n}
        return {"shape": shape, "mode": "forward", "threads": 1, "times_ms": times}

    blocks = [
        block(n, slow=[n**2 / 1500, 1e9, 0.0], fast=[float(n)] * 3) for n in (1024, 2048, 4096)
    ]
    blocks += [block(n, slow=[1.0], fast=[1.0]) for n in (7, 512)]  # elsewhere, and too short
    ladder = scaling.Ladder("it", ("N512", "N1024", "N2048", "N4096"), "slow", ("fast", "absent"))
    slow, fast = scaling.scaling(ladder, blocks)["rows"]
    assert (slow["contestant"], slow["growth"], slow["ahead_from"]) == ("slow", 2.0, None)
    assert (fast["contestant"], fast["growth"], fast["ahead_from"]) == ("fast", 1.0, 1500)
    assert fast["longest"] == 4096


# --- limits ----------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(limits, "COPIES", (1024, 4096))
    monkeypatch.setattr(limits, "ROWS", 16)
    monkeypatch.setattr(limits, "TIMES", 4096)


def test_limits_count_what_they_do(small):
    found = {limit.name: limit for limit in limits.limits(CPU)}
    assert {limit.unit for limit in found.values()} == {
        "bytes", "multiplications", "exponentials", "operations"
    }  # fmt: skip
    for limit in found.values():
        with FlopCounterMode(display=False) as counter:
            limit.call()
        products = limit.work if limit.unit == "multiplications" else 0
        assert counter.get_total_flops() == 2 * products, limit.name
    assert found["copy 1024 bytes"].work == 2 * 1024 * 32  # TIMES numbers of 8 bytes, in pieces
    assert found["exp"].work == 4096
    assert found["real FFT of 64"].work == 64 * 960  # of 64 transforms, 5/2 · 64 · 6
    assert found["real FFT of 1024"].work == 4 * 25600


# --- reading -----------------------------------------------------------------------------------


def block(name: str, n: int, threads: int, mode: str = "forward") -> dict[str, object]:
    shape = {"name": name, "seq": n, "batch": 2, "heads": 5}
    held, times = {"it": 0.4}, {"it": [20.0, 40.0]}
    found = {"shape": shape, "threads": threads, "mode": mode, "times_ms": times, "peak_mb": held}
    return found | {"least_ms": dict.fromkeys(("RoPE", "ELU", "a text", "a images"), 0.5)}


@pytest.mark.parametrize("threads", [0, 1])
def test_a_ladder_is_read_for_one_thread_or_a_gpu(threads):
    rows = [block("N100", 100, threads), block("N200", 200, threads), block("text", 7, threads)]
    rows += [block("N100", 100, 2), block("N400", 400, threads, "forward and backward")]
    record = {"data": {"blocks": rows}}
    assert set(recorded.blocks(record)) == {"N100", "N200", "text"}
    lengths, times, held = recorded.ladder(record, "it")
    assert (lengths, times) == ([100, 200], [[2.0, 4.0], [2.0, 4.0]])
    assert held == pytest.approx([100, 50])  # 100,000 numbers, of 10 heads
    assert recorded.ladder(record, "it", "forward and backward")[0] == [400]
    assert recorded.ladder(record, "that") == ([], [], [])


def test_the_table_of_peers_has_every_ratio_the_greatest_first():
    slow, steady = block("text", 7, 1), block("text", 7, 2, "forward and backward")
    slow["times_ms"] = {"RoPE": [1.0, 2.0, 3.0], "transformers": [1.0] * 3, "other": [9.0] * 3}
    steady["times_ms"] = {"RoPE": [1.0] * 3, "transformers": [2.0] * 3}
    worse = block("N100", 100, 1)
    worse["times_ms"] = {"ELU": [3.0] * 3, "fast-transformers": [1.0] * 3}
    parts = [{"data": {"blocks": rows}} for rows in ([slow, steady], [worse])]
    assert recorded.peer_table(parts) == {
        "ours / peer, shape": ["ELU / fast-transformers, N100", "RoPE / transformers, text"],
        "forward, 1": ["3.00", "2.00*"],
        "gradients, 2": ["", "0.50"],
        "gradients, 1, over its bound": ["6.0", "4.0"],
    }
    found = {name: row for name, row in recorded.peer_ratios(parts).items() if row}
    assert found == {
        "RoPE / transformers": [
            ("text", "forward", 1, (1.5, 2.0, 2.5)),
            ("text", "forward and backward", 2, (0.5, 0.5, 0.5)),
        ],
        "ELU / fast-transformers": [("N100", "forward", 1, (3.0, 3.0, 3.0))],
    }


def test_whole_models_read_tokens_or_images_a_second():
    def place(name, mode):
        return block(name, 10, 1, mode) | {"times_ms": {f"a {name}": [1.0, 4.0, 5.0]}}

    places = ("text", "images", "a layer")  # whose time is no model's
    rows = [place(name, mode) for name in places for mode in harness.MODES]
    assert recorded.throughput({"data": {"blocks": rows}}) == {
        "model": ["a text, tokens", "a images, images"],
        "forward": ["5,000.0", "500.0"],  # 2 · 10 tokens, or 2 images, in 4 ms
        "with gradients": ["5,000.0", "500.0"],
        "over its bound": ["8.0", "8.0"],
    }


def test_rates_are_the_best_of_a_kind_and_bytes_come_from_memory():
    made = [("bytes", 10, 1), ("bytes", 90, 2), ("exponentials", 10, 1), ("exponentials", 10, 5)]
    rows = [{"unit": u, "work": w, "threads": 1, "times_ms": [t, 99]} for u, w, t in made]
    rows.append({"unit": "exponentials", "work": 10, "threads": 2, "times_ms": [0.1]})
    found = recorded.rates({"data": {"limits": rows}})
    assert found == pytest.approx({"bytes": 45_000, "exponentials": 10_000})
