"""Queries and keys of trained models: scores, random features, and states with these keys."""

from __future__ import annotations

import math
from functools import cache
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from book.figures.marks import axis, bars, dots, line, listed, rounded, significant
from book.live import write
from book.names import display
from lab.explore import COLOURS, PALETTE, Drawn, Panel, panels
from results import page_text as study
from stringlib import FavorFeatures
from stringlib.attention import delta_rule

__all__ = [
    "DRAWS",
    "HEADS",
    "SIZES",
    "TEXT",
    "WRITERS",
    "WRITTEN",
    "answers",
    "bits",
    "by_distance",
    "contributions",
    "distances",
    "estimates",
    "model",
    "replaced",
    "scores_by_distance",
    "seen",
    "shares_left",
    "spread_by_pair",
    "states_of_trained_keys",
    "trained",
    "trained_heads",
    "trained_keys",
    "weights",
]

TEXT = 2 * write.PASSAGE
"""What the model reads."""

AT = TEXT.rindex("crossed") + len("crossed") - 1
"""The query that is shown, the last letter of the second "crossed"."""

HEADS = ["layer 1, head 1", "layer 1, head 2", "layer 2, head 1", "layer 2, head 2"]
SIZES = [64, 256, 1024, 4096, 16384]
DRAWS = 8
REACH = 80
"""The largest distance that is shown."""

FAST = 3
"""Pairs of channels that make four full turns or more in the 128 bytes of training."""


def model(name: str = "softmax, RoPE") -> Any:
    """Return a trained model: two layers of two heads with 32 channels."""
    with torch.random.fork_rng(devices=()):  # of the weights that the trained ones replace
        return write.models()[name].model


def tokens(text: str = TEXT) -> Tensor:
    """Return the bytes of a text, ``(1, n)``."""
    return torch.tensor([list(text.encode())])


def seen(reader: Any, text: str = TEXT) -> list[tuple[Any, Tensor, Tensor]]:
    """Return the attention of each layer, and its queries and keys, ``(heads, n, d)``.

    They are not rotated, and divided by the root of √d: their products are the scores.
    """
    found: list[tuple[Any, Tensor, Tensor]] = []

    def look(core: Any, args: tuple[Tensor, ...]) -> None:
        found.append((core, *(x[0] / x.shape[-1] ** 0.25 for x in args[:2])))

    hooks = [b.attention.core.register_forward_pre_hook(look) for b in reader.blocks]
    with torch.no_grad():
        reader(tokens(text))
    for hook in hooks:
        hook.remove()
    return found


@cache
def trained() -> dict[str, tuple[Tensor, Tensor]]:
    """Return the rotated queries and keys of each head of the model, ``(n, 32)``, in float64."""
    pairs: list[tuple[Tensor, Tensor]] = []
    for core, q, k in seen(model()):
        positions = torch.arange(q.shape[-2])[:, None].to(q)
        pairs += zip(*(x.double() for x in core.encoder(q, k, positions)), strict=True)
    return dict(zip(HEADS, pairs, strict=True))


def causal(scores: Tensor) -> Tensor:
    """Return positive scores without those of later keys, divided by their sum."""
    kept = scores.tril()
    return kept / kept.sum(-1, keepdim=True)


@cache
def weights(head: str) -> Tensor:
    """Return the attention weights of a head, ``(n, n)``."""
    q, k = trained()[head]
    return causal((q @ k.mT).exp())


@cache
def estimates(head: str, size: int) -> Tensor:
    """Return the weights of FAVOR+ in each draw, ``(DRAWS, n, n)``."""
    q, k = trained()[head]
    found = []
    for seed in range(DRAWS):
        generator = torch.Generator().manual_seed(seed)
        phi = FavorFeatures(q.shape[-1], size, generator=generator).double()
        found.append(causal(phi(q[None]) @ phi(k[None], is_query=False).mT))
    return torch.cat(found)


@cache
def distances(head: str, size: int) -> list[float]:
    """Return the distance of each draw from softmax, divided by that of uniform attention."""
    exact = weights(head)
    uniform = torch.linalg.norm(causal(torch.ones_like(exact)) - exact)
    return [(torch.linalg.norm(x - exact) / uniform).item() for x in estimates(head, size)]


def replaced(size: int, seed: int) -> Any:
    """Return the trained model with FAVOR+ instead of softmax, without further training.

    Args:
        size: Number of features.
        seed: Of the random rows.
    """
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        found = study.make_model(encoder="rope", attention="favor", num_features=size).eval()
    found.load_state_dict(model().state_dict(), strict=False)  # random rows are no weights
    return found


def bits(reader: Any) -> list[float]:
    """Return the bits per byte that a model needs for the first and for the second passage."""
    with torch.no_grad():
        logits = reader(tokens())[0, :-1].log_softmax(-1)
    spent = -logits.gather(-1, tokens()[0, 1:, None])[:, 0] / math.log(2)
    half = len(write.PASSAGE) - 1
    return [part.mean().item() for part in (spent[:half], spent[half:])]


def trained_heads(head: str, features: int) -> Drawn:
    """Draw the weights of a trained head, and those of FAVOR+ instead.

    Args:
        head: One of ``HEADS``.
        features: One of ``SIZES``.

    Returns:
        A figure of the weights of one query, and of the distance of all weights from softmax.
    """
    places = list(range(AT + 1))
    exact, first = weights(head)[AT, : AT + 1], estimates(head, features)[0, AT, : AT + 1]
    middles = [median(distances(head, size)) for size in SIZES]
    here, most = distances(head, features), int(exact.argmax())
    letters = [f"“{TEXT[max(0, i - 6) : i + 1]}”" for i in places]
    hover = "%{customdata}: %{y:.2f}"
    said: dict[str, Any] = {"hover": hover, "customdata": letters}
    above = [
        bars(places, rounded(exact), COLOURS["softmax"], display("softmax"), **said),
        bars(places, rounded(first), COLOURS["favor"], display("favor"), **said),
    ]
    below = [
        line(SIZES, significant(middles), COLOURS["favor"], hover="m = %{x}: %{y:.2f}"),
        dots([features] * DRAWS, significant(here), COLOURS["favor"], size=9),
        line([SIZES[0], SIZES[-1]], [1, 1], PALETTE["grey"], display("uniform"), width=2),
    ]
    ticks = [0.5, 0.7, 1, 1.4]
    figure = panels(
        Panel(
            above,
            f"weights of the query “{TEXT[AT - 6 : AT + 1]}”",
            axis("position of the key", -1, AT + 1, dtick=10),
            axis("weight", 0, 1, dtick=0.5),
        ),
        Panel(
            below,
            "distance of all weights from softmax",
            axis(
                "number of features m", 1.7, 4.35, type="log", tickvals=SIZES,
                ticktext=[f"{m:,}" for m in SIZES],
            ),
            axis(
                "relative to uniform", -0.35, 0.26, type="log", tickvals=ticks,
                ticktext=[f"{y:g}" for y in ticks],
            ),
        ),
        height=560,
        down=0.24,
        title_text=f"m = {features:,}: {median(here):.2f} times the distance of uniform",
        margin={"b": 110},
        barmode="group",
    )  # fmt: skip
    better = sum(x < 1 for x in here)
    return Drawn(
        figure,
        "The upper panel is a bar chart of the attention weights of one query against the "
        f"position of the key, in {head} of a trained model. Each key has one bar for "
        f"{display('softmax')} and one for {display('favor')} with {features:,} features. "
        f"{display('softmax')} gives the largest weight, {exact[most]:.2f}, to position {most}, "
        f"and {display('favor')} gives this position {first[most]:.2f}. The lower panel is a line "
        "chart of the distance of all weights from those of softmax, divided by the distance of "
        f"uniform attention, against the number of features, from {SIZES[0]} to {SIZES[-1]:,}, on "
        "logarithmic axes. A horizontal line at 1 marks uniform attention. The line of medians "
        f"goes from {middles[0]:.2f} to {middles[-1]:.2f}. Dots mark the {DRAWS} draws with "
        f"{features:,} features, of which {better} of {DRAWS} are better than uniform attention.",
    )


def contributions(head: str) -> Tensor:
    """Return what each pair of channels adds to the scores of a head, ``(pairs, n, n)``."""
    q, k = (x.unflatten(-1, (-1, 2)).transpose(0, 1) for x in trained()[head])
    return q @ k.mT


def by_distance(scores: Tensor) -> Tensor:
    """Return the mean of ``(n, n)`` scores at each distance from query back to key, ``(n,)``."""
    return torch.stack([scores.diagonal(-distance).mean() for distance in range(len(scores))])


def spread_by_pair(head: str) -> Tensor:
    """Return the standard deviation of each pair's part of the scores, ``(pairs,)``.

    It is taken over all queries of the text and all keys up to each of them.
    """
    parts = contributions(head)
    seen_keys = torch.ones(parts.shape[-2:], dtype=torch.bool).tril()
    return parts[:, seen_keys].std(-1)


def scores_by_distance(head: str) -> Drawn:
    """Draw the mean score of a trained head by distance, and how much each pair of channels varies.

    Args:
        head: One of ``HEADS``.

    Returns:
        A figure of the mean score against the distance, and of a bar for each pair.
    """
    scores = by_distance(contributions(head).sum(0))[: REACH + 1]
    pairs, most = spread_by_pair(head), int(scores.argmax())
    places = list(range(1, len(pairs) + 1))
    fast = [PALETTE["orange"] if i < FAST else PALETTE["blue"] for i in range(len(pairs))]
    figure = panels(
        Panel(
            [
                line(
                    list(range(REACH + 1)), rounded(scores, 2), COLOURS["rope"],
                    hover="distance %{x}: %{y:.1f}",
                ),
                dots([most], rounded(scores[most : most + 1], 2), COLOURS["rope"]),
            ],
            "mean score",
            axis("distance from query back to key (bytes)", -1, REACH + 1, dtick=10),
            axis("score", -18, 10, dtick=5),
        ),
        Panel(
            [bars(places, rounded(pairs, 2), fast, hover="pair %{x}: %{y:.2f}")],
            "variation of the score by pair of channels",
            axis("pair of channels, from the highest frequency", 0.4, len(pairs) + 0.6, dtick=1),
            axis("standard deviation", 0, 3, dtick=1),
        ),
        height=540,
        down=0.24,
        title_text=f"{head}: largest mean score at distance {most}",
    )  # fmt: skip
    varied = int(pairs.argmax()) + 1
    return Drawn(
        figure,
        f"The upper panel is a line chart of the mean score of {head} of a trained model against "
        f"the distance from query back to key, from 0 to {REACH} bytes. A dot marks the largest "
        f"mean score, {scores[most]:.1f} at distance {most}. The lower panel is a bar chart of "
        f"the variation of the score by pair of channels, with {len(pairs)} bars from the highest "
        "frequency to the lowest. The height of a bar is the standard deviation of the part of "
        f"the score that comes from its pair. The first {FAST} bars are for fast pairs, which "
        "make four full turns or more within the 128 bytes of training. The tallest bar is that "
        f"of pair {varied}, with a standard deviation of {pairs.max():.2f}.",
    )


WRITTEN = "The door is red. The wall is blue. The door is gold. "
"""The text whose bytes are written into a state. In it, the door gets a new colour."""

COLOUR_NAMES = ["red", "blue", "gold"]
FIRST, WALL, NEW = (WRITTEN.index(name) for name in COLOUR_NAMES)
"""Positions of the first letters of the colours."""

WRITERS = {
    "softmax, layer 2, head 1": ("softmax, RoPE", 1, 0),
    "delta rule, layer 2, head 1": ("gated delta rule", 1, 0),
    "delta rule, layer 2, head 2": ("gated delta rule", 1, 1),
}
"""Name of a head → its model, its layer and its place in the layer."""

LATER = 24
"""The largest number of later writes that is shown."""


@cache
def trained_keys(head: str) -> Tensor:
    """Return the keys of a head for the written text, of norm 1 and not rotated, ``(n, 32)``."""
    name, layer, place = WRITERS[head]
    return normalize(seen(model(name), WRITTEN)[layer][2][place].double(), dim=-1)


@cache
def answers(head: str, rate: float, written: int) -> tuple[Tensor, Tensor]:
    """Return the weights of all values in two answers of a sum, and of the delta rule.

    Each is ``(2 keys, written)``. The keys are those of the new colour of the door and of the wall.
    """
    keys = trained_keys(head)
    kept, asked = keys[None, :written], keys[[NEW, WALL]]
    rates, values = torch.full((1, written), rate).double(), torch.eye(written).double()
    _, state = delta_rule(kept, kept, values[None], rates)
    return asked @ kept[0].mT, asked @ state[0]


@cache
def shares_left(head: str, rate: float) -> list[float]:
    """Return the mean share of a value in the answer to its key after 0 to ``LATER`` writes."""
    keys = old = trained_keys(head)
    shares = [rate]
    for m in range(1, LATER + 1):
        old, later = old[:-1], keys[m:]
        old = old - rate * (old * later).sum(-1, keepdim=True) * later
        shares.append(rate * (old * keys[: len(old)]).sum(-1).mean().item())
    return shares


def states_of_trained_keys(head: str, rate: float, written: int) -> Drawn:
    r"""Draw which values two states return for two keys of a trained head.

    An answer is a weighted sum of the values. A sum gives value i the weight :math:`k_i^\top k`,
    and the weights of the delta rule follow from :eq:`eq-delta-rule`.

    Args:
        head: One of ``WRITERS``.
        rate: That of the delta rule.
        written: Number of bytes of ``WRITTEN`` whose values are written.

    Returns:
        A figure of the weights of all values in the answers to two keys, and of the share of a
        value that is left after later writes.
    """
    found = dict(zip(("sum", "delta rule"), answers(head, rate, written), strict=True))
    kept, size = shares_left(head, rate), trained_keys(head).shape[-1]
    at_random = [rate * (1 - rate / size) ** m for m in range(LATER + 1)]
    places = list(range(written))
    letters = [f"“{WRITTEN[max(0, i - 6) : i + 1]}”" for i in places]
    said: dict[str, Any] = {"hover": "%{customdata}: %{y:.2f}", "customdata": letters}
    marked = [FIRST, WALL, NEW]
    text_axis = axis(None, -1, len(WRITTEN), tickvals=marked, ticktext=COLOUR_NAMES, tickangle=0)
    looks = {"sum": COLOURS["identity"], "delta rule": COLOURS["delta"]}
    shown = [
        Panel(
            [
                bars(places, rounded(found[of][row]), looks[of], None if row else of, **said)
                for of in looks
            ],
            f"answer to the key of the {name}: weight of each value",
            text_axis,
            axis("weight", -0.6, 1.25, dtick=0.5),
        )
        for row, name in enumerate(("door", "wall"))
    ]
    later = list(range(LATER + 1))
    left = [
        line(
            later, rounded(kept), COLOURS["delta"], "trained keys",
            hover="after %{x} writes: %{y:.2f}",
        ),
        line(
            later, rounded(at_random), PALETTE["grey"], "random keys", dash="dot",
            hover="after %{x} writes: %{y:.2f}",
        ),
    ]  # fmt: skip
    figure = panels(
        *shown,
        Panel(
            left,
            "share of a value that is left in the answer to its key",
            axis("number of later writes", -0.5, LATER + 0.5, dtick=4),
            axis("share", 0, 1.05, dtick=0.5),
        ),
        height=640,
        down=0.13,
        margin={"b": 110},
        barmode="group",
    )
    read = [i for i in marked if i < written]
    numbers = {
        of: [[f"{round(x, 2) + 0.0:.2f}" for x in row[read].tolist()] for row in found[of]]
        for of in looks
    }
    told = " ".join(
        f"In the answer to the key of the colour of the {name}, "
        f"{listed(COLOUR_NAMES[: len(read)])} have the "
        f"weights {listed(numbers['sum'][row])} in a sum, and {listed(numbers['delta rule'][row])} "
        "with the delta rule."
        for row, name in enumerate(("door", "wall"))
    )
    return Drawn(
        figure,
        "Two bar charts and a line chart show states with keys of a trained model. The keys are "
        f"those of {head}, and {written} bytes of the text “{WRITTEN.strip()}” are written at "
        f"rate {rate:g}. The two bar charts above show the weight of each written value in the "
        "answer to a key, with one bar for a sum and one for the delta rule. The first of them "
        f"asks for the new colour of the door, and the second for the colour of the wall. {told} "
        "The line chart below shows the share of a value that is left in the answer to its own "
        f"key against the number of later writes, from 0 to {LATER}. After one later write, the "
        f"solid line of trained keys is at {kept[1]:.2f}, and the dotted line of random keys is "
        f"at {at_random[1]:.2f}. After {LATER} writes, they are at {kept[-1]:.2f} and "
        f"{at_random[-1]:.2f}.",
    )
