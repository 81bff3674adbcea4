"""Records of all methods of the book: colour, chapter, and facts for the table of all methods.

Each name in a registry of :mod:`stringlib` has a record here. The record gives the method a colour,
a row in the table of all methods, and test cases of layers and models. Methods without a name in a
registry, such as those of a single chapter, have records, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

NOTHING: Mapping[str, Any] = MappingProxyType({})


class Method(NamedTuple):
    """Record of a method.

    Attributes:
        family: Name of a group of methods that are drawn together. Two methods of the same family
            have different colours.
        colour: Name of the method's colour in the whole book, from ``PALETTE`` in
            :mod:`lab.explore.style`.
        chapter: Name of the notebook that derives the method, without folder and suffix.
        learned: Word for the numbers that the method learns. Empty if it learns none.
        options: Arguments that the constructor of the method needs for 256 tokens.
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
    "hedgehog": Method("features", "magenta", "10_linear_attention", learned="matrices"),
    "taylor": Method("features", "red", "10_linear_attention"),
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
    "kda": Method("decay", "grey", "18_delta_rule", learned="weights"),
    "pi": Method("scaling", "magenta", "03_rope_decay"),
    "ntk": Method("scaling", "orange", "03_rope_decay"),
    "yarn": Method("scaling", "teal", "03_rope_decay"),
    "cayley-sparse": Method("variant", "teal", "07_cayley_string", learned="entries"),
    "identity": Method("variant", "grey", "17_decay_and_state"),
}
"""Record of each method, by name. Add your own with ``METHODS["mine"] = Method(...)``."""


def method(name: str) -> Method:
    """Return the record of a method.

    Raises:
        ValueError: If the method has no record. The message says where to add it.
    """
    if name not in METHODS:
        raise ValueError(
            f"name must be a method with a record, got {name!r}, which has no record. Add it to "
            f"METHODS in {__file__}."
        )
    return METHODS[name]
