"""What every claim of a page rests on: which comparisons, among how many, and what they tell.

:mod:`book.claims` holds the words of a page to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from itertools import product

from book import measures
from book.family import Family
from lab.theory.perplexity import perplexity
from results import circulant_training, performer_vision, recall, recall_many, repeats, vision


def percent(bits: float) -> float:
    """Return by how many percent a difference of bits a byte changes the perplexity."""
    return 100 * (perplexity(bits) - 1)


def opened(cells: Iterable[str], **told: Iterable[str]) -> dict[str, str]:
    """Return claims that are all open, but for the cells that are named with what they tell."""
    claims = dict.fromkeys(cells, "open")
    for tells, those in told.items():
        claims |= dict.fromkeys(those, tells.replace("_", ", "))
    return claims


SOFTMAX = "softmax, RoPE"
BITS = partial(Family, unit="bits a byte", less=True)
PERPLEXITY = partial(Family, unit="% of perplexity", less=True, shown=percent)

POOLS = ("none", "learned", "axial", "mixed", "circulant")
WHERE = ("known", "new")
RANKED = vision.ENCODERS[1:]
RIVALS = tuple(name for name in RANKED if name != "axial")
ROTARY = ("mixed", "circulant", "cayley")
WAYS = tuple(name for name in performer_vision.POSITIONS if name != "none")
SHOWN = tuple(
    n for n in WAYS if "axial" not in n and n not in ("circulant turned", "cayley turned")
)
PHI = ("relu", "favor")
POSITIONS = ("learned", "axial", "mixed", "circulant")
BIASED = ("toeplitz", "circulant, toeplitz", "unit", "unit, toeplitz")
SIZES = ((8, (32, 64, 128, 256)), (32, (32, 128)))
DRAWS = tuple(
    f"{pairs} pairs, {norm}, m = {m}"
    for pairs, sizes in SIZES
    for norm, m in product(("free", "unit"), sizes)
)
MAPS = tuple(
    f"{norm}, {name}, 32 pairs"
    for norm, names in recall_many.MAPS.items()
    for name in names
    if (norm, name) != ("free", "relu")
)
ROWS = tuple(product((8, 32), ("free", "unit")))
FORMS = (
    "FAVOR+, RoPE",
    "circulant, SSD",
    "circulant, GLA",
    "gated delta rule",
    "ELU, SSD",
    "ELU, GLA",
)
GATED = ("C-CosGate, RoPE, ramp", "C-CosGate, RoPE", "C-CosGate")
CHANGES = tuple(name for name in circulant_training.CELLS if name != "base")
FEW = "32 pairs, shift, unit, 5,000 sequences"
LONGER = "longer performer favor"
COPIED = tuple(repeats.CELLS)
SHARES = ("0.05", "0.1", "0.25", "0.5", "1")
BEFORE = ("none", "axial before", "mixed before", "circulant before", "toeplitz")
READERS = (
    *("rope", "pi", "ntk", "yarn", "sinusoidal", "rope tuned", "pi tuned"),
    *("alibi", "kerple-log", "kerple-power", "t5", "gla", "none"),
)
FAMILIES = {
    "recall of 32 pairs": Family(
        record="recall_many",
        runs=measures.recalled,
        against="free, relu, 32 pairs",
        claims=dict.fromkeys(MAPS, "behind")
        | {"free, softmax, 32 pairs": "ahead", "unit, softmax, 32 pairs": "ahead"}
        | {"free, elu, 32 pairs": "open", "free, delta, 32 pairs": "open"},
    ),
    "rows of recall": Family(
        record="recall_success, recall_many",
        runs=measures.recalled,
        against={
            f"{norm}, favor-{one}, {pairs} pairs": f"{norm}, {other}, {pairs} pairs"
            for one, other in (("circulant", "favor"), ("learned", "favor-circulant"))
            for pairs, norm in ROWS
        },
        claims=opened(
            (
                f"{norm}, favor-{one}, {pairs} pairs"
                for one in ("circulant", "learned")
                for pairs, norm in ROWS
            ),
            suggestive_ahead=["unit, favor-circulant, 32 pairs"],
        ),
    ),
    "learned rows, asked for 64 pairs": Family(
        record="recall_many",
        runs=measures.recalled,
        against={
            f"{n}, favor-learned, 64 pairs": f"{n}, favor-circulant, 64 pairs"
            for n in ("free", "unit")
        },
        claims=opened(f"{n}, favor-learned, 64 pairs" for n in ("free", "unit")),
    ),
    "seen sequences": Family(
        record="recall",
        runs=lambda: measures.scores("recall", "seen", "test"),
        against={f"{FEW}: {n}, seen": f"{FEW}: {n}, test" for n in recall.SETS[FEW][0]},
        claims={f"{FEW}: {n}, seen": "ahead" for n in recall.SETS[FEW][0]},
    ),
    "recall, rows drawn anew, less fixed ones with a new draw": Family(
        record="recall_redraw",
        runs=measures.drawn_anew,
        against={f"{s}, every 10, new rows": f"{s}, fixed, new rows" for s in DRAWS},
        claims={f"{s}, every 10, new rows": "ahead" for s in DRAWS},
    ),
    "recall, rows drawn anew, less fixed ones with their own": Family(
        record="recall_redraw",
        runs=measures.drawn_anew,
        against={f"{s}, every 10, new rows": f"{s}, fixed, own rows" for s in DRAWS},
        claims=opened(
            (f"{s}, every 10, new rows" for s in DRAWS),
            behind=(f"{DRAWS[i]}, every 10, new rows" for i in (2, 4, 5, 8, 10, 11)),
            suggestive_behind=(f"{DRAWS[i]}, every 10, new rows" for i in (3, 6, 7)),
        ),
    ),
    "recall, learned rows, less fixed ones": Family(
        record="recall_redraw",
        runs=measures.drawn_anew,
        against={f"{s}, learned, own rows": f"{s}, fixed, own rows" for s in DRAWS},
        claims=opened(
            (f"{s}, learned, own rows" for s in DRAWS),
            ahead=["32 pairs, unit, m = 128, learned, own rows"],
            suggestive_ahead=["32 pairs, free, m = 128, learned, own rows"],
        ),
    ),
    "digits, less none": Family(
        record="vision",
        runs=lambda: measures.scores("vision", "test"),
        against="digits none",
        claims=dict.fromkeys((f"digits {n}" for n in RANKED), "ahead"),
    ),
    "digits, less axial": Family(
        record="vision",
        runs=lambda: measures.scores("vision", "test"),
        against="digits axial",
        claims=opened(f"digits {n}" for n in RIVALS),
    ),
    "digits at twice the resolution, interpolated": Family(
        record="vision",
        runs=lambda: measures.scores("vision", "interpolated", "counted"),
        against={f"digits {n}, interpolated": f"digits {n}, counted" for n in RANKED},
        claims={f"digits {n}, interpolated": "ahead" for n in RANKED}
        | {"digits circulant, interpolated": "suggestive, ahead"},
    ),
    "digits at twice the resolution, less axial": Family(
        record="vision",
        runs=lambda: measures.scores("vision", "interpolated"),
        against="digits axial",
        claims=opened((f"digits {n}" for n in RIVALS), suggestive_ahead=["digits learned"]),
    ),
    "lost at new places": Family(
        record="vision",
        runs=lambda: measures.places("vision"),
        against={f"moved {n} at new places": f"moved {n} at known places" for n in vision.ENCODERS},
        claims={f"moved {n} at new places": "suggestive, behind" for n in vision.ENCODERS}
        | {f"moved {n} at new places": "open" for n in ("none", "reflection")}
        | {
            f"moved {n} at new places": "behind"
            for n in ("sinusoidal", "learned", "circulant", "cayley-sparse")
        },
    ),
    "lost at new places, class token": Family(
        record="vision",
        runs=lambda: measures.places("vision"),
        against={f"moved cls {n} at new places": f"moved cls {n} at known places" for n in POOLS},
        claims={f"moved cls {n} at new places": "behind" for n in POOLS}
        | {"moved cls none at new places": "open"},
    ),
    "moved digits": Family(
        record="vision",
        runs=lambda: measures.places("vision"),
        against={
            f"moved {n} at {w} places": f"moved axial at {w} places"
            for n in vision.ENCODERS
            if n not in ("axial", "learned")
            for w in WHERE
        }
        | {f"moved learned at {w} places": f"moved none at {w} places" for w in WHERE}
        | {f"moved axial at {w} places": f"moved learned at {w} places" for w in WHERE},
        claims=opened(
            (f"moved {n} at {w} places" for n in vision.ENCODERS for w in WHERE),
            ahead=(f"moved axial at {w} places" for w in WHERE),
            behind=(
                "moved none at known places",
                *(f"moved {n} at new places" for n in ("sinusoidal", "learned", "circulant")),
                "moved circulant at known places",
            ),
            suggestive_behind=(
                "moved none at new places",
                *(f"moved {n} at known places" for n in ("sinusoidal", "learned")),
            ),
        ),
    ),
    "moved digits, class token": Family(
        record="vision",
        runs=lambda: measures.places("vision"),
        against={
            f"moved cls {n} at {w} places": f"moved cls {o} at {w} places"
            for n, o in (("learned", "none"), ("axial", "learned"))
            for w in WHERE
        },
        claims=opened(
            (f"moved cls {n} at {w} places" for n in ("learned", "axial") for w in WHERE),
            behind=["moved cls learned at new places"],
            suggestive_ahead=["moved cls axial at known places"],
        ),
    ),
    "circulant, less axial, at 1,600 steps": Family(
        record="class_token",
        runs=lambda: measures.places("class_token"),
        against={f"mean: circulant at {w} places": f"mean: axial at {w} places" for w in WHERE},
        claims=opened(f"mean: circulant at {w} places" for w in WHERE),
    ),
    "share of S": Family(
        record="sparse_sweep",
        runs=lambda: measures.places("sparse_sweep"),
        against={f"f = {f} at {w} places": f"f = 0 at {w} places" for f in SHARES for w in WHERE},
        claims=opened(f"f = {f} at {w} places" for f in SHARES for w in WHERE),
    ),
    "a third coordinate": Family(
        record="transfer_3d",
        runs=lambda: measures.scores("transfer_3d", "moved"),
        against={
            f"{e} {one}": f"{e} {other}"
            for e in ROTARY
            for one, other in (("zero", "scratch"), ("drawn", "zero"), ("scratch", "drawn"))
        },
        claims=opened(
            (f"{e} {s}" for e in ROTARY for s in ("zero", "drawn", "scratch")),
            suggestive_ahead=["mixed drawn"],
        ),
    ),
    "a third coordinate, before learning": Family(
        record="transfer_3d",
        runs=measures.before,
        against={f"{e} drawn": f"{e} zero" for e in ROTARY},
        claims=opened((f"{e} drawn" for e in ROTARY), suggestive_behind=["mixed drawn"]),
    ),
    "performers on moved digits": Family(
        record="performer_vision",
        runs=lambda: measures.places("performer_vision"),
        against={
            f"moved {phi}: {way} at {w} places": f"moved {phi}: none at {w} places"
            for phi in PHI
            for way in SHOWN
            for w in WHERE
        },
        claims=opened(
            (f"moved {phi}: {way} at {w} places" for phi in PHI for way in SHOWN for w in WHERE),
            ahead=(f"moved relu: {e} after at known places" for e in ("mixed", "cayley")),
            behind=(
                *(f"moved favor: {e} before at new places" for e in ("mixed", "cayley")),
                *(f"moved favor: mixed turned at {w} places" for w in WHERE),
            ),
            suggestive_ahead=(
                *(f"moved relu: {e} after at new places" for e in ("mixed", "cayley")),
                *(f"moved favor: {e} before at known places" for e in ROTARY),
                "moved relu: mixed before at known places",
                "moved favor: toeplitz, circulant at known places",
            ),
            suggestive_behind=(
                *(f"moved relu: mixed turned at {w} places" for w in WHERE),
                *(f"moved favor: circulant after at {w} places" for w in WHERE),
                "moved relu: cayley before at new places",
            ),
        ),
    ),
    "performers on digits": Family(
        record="performer_vision",
        runs=lambda: measures.scores("performer_vision", "test"),
        against={f"digits {phi}: {way}": f"digits {phi}: none" for phi in PHI for way in WAYS},
        claims={f"digits {phi}: {way}": "ahead" for phi in PHI for way in WAYS}
        | {f"digits {phi}: toeplitz": "suggestive, ahead" for phi in PHI}
        | {f"digits {phi}: {e} turned": "open" for phi in PHI for e in performer_vision.ENCODERS}
        | {"digits relu: axial turned": "behind"}
        | {f"digits favor: {e} turned": "suggestive, behind" for e in ("axial", "circulant")},
    ),
    "unit-circulant rows on moved digits": Family(
        record="performer_vision",
        runs=lambda: measures.places("performer_vision"),
        against={
            f"moved favor-unit-circulant: {way} at {w} places": f"moved favor: {way} at {w} places"
            for way in BEFORE
            for w in WHERE
        },
        claims=opened(
            f"moved favor-unit-circulant: {way} at {w} places" for way in BEFORE for w in WHERE
        ),
    ),
    "a bias after 1,600 steps": Family(
        record="vision",
        runs=lambda: measures.places("vision"),
        against={f"{LONGER}, toeplitz at {w} places": f"{LONGER} at {w} places" for w in WHERE},
        claims={
            f"{LONGER}, toeplitz at known places": "ahead",
            f"{LONGER}, toeplitz at new places": "suggestive, ahead",
        },
    ),
    "MNIST": Family(
        record="mnist",
        runs=lambda: measures.scores("mnist", "test"),
        against={f"{phi}: {n}": f"{phi}: none" for phi in PHI for n in (*POSITIONS, *BIASED)}
        | {f"{phi}: circulant, toeplitz": f"{phi}: circulant" for phi in PHI},
        claims={f"{phi}: {n}": "ahead" for phi in PHI for n in (*POSITIONS, *BIASED)}
        | {f"{phi}: {n}": "open" for phi in PHI for n in ("unit", "circulant, toeplitz")}
        | {"favor: toeplitz": "suggestive, ahead"},
    ),
    "MNIST, less a bias": Family(
        record="mnist",
        runs=lambda: measures.scores("mnist", "test"),
        against={f"{phi}: {n}": f"{phi}: unit, toeplitz" for phi in PHI for n in POSITIONS},
        claims={f"{phi}: {n}": "ahead" for phi in PHI for n in POSITIONS}
        | {f"{phi}: axial": "suggestive, ahead" for phi in PHI}
        | {"favor: circulant": "suggestive, ahead"},
    ),
    "MNIST, less softmax": Family(
        record="mnist",
        runs=lambda: measures.scores("mnist", "test"),
        against={f"{phi}: {n}": f"softmax: {n}" for phi in PHI for n in POSITIONS},
        claims=opened(
            (f"{phi}: {n}" for phi in PHI for n in POSITIONS),
            ahead=["favor: mixed"],
            suggestive_behind=["relu: circulant"],
        ),
    ),
    "claims of the note": PERPLEXITY(
        record="language, language_long",
        runs=measures.claimed,
        against={
            "circulant, RoPE": "FAVOR+, RoPE",
            "learned circulant, RoPE": "circulant, RoPE",
            "circulant, RoPE, cosine": "circulant, RoPE",
            "circulant, RoPE, elementwise gate": "circulant, RoPE",
            "softmax, RoPE, elementwise gate": SOFTMAX,
            "C-CosGate": "softmax",
            "ReLU, cosine": SOFTMAX,
            "ReLU, Toeplitz": SOFTMAX,
        }
        | {f"{name}, 4,000 steps": f"{SOFTMAX}, 4,000 steps" for name in (*GATED, *FORMS)},
        limits={
            name: math.log2(1.05)
            for name in ("circulant, RoPE", "C-CosGate", *(f"{n}, 4,000 steps" for n in GATED))
        }
        | {
            name: math.log2(1.1)
            for name in ("ReLU, cosine", "ReLU, Toeplitz", *(f"{n}, 4,000 steps" for n in FORMS))
        },
        claims=opened(
            ("circulant, RoPE", "circulant, RoPE, elementwise gate"),
            ahead=("C-CosGate", *(f"{name}, 4,000 steps" for name in FORMS)),
            behind=("ReLU, cosine", "C-CosGate, 4,000 steps"),
            suggestive_ahead=(
                *("learned circulant, RoPE", "circulant, RoPE, cosine", "ReLU, Toeplitz"),
                "softmax, RoPE, elementwise gate",
                *(f"{name}, 4,000 steps" for name in GATED[:2]),
            ),
        ),
    ),
    "sight of 64 to 256 bytes": BITS(
        record="language_long",
        runs=measures.sighted,
        against={f"{name}, 256 bytes": f"{name}, 64 bytes" for name in COPIED},
        claims=opened(
            (f"{name}, 256 bytes" for name in COPIED), ahead=["softmax, RoPE, 256 bytes"]
        ),
    ),
    "needles at 1,024 tokens": Family(
        record="extrapolation",
        runs=measures.needles,
        against={"kerple-log": "kerple-power", "kerple-power": "alibi", "alibi": "kerple-log"},
        claims={"kerple-log": "open", "kerple-power": "open", "alibi": "behind"},
    ),
    "changes to a training": Family(
        record="circulant_training",
        runs=lambda: measures.bits("circulant_training", "accuracy"),
        against="base",
        claims=opened(
            CHANGES,
            behind=["rate 0.1"],
            suggestive_ahead=("start normal", "start uniform", "rate 0.01"),
            suggestive_behind=["rate 0.0001"],
        ),
    ),
    "text at 1,000 steps": PERPLEXITY(
        record="language_rates",
        runs=measures.rates,
        against=SOFTMAX,
        claims={
            "softmax, KERPLE": "suggestive, ahead",
            "softmax, T5": "open",
            "half softmax, half circulant, RoPE": "suggestive, behind",
            "FAVOR+, RoPE": "behind",
            "C-CosGate": "behind",
            "C-CosGate, RoPE": "behind",
            "C-CosGate, RoPE, ramp": "behind",
            "circulant, SSD": "open",
            "circulant, GLA": "open",
            "ELU, SSD": "ahead",
            "ELU, GLA": "ahead",
            "gated delta rule": "open",
        },
    ),
    "text at 4,000 steps": PERPLEXITY(
        record="language_long",
        runs=lambda: measures.bits("language_long"),
        against=SOFTMAX,
        claims={
            "softmax, KERPLE": "open",
            "softmax, T5": "open",
            "half softmax, half circulant, RoPE": "open",
            "FAVOR+, RoPE": "suggestive, behind",
            "C-CosGate": "behind",
            "C-CosGate, RoPE": "suggestive, behind",
            "C-CosGate, RoPE, ramp": "suggestive, behind",
            "circulant, SSD": "open",
            "circulant, GLA": "suggestive, ahead",
            "ELU, SSD": "open",
            "ELU, GLA": "open",
            "gated delta rule": "open",
        },
    ),
    "text read in training": BITS(
        record="language_long",
        runs=measures.fit,
        against=SOFTMAX,
        claims={
            "softmax, KERPLE": "open",
            "softmax, T5": "suggestive, ahead",
            "half softmax, half circulant, RoPE": "suggestive, behind",
            "FAVOR+, RoPE": "behind",
            "C-CosGate": "behind",
            "C-CosGate, RoPE": "behind",
            "C-CosGate, RoPE, ramp": "behind",
            "circulant, SSD": "open",
            "circulant, GLA": "open",
            "ELU, SSD": "suggestive, ahead",
            "ELU, GLA": "ahead",
            "gated delta rule": "suggestive, ahead",
        },
    ),
    "second copy": BITS(
        record="repeats",
        runs=measures.second,
        against=SOFTMAX,
        claims={
            "half softmax, half circulant, RoPE": "open",
            "FAVOR+, RoPE": "behind",
            "C-CosGate, RoPE": "behind",
            "circulant, SSD": "behind",
            "ELU, GLA": "behind",
            "gated delta rule": "behind",
        },
    ),
    "rows drawn anew": BITS(
        record="language_redraw",
        runs=measures.redrawn,
        against={
            "every 10, new rows": "fixed, new rows",
            "fixed, own rows": "every 10, new rows",
            "learned, own rows": "fixed, own rows",
        },
        claims={
            "every 10, new rows": "ahead",
            "fixed, own rows": "ahead",
            "learned, own rows": "ahead",
        },
    ),
    "ListOps": Family(
        record="listops",
        runs=lambda: measures.bits("listops", "accuracy"),
        against=SOFTMAX,
        claims={
            "softmax": "open",
            "FAVOR+": "behind",
            "circulant": "suggestive, behind",
            "circulant, RoPE": "open",
            "ReLU": "suggestive, behind",
            "ReLU, cosine": "behind",
            "ELU, GLA": "suggestive, ahead",
            "ELU, SSD": "ahead",
        },
    ),
    "mean, not class token, at 400 steps": Family(
        record="vision",
        runs=lambda: measures.places("vision"),
        against={
            f"moved {n} at {w} places": f"moved cls {n} at {w} places" for n in POOLS for w in WHERE
        },
        claims={f"moved {n} at {w} places": "open" for n in POOLS for w in WHERE}
        | {"moved axial at new places": "ahead", "moved mixed at new places": "suggestive, ahead"},
    ),
    "mean, not class token, at 1,600 steps": Family(
        record="class_token",
        runs=lambda: measures.places("class_token"),
        against={
            f"mean: {n} at {w} places": f"cls: {n} at {w} places" for n in POOLS for w in WHERE
        },
        claims={f"mean: {n} at {w} places": "open" for n in POOLS for w in WHERE}
        | {"mean: mixed at new places": "suggestive, ahead"},
    ),
    "text read on": BITS(
        record="extrapolation",
        runs=measures.reading_on,
        against={f"{n} at 1,024": f"{n} at 64" for n in READERS},
        claims={f"{n} at 1,024": "behind" for n in READERS}
        | {f"{n} at 1,024": "open" for n in ("kerple-log", "kerple-power", "gla")}
        | {"pi tuned at 1,024": "suggestive, ahead", "alibi at 1,024": "suggestive, behind"},
    ),
    "text, against a window": BITS(
        record="extrapolation",
        runs=measures.reading_on,
        against={f"{n}, whole": f"{n}, window" for n in READERS},
        claims={f"{n}, whole": "behind" for n in READERS}
        | {f"{n}, whole": "open" for n in ("kerple-log", "kerple-power", "gla")},
    ),
}
"""Name → comparisons of one record that are looked at together."""
