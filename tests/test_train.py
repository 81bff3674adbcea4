"""The training loop: its numbers, its checkpoints, and what it does when it is stopped."""

import dataclasses
import json
import math
import os
import signal
import time

import pytest
import torch
from torch import nn

from lab.tasks import Task
from lab.train import Interrupted, Settings, evaluate, fit, make_fabric
from lab.train.optimizer import make_optimizer
from lab.train.settings import half_cosine
from stringlib.models import LanguageModel
from tests.refusals import refusals

SETTINGS = Settings(
    steps=23, batch_size=8, rate=1e-2, warmup=3, log_every=4, checkpoint_every=5, evaluate_every=10
)


class Sums(Task):
    """Which of two classes: whether four numbers sum to more than 0."""

    metric = "accuracy"

    def __init__(self, size=4, bad_step=None):
        self.size, self._bad, self._batches = size, bad_step, 0

    def draw(self, size, generator):
        x = torch.randn(size, self.size, generator=generator)
        return x, (x.sum(-1) > 0).long()

    def batch(self, size, generator):
        x, target = self.draw(size, generator)
        if self._batches == self._bad:
            x[0, 0] = math.nan
        self._batches += 1
        return x, target

    def held_out(self):
        generator = torch.Generator().manual_seed(7)
        return {"test": iter([self.draw(size, generator) for size in (5, 3)])}

    def model(self, **options):
        return nn.Sequential(
            nn.Linear(self.size, 8), nn.Dropout(options.get("dropout", 0.3)), nn.Linear(8, 2)
        )


def make(seed=0, **options):
    torch.manual_seed(seed)
    return Sums().model(**options)


def same(one, other):
    """Return whether all parameters are equal to the last bit."""
    states = one.state_dict(), other.state_dict()
    return all(torch.equal(a, b) for a, b in zip(*(s.values() for s in states), strict=True))


def lines(folder):
    """Return the metrics, without the speed."""
    text = (folder / "metrics.jsonl").read_text(encoding="utf8")
    entries = [json.loads(line) for line in text.splitlines()]
    return [{k: v for k, v in e.items() if not k.endswith("_per_s")} for e in entries]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing interrupts."""
    folder = tmp_path_factory.mktemp("whole")
    model = make()
    return model, fit(model, Sums(), SETTINGS, folder=folder), folder


def check_goes_on(whole, folder, seed=0):
    """Hold that a run in a folder goes on to the same bits as the whole one."""
    model = make(seed)  # what it starts from does not matter
    history = fit(model, Sums(), SETTINGS, folder=folder)
    assert same(model, whole[0])
    assert dataclasses.replace(history, wall_s=0.0) == dataclasses.replace(whole[1], wall_s=0.0)
    assert lines(folder) == lines(whole[2])


def test_the_rate_warms_up_linearly_and_falls_as_half_a_cosine():
    rates = [half_cosine(step, 10, warmup=4) for step in range(10)]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    assert rates[4:] == pytest.approx([0.5 + 0.5 * math.cos(math.pi * i / 6) for i in range(6)])
    assert half_cosine(0, 1, warmup=0) == 1.0


def test_only_matrices_of_linear_layers_decay():
    model = LanguageModel(11, 16, 2, 2, "cayley", hidden=8, mlp="mlp", tied=True)
    optimizer = make_optimizer(model, Settings(rate=1e-2, weight_decay=0.1, encoder_rate=1e-4))
    names = {id(p): name for name, p in model.named_parameters()}
    groups = {g["kind"]: {names[id(p)] for p in g["params"]} for g in optimizer.param_groups}
    decays = {g["kind"]: g["weight_decay"] for g in optimizer.param_groups}
    assert decays == {"matrix": 0.1, "other": 0.0, "encoder": 0.0}
    assert sum(len(group) for group in groups.values()) == len(names)
    assert groups["encoder"]
    assert all(".encoder." in name for name in groups["encoder"])
    assert all(name.endswith(".weight") and "norm" not in name for name in groups["matrix"])
    assert len(groups["matrix"]) == 2 * 6  # of a block: q, k, v, out, and two of the MLP
    assert "embed.weight" in groups["other"]  # which the readout shares
    rates = {g["kind"]: g["lr"] for g in optimizer.param_groups}
    assert rates == {"matrix": 1e-2, "other": 1e-2, "encoder": 1e-4}


def test_one_step_is_adamw_on_the_clipped_mean_of_the_loss():
    settings = Settings(steps=1, batch_size=6, rate=1e-2, weight_decay=0.1, clip=0.01, seed=3)
    model, twin, task = make(dropout=0.0), make(dropout=0.0), Sums()
    history = fit(model, task, settings)
    x, target = task.batch(6, torch.Generator().manual_seed(3 * 1_000_003))
    loss = nn.functional.cross_entropy(twin(x), target)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(twin.parameters(), 0.01)
    weights = [p for p in twin.parameters() if p.ndim == 2]
    others = [p for p in twin.parameters() if p.ndim < 2]
    torch.optim.AdamW(
        [{"params": weights, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], 1e-2
    ).step()
    assert history.losses == pytest.approx([loss.item()])
    assert history.rates == [1e-2]
    assert history.norms == pytest.approx([norm.item()])
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-7)


def test_training_leaves_the_global_generator_and_learns():
    model = make()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    history = fit(model, Sums(), dataclasses.replace(SETTINGS, steps=200))
    assert torch.equal(torch.get_rng_state(), before)
    assert history.scores["test"] > 0.9
    assert history.losses[-1] < history.losses[0]
    assert model.training


def test_batches_and_what_a_model_draws_are_others_with_every_seed_and_step():
    def drawn(seed):
        model, numbers = make(), []

        def note(module, inputs):
            if module.training:
                numbers.extend([torch.rand(()).item(), inputs[0].sum().item()])

        model.register_forward_pre_hook(note)
        fit(model, Sums(), dataclasses.replace(SETTINGS, seed=seed))
        return numbers

    one, other = drawn(0), drawn(1)
    assert one == drawn(0)
    assert len({*one, *other}) == 2 * 2 * SETTINGS.steps


def test_evaluation_is_the_mean_over_what_has_a_target_without_dropout():
    class Some(Sums):
        def held_out(self):
            sets = list(super().held_out()["test"])
            return {"test": iter([(x, y.index_fill(0, torch.tensor(0), -100)) for x, y in sets])}

    model, training = make(), []
    model.register_forward_hook(lambda module, *_: training.append(module.training))
    scores = evaluate(model, Some())
    assert set(training) == {False}
    right = [
        (model.eval()(x).argmax(-1) == y)[1:].sum().item() for x, y in Some().held_out()["test"]
    ]
    assert scores == {"test": sum(right) / 6}


class Empty(Sums):
    def held_out(self):
        return {"nothing": iter(())}

    def batch(self, size, generator):
        return torch.zeros(size, 4), torch.full((size,), -100)


test_what_cannot_be_trained_or_scored_is_refused = refusals(
    (lambda: evaluate(make(), Empty()), "'nothing' must have at least one target"),
    (lambda: fit(make(), Empty(), SETTINGS), "batch of step 0 must have a target"),
    (lambda: Settings(steps=0), "steps must be at least 1, got 0"),
    (lambda: Settings(penalty=None), "TypeError: penalty must be a number, got None"),
    (lambda: Settings(encoder_rate=math.inf), "encoder_rate must be positive and finite"),
    (lambda: Settings(betas=(0.9, 1.0)), "betas must be two numbers"),
)


class CrashError(Exception):
    """The power goes off."""


@pytest.mark.parametrize("entry", [0, 1, 2, 4, 5])  # the last one just after a checkpoint
def test_a_run_that_crashed_goes_on_to_the_same_bits(whole, tmp_path, entry):
    def crash(history):
        if len(history.steps) == entry + 1:
            raise CrashError

    with pytest.raises(CrashError):
        fit(make(), Sums(), SETTINGS, folder=tmp_path, on_log=crash)
    path = tmp_path / "checkpoint.pt"
    kept = torch.load(path, weights_only=True)["step"] if path.exists() else 0
    assert kept == (0 if entry < 2 else 4 * entry // 5 * 5), "not what was kept on the way"
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"ste')  # as where a process is killed
    # from its first batch if nothing was kept
    check_goes_on(whole, tmp_path, seed=0 if entry < 2 else 99)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_after_the_step_and_says_where(whole, tmp_path, number):
    before = signal.getsignal(number)

    def kill(history):
        if history.steps[-1] == 12:
            os.kill(os.getpid(), number)

    with pytest.raises(Interrupted, match=r"after 13 of 23 steps\. .*checkpoint\.pt"):
        fit(make(), Sums(), SETTINGS, folder=tmp_path, on_log=kill)
    assert signal.getsignal(number) is before
    assert torch.load(tmp_path / "checkpoint.pt", weights_only=True)["step"] == 13
    check_goes_on(whole, tmp_path, seed=1)


def test_a_second_signal_does_not_wait_for_the_step(tmp_path):
    def kill(history):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)

    with pytest.raises(KeyboardInterrupt) as stopped:
        fit(make(), Sums(), SETTINGS, folder=tmp_path, on_log=kill)
    assert not isinstance(stopped.value, Interrupted)


def test_a_run_that_is_over_is_read_not_repeated(whole):
    model, before = make(2), (whole[2] / "checkpoint.pt").stat().st_mtime_ns
    assert fit(model, Sums(), SETTINGS, folder=whole[2]) == whole[1]
    assert same(model, whole[0])
    assert (whole[2] / "checkpoint.pt").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("model", "task", "settings", "message"),
    [
        (make(), Sums(), {"rate": 0.02}, "of other settings: rate was 0.01, is 0.02"),
        (make(), Sums(), {"seed": 1}, "of other settings: seed was 0, is 1"),
        (make(), Sums(5), {}, "of another task: size was 4, is 5"),
        (nn.Linear(4, 2), Sums(), {}, r"of another model: 0.weight was \(8, 4\), is missing"),
        (make(dropout=0.1), Sums(), {}, "of another model: .*p=0.3.* is .*p=0.1"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(whole, model, task, settings, message):
    before = [p.clone() for p in model.parameters()]
    changed = dataclasses.replace(SETTINGS, **settings)
    with pytest.raises(ValueError, match=message):
        fit(model, task, changed, folder=whole[2])
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert lines(whole[2])[-1]["step"] == 23


def test_the_metrics_are_lines_of_json(whole):
    _, history, folder = whole
    entries = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    logged = [entry for entry in entries if "loss" in entry]
    assert [entry["step"] for entry in logged] == history.steps == [0, 4, 8, 12, 16, 20, 22]
    told = [(entry["loss"], entry["rate"], entry["norm"]) for entry in logged]
    assert told == [*zip(history.losses, history.rates, history.norms, strict=True)]
    assert all(entry["examples_per_s"] > 0 for entry in logged)
    scored = [entry for entry in entries if "scores" in entry]
    assert scored == history.evaluations
    assert [entry["step"] for entry in scored] == [10, 20, 23]
    assert scored[-1]["scores"] == history.scores


def test_a_loss_that_is_not_finite_stops_the_run_and_names_the_step(tmp_path):
    settings = dataclasses.replace(SETTINGS, evaluate_every=None)
    with pytest.raises(FloatingPointError, match="in step 13 they were not"):
        fit(make(), Sums(bad_step=13), settings, folder=tmp_path)
    kept = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert kept["step"] == 10  # from before, and good
    assert all(value.isfinite().all() for value in kept["parts"]["model"].values())
    assert [entry["step"] for entry in lines(tmp_path)] == [0, 4, 8, 12]


def test_a_gradient_that_is_not_finite_stops_the_run_too():
    class Root(nn.Linear):
        def forward(self, x):
            return super().forward(x) + (0 * self.weight.sum()).sqrt()

    with pytest.raises(FloatingPointError, match="in step 0 they were not"):
        fit(Root(4, 2), Sums(), SETTINGS)


def test_mixed_precision_trains_too():
    model = make(dropout=0.0)
    seen = []
    model[0].register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    history = fit(model, Sums(), SETTINGS, fabric=make_fabric("cpu", precision="bf16-mixed"))
    assert set(seen) == {torch.bfloat16}  # in training and in evaluation
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert history.losses[-1] < history.losses[0]
