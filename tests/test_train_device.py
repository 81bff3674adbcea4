"""Where a model trains: on the reader's GPU if there is one, on the CPU under test."""

import subprocess
import sys

import lightning_fabric
import pytest
import torch

from lab.train import Settings, fit, hardware
from lab.train.hardware import find_device
from tests.test_train import Sums, make

SETTINGS = Settings(steps=3, batch_size=2, log_every=1)


class Wide(Sums):
    def draw(self, size, generator):
        x, target = super().draw(size, generator)
        return x.double(), target


@pytest.fixture
def machine(monkeypatch):
    """Return what makes this a machine with such devices, and with nothing in its environment."""

    def has(*devices):
        monkeypatch.delenv("STRINGLIB_DEVICE", raising=False)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: "cuda" in devices)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: "mps" in devices)
        monkeypatch.setattr(hardware, "_computes", lambda gpu: True)

    return has


def test_a_gpu_that_does_not_compute_is_not_chosen(machine, monkeypatch, capsys):
    tried = hardware._computes.__wrapped__
    machine("cuda")
    monkeypatch.setattr(hardware, "_computes", lambda gpu: tried("meta"))  # has no numbers
    assert find_device() == "cpu"
    assert "Training on the CPU, because the GPU does not compute: " in capsys.readouterr().err
    assert find_device("cuda") == "cuda"  # asked for
    assert tried("cpu")


def test_the_best_device_is_chosen(machine, monkeypatch):
    for devices, best in (((), "cpu"), (("mps",), "mps"), (("mps", "cuda"), "cuda")):
        machine(*devices)
        assert find_device() == find_device("auto") == best
        assert find_device("cpu") == "cpu"
        for named in (*devices, "cpu", "auto", ""):
            monkeypatch.setenv("STRINGLIB_DEVICE", named)
            assert find_device() == (best if named in ("auto", "") else named)
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


def test_a_run_asks_for_the_reader_s_gpu(machine, monkeypatch):
    asked = []
    real = lightning_fabric.Fabric

    def fabric(accelerator, **told):
        asked.append(accelerator)
        return real(accelerator="cpu", **told)

    monkeypatch.setattr(lightning_fabric, "Fabric", fabric)
    for devices, told in (((), {}), (("cuda",), {}), (("mps",), {}), (("cuda",), "cpu")):
        machine(*devices)
        fit(make(), Sums(), SETTINGS, **({"device": told} if told else {}))
    assert asked == ["cpu", "cuda", "mps", "cpu"]
    machine("mps")
    fit(make(dropout=0.0).double(), Wide(), SETTINGS)
    assert asked[-1] == "cpu"


def test_lab_train_imports_lightning_only_when_a_training_starts() -> None:
    code = (
        "import sys, lab.train\n"
        "print({'lightning_fabric', 'torch._dynamo', 'sympy', 'matplotlib'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "set()\n"
