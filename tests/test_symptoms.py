"""Every symptom of the page has lines that run as they stand, and a chapter that explains it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

PAGE = (Path(__file__).resolve().parents[1] / "book" / "symptoms.md").read_text(encoding="utf8")
SYMPTOMS = dict(re.findall(r"(?ms)^### (.*?)\n(.*?)(?=^##|\Z)", PAGE))


@pytest.mark.parametrize("title", SYMPTOMS)
def test_the_lines_of_a_symptom_tell_it(title: str) -> None:
    torch.manual_seed(0)
    (code,) = re.findall(r"```python\n(.*?)```", SYMPTOMS[title], re.DOTALL)
    assert "assert" in code
    exec(compile(code, title, "exec"), {})
