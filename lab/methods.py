"""Every method of the book: its colour, its chapter, and what a table has to be told about it.

A name of a registry of :mod:`stringlib` has its record here; with it come colour, row in the table
of all methods, and cases of layers and models. So do methods that have none, such as those of one
chapter.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

NOTHING: Mapping[str, Any] = MappingProxyType({})


class Method(NamedTuple):
    """What is known of a method besides its code.

    Attributes:
        family: Those that are drawn together: no two of a family have one colour.
        colour: A name of ``PALETTE`` in :mod:`lab.explore.style`, the same in the whole book.
        chapter: The notebook that derives it, without its folder and ending.
        learned: What the numbers that it learns are; empty if it learns none.
        options: What a layer of 256 tokens must tell its constructor.
    """

    family: str
    colour: str
    chapter: str
    learned: str = ""
    options: Mapping[str, Any] = NOTHING


METHODS: dict[str, Method] = {
    "rope": Method("encoder", "blue", "02_rope"),
    "circulant": Method("encoder", "orange", "06_circulant_string", learned="frequencies"),
    "cayley": Method("encoder", "teal", "07_cayley_string", learned="entries"),
    "mixed": Method("encoder", "magenta", "04_rope_2d_3d", learned="frequencies"),
    "axial": Method("encoder", "sky", "04_rope_2d_3d"),
    "reflection": Method("encoder", "red", "08_reflections", learned="frequencies"),
    "dense": Method("encoder", "brown", "05_string"),
    "none": Method("encoder", "grey", "01_why_positions"),
    "sinusoidal": Method("added", "red", "01_why_positions"),
    "learned": Method("added", "brown", "01_why_positions", learned="entries"),
    "alibi": Method("added", "teal", "01_why_positions"),
    "t5": Method("added", "sky", "01_why_positions", learned="buckets"),
    "kerple-log": Method("added", "magenta", "01_why_positions", learned="parameters"),
    "kerple-power": Method("added", "orange", "01_why_positions", learned="parameters"),
    "softmax": Method("attention", "blue", "10_linear_attention"),
    "favor": Method("attention", "orange", "11_favor_plus"),
    "relu": Method("attention", "teal", "10_linear_attention"),
    "favor-circulant": Method("attention", "magenta", "12_circulant_favor"),
    "elu": Method("attention", "sky", "10_linear_attention"),
    "hyperbolic": Method("attention", "red", "11_favor_plus"),
    "cosine": Method("attention", "brown", "13_cosformer", options={"horizon": 512.0}),
    "uniform": Method("attention", "grey", "10_linear_attention"),
    "favor-iid": Method("projection", "brown", "11_favor_plus"),
    "favor-hadamard": Method("projection", "sky", "11_favor_plus"),
    "favor-unit-circulant": Method("projection", "teal", "12_circulant_favor"),
    "favor-simplex": Method("projection", "grey", "12_circulant_favor"),
    "favor-simplex-hadamard": Method("projection", "magenta", "12_circulant_favor"),
    "favor-simplex-circulant": Method("projection", "orange", "12_circulant_favor"),
    "favor-learned": Method("projection", "red", "12_circulant_favor", learned="entries"),
    "favor-optimal": Method("projection", "blue", "11_favor_plus"),
    "cosine-positive": Method("weight", "sky", "13_cosformer", options={"horizon": 512.0}),
    "ramp": Method("weight", "grey", "13_cosformer", options={"horizon": 512.0}),
    "ramp-squared": Method("weight", "magenta", "13_cosformer", options={"horizon": 512.0}),
    "falling": Method("weight", "teal", "13_cosformer", options={"horizon": 512.0}),
    "toeplitz": Method(
        "weight", "red", "14_toeplitz_rpe", learned="distances", options={"length": 256}
    ),
    "retnet": Method("decay", "orange", "17_decay_and_state"),
    "gla": Method("decay", "magenta", "17_decay_and_state", learned="weights"),
    "rwkv6": Method("decay", "teal", "17_decay_and_state"),
    "ssd": Method("decay", "red", "17_decay_and_state", learned="weights"),
    "delta": Method("decay", "sky", "18_delta_rule", learned="weights"),
    "gated-delta": Method("decay", "brown", "18_delta_rule", learned="weights"),
    "pi": Method("scaling", "magenta", "03_rope_decay"),
    "ntk": Method("scaling", "orange", "03_rope_decay"),
    "yarn": Method("scaling", "teal", "03_rope_decay"),
    "cayley-sparse": Method("variant", "teal", "07_cayley_string", learned="entries"),
    "identity": Method("variant", "grey", "17_decay_and_state"),
}
"""Name → record. One of your own is a line here, or ``METHODS["mine"] = Method(...)``."""


def method(name: str) -> Method:
    """Return the record of a method.

    Raises:
        ValueError: If there is none; the message says where to add it.
    """
    if name not in METHODS:
        raise ValueError(f"{name!r} has no record: add it to METHODS in {__file__}")
    return METHODS[name]
