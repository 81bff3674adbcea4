"""The page about an encoder of one's own: its module trains, its commands can be read."""

import importlib
import itertools
import re
import shlex
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from lab.records import read_record
from lab.train.__main__ import main
from lab.train.options import read_options
from stringlib import ENCODERS, TOKEN_BIASES, AxialRoPE, HedgehogFeatures, MultiHeadAttention
from stringlib.attention.registry import FEATURES, WEIGHTS
from stringlib.precision import wide_parameter
from stringlib.testing import (
    check_encoder,
    check_feature_map,
    check_position_steps,
    check_token_bias,
    check_weight,
)
from stringlib.testing.properties import normal

ROOT = Path(__file__).parents[1]
MODULE = "book.examples.tempo"
MIMIC = "book.examples.mimic"
STOPS = "book.examples.full_stops"
QUICK = ("eager", "blind", "batched")
PAGES = ("book/bring_your_own.md", "book/api/train.md")


@pytest.fixture(autouse=True)
def _registry(monkeypatch):
    """What the module adds goes with the test."""
    before = dict(ENCODERS)
    monkeypatch.chdir(ROOT)
    yield
    sys.modules.pop(MODULE, None)
    ENCODERS.clear()
    ENCODERS.update(before)


def commands(page):
    """Return the commands that train, of a page's blocks of shell."""
    text = (ROOT / page).read_text(encoding="utf8")
    for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            if line.removeprefix(".venv/bin/").startswith("python -m lab.train "):
                yield shlex.split(line, comments=True)[3:]


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_can_be_read(page, monkeypatch, tmp_path):
    (tmp_path / "my_module.py").write_text(
        "from stringlib import ENCODERS\nENCODERS['mine'] = ENCODERS['rope']\n", encoding="utf8"
    )
    monkeypatch.syspath_prepend(tmp_path)
    found = [words for words in commands(page) if words != ["--help"]]
    assert len(found) >= 3
    for words in found:
        assert read_options(words).cells
    sys.modules.pop("my_module", None)


@pytest.mark.parametrize("number", range(3))
def test_the_page_s_tasks_train_with_the_module(number, tmp_path, capsys):
    words = list(commands("book/bring_your_own.md"))[number]
    words += ["--steps", "2", "--seeds", "1", "--jobs", "1", "--accelerator", "cpu"]
    words += ["--dim", "12", "--folder", str(tmp_path)]
    if words[0] == "text":
        words += ["--task-option", "windows=8", "--heads", "2"]
    assert main(words) == 0
    assert "tempo" in capsys.readouterr().out
    cells = read_record(tmp_path / "record.json")["data"]["cells"]
    learned = {name: cell["parameters"] for name, cell in cells.items()}
    (name,) = (name for name in learned if "tempo" in name)
    assert learned[name] > learned[next(iter(learned))]  # a tempo a head


def test_the_page_s_encoder_keeps_the_contract():
    importlib.import_module(MODULE)
    check_encoder(ENCODERS["tempo"], modes=QUICK)


def test_the_page_s_feature_map_keeps_the_contract_and_is_that_of_hedgehog(monkeypatch):
    monkeypatch.setitem(FEATURES, "mimic", None)  # and it goes with the test
    monkeypatch.delitem(sys.modules, MIMIC, raising=False)
    mimic = importlib.import_module(MIMIC).Mimic
    check_feature_map(mimic, modes=["eager"])
    made, known = mimic(8, 3).double(), HedgehogFeatures(8, 3).double()
    weight = normal(3, 8, 8)
    made.load_state_dict({"weight": weight})
    known.load_state_dict({"weight": weight})
    x = normal(2, 3, 5, 8)
    assert (made(x) - known(x)).abs().max() < 1e-15
    assert MultiHeadAttention(16, 2, attention="mimic")(normal(4, 16).float()).shape == (4, 16)
    sys.modules.pop(MIMIC)


def test_the_page_s_bias_counts_full_stops_and_its_program_runs(monkeypatch, capsys):
    monkeypatch.setitem(TOKEN_BIASES, "full-stops", None)  # and it goes with the test
    monkeypatch.delitem(sys.modules, STOPS, raising=False)
    page = (ROOT / "book/bring_your_own.md").read_text(encoding="utf8")
    (program,) = re.findall(rf"```python\n([^`]*import {STOPS}\n.*?)```", page, re.DOTALL)
    exec(program, {})
    assert capsys.readouterr().out == "tensor(True)\n"
    check_token_bias(importlib.import_module(STOPS).FullStops, modes=["eager"])
    made = importlib.import_module(STOPS).FullStops(1, 2).double()
    with torch.no_grad():
        made.is_stop.weight.fill_(1e3)
        made.is_stop.bias.fill_(-5e2)
        made.slope.copy_(torch.tensor([1.0, 3.0]))
    stops = torch.tensor([1, 0, 1, 1, 0, 0, 1]).double()
    q, k = normal(2, 3, 4), normal(2, 7, 4)
    bias = made(q, k, made.marks(stops[:, None]))
    for i, j in itertools.product(range(4, 7), range(7)):
        if j <= i:
            count = stops[j + 1 : i + 1].sum().item()
            assert bias[:, i - 4, j].tolist() == pytest.approx([-count, -3 * count])
    sys.modules.pop(STOPS)


def test_any_module_makes_steps_as_the_page_says():
    check_position_steps(lambda dim: nn.Linear(dim, 1), modes=["eager"])
    steps = nn.Linear(64, 1)
    layer = MultiHeadAttention(64, 4, "rope", causal=True, position_steps=steps)
    x = normal(2, 5, 64).float()
    positions = steps(x).double().cumsum(-2)
    other = MultiHeadAttention(64, 4, "rope", causal=True)
    other.load_state_dict(layer.state_dict(), strict=False)
    assert (layer(x) - other(x, positions)).abs().max() < 1e-6


def test_the_weight_of_a_first_change_keeps_the_contract_and_trains(monkeypatch, tmp_path, capsys):
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf8")
    code = re.search(r"```python\n(import torch\n.*?)```", text, re.DOTALL)[1]
    (tmp_path / "my_weight.py").write_text(code, encoding="utf8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(WEIGHTS, "harmonic", None)  # and it goes with the test
    check_weight(importlib.import_module("my_weight").Harmonic, modes=["eager"])
    (words,) = commands("CONTRIBUTING.md")
    words += ["--steps", "2", "--accelerator", "cpu", "--folder", str(tmp_path / "runs")]
    assert main(words) == 0
    assert "harmonic" in capsys.readouterr().out
    sys.modules.pop("my_weight")


def test_what_the_page_says_of_angles_of_few_digits_is_what_is_said():
    class Careless(AxialRoPE):
        def __init__(self, head_dim, coord_dim, heads):
            super().__init__(head_dim, coord_dim, heads=heads)
            self.tempo = wide_parameter(heads)
            nn.init.normal_(self.tempo)

        def frequencies(self):
            return self.tempo.exp()[:, None, None] * super().frequencies()

    with pytest.raises(AssertionError) as raised:
        check_encoder(Careless, modes=QUICK)
    page = (ROOT / "book/bring_your_own.md").read_text(encoding="utf8")
    printed = re.search(r"```text\n(Careless.*?)\n```", page, re.DOTALL)[1]
    # the last digits are of a processor; checks that are traced, of which none fails, are left out
    number = re.compile(r"off by [0-9.e-]+|of \d+ checks")
    assert number.sub("off", str(raised.value)) == number.sub("off", printed)
