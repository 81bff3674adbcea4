"""The small models of the studies: what each is asked, and what it can and cannot see."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from lab.train.learn import Training
from results import (
    cayley_string,
    circulant_block_size,
    circulant_training,
    cosformer,
    decay_and_state,
    delta_rule,
    delta_start,
    gating,
    language,
    reflections,
    rope_2d,
    rope_decay,
    rope_shift,
    rotations_linear,
    string_commuting,
    toeplitz_rpe,
    why_positions,
)
from stringlib.positions import grid_positions
from stringlib.reference import build_skew_symmetric, cayley_after_rope
from stringlib.testing.properties import largest_difference
from tests.draws import generator

Make = Callable[[str], nn.Module]
ALIKE = (cayley_string, circulant_block_size, cosformer, decay_and_state)
ALIKE += (rope_shift, string_commuting, why_positions)
MODELS = [study.TRAINING.model for study in (*ALIKE, rope_2d, toeplitz_rpe)]
MODELS += [gating.Recall, reflections.OneLayer, rotations_linear.LookBack]


def seeded(make: Make, name: str) -> nn.Module:
    torch.manual_seed(0)
    return make(name).double()


# --- what is asked ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("study", "down", "left"), [(circulant_block_size, 3, 2), (string_commuting, 2, 1)]
)
def test_the_neighbour_stands_below_and_to_the_left(
    study: ModuleType, down: int, left: int
) -> None:
    cells, neighbours = study.asking_cells()
    assert len(cells) == (study.SIDE - down) * (study.SIDE - left)
    for cell, neighbour in zip(cells.tolist(), neighbours.tolist(), strict=True):
        row, column = divmod(cell, study.SIDE)
        assert divmod(neighbour, study.SIDE) == (row + down, column - left)


@pytest.mark.parametrize("side", [8, 12])
def test_the_answers_of_rope_2d_stand_on_the_diagonals(side: int) -> None:
    asking = rope_2d.asking_cells(side).tolist()
    assert len(asking) == (side - 2) ** 2
    for task in rope_2d.TASKS:
        symbols, answers = rope_2d.batch(task, side, 3, generator())
        table = symbols.view(3, side, side)
        for column, cell in enumerate(asking):
            y, x = divmod(cell, side)
            below_left, above_left = table[:, y + 1, x - 1], table[:, y - 1, x - 1]
            expected = below_left if task == "one" else above_left + table[:, y + 1, x + 1]
            assert torch.equal(answers[:, column], expected)


def test_the_answer_stands_three_places_back() -> None:
    tokens, answers = rope_shift.batch(4, generator())
    for place in range(3, rope_shift.LENGTH):
        assert torch.equal(answers[:, place - rope_shift.BACK], tokens[:, place - 3])
    model = rotations_linear.LookBack("relu none")
    model.forward = lambda symbols, start: nn.functional.one_hot(
        symbols.roll(3, -1), rotations_linear.SYMBOLS
    )
    assert rotations_linear.accuracy(model) == 1
    symbols = torch.arange(cayley_string.LENGTH)[None] % cayley_string.SYMBOLS
    oracle = cayley_string.LookBack("frozen", "0")
    oracle.forward = lambda symbols: (
        50.0 * nn.functional.one_hot(symbols.roll(3, -1), cayley_string.SYMBOLS)
    )
    assert cayley_string.cross_entropy(oracle, symbols) < 1e-12


@pytest.mark.parametrize(("task", "back"), [("near", 3), ("far", 40)])
def test_the_answer_stands_where_the_task_of_rope_decay_says(task: str, back: int) -> None:
    tokens, answers = rope_decay.batch(task, 50, generator())
    assert tokens.shape == (50, rope_decay.LENGTH)
    assert torch.equal(answers, tokens[:, back - 1])  # the nearest token is at distance 1


def test_anywhere_marks_one_symbol_and_asks_for_it() -> None:
    tokens, answers = rope_decay.batch("anywhere", 2000, generator())
    marked = tokens >= rope_decay.SYMBOLS
    assert marked.sum(1).eq(1).all()
    assert torch.equal(tokens[marked] - rope_decay.SYMBOLS, answers)
    assert marked.any(0).all()  # at every distance


@pytest.mark.parametrize("task", why_positions.TASKS)
def test_the_answer_stands_as_far_back_as_the_token_asks(task: str) -> None:
    tokens, back, answers = why_positions.batch(task, 8, 20, generator())
    assert set(back.flatten().tolist()) == set(range(1, why_positions.TASKS[task] + 1))
    for row in range(8):
        for place in range(why_positions.FARTHEST, 20):
            answer = tokens[row, place - back[row, place]]
            assert answers[row, place - why_positions.FARTHEST] == answer


def test_the_tasks_of_toeplitz_rpe_ask_what_they_say() -> None:
    tokens = toeplitz_rpe.batch(3, generator())
    offset, kind = (toeplitz_rpe.answers(task, tokens).tolist() for task in toeplitz_rpe.TASKS)
    for row, line in enumerate(tokens.tolist()):
        for i, token in enumerate(line):
            assert offset[row][i] == (line[i - 5] % 8 if i >= 5 else -100)
            alike = [t for t in line[:i] if t // 8 == token // 8]
            assert kind[row][i] == (alike[-1] % 8 if alike else -100)


def test_what_a_key_held_is_its_last_value() -> None:
    keys, values, held = cosformer.batch(3, generator())
    for row in zip(keys.tolist(), values.tolist(), held.tolist(), strict=True):
        memory: dict[int, int] = {}
        for key, value, wanted in zip(*row, strict=True):
            assert memory.get(key, -100) == wanted
            memory[key] = value


@pytest.mark.parametrize("task", delta_rule.KEYS)
def test_what_is_asked_for_was_written_and_is_the_latest(task: str) -> None:
    length = delta_rule.LENGTHS[task]
    tokens, answers = delta_rule.batch(task, 30, length, generator())
    for row, said in zip(tokens.tolist(), answers.tolist(), strict=True):
        memory: dict[int, int] = {}
        for (key, value, asked), answer in zip(row, said, strict=True):
            assert task != "distinct" or key not in memory
            memory[key] = value
            assert memory[asked] == answer
    assert set(tokens[..., 2].flatten().tolist()) == set(range(delta_rule.KEYS[task]))


def test_parity_is_that_of_the_bits_so_far() -> None:
    bits, answers = delta_rule.batch("parity", 5, 9, generator())
    for row, said in zip(bits[..., 0].tolist(), answers.tolist(), strict=True):
        assert said == [sum(row[: t + 1]) % 2 for t in range(9)]


def test_rates_are_below_one_or_two_and_states_differ_in_nothing_else() -> None:
    x = torch.randn(3, 7, 16)
    for name, top in (("delta to 1", 1), ("delta", 2)):
        beta = delta_rule.STATES[name](16)(50 * x).beta
        assert 0 <= beta.min() < 0.1 * top < 0.9 * top < beta.max() <= top
    shared = [
        {k: v for k, v in seeded(lambda s: delta_rule.Memory(s, "distinct"), state)
         .state_dict().items() if not k.startswith("weight")}
        for state in delta_rule.STATES
    ]  # fmt: skip
    for other in shared[1:]:
        assert all(torch.equal(shared[0][k], other[k]) for k in shared[0])


@pytest.mark.parametrize("start", delta_start.STARTS.values(), ids=delta_start.STARTS)
def test_rates_begin_where_they_are_told_and_nothing_else_differs(start: float) -> None:
    model = seeded(lambda _: delta_start.Started("distinct", start), "")
    assert delta_start.rate(model, "distinct") == pytest.approx(start, rel=0.15)
    plain = seeded(lambda s: delta_rule.Memory(s, "distinct"), "delta").state_dict()
    differ = {k for k, v in model.state_dict().items() if not torch.equal(v, plain[k])}
    assert differ == ({"weight.to_rate.bias"} if start < 1 else set())


@pytest.mark.parametrize("task", decay_and_state.TASKS)
def test_what_was_seen_since_a_marker_is_that_of_a_plain_search(task: str) -> None:
    tokens, answers = decay_and_state.batch(task, 20, 40, generator())
    kinds = set(tokens[tokens >= decay_and_state.SYMBOLS].tolist())
    assert kinds == ({16} if task == "one marker" else {16, 17})
    for row, said in zip(tokens.tolist(), answers.tolist(), strict=True):
        for t, (token, answer) in enumerate(zip(row, said, strict=True)):
            if token >= decay_and_state.SYMBOLS:
                assert math.isnan(answer)
                continue
            own = 16 if task == "one marker" or token < 8 else 17
            past = row[:t]
            since = past[len(past) - past[::-1].index(own) :] if own in past else past
            assert answer == (token in since)


def test_each_kind_of_query_gets_its_answer() -> None:
    (keys, values, asked, kinds), answers = gating.batch(64, generator())
    assert (kinds.sum(0) == 64 * torch.tensor([0, 1, 2] * 4)).all()
    for row in range(64):
        pairs = dict(zip(keys[row].tolist(), values[row].tolist(), strict=True))
        assert len(pairs) == len(set(pairs.values())) == gating.PAIRS
        for key, kind, answer in zip(asked[row].tolist(), kinds[row], answers[row], strict=True):
            if kind == 0:
                assert answer.argmax() == pairs[key]
                assert answer.norm() == 1
            else:
                assert answer.abs().max() == 0
            assert kind != 1 or key not in pairs


# --- how a model starts ----------------------------------------------------------------------


@pytest.mark.parametrize("make", MODELS)
def test_a_model_refuses_unknown_names(make: Callable[..., nn.Module]) -> None:
    study = sys.modules[make.__module__]
    known = {"start": True, "generator": generator(), **next(iter(study.CELLS.values()))}
    known |= {"method": study.METHODS[0]} if study is reflections else {}
    told = {key: known[key] for key in inspect.signature(make).parameters}
    make(**told)
    for key in told.keys() - {"start", "generator"}:
        with pytest.raises(ValueError, match=rf"{key} must be one of .+, got 'other'"):
            make(**{**told, key: "other"})


@pytest.mark.parametrize("study", ALIKE)
def test_what_models_of_a_seed_share_starts_alike(study: ModuleType) -> None:
    training: Training = study.TRAINING
    first: dict[str, Tensor] = {}
    for told in study.CELLS.values():
        model = training.train(seed=3, steps=0, **told)
        for name, weight in model.named_parameters():
            if not name.startswith(("encoder.", "gate.", "bias.")):
                assert torch.equal(weight, first.setdefault(name, weight)), (told, name)


GRID = circulant_block_size.batch(2, generator())
SMALL_GRID = string_commuting.batch(2, generator())
STARTS: dict[str, tuple[Make, tuple[str, ...], Callable[[nn.Module], Tensor], float]] = {
    "circulant_block_size": (
        circulant_block_size.Neighbour,
        ("16", "direct"),
        lambda model: model.float()(GRID),
        1e-5,
    ),
    "string_commuting": (
        string_commuting.Neighbour,
        string_commuting.METHODS,
        lambda model: model(SMALL_GRID, grid_positions(8, 8)),
        1e-10,
    ),
    "reflections": (
        reflections.OneLayer,
        reflections.METHODS,
        lambda model: torch.cat([model(GRID).flatten(), model.encoder.frequencies().flatten()]),
        0,
    ),
}
"""Study → its model, methods that start as one function, that function, and how far they part."""


@pytest.mark.parametrize("name", STARTS)
def test_methods_start_as_the_same_function(name: str) -> None:
    make, methods, call, most = STARTS[name]
    outputs = [call(seeded(make, method)) for method in methods]
    assert all(largest_difference(other, outputs[0]) <= most for other in outputs)


def test_frozen_means_that_only_the_encoder_and_the_readout_learn() -> None:
    learned = {
        s: {n for n, p in cayley_string.LookBack(s, "0.5").named_parameters() if p.requires_grad}
        for s in cayley_string.SETTINGS
    }
    last = {"encoder.entries", "encoder.omega", "readout.weight", "readout.bias"}
    assert learned["frozen"] == last
    assert learned["free"] > last


# --- what a model sees -----------------------------------------------------------------------


def reader(cell: str) -> nn.Module:
    return language.text_task().model(**language.CELLS[cell])


PAIRS = cosformer.batch(2, generator())[:2]
ASKED = why_positions.batch("asked", 2, 12, generator())[:2]
TOKENS = torch.randint(16, (2, reflections.LENGTH), generator=generator())
BYTES = torch.randint(256, (1, 40), generator=generator())
CAUSAL: list[tuple[Make, str, tuple[Tensor, ...], int, int, float]] = [
    *(
        (cosformer.Memory, method, PAIRS, 31, cosformer.VALUES, 1e-12)
        for method in cosformer.METHODS
    ),
    *((why_positions.OneLayer, method, ASKED, 8, 16, 1e-12) for method in why_positions.METHODS),
    (reflections.OneLayer, "mirrors", (TOKENS,), 10, 16, 0),
    (reader, "softmax, RoPE", (BYTES,), 30, 256, 1e-12),
    (reader, "C-CosGate", (BYTES,), 30, 256, 1e-12),
    (reader, "learned circulant, RoPE", (BYTES,), 30, 256, 1e-12),
]
"""A model, what it reads, the first output that may change, number of tokens, what is rounding."""


@pytest.mark.parametrize(("make", "name", "inputs", "first", "count", "rounding"), CAUSAL)
def test_no_token_sees_what_comes_after_it(
    make: Make, name: str, inputs: tuple[Tensor, ...], first: int, count: int, rounding: float
) -> None:
    model, others = seeded(make, name), [x.clone() for x in inputs]
    written = make is cosformer.Memory  # its last input is seen by the tokens behind it alone
    changed = others[-1][:, first - 1 :] if written else others[0][:, first:]
    changed.copy_((changed + 1) % count)
    gap = (model(*inputs) - model(*others)).abs().amax((0, 2))
    assert gap[:first].max() <= rounding
    assert gap[first:].min() > 1e-6


MOVED: dict[str, tuple[Make, Callable[[nn.Module, int], Tensor], Callable[[str], bool]]] = {
    "rope_shift": (
        rope_shift.OneLayer,
        lambda model, shift: model(rope_shift.batch(4, generator())[0], rope_shift.span(shift)),
        lambda method: method.startswith("sinusoidal"),
    ),
    "rotations_linear": (
        rotations_linear.LookBack,
        lambda model, shift: model(rotations_linear.batch(2, generator()), shift),
        lambda method: "softmax" not in method and method.split()[1] in ("before", "moving"),
    ),
    "why_positions": (
        why_positions.OneLayer,
        lambda model, shift: model(*why_positions.batch("asked", 4, 32, generator())[:2], shift),
        lambda method: method == "sinusoidal",
    ),
}
"""Study → its model, its outputs at positions that are larger by a shift, and who feels it."""


@pytest.mark.parametrize(
    ("name", "method"),
    [
        (name, method)
        for name, study in (
            ("rope_shift", rope_shift),
            ("rotations_linear", rotations_linear),
            ("why_positions", why_positions),
        )
        for method in study.METHODS
        if method != "learned"
    ],
)
def test_only_what_is_added_or_turned_before_a_feature_map_feels_a_shift(
    name: str, method: str
) -> None:
    make, call, feels = MOVED[name]
    model = seeded(make, method)
    here, there = call(model, 0), call(model, 1000)
    change, size = largest_difference(here, there), here.abs().max().item()
    most = 1e-9 * size if name == "rotations_linear" else 1e-12
    assert change > 1e-2 if feels(method) else change < most


def test_a_learned_table_has_no_rows_beyond_its_own() -> None:
    tokens, back, _ = why_positions.batch("asked", 4, why_positions.LENGTH, generator())
    with pytest.raises(ValueError, match="positions must be whole numbers from 0 to 31"):
        why_positions.OneLayer("learned")(tokens, back, 1)


@pytest.mark.parametrize("method", string_commuting.METHODS)
def test_only_free_generators_feel_a_shift_and_only_they_stop_commuting(method: str) -> None:
    model = string_commuting.train(method=method, seed=0, steps=3)
    places = grid_positions(string_commuting.SIDE, string_commuting.SIDE)
    here, there = model(SMALL_GRID, places), model(SMALL_GRID, places + 100)
    free = method.startswith("liere")
    assert ((here - there).abs().max().item() > 1e-3) is free
    assert (string_commuting.commutator(model) > 1e-4) is free
    moved = [p for name, p in model.encoder.named_parameters() if p.numel()]
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in moved)


@pytest.mark.parametrize("method", rope_2d.METHODS)
def test_moving_the_grid_changes_nothing_and_only_a_raster_knows_its_width(method: str) -> None:
    model = seeded(lambda method: rope_2d.Head(method, "one"), method)
    symbols, _ = rope_2d.batch("one", 8, 3, generator())
    here, there = (model(symbols, model.positions(8, *first)) for first in ((0, 0), (40, 23)))
    assert largest_difference(here, there) < 1e-12
    assert largest_difference(here, model(symbols, 2 * model.positions(8))) > 1e-4
    steps = [model.positions(side)[side] - model.positions(side)[0] for side in (8, 12)]
    assert torch.equal(*steps) is (method != "rope")  # one row down


@pytest.mark.parametrize(("task", "knows"), [("one", False), ("two", False), ("two-content", True)])
def test_scores_see_the_symbols_only_where_the_task_says_so(task: str, knows: bool) -> None:
    model = seeded(lambda task: rope_2d.Head("mixed", task), task)
    asked: list[Tensor] = []
    model.encoder.register_forward_pre_hook(lambda _, given: asked.append(given[0].detach()))
    model(rope_2d.batch(task, 8, 3, generator())[0], model.positions(8))
    assert (largest_difference(asked[0], asked[0][:, :, :1]) > 0.1) is knows


@pytest.mark.parametrize(("method", "knows"), [("1", False), ("2", False), ("4", True)])
def test_blocks_of_one_or_two_give_every_cell_of_a_symbol_the_same_answer(
    method: str, knows: bool
) -> None:
    answers = seeded(circulant_block_size.Neighbour, method)(GRID)[0, GRID[0] == 0]
    assert (largest_difference(answers, answers[:1]) > 1e-3) is knows


@pytest.mark.parametrize("method", rotations_linear.METHODS)
def test_without_rotations_the_place_is_unknown(method: str) -> None:
    model = seeded(rotations_linear.LookBack, method)
    symbols = rotations_linear.batch(2, generator())
    order = torch.randperm(rotations_linear.LENGTH, generator=generator(2))
    gap = largest_difference(model(symbols)[:, order], model(symbols[:, order]))
    assert (gap < 1e-12) is ("none" in method)


@pytest.mark.parametrize("method", toeplitz_rpe.METHODS)
def test_only_a_weight_or_bias_knows_the_order(method: str) -> None:
    model = seeded(toeplitz_rpe.Layer, method)
    nn.init.normal_(model.bias)
    tokens = toeplitz_rpe.batch(1, generator())
    there = model(tokens.flip(1)).flip(1)
    blind = method in ("favor", "favor cosine", "favor kerple", "softmax temperature")
    assert (largest_difference(model(tokens), there) < 1e-9) is blind


@pytest.mark.parametrize("start", [False, True])
@pytest.mark.parametrize("attention", gating.ATTENTIONS)
def test_queries_see_the_pairs_and_perhaps_the_start(attention: str, start: bool) -> None:
    torch.manual_seed(0)
    model = gating.Recall(attention, "none", start, generator()).double()
    x = model.embed(*gating.batch(3, generator())[0])
    weights = model.layer.attention_weights(x, key_mask=model.seen)[..., 1 + gating.PAIRS :, :]
    seen = weights.abs().amax((0, 1, 2)) > 0
    assert seen.tolist() == [start] + [True] * gating.PAIRS + [False] * gating.QUERIES


def test_a_gate_cannot_tell_whether_a_key_is_there() -> None:
    torch.manual_seed(0)
    model = gating.Recall("softmax", "elementwise", True, torch.Generator()).double()
    (keys, values, asked, kinds), _ = gating.batch(5, generator())
    gates = model.layer.gate.values(model.embed(keys, values, asked, kinds))
    moved = model.layer.gate.values(model.embed(keys.roll(1, 0), values, asked, kinds))
    behind = slice(1 + gating.PAIRS, None)
    assert torch.equal(gates[..., behind, :], moved[..., behind, :])


# --- what one study claims -------------------------------------------------------------------


def test_the_misplaced_form_is_the_literal_one() -> None:
    torch.manual_seed(0)
    encoder = cayley_string.AfterRotation(16).double()
    q, positions = torch.randn(1, 7, 16).double(), torch.arange(7)[:, None]
    skew = build_skew_symmetric(encoder.entries[0].detach(), 16)
    literal = cayley_after_rope(q, positions, skew, encoder.omega[0].detach())
    assert largest_difference(encoder(q, q, positions)[0], literal) < 1e-12


def test_training_learns_and_behind_the_rotation_the_transform_does_not() -> None:
    models = {
        method: cayley_string.train(setting="frozen", method=method, seed=1, steps=60)
        for method in ("0", "1", "after")
    }
    losses = {method: cayley_string.held_out_loss(model) for method, model in models.items()}
    assert losses["1"] < losses["0"] - 0.1
    assert abs(losses["after"] - losses["0"]) < 1e-9
    start = cayley_string.train(setting="frozen", method="after", seed=1, steps=0)
    moved = models["after"].encoder.entries - start.encoder.entries
    assert moved.abs().max() < 1e-5


@pytest.mark.parametrize(("optimizer", "same"), [("SGD", "omega-8"), ("Adam", "omega-4")])
def test_mirrors_follow_the_frequencies_at_the_right_multiple_of_the_rate(
    optimizer: str, same: str
) -> None:
    runs = {m: reflections.train(m, optimizer, seed=1, steps=40) for m in reflections.METHODS}
    mirrors = runs.pop("mirrors")
    moved = largest_difference(mirrors.frequencies[-1], reflections.START)
    for method, run in runs.items():
        apart = largest_difference(run.frequencies, mirrors.frequencies)
        assert (apart < 1e-12) == (method == same)
        assert method == same or apart > 0.1 * moved
    assert torch.equal(runs["fixed"].frequencies[-1], reflections.START)


def test_powers_of_ten_are_not_below() -> None:
    given = [0.0, 1e-15, 1e-12, 2e-12, 0.3, 1.0]
    assert [reflections.power_of_ten(e) for e in given] == [1e-12, 1e-12, 1e-12, 1e-11, 1.0, 1.0]


def test_the_table_of_scores_is_attention_with_rope() -> None:
    model = seeded(lambda _: rope_decay.OneHead(), "")
    tokens, _ = rope_decay.batch("anywhere", 3, generator())
    query = torch.full((3, 1), rope_decay.QUERY)
    x = model.embed(torch.cat([tokens.flip(1), query], 1))[:, None]  # as a text is read
    places = torch.arange(rope_decay.LENGTH + 1, dtype=torch.float64)[:, None]
    q, k = model.encoder(model.to_q(x), model.to_k(x), places)
    v = model.to_v(x)
    out = nn.functional.scaled_dot_product_attention(
        q[:, :, -1:], k[:, :, :-1], v[:, :, :-1], scale=rope_decay.DIM**-0.5
    )
    assert (model(tokens) - model.readout(out[:, 0, 0])).abs().max() < 1e-12
    model.extend("yarn")
    sharp = model.score_table(8)
    model.factor = 1.0
    ratio = (1 + 0.1 * math.log(4)) ** 2
    assert (sharp / model.score_table(8) - ratio).abs().max() < 1e-6


@pytest.mark.parametrize("phi", ["relu", "favor"])
def test_turning_the_numerator_alone_is_another_method(phi: str) -> None:
    symbols = rotations_linear.batch(2, generator())
    after, numerator = (
        seeded(rotations_linear.LookBack, f"{phi} {place} even") for place in ("after", "numerator")
    )
    assert largest_difference(after(symbols), numerator(symbols)) > 1e-3


def test_all_feature_maps_have_as_many_features() -> None:
    for method in rotations_linear.METHODS[2:]:
        model = rotations_linear.LookBack(method)
        q, k, x, _ = model.inputs(rotations_linear.batch(1, generator()), 0.0)
        assert model.phi(q).shape[-1] == model.phi(k).shape[-1] == rotations_linear.FEATURES
        assert x.shape == (1, 1, rotations_linear.LENGTH, rotations_linear.DIM)


def test_frequencies_reach_as_far_as_said() -> None:
    for size in (16, 64):
        even = rotations_linear.encoder(size, "even").frequencies().flatten()
        assert largest_difference(even.diff(), torch.full_like(even[1:], 6 / size)) < 1e-12
        assert 2.8 < even.max() < 3
        assert rotations_linear.encoder(size, "geometric").frequencies().max() == 1


def test_softmax_and_favor_attend_to_the_same_products() -> None:
    torch.manual_seed(0)
    exact, model = toeplitz_rpe.Layer("softmax toeplitz"), toeplitz_rpe.Layer("favor toeplitz")
    exact.phi = model.phi = toeplitz_rpe.FavorFeatures(toeplitz_rpe.HEAD_DIM, 60_000)
    exact.load_state_dict(model.state_dict())
    tokens = toeplitz_rpe.batch(1, generator())
    assert largest_difference(exact(tokens), model(tokens)) < 0.02


def test_the_ceiling_names_the_value_of_the_largest_weight() -> None:
    """By hand, for the decay: every token asks what came before it, at distances 0, 1, 2, …."""
    keys, values, held = cosformer.batch(256, generator(10_000))
    right = asked = 0
    for row in range(256):
        totals = torch.zeros(cosformer.KEYS, cosformer.VALUES, dtype=torch.float64)
        for t in range(cosformer.LENGTH):
            key, value = keys[row, t], values[row, t]
            if held[row, t] >= 0:
                asked += 1
                right += int(totals[key].argmax() == held[row, t])
            totals *= 7 / 8
            totals[key, value] += 1
    assert cosformer.ceiling("retnet") == pytest.approx(right / asked, abs=1e-9)
    assert cosformer.ceiling("relu") == cosformer.ceiling("softmax") < cosformer.ceiling("cosine")
    steeper = ("cosine", "cosine-positive", "cosine-phase", "ramp-squared", "retnet")
    allowed = [cosformer.ceiling(method) for method in steeper]
    assert allowed == sorted(allowed)


def test_the_phase_is_one_minus_a_sine() -> None:
    weight, n = cosformer.WEIGHTS["cosine-phase"], cosformer.LENGTH
    phi = torch.rand(1, n, 3, generator=generator(), dtype=torch.float64)
    q, k, _ = weight.factors(phi, phi)
    wanted = [[(1 - math.sin(math.pi * (i - j) / 2 / n)) / 2 for j in range(n)] for i in range(n)]
    dense = torch.tensor(wanted, dtype=torch.float64).tril()
    assert largest_difference(weight.matrix(n, n), dense) < 1e-15
    assert largest_difference((q @ k.mT).tril(), dense * (phi @ phi.mT)) < 1e-12


def test_equal_scores_share_the_answer() -> None:
    scores = torch.tensor([[[1.0, 1, 0, 0], [0, 0, 3, 0], [1, 1, 1, 1], [2, 0, 0, 0]]])
    assert cosformer._right(scores, torch.tensor([[1, 2, 0, -100]])) == pytest.approx(1.75 / 3)


def test_the_log_decay_has_the_shape_that_the_name_says() -> None:
    x = torch.randn(2, 1, 5, decay_and_state.DIM)
    shapes = {"none": (1,), "constant": (1,), "scalar": (2, 1, 5, 1), "vector": (2, 1, 5, 16)}
    for decay, shape in shapes.items():
        log_decay = decay_and_state.Memory(decay).log_decay(x)
        assert log_decay.shape == shape
        assert (log_decay <= 0).all()
        assert (log_decay == 0).all() == (decay == "none")


def test_a_rule_by_age_is_right_where_age_decides() -> None:
    """In sequences of two tokens a symbol was there before if its age is 1."""
    assert decay_and_state.by_age("one marker", length=2, size=400) == 1


# --- Circulant-STRING in every recommended way -----------------------------------------------


def test_both_answers_are_asked_for_where_they_lie_on_the_grid() -> None:
    side = circulant_training.SIDE
    found = list(zip(*(x.tolist() for x in circulant_training.asked()), strict=True))
    expected = [
        (row * side + column, answer, (row + down) * side + column + right)
        for row in range(side)
        for column in range(side)
        for answer, (down, right) in enumerate(circulant_training.OFFSETS)
        if 0 <= row + down < side and 0 <= column + right < side
    ]
    assert found == expected


@pytest.mark.parametrize("name", circulant_training.CELLS)
def test_each_cell_changes_one_thing(name: str) -> None:
    told, base = circulant_training.CELLS[name], circulant_training.BASE
    changed = {key: told[key] for key in told if told[key] != base[key]}
    assert list(told) == list(base)
    assert [f"{key} {value}" for key, value in changed.items()] == [name] * (name != "base")


@pytest.mark.parametrize(
    ("start", "deviation"), [("noise", 0.1), ("zero", 0), ("normal", 2**0.5), ("uniform", 2**0.5)]
)
@pytest.mark.parametrize("block", [16, 64])
def test_starts_have_frequencies_of_the_size_that_the_chapter_gives(
    block: int, start: str, deviation: float
) -> None:
    torch.manual_seed(0)
    made = [circulant_training.encoder(block, start, shared) for shared in [False] * 20 + [True]]
    assert [e.heads for e in made[-2:]] == [2, 1]
    frequencies = torch.cat([e.frequencies().flatten() for e in made])
    assert frequencies.std().item() == pytest.approx(deviation, rel=0.05)
    if start in ("normal", "uniform"):
        assert not torch.stack([e.coefficients[..., 0] for e in made[:-1]]).any()


def test_the_inert_part_turns_nothing_and_the_rest_is_all_frequencies() -> None:
    encoder = circulant_training.encoder(16, "normal", shared=False).double()
    with torch.no_grad():
        c = encoder.coefficients
        even, frequencies = circulant_training.inert(c), encoder.frequencies()
        squares = frequencies.square().sum() / 32 + even.square().sum()
        assert squares.item() == pytest.approx(c.square().sum().item(), rel=1e-12)
        c.copy_(even)
        assert encoder.frequencies().abs().max() < 1e-14


def test_penalty_and_decay_act_on_the_inert_part_too() -> None:
    def sizes(**changed: object) -> dict[str, float]:
        told = {**circulant_training.BASE, "start": "normal", **changed}
        found: dict[str, float] = circulant_training.run(0, 3, **told)["sizes"]
        return found

    torch.manual_seed(0)
    start = circulant_training.encoder(16, "normal", shared=False).coefficients.detach()
    size = circulant_training.inert(start).square().mean().sqrt().item()
    # the loss gives the even part no gradient; decay takes a share of it, Adam's step a length
    assert sizes()["inert"] == pytest.approx(size, abs=1e-5)
    rate = circulant_training.BASE["rate"]
    assert sizes(decay=10.0)["inert"] == pytest.approx(size * (1 - 10 * rate) ** 3, abs=1e-5)
    assert size - 3 * rate < sizes(penalty=1e3)["inert"] < size - rate


def test_a_step_is_counted_as_clipped_if_its_gradient_was_too_long() -> None:
    told = circulant_training.BASE
    shares = [circulant_training.run(0, 3, **{**told, "clip": c})["clipped"] for c in (1e-6, 1e6)]
    assert shares == [1.0, 0.0]
