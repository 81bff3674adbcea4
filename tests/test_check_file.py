"""What ``make check FILE=…`` runs for a file."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tools.check import ROOT, commands, covering, main


def run_for(name: str) -> list[str]:
    return [" ".join(command) for command in commands(Path(name))]


def test_a_module_has_its_own_tests_those_that_import_it_and_its_cases() -> None:
    found = covering(Path("stringlib/encoders/rope.py"))
    assert {"tests/test_rope.py", "tests/test_rope_decay.py"} <= set(found)
    assert "tests/test_delta.py" not in found
    form, layout, types, tests, contract = run_for("stringlib/encoders/rope.py")
    assert form.startswith("-m ruff check ")
    assert layout.startswith("-m ruff format --check ")
    assert types == "-m mypy stringlib/encoders/rope.py"
    assert tests.endswith(" ".join(found))
    assert contract.endswith("tests/test_encoder_contract.py -k rope")
    assert run_for("book/figures/gating.py")[-1].endswith("tests/test_figures.py -k gating")
    imports = covering(Path("stringlib/inputs.py"))
    assert all("stringlib.inputs" in (ROOT / test).read_text("utf8") for test in imports)
    assert imports


def test_a_test_is_its_own_and_a_study_has_no_types() -> None:
    assert covering(Path("tests/test_rope.py")) == ["tests/test_rope.py"]
    assert not any("mypy" in command for command in run_for("results/recall.py"))


def test_a_chapter_is_replayed_and_a_page_has_its_equations() -> None:
    told = run_for("notebooks/02_rope.ipynb")
    assert "tools/notebooks.py --replay notebooks/02_rope.ipynb" in told
    assert run_for("book/notation.md") == ["tools/ledger.py --check"]


@pytest.mark.parametrize("given", ["gone.py", "/", "tests"])
def test_what_is_no_file_is_named(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([given]) == 2
    assert f"FILE must be a file of the checkout, got {given}" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"FILE must be a \.py, \.ipynb or \.md, got x\.css"):
        commands(Path("x.css"))


def test_it_stops_at_the_first_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[list[str]] = []

    def fake(command: list[str], **_: object) -> SimpleNamespace:
        done.append(command)
        return SimpleNamespace(returncode=int("mypy" in command))

    monkeypatch.setattr("tools.check.subprocess.run", fake)
    assert main(["stringlib/encoders/rope.py"]) == 1
    assert len(done) == 3
