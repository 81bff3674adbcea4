"""A run is of the code that it was made with: what counts as other code, and what it is told as."""

import importlib
import linecache
import sys
from pathlib import Path

import pytest
from torch import nn

from lab.train import Settings, fit
from lab.train.code import code_of, digest

OWN = '''
import torch
from lab.tasks import Task

class Own(torch.nn.Linear):
    """Scale what it gets."""

    def forward(self, x: torch.Tensor):
        from own_helpers import more  # as ever
        return super().forward(more(x))

class Sums(Task):
    size: int = 3

    def batch(self, size, generator):
        x = torch.randn(size, 3, generator=generator)
        return x, (x.sum(-1) > 0).long()

    def held_out(self):
        return {"test": iter([self.batch(4, torch.Generator().manual_seed(7))])}

    def model(self):
        return Own(3, 2)
'''
HELPERS = "GAIN = 2\n\ndef more(x):\n    return GAIN * x\n"
SAME = ("Scale what it gets. -> More", "  # as ever -> \n", "x: torch.Tensor -> x", "int -> float")
STUDY = r"""
def run(f: int = 0x10) -> str:
    from parts import Wide, only
    return f"{f!r:>{f}} {{}} {f=}" "a\N{BULLET}" u"b" if (g := -f) else [*(1e-5, 2j, b"c")]
"""


def load(monkeypatch, folder, change="x -> x"):
    """Return the reader's own module, imported again after a change of its source."""
    for name, source in (("own", OWN), ("own_helpers", HELPERS)):
        (folder / f"{name}.py").write_text(source.replace(*change.split(" -> ")), encoding="utf8")
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(folder)
    return importlib.import_module("own")


@pytest.mark.parametrize("change", SAME)
def test_words_about_code_change_nothing(monkeypatch, tmp_path, change):
    before, after = (code_of(load(monkeypatch, tmp_path, c).Sums()) for c in ("x -> x", change))
    assert before == after
    assert {"own", "own_helpers", "lab.tasks.task"} <= before.keys()


@pytest.mark.parametrize("change", ["super() -> -super()", "GAIN = 2 -> GAIN = 3"])
def test_a_run_of_other_code_is_refused_and_the_module_is_named(monkeypatch, tmp_path, change):
    settings = Settings(steps=3, batch_size=2)
    for _ in range(2):  # two sessions
        task = load(monkeypatch, tmp_path).Sums()
        fit(task.model(), task, settings, folder=tmp_path)
    task = load(monkeypatch, tmp_path, change).Sums()
    named = "own_helpers" if "GAIN" in change else "own"
    with pytest.raises(ValueError, match=f"other code: {named} was .*Choose another folder, or st"):
        fit(task.model(), task, settings, folder=tmp_path)
    fit(task.model(), task, settings, folder=tmp_path, resume=False)


def test_a_function_that_a_model_holds_counts():
    model = nn.Sequential(nn.Identity())
    model[0].bend = lambda x: 2 * x
    assert Path(__file__).stem in {name.rpartition(".")[2] for name in code_of(model)}


def test_a_study_is_its_file_and_what_it_imports_the_same_with_every_python(tmp_path):
    (tmp_path / "parts").mkdir()
    for name, source in {
        "study": STUDY,
        "parts/__init__": "from parts.wide import Wide\nfrom parts.unused import other\n",
        "parts/wide": "import math\nfrom .narrow import *",
        **dict.fromkeys(("parts/only", "parts/unused", "parts/narrow"), "import torch"),
    }.items():
        (tmp_path / f"{name}.py").write_text(source, encoding="utf8")
    code = code_of(tmp_path / "study.py")
    assert list(code) == ["parts.narrow", "parts.only", "parts.wide", "study"]
    assert digest(code) == "d0c92d49e5d9"


def test_what_keeps_and_shows_is_no_code_of_a_run():
    code = code_of(Path(__file__).parents[1] / "results" / "mnist.py")
    assert {"stringlib.encoders.rope", "lab.train.fitting", "mnist"} < code.keys()
    assert not {"lab.train.study", "lab.records", "stringlib.interop.foldable"} & code.keys()


def test_in_a_notebook_the_cell_of_a_class_counts(monkeypatch):
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    codes = []
    for file, power in (("<cell 1>", 2), ("<cell 2>", 2), ("<cell 3>", 3)):
        cell = f"class Own:\n    def forward(self, x):\n        return x**{power}  # {file}\n"
        monkeypatch.setitem(linecache.cache, file, (len(cell), None, cell.splitlines(True), file))
        exec(compile(cell, file, "exec"), space := {"__name__": "__main__"})
        codes.append(code_of(space["Own"]()))
    assert codes[0] == codes[1] != codes[2]
    assert list(codes[0]) == ["Own"]
