"""The methods that a command compares: combinations of names, and cells given one by one."""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.train.checkpoint import folder_of
from lab.train.settings import Settings
from stringlib.attention.gate import GATES
from stringlib.attention.registry import FEATURES, WEIGHTS
from stringlib.encoders.registry import BIASES, ENCODERS

OWN = ("rate", "encoder_rate", "penalty", "weight_decay")
"""Settings that a cell may have for itself. Its other options are options of its model."""

MEANING: dict[str, Any] = {"none": None, "off": False, "on": True}


def axes() -> dict[str, tuple[str, ...]]:
    """Return the names of each kind of option, for example ``"encoder"`` → all encoders.

    The names that imported modules have added are included.
    """
    return {
        "attention": ("softmax", *FEATURES),
        "encoder": ("none", *ENCODERS, *BIASES, "sinusoidal", "learned"),
        "gate": ("none", *GATES),
        "weight": ("none", *WEIGHTS),
        "shift": ("off", "on"),
    }


@dataclass(frozen=True)
class Cell:
    """One method to be compared.

    Attributes:
        told: Options of the model.
        settings: Settings of the training, one for each learning rate to be tried.
    """

    told: dict[str, Any]
    settings: tuple[Settings, ...]


def read_cells(
    args: argparse.Namespace, shared: Mapping[str, Any], settings: Mapping[str, Any]
) -> dict[str, Cell]:
    """Return the cells that a command line describes, each under its own name.

    Args:
        args: Parsed arguments, with lists of names (``attention``, …), ``features``, ``cell`` and
            ``cells``.
        shared: Options that all models share.
        settings: Settings that all runs share. ``rate`` may be a string such as ``"1e-3,3e-3"``.

    Raises:
        ValueError: If an option or a name is not valid. The message names the option or the cell.
    """
    cells: dict[str, Cell] = {}
    folders = set()
    for name, words in [*_product(args), *_tables(args.cells), *map(_one, args.cell)]:
        if not re.fullmatch(r"[^\s./\\|][^/\\|\n]*", name):
            raise ValueError(
                "name of a cell must be one line that does not contain / \\ | or begin with a dot "
                f"or a space, got {name!r}"
            )
        if folder_of(name) in folders:
            raise ValueError(
                f"name of a cell must differ from those of other cells, got {name!r} again. A "
                "space and + count as the same character."
            )
        folders.add(folder_of(name))
        try:
            cells[name] = _cell(words, shared, settings)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name}: {error}") from None
    return cells


def pairs(flag: str, texts: Sequence[str]) -> dict[str, Any]:
    """Return ``["pairs=16"]`` as ``{"pairs": 16}``.

    A value that is not a Python literal is kept as a string.
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(f"{flag} must be NAME=VALUE, got {text!r}")
        found[name] = _value(value)
    return found


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _product(args: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every combination of the names that were given."""
    given = {
        axis: [name.strip() for name in text.split(",")]
        for axis in axes()
        if (text := getattr(args, axis)) is not None
    }
    if (args.cell or args.cells) and not given:
        return
    given = {"attention": ["softmax"], **given}
    for axis, names in given.items():
        for name in names:
            _known(f"--{axis}", axis, name)
    drawn = [name for name in given["attention"] if name.startswith(("favor", "hyper"))]
    if args.features is not None and not drawn:
        raise ValueError(
            "--features must be left out unless --attention has random features, for example "
            f"--attention favor, got --attention {args.attention}"
        )
    for choice in itertools.product(*given.values()):
        told: dict[str, Any] = dict(zip(given, choice, strict=True))
        word = " ".join(itertools.starmap(_word, told.items()))
        if args.features is not None and told["attention"] in drawn:
            told["num_features"] = args.features
        yield word, told


def _tables(paths: Sequence[Path]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the tables of TOML files."""
    for path in paths:
        try:
            found = tomllib.loads(path.read_text(encoding="utf8"))
        except (OSError, ValueError) as error:
            raise ValueError(f"--cells must be a file in TOML, got {path}: {error}") from None
        for name, words in found.items():
            if not isinstance(words, dict):
                raise ValueError(
                    f"--cells must contain a table for each cell, got {name} = {words!r}"
                )
            yield name, words


def _one(text: str) -> tuple[str, dict[str, Any]]:
    """Return ``"name: attention=elu rate=3e-3"`` as a name and its words."""
    name, colon, words = text.partition(":")
    if not colon:
        raise ValueError(f'--cell must be "NAME: OPTION=VALUE …", got {text!r}')
    try:
        split = shlex.split(words)
    except ValueError:
        raise ValueError(f"--cell must close each quotation mark, got {text!r}") from None
    try:
        return name.strip(), pairs("option", split)
    except ValueError as error:
        raise ValueError(f"cell {name.strip()!r}: {error}") from None


def _cell(words: Mapping[str, Any], shared: Mapping[str, Any], common: Mapping[str, Any]) -> Cell:
    told = {**shared, **{name: value for name, value in words.items() if name not in OWN}}
    for axis in axes():
        if isinstance(told.get(axis), str):
            _known(axis, axis, told[axis])
            told[axis] = MEANING.get(told[axis], told[axis])
    try:
        json.dumps(told)
    except TypeError as error:
        raise ValueError(
            f"options must be values that JSON can represent, got {told}: {error}"
        ) from None
    settings = {**common, **{name: value for name, value in words.items() if name in OWN}}
    rates = settings.pop("rate")
    rates = _value(rates) if isinstance(rates, str) else rates
    each = dict.fromkeys(rates if isinstance(rates, list | tuple) else (rates,))
    if not each:
        raise ValueError("rate must be a number or a list of numbers, got none")
    return Cell(told, tuple(Settings(**settings, rate=rate) for rate in each))


def _known(what: str, axis: str, name: str) -> None:
    known = axes()[axis]
    if name not in known:
        raise ValueError(f"{what} must be one or more of {', '.join(known)}, got {name!r}")


def _word(axis: str, name: str) -> str:
    """Return how a choice is called in a table."""
    if axis == "shift":
        return "shift" if name == "on" else "no-shift"
    return f"no-{axis}" if name == "none" else name
