"""The examples in the docstrings: each runs, and says what stands there."""

import doctest
import importlib
import pkgutil

import pytest

import lab
import stringlib

FINDER = doctest.DocTestFinder(exclude_empty=True)
MODULES = [
    module.name
    for package in (stringlib, lab)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if not module.name.endswith("__main__")
]
EXAMPLES = {
    example.name: example
    for name in MODULES
    for example in FINDER.find(importlib.import_module(name), name)
    if example.examples
}
FIRST = (
    "RoPE", "CirculantSTRING", "RotaryEncoder.phases", "RotaryForm.fold", "FavorFeatures",
    "MultiHeadAttention", "ViT", "LanguageModel", "grid_positions", "make_encoder",
    "softmax_attention", "linear_attention",
)  # fmt: skip
"""What a user meets first."""


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_says_what_stands_there(name: str) -> None:
    report: list[str] = []
    failed, run = doctest.DocTestRunner(verbose=False).run(EXAMPLES[name], out=report.append)
    assert run
    assert not failed, "".join(report)


@pytest.mark.parametrize("name", FIRST)
def test_what_a_user_meets_first_has_an_example(name: str) -> None:
    assert any(example.endswith("." + name) for example in EXAMPLES)
