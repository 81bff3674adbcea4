"""What chapters 18 and 19 claim."""

from __future__ import annotations

from functools import partial
from itertools import product

from book import measures
from book.family import Family, opened
from results import delta_rule, delta_start, lookup, recall, recall_many, recall_simplex

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
SIMPLEX = tuple(f"{norm}, m = {m}" for norm, m in product(("free", "unit"), recall_simplex.SIZES))
DRAWN = tuple(product(DRAWS, ("own rows", "new rows")))
REDRAWN = partial(Family, record="recall_redraw", runs=measures.drawn_anew)
FEW = "32 pairs, shift, unit, 5,000 sequences"
ELSEWHERE = {
    name: name.replace(f"from {start}", "from 1")
    for name in delta_start.CELLS
    for start in delta_start.STARTS
    if start != "1" and f"from {start}," in name
}
PLAINER = {"kda": "gated-delta", "angles": "linear"}
"""State → that without decays of features, or without angles."""
STATES = tuple(product(delta_rule.KEYS, delta_rule.STATES))
OTHERS = tuple(f"{task}, {state}" for task, state in STATES if state not in ("delta", *PLAINER))
RICHER = {f"{task}, {one}": f"{task}, {PLAINER[one]}" for task, one in STATES if one in PLAINER}
HEDGEHOG = {
    "ReLU": ("free, relu", "behind"),
    "softmax": ("free, softmax", "behind"),
    "random features": ("unit, favor-circulant", "ahead"),
}
"""What Hedgehog is compared with → its cell, and what the comparison tells."""
FAMILIES = {
    "states, less the delta rule": Family(
        record="delta_rule",
        runs=lambda: measures.bits("delta_rule", "short"),
        against={name: f"{name.partition(', ')[0]}, delta" for name in OTHERS},
        claims=opened(
            OTHERS,
            behind=("rewritten, linear", "crowded, linear"),
            suggestive_behind=("rewritten, ssd", "crowded, ssd", "crowded, gla"),
        ),
    ),
    "decays of features, and angles": Family(
        record="delta_rule",
        runs=lambda: measures.bits("delta_rule", "short"),
        against=RICHER,
        claims=opened(RICHER, ahead=["rewritten, angles"]),
    ),
    "decays of features, own learning rates": Family(
        record="delta_rates, delta_rule",
        runs=measures.at_own_rates,
        against={f"{task}, kda": f"{task}, gated-delta" for task in ("rewritten", "crowded")},
        claims={"rewritten, kda": "open", "crowded, kda": "open"},
    ),
    "where rates begin": Family(
        record="delta_start",
        runs=lambda: measures.bits("delta_start", "short"),
        against=ELSEWHERE,
        claims=opened(ELSEWHERE),
    ),
    "recall of 32 pairs": Family(
        record="recall_many",
        runs=measures.recalled,
        against="free, relu, 32 pairs",
        claims=dict.fromkeys(MAPS, "behind")
        | {"free, softmax, 32 pairs": "ahead", "unit, softmax, 32 pairs": "ahead"}
        | {"free, elu, 32 pairs": "open", "free, delta, 32 pairs": "open"},
    ),
    **{
        f"Hedgehog on 32 pairs, less {other}": Family(
            record="recall_hedgehog, recall_many",
            runs=measures.recalled,
            against=f"{cell}, 32 pairs",
            claims={"free, hedgehog, 32 pairs": claim},
            looks=len(HEDGEHOG),
        )
        for other, (cell, claim) in HEDGEHOG.items()
    },
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
    "rows of a simplex": Family(
        record="recall_simplex",
        runs=lambda: measures.scores("recall_simplex", "test"),
        against={
            f"{cell}: favor-simplex-circulant": f"{cell}: favor-unit-circulant" for cell in SIMPLEX
        },
        claims=opened(f"{cell}: favor-simplex-circulant" for cell in SIMPLEX),
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
    "lookup, 2,048 tokens less 64": Family(
        record="lookup",
        runs=measures.looked_up,
        against={f"{name}, 2048": f"{name}, 64" for name in lookup.METHODS},
        claims=opened(
            (f"{name}, 2048" for name in lookup.METHODS),
            suggestive_behind=("FAVOR+, m = 32, 2048", "delta rule, four heads, 2048"),
        ),
    ),
    "lookup at 2,048 tokens, less softmax": Family(
        record="lookup",
        runs=measures.looked_up,
        against="softmax, 2048",
        claims=opened(
            (f"{name}, 2048" for name in lookup.METHODS if name != "softmax"),
            behind=(
                "window, 2048",
                *(f"ELU{heads}, 2048" for heads in ("", ", four heads", ", eight heads")),
                "FAVOR+, m = 32, 2048",
                "delta rule, four heads, 2048",
                "gated delta rule, four heads, 2048",
            ),
            suggestive_behind=(
                "SSD, 2048",
                "GLA, 2048",
                "delta rule, 2048",
                "delta rule, eight heads, 2048",
                "half window, half gated delta rule, 2048",
            ),
        ),
    ),
    "recall, rows drawn anew, less fixed ones with a new draw": REDRAWN(
        against={f"{s}, every 10, new rows": f"{s}, fixed, new rows" for s in DRAWS},
        claims={f"{s}, every 10, new rows": "ahead" for s in DRAWS},
    ),
    "recall, rows drawn anew, less fixed ones with their own": REDRAWN(
        against={f"{s}, every 10, new rows": f"{s}, fixed, own rows" for s in DRAWS},
        claims=opened(
            (f"{s}, every 10, new rows" for s in DRAWS),
            behind=(f"{DRAWS[i]}, every 10, new rows" for i in (2, 4, 5, 8, 10, 11)),
            suggestive_behind=(f"{DRAWS[i]}, every 10, new rows" for i in (3, 6, 7)),
        ),
    ),
    "recall, rows drawn every 50 steps": REDRAWN(
        against={f"{s}, every 50, {r}": f"{s}, every 10, {r}" for s, r in DRAWN},
        claims=opened(
            (f"{s}, every 50, {r}" for s, r in DRAWN),
            behind=[f"{DRAWS[8]}, every 50, new rows"],
            suggestive_behind=(
                *(f"{DRAWS[i]}, every 50, own rows" for i in (1, 3, 5)),
                f"{DRAWS[9]}, every 50, new rows",
            ),
        ),
    ),
    "recall, rows drawn every 200 steps": REDRAWN(
        against={f"{s}, every 200, {r}": f"{s}, every 10, {r}" for s, r in DRAWN},
        claims={f"{s}, every 200, {r}": "behind" for s, r in DRAWN}
        | {f"{DRAWS[i]}, every 200, own rows": "suggestive, behind" for i in (2, 10)}
        | {f"{DRAWS[i]}, every 200, new rows": "suggestive, behind" for i in (1, 2, 5, 10)}
        | {f"{DRAWS[4]}, every 200, own rows": "open"},
    ),
    "recall, learned rows, less fixed ones": REDRAWN(
        against={f"{s}, learned, own rows": f"{s}, fixed, own rows" for s in DRAWS},
        claims=opened(
            (f"{s}, learned, own rows" for s in DRAWS),
            ahead=["32 pairs, unit, m = 128, learned, own rows"],
            suggestive_ahead=["32 pairs, free, m = 128, learned, own rows"],
        ),
    ),
}
