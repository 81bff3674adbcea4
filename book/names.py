"""The display names of all methods: what tables, legends, alternative texts and notes show.

A name in code is a key: of a registry, a record, a claim or an address. :func:`display` has the
words that a reader sees for it, put together from those of its parts; :func:`drawn_as` has the
method whose colour it is drawn in, and :func:`wrapped` breaks a name for a narrow legend.
"""

from __future__ import annotations

import re
from textwrap import wrap
from typing import NamedTuple

__all__ = ["Parts", "display", "drawn_as", "named", "parts_of", "wrapped"]

KERNELS = {
    "softmax": "Softmax",
    "elu": "Linear attention (ELU+1)",
    "relu": "Linear attention (ReLU)",
    "favor": "FAVOR+ (orthogonal)",
    "favor-iid": "FAVOR+ (independent)",
    "favor-hadamard": "FAVOR+ (Hadamard)",
    "favor-circulant": "FAVOR+ (circulant)",
    "favor-unit-circulant": "FAVOR+ (unit circulant)",
    "favor-simplex": "FAVOR+ (simplex)",
    "favor-simplex-hadamard": "FAVOR+ (simplex Hadamard)",
    "favor-simplex-circulant": "FAVOR+ (simplex circulant)",
    "favor-learned": "FAVOR+ (learned circulant)",
    "favor-optimal": "FAVOR++ (least variance)",
    "hyperbolic": "FAVOR+ (hyperbolic)",
    "optimal-hyperbolic": "FAVOR++ (hyperbolic)",
    "trigonometric": "Random Fourier features",
    "uniform": "Uniform attention",
    "hedgehog": "Hedgehog",
    "taylor": "Taylor features",
    "window": "Softmax in a sliding window",
    "c-cosgate": "C-CosGate",
    "identity": "Linear attention (identity)",
    "delta": "Delta rule",
    "delta-1": "Delta rule (rate up to 1)",
    "gated-delta": "Gated delta rule",
    "retnet-layer": "RetNet (published layer)",
    "gla-layer": "GLA (published layer)",
    "mamba2-layer": "Mamba-2 (published layer)",
    "gated-deltanet-layer": "Gated DeltaNet (published layer)",
    "kda-layer": "KDA (published layer)",
    "kda": "KDA (delta rule, decay per feature)",
}
"""What compares a query with a key, or writes into a state."""
ENCODERS = {
    "none": "NoPE",
    "rope": "RoPE",
    "axial": "Axial RoPE",
    "mixed": "RoPE-Mixed",
    "circulant": "Circulant-STRING",
    "cayley": "Cayley-STRING",
    "cayley-sparse": "Cayley-STRING (sparse)",
    "reflection": "Reflection-STRING",
    "dense": "STRING (matrix exponential)",
    "liere": "LieRE",
    "sinusoidal": "sinusoidal embedding",
    "learned": "learned absolute embedding",
    "interpolated": "learned absolute embedding (interpolated)",
    "alibi": "ALiBi",
    "t5": "T5 bias",
    "kerple-log": "KERPLE (logarithmic)",
    "kerple-power": "KERPLE (power)",
    "pi": "RoPE, position interpolation",
    "ntk": "RoPE, NTK-aware scaling",
    "yarn": "RoPE, YaRN scaling",
    "dropped": "RoPE, dropped late (DroPE)",
    "local-none": "RoPE in a window, then a layer of NoPE",
    "fox": "FoX (forget gates)",
}
"""What tells positions."""
WEIGHTS = {
    "cosine": "cosine weight",
    "cosine-positive": "positive cosine weight",
    "cosine-phase": "1 − sine weight",
    "ramp": "ramp weight",
    "ramp-squared": "squared-ramp weight",
    "falling": "falling weight",
    "falling-3": "falling weight of degree 3",
    "falling-4": "falling weight of degree 4",
    "toeplitz": "learned Toeplitz weight",
    "kerple": "KERPLE weight",
    "retnet": "fixed decay (RetNet)",
    "rwkv6": "RWKV-6 decay",
    "gla": "GLA decay",
    "ssd": "SSD decay",
}
"""What a kernel is multiplied with: a weight of the distance, or a decay."""
GATES = {"headwise": "headwise gate", "elementwise": "elementwise gate"}
NAMED = {
    ("relu", "cosine"): "cosFormer (ReLU, cosine weight)",
    ("relu", "toeplitz"): "ReLU, learned Toeplitz weight",
    ("elu", "ssd"): "Linear attention (ELU+1), SSD decay (Mamba-2)",
    ("c-cosgate", "cosine"): "C-CosGate",
    ("favor-circulant", "cosine", "elementwise"): "C-CosGate",
}
"""Kernel, weight and gate → the name that they have together."""
MODELS = {
    "ELU": "elu",
    "elu + 1": "elu",
    "ReLU": "relu",
    "FAVOR+": "favor",
    "learned circulant": "favor-learned",
    "simplex rows": "favor-simplex-circulant",
    "C-CosGate": "c-cosgate",
    "SSD": "ssd",
    "GLA": "gla",
    "RetNet": "retnet",
    "RetNet layer": "retnet-layer",
    "GLA layer": "gla-layer",
    "Mamba-2 layer": "mamba2-layer",
    "Gated DeltaNet layer": "gated-deltanet-layer",
    "KDA layer": "kda-layer",
    "delta rule": "delta",
    "gated delta rule": "gated-delta",
    "sum": "elu",
    "RoPE": "rope",
    "KERPLE": "kerple-log",
    "T5": "t5",
    "Toeplitz": "toeplitz",
    "elementwise gate": "elementwise",
    "FoX": "fox",
    "local and none": "local-none",
    "no position": "none",
    "learned table": "learned",
    "stretched table": "interpolated",
    "axial RoPE": "axial",
    "RoPE-Mixed": "mixed",
    "Circulant-STRING": "circulant",
}
"""A word in the names of records → the code name of the part."""
KINDS = {"kernel": KERNELS, "encoder": ENCODERS, "weight": WEIGHTS, "gate": GATES}
BEFORE = {"before": "before φ", "after": "after φ", "turned": "before φ, random rotation"}
REGISTERED = {
    "cosine": "Cosine weight (cosFormer)",
    "shift": "Token shift (keys)",
}
"""A name that stands alone → what it then is called."""
ALONE = ("softmax", "relu", "elu", *(name for name in KERNELS if name.startswith("favor")))
"""Kernels that know no positions by themselves."""
DECAYS = ("retnet", "rwkv6", "gla", "ssd")
"""Weights that are beside ELU+1 unless told otherwise."""
PLAIN = ("SSD", "GLA", "gated delta rule")
"""Parts of a hybrid, which has softmax beside them, that need no more words."""
BESIDE = " and a head of softmax"
HALVES = re.compile(r"half (softmax|window), half (.+)")


class Parts(NamedTuple):
    """The parts of a method, each a code name or empty."""

    kernel: str = ""
    encoder: str = ""
    way: str = ""
    weight: str = ""
    gate: str = ""


def parts_of(name: str) -> Parts:
    """Return the parts of a method.

    Args:
        name: Words of registries or records, with commas or colons between. Where several are,
            "circulant" in front is the feature map, elsewhere the encoder.

    Raises:
        ValueError: If a part is not known.
    """
    words = re.split(r", |: ", name)
    if len(words) > 1 and words[0] == "circulant":
        words[0] = "favor-circulant"
    found = dict.fromkeys(Parts._fields, "")
    for word in words:
        if word.endswith(tuple(f" {way}" for way in BEFORE)):
            word, _, found["way"] = word.partition(" ")
        code = MODELS.get(word, word)
        if code == "ramp" and found["kernel"] == "c-cosgate":
            code = "ramp-squared"
        kind = next((kind for kind, known in KINDS.items() if code in known), None)
        if kind is None:
            raise ValueError(f"{name!r}: expected parts of {__file__}, got {word!r}: add it there")
        if found[kind]:
            raise ValueError(f"{name!r}: expected one {kind}, got {found[kind]!r} and {code!r}")
        found[kind] = code
    return Parts(**found)


def display(name: str, *, model: bool = False) -> str:
    """Return the display name of a method.

    Args:
        name: A name of a registry, such as ``"favor-circulant"``, or of a record, such as
            ``"circulant, RoPE"``.
        model: Whether it is a whole model, so that a kernel alone has no positions, "Softmax,
            NoPE", and "circulant" is one.

    Returns:
        Words in which no name of the code is left.

    Raises:
        ValueError: If a part of the name is not known; the message says where to add it.
    """
    if name in REGISTERED:
        return REGISTERED[name]
    if name.endswith(BESIDE):
        return f"Hybrid: softmax + {_beside(name.removesuffix(BESIDE))}"
    if halves := HALVES.fullmatch(name):
        first = {"softmax": "softmax", "window": "softmax in a window"}[halves[1]]
        return f"Hybrid: {first} + {_beside(halves[2])}"
    if model and name == "circulant":
        name = "favor-circulant"
    return named(parts_of(name), model=model)


def named(parts: Parts, *, model: bool = False) -> str:
    """Return the display name of a method by its parts.

    Args:
        parts: The parts.
        model: As for :func:`display`.
    """
    kernel, encoder, way, weight, gate = parts
    if weight in DECAYS and not kernel:
        kernel = "elu"
    if not kernel:
        if encoder == "none":
            return "No position encoding (NoPE)"
        told = (ENCODERS.get(encoder), BEFORE.get(way), WEIGHTS.get(weight), GATES.get(gate))
        words = ", ".join(filter(None, told))
        return words[:1].upper() + words[1:]
    said = _kernel(kernel, weight, gate)
    if encoder == "none" or (model and not encoder and not weight and kernel in ALONE):
        return f"{said}, NoPE"
    if encoder:
        said += f" + {ENCODERS[encoder]}" + (f" ({BEFORE[way]})" if way else "")
    return said


def _kernel(kernel: str, weight: str, gate: str) -> str:
    """Return a kernel with its weight and gate in words."""
    if (kernel, weight, gate) in NAMED:
        return NAMED[kernel, weight, gate]
    if kernel == "c-cosgate" and weight not in ("", "cosine"):
        said = f"{KERNELS[kernel]} ({WEIGHTS[weight]})"
    elif (kernel, weight) in NAMED:
        said = NAMED[kernel, weight]
    else:
        said = ", ".join([KERNELS[kernel], *filter(None, [WEIGHTS.get(weight)])])
    return f"{said}, {GATES[gate]}" if gate else said


def _beside(name: str) -> str:
    """Return what stands beside softmax in a hybrid."""
    if name in PLAIN:
        return name
    return display(name).replace(" + ", ", ")


def drawn_as(name: str) -> str:
    """Return the method whose colour in ``COLOURS`` a method is drawn in: softmax for a hybrid.

    A decay and a weight go before the kernel that they are beside, as it is there without them too.
    """
    if name.startswith("half "):
        return "softmax"
    parts = parts_of(name.removesuffix(BESIDE))
    kernel = {"c-cosgate": "favor-circulant", "window": "softmax"}.get(parts.kernel, parts.kernel)
    if parts.kernel == "c-cosgate":
        return kernel
    return parts.weight or kernel or parts.encoder


def wrapped(text: str, width: int, end: str = "<br>") -> str:
    """Return a text with breaks between words, so that no line of a legend is wider."""
    return end.join(wrap(text, width, break_long_words=False, break_on_hyphens=False))
