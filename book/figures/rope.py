"""Dials that rotate with the position, powers of a matrix, waves, layouts, and split heads."""

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
from lab.explore import COLOURS, PALETTE, Drawn, Panel, computed, layout, panels, pick
from lab.explore.style import DIVERGING
from stringlib import RoPE
from stringlib.algebra.skew import layout_permutation
from stringlib.kernels.rotation import geometric_frequencies

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
KEYS = {
    "as queries": "by the same matrix as queries",
    "inverse transpose": "by the inverse transpose of the matrix",
}
"""How a sentence says in which way the keys of the powers are encoded."""
APART, LAST = 3, 48  # tokens between query and key, and the last shift, of the powers
ROUNDED = 65  # tokens whose positions are rounded
HEADS, WIDE = 4, 2 * NEAR + 1  # heads that share one rotation, and their shifts in half tokens


def _dials(dim: int) -> tuple[int, float, Tensor]:
    """Return the number of dials in a row, the distance of rows, and the centres."""
    pairs = dim // 2
    columns = COLUMNS if pairs > COLUMNS else max(1, pairs // 2)
    # two full rows of dials are small on a phone, but their numbers are not
    pitch = CELL + (1.3 if pairs > COLUMNS else 0.5)
    numbers = torch.arange(pairs, dtype=torch.float64)
    rows = (numbers / columns).floor()
    return columns, pitch, torch.stack([CELL * (numbers - columns * rows), -pitch * rows], -1)


@computed
def _clocks(distance: Tensor, base: Tensor, position: Tensor, dim: int) -> dict[str, Tensor]:
    """Return the hands, the full turns between them, and the score of equal unit vectors."""
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

    Pair i rotates by :math:`\theta_i = b^{-2i/d}` radians per token.
    Its dial has a hand for the query, rotated in proportion to ``position``, and one for the key,
    rotated in proportion to ``position - distance``; both start to the right.  Query and key are
    equal before they are rotated, so the score is the mean over all dials of the cosine of the
    angle between the two hands.

    Args:
        distance: How many tokens earlier the key is than the query.
        base: The base b of the frequencies.
        dim: Channels d of a head: d/2 dials.
        position: The position of the query, which does not change the score.

    Returns:
        A figure of dials, from fastest to slowest, each with the full turns between its hands.
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
        "one dial for each pair, highest frequency first;<br>"
        "below it, the full turns between its hands",
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
    dials_said = (
        f"The upper panel is a diagram of {dim // 2} dials, one for each pair of channels, from "
        "the highest frequency to the lowest. Each dial"
    )
    apart = (
        "On the dial with the highest frequency, the angle between the two hands is "
        f"{turns[0]} full turns. On the dial with the lowest frequency, this angle is "
        f"{turns[-1]} full turns."
    )
    if dim == 2:
        dials_said = "The upper panel is a diagram of one dial for the only pair. The dial"
        apart = f"The angle between the two hands is {turns[0]} full turns."
    return Drawn(
        fig,
        f"{dials_said} has a hand for the query at position {position:g} and a hand for a key "
        f"whose position is {distance:g} tokens earlier. {apart} The lower panel is a line chart "
        f"of the score against the distance, from 0 to {FARTHEST} tokens. A vertical line with a "
        f"dot marks distance {distance:g}, where the score is {score:.2f}.",
    )


@computed
def _shifted(shift: Tensor) -> dict[str, Tensor]:
    """Return scores divided by √d of fixed random tokens, rotated and with sinusoids added.

    And the largest difference of each of the two from the scores at shift 0.
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
    """Draw the scores, divided by √d, of 24 random tokens whose positions all move by ``shift``.

    On the left queries and keys are rotated by their positions (RoPE), on the right sinusoidal
    vectors are added to them.  The titles give the largest change from the scores at shift 0.

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
            ("rotated (RoPE)", "sinusoids added"), scores, changes, strict=True
        )
    ]
    fig = panels(
        maps,
        across=0.06,
        height=360,
        margin={"l": 40, "r": 10, "t": 48, "b": 92},
        coloraxis=colour_axis(DIVERGING, -4, 4, y=-0.2, title="score / √d"),
    )
    return Drawn(
        fig.update_layout(yaxis_title={"text": "query", "standoff": 4}),
        f"Two heat maps show the scores between {TOKENS} queries, in rows, and {TOKENS} keys, in "
        f"columns, divided by √d, after a shift of every position by {shift:g} tokens. In the "
        "left map, queries and keys are rotated by RoPE, and the largest difference of a score "
        f"from its value at shift 0 is {changes[0]:.2f}. In the right map, sinusoidal vectors are "
        "added to queries and keys, and the largest difference of a score from its value at "
        f"shift 0 is {changes[1]:.2f}.",
    )


def pair_layouts(pair: int, dim: int) -> Drawn:
    """Draw where the channels of the interleaved layout are in the half layout.

    Args:
        pair: The pair to follow; the last pair if there are fewer.
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
        title_text=f"channels {2 * pair} and {2 * pair + 1} → {pair} and {pair + half}",
        xaxis=axis(visible=False),
        yaxis=axis(low=-0.4, high=1.4, visible=False),
    )
    return Drawn(
        go.Figure(traces, axes),
        f"A diagram has two rows of squares for the {dim} channels of a vector, in the "
        "interleaved layout above and in the half layout below. The number in a square is that "
        "of its channel, and a line leads from each channel above to its position below. The "
        f"lines of pair {pair} are thick. Above, this pair consists of the neighbouring channels "
        f"{2 * pair} and {2 * pair + 1}. Below, the two channels of this pair are at positions "
        f"{pair} and {pair + half}, so they are {half} positions apart.",
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
        "rounded": (short != places).double().amax(),
    }


def rounded_positions(start: int) -> Drawn:
    """Draw the score of a query with an equal key, 64 channels, when positions are in bfloat16.

    Args:
        start: Position of the query; the keys are 0 to 64 tokens away from it.

    Returns:
        A figure of the score against distance, with exact and with rounded positions.
    """
    found = _rounded(start)
    left, shape = found["left"], pick(found["rounded"], "the same curve", "a staircase")
    lines = [
        line(list(range(ROUNDED)), score, PALETTE[colour], name, hover="distance %{x}: %{y:.3f}")
        for score, name, colour in zip(
            found["scores"],
            ("float32 positions", "bfloat16 positions"),
            ("blue", "magenta"),
            strict=True,
        )
    ]
    axes = layout(
        height=380,
        title_text=f"bfloat16 distinguishes {left:.0f} of these {ROUNDED} positions",
        xaxis=axis("distance (tokens)"),
        yaxis=axis("score", 0.2, 1.05),
    )
    return Drawn(
        go.Figure(lines, axes),
        f"A line chart shows the score of a query at position {start:g} and a key against the "
        f"distance of the key, from 0 to {ROUNDED - 1} tokens. Before the rotation, query and key "
        "are equal. With positions in float32 the line is a smooth curve. With positions in "
        f"bfloat16 the line is {shape}, because rounding leaves {left:.0f} of {ROUNDED} different "
        "positions.",
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
        content: :math:`\alpha - \beta` in degrees, from the contents of query and key.
        distance: :math:`\Delta` in tokens.
        speed: The frequency :math:`\theta` in radians per token.

    Returns:
        A figure of one wave; both vectors have length 1.
    """
    found = _wave(content, distance, float(speed))
    here, top = found["here"], found["top"]
    drawn = [
        line(
            list(range(NEAR + 1)), found["wave"], COLOURS["rope"], hover="distance %{x}: %{y:.2f}"
        ),
        pin(distance, here, PALETTE["magenta"]),
    ]
    axes = layout(
        height=320,
        title_text=f"at distance {distance:g}: score {here:.2f}; first peak at {top:.1f}",
        xaxis=axis("distance Δ (tokens)", 0, NEAR),
        yaxis=axis("score of the pair", -1.1, 1.1, dtick=0.5),
    )
    return Drawn(
        go.Figure(drawn, axes),
        "A line chart shows the score of one pair of channels against the distance, from 0 to "
        f"{NEAR} tokens. The score is a wave of amplitude 1 with a frequency of {speed} radians "
        f"per token. The content gives the wave a phase of {content:g} degrees, so the first peak "
        f"of the wave is at distance {top:.1f}. A vertical line with a dot marks the chosen "
        f"distance of {distance:g} tokens, at which the score is {here:.2f}.",
    )


@computed
def _powers(turn: Tensor, squeeze: Tensor, shift: Tensor, inverse: bool) -> dict[str, Tensor]:
    """Return where the powers of a matrix carry (1, 0), and the score against the shift.

    The matrix is a rotation of a plane that is squeezed along one axis.
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

    curve, here = ((1e12 * score(at)).round() / 1e12 + 0.0 for at in (shifts, shift))  # no -0.00
    ends = torch.stack([curve.amin(), curve.amax()])
    return {
        "curve": curve,
        "here": here,
        "ends": ends,
        "moves": (ends[1] - ends[0] > 1e-9).double(),
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
        shift: Position of the key; the query is three tokens later.
        keys: "as queries", or "inverse transpose" for keys encoded by :math:`\Theta^{-\top}`.

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
        f"query and key three tokens apart, key at position {shift:g}",
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
        f"score {here:.2f}; range over all shifts {low:.2f} to {high:.2f}",
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
        "The upper panel is a diagram of a query and a key, three tokens apart, which move on "
        f"ellipses. The matrix rotates by {turn:g} degrees per token, and the height of the "
        f"ellipse of the query is {squeeze:g} times its width. Keys are encoded {KEYS[keys]}. The "
        "lower panel is a line chart of the score against the shift of both tokens, from 0 to "
        f"{LAST} tokens. A vertical line with a dot marks the shift of {shift:g} tokens, with the "
        f"key at position {shift:g}, where the score is {here:.2f}. Over all shifts the score "
        f"ranges from {low:.2f} to {high:.2f}, so it "
        f"{pick(found['moves'], 'is constant', 'changes with the shift')}.",
    )


def _heads(start: Tensor, channels: int, order: str) -> Tensor:
    """Return scores of heads that were rotated together, and their mean, at some positions."""
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
    """Draw the scores of four heads that were split after one wide rotation, as both tokens move.

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
    level = (
        "All five lines are horizontal."
        if str(order) == "interleaved" and int(channels) % 2 == 0
        else "Only the line of the mean is horizontal, because the split separates some pairs of "
        "channels."
    )
    axes = layout(
        height=380,
        title_text=f"change: up to {most:.2f} in a head, {mean:.2f} in the mean",
        xaxis=axis("shift of both tokens (positions)", 0, NEAR),
        yaxis=axis("score", -4, 7, dtick=2),
    )
    return Drawn(
        go.Figure(traces, axes),
        f"A line chart shows scores against the shift of both tokens, from 0 to {NEAR} tokens. "
        f"Four solid lines are the scores of {HEADS} heads of {channels} channels, and a dashed "
        f"line is their mean. All channels were rotated together in the {order} layout and then "
        f"split into the heads. {level} Dots mark a shift of {shift:g} tokens, after which the "
        f"largest change of a score is {most:.2f}, and the change of the mean is {mean:.2f}.",
    )
