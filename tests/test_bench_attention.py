"""The benchmark of attention: what it compares computes the same, and growth is fitted right."""

import dataclasses
import itertools
import json
import math
import re

import pytest
import torch

from benchmarks import attention, harness, peers, scaling
from benchmarks import literal_attention as literal
from stringlib import reference
from stringlib.checks import largest_difference
from stringlib.records import read_record
from tests.test_packaging import ROOT

CPU = torch.device("cpu")
EVERY = tuple(dict.fromkeys(c.family for c in attention.CONTESTANTS))
TINY = harness.Shape("tiny", 2, 2, 128, 4, EVERY)
LONGER = dataclasses.replace(TINY, name="longer", seq=192, rounds=2)
SUITE = dataclasses.replace(
    attention.SUITE,
    shapes=(TINY, LONGER),
    goals=(
        harness.Goal("SDPA", "SDPA", "tiny", at_most=1.0, threads=1),
        harness.Goal("linear causal", None, "tiny", at_most=1e-6, threads=1),
    ),
    ladders=(scaling.Ladder("Both", ("tiny", "longer"), "SDPA", ("ReLU", "performer-pytorch")),),
)
PEERS = {
    "performer-pytorch map",
    "performer-pytorch",
    "performer-pytorch causal",
    "performer-pytorch layer",
    "fast-transformers",
    "fast-transformers causal",
}


@pytest.fixture(autouse=True)
def no_peers(monkeypatch):
    """Make the peers missing wherever the tests run."""

    def missing(*_, **__):
        raise ModuleNotFoundError

    for name in ("performer_features", "performer_attention", "performer_layer"):
        monkeypatch.setattr(peers, name, missing)
    for name in ("fast_transformers_linear", "fast_transformers_causal"):
        monkeypatch.setattr(peers, name, missing)


# --- growth and crossovers -------------------------------------------------------------------


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
    blocks.append(block(7, slow=[1.0], fast=[1.0]))
    ladder = scaling.Ladder("it", ("N1024", "N2048", "N4096"), "slow", ("fast", "absent"))
    slow, fast = scaling.scaling(ladder, blocks)["rows"]
    assert (slow["contestant"], slow["growth"], slow["ahead_from"]) == ("slow", 2.0, None)
    assert (fast["contestant"], fast["growth"], fast["ahead_from"]) == ("fast", 1.0, 1500)
    assert fast["longest"] == 4096


# --- what is compared ------------------------------------------------------------------------


def test_every_contestant_is_measured_somewhere_and_every_goal_names_what_is():
    shapes = attention.SHAPES
    measured = {(c.name, s.name) for c in attention.CONTESTANTS for s in shapes if c.runs_at(s)}
    assert {name for name, _ in measured} == {c.name for c in attention.CONTESTANTS}
    assert len({s.name for s in shapes}) == len(shapes)
    for goal in attention.GOALS:
        assert {(name, goal.shape) for name in (goal.one, goal.other) if name} <= measured
        assert (goal.at_least is None) != (goal.at_most is None)
    for ladder in attention.LADDERS:
        for name in (ladder.reference, *ladder.others):
            assert len({s for c, s in measured if c == name and s in ladder.shapes}) >= 4


@pytest.mark.parametrize("mode", harness.MODES)
def test_families_agree_and_all_gradients_are_taken(mode):
    entries = harness.build(SUITE, TINY, CPU)
    assert set(entries) == {c.name for c in attention.CONTESTANTS} - PEERS
    for name, call in harness.calls(entries, mode).items():
        result = call()
        if mode == "forward":
            assert not any(y.requires_grad for y in result), name
        else:
            results, gradients = result
            assert all(y.isfinite().all() for y in results), name
            assert len(gradients) == len(entries[name].inputs) + len(entries[name].parameters), name
            assert all(g.abs().sum() > 0 for g in gradients), name


def test_the_literal_forms_are_those_of_the_references():
    torch.manual_seed(0)
    data = attention.make_data(TINY, CPU)
    q, k, v, a = (x.double() for x in (*data.features, data.log_decay))
    for causal, form in ((False, literal.cosformer), (True, literal.cosformer_cumsum)):
        wanted = reference.cosformer(q[0], k[0], v[0], causal)
        assert largest_difference(form(q, k, v)[0], wanted) < 1e-6  # its angles are in float32
    wanted = (q @ k.mT).tril() @ v / (q @ k.mT).tril().sum(-1, keepdim=True)
    assert largest_difference(literal.chunked(q, k, v, 32), wanted) < 1e-12
    state, rows = 0, []
    for t in range(128):
        state = state * a[..., t, None, None].exp() + k[..., t, :, None] * v[..., t, None, :]
        rows.append((q[..., t, None, :] @ state).squeeze(-2))
    wanted = torch.stack(rows, -2)
    assert largest_difference(literal.decayed_chunks(q, k, v, a, 32), wanted) < 1e-11
    swapped = (x.transpose(1, 2) for x in (v, a, k, q))
    assert largest_difference(literal.ssd(*swapped, 32).transpose(1, 2), wanted) < 1e-11
    offset = torch.arange(128) - torch.arange(128)[:, None]
    scores = q @ k.mT * data.bias.double().exp()[:, 127 + offset]
    found = literal.toeplitz_fft(q, k, v, data.bias.double())
    assert largest_difference(found, scores @ v / scores.sum(-1, keepdim=True)) < 1e-11


# --- a run -----------------------------------------------------------------------------------


def test_a_run_prints_growth_and_goals_and_records_them(tmp_path, capsys):
    options = harness.Options(rounds=3, threads=(1,), output=tmp_path / "r.json", device="cpu")
    data = harness.run(SUITE, options)
    printed = capsys.readouterr().out
    assert read_record(options.output)["data"] == json.loads(json.dumps(data))
    assert [len(b["times_ms"]["SDPA"]) for b in data["blocks"]] == [3, 3, 2, 2]
    assert [g["met"] for g in data["goals"]] == [True, False]
    assert re.search(r"pass +1\.00  SDPA / SDPA ≤ 1 ", printed)
    assert re.search(r"MISS +0\.\d\d  peak of linear causal ≤ 1e-06 MB \(tiny", printed)
    assert re.search(r"^  performer-pytorch +not installed$", printed, re.MULTILINE)
    (found,) = data["scaling"]
    assert [r["contestant"] for r in found["rows"]] == 2 * ["SDPA", "ReLU"]
    assert all(r["growth"] is None for r in found["rows"]), "both are short"
    assert "Both: time grows as a power of the length" in printed


def test_the_record_is_of_the_whole_benchmark():
    data = read_record(ROOT / "results/bench-attention-cpu.json")["data"]
    assert set(data["settings"]["peers"]) == set(attention.PEERS)
    assert data["settings"]["peers"]["performer-pytorch"], "measured without a peer"
    built = data["settings"]["peers"]["pytorch-fast-transformers"]  # where a compiler is
    left_out = set() if built else {c for c in PEERS if c.startswith("fast")}
    places = {(b["shape"]["name"], b["threads"], b["mode"]) for b in data["blocks"]}
    assert places == set(
        itertools.product([s.name for s in attention.SHAPES], (1, 2), harness.MODES)
    )
    shapes = {shape.name: shape for shape in attention.SHAPES}
    for block in data["blocks"]:
        shape = shapes[block["shape"]["name"]]
        expected = {c.name for c in attention.CONTESTANTS if c.runs_at(shape)} - left_out
        assert set(block["times_ms"]) == expected
    assert [g["goal"] for g in data["goals"]] == [str(goal) for goal in attention.GOALS]
    for goal in data["goals"]:
        assert goal["met"] is not None or "fast-transformers" in goal["goal"]
    rows = [row for ladder in data["scaling"] for row in ladder["rows"]]
    assert all(row["growth"] is None or math.isfinite(row["growth"]) for row in rows)
