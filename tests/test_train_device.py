"""Where a model trains: on the reader's GPU if there is one, on the CPU under test."""

from contextlib import nullcontext

import pytest
import torch

from lab.records import read_record, stamp
from lab.train import Settings, fit, hardware, make_fabric, study
from lab.train.__main__ import main
from lab.train.hardware import find_device
from tests.test_train import Sums, make, same
from tools.notebooks import ENVIRONMENT

SETTINGS = Settings(steps=3, batch_size=2, log_every=1)


@pytest.fixture
def machine(monkeypatch):
    """Return what makes this a machine with such devices, and with nothing in its environment."""

    def has(*devices):
        monkeypatch.delenv("STRINGLIB_DEVICE", raising=False)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: "cuda" in devices)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: "mps" in devices)

    return has


def test_the_best_device_is_chosen(machine, monkeypatch):
    for devices, best in (((), "cpu"), (("mps",), "mps"), (("mps", "cuda"), "cuda")):
        machine(*devices)
        assert find_device() == find_device("auto") == best
        assert find_device("cpu") == "cpu"
        for named in (*devices, "cpu"):
            monkeypatch.setenv("STRINGLIB_DEVICE", named)
            assert find_device() == named
        monkeypatch.setenv("STRINGLIB_DEVICE", "auto")
        assert find_device() == best
        monkeypatch.setenv("STRINGLIB_DEVICE", "")
        assert find_device() == best
    machine("mps")
    assert find_device(wide=True) == "cpu"  # Apple's GPU has no float64
    monkeypatch.setenv("STRINGLIB_DEVICE", "mps")
    assert find_device(wide=True) == "cpu"
    assert find_device("mps", wide=True) == "mps"  # asked for: PyTorch says why not


@pytest.mark.parametrize(
    ("device", "variable", "message"),
    [
        ("gpu7", "", "^device must be one of auto, cpu, cuda, mps, got 'gpu7'"),
        ("mps", "", "^device must be a device that PyTorch finds here, got 'mps'"),
        (None, "cuda", "STRINGLIB_DEVICE must be a device that PyTorch finds here, got 'cuda'"),
        (None, "tpu", "STRINGLIB_DEVICE must be one of auto, cpu, .*got 'tpu'"),
    ],
)
def test_a_device_that_is_unknown_or_not_there_is_named(
    machine, monkeypatch, device, variable, message
):
    machine()
    monkeypatch.setenv("STRINGLIB_DEVICE", variable)
    with pytest.raises(ValueError, match=message):
        fit(make(), Sums(), SETTINGS, device=device)


def test_a_device_is_given_once():
    with pytest.raises(ValueError, match=r"device must be left out where fabric .* got 'cpu'"):
        fit(make(), Sums(), SETTINGS, device="cpu", fabric=make_fabric("cpu"))


@pytest.mark.parametrize(
    ("accelerator", "precision", "message"),
    [
        ("auto", "8-bit", r"precision must be one of 32-true, .* got '8-bit'"),
        ("abacus", "32-true", "accelerator='abacus'.* must fit this machine"),
        ("cpu", "16-mixed", "the accelerator has, such as 'bf16-mixed', got '16-mix"),
    ],
)
def test_hardware_that_is_not_there_is_named(accelerator, precision, message):
    with pytest.raises(ValueError, match=message):
        make_fabric(accelerator, precision=precision)


def test_a_run_asks_for_the_reader_s_gpu(machine, monkeypatch):
    asked = []
    real = hardware.Fabric

    def fabric(accelerator, **told):
        asked.append(accelerator)
        return real(accelerator="cpu", **told)

    monkeypatch.setattr(hardware, "Fabric", fabric)
    for devices, told in (((), {}), (("cuda",), {}), (("mps",), {}), (("cuda",), "cpu")):
        machine(*devices)
        fit(make(), Sums(), SETTINGS, **({"device": told} if told else {}))
    assert asked == ["cpu", "cuda", "mps", "cpu"]
    machine("mps")
    fit(make(dropout=0.0).double(), Wide(), SETTINGS)
    assert asked[-1] == "cpu"


class Wide(Sums):
    def draw(self, size, generator):
        x, target = super().draw(size, generator)
        return x.double(), target


def test_argument_variable_and_fabric_give_the_same_run(machine, monkeypatch):
    machine("cuda")
    models = make(), make(), make()
    found = [fit(models[0], Sums(), SETTINGS, device="cpu")]
    found.append(fit(models[1], Sums(), SETTINGS, fabric=make_fabric("cpu")))
    monkeypatch.setenv("STRINGLIB_DEVICE", "cpu")
    found.append(fit(models[2], Sums(), SETTINGS))
    assert found[0].losses == found[1].losses == found[2].losses
    assert same(models[0], models[1])
    assert same(models[0], models[2])


@pytest.mark.parametrize("bad", [None, 1])
def test_a_model_comes_back_to_where_it_was(monkeypatch, bad):
    model, fabric, moved = make(), make_fabric("cpu"), []
    real = fabric.setup

    def setup(module, optimizer):
        wrapped = real(module, optimizer)
        monkeypatch.setattr(module, "to", moved.append)
        return wrapped

    monkeypatch.setattr(fabric, "setup", setup)
    with nullcontext() if bad is None else pytest.raises(FloatingPointError):
        fit(model, Sums(bad_step=bad), SETTINGS, fabric=fabric)
    assert moved == [torch.device("cpu")]


def test_the_command_and_the_studies_take_a_device(machine, monkeypatch, tmp_path, capsys):
    machine()
    words = ["recall", "--steps", "1", "--task-option", "pairs=2", "--folder", str(tmp_path / "x")]
    assert main([*words, "--accelerator", "mps"]) == 2
    assert "accelerator='mps'" in capsys.readouterr().err
    monkeypatch.setenv("STRINGLIB_DEVICE", "cuda")
    assert main(words) == 2
    assert "error: STRINGLIB_DEVICE must be a device that" in capsys.readouterr().err

    cells, output = {"a": {"x": 1}}, tmp_path / "study.json"
    argv = ["--output", str(output), "--seeds", "1"]
    machine("cuda")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    seen = []

    def do(run, steps, device, *_):
        seen.append(device)
        return {"wall_s": 1.5, "made": [stamp(device=device)]}

    monkeypatch.setattr(study, "_do", do)
    made = study.Study(tmp_path / "study.py", "About.", cells, find_device, steps=2, jobs=1)
    for more, device in (([], "cuda"), (["--device", "cpu"], "cpu")):
        made.main(argv + more)
        assert read_record(output)["hardware"]["device"] == device == seen[-1]
    with pytest.raises(SystemExit):
        made.main(["--device", "mps"])
    assert "device must be a device that PyTorch finds here" in capsys.readouterr().err


def test_the_run_of_a_study_is_told_the_device(machine, monkeypatch):
    machine("cuda")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    monkeypatch.setenv("STRINGLIB_DEVICE", "cpu")
    one = ("a", 0), {}, None
    found = study._do(lambda seed, steps: {"on": find_device()}, 1, "cuda", "aaaaaaa", one)
    assert found["on"] == found["made"][0]["hardware"]["device"] == "cuda"


def test_notebooks_and_tests_train_on_the_cpu():
    assert ENVIRONMENT["STRINGLIB_DEVICE"] == "cpu"
    assert find_device() == "cpu"
