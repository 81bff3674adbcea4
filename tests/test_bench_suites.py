"""All suites of the benchmark: what they compare agrees, and their records are whole."""

import dataclasses
import itertools
import math

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import attention, decoding, delta, encoders, harness, models, peers, states
from benchmarks.goals import BOUND
from lab.records import read_record
from stringlib.attention import state
from stringlib.testing.properties import largest_difference
from tests.test_packaging import ROOT

CPU = torch.device("cpu")
SUITES = {
    module.SUITE.name: module.SUITE
    for module in (encoders, attention, states, delta, models, decoding)
}
SIZES = {
    "encoders": (2, 2, 10, 8),
    "attention": (2, 2, 192, 4),  # three chunks of 64: the middle one takes and gives a state
    "states": (2, 3, 130, 8),
    "delta": (2, 2, 192, 4),
    "models": (2, 2, 16, 8),
    "decoding": (2, 2, 5, 8),
}
# distribution → how its contestants are called
PEERS = {
    "rotary-embedding-torch": "rotary-embedding-torch",
    "transformers": "transformers",
    "torchtune": "torchtune",
    "performer-pytorch": "performer-pytorch",
    "pytorch-fast-transformers": "fast-transformers",
    "fla-core": "fla",
    "torch.compile": "torch.compile",
    "torch.compile of flex_attention": "FlexAttention",
}
MAY_BE_MISSING = {"pytorch-fast-transformers", "fla-core"}  # a compiler, a GPU


@pytest.fixture(autouse=True)
def no_peers(monkeypatch):
    """Make the peers missing wherever the tests run, and compile nothing; fla needs a GPU."""

    def missing(*_, **__):
        raise ModuleNotFoundError

    for name in ("rotary_embedding_torch", "transformers", "torchtune", "performer_features",
                 "performer_attention", "performer_layer", "fast_transformers_linear",
                 "fast_transformers_causal", "llama", "compiled", "flex_attention"):  # fmt: skip
        monkeypatch.setattr(peers, name, missing)


def ours(suite, missing=PEERS):
    """Return the names of a suite's contestants but those of missing peers."""
    gone = tuple(PEERS[name] for name in missing)
    return {c.name for c in suite.contestants if not c.name.startswith(gone)}


def tiny(suite):
    families = tuple(dict.fromkeys(c.family for c in suite.contestants))
    return harness.Shape("tiny", *SIZES[suite.name], families)


@pytest.mark.parametrize("suite", SUITES.values(), ids=SUITES)
def test_every_contestant_is_measured_somewhere_and_every_goal_names_what_is(suite):
    measured = {(c.name, s.name) for c in suite.contestants for s in suite.shapes if c.runs_at(s)}
    assert {name for name, _ in measured} == {c.name for c in suite.contestants}
    assert len({s.name for s in suite.shapes}) == len(suite.shapes)
    for goal in suite.goals:
        names = {goal.one, goal.other} - {None, BOUND}
        assert {(name, goal.shape) for name in names} <= measured
        assert (goal.at_least is None) != (goal.at_most is None)
    assert len(set(suite.said())) == len(suite.goals)
    assert set(suite.work) == {c.family for c in suite.contestants}
    for ladder in suite.ladders:
        for name in (ladder.reference, *ladder.others):
            assert len({s for c, s in measured if c == name and s in ladder.shapes}) >= 4


COUNTED = {  # contestants that multiply exactly what their family has to
    "attention": ["FAVOR+", "hyperbolic", "ReLU", "ELU", "FAVOR+ attention", "cosine",
                  "Toeplitz by rows", "SDPA with a bias"],
    "states": [],
    "delta": [],
    "models": [],
}  # fmt: skip


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("name", COUNTED)
def test_nobody_multiplies_less_than_the_work_of_its_family(name, backward):
    suite = SUITES[name]
    families = tuple(dict.fromkeys(c.family for c in suite.contestants))
    sizes = (2, 2, 64, 8) if name == "models" else (1, 2, 256, 16)
    shape = harness.Shape("ViT tiny", *sizes, families)  # softmax of a layer sees all pairs
    entries = harness.build(suite, shape, CPU)
    for contestant in suite.contestants:
        if contestant.name not in entries or contestant.family.startswith("softmax"):
            continue  # fused, which nothing counts
        entry = entries[contestant.name]
        leaves = [x.detach().requires_grad_() for x in entry.inputs]
        with FlopCounterMode(display=False) as counter:
            results = entry.call(*leaves)
            if backward:
                sum(y.sum() for y in results).backward()
        counted, least = counter.get_total_flops() / 2, suite.work[contestant.family](shape)
        products = least.of(backward)["multiplications"]
        # transforms and sums of tokens one by one are not counted as products
        uncounted = ("FFT", "cosFormer", "token by token", "layer, ")
        if contestant.name in COUNTED[name]:
            assert counted == products, contestant.name
        elif not any(word in contestant.name for word in uncounted):
            assert counted >= products > 0, contestant.name


@pytest.mark.parametrize("mode", harness.MODES)
@pytest.mark.parametrize("suite", SUITES.values(), ids=SUITES)
def test_families_agree_and_all_gradients_are_taken(suite, mode):
    if mode not in suite.modes:
        pytest.skip("decoding has no gradients")
    entries = harness.build(suite, tiny(suite), CPU)
    assert set(entries) == ours(suite)
    for name, call in harness.calls(entries, mode).items():
        result, entry = call(), entries[name]
        if mode == "forward":
            assert not any(y.requires_grad for y in result), name
        else:
            results, gradients = result
            assert all(y.isfinite().all() for y in results), name
            assert len(gradients) == len(entry.inputs) + len(entry.parameters), name
            assert all(g.abs().sum() > 0 for g in gradients), name


@pytest.mark.parametrize("suite", SUITES.values(), ids=SUITES)
def test_the_record_is_of_the_whole_suite(suite):
    data = read_record(ROOT / f"results/bench-{suite.name}-cpu.json")["data"]
    versions = data["settings"]["peers"]
    assert set(versions) == set(suite.peers)
    missing = {name for name in versions if versions[name] is None}
    assert missing <= MAY_BE_MISSING, "measured without a peer"
    names = [shape.name for shape in suite.shapes]
    places = {(b["shape"]["name"], b["threads"], b["mode"]) for b in data["blocks"]}
    assert places == set(itertools.product(names, (1, 2), suite.modes))
    for block in data["blocks"]:
        shape = suite.shapes[names.index(block["shape"]["name"])]
        here = {c.name for c in suite.contestants if c.runs_at(shape) and block["mode"] in c.modes}
        assert set(block["times_ms"]) == here & ours(suite, missing)
    assert [g["goal"] for g in data["goals"]] == suite.said()
    for goal in data["goals"]:
        assert goal["met"] is not None or any(PEERS[name] in goal["goal"] for name in missing)
    rows = [row for ladder in data.get("scaling", ()) for row in ladder["rows"]]
    assert all(row["growth"] is None or math.isfinite(row["growth"]) for row in rows)


# --- one against the other -----------------------------------------------------------------------


def backwards(shape, data):
    entry = encoders.CONTESTANTS[1].build(shape, data)
    return dataclasses.replace(entry, call=lambda q, k: entry.call(k, q))


def nothing(shape, data):
    return harness.Entry(lambda q, k: (q * torch.nan, k), (data.q, data.k))


def a_little(shape, data):
    entry = encoders.CONTESTANTS[1].build(shape, data)
    return dataclasses.replace(entry, restore=lambda y: y * 1.005)


@pytest.mark.parametrize(
    ("build", "tolerance", "agrees"),
    [
        (backwards, 0.0, False),
        (nothing, 0.0, False),
        (a_little, 0.0, False),
        (a_little, states.TF32, True),
    ],
)
def test_one_that_computes_something_else_is_refused(build, tolerance, agrees):
    other = harness.Contestant("other", "rope", build, tolerance=tolerance)
    contestants = (*encoders.CONTESTANTS[:2], other)
    suite = dataclasses.replace(encoders.SUITE, contestants=contestants)
    if agrees:
        assert "other" in harness.build(suite, tiny(suite), CPU)
    else:
        with pytest.raises(
            AssertionError, match=r"other must agree with its family to .* got a dif"
        ):
            harness.build(suite, tiny(suite), CPU)


def test_softmax_with_a_bias_is_the_formula():  # alone in its family without a compiler
    data = attention.make_data(tiny(attention.SUITE), CPU)
    q, k, v = data.qkv
    offset = torch.arange(192) - torch.arange(192)[:, None]
    logits = q @ k.mT / 4**0.5 + data.bias[:, 191 + offset]
    (biased,) = (c for c in attention.CONTESTANTS if c.name == "SDPA with a bias")
    (found,) = biased.build(tiny(attention.SUITE), data).call(q, k, v)
    assert largest_difference(found, logits.softmax(-1) @ v) < 1e-5


def test_every_state_computes_what_its_name_says():
    torch.manual_seed(0)
    shape = tiny(states.SUITE)
    data = states.Data(*(x.double() for x in states.make_data(shape, CPU)))
    q, k, v = data[:3]
    step, minus = -data.scalar, -torch.ones(shape.heads, dtype=torch.float64)
    wanted = {
        "no decay": (q @ k.mT).tril() @ v,
        "RetNet": state.retention(q, k, v, data.constant)[0],
        "SSD": state.ssd(v / step[..., None], step, minus, k, q)[0],
        "GLA": state.gated_linear_attention(q, k, v, data.vector)[0],
        "SDPA causal": torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True),
    }
    assert set(wanted) == ours(states.SUITE)
    for contestant in states.CONTESTANTS:
        if contestant.name in wanted:
            entry = contestant.build(shape, data)
            (found,) = entry.call(*entry.inputs)
            assert largest_difference(found, wanted[contestant.name]) < 1e-11, contestant.name
            decays = 1 if contestant.name in ("SSD", "GLA") else 0
            assert len(entry.inputs) == 3 + decays, "what is given gets a gradient"
