"""The study behind the chapter on length extrapolation: its task, its readings and its record."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from results import extrapolation as study
from stringlib import RoPE
from stringlib.checks import largest_difference
from stringlib.encoders.scaling import yarn_attention_factor
from stringlib.records import read_record
from stringlib.tasks.task import IGNORE

RECORD = Path(study.__file__).with_suffix(".json")


def small(encoder: str | None = "rope") -> torch.nn.Module:
    torch.manual_seed(0)
    return study.LanguageModel(256, 16, 1, 2, encoder)


@pytest.mark.parametrize("length", [24, 64, 200])
def test_every_needle_is_there_once_and_asked_for_once(length: int) -> None:
    task = study.Needle(length)
    tokens, targets = task.batch(20, torch.Generator().manual_seed(0))
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


def test_needles_stand_anywhere() -> None:
    tokens, _ = study.Needle(64).batch(2000, torch.Generator().manual_seed(0))
    share = (tokens < 64).double().mean(0)
    assert 0.1 < share[:56].min() < share[:56].max() < 0.19
    assert share[56:].max() == 0


def test_scaling_a_model_changes_its_frequencies_alone() -> None:
    model, tokens = small(), torch.arange(100)[None]
    theta = RoPE(8).frequencies()
    for how, fastest, slowest in (("pi", 1 / 4, 1 / 4), ("ntk", 1, 1 / 4), ("yarn", 1, 1 / 4)):
        longer = study.scaled(model, how, 256)
        layer = longer.blocks[0].attention
        ratio = (layer.encoder.frequencies() / theta).flatten()
        assert ratio[0].item() == pytest.approx(fastest)
        assert ratio[-1].item() == pytest.approx(slowest)
        by = yarn_attention_factor(4) if how == "yarn" else 1
        assert torch.allclose(layer.to_q.weight, by * model.blocks[0].attention.to_q.weight)
        assert not torch.allclose(longer(tokens), model(tokens), atol=1e-3)
    assert isinstance(model.blocks[0].attention.encoder, RoPE)  # the original is as it was


@pytest.mark.parametrize("how", ["pi", "ntk", "yarn"])
def test_at_the_trained_length_scaling_does_nothing(how: str) -> None:
    model, tokens = small(), torch.arange(64)[None]
    same = study.scaled(model, how, study.LENGTH)
    assert largest_difference(same(tokens), model(tokens)) < 1e-5


def test_the_sliding_window_sees_64_bytes_and_no_more() -> None:
    model = small()
    generator = torch.Generator().manual_seed(0)
    inputs, targets = torch.randint(256, (2, 2, 256), generator=generator)
    costs = study.sliding(model, inputs, targets)
    whole = study.bits(model, inputs[:, :64], targets[:, :64])
    assert costs.shape == targets.shape
    assert largest_difference(costs[:, :64], whole) < 1e-5
    # place 100 belongs to the window that begins at 64
    alone = study.bits(model, inputs[:, 64:128], targets[:, 64:128])
    assert largest_difference(costs[:, 100], alone[:, 36]) < 1e-5
    changed = inputs.clone()
    changed[:, 63] = (changed[:, 63] + 1) % 256
    moved = (study.sliding(model, changed, targets) - costs).abs().amax(0) > 1e-6
    assert moved.nonzero().flatten().tolist() == list(range(63, 96))


def test_places_are_averaged_between_edges() -> None:
    costs = torch.arange(1024.0).expand(3, 1024)
    found = study.by_place(costs)
    assert found[0] == 7.5
    assert found[-1] == (768 + 1023) / 2
    assert len(found) == len(study.EDGES) - 1


def test_bits_of_a_model_that_knows_nothing() -> None:
    model = small(None)
    torch.nn.init.zeros_(model.readout.weight)
    inputs = torch.randint(256, (3, 32), generator=torch.Generator().manual_seed(0))
    assert largest_difference(study.bits(model, inputs, inputs), torch.full((3, 32), 8.0)) < 1e-5


def test_needles_are_counted_by_distance() -> None:
    class Oracle(torch.nn.Module):
        """Looks up the key among the last ``reach`` tokens; otherwise says 0."""

        def __init__(self, reach: int) -> None:
            super().__init__()
            self.reach = reach

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            scores = torch.zeros(*tokens.shape, 8)
            for row, line in enumerate(tokens.tolist()):
                for place in range(len(line) - 8, len(line)):
                    for t in line[max(0, place - self.reach) : len(line) - 8]:
                        if t < 64 and t // 8 == line[place] - 80:
                            scores[row, place, t % 8] = 1
            return scores

    found = study.read_needle(study.always(Oracle(2000)))
    assert found["lengths"] == found["distances"] == [1.0] * 5
    near = study.read_needle(study.always(Oracle(127)))
    assert near["distances"][:2] == [1.0, 1.0]
    assert all(share < 0.3 for share in near["distances"][2:])
    assert near["lengths"][1] == 1.0 > near["lengths"][2] > near["lengths"][4]


def test_training_learns_needles() -> None:
    _, history = study.train("needle", "none", seed=0, steps=60)
    assert history.losses[0] > math.log(8) > 2 * history.losses[-1]


def test_the_record_has_every_reading_at_every_length() -> None:
    record = read_record(RECORD)
    cells = record["data"]["cells"]
    for name, cell in cells.items():
        text = name.startswith("text")
        for run in cell["runs"]:
            assert len(run["read"]) == (1 if "rope" not in name else 6 if text else 4)
            for read in run["read"].values():
                assert len(read["lengths"]) == len(study.LENGTHS)
                if text:
                    assert len(read["places"]) == len(run["window"]) == len(study.EDGES) - 1
                else:
                    assert all(0 <= share <= 1 for share in (*read["lengths"], *read["distances"]))
