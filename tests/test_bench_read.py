"""How fast the machine is at most, and how time grows; chapter 23 shows what is read of records."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import limits, scaling

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
