"""What pages tell of records beside comparisons: the scores themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from book import measures
from book.family import Runs


@dataclass(frozen=True)
class Measure:
    """A score that a study measured in all of its cells.

    Attributes:
        record: The study, or several, with commas between.
        runs: Returns it: cell → one number per seed.
        unit: What stands behind a number.
    """

    record: str
    runs: Callable[[], Runs]
    unit: str = ""


BITS = partial(Measure, unit="bits per byte")
MEASURES = {
    "right, rows drawn anew": Measure("recall_redraw", measures.drawn_anew),
    "right, at the best rate": Measure(
        "recall_success, recall_many, recall_hedgehog", measures.recalled
    ),
    "right, in recall": Measure("recall", partial(measures.scores, "recall", "test")),
    "right, by state": Measure("delta_rule", partial(measures.bits, "delta_rule", "short")),
    "right, own learning rates": Measure("delta_rates, delta_rule", measures.at_own_rates),
    "right, 64 bits": Measure("delta_rule", partial(measures.bits, "delta_rule", "long")),
    "right, after a gap": Measure("lookup", measures.looked_up),
    "right, overwritten keys": Measure(
        "page_recall", partial(measures.scores, "page_recall", "overwritten")
    ),
    "named, digits": Measure(
        "vision", partial(measures.scores, "vision", "test", "moved", "interpolated")
    ),
    "named, by place": Measure("vision", partial(measures.places, "vision")),
    "named, 1,600 steps": Measure("class_token", partial(measures.places, "class_token")),
    "named, large pictures": Measure("resolution", measures.resolution),
    "named, pictures of the larger size alone": Measure("resolution", measures.large_alone),
    "named, volumes": Measure(
        "transfer_3d", partial(measures.scores, "transfer_3d", "test", "moved")
    ),
    "named, volumes before learning": Measure("transfer_3d", measures.before),
    "named, performers": Measure("performer_vision", partial(measures.places, "performer_vision")),
    "named, MNIST": Measure("mnist", partial(measures.scores, "mnist", "test")),
    "bits": BITS("language", partial(measures.bits, "language")),
    "bits, at the best rate": BITS("language_rates", measures.rates),
    "bits, 4,000 steps": BITS("language_long", partial(measures.bits, "language_long")),
    "bits, training": BITS("language_long", measures.fit),
    "bits, 16 bytes to 64": BITS("language_long", measures.gained),
    "bits, of a copy": BITS("repeats", measures.second),
    "bits, of pieces of any length": BITS("copy_distance", measures.copied),
    "published bits": BITS("language_published, language_rates", measures.published),
    "right, ListOps": Measure("listops", partial(measures.bits, "listops", "accuracy")),
    "right, an operator": Measure("listops", measures.operators),
    "needles found": Measure("extrapolation", measures.needles),
    "needles found, methods of 2025": Measure(
        ", ".join(measures.LATER), partial(measures.later_needles, *measures.LATER)
    ),
    "needles found, published layers": Measure(
        measures.ON_LONGER, partial(measures.later_needles, measures.ON_LONGER)
    ),
    "error, squared": Measure("circulant_favor", measures.squared, "of independent rows'"),
    "error of the weights": Measure("circulant_favor", measures.short),
}
"""Name → what was measured."""
