"""Clocks that turn with the position, powers of a matrix, waves, layouts, and heads cut apart."""

from __future__ import annotations

import math

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import (
    CELLS,
    at_one_place,
    axis,
    broken,
    circle,
    colour_axis,
    dots,
    downwards,
    heat,
    line,
    pin,
    rounded,
    segments,
    through,
)
from lab.explore import COLOURS, PALETTE, Drawn, Panel, computed, layout, panels
from lab.explore.style import DIVERGING
from stringlib import RoPE
from stringlib.algebra.skew import layout_permutation
from stringlib.positions import geometric_frequencies

__all__ = [
    "matrix_powers",
    "one_wave",
    "pair_layouts",
    "phase_clocks",
    "rounded_positions",
    "shifted_scores",
    "split_heads",
]

FARTHEST = 256
COLUMNS = 8  # at most; a phone is narrow
CELL = 2.7  # a dial's radius is 1
TOKENS, DIM = 24, 32  # of the shifted scores
NEAR = 64  # tokens along one wave
APART, LAST = 3, 48  # tokens between query and key, and the last shift, of the powers
ROUNDED = 65  # tokens of a score whose positions are rounded
HEADS, WIDE = 4, 2 * NEAR + 1  # heads that share one rotation, and their shifts in half tokens


def _dials(dim: int) -> tuple[int, float, Tensor]:
    """Return how many dials stand in a row, how far apart rows are, and the centres."""
    pairs = dim // 2
    columns = COLUMNS if pairs > COLUMNS else max(1, pairs // 2)
    # dials in two full rows are small on a phone, and their numbers are not
    pitch = CELL + (1.3 if pairs > COLUMNS else 0.5)
    numbers = torch.arange(pairs, dtype=torch.float64)
    rows = (numbers / columns).floor()
    return columns, pitch, torch.stack([CELL * (numbers - columns * rows), -pitch * rows], -1)


@computed
def _clocks(distance: Tensor, base: Tensor, position: Tensor, dim: int) -> dict[str, Tensor]:
    """Return the hands, the turns between them, and the score of equal unit vectors."""
    theta = base ** (-torch.arange(dim // 2, dtype=torch.float64) / (dim // 2))
    centres = _dials(dim)[2]

    def hands(at: Tensor) -> Tensor:
        return broken(centres, centres + torch.stack([(theta * at).cos(), (theta * at).sin()], -1))

    turns = theta * distance / (2 * math.pi)
    short = torch.where(turns >= 1, (10 * turns).round() / 10, (100 * turns).round() / 100)
    return {
        "query": hands(position),
        "key": hands(position - distance),
        "speeds": theta,
        "turns": torch.where(turns >= 10, turns.round(), short),
        "curve": (torch.arange(FARTHEST + 1)[:, None] * theta).cos().mean(-1),
        "score": (distance * theta).cos().mean(-1),
    }


def phase_clocks(
    distance: float, base: float = 10_000.0, dim: int = 16, position: float = 0.0
) -> Drawn:
    r"""Draw one dial for each pair of channels above the score against distance.

    Pair i turns by :math:`\theta_i = b^{-2i/d}` per token.
    On its dial stand the query, turned by ``position``, and the key, turned by
    ``position - distance``; both start to the right.  Query and key are equal
    before they are turned, so the score is the mean over all dials of the
    cosine between the two hands.

    Args:
        distance: How many tokens the key is behind the query.
        base: The base b of the frequencies.
        dim: Channels d of a head: d/2 dials.
        position: The query's own position, which the score does not see.

    Returns:
        A figure; dials from fastest to slowest, each with the turns between its hands.
    """
    found = _clocks(distance, base, position, dim)
    columns, pitch, dials_at = _dials(dim)
    centres, rows = dials_at.tolist(), -(-(dim // 2) // columns)
    below = 1.9 if dim // 2 > COLUMNS else 1.35
    turns, score = [f"{t:g}" for t in found["turns"]], found["score"]
    half = CELL / 2
    dials = Panel(
        [
            through(
                found["query"],
                PALETTE["orange"],
                "query",
                width=3.5,
                customdata=found["speeds"],
            ),
            through(found["key"], PALETTE["blue"], "key", width=3.5),
            line(
                [x for x, _ in centres],
                [y - below for _, y in centres],
                PALETTE["grey"],
                text=turns,
                mode="text",
            ),
        ],
        "one dial for each pair of channels, fastest first,<br>and the turns between its hands",
        x=axis(low=-half, high=CELL * (columns - 1) + half, visible=False),
        y=axis(low=-pitch * (rows - 1) - below - 0.55, high=1.15, visible=False),
        shapes=[circle(x, y) for x, y in centres],
        square=True,
    )
    scores = Panel(
        [
            line(
                list(range(FARTHEST + 1)),
                found["curve"],
                PALETTE["grey"],
                width=2,
                hover="distance %{x}: score %{y:.3f}",
            ),
            pin(distance, score, PALETTE["blue"]),
        ],
        f"score at distance {distance:g}: {score:.2f}",
        x=axis("distance (tokens)", 0, FARTHEST),
        y=axis(low=-1.05, high=1.1, dtick=0.5),
    )
    fig = panels(
        dials,
        scores,
        heights=(0.48, 0.42),
        down=0.1,
        height=500,
        margin={"l": 44, "r": 14, "t": 46, "b": 76},
    )
    return Drawn(
        fig,
        f"{dim // 2} dials, one for each pair of channels, from the fastest to the slowest. "
        f"Each has a hand for the query at position {position:g} and one for the key "
        f"{distance:g} tokens behind. Between the hands lie {turns[0]} turns on the first dial and "
        f"{turns[-1]} on the last. Below, the score against distance from 0 to {FARTHEST}: "
        f"at {distance:g} it is {score:.2f}.",
    )


@computed
def _shifted(shift: Tensor) -> dict[str, Tensor]:
    """Return the scores over √d of fixed random tokens, rotated and with the table added.

    And by how much each differs at most from those at shift 0.
    """
    generator = torch.Generator().manual_seed(0)
    # with fewer digits, so that the page is smaller
    q, k = torch.randn(2, TOKENS, DIM, generator=generator, dtype=torch.float64).float().double()

    def scores(start: Tensor) -> Tensor:
        positions = torch.arange(TOKENS, dtype=torch.float64)[:, None] + start
        rotated_q, rotated_k = RoPE(DIM)(q[None], k[None], positions)
        angles = positions * geometric_frequencies(DIM // 2)
        table = torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)
        both = torch.stack([rotated_q[0] @ rotated_k[0].mT, (q + table) @ (k + table).mT])
        return both / DIM**0.5

    now, before = scores(shift), scores(0 * shift)
    return {"scores": now, "changes": (now - before).abs().amax((-2, -1))}


def shifted_scores(shift: float) -> Drawn:
    """Draw the scores, over √d, of 24 random tokens whose positions all move by ``shift``.

    Left the positions rotate queries and keys (RoPE), right a sinusoidal table
    is added to them.  The heads print the largest change since shift 0.

    Args:
        shift: What is added to every position, in tokens.

    Returns:
        A figure of two heat-maps with one colour scale.
    """
    found = _shifted(shift)
    scores, changes = found["scores"], found["changes"]
    maps = [
        Panel(
            [heat(now, hover="query %{y}, key %{x}: %{z:.2f}")],
            f"{name}<br>largest change {change:.2f}",
            x=axis("key", dtick=8, **CELLS),
            y=downwards(TOKENS, dtick=8, constraintoward="top"),
            square=True,
        )
        for name, now, change in zip(
            ("rotated (RoPE)", "sinusoid added"), scores, changes, strict=True
        )
    ]
    fig = panels(
        maps,
        across=0.06,
        height=360,
        margin={"l": 40, "r": 10, "t": 48, "b": 92},
        coloraxis=colour_axis(DIVERGING, -4, 4, y=-0.2, title="score"),
    )
    return Drawn(
        fig.update_layout(yaxis_title={"text": "query", "standoff": 4}),
        f"Two heat-maps of the scores between {TOKENS} queries and {TOKENS} keys, "
        f"every position shifted by {shift:g}. "
        f"Left, rotated by RoPE, the largest change since shift 0 is {changes[0]:.2f}; "
        f"right, with the sinusoidal table added, it is {changes[1]:.2f}.",
    )


def pair_layouts(pair: int, dim: int) -> Drawn:
    """Draw where the channels of the interleaved layout stand in the half layout.

    Args:
        pair: The pair that is followed; the last one if there are not so many.
        dim: Channels d of a head.

    Returns:
        A figure of two rows of channels with a line for each.
    """
    pair, order = min(pair, dim // 2 - 1), layout_permutation(dim).tolist()
    ways = [((channel, 1), (place, 0)) for place, channel in enumerate(order)]
    others = [way for way, channel in zip(ways, order, strict=True) if channel // 2 != pair]
    followed = [way for way in ways if way not in others]
    traces = [
        segments(others, PALETTE["grey"], width=1),
        segments(followed, PALETTE["orange"], width=4),
    ]
    for height, row in ((1, list(range(dim))), (0, order)):
        fill = [PALETTE["orange" if channel // 2 == pair else "blue"] for channel in row]
        letters = {"color": "white", "size": 11}
        names = [str(channel) for channel in row]
        traces.append(
            dots(
                list(range(dim)),
                [height] * dim,
                fill,
                size=20,
                symbol="square",
                text=names,
                textfont=letters,
            )
        )
    half = dim // 2
    axes = layout(
        height=200,
        margin={"l": 8, "r": 8, "t": 44, "b": 8},
        title_text=f"channels {2 * pair} and {2 * pair + 1} → places {pair} and {pair + half}",
        xaxis=axis(visible=False),
        yaxis=axis(low=-0.4, high=1.4, visible=False),
    )
    return Drawn(
        go.Figure(traces, axes),
        f"Two rows of {dim} channels. Above, pair {pair} are the neighbours {2 * pair} and "
        f"{2 * pair + 1}. Lines lead to the row below, where they stand in the places {pair} and "
        f"{pair + half}, {half} apart.",
    )


@computed
def _rounded(start: Tensor) -> dict[str, Tensor]:
    """Return the score of equal vectors against distance, exact and rounded, and what is left."""
    places, theta = start + torch.arange(ROUNDED).double(), geometric_frequencies(DIM)
    short = places.bfloat16().double()
    away = torch.stack([places - places[0], short - short[0]])
    return {
        "scores": (away[..., None] * theta).cos().mean(-1),
        "left": 1 + (short[1:] != short[:-1]).double().sum(-1),
    }


def rounded_positions(start: int) -> Drawn:
    """Draw the score of a query with an equal key, 64 channels, when positions are in bfloat16.

    Args:
        start: Position of the query; the keys stand 0 to 64 tokens from it.

    Returns:
        A figure of the score against distance, with exact positions and with rounded ones.
    """
    found = _rounded(start)
    left = found["left"]
    lines = [
        line(list(range(ROUNDED)), score, PALETTE[colour], name, hover="%{x} tokens: %{y:.3f}")
        for score, name, colour in zip(
            found["scores"],
            ("float32 positions", "bfloat16 positions"),
            ("blue", "magenta"),
            strict=True,
        )
    ]
    axes = layout(
        height=380,
        title_text=f"from {start:g}: {left:.0f} of {ROUNDED} left in bfloat16",
        xaxis=axis("distance (tokens)"),
        yaxis=axis("score", 0.2, 1.05),
    )
    return Drawn(
        go.Figure(lines, axes),
        f"Score against distance, query at {start:g}: smooth with positions in float32, and with "
        f"{left:.0f} steps in bfloat16, where {left:.0f} of {ROUNDED} positions are left.",
    )


@computed
def _wave(content: Tensor, distance: Tensor, speed: float) -> dict[str, Tensor]:
    """Return a pair's score at all distances and at one, and the distance where it is highest."""
    apart = torch.arange(NEAR + 1, dtype=torch.float64)
    phase = content.deg2rad()
    turns = phase / (2 * math.pi)
    return {
        "wave": (speed * apart + phase).cos(),
        "here": (speed * distance + phase).cos(),
        "top": (turns.ceil() - turns) * (2 * math.pi / speed),
    }


def one_wave(content: float, distance: float, speed: str) -> Drawn:
    r"""Draw the score of one pair of channels against distance, :eq:`eq-rope-complex`.

    Args:
        content: :math:`\alpha - \beta` in degrees: what query and key contain.
        distance: :math:`\Delta` in tokens: where they stand.
        speed: :math:`\theta` in radians per token.

    Returns:
        A figure of one wave; both vectors have length 1.
    """
    found = _wave(content, distance, float(speed))
    here, top = found["here"], found["top"]
    drawn = [
        line(list(range(NEAR + 1)), found["wave"], COLOURS["rope"], hover="%{x} tokens: %{y:.2f}"),
        pin(distance, here, PALETTE["magenta"]),
    ]
    axes = layout(
        height=320,
        title_text=f"{distance:g} tokens apart: {here:.2f}; highest first at {top:.1f}",
        xaxis=axis("distance Δ (tokens)", 0, NEAR),
        yaxis=axis("score of the pair", -1.1, 1.1, dtick=0.5),
    )
    return Drawn(
        go.Figure(drawn, axes),
        f"The score of one pair against distance, a wave of height 1 at {speed} radians per token. "
        f"What the pair contains, an angle of {content:g} degrees, moves the wave: it is highest "
        f"first at distance {top:.1f}. Where it stands, {distance:g} tokens apart, is a place on "
        f"the wave: {here:.2f}.",
    )


@computed
def _powers(turn: Tensor, squeeze: Tensor, shift: Tensor, inverse: bool) -> dict[str, Tensor]:
    """Return where the powers of a matrix carry (1, 0), and the score against the shift.

    The matrix is a turn whose plane is squeezed along one axis.
    """
    key_height = 1 / squeeze if inverse else squeeze
    around = torch.arange(73, dtype=torch.float64) * (math.pi / 36)
    shifts = torch.arange(LAST + 1, dtype=torch.float64)

    def carried(places: Tensor, height: Tensor) -> Tensor:
        angles = places * turn.deg2rad()
        return torch.stack([angles.cos(), height * angles.sin()])

    def score(start: Tensor) -> Tensor:
        return (carried(start + APART, squeeze) * carried(start, key_height)).sum(0)

    def hand(to: Tensor) -> Tensor:
        return torch.stack([0 * to, to], -1)

    curve = score(shifts)
    return {
        "curve": curve,
        "here": score(shift),
        "ends": torch.stack([curve.amin(), curve.amax()]),
        "query": hand(carried(shift + APART, squeeze)),
        "key": hand(carried(shift, key_height)),
        "queries": torch.stack([around.cos(), squeeze * around.sin()]),
        "keys": torch.stack([around.cos(), key_height * around.sin()]),
    }


def matrix_powers(turn: float, squeeze: float, shift: float, keys: str) -> Drawn:
    r"""Draw two tokens that the powers of one matrix encode, :eq:`eq-telescope`, as both move.

    The matrix is :math:`\Theta = BR(1)B^{-1}` with :math:`B = \mathrm{diag}(1, \text{squeeze})`, so
    the group law holds, and :math:`\Theta` is orthogonal only if the squeeze is 1.

    Args:
        turn: Degrees per token.
        squeeze: Height of the ellipse on which the query moves.
        shift: Position of the key; the query is three tokens further.
        keys: "as queries", or "inverse transpose" for keys that :math:`\Theta^{-\top}` encodes.

    Returns:
        A figure of the plane, and of the score against the shift.
    """
    found = _powers(turn, squeeze, shift, keys == "inverse transpose")
    here, (low, high) = found["here"], found["ends"]
    ends = {"mode": "lines+markers", "marker": {"size": [0, 12], "opacity": 1}}
    plane = Panel(
        [
            through(found["keys"], PALETTE["blue"], width=1),
            through(found["queries"], PALETTE["orange"], width=1),
            through(found["query"], PALETTE["orange"], "query", width=3.5, **ends),
            through(found["key"], PALETTE["blue"], "key", width=3.5, **ends),
        ],
        f"three tokens apart, key at {shift:g}",
        x=axis(low=-1.75, high=1.75, visible=False),
        y=axis(low=-1.75, high=1.75, visible=False),
        square=True,
    )
    scores = Panel(
        [
            line(list(range(LAST + 1)), found["curve"], PALETTE["grey"], width=2,
                 hover="shift %{x}: score %{y:.3f}"),
            pin(shift, here, PALETTE["magenta"]),
        ],
        f"score {here:.2f}, over all shifts {low:.2f} to {high:.2f}",
        x=axis("shift of both (tokens)", 0, LAST),
        y=axis(low=-0.6, high=2.1, dtick=1),
    )  # fmt: skip
    fig = panels(
        plane,
        scores,
        heights=(0.6, 0.3),
        down=0.1,
        height=560,
        margin={"l": 44, "r": 14, "t": 30, "b": 84},
    )
    return Drawn(
        fig,
        f"A query and a key, three tokens apart, on their ellipses. The matrix turns by {turn:g} "
        f"degrees per token, its ellipse has the height {squeeze:g}; keys: {keys}. Below, the "
        f"score against the shift of both: with the key at {shift:g} it is {here:.2f}, over all "
        f"shifts {low:.2f} to {high:.2f}. It is level on a circle, or with the inverse transpose.",
    )


def _heads(start: Tensor, channels: int, order: str) -> Tensor:
    """Return scores of heads that were turned together, and their mean, from some positions on."""
    generator = torch.Generator().manual_seed(170)
    width = HEADS * channels
    # with fewer digits, so that the page is smaller
    q, k = torch.randn(2, width, generator=generator, dtype=torch.float64).float().double()
    encoder = RoPE(width, layout="half" if order == "half" else "interleaved")
    places = start.view(-1, 1)
    turned = encoder.rotate(q.expand(1, len(places), width), places + APART)
    products = turned * encoder.rotate(k.expand(1, len(places), width), places)
    scores = products[0].unflatten(-1, (HEADS, channels)).sum(-1)
    return torch.cat([scores, scores.mean(-1, keepdim=True)], -1).mT


@computed
def _split(shift: Tensor, channels: int, order: str) -> dict[str, Tensor]:
    """Return the scores of the heads and their mean at one shift, and how much they changed."""
    here, there = (_heads(at, channels, order)[:, 0] for at in (shift, torch.zeros(1)))
    changes = (here - there).abs()
    return {"here": here, "most": changes[:HEADS].amax(), "mean": changes[HEADS]}


def split_heads(order: str, channels: str, shift: float) -> Drawn:
    """Draw the scores of four heads that were cut from one wide rotation, as both tokens move.

    Args:
        order: The layout of the pairs in all channels, "interleaved" or "half".
        channels: Channels of each head.
        shift: What is added to both positions, in tokens.

    Returns:
        A figure of a line for each head and one for their mean.
    """
    found = _split(shift, int(channels), str(order))
    halves = torch.arange(WIDE, dtype=torch.float64) / 2
    curves = rounded(_heads(halves, int(channels), str(order)), 4)
    most, mean = found["most"], found["mean"]
    names = [*(f"head {h + 1}" for h in range(HEADS)), "mean of all"]
    colours = [PALETTE[colour] for colour in ("blue", "orange", "teal", "magenta", "grey")]
    looks = dict(zip(names, colours, strict=True))
    traces = at_one_place(rounded(halves, 1), shift, looks, curves, found["here"],
                          "shift %{x}: %{y:.2f}")  # fmt: skip
    traces[2 * HEADS].line.update(dash="dash")
    axes = layout(
        height=380,
        title_text=f"a head changes by {most:.2f}, the mean by {mean:.2f}",
        xaxis=axis("shift of both tokens", 0, NEAR),
        yaxis=axis("score", -4, 7, dtick=2),
    )
    return Drawn(
        go.Figure(traces, axes),
        f"The scores of {HEADS} heads of {channels} channels against the shift of both tokens; all "
        f"channels were turned together, layout {order}, before they were cut apart. Shifted by "
        f"{shift:g}, a head changes by {most:.2f} at most, the mean of all by {mean:.2f}.",
    )
