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
PACKAGES = (
    "",
    ".algebra",
    ".attention",
    ".encoders",
    ".interop",
    ".models",
    ".reference",
    ".testing",
)
MODULES = (".encoders.scaling",)


def arguments(thing: Any) -> str:
    """Return the arguments of a function or class, without their types."""
    bare = inspect.signature(thing)
    parameters = [p.replace(annotation=p.empty) for p in bare.parameters.values()]
    return str(bare.replace(parameters=parameters, return_annotation=bare.empty))


def methods(thing: type, public: set[int]) -> Iterator[tuple[str, Any]]:
    """Yield the methods that a class adds, with those of its bases that users do not see."""
    for name in dir(thing):
        owner = next(base for base in thing.__mro__ if name in vars(base))
        hidden = owner.__module__.startswith("stringlib") and id(owner) not in public
        function = getattr(vars(owner)[name], "__func__", vars(owner)[name])
        if (owner is thing or hidden) and not name.startswith("_") and inspect.isfunction(function):
            yield name, function


def named() -> Iterator[tuple[str, Any]]:
    """Yield each place of the face, and what stands there."""
    for name in PACKAGES + MODULES:
        module = importlib.import_module(f"stringlib{name}")
        written = [
            name
            for name, thing in vars(module).items()
            if not name.startswith("_") and getattr(thing, "__module__", "") == module.__name__
        ]
        for one in sorted(getattr(module, "__all__", written)):
            yield f"{module.__name__}.{one}", getattr(module, one)


def face() -> list[str]:
    """Return the public face, a line for each name; one that stands in two places points back."""
    found, first = [], dict[int, str]()
    public = {id(thing) for _, thing in named()}
    for place, thing in named():
        before = first.setdefault(id(thing), place)
        if before != place:
            found.append(f"{place} = {before}")
            continue
        found.append(f"{place}{arguments(thing)}" if callable(thing) else place)
        for name, function in methods(thing, public) if inspect.isclass(thing) else ():
            found.append(f"{place}.{name}{arguments(function)}")
    return found


def test_nothing_that_users_call_goes_or_changes_unsaid() -> None:
    now, told = set(face()), set(FACE.read_text(encoding="utf8").splitlines())
    assert not told - now, "gone or changed: keep it for one version, or say so in CHANGELOG.md"
    assert not now - told, "new: python -m tests.test_public_face writes it down"


if __name__ == "__main__":
    FACE.write_text("\n".join(face()) + "\n", encoding="utf8")
