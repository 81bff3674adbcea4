"""What is claimed about text: in chapters 21 and 22, and about weights and rows in 12 and 13."""

from __future__ import annotations

import math
from functools import partial
from itertools import product

from book import measures
from book.family import Family, opened
from lab.theory.perplexity import perplexity
from results import copy_distance, copy_rates, language_published_rates, language_simplex, repeats


def percent(bits: float) -> float:
    """Return by how many percent a difference of bits per byte changes the perplexity."""
    return 100 * (perplexity(bits) - 1)


SOFTMAX = "softmax, RoPE"
BITS = partial(Family, unit="bits per byte", less=True)
COPIES = partial(BITS, record="copy_distance", runs=measures.copies)
MIXED = f"{{}} {copy_rates.BESIDE}, alone"
AGAINST_SOFTMAX = tuple(
    cell for kind in copy_rates.STATES for cell in (f"{kind}, alone", MIXED.format(kind))
)
"""Each kind of state, alone and beside a head of softmax."""
PERPLEXITY = partial(Family, unit="% of perplexity", less=True, shown=percent)
FORMS = (
    "FAVOR+, RoPE",
    "circulant, SSD",
    "circulant, GLA",
    "gated delta rule",
    "ELU, SSD",
    "ELU, GLA",
)
ONCE = ("FAVOR+, RoPE", "circulant, SSD", "ELU, GLA", "gated delta rule")
"""Linear forms that were trained on the sources too."""
GATED = ("C-CosGate, RoPE, ramp", "C-CosGate, RoPE", "C-CosGate")
COPIED = tuple(repeats.CELLS)
STEEPER = ("ramp", "ramp squared", "falling, degree 3", "falling, degree 4", "RetNet")
SIMPLEX = tuple(f"{n}, m = {m}" for n, m in product(("free", "unit"), language_simplex.SIZES))
READERS = (
    *("rope", "pi", "ntk", "yarn", "sinusoidal", "rope tuned", "pi tuned"),
    *("alibi", "kerple-log", "kerple-power", "t5", "gla", "none"),
)
LATER = ("fox", "local and none", "dropped")
"""Methods of 2025, in chapter 22."""
ON_LONGER = ("retnet", "gla layer", "mamba2", "gated-deltanet", "kda", "fox", "kerple-log")
"""Models of the study of longer texts with published layers, each with its own learning rate."""
FAMILIES = {
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
    "falling weights on text": BITS(
        record="language_falling",
        runs=lambda: measures.bits("language_falling"),
        against="cosine",
        claims=dict.fromkeys(STEEPER, "ahead")
        | {"ramp": "open", "falling, degree 4": "suggestive, ahead"},
    ),
    "more copies on text": BITS(
        record="language_falling",
        runs=lambda: measures.bits("language_falling"),
        against="ramp squared",
        claims=opened(STEEPER[2:]),
    ),
    "rows of a simplex on text": BITS(
        record="language_simplex",
        runs=lambda: measures.bits("language_simplex"),
        against={
            f"{cell}: favor-simplex-circulant": f"{cell}: favor-unit-circulant" for cell in SIMPLEX
        },
        claims=opened(f"{cell}: favor-simplex-circulant" for cell in SIMPLEX),
    ),
    "needles at 1,024 tokens": Family(
        record="extrapolation",
        runs=measures.needles,
        against={"kerple-log": "kerple-power", "kerple-power": "alibi", "alibi": "kerple-log"},
        claims={"kerple-log": "open", "kerple-power": "open", "alibi": "behind"},
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
    "sources at 4,000 steps": PERPLEXITY(
        record="language_sources",
        runs=lambda: measures.bits("language_sources"),
        against=SOFTMAX,
        claims={
            "FAVOR+, RoPE": "behind",
            "C-CosGate, RoPE": "behind",
            "circulant, SSD": "suggestive, behind",
            "ELU, GLA": "ahead",
            "gated delta rule": "open",
        },
    ),
    "limits of the note, on sources": PERPLEXITY(
        record="language_sources",
        runs=lambda: measures.bits("language_sources"),
        against=SOFTMAX,
        limits={"C-CosGate, RoPE": math.log2(1.05), **dict.fromkeys(ONCE, math.log2(1.1))},
        claims=opened(("C-CosGate, RoPE", *ONCE), ahead=ONCE[1:]),
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
    "second copy, less the first": BITS(
        record="repeats",
        runs=measures.second,
        against={name: f"{name}, first copy" for name in COPIED},
        claims=dict.fromkeys(COPIED, "ahead")
        | dict.fromkeys(("circulant, SSD", "ELU, GLA", "gated delta rule"), "behind"),
    ),
    "keys with the byte before": COPIES(
        against={f"{kind}, with the one before": f"{kind}, alone" for kind in copy_rates.KINDS},
        claims={f"{kind}, with the one before": "ahead" for kind in copy_rates.KINDS}
        | {f"{kind}, with the one before": "open" for kind in (SOFTMAX, "gated delta rule")},
    ),
    "a head of softmax": COPIES(
        against={MIXED.format(kind): f"{kind}, alone" for kind in copy_rates.STATES},
        claims={MIXED.format(kind): "ahead" for kind in copy_rates.STATES},
    ),
    "copying, less softmax": COPIES(
        against=dict.fromkeys(AGAINST_SOFTMAX, f"{SOFTMAX}, alone"),
        claims=dict.fromkeys(AGAINST_SOFTMAX, "behind")
        | dict.fromkeys((MIXED.format(kind) for kind in ("SSD", "GLA")), "ahead")
        | opened(MIXED.format(kind) for kind in ("FAVOR+, RoPE", "simplex rows, RoPE")),
    ),
    "heads of a state": COPIES(
        against={f"{name}, {n}": name for name in copy_distance.SIZED for n in copy_distance.HEADS},
        claims=opened(
            (f"{name}, {n}" for name in copy_distance.SIZED for n in copy_distance.HEADS),
            behind=["FAVOR+, RoPE, with the one before, eight heads"],
            suggestive_behind=["SSD, with the one before, eight heads"],
        ),
    ),
    "bytes of the page's models": BITS(
        record="page_text",
        runs=measures.page_text,
        against="gated delta rule",
        claims={
            "softmax, RoPE": "behind",
            "FAVOR+, RoPE": "behind",
            "SSD": "suggestive, behind",
            "GLA": "behind",
        },
    ),
    "published layers": BITS(
        record="language_published, language_rates",
        runs=measures.published,
        against=dict.fromkeys(language_published_rates.MODELS, SOFTMAX),
        claims={
            "RetNet layer": "behind",
            "GLA layer": "open",
            "Mamba-2 layer": "ahead",
            "Gated DeltaNet layer": "suggestive, ahead",
            "KDA layer": "suggestive, ahead",
            "softmax, FoX": "open",
        },
    ),
    "published layers and recurrences": BITS(
        record="language_published, language_rates",
        runs=measures.published,
        against={
            "RetNet layer": "ELU, RetNet",
            "GLA layer": "ELU, GLA",
            "Mamba-2 layer": "ELU, SSD",
            "Gated DeltaNet layer": "gated delta rule",
            "KDA layer": "Gated DeltaNet layer",
        },
        claims={
            "RetNet layer": "ahead",
            "GLA layer": "behind",
            "Mamba-2 layer": "open",
            "Gated DeltaNet layer": "suggestive, ahead",
            "KDA layer": "open",
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
    "text read on": BITS(
        record="extrapolation",
        runs=partial(measures.reading_on, "extrapolation"),
        against={f"{n} at 1,024": f"{n} at 64" for n in READERS},
        claims={f"{n} at 1,024": "behind" for n in READERS}
        | {f"{n} at 1,024": "open" for n in ("kerple-log", "kerple-power", "gla")}
        | {"pi tuned at 1,024": "suggestive, ahead", "alibi at 1,024": "suggestive, behind"},
    ),
    "longer texts, methods of 2025": BITS(
        record=", ".join(measures.LATER),
        runs=partial(measures.reading_on, *measures.LATER),
        against={f"{n} at 1,024": f"{n} at 64" for n in LATER},
        claims=dict.fromkeys((f"{n} at 1,024" for n in LATER), "behind") | {"fox at 1,024": "open"},
    ),
    "against a window, methods of 2025": BITS(
        record=", ".join(measures.LATER),
        runs=partial(measures.reading_on, *measures.LATER),
        against={f"{n}, whole": f"{n}, window" for n in LATER},
        claims=dict.fromkeys((f"{n}, whole" for n in LATER), "behind") | {"fox, whole": "open"},
    ),
    "methods of 2025, less KERPLE": BITS(
        record=f"{', '.join(measures.LATER)}, extrapolation",
        runs=partial(measures.reading_on, *measures.LATER, "extrapolation"),
        against={f"{n} at 1,024": "kerple-log at 1,024" for n in LATER},
        claims={
            "fox at 1,024": "ahead",
            "local and none at 1,024": "open",
            "dropped at 1,024": "behind",
        },
    ),
    "longer texts, published layers": BITS(
        record=measures.ON_LONGER,
        runs=partial(measures.reading_on, measures.ON_LONGER),
        against={f"{n} at 1,024": f"{n} at 64" for n in ON_LONGER},
        claims=opened(f"{n} at 1,024" for n in ON_LONGER)
        | {"retnet at 1,024": "suggestive, behind"},
    ),
    "against a window, published layers": BITS(
        record=measures.ON_LONGER,
        runs=partial(measures.reading_on, measures.ON_LONGER),
        against={f"{n}, whole": f"{n}, window" for n in ON_LONGER},
        claims=opened(f"{n}, whole" for n in ON_LONGER) | {"retnet, whole": "behind"},
    ),
    "published layers, less KERPLE": BITS(
        record=measures.ON_LONGER,
        runs=partial(measures.reading_on, measures.ON_LONGER),
        against={f"{n} at 1,024": "kerple-log at 1,024" for n in ON_LONGER[:-1]},
        claims={
            "retnet at 1,024": "behind",
            "gla layer at 1,024": "behind",
            "mamba2 at 1,024": "ahead",
            "gated-deltanet at 1,024": "ahead",
            "kda at 1,024": "suggestive, ahead",
            "fox at 1,024": "open",
        },
    ),
    "needles of published layers": Family(
        record=measures.ON_LONGER,
        runs=partial(measures.later_needles, measures.ON_LONGER),
        against=dict.fromkeys(ON_LONGER[:-1], "kerple-log"),
        claims=dict.fromkeys(ON_LONGER[:-1], "behind") | {"fox": "open"},
    ),
    "methods of 2025, controls": BITS(
        record=f"{', '.join(measures.LATER)}, extrapolation",
        runs=partial(measures.reading_on, *measures.LATER, "extrapolation"),
        against={"fox at 64": "kerple-log at 64", "fox at 1,024": "kerple-power at 1,024"},
        claims={"fox at 64": "ahead", "fox at 1,024": "open"},
    ),
    "text, against a window": BITS(
        record="extrapolation",
        runs=partial(measures.reading_on, "extrapolation"),
        against={f"{n}, whole": f"{n}, window" for n in READERS},
        claims={f"{n}, whole": "behind" for n in READERS}
        | {f"{n}, whole": "open" for n in ("kerple-log", "kerple-power", "gla")},
    ),
}
