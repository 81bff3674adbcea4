"""Every position encoding and every attention that has a name, as a row of the map of methods.

Properties are computed here from the classes; what came of them, ``book.recorded`` reads. Only two
things are typed, in :mod:`lab.methods`: what the learned numbers are, and the chapter. By what is
in a row's cells a reader chooses: :data:`NEEDS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from book import recorded
from lab.methods import method
from stringlib import FavorFeatures, MultiHeadAttention, RotaryEncoder, make_encoder, make_features
from stringlib.attention.registry import FEATURES, WEIGHTS
from stringlib.attention.states import LinearState
from stringlib.encoders.registry import BIASES, ENCODERS, make_bias
from stringlib.encoders.relative_bias import RelativeBias
from stringlib.models.absolute import GridSinusoidal, GridTable
from stringlib.models.blocks import ABSOLUTE
from stringlib.testing.properties import (
    all_errors,
    fold_error,
    largest_difference,
    normal,
    shift_error,
)

HEAD, AXES = 16, 2  # channels of a head and coordinates, as in chapter 20
WIDE, HEADS, LENGTH = 64, 4, 256  # channels of a head, heads and tokens of an attention
EXACT = 1e-9  # a property that holds to rounding is far below
MISSING = "–"


class Row(NamedTuple):
    """One method.

    Attributes:
        name: In its registry.
        code: The class or function that it stands for, with its module; empty for none.
        cells: What is known of it: name → text, the same names in all rows of a list.
        chapter: The notebook that derives it, without its folder and ending.
    """

    name: str
    code: str
    cells: dict[str, str]
    chapter: str


Cells = Mapping[str, str]


def amount(text: str) -> tuple[float, float] | None:
    """Return the number with which a cell begins, and half of its interval; None without one."""
    found = re.match(r"([+−]?[\d,.]*\d)(?:\s±\s([\d.]+))?", text)
    if not found:
        return None
    number = found[1].replace("−", "-").replace(",", "")
    return float(number), float(found[2] or 0)


def reaches(name: str, least: float) -> Callable[[Cells], bool]:
    """Return whether a cell has a number that is at least so much."""
    return lambda cells: (amount(cells[name]) or (-1.0, 0))[0] >= least


def told(name: str, *words: str) -> Callable[[Cells], bool]:
    """Return whether a cell says one of some words; without words, whether it says anything."""
    return lambda cells: cells[name] in words if words else cells[name] != MISSING


class Need(NamedTuple):
    """What a reader may ask of a method.

    Attributes:
        group: The question that it answers.
        label: As its button says it, and a row that has it.
        meaning: When a row has it.
        holds: List of rows → whether a row has it. The rows of other lists stay: it is no question
            there.
    """

    group: str
    label: str
    meaning: str
    holds: Mapping[str, Callable[[Cells], bool]]


READS, MUST = "I read", "I need"


def _reads(what: str) -> Need:
    tried = {"encoders": told(what), "attentions": told(what)}
    return Need(READS, what, f"A study of this book trained the method on {what}.", tried)


NEEDS: dict[str, Need] = {
    "text": _reads("text"),
    "images": _reads("images"),
    "volumes": _reads("volumes"),
    "relative": Need(
        MUST,
        "relative scores",
        "If all positions are shifted by the same amount, scores change only by rounding errors.",
        {"encoders": told("relative", "yes")},
    ),
    "state": Need(
        MUST,
        "constant memory",
        "What a layer stores while it generates text does not grow. For a position encoding: the "
        "encoding works in such a layer. (A bias does not, because it is added to every pair.)",
        {
            "encoders": told("state", "yes"),
            "attentions": lambda cells: cells["kept"][0].isdigit(),
        },
    ),
    "folds": Need(
        MUST,
        "merging",
        "The basis of the encoder can be merged into the projections.",
        {"encoders": told("folds", "yes")},
    ),
    "longer": Need(
        MUST,
        "longer texts",
        "Text of 16 times the training length needs at most 0.05 bits per byte more than text of "
        "the training length.",
        {
            kind: lambda cells: (amount(cells["longer"]) or (9.0, 0))[0] <= 0.05
            for kind in ("encoders", "attentions")
        },
    ),
    "lookup": Need(
        MUST,
        "retrieval",
        "The method retrieved at least 90% of the needles at 16 times the training length, or at "
        "least 90% of the values of 32 pairs.",
        {"encoders": reaches("lookup", 0.9), "attentions": reaches("lookup", 0.9)},
    ),
    "both": Need(
        MUST,
        "both directions",
        "Tokens can also attend to later tokens. (Every method can be causal.)",
        {"attentions": told("causal", "both")},
    ),
    "rope": Need(
        MUST,
        "exact RoPE",
        "With RoPE before or after the feature map, a shift of all positions changes no output.",
        {"attentions": lambda cells: cells["rope"] != "no"},
    ),
    "fast": Need(
        MUST,
        "fast",
        "On one CPU thread, its forward pass is faster than that of softmax from at most 512 "
        "tokens on.",
        {"attentions": lambda cells: (amount(cells["from"]) or (1e9, 0))[0] <= 512},
    ),
}
"""What a reader may ask for, in the order of the buttons."""


def path_of(thing: Any) -> str:
    """Return the full name of an object's class, or of a function."""
    kind = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{kind.__module__}.{kind.__qualname__}"


def effective(module: nn.Module, shown: Callable[[nn.Module], Tensor]) -> tuple[int, int]:
    """Return how many numbers a module learns, and how many directions of them change anything.

    Args:
        module: With parameters drawn at random; at a symmetric point fewer would count.
        shown: All that a score can see of the module.

    Returns:
        The parameters, and the rank of the derivative of ``shown`` by them.
    """
    parameters = dict(module.named_parameters())
    if not parameters:
        return 0, 0
    names, values = zip(*parameters.items(), strict=True)

    class Shown(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self) -> Tensor:
            return shown(self.module)

    def at(*tensors: Tensor) -> Tensor:
        told = {f"module.{name}": tensor for name, tensor in zip(names, tensors, strict=True)}
        return functional_call(Shown(), told, ()).flatten()

    slopes = torch.autograd.functional.jacobian(
        at, tuple(p.detach() for p in values), vectorize=True
    )
    table = torch.cat([slope.flatten(1) for slope in slopes], 1)
    return table.shape[1], int(torch.linalg.matrix_rank(table, rtol=EXACT))


def drawn(module: nn.Module) -> nn.Module:
    """Return a module in float64, its parameters drawn at random with a fixed seed."""
    generator = torch.Generator().manual_seed(0)
    module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.rand(parameter.shape, generator=generator) - 0.4)
    return module


def encoder(name: str, axes: int = AXES) -> nn.Module | None:
    """Return an encoder of one head, drawn at random; None for no encoder.

    Raises:
        ValueError: If it has no such number of coordinates.
    """
    with torch.random.fork_rng(devices=[]):  # a sparse basis draws its places
        torch.manual_seed(0)
        if name in ENCODERS:
            return drawn(make_encoder(name, HEAD, axes))
        if axes != 1 and name in BIASES:
            raise ValueError(f"coord_dim must be 1 for {name}, which counts tokens, got {axes}")
        if name in BIASES:
            return drawn(make_bias(name, 1))
        if name == "sinusoidal":
            return drawn(GridSinusoidal(12, axes))  # 12 is split by 2, 4 and 6
        return drawn(GridTable((14,) * axes, HEAD)) if name == "learned" else None


def coordinates(name: str) -> str:
    """Return which numbers of coordinates an encoder has."""
    try:
        encoder(name, 3)
    except ValueError:
        return "1"
    return MISSING if name == "none" else "any"


def is_relative(made: nn.Module) -> bool:
    """Return whether a common shift of all positions changes no score, to rounding."""
    if isinstance(made, RotaryEncoder):
        return all_errors(made)["relative"] < EXACT
    if isinstance(made, RelativeBias):
        return largest_difference(made(5, 7, offset=2), made(5, 14, offset=9)[..., 7:]) < EXACT
    added: Any = made  # one of ABSOLUTE: a vector for each place
    q, k = normal(2, 4, added.dim if isinstance(made, GridSinusoidal) else HEAD)
    places = torch.arange(4.0 * AXES, dtype=torch.float64).view(4, AXES) % 5

    def scores(at: Tensor) -> Tensor:
        return added(q, at) @ added(k, at).mT

    return shift_error(scores, places, 3.0) < EXACT


def folding(made: nn.Module | None) -> str:
    """Return whether an encoder's basis moves into the projections."""
    if not isinstance(made, RotaryEncoder):
        return "no" if isinstance(made, RelativeBias) else MISSING
    x, w_q, w_k, places = normal(5, 9), normal(HEAD, 9), normal(HEAD, 9), normal(5, made.coord_dim)
    if fold_error(made, x, w_q, w_k, places) > EXACT:
        return "no"
    return "nothing" if torch.equal(made.fold(w_q), w_q) else "yes"


def counted(made: nn.Module | None) -> str:
    """Return the numbers that act and the numbers that are kept, of one head."""
    if made is None:
        return "0"
    if isinstance(made, RotaryEncoder):
        stored, acting = effective(made, lambda m: m.generators())  # type: ignore[operator]
    elif isinstance(made, RelativeBias):
        distances = torch.arange(-1024, 1025)

        def curve(module: nn.Module) -> Tensor:
            line: Tensor = module.at(distances)  # type: ignore[operator]
            return line - line.mean()  # softmax does not see a constant

        stored, acting = effective(made, curve)
    else:
        stored = acting = sum(p.numel() for p in made.parameters())
    return f"{acting:,}" if stored == acting else f"{acting:,} of {stored:,}"


def times(value: float | None) -> str:
    """Return a ratio as text."""
    return MISSING if value is None else f"{value:.1f}"


def encoders() -> list[Row]:
    """Return a row for every way of telling positions, in the order of the registries."""
    vision, longer, time = recorded.vision(), recorded.longer(), recorded.encoder_times()
    trained, added = recorded.texts(longer["trained"]), recorded.texts(longer["text"], sign="+")
    needles = recorded.texts(longer["needles"])
    other = recorded.texts(vision["other"])
    volumes = recorded.texts(vision["moved"])
    rows = []
    for name in ("none", *ABSOLUTE, *ENCODERS, *BIASES):
        known = method(name)
        made = encoder(name, 1 if coordinates(name) == "1" else AXES)
        cells = {
            "relative": MISSING if made is None else "yes" if is_relative(made) else "no",
            "axes": coordinates(name),
            "learned": f"{counted(made)} {known.learned}".strip(),
            "state": "no" if isinstance(made, RelativeBias) else "yes",
            "folds": folding(made),
            "cost": times(time["training"].get(name)),
            "inference": times(time["inference"].get(name)),
            "text": trained.get(name, MISSING),
            "longer": added.get(name, MISSING),
            "lookup": needles.get(name, MISSING),
            "images": other.get(f"moved {name}", MISSING),
            "volumes": volumes.get(f"volumes {name}", MISSING),
        }
        rows.append(Row(name, "" if made is None else path_of(made), cells, known.chapter))
    return rows


def layer(name: str, **options: Any) -> MultiHeadAttention:
    """Return an attention layer by the name of its comparison or of its weight."""
    told: dict[str, Any] = {"attention": name}
    if name in WEIGHTS:
        told = {"attention": "elu", "weight": name, **method(name).options}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = MultiHeadAttention(WIDE * HEADS, HEADS, **told, **options)
        if made.weight is not None and not made.weight.normalized:  # features may have any sign
            made = MultiHeadAttention(
                WIDE * HEADS, HEADS, **{**told, "attention": "identity"}, **options
            )
        return made.double()


def works(name: str, **options: Any) -> bool:
    """Return whether a layer with these options is not refused."""
    try:
        made = layer(name, **options)
        made(normal(3, made.dim))
    except ValueError:
        return False
    return True


@torch.no_grad()
def rotation(name: str) -> str:
    """Return where RoPE may stand so that a shift of all positions changes nothing."""
    exact = []
    for place in ("before", "after"):
        options = {"encoder": "rope", "rotate": place, "causal": True}
        if not works(name, **options):
            continue
        attend = partial(layer(name, **options), normal(6, WIDE * HEADS))
        if shift_error(attend, torch.arange(6.0, dtype=torch.float64)[:, None], 3.0) < EXACT:
            exact.append(place)
    if name == "softmax":
        return "yes" if exact else "no"
    return "after φ" if exact == ["after"] else " and ".join(exact) or "no"


@torch.no_grad()
def kept(name: str) -> str:
    """Return the numbers per head that a causal layer keeps while it writes."""
    made = layer(name, causal=True)
    if not made.has_state:
        return "no state"

    def numbers(tokens: int) -> int:
        state = made(normal(tokens, made.dim), return_state=True)[1]
        if isinstance(state, LinearState):
            state = state._replace(drawn=None)  # by which it is recognised
        parts = [t for t in _tensors(state) if t.ndim > 2]  # no count of tokens and no scale
        return sum(t.numel() for t in parts) // HEADS

    one, two = numbers(8), numbers(16)
    return f"{two:,}" if one == two else f"grows, {(two - one) // 8:,} per token"


def _tensors(state: Any) -> list[Tensor]:
    if isinstance(state, Tensor):
        return [state]
    return [t for part in state for t in _tensors(part)] if isinstance(state, tuple) else []


def learned(name: str) -> str:
    """Return the numbers per head that an attention learns beyond the four projections."""
    made = layer(name, causal=True)
    parts = [part for part in (made.features, made.weight) if part is not None]
    return f"{sum(p.numel() for part in parts for p in part.parameters()) // HEADS:,}"


def code(name: str) -> str:
    """Return the class or function that an attention's name stands for."""
    if name == "softmax":
        return "stringlib.attention.softmax.softmax_attention"
    if name in WEIGHTS:
        return path_of(layer(name, causal=True).weight)
    phi = make_features(name, WIDE)
    plain = isinstance(phi, FavorFeatures) and not phi.hyperbolic and phi.alpha is None
    return path_of(phi.projection if plain else phi)


def attentions() -> list[Row]:
    """Return a row for softmax, every feature map and every weight."""
    recall, time = recorded.texts(recorded.recall()), recorded.attention_times()
    added = recorded.texts(recorded.longer()["text"], sign="+")
    digits = recorded.texts(recorded.measured("mnist", recorded.score("test")))
    volumes = recorded.about(recorded.vision()["moved"]["volumes axial"])
    rows = []
    for name in ("softmax", *FEATURES, *WEIGHTS):
        known, with_ = method(name), recorded.beside(name)
        start, share = (time[key].get(name) for key in ("from", "share"))
        cells = {
            "kind": "all pairs"
            if name == "softmax"
            else "weight"
            if name in WEIGHTS
            else "features",
            "causal": "both" if works(name, causal=False) else "only",
            "kept": kept(name),
            "rope": rotation(name),
            "learned": f"{learned(name)} {known.learned}".strip(),
            "from": MISSING if start is None else f"{start:,.0f}",
            "cost": times(share and 100 * share),
            "text": MISSING if with_ is None else f"{recorded.about(with_[1])}, {with_[0]}",
            "longer": added.get(name, MISSING),
            "lookup": recall.get(name, MISSING),
            "images": digits.get(f"{name}: axial", MISSING),
            "volumes": volumes if name == "softmax" else MISSING,
        }
        rows.append(Row(name, code(name), cells, known.chapter))
    return rows
