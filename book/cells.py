"""A cell of a record in words: the display name of its method, then what else it was told.

A cell is a key, such as "moved cls axial at new places"; :func:`shown` says "Axial RoPE, moved
digits, class token, new positions". It has a method's words from :mod:`book.names`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from book.names import Parts, display, drawn_as, named, parts_of

__all__ = ["coloured", "shown"]

NONE: Mapping[str, str] = MappingProxyType({})


class Record(NamedTuple):
    """How the cells of a record are read.

    Attributes:
        method: Parts that all of its methods have, unless a cell has its own.
        words: A word of its cells → what it says; "" for nothing.
        codes: A word of its cells → name of the part of a method.
        model: Whether a kernel alone is a model without positions.
    """

    method: str = ""
    words: Mapping[str, str] = NONE
    codes: Mapping[str, str] = NONE
    model: bool = False


LEADING = {
    "longer performer ": "moved digits, 1,600 steps",
    "performer ": "moved digits",
    "moved cls ": "moved digits, class token",
    "moved ": "moved digits",
    "digits ": "digits",
    "volumes ": "volumes",
    "short ": "",
}
"""What a word may begin with, before its method."""
TRAILING = {
    " at known places": "training positions",
    " at new places": "new positions",
    " at 1,024": "at 1,024 tokens",
    " at 64": "at 64 tokens",
    " tuned": "trained further",
    " scratch": "trained on volumes alone",
    " zero": "third generator starts at zero",
    " drawn": "third generator starts at random",
}
"""What a word may end with, behind its method."""
WORDS = {
    "free": "queries and keys of any length",
    "unit": "queries and keys of one length",
    "shift": "token shift",
    "no shift": "no token shift",
    "mlp": "with an MLP",
    "two layers": "two layers",
    "one head": "one head",
    "four heads": "four heads",
    "eight heads": "eight heads",
    "crowded": "more keys than features",
    "distinct": "keys are written once",
    "rewritten": "keys are rewritten",
    "digits": "digits",
    "moved": "moved digits",
    "cls": "class token",
    "mean": "mean of the patches",
    "first copy": "first copy",
    "alone": "",
    "with the one before": "+ token shift (keys)",
    "own rows": "rows used in training",
    "new rows": "new rows",
    "seen": "training sequences",
    "fixed": "fixed rows",
    "far": "needles at least 512 tokens away",
    "whole": "whole text as context",
    "window": "sliding window as context",
    "without": "trained further without an encoder",
    "zero": "trained further with Circulant-STRING from zero",
    "noise": "trained further with Circulant-STRING from noise",
    "1e-4": "learning rate 0.0001",
    "MIN": "MIN",
    "MAX": "MAX",
    "MED": "MED",
    "SM": "SM",
}
"""A word that is no part of a method → what it says."""
PATTERNS = {
    r"(m|d|f) = [\d.]+": "{0}",
    r"[\d,]+ (pairs|steps|sequences|bytes)": "{0}",
    r"every (\d+)": "rows drawn every {1} steps",
    r"rate ([\d.e-]+)": "learning rate {1}",
    r"block (\d+)": "blocks of {1}",
    r"clip None": "gradients not clipped",
    r"clip ([\d.]+)": "gradients clipped at {1}",
    r"penalty ([\d.e-]+)": "penalty {1}",
    r"decay ([\d.e-]+)": "weight decay {1}",
    r"start (\w+)": "start {1}",
    r"from 1": "rate of the rule from 1",
    r"from best": "rate of the rule from the best for random keys",
    r"from a third of it": "rate of the rule from a third of the best",
    r"(a quarter|all) of the steps": "{0}",
    r"patches": "256 patches",
    r"patches 512": "512 patches",
    r"N(\d+)": "{1} tokens",
}
"""A pattern of such words → what they say."""
TESTED = {
    "test": "as in training",
    "moved": "new positions",
    "interpolated": "twice the resolution, positions interpolated",
    "counted": "twice the resolution, patches counted",
}
DISTANCES = {str(n): f"{n:,} tokens later" for n in (64, 128, 256, 512, 1024, 2048)}
ROWS: tuple[str, ...] = ("iid", "hadamard", "circulant", "unit-circulant", "simplex")
ROWS += ("simplex-hadamard", "simplex-circulant", "learned")
KERNELS = {name: f"favor-{name}" for name in ROWS}
TEXT = Record(model=True, codes={"circulant": "favor-circulant"})
RECORDS = {
    "delta_rule": Record(
        "identity",
        words={"angles": "data-dependent angles", "parity": "parity"},
        codes={"linear": "identity", "delta to 1": "delta-1"},
    ),
    "delta_rates": Record("identity"),
    "delta_start": Record("delta"),
    "recall": Record(words={"test": "new sequences"}),
    "recall_redraw": Record("favor-circulant", codes={"learned": "favor-learned"}),
    "language_published": TEXT,
    "language_published_rates": TEXT,
    "language_redraw": Record("favor-circulant, rope", codes={"learned": "favor-learned"}),
    "lookup": Record(words=DISTANCES, codes={"window": "window"}),
    "page_digits": Record(words={"inside": "inside the square"}),
    "vision": Record(words=TESTED),
    "vision_simplex": Record(words={"none": ""}),
    "transfer_3d": Record(words=TESTED),
    "resolution": Record(
        words={
            "at once": "before any training on large images",
            "then": "after training on large images",
            "picture": "positions interpolated",
            "counted": "patches counted",
        },
        codes={"learned table": "interpolated"},
    ),
    "sparse_sweep": Record("cayley-sparse"),
    "circulant_training": Record(
        "circulant", words={"base": "unchanged", "shared True": "one set for all heads"}
    ),
    "circulant_speed": Record(words={"FFT": "Product by FFT", "matrix": "Product with a matrix"}),
    "circulant_favor": Record(
        words={
            "random": "random vectors",
            "constant": "constant vectors",
            "one-hot": "unit vectors",
        },
        codes={**KERNELS, "orthogonal": "favor"},
    ),
    "extrapolation_layers": Record(words={"two layers": "two layers"}),
    "extrapolation_published": Record(
        codes={
            "retnet": "retnet-layer",
            "gla layer": "gla-layer",
            "mamba2": "mamba2-layer",
            "gated-deltanet": "gated-deltanet-layer",
            "kda": "kda-layer",
        }
    ),
    "copy_distance": Record(words={n: f"pieces of {n} bytes" for n in ("16", "32", "64", "128")}),
    "language": TEXT,
    "language_rates": TEXT,
    "language_long": TEXT,
    "language_sources": TEXT,
    "repeats": TEXT,
    "listops": TEXT,
    "language_falling": Record(
        "c-cosgate, rope",
        codes={
            "ramp squared": "ramp-squared",
            "falling, degree 3": "falling-3",
            "falling, degree 4": "falling-4",
        },
    ),
    "bench-attention-cpu": Record("relu", words={"literal FFT": "reference implementation by FFT"}),
    "bench-models-cpu": Record(words={"images": "images"}, codes={"ViT FAVOR+": "favor"}),
    "bench-encoders-cpu": Record(
        words={
            "CirculantSTRING by FFT": "Circulant-STRING by FFT",
            "CirculantSTRING folded": "Circulant-STRING, folded",
            "rope-vit axial": "Axial RoPE of rope-vit",
            "phases given": "angles computed once",
            "ViT": "patches of a ViT",
            "long": "a long text",
            "text": "a text",
        },
        codes={"MixedRoPE": "mixed", "AxialRoPE": "axial"},
    ),
}
"""Record → how its cells are read, where they need more than the words of all."""


def shown(cell: str, record: str) -> str:
    """Return a cell in words.

    Args:
        cell: Its key.
        record: The study, or several with commas between, or a benchmark.

    Raises:
        ValueError: If a word of it is not known; the message says where to add it.
    """
    told = _record(record)
    parts, words = _parts(cell, told)
    method = _method(parts, told)
    return ", ".join(filter(None, (method, *words))).replace(", + ", " + ")


def coloured(cell: str, record: str) -> str:
    """Return the method whose colour in ``COLOURS`` a cell is drawn in.

    Args:
        cell: Its key.
        record: As for :func:`shown`.
    """
    told = _record(record)
    parts, _ = _parts(cell, told)
    return drawn_as(", ".join(parts) or told.method)


def _record(names: str) -> Record:
    return RECORDS.get(names.split(", ")[0], Record())


def _parts(cell: str, told: Record) -> tuple[list[str], list[str]]:
    """Return the parts of a cell's method, and all other words in what they say."""
    parts, words = list[str](), list[str]()
    for word in _split(cell, told):
        for found, is_part in _read(word, told):
            (parts if is_part else words).append(found)
    return parts, words


def _split(cell: str, told: Record) -> list[str]:
    """Return the words of a cell; a hybrid is one although it has commas."""
    if cell in told.codes:
        return [cell]
    whole = re.match(
        r"half \w+, half (circulant, RoPE|gated delta rule)|.+ and a head of softmax", cell
    )
    rest = cell[whole.end() :].lstrip(", ") if whole else cell
    words = re.split(r", |: ", rest) if rest else []
    return [*([whole[0]] if whole else []), *words]


def _read(word: str, told: Record) -> list[tuple[str, bool]]:
    """Return what a word says: texts, each with whether it is a part of the method."""
    if word in told.codes:
        return [(told.codes[word], True)]
    if word in told.words:
        return [(told.words[word], False)]
    if word in WORDS:
        return [(WORDS[word], False)]
    for pattern, words in PATTERNS.items():
        if found := re.fullmatch(pattern, word):
            return [(words.format(found[0], *found.groups()), False)]
    before, after = list[tuple[str, bool]](), list[tuple[str, bool]]()
    for lead, words in LEADING.items():
        if word.startswith(lead):
            before, word = [(words, False)], word.removeprefix(lead)
            break
    for trail, words in TRAILING.items():
        if word.endswith(trail):
            after, word = [(words, False), *after], word.removesuffix(trail)
    if before or after:
        return [*before, *_read(word, told), *after]
    return [(word, True)]


def _method(parts: list[str], told: Record) -> str:
    """Return the display name of a method, "" where a cell has none."""
    name = ", ".join(parts)
    if not told.method:
        return display(name, model=told.model) if name else ""
    own = parts_of(name) if name else Parts()
    both = zip(own, parts_of(told.method), strict=True)
    return named(Parts(*(mine or every for mine, every in both)))
