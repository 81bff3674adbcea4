"""The benchmark itself, at tiny sizes and without the libraries that it compares with."""

import dataclasses
import itertools
import json
import re

import pytest
import torch
from packaging.requirements import Requirement

from benchmarks import attention, bounds, encoders, harness, moved, scaling
from benchmarks.goals import BOUND, Goal, outcomes
from benchmarks.timing import (
    SPREAD,
    interleaved,
    peak_megabytes,
    ratios,
    saved_megabytes,
    summary,
    unsteady,
)
from lab.records import read_record
from tests.test_bench_suites import no_peers, ours  # noqa: F401  # the first for every test
from tests.test_packaging import ROOT, pinned

CPU = torch.device("cpu")
TINY = harness.Shape("tiny", 2, 2, 10, 8, encoders.FAST)
FEW = harness.Shape("few", 1, 2, 4, 8, ("copy", "dense"), rounds=2)
SUITE = dataclasses.replace(
    encoders.SUITE,
    shapes=(TINY, FEW),
    goals=(
        harness.Goal("clone", "clone", "tiny", at_most=1.0, threads=1),
        harness.Goal("clone", "clone", "tiny", at_least=1.0, threads=1),
        harness.Goal("clone", "clone", "tiny", at_least=1.5, threads=1),
        harness.Goal("transformers", "RoPE", "tiny", at_least=0, threads=7),
        harness.Goal("RoPE", None, "tiny", at_most=1e-6, threads=1, of="peak_mb"),
        harness.Goal("RoPE", BOUND, "tiny", at_least=1e-6, threads=1),
        harness.Goal("MixedRoPE", "RoPE", "tiny", at_most=1e6, threads=1, of="saved_mb"),
    ),
    ladders=(scaling.Ladder("Both", ("tiny", "few"), "clone", ("RoPE", "transformers")),),
)


@pytest.fixture
def options(tmp_path):
    return harness.Options(rounds=3, threads=(1,), output=tmp_path / "r.json", device="cpu")


# --- timing ----------------------------------------------------------------------------------


def test_rounds_are_interleaved_and_the_first_does_not_count():
    ticks, called = itertools.count(), []
    calls = {name: lambda name=name: called.append(name) for name in "abc"}
    times = interleaved(calls, 4, clock=lambda: next(ticks))
    assert times == {name: [1000.0] * 4 for name in "abc"}
    rounds = [called[i : i + 3] for i in range(0, len(called), 3)]
    assert [sorted(r) for r in rounds] == [["a", "b", "c"]] * 5
    assert len({tuple(r) for r in rounds}) > 1, "the order changes"


def test_summary_and_ratios():
    assert summary([5.0, 1.0, 2.0, 4.0, 3.0]) == (2.0, 3.0, 4.0)
    assert summary([7.0]) == (7.0, 7.0, 7.0)
    assert not unsteady((1 - SPREAD / 2, 1.0, 1 + SPREAD / 2))
    assert unsteady((1 - SPREAD / 2, 0.99, 1 + SPREAD / 2))
    times = {"a": [2.0, 20.0], "b": [1.0, 10.0]}  # both slower in the second round
    assert ratios(times, "a", "b") == [2.0, 2.0]


def test_peak_memory_is_the_largest_sum_that_lives_at_once():
    x = torch.ones(250_000)  # 1 MB

    def three_at_once():
        y = x + 1
        z = y * y
        return torch.cat([z[:0], y + z])

    def one_after_the_other():
        y = x + 1
        y = y.sum()
        return x * y

    assert peak_megabytes(lambda: x * 2, CPU) == pytest.approx(1, rel=0.01)
    assert peak_megabytes(one_after_the_other, CPU) == pytest.approx(1, rel=0.01)
    assert peak_megabytes(three_at_once, CPU) == pytest.approx(4, rel=0.01)


def test_what_is_kept_for_the_backward_pass_counts_each_memory_once():
    w, x = torch.ones(1000, 250, requires_grad=True), torch.ones(250_000)  # 1 MB each

    def twice():
        y = w.exp()  # keeps its result, and so does the next
        return y[:500].exp(), y * x.view(1000, 250)

    assert saved_megabytes(twice) == pytest.approx(2.5, rel=0.01)  # y, half as much, and x
    assert saved_megabytes(twice, [x]) == pytest.approx(1.5, rel=0.01)
    assert saved_megabytes(lambda: x.exp()) == 0


# --- bounds and goals ------------------------------------------------------------------------


def test_the_least_time_is_that_of_the_slowest_kind(monkeypatch):
    seconds = {"multiplications": 2.0, "exponentials": 1.0, "bytes 8": 3.0, "bytes 80": 5.0}
    times = {name: [9e3, 1e3 * s] for name, s in seconds.items()}
    monkeypatch.setattr(bounds, "interleaved", lambda calls, *_: {n: times[n] for n in calls})
    monkeypatch.setattr(bounds, "SIDE", 10)
    works = {
        "copy": bounds.Work(1).of(True),
        "products": bounds.Work(2, products=500, fixed=500).of(False),
        "more": bounds.Work(1, products=500, fixed=500).of(True),
        "exp": bounds.Work(2, exponentials=4 * bounds.EXPONENTIALS).of(False),
        "long": bounds.Work(20).of(False),
    }
    seen: dict[str, float] = {}
    found = bounds.least_ms(works, CPU, lambda: None, seen)
    wanted = {"copy": 3, "products": 3, "more": 5, "exp": 4, "long": 5}
    assert found == pytest.approx({name: 1e3 * s for name, s in wanted.items()})
    for name in times:
        times[name] = [9e9]
    assert bounds.least_ms(works, CPU, lambda: None, seen) == found, "the best counts"


def test_a_goal_reads_its_place_alone():
    block = {
        "shape": {"name": "here"},
        "mode": "forward and backward",
        "threads": 2,
        "times_ms": {"a": [2.0, 4.0, 6.0], "b": [1.0, 1.0, 1.0]},
        "least_ms": {"a": 0.5},
        "peak_mb": {"a": 7.0, "b": 3.5},
    }
    assert Goal("a", "b", "here", at_most=1).value(block) == (3.0, 4.0, 5.0)
    assert Goal("a", BOUND, "here", at_most=1).value(block) == (6.0, 8.0, 10.0)
    assert Goal("a", "b", "here", at_most=1, of="peak_mb").value(block) == (2.0, 2.0, 2.0)
    assert Goal("a", None, "here", at_most=1, of="peak_mb").value(block) == (7.0, 7.0, 7.0)
    assert Goal("a", "c", "here", at_most=1).value(block) is None
    for place in ({"threads": 1}, {"mode": "forward"}, {"of": "saved_mb"}):
        assert Goal("a", "b", "here", at_most=1, **place).value(block) is None


def test_how_far_a_goal_is_missed():
    most, least = Goal("a", "b", "s", at_most=2), Goal("a", "b", "s", at_least=2)
    assert (most.over(3.0), most.ours) == (1.5, "a")
    assert (least.over(0.5), least.ours) == (4.0, "b")
    assert Goal("a", BOUND, "s", at_least=2).ours == Goal("a", None, "s", at_least=2).ours == "a"
    block = {"shape": {"name": "s"}, "mode": "forward and backward", "threads": 2}
    block |= {"times_ms": {"a": [2.0, 4.0, 6.0], "b": [2.0] * 3}, "least_ms": {"a": 1.0, "b": 0.5}}
    rows = outcomes([most, least], ["most", "least"], [block])
    assert rows == [
        {"goal": "most", "ratio": [1.5, 2.0, 2.5], "met": True, "over": [0.75, 1.0, 1.25],
         "bound": 4.0},
        {"goal": "least", "ratio": [1.5, 2.0, 2.5], "met": True, "over": [0.8, 1.0, 1.333],
         "bound": 4.0},
    ]  # fmt: skip


def test_what_moved_is_what_was_won_or_lost(monkeypatch, capsys, tmp_path):
    def rows(*found):
        names = "won", "lost", "stayed", "unmeasured", "new"
        return [
            {"goal": name, "ratio": x and [x, x, x], "met": x and x <= 1}
            for name, x in zip(names, found, strict=False)
        ]

    before, after = rows(1.25, 0.9, 1.5, 1.5), rows(0.99, 1.1, 2.0, None, 3.0)
    (tmp_path / "results").mkdir()
    (tmp_path / "results/bench-attention-cpu.json").touch()
    monkeypatch.setattr(moved, "ROOT", tmp_path)
    monkeypatch.setattr(moved, "committed", lambda path: before)
    monkeypatch.setattr(moved, "read_record", lambda path: {"data": {"goals": after}})
    moved.main(["attention"])
    assert capsys.readouterr().out.splitlines()[1:] == [
        "Goals that moved since the committed record:",
        "  WON      1.25 → 0.99  won",
        "  LOST     0.90 → 1.10  lost",
        "  (1 are not in that record)",
    ]


# --- a run -----------------------------------------------------------------------------------


def test_a_run_prints_tables_and_goals_and_writes_a_record(options, capsys):
    data = harness.run(SUITE, options)
    printed = capsys.readouterr().out
    record = read_record(options.output)
    assert record["data"] == json.loads(json.dumps(data))
    assert record["command"] == "python -m benchmarks.encoders --rounds 3 --threads 1"
    assert [(b["shape"]["name"], b["mode"]) for b in data["blocks"]] == [
        (shape, mode) for shape in ("tiny", "few") for mode in harness.MODES
    ]
    for block in data["blocks"]:
        rounds = 2 if block["shape"]["name"] == "few" else 3
        assert all(len(times) == rounds and min(times) > 0 for times in block["times_ms"].values())
        assert set(block["peak_mb"]) == set(block["times_ms"])
        assert len(block["load"]) == 2
        assert set(block["least_ms"]) == set(block["times_ms"])
        assert min(block["least_ms"].values()) > 0
        asked = (block["shape"]["name"], block["mode"]) == ("tiny", harness.MODES[1])
        assert list(block["saved_mb"]) == ["MixedRoPE", "RoPE"] * asked
    tiny, few = data["blocks"][0]["times_ms"], data["blocks"][-1]["times_ms"]
    assert set(tiny) == {c.name for c in SUITE.contestants if c.runs_at(TINY)} & ours(SUITE)
    assert set(few) == {c.name for c in SUITE.contestants if c.runs_at(FEW)}
    for name in SUITE.peers:
        assert re.search(rf"^  {name} +not installed$", printed, re.MULTILINE)
    met = [outcome["met"] for outcome in data["goals"]]
    assert met == [True, True, False, None, False, True, True]
    ratio = summary(ratios(tiny, "RoPE", "clone"))
    mark = harness.UNSTEADY if unsteady(ratio) else ""
    assert re.search(rf"^  RoPE .* {ratio[1]:.2f} +\S+ +\S+{mark}$", printed, re.MULTILINE)
    place = r"\(tiny: B2 H2 N10 D8, forward and backward, 1 thread\)"
    assert re.search(rf"pass +\S+  RoPE \[neighbours\] / its bound ≥ 1e-06 {place}", printed)
    assert re.search(r"MISS +1\.00  clone / clone ≥ 1\.5", printed)
    assert "not measured  transformers [halves] / RoPE [neighbours]" in printed
    assert re.search(r"MISS +0\.\d\d  peak of RoPE \[neighbours\] ≤ 1e-06 MB \(tiny", printed)
    (found,) = data["scaling"]
    assert [r["contestant"] for r in found["rows"]] == 2 * ["clone", "RoPE"]
    assert all(r["growth"] is None for r in found["rows"]), "both are short"
    assert list(options.output.parent.iterdir()) == [options.output]


def test_a_run_that_was_cut_off_loses_nothing_and_goes_on(options, monkeypatch, capsys):
    options.output.write_text("an earlier record")
    tables = iter([1])

    def print_one(suite, block):
        if not next(tables, None):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(harness, "print_block", print_one)
        with pytest.raises(KeyboardInterrupt):
            harness.run(SUITE, options)
    assert options.output.read_text() == "an earlier record"
    part = options.output.with_name("r.json.unfinished")
    done = json.loads(part.read_text())["data"]["blocks"]
    assert len(done) == 2

    data = harness.run(SUITE, options)
    assert "Going on with r.json.unfinished: 2 tables" in capsys.readouterr().out
    assert data["blocks"][:2] == done
    assert len(data["blocks"]) == 4
    assert not part.exists()


# --- the environment and the record ----------------------------------------------------------


def test_the_peers_are_pinned_and_agree_with_the_constraints():
    files = [ROOT / "benchmarks" / f"{name}.txt" for name in ("requirements", "compiled")]
    text = "\n".join(file.read_text(encoding="utf8") for file in files)
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    found = {r.name: str(r.specifier) for r in map(Requirement, lines)}
    assert all(version.startswith("==") for version in found.values())
    assert {*encoders.PEERS, *attention.PEERS} <= set(found)
    assert "torch" not in found, "PyTorch is that of constraints.txt"
    both = set(found) & set(pinned())
    assert both
    assert {n: found[n] for n in both} == {n: f"=={pinned()[n]}" for n in both}
