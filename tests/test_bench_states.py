"""The benchmarks of decaying states and of the machine itself, at tiny sizes."""

from __future__ import annotations

import dataclasses
import itertools
import json
import sys
import types

import pytest
import torch

from benchmarks import harness, limits, peers, recorded, states
from stringlib.attention import state
from stringlib.checks import largest_difference
from stringlib.records import read_record
from tests.test_packaging import ROOT

CPU = torch.device("cpu")
TINY = harness.Shape("tiny", 2, 3, 130, 8, states.FAMILIES)
FLA = {c.name for c in states.CONTESTANTS if c.name.startswith("fla")}


# --- states ----------------------------------------------------------------------------------


def test_every_state_computes_what_its_name_says():
    torch.manual_seed(0)
    data = states.Data(*(x.double() for x in states.make_data(TINY, CPU)))
    q, k, v = data[:3]
    step, minus = -data.scalar, -torch.ones(TINY.heads, dtype=torch.float64)
    wanted = {
        "no decay": (q @ k.mT).tril() @ v,
        "RetNet": state.retention(q, k, v, data.constant)[0],
        "SSD": state.ssd(v / step[..., None], step, minus, k, q)[0],
        "GLA": state.gated_linear_attention(q, k, v, data.vector)[0],
        "SDPA causal": torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True),
    }
    assert set(wanted) | FLA == {c.name for c in states.CONTESTANTS}
    for contestant in states.CONTESTANTS:
        if contestant.name not in FLA:
            entry = contestant.build(TINY, data)
            (found,) = entry.call(*entry.inputs)
            assert largest_difference(found, wanted[contestant.name]) < 1e-11, contestant.name


@pytest.mark.parametrize("mode", harness.MODES)
def test_what_is_given_gets_a_gradient(mode):
    entries = harness.build(states.SUITE, TINY, CPU)
    assert set(entries) == {c.name for c in states.CONTESTANTS} - FLA, "fla needs a GPU"
    for name, call in harness.calls(entries, mode).items():
        result = call()
        if mode == "forward and backward":
            assert len(result[1]) == (4 if name in ("SSD", "GLA") else 3), name
            assert all(g.abs().sum() > 0 for g in result[1]), name


def test_fla_is_called_with_tokens_before_heads_and_without_its_scale(monkeypatch):
    """With a stand-in that computes as its documentation says."""

    def chunk_gla(q, k, v, g, scale):
        q, k, v, g = (x.transpose(1, 2) for x in (q, k, v, g))
        return scale * state.gated_linear_attention(q, k, v, g)[0].transpose(1, 2), None

    with pytest.raises(ModuleNotFoundError, match="CUDA"):
        peers.fla("gla", CPU)
    for name in ("fla", "fla.ops"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    module = types.ModuleType("fla.ops.gla")
    module.chunk_gla = chunk_gla
    monkeypatch.setitem(sys.modules, "fla.ops.gla", module)
    real = peers.fla
    monkeypatch.setattr(peers, "fla", lambda form, device: real(form, torch.device("cuda")))
    one = tuple(c for c in states.CONTESTANTS if c.family == "gla")
    suite = dataclasses.replace(states.SUITE, contestants=one)
    assert set(harness.build(suite, TINY, CPU)) == {"GLA", "fla GLA"}  # and they agree


def test_a_tolerance_is_added_to_rounding():
    def off(shape, data):
        entry = states.CONTESTANTS[1].build(shape, data)
        return dataclasses.replace(entry, restore=lambda y: y * 1.005)

    for tolerance, agrees in ((0.0, False), (states.TF32, True)):
        wrong = harness.Contestant("off", "none", off, tolerance=tolerance)
        suite = dataclasses.replace(states.SUITE, contestants=(*states.CONTESTANTS[:2], wrong))
        if agrees:
            assert "off" in harness.build(suite, TINY, CPU)
        else:
            with pytest.raises(AssertionError, match="off differs"):
                harness.build(suite, TINY, CPU)


def test_the_record_of_states_is_of_the_whole_suite():
    data = read_record(ROOT / "results/bench-states-cpu.json")["data"]
    places = {(b["shape"]["name"], b["threads"], b["mode"]) for b in data["blocks"]}
    counts = {b["threads"] for b in data["blocks"]}
    assert 1 in counts
    assert places == set(itertools.product([s.name for s in states.SHAPES], counts, harness.MODES))
    for block in data["blocks"]:
        assert set(block["times_ms"]) == {c.name for c in states.CONTESTANTS} - FLA


# --- limits ----------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(limits, "COPIES", (1024, 4096))
    monkeypatch.setattr(limits, "ROWS", 16)
    monkeypatch.setattr(limits, "TIMES", 4096)


def test_limits_count_what_they_do(small):
    from torch.utils.flop_counter import FlopCounterMode

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


def test_a_run_of_limits_writes_a_record_and_keeps_the_threads(small, tmp_path, capsys):
    before = torch.get_num_threads()
    output = tmp_path / "r.json"
    data = limits.run(
        ["--rounds", "2", "--threads", "2", "1", "--device", "cpu", "--output", str(output)]
    )
    assert torch.get_num_threads() == before
    record = read_record(output)
    assert record["data"] == json.loads(json.dumps(data))
    assert record["command"] == "python -m benchmarks.limits --rounds 2 --threads 2 1"
    names = [limit.name for limit in limits.limits(CPU)]
    assert [(r["name"], r["threads"]) for r in data["limits"]] == [
        (name, count) for count in (2, 1) for name in names
    ]
    assert all(len(r["times_ms"]) == 2 and min(r["times_ms"]) > 0 for r in data["limits"])
    assert "real FFT of 64" in capsys.readouterr().out


def test_a_rate_is_that_of_the_best_round():
    assert limits.rate({"work": 100, "times_ms": [4.0, 2.0, 10.0]}) == 50_000


def test_the_record_of_limits_is_of_the_whole_list():
    record = read_record(ROOT / "results/bench-limits-cpu.json")
    rows = record["data"]["limits"]
    wanted = [(limit.name, limit.unit, limit.work) for limit in limits.limits(CPU)]
    for count in {r["threads"] for r in rows}:
        assert wanted == [(r["name"], r["unit"], r["work"]) for r in rows if r["threads"] == count]
    assert all(len(r["times_ms"]) == record["data"]["rounds"] for r in rows)


# --- reading -----------------------------------------------------------------------------------


def block(name: str, n: int, threads: int, mode: str = "forward") -> dict[str, object]:
    shape = {"name": name, "seq": n, "batch": 2, "heads": 5}
    held, times = {"it": 0.4}, {"it": [20.0, 40.0]}
    return {"shape": shape, "threads": threads, "mode": mode, "times_ms": times, "peak_mb": held}


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


def test_rates_are_the_best_of_a_kind_and_bytes_come_from_memory():
    made = [("bytes", 10, 1), ("bytes", 90, 2), ("exponentials", 10, 1), ("exponentials", 10, 5)]
    rows = [{"unit": u, "work": w, "threads": 1, "times_ms": [t, 99]} for u, w, t in made]
    rows.append({"unit": "exponentials", "work": 10, "threads": 2, "times_ms": [0.1]})
    found = recorded.rates({"data": {"limits": rows}})
    assert found == pytest.approx({"bytes": 45_000, "exponentials": 10_000})


def test_records_of_all_devices_are_found_the_processor_first(tmp_path):
    for name in ("bench-states-a-gpu", "bench-states-cpu", "bench-limits-cpu"):
        text = (ROOT / "results/bench-states-cpu.json").read_text()
        (tmp_path / f"{name}.json").write_text(text)
    assert list(recorded.records("states", tmp_path)) == ["cpu", "a-gpu"]
    assert recorded.records("states")["cpu"]["data"]["blocks"]
