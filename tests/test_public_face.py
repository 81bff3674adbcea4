"""The names and arguments that users build upon; what changes here breaks their code.

    python -m tests.test_public_face    # writes public_face.txt, after a change that is meant

A name that goes, or an argument that goes or moves, is said in CHANGELOG.md and works for one more
version with a warning, as ``stringlib.by_name`` does for arguments that were given by place.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FACE = Path(__file__).with_name("public_face.txt")
PACKAGES = ("", ".algebra", ".attention", ".encoders", ".models", ".reference", ".testing")
MODULES = (".adapters", ".convert", ".encoders.scaling")


def arguments(thing: Any) -> str:
    """Return the arguments of a function or class, without their types."""
    bare = inspect.signature(thing)
    parameters = [p.replace(annotation=p.empty) for p in bare.parameters.values()]
    return str(bare.replace(parameters=parameters, return_annotation=bare.empty))


def lines(place: str, thing: Any) -> Iterator[str]:
    """Yield a name with its arguments, and the methods that a class adds."""
    if not callable(thing):
        yield place
        return
    yield f"{place}{arguments(thing)}"
    for name, member in sorted(vars(thing).items()) if inspect.isclass(thing) else ():
        function = getattr(member, "__func__", member)
        if not name.startswith("_") and inspect.isfunction(function):
            yield f"{place}.{name}{arguments(function)}"


def face() -> list[str]:
    """Return the public face, a line for each name; one that stands in two places points back."""
    found, first = [], dict[int, str]()
    for name in PACKAGES + MODULES:
        module = importlib.import_module(f"stringlib{name}")
        written = [
            name
            for name, thing in vars(module).items()
            if not name.startswith("_") and getattr(thing, "__module__", "") == module.__name__
        ]
        for one in sorted(getattr(module, "__all__", written)):
            thing, place = getattr(module, one), f"{module.__name__}.{one}"
            before = first.setdefault(id(thing), place)
            found += lines(place, thing) if before == place else [f"{place} = {before}"]
    return found


def test_nothing_that_users_call_goes_or_changes_unsaid() -> None:
    now, told = set(face()), set(FACE.read_text(encoding="utf8").splitlines())
    assert not told - now, "gone or changed: keep it for one version, or say so in CHANGELOG.md"
    assert not now - told, "new: python -m tests.test_public_face writes it down"


if __name__ == "__main__":
    FACE.write_text("\n".join(face()) + "\n", encoding="utf8")
