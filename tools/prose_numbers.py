"""Find the numbers in the text of chapters that nothing holds, and notice when one changes.

    python tools/prose_numbers.py [--list]   # count them, and renew tests/numbers.json
    python tools/prose_numbers.py --check    # fail if that file would change

A number is held by a role (``{recorded}``, ``{verdict}``), which compares it with a record, or by
an ``assert`` of a code cell of the same chapter that has the same number, so that the cell fails
when the computation gives another one. Inputs of an example ("8 channels") need no assertion.
All numbers that nothing holds are listed in ``tests/numbers.json`` with the words before them, and
``tests/test_numbers.py`` fails when the list changes: read the new sentence, check its number, and
either assert it in the cell that computes it or renew the list.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "tests" / "numbers.json"
APART = re.compile(
    r"^```+\{(?:question|code|math|list-table|ledger)[^\n]*$"  # heads of directives
    r"|^:\w[\w-]*:[^\n]*$"  # their options
    r"|^```python\n.*?^```"  # code
    r"|^\*\*It takes\*\*.*?run\.|\b95% (?=interval|confidence)"  # measured by tools/reading.py
    r"|\$\$.*?\$\$(?:\s*\([\w-]+\))?"  # displayed formulas, which have proofs
    r"|\{(?:recorded|verdict|eq|numref|prf:ref|doc|py:\w+|ref)\}`[^`]*`"
    r"|`[^`\n]*`|<[^>\n]*>|\]\([^)\n]*\)|https?://\S+",
    re.MULTILINE | re.DOTALL,
)
YEAR = re.compile(r"\[?\[(?:1[89]|20)\d\d[a-z]?\b|\b(?:in|of|since|November) 20\d\d\b|\(\d{4}\)")
PLACES = re.compile(
    r"\b(?:chapters?|sections?|lemma|theorems?|table|figure|appendix|equations?|definition|part|"
    r"stop|version|pages?)\s+\d+(?:\.\d+)*(?:(?:,| and|–)\s*\d+(?:\.\d+)*)*",
    re.IGNORECASE,
)
NAMES = re.compile(r"\b[A-Za-z][\w-]*\d[\w.]*|\b\d+-?[A-Za-z][\w-]*")
NUMBER = re.compile(r"(?<![\w.])\d+(?:,\d{3})+(?:\.\d+)?|(?<![\w.])\d*\.\d+|(?<![\w.])\d+")


def text_of(cell: str) -> str:
    """Return the prose of a Markdown cell, without formulas, roles, code, links and years."""
    text = YEAR.sub(" ", APART.sub(" ", cell))
    return NAMES.sub(" ", PLACES.sub(" ", text))


def numbers_in(cell: str) -> Iterator[tuple[str, str]]:
    """Yield each number of a Markdown cell, and the words before it."""
    text = text_of(cell)
    for found in NUMBER.finditer(text):
        before = re.sub(r"[\s*_|]+", " ", text[max(0, found.start() - 60) : found.start()])
        percent = "%" if text[found.end() : found.end() + 1] == "%" else ""
        yield found[0] + percent, " ".join(before.split()[-6:])


def asserted(cells: Sequence[str]) -> set[float]:
    """Return all numbers in the assertions of code cells, also those inside strings."""
    found: set[float] = set()
    for cell in cells:
        code = re.sub(r"^[ \t]*[%!].*$", "", cell, flags=re.MULTILINE)
        for node in ast.walk(ast.parse(code)):
            if not isinstance(node, ast.Assert):
                continue
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, (int, float)):
                    found.add(float(part.value))
                elif isinstance(part, ast.Constant) and isinstance(part.value, str):
                    found |= {float(x.replace(",", "")) for x in NUMBER.findall(part.value)}
    return found


def is_held(number: str, values: set[float]) -> bool:
    """Return whether an assertion has the number; 4.4% is held by 4.4 and by 0.044."""
    value = float(number.rstrip("%").replace(",", ""))
    return value in values or (number.endswith("%") and round(value / 100, 9) in values)


def read(path: Path) -> tuple[list[str], int]:
    """Return the numbers of a chapter that nothing holds, and how many numbers it has."""
    cells = json.loads(path.read_text(encoding="utf8"))["cells"]
    sources = [(cell["cell_type"], "".join(cell["source"])) for cell in cells]
    values = asserted([source for kind, source in sources if kind == "code"])
    every = [n for kind, source in sources if kind == "markdown" for n in numbers_in(source)]
    free = [f"{before} {number}" for number, before in every if not is_held(number, values)]
    return free, len(every)


def main(argv: Sequence[str] | None = None) -> int:
    """Count the numbers, and renew or check the list."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--check", action="store_true", help="fail if the list would change")
    parser.add_argument("--list", action="store_true", help="print the numbers that nothing holds")
    options = parser.parse_args(argv)
    found, total = {}, 0
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        found[path.stem], count = read(path)
        total += count
        print(f"{path.stem}: {len(found[path.stem])} of {count} numbers are not held")
        if options.list:
            print("\n".join(f"  … {line}" for line in found[path.stem]))
    free = sum(map(len, found.values()))
    print(f"{free} of {total} numbers in the text are not held")
    if options.check:
        before = json.loads(RECORD.read_text(encoding="utf8"))
        return int(found != before)
    RECORD.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
