"""The studies that train whole models on a task: their cells, sequences and probes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from lab.tasks import make_task
from lab.tasks.images import Images
from lab.tasks.listops import CLOSE, OPERATORS, ListOps
from lab.tasks.recall import Recall
from lab.tasks.task import IGNORE
from lab.tasks.volumes import Volumes
from lab.theory.capacity import guess_accuracy
from results import (
    copy_rates,
    extrapolation,
    language,
    language_sources_rates,
    listops,
    lookup,
    recall,
    recall_success,
    repeats,
    transfer,
    transfer_3d,
    vision,
)
from stringlib.testing.properties import largest_difference
from tests.draws import generator


class Says(nn.Module):
    """Gives the scores that a function gives."""

    def __init__(self, scores) -> None:
        super().__init__()
        self.scores = scores

    def forward(self, inputs: Tensor, positions: object = None) -> Tensor:
        return self.scores(inputs)


# --- recall ----------------------------------------------------------------------------------


def test_the_same_sequences_come_again_and_new_ones_test() -> None:
    task = recall.SeenRecall(50, pairs=4, keys=6)
    known = {tuple(row) for row in task.inputs.tolist()}
    for seed in range(3):
        inputs, targets = task.batch(64, generator(seed))
        assert {tuple(row) for row in inputs.tolist()} <= known
        for row, target in zip(inputs.tolist(), targets[:, -1].tolist(), strict=True):
            assert dict(zip(row[0:-1:2], row[1:-1:2], strict=True))[row[-1]] == target
    held = task.held_out()
    (seen, _), *_ = held["seen"]
    assert torch.equal(seen, task.inputs)
    ours, theirs = (next(sets["test"])[0] for sets in (held, Recall(4, 6).held_out()))
    assert torch.equal(ours, theirs)


def test_a_shift_recalls_and_nothing_else_does() -> None:
    with_shift = recall_success.CELLS["free, softmax, rate 0.01"]
    without = recall.CELLS["8 pairs, no shift: softmax"]
    found = [recall.run(0, steps=200, **told)["scores"]["test"] for told in (with_shift, without)]
    assert found[0] > 0.95
    assert found[1] < float(guess_accuracy(8, 8)) + 0.03


def test_a_lookup_asks_for_values_that_stand_behind_their_keys() -> None:
    tokens, targets = lookup.Lookup().lists(3, 10, generator(0))
    assert tokens.shape == targets.shape == (3, 2 * lookup.PAIRS + 10 + lookup.ASKED)
    assert (targets[:, : -lookup.ASKED] == IGNORE).all()
    for row, wanted in zip(tokens.tolist(), targets[:, -lookup.ASKED :].tolist(), strict=True):
        keys, values = (row[first : 2 * lookup.PAIRS : 2] for first in (0, 1))
        assert len(set(keys)) == lookup.PAIRS
        assert wanted == [values[keys.index(key)] for key in row[-lookup.ASKED :]]
        between = row[2 * lookup.PAIRS : -lookup.ASKED]
        assert not {*between} & {*keys, *range(lookup.VALUES)}


# --- ListOps ---------------------------------------------------------------------------------


@pytest.mark.parametrize("digit", [0, 9])
def test_accuracy_by_operator_is_the_share_of_that_value(digit: int) -> None:
    task = ListOps(**listops.EXPRESSIONS, train_size=200, test_size=300)
    for inputs, targets in task.held_out()["test"]:
        assert ((inputs[:, 0] >= 10) & (inputs[:, 0] < CLOSE)).all(), "every one has an operator"
        assert ((targets >= 0).sum(-1) == 1).all()
        assert inputs.shape[1] <= 31
    tokens, values = task.test
    always = Says(lambda x: nn.functional.one_hot(torch.full_like(x, digit), 16).float())
    found = listops.by_operator(always, task)
    assert list(found) == list(OPERATORS)
    for i, name in enumerate(OPERATORS):
        mine = values[tokens[:, 0] == 10 + i]
        assert found[name] == pytest.approx((mine == digit).double().mean().item(), abs=1e-6)


# --- language --------------------------------------------------------------------------------


def test_the_second_copy_is_free_for_who_copies_and_not_for_who_does_not() -> None:
    half = language.LENGTH // 2
    test = torch.randint(256, (1000,), generator=generator())
    # the byte after this one, in the first copy
    copier = Says(lambda x: 30.0 * nn.functional.one_hot(x.roll(half - 1, 1), 256))
    assert language.second_copy(copier, test) < 1e-9
    blind = Says(lambda x: torch.zeros(*x.shape, 256))
    assert language.second_copy(blind, test) == pytest.approx(8)


def test_a_window_holds_a_piece_of_text_twice_and_each_copy_counts_by_itself() -> None:
    task, half = repeats.Repeats(length=repeats.LENGTH), repeats.HALF
    inputs, targets = task.batch(3, generator())
    assert inputs.shape == targets.shape == (3, repeats.LENGTH - 1)
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert torch.equal(inputs[:, : half - 1], inputs[:, half:])
    first, second = (next(batches)[1] != IGNORE for batches in task.held_out().values())
    assert first[:, : half - 1].all()
    assert second[:, half - 1 :].all()
    assert torch.equal(first, ~second)


def test_a_window_says_one_piece_again_and_again() -> None:
    task = copy_rates.Copies(length=copy_rates.LENGTH)
    inputs, targets = task.batch(64, generator())
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    shortest, longest = copy_rates.PERIODS[0], copy_rates.PERIODS[-1]
    periods = []
    for row in inputs:
        fits = [n for n in range(1, longest + 1) if torch.equal(row[n:], row[:-n])]
        periods.append(fits[0])
    assert shortest <= min(periods) < 32 < 64 < max(periods) <= longest
    for name, batches in task.held_out().items():
        period, which = int(name.split()[0]), name.split()[1]
        x, asked = next(batches)
        assert x.shape[1] == 2 * period - 1
        assert torch.equal(x[:, period:], x[:, : period - 1])
        where = (asked != IGNORE).nonzero()[:, 1].unique().tolist()
        first = [*range(period - 1)]
        assert where == (first if which == "first" else [*range(period - 1, 2 * period - 1)])


def test_every_context_names_the_same_bytes() -> None:
    named = []
    for length, batches in language.context_task().held_out().items():
        targets = torch.cat([t for _, t in batches])
        assert targets.shape[1] == int(length)
        assert (targets[:, : -language.LAST] == IGNORE).all()
        named.append(targets[:, -language.LAST :])
    assert len(named) == len(language.CONTEXTS)
    assert all(torch.equal(named[0], other) for other in named[1:])
    assert named[0].shape == (language.WINDOWS, language.LAST)


# --- lengths ---------------------------------------------------------------------------------


def small(encoder: str | None = "rope") -> nn.Module:
    torch.manual_seed(0)
    return extrapolation.LanguageModel(256, 16, 1, 2, encoder)


@pytest.mark.parametrize("length", [24, 64, 200])
def test_every_needle_is_there_once_and_asked_for_once(length: int) -> None:
    task = extrapolation.Needle(length)
    tokens, targets = task.batch(20, generator())
    told = task.KEYS * task.VALUES
    assert tokens.shape == targets.shape == (20, length)
    assert (targets[:, : -task.KEYS] == IGNORE).all()
    for row, answers in zip(tokens.tolist(), targets[:, -task.KEYS :].tolist(), strict=True):
        needles = dict(divmod(t, task.VALUES) for t in row[: -task.KEYS] if t < told)
        assert sorted(needles) == list(range(task.KEYS))
        assert sum(t < told for t in row) == task.KEYS
        asked = [t - told - task.FILLERS for t in row[-task.KEYS :]]
        assert [needles[key] for key in asked] == answers
        assert sorted(asked) == list(range(task.KEYS))


def test_the_sliding_window_sees_64_bytes_and_no_more() -> None:
    model = small()
    inputs, targets = torch.randint(256, (2, 2, 256), generator=generator())
    costs = extrapolation.sliding(model, inputs, targets)
    whole = extrapolation.bits(model, inputs[:, :64], targets[:, :64])
    assert costs.shape == targets.shape
    assert largest_difference(costs[:, :64], whole) < 1e-5
    # place 100 belongs to the window that begins at 64
    alone = extrapolation.bits(model, inputs[:, 64:128], targets[:, 64:128])
    assert largest_difference(costs[:, 100], alone[:, 36]) < 1e-5
    changed = inputs.clone()
    changed[:, 63] = (changed[:, 63] + 1) % 256
    moved = (extrapolation.sliding(model, changed, targets) - costs).abs().amax(0) > 1e-6
    assert moved.nonzero().flatten().tolist() == list(range(63, 96))


# --- vision ----------------------------------------------------------------------------------


def moved_task() -> Images:
    task = make_task("moved-digits", views=1)
    assert isinstance(task, Images)
    return task


def test_places_are_rows_from_the_top() -> None:
    def corner(images: Tensor) -> Tensor:
        """Give class 1 if all that is bright is in the upper left quarter, else class 0."""
        inside = images[:, :, :8, :8].sum((1, 2, 3)) > images.sum((1, 2, 3)) - 0.5
        return nn.functional.one_hot(inside.long(), 2).float()

    task = moved_task()
    task.test = torch.full((4, 1, 8, 8), 16), torch.ones(4, dtype=torch.long)
    places = vision.at_places(Says(corner), task)
    assert places[0][0] == 1
    assert sum(map(sum, places)) == 1
    # one dot, at the place itself
    task.test = torch.zeros(4, 1, 8, 8), torch.ones(4, dtype=torch.long)
    task.test[0][..., 0, 0] = 16
    inside = [[float(r <= 3 and c <= 3) for c in range(5)] for r in range(5)]
    assert vision.at_places(Says(corner), task) == inside
    # rows and columns apart: class 1 on the upper half
    upper = Says(lambda x: nn.functional.one_hot((x[:, :, :8].sum((1, 2, 3)) > 0).long(), 2))
    assert vision.at_places(upper, task) == [[float(r <= 3)] * 5 for r in range(5)]


def test_sources_are_whole_files_each_in_one_of_three_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = language_sources_rates
    files = {f"{name}.py": f"<{name}>{'x' * 999}</{name}>".encode() for name in range(60)}
    left_out = {"test/own.py": b"left out", "a/encodings/table.py": b"left out"}
    for name, text in {**files, **left_out, "data.txt": b"left out"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(text)
    monkeypatch.setattr(study.sysconfig, "get_path", {"stdlib": str(tmp_path)}.get)
    monkeypatch.setattr(study, "HELD_OUT", 10_000)
    parts = study.sources.__wrapped__()
    assert sorted(b"\n".join(parts).split(b"\n")) == sorted(files.values())
    assert [len(part) // 1000 for part in parts[1:]] == [10, 10]
    assert len(parts[0]) > 3 * len(parts[1])


# --- transfer --------------------------------------------------------------------------------


@pytest.mark.parametrize("task", transfer.TASKS)
@pytest.mark.parametrize("base", transfer.BASES)
def test_zero_start_changes_nothing_and_noise_does(task: str, base: str) -> None:
    made, model = transfer.pretrain(task, base, seed=0, steps=2)
    images = torch.rand(4, 1, made.canvas, made.canvas)
    still, noisy = (transfer.with_string(model, start) for start in ("zero", "noise"))
    assert transfer.largest_change(model, still, images) < 1e-5
    assert transfer.largest_change(model, noisy, images) > 1e-4
    assert transfer.encoders(model) == []
    assert len(transfer.encoders(noisy)) == len(noisy.blocks)
    assert transfer.frequencies(noisy).std() == pytest.approx(0.1, rel=0.2)


@pytest.mark.parametrize(("base", "pool"), [("none", "mean"), ("none", "cls"), ("learned", "mean")])
def test_the_gradient_at_zero_vanishes_only_without_any_absolute_place(
    base: str, pool: str
) -> None:
    torch.manual_seed(0)
    model = make_task("digits").model(pool=pool, encoder=None if base == "none" else base)
    model = transfer.with_string(model, "zero")
    found = transfer.gradients(model, torch.rand(6, 1, 8, 8), torch.arange(6))
    assert found["plain"] > 1e-3
    assert (found["patches mirrored"] < 1e-14) == (base == "none" and pool == "mean")
    assert found["pixels mirrored"] > 1e-4
    assert found["pixels mirrored"] != pytest.approx(found["plain"], rel=1e-3)


# --- from two coordinates to three -----------------------------------------------------------


@pytest.mark.parametrize("encoder", transfer_3d.ENCODERS)
def test_a_third_generator_of_zero_changes_nothing(encoder: str) -> None:
    torch.manual_seed(0)
    volumes = Volumes(4)
    flat = transfer_3d.Slices(volumes).model(encoder=encoder)
    pictures = transfer_3d.Slices(volumes).batch(4, generator())[0]
    shown = volumes.batch(4, generator())[0]
    effects = {}
    for start in ("zero", "drawn"):
        model = volumes.model(encoder=encoder)
        transfer_3d.deepen(flat, model, start)
        assert largest_difference(flat(pictures), model(pictures[..., None])) < 1e-5
        effects[start] = transfer_3d.effect_of_depth(model, shown)
    assert effects["zero"] == 0
    assert effects["drawn"] > 1e-3
