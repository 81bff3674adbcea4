"""The numbers in the text of the front page and of the page that chooses a method."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from book import exchanged, measures, recorded
from book.methods import WIDE
from book.recorded import about, texts
from lab.theory.capacity import guess_accuracy
from lab.theory.cost import cache_numbers, state_numbers
from lab.theory.spread import mean
from stringlib.encoders.registry import ENCODERS
from stringlib.models.blocks import ABSOLUTE


def span(values: dict[str, list[float]], names: list[str]) -> str:
    """Return the least and the largest mean of some cells as text."""
    means = [f"{mean(values[name]):.2f}" for name in names]
    return " to ".join(dict.fromkeys((min(means), max(means))))


def facts() -> dict[str, Any]:
    """Return name → number as text, or a dictionary of such."""
    vision, longer, bits = recorded.vision(), recorded.longer(), recorded.language()
    recall, lookups = recorded.recall(), recorded.data("lookup")["cells"]
    drawn = {k: recorded.recall("unit", k)["favor-circulant"] for k in ("test", "redrawn")}
    encoders, attentions = recorded.encoder_times(), recorded.attention_times()
    other, opposite = vision["other"], vision["moved"]
    # the record knows who took part: a name that was registered since did not
    digits = vision["test"]
    names = [f"digits {name}" for name in (*ABSOLUTE, *ENCODERS) if f"digits {name}" in digits]
    rotary = [f"volumes {name}" for name in ENCODERS if f"volumes {name}" in opposite]
    fft = recorded.fft()
    cache, state = cache_numbers(1, WIDE, WIDE), state_numbers(WIDE, WIDE)
    performers = recorded.measured("performer_vision", recorded.at_places(False))
    mnist = recorded.measured("mnist", recorded.score("test"))
    random = [name for name in recall if name.startswith("favor")]
    return {
        "released": exchanged.facts(),
        "bits": texts(bits),
        "long_text": texts(recorded.measured("language_long", itemgetter("bits"))),
        "sources": texts(recorded.measured("language_sources", itemgetter("bits"))),
        "second": texts(recorded.measured("repeats", lambda run: run["bits"]["second"])),
        "digits_span": span(vision["test"], names),
        "sizes": texts(measures.resolution()),
        "known": texts(vision["same"]),
        "other": texts(other),
        "performers": texts(performers),
        "mnist": texts(mnist),
        "volumes": texts(vision["test"]),
        "opposite": texts(opposite),
        "volumes_span": span(vision["test"], rotary),
        "opposite_span": span(opposite, rotary),
        "longer": texts(longer["text"]),
        "needles": texts(longer["needles"]),
        "recall": texts(recall),
        "recall_random": span(recall, random),
        "looked_up": texts(measures.looked_up()),
        "kept": {
            name: f"{cell['runs'][0]['bytes']['2048']:,}"
            for name, cell in ((c.rpartition(", rate ")[0], x) for c, x in lookups.items())
        },
        "replaced": texts(recorded.replaced()),
        "redrawn": about(drawn["redrawn"]),
        "kept_drawn": about(drawn["test"]),
        "guess": f"{float(guess_accuracy(8, 8)):.3f}",
        "training": {name: f"{value:.1f}" for name, value in encoders["training"].items()},
        "layer": {name: f"{value:.2f}" for name, value in encoders["layer"].items()},
        "inference": {name: f"{value:.1f}" for name, value in encoders["inference"].items()},
        "start": {name: f"{value:,.0f}" for name, value in attentions["from"].items()},
        "share": {name: f"{100 * value:.1f} %" for name, value in attentions["share"].items()},
        "halfway": {name: f"{steps:.0f}" for name, steps in recorded.halfway().items()},
        "fft_projection": f"{fft['projection']:.1f}",
        "fft_toeplitz": f"{fft['toeplitz']:,.0f}",
        "cache": f"{cache:,}",
        "state": f"{state:,}",
        "even": f"{state // cache + 1}",
    }
