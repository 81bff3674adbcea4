"""A run is of the code that it was made with: what counts as other code, and what it is told as."""

import sys
from types import ModuleType

import pytest
import torch
from torch import nn

from lab.tasks import Task
from lab.train import Settings, fit
from lab.train.code import code_of, digest, is_same

SETTINGS = Settings(steps=3, batch_size=2)
OWN = '''
import functools
import torch
from torch import nn
import own_helpers

GAIN = 0.5
TABLE = {"a": [1, 2], "b": (3,)}
TENSOR = torch.arange(3.0)

def helper(x, power=2):
    return x**power

class Base(nn.Module):
    """Turns nothing."""

    shift = 0.25

    def before(self, x):
        return x + self.shift

def scaled(by):
    def scale(x):
        return by * x

    return scale

class Own(Base):
    """Scale what it gets."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Linear(3, 2)
        self.last = scaled(1.5)

    @property
    def slope(self):
        return GAIN

    @staticmethod
    def bend(x):
        return x.tanh()

    @functools.cached_property
    def table(self):
        return len(TABLE) + TENSOR.sum()

    def forward(self, x: torch.Tensor):
        """Return two numbers."""
        # as ever
        x = self.before(x) * self.slope + helper(x) + own_helpers.more(x)
        return self.last(self.weight(self.bend(x) + 0 * self.table))

class Sums(Task):
    def batch(self, size, generator):
        x = torch.randn(size, 3, generator=generator)
        return x, (x.sum(-1) > 0).long()

    def held_out(self):
        return {"test": iter([self.batch(4, torch.Generator().manual_seed(7))])}

    def model(self):
        return Own()

def run(seed, steps, size=1):
    return {"scores": fit(Own(), Sums(), seed)}
'''
HELPERS = "def more(x):\n    return 2 * x\n\ndef unused(x):\n    return x\n"


def load(monkeypatch, *changes):
    """Return the reader's own module after changes of its source, ``"old -> new"``."""
    own, helpers = OWN, HELPERS
    for old, new in (change.split(" -> ") for change in changes):
        assert (own + helpers).count(old) == 1, old
        own, helpers = own.replace(old, new), helpers.replace(old, new)
    made = {}
    for name, source in (("own_helpers", helpers), ("own", own)):
        made[name] = module = ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
        vars(module).update({"Task": Task, "fit": fit} if name == "own" else {})
        exec(compile(source, "<cell>", "exec"), vars(module))
    return made["own"]


SAME = (
    "Scale what it gets. -> Another word on it.",
    '    """Turns nothing."""\n -> \n',
    "        # as ever\n -> \n\n        # not as ever\n",
    "x: torch.Tensor -> x",
    "return x\n -> return -x\n",  # a helper that nobody calls
)
OTHER = {
    "x.tanh() -> x.sin()": "own.Own.bend",
    "return GAIN -> return 2 * GAIN": "own.Own.slope",
    "GAIN = 0.5 -> GAIN = 0.75": "own.GAIN was 0.5, is 0.75",
    "return x**power -> return x**power + 1": "own.helper",
    "power=2 -> power=3": r"own.helper\(power\) was 2, is 3",
    "self.shift\n -> self.shift * 3\n": "own.Base.before",
    "shift = 0.25 -> shift = 0.5": "own.Base.shift was 0.25, is 0.5",
    "by * x -> by + x": "own.scaled.<locals>.scale",
    "scaled(1.5) -> scaled(2.5)": "own.Own.__init__",
    "[1, 2] -> [1, 7]": "own.TABLE",
    "len(TABLE) -> 2 * len(TABLE)": "own.Own.table",
    "arange(3.0) -> ones(3)": "own.TENSOR was data",
    "return 2 * x -> return 3 * x": "own_helpers.more",
    "x.sum(-1) > 0 -> x.sum(-1) > 0.5": "own.Sums.batch",
}


@pytest.fixture
def own(monkeypatch, tmp_path):
    """The reader's own module, with a run of it in the folder."""
    module = load(monkeypatch)
    go_on(module, tmp_path)
    return module


def go_on(own, folder):
    return fit(own.Own(), own.Sums(), SETTINGS, folder=folder)


@pytest.mark.parametrize("change", SAME)
def test_words_about_code_and_code_that_nobody_calls_change_nothing(monkeypatch, change):
    before, after = load(monkeypatch), load(monkeypatch, change)
    assert code_of(m=before.Own(), t=before.Sums()) == code_of(m=after.Own(), t=after.Sums())


@pytest.mark.parametrize(("change", "named"), OTHER.items())
def test_a_run_of_other_code_is_refused_and_the_change_is_named(
    monkeypatch, tmp_path, own, change, named
):
    go_on(load(monkeypatch), tmp_path)  # a new session
    own = load(monkeypatch, change)
    model = own.Own()
    before = model.weight.weight.clone()
    with pytest.raises(ValueError, match=rf"other code: .*{named}.*choose another folder, or st"):
        fit(model, own.Sums(), SETTINGS, folder=tmp_path)
    assert torch.equal(model.weight.weight, before)
    fit(model, own.Sums(), SETTINGS, folder=tmp_path, resume=False)


def test_a_function_that_a_model_or_a_sweep_is_given_counts(monkeypatch):
    class Given(nn.Module):
        def __init__(self, f):
            super().__init__()
            self.f = f

        def forward(self, x):
            return self.f(x)

    sine, doubled = (code_of(model=nn.Sequential(Given(f))) for f in (torch.sin, lambda x: 2 * x))
    assert sine != doubled != code_of(model=nn.Sequential(Given(lambda x: 3 * x)))
    runs = [code_of(run=load(monkeypatch, *c).run) for c in ((), (), ("tanh -> sin",))]
    assert runs[0] == runs[1] != runs[2]


def test_what_a_function_closes_over_counts_and_the_order_of_a_set_does_not(monkeypatch):
    scaled = load(monkeypatch).scaled
    assert code_of(f=scaled(1.5)) == code_of(f=scaled(1.5)) != code_of(f=scaled(2.5))
    assert code_of(x={0, 8}) == code_of(x={8, 0}) != code_of(x={0, 7})
    assert repr({0, 8}) != repr({8, 0})


def test_a_record_is_of_this_code_of_other_code_or_does_not_tell(monkeypatch):
    now, other = (digest(code_of(run=load(monkeypatch, *c).run)) for c in ((), ("tanh -> sin",)))
    assert [is_same(told, now) for told in (now, other, None)] == [True, False, None]
    monkeypatch.setattr(sys, "version_info", (3, 99, 1, "final", 0))
    assert is_same(now, digest(code_of(run=load(monkeypatch).run))) is None


def test_the_package_s_own_code_counts_to_the_kernels(monkeypatch):
    from stringlib.encoders import rotary
    from stringlib.models import LanguageModel

    model = LanguageModel(11, 8, 1, 2, "rope")
    before = code_of(model=model)
    monkeypatch.setattr(rotary, "rotate_pairs", lambda *_: None)
    assert before != code_of(model=model)


def test_a_run_of_another_python_is_not_said_to_be_of_other_code(monkeypatch, tmp_path, own):
    monkeypatch.setattr("platform.python_version_tuple", lambda: ("3", "99", "1"))
    with pytest.raises(ValueError, match=r"of another Python: version was 3\.\d+, is 3\.99;"):
        go_on(own, tmp_path)
