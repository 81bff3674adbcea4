"""The benchmark itself, at tiny sizes and without the libraries that it compares with."""

import dataclasses
import itertools
import json
import os
import re
import shutil
import subprocess
import sys

import pytest
import torch
from packaging.requirements import Requirement

from benchmarks import attention, encoders, harness, literal, peers
from benchmarks.timing import interleaved, peak_megabytes, ratios, summary
from stringlib import CayleySTRING, reference
from stringlib.records import read_record
from tests.test_packaging import ROOT, pinned

CPU = torch.device("cpu")
PARTS = ("limits", "encoders", "attention", "states")
TINY = harness.Shape("tiny", 2, 2, 10, 8, encoders.FAST)
FEW = harness.Shape("few", 1, 2, 4, 8, ("copy", "dense"))
SUITE = dataclasses.replace(
    encoders.SUITE,
    shapes=(TINY, FEW),
    goals=(
        harness.Goal("clone", "clone", "tiny", at_most=1.0, threads=1),
        harness.Goal("clone", "clone", "tiny", at_least=1.5, threads=1),
        harness.Goal("transformers", "RoPE", "tiny", at_least=0, threads=7),
    ),
)


@pytest.fixture
def options(tmp_path):
    return harness.Options(rounds=3, threads=(1,), output=tmp_path / "r.json", device="cpu")


@pytest.fixture(autouse=True)
def no_peers(monkeypatch):
    """Make the peers missing wherever the tests run."""

    def missing(*_):
        raise ModuleNotFoundError

    for name in ("rotary_embedding_torch", "transformers", "torchtune"):
        monkeypatch.setattr(peers, name, missing)


# --- timing ----------------------------------------------------------------------------------


def test_rounds_are_interleaved_and_the_first_does_not_count():
    ticks, called = itertools.count(), []
    calls = {name: lambda name=name: called.append(name) for name in "abc"}
    times = interleaved(calls, 4, clock=lambda: next(ticks))
    assert times == {name: [1000.0] * 4 for name in "abc"}
    rounds = [called[i : i + 3] for i in range(0, len(called), 3)]
    assert len(rounds) == 5
    assert all(sorted(r) == ["a", "b", "c"] for r in rounds)
    assert len({tuple(r) for r in rounds}) > 1, "the order changes"


def test_the_device_is_awaited_before_and_after_a_call():
    events = []
    interleaved({"f": lambda: events.append("f")}, 1, wait=lambda: events.append("wait"))
    assert events == ["wait", "f", "wait"] * 2


def test_summary_and_ratios():
    assert summary([5.0, 1.0, 2.0, 4.0, 3.0]) == (2.0, 3.0, 4.0)
    assert summary([7.0]) == (7.0, 7.0, 7.0)
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


def test_measuring_memory_keeps_the_error_stream(capfd):
    peak_megabytes(lambda: torch.ones(3) * 2, CPU)
    assert capfd.readouterr().err == ""
    print("still here", file=sys.stderr)
    assert "still here" in capfd.readouterr().err


# --- what is measured ------------------------------------------------------------------------


def test_every_contestant_is_measured_somewhere_and_every_goal_names_what_is():
    measured = {
        (c.name, s.name) for c in encoders.CONTESTANTS for s in encoders.SHAPES if c.runs_at(s)
    }
    assert {name for name, _ in measured} == {c.name for c in encoders.CONTESTANTS}
    assert all(("clone", s.name) in measured for s in encoders.SHAPES), "the unit of the tables"
    for goal in encoders.GOALS:
        assert {(goal.one, goal.shape), (goal.other, goal.shape)} <= measured
        assert (goal.at_least is None) != (goal.at_most is None)


def test_one_that_computes_something_else_is_refused():
    def backwards(shape, data):
        entry = encoders.CONTESTANTS[1].build(shape, data)
        return dataclasses.replace(entry, call=lambda q, k: entry.call(k, q))

    wrong = harness.Contestant("backwards", "rope", backwards)
    suite = dataclasses.replace(SUITE, contestants=(*SUITE.contestants, wrong))
    with pytest.raises(AssertionError, match="backwards differs from its family by"):
        harness.build(suite, TINY, CPU)


def test_nan_is_no_agreement():
    def nothing(shape, data):
        return harness.Entry(lambda q, k: (q * torch.nan, k), (data.q, data.k))

    suite = dataclasses.replace(
        SUITE, contestants=(*SUITE.contestants, harness.Contestant("nan", "rope", nothing))
    )
    with pytest.raises(AssertionError, match="nan differs"):
        harness.build(suite, TINY, CPU)


@pytest.mark.parametrize("mode", harness.MODES)
def test_all_gradients_are_taken_in_the_backward_pass(mode):
    entries = harness.build(SUITE, TINY, CPU)
    for name, call in harness.calls(entries, mode).items():
        result = call()
        if mode == "forward":
            assert not any(y.requires_grad for y in result), name
        else:
            _, gradients = result
            assert len(gradients) == 2 + len(entries[name].parameters), name
            assert all(g.abs().sum() > 0 for g in gradients), name
    learned = {n for n, e in entries.items() if e.parameters}
    assert {"MixedRoPE", "rope-vit mixed", "CirculantSTRING", "CayleySTRING"} <= learned
    assert not {"RoPE", "CirculantSTRING folded", "clone"} & learned


def test_the_literal_cayley_forms_are_those_of_the_reference():
    torch.manual_seed(0)
    encoder = CayleySTRING(6, 2).double()
    x, positions = torch.randn(2, 1, 5, 6).double(), torch.randn(5, 2).double()
    skew, omega = encoder.skew().detach(), encoder.omega.detach()
    want = reference.cayley_string(x[:, 0], positions, skew[0], omega[0])
    table = literal.mixed_table(positions, omega)
    for form in (literal.cayley_solve, literal.cayley_tokens):
        got = form(x, skew, table.to(torch.complex128))[:, 0]
        assert torch.allclose(got, want, atol=1e-6)  # turned in float32


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
        assert all(len(times) == 3 and min(times) > 0 for times in block["times_ms"].values())
        assert set(block["peak_mb"]) == set(block["times_ms"])
        assert len(block["load"]) == 2
    tiny, few = data["blocks"][0]["times_ms"], data["blocks"][-1]["times_ms"]
    missing = {"rotary-embedding-torch", "transformers", "torchtune"}
    assert set(tiny) == {c.name for c in SUITE.contestants if c.runs_at(TINY)} - missing
    assert set(few) == {c.name for c in SUITE.contestants if c.runs_at(FEW)}
    for name in missing:
        assert re.search(rf"^  {name} +not installed$", printed, re.MULTILINE)
    assert [outcome["met"] for outcome in data["goals"]] == [True, False, None]
    assert re.search(r"pass +1\.00  clone / clone ≤ 1", printed)
    assert re.search(r"MISS +1\.00  clone / clone ≥ 1\.5", printed)
    assert "not measured  transformers / RoPE" in printed
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
    part = options.output.with_name("r.json.part")
    done = json.loads(part.read_text())["data"]["blocks"]
    assert len(done) == 2

    data = harness.run(SUITE, options)
    assert "Going on with r.json.part: 2 tables" in capsys.readouterr().out
    assert data["blocks"][:2] == done
    assert len(data["blocks"]) == 4
    assert not part.exists()


@pytest.mark.parametrize("change", ["rounds", "code", "fresh"])
def test_an_unfinished_run_of_something_else_is_not_taken_up(change, options, monkeypatch):
    suite = dataclasses.replace(SUITE, shapes=(FEW,))
    harness.run(suite, options)
    part = options.output.with_name("r.json.part")
    options.output.rename(part)
    before = json.loads(part.read_text())["data"]["blocks"]
    if change == "rounds":
        options.rounds = 2
    elif change == "code":
        monkeypatch.setattr(harness, "_fingerprint", lambda: "other")
    else:
        options.fresh = True
    assert harness.run(suite, options)["blocks"] != before


def test_the_command_line(monkeypatch):
    seen = []
    monkeypatch.setattr(harness, "run", lambda suite, options: seen.append(options))
    encoders.run(["--rounds", "2", "--shapes", "ViT", "--threads", "1", "--device", "cpu"])
    (options,) = seen
    assert (options.rounds, options.shapes, list(options.threads)) == (2, ["ViT"], [1])
    with pytest.raises(SystemExit):
        encoders.run(["--shapes", "nowhere"])


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


def test_make_bench_has_an_environment_of_its_own(tmp_path):
    """With stand-ins for Python: they note their arguments."""
    log, python = tmp_path / "log", tmp_path / "python"
    for name in ("Makefile", "constraints.txt", "_config.yml", "_toc.yml"):
        shutil.copy(ROOT / name, tmp_path)
    for folder in ("_ext", "book/_assets", "notebooks", "stringlib", "benchmarks"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("requirements.txt", "compiled.txt"):
        shutil.copy(ROOT / "benchmarks" / name, tmp_path / "benchmarks")
    python.write_text(
        f"""#!/usr/bin/env bash
echo "$*" >>{log}
[ "$1 $2" != "-m venv" ] || {{ mkdir -p .venv-bench/bin; cp "$0" .venv-bench/bin/python; }}
[[ "$*" != *compiled.txt ]]  # there is no compiler
"""
    )
    python.chmod(0o755)

    def make(*arguments):
        log.write_text("")
        command = ["make", "-C", str(tmp_path), f"PYTHON={python}", *arguments]
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
        subprocess.run(command, check=True, capture_output=True, env=clean)
        return log.read_text().splitlines()

    venv, torch_alone, others, compiled, *measure = make(
        "bench", "TORCH=torch==2.14.0", "PIP_ARGS=-v"
    )
    assert venv.endswith("-m venv --clear .venv-bench")
    assert re.search(r"install -qq -v -c \S+ torch==2\.14\.0$", torch_alone)
    assert others.endswith("install -qq -v --no-deps -r benchmarks/requirements.txt")
    assert compiled.endswith(
        "install -qq -v --no-deps --no-build-isolation -r benchmarks/compiled.txt"
    )
    assert measure == [f"-m benchmarks.{suite} --rounds 11" for suite in PARTS]
    again = make("bench", "ROUNDS=3", "SUITES=attention")
    assert again == ["-m benchmarks.attention --rounds 3"]
    assert not (tmp_path / ".venv").exists()


def test_the_record_is_of_the_whole_benchmark():
    data = read_record(ROOT / "results/bench-encoders-cpu.json")["data"]
    assert None not in data["settings"]["peers"].values(), "measured without a peer"
    assert set(data["settings"]["peers"]) == set(encoders.PEERS)
    places = {(b["shape"]["name"], b["threads"], b["mode"]) for b in data["blocks"]}
    assert places == set(
        itertools.product([s.name for s in encoders.SHAPES], (1, 2), harness.MODES)
    )
    shapes = {shape.name: shape for shape in encoders.SHAPES}
    for block in data["blocks"]:
        expected = {
            c.name for c in encoders.CONTESTANTS if c.runs_at(shapes[block["shape"]["name"]])
        }
        assert set(block["times_ms"]) == expected
    assert [g["goal"] for g in data["goals"]] == [str(goal) for goal in encoders.GOALS]
    assert None not in [g["met"] for g in data["goals"]]
