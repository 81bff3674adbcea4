"""What a command compares: cells one by one, names of modules of one's own, several rates."""

import sys

import pytest

from lab.records import read_record
from lab.tasks import TASKS
from lab.train.__main__ import main
from lab.train.cells import axes
from lab.train.options import read_options
from lab.train.settings import Settings
from stringlib import ENCODERS

# Dask, from inside
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")

SHORT = ["--task-option", "pairs=2", "--steps", "3", "--batch-size", "4", "--accelerator", "cpu"]
RECALL = ["recall", *SHORT]

MODULE = """
import torch
from stringlib import ENCODERS, MixedRoPE
from lab.tasks import TASKS
from lab.tasks.recall import Recall

class Mine(MixedRoPE):
    def frequencies(self):
        return super().frequencies() * SPEED

SPEED = 2
ENCODERS["mine"] = Mine

class Own(Recall):
    test_seed = None

    def held_out(self):
        return {"test": iter([self.batch(8, torch.Generator().manual_seed(1))])}

TASKS["own"] = Own
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module of the user's in the working directory; what it adds goes with the test."""
    (tmp_path / "my_module.py").write_text(MODULE, encoding="utf8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = [(registry, dict(registry)) for registry in (ENCODERS, TASKS)]
    yield tmp_path
    sys.modules.pop("my_module", None)
    for registry, names in before:
        registry.clear()
        registry.update(names)


def complaint(words, capsys):
    """Return what a command that must fail with code 2 says."""
    try:
        code = main(words)
    except SystemExit as stopped:
        code = stopped.code  # type: ignore[assignment]
    assert code == 2
    err = capsys.readouterr().err
    assert "Traceback" not in err
    return err


def test_cells_stand_beside_products_with_options_of_their_own(tmp_path):
    file = tmp_path / "cells.toml"
    file.write_text(
        '["from a file"]\nattention = "relu"\nshift = "on"\ncycles = [4, 4]\nrate = [1e-3, 1e-2]\n',
        encoding="utf8",
    )
    words = [*RECALL, "--cell", "decay: attention=elu weight=ssd gate=none rate=3e-3 penalty=1e-6"]
    words += ["--cell", 'odd one: grid="(3, 4)" names="[None, {1: 2.5}]" text=word tied=True']
    words += ["--cells", str(file), "--dim", "8", "--model-option", "tied=False"]
    options = read_options(words)
    common = {"dim": 8, "tied": False}
    odd = {"tied": True, "grid": (3, 4), "names": [None, {1: 2.5}], "text": "word"}
    assert {name: cell.told for name, cell in options.cells.items()} == {
        "from a file": {**common, "attention": "relu", "shift": True, "cycles": [4, 4]},
        "decay": {**common, "attention": "elu", "weight": "ssd", "gate": None},
        "odd one": {**common, **odd},
    }
    settings = Settings(steps=3, batch_size=4)
    assert options.cells["odd one"].settings == (settings,)
    (own,) = options.cells["decay"].settings
    assert own == Settings(steps=3, batch_size=4, rate=3e-3, penalty=1e-6)
    assert [s.rate for s in options.cells["from a file"].settings] == [1e-3, 1e-2]
    assert options.baseline == "from a file"

    both = read_options([*words, "--attention", "softmax,relu", "--baseline", "odd one"])
    assert list(both.cells) == ["softmax", "relu", *options.cells]
    assert both.baseline == "odd one"


def test_seeds_begin_where_they_are_told_to_and_rates_are_each_once():
    options = read_options([*RECALL, "--seeds", "2", "--first-seed", "5", "--rate", "1e-3,1,1.0"])
    assert list(options.seeds) == [5, 6]
    assert [s.rate for s in options.cells["softmax"].settings] == [1e-3, 1]
    one = read_options([*RECALL, "--rate", "1e-3,"])  # and a comma
    assert [s.rate for s in one.cells["softmax"].settings] == [1e-3]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["recal"], "task must be one of recall, mqar, listops, digits"),
        (["digits", "--task-option", "options=3"], "options"),
        (["--attention", "softmax,sofmax"], "--attention must be one or more of softmax"),
        (["--task-option", "pear=3"], "--task-option of recall must be one of pairs"),
        (["--model-option", "attention=relu"], "Pass --attention instead"),
        (["--attention", "softmax,relu", "--features", "8"], "--features must be left out unless"),
        (["--weight", "cosine", "--attention", "relu"], "horizon must be given"),
        (["--accelerator", "abacus"], "accelerator='abacus'"),
        (["--cell", "attention=elu"], '--cell must be "NAME: OPTION=VALUE …"'),
        (["--cell", "a: attention=elo"], "a: attention must be one or more of softmax, relu"),
        (["--cell", "a: shift='on"], "--cell must close each quotation mark, got"),
        (["--cell", "a: shift=yes"], "a: shift must be one or more of off, on, got 'yes'"),
        (["--cell", "a: weight=cosine attention=relu"], "a: horizon must be given"),
        (
            ["--cell", "../a: depth=1"],
            "name of a cell must be one line that does not contain / \\ |",
        ),
        (
            ["--cell", "a b: depth=1", "--cell", "a+b: depth=1"],
            "differ from those of other cells, got 'a+b'",
        ),
        (["--cells", "none.toml"], "--cells must be a file in TOML, got none.toml"),
        (["--jobs", "2", "--devices", "2"], "--jobs must be 1 if there are several --devices"),
        (["--import", "no_such"], "--import must name a module that can be imported in"),
    ],
)
def test_a_bad_command_line_names_what_is_expected(tmp_path, capsys, words, message):
    task = RECALL if words[0].startswith("--") else []
    assert message in complaint([*task, *words, "--folder", str(tmp_path / "new")], capsys)
    assert not (tmp_path / "new").exists()


def test_names_of_a_module_are_known_to_options_help_and_model(module, capsys):
    assert "mine" not in axes()["encoder"]
    words = ["--import", "my_module", *SHORT, "--encoder", "none,mine"]
    assert main(["own", *words, "--folder", "runs"]) == 0
    out = capsys.readouterr().out
    assert "| softmax mine " in out
    cells = read_record(module / "runs" / "record.json")["data"]["cells"]
    assert cells["softmax mine"]["told"]["encoder"] == "mine"
    with pytest.raises(SystemExit):
        main(["--import", "my_module", "--help"])
    text = capsys.readouterr().out.split("tasks:")[1]
    assert "mine" in text
    assert "own" in text


def test_a_name_that_is_added_or_changed_leaves_the_runs_of_others(module, capsys):
    words = [*RECALL, "--folder", "runs", "--encoder"]
    assert main([*words, "none,rope"]) == 0
    before = [(module / "runs" / "softmax+rope" / "seed-0" / "checkpoint.pt").stat().st_mtime_ns]
    assert main([*words, "none,rope,mine", "--import", "my_module"]) == 0
    (module / "my_module.py").write_text(MODULE.replace("SPEED = 2", "SPEED = 3"), encoding="utf8")
    assert main([*words, "none,rope", "--import", "my_module"]) == 0
    after = [(module / "runs" / "softmax+rope" / "seed-0" / "checkpoint.pt").stat().st_mtime_ns]
    assert before == after
    assert "of other code" in complaint([*words, "mine", "--import", "my_module"], capsys)


def test_two_at_a_time_give_what_one_gives(module, capfd):
    """In processes, which import the module too; one that is killed: test_study."""
    words = ["own", "--import", "my_module", *SHORT, "--encoder", "rope,mine"]
    words += ["--cell", "last: attention=elu weight=ssd", "--seeds", "2", "--folder"]
    assert main([*words, "two", "--jobs", "2"]) == main([*words, "one"]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    assert out.count("last, seed 1: accuracy") == 2
    records = [read_record(module / folder / "record.json") for folder in ("two", "one")]
    for record in records:
        for cell in record["data"]["cells"].values():
            assert all(run.pop("wall_s") >= 0 for run in cell["runs"])
    assert records[0]["data"] == records[1]["data"]
    assert records[0]["hardware"]["threads"] == 1
