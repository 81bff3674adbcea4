"""What chapter 20 claims, and the page on training."""

from __future__ import annotations

from functools import partial
from itertools import product

from book import measures
from book.family import Family, opened
from results import (
    circulant_training,
    class_token,
    page_digits,
    performer_vision,
    vision,
    vision_simplex,
)

POOLS = ("none", "learned", "axial", "mixed", "circulant")
WHERE = ("known", "new")
RANKED = vision.ENCODERS[1:]
RIVALS = tuple(name for name in RANKED if name != "axial")
ROTARY = ("mixed", "circulant", "cayley")
LATE = {"learned": "none", "axial": "learned", "mixed": "axial", "circulant": "axial"}
"""What is compared after 1,600 steps, with what."""
WAYS = tuple(name for name in performer_vision.POSITIONS if name != "none")
TURNED = tuple(product(performer_vision.ENCODERS, WHERE))
PHI = ("relu", "favor")
POSITIONS = ("learned", "axial", "mixed", "circulant")
BIASED = ("toeplitz", "circulant, toeplitz", "unit", "unit, toeplitz")
CHANGES = tuple(name for name in circulant_training.CELLS if name != "base")
LONGER = "longer performer favor"
SHARES = ("0.05", "0.1", "0.25", "0.5", "1")
SIZED = ("sinusoidal", "axial RoPE", "RoPE-Mixed", "Circulant-STRING")
WHEN = ("at once", "then")
PANELS = (
    *("digits none", "digits learned"),
    *(f"moved {n}{where}" for n in ("none", "learned") for where in ("", " at new places")),
)
TUNED = partial(Family, record="transfer", runs=measures.tuned)
SIMPLEX = "favor-simplex-circulant"
CANCELLING = tuple(name for name in vision_simplex.CELLS if name.endswith(SIMPLEX))
BEFORE = ("none", "axial before", "mixed before", "circulant before", "toeplitz")
FAMILIES = {
    "lost outside the square": Family(
        record="page_digits",
        runs=measures.outside,
        against={n: f"{n}, inside" for n in page_digits.CELLS},
        claims=opened(
            page_digits.CELLS,
            behind=("learned table", "Circulant-STRING", "FAVOR+, axial RoPE"),
            suggestive_behind=["ReLU, Circulant-STRING"],
        ),
    ),
    "outside the square, less the bag": Family(
        record="page_digits",
        runs=measures.outside,
        against="no position",
        claims={
            "learned table": "behind",
            "axial RoPE": "suggestive, ahead",
            "Circulant-STRING": "ahead",
            "ReLU, Circulant-STRING": "open",
            "FAVOR+, axial RoPE": "suggestive, behind",
        },
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
        claims={f"digits {n}, interpolated": "ahead" for n in RANKED},
    ),
    "digits at twice the resolution, less axial": Family(
        record="vision",
        runs=lambda: measures.scores("vision", "interpolated"),
        against="digits axial",
        claims=opened((f"digits {n}" for n in RIVALS), suggestive_ahead=["digits learned"]),
    ),
    "rows of a simplex on digits": Family(
        record="vision_simplex",
        runs=lambda: measures.scores("vision_simplex", "test"),
        against={name: name.replace(SIMPLEX, "favor-unit-circulant") for name in CANCELLING},
        claims=opened(
            CANCELLING,
            suggestive_ahead=[f"moved, toeplitz, unit, m = 128: {SIMPLEX}"],
        ),
    ),
    "large pictures, less a learned table": Family(
        record="resolution",
        runs=measures.resolution,
        against={
            f"{n}, {when}, picture": f"learned table, {when}, picture"
            for n in SIZED
            for when in WHEN
        },
        claims=opened(f"{n}, then, picture" for n in SIZED)
        | {f"{n}, at once, picture": "ahead" for n in SIZED},
    ),
    "large pictures, less a sine table": Family(
        record="resolution",
        runs=measures.resolution,
        against={
            f"{n}, {when}, picture": f"sinusoidal, {when}, picture"
            for n in SIZED[1:]
            for when in WHEN
        },
        claims=opened(
            (f"{n}, {when}, picture" for n in SIZED[1:] for when in WHEN),
            suggestive_ahead=["Circulant-STRING, at once, picture"],
            suggestive_behind=["Circulant-STRING, then, picture"],
        ),
    ),
    "large pictures, patches counted": Family(
        record="resolution",
        runs=measures.resolution,
        against={f"{n}, {w}, counted": f"{n}, {w}, picture" for n in SIZED for w in WHEN},
        claims={f"{n}, {w}, counted": "behind" for n in SIZED for w in WHEN}
        | {"RoPE-Mixed, then, counted": "suggestive, behind"},
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
            ),
            suggestive_behind=(
                "moved none at new places",
                *(f"moved {n} at known places" for n in ("sinusoidal", "learned", "circulant")),
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
    "encoders at 1,600 steps": Family(
        record="class_token",
        runs=lambda: measures.places("class_token"),
        against={
            f"{pool}: {n} at {w} places": f"{pool}: {o} at {w} places"
            for n, o in LATE.items()
            for pool in class_token.POOLS
            for w in WHERE
        },
        claims=opened(
            (f"{p}: {n} at {w} places" for n in LATE for p in class_token.POOLS for w in WHERE),
            ahead=(
                *(f"{p}: axial at {w} places" for p in class_token.POOLS for w in WHERE),
                *(f"{p}: learned at known places" for p in class_token.POOLS),
            ),
            behind=(
                *(f"{p}: learned at new places" for p in class_token.POOLS),
                "mean: circulant at known places",
            ),
            suggestive_behind=(
                "cls: circulant at known places",
                "mean: circulant at new places",
            ),
        ),
        looks=2,
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
            for way in WAYS
            for w in WHERE
        },
        claims=opened(
            (f"moved {phi}: {way} at {w} places" for phi in PHI for way in WAYS for w in WHERE),
            ahead=(f"moved relu: {e} after at known places" for e in ("mixed", "cayley")),
            behind=(
                *(f"moved favor: {e} before at new places" for e in ("mixed", "cayley")),
                *(f"moved favor: {e} turned at new places" for e in ROTARY),
                "moved favor: circulant turned at known places",
            ),
            suggestive_ahead=(
                *(f"moved relu: {e} after at new places" for e in ("mixed", "cayley")),
                *(f"moved favor: {e} before at known places" for e in performer_vision.ENCODERS),
                *(f"moved relu: {way} at known places" for way in ("axial after", "mixed before")),
                "moved favor: toeplitz, circulant at known places",
            ),
            suggestive_behind=(
                *(f"moved relu: {e} turned at {w} places" for e, w in TURNED),
                *(f"moved favor: axial turned at {w} places" for w in WHERE),
                *(f"moved favor: {e} turned at known places" for e in ("mixed", "cayley")),
                *(f"moved favor: circulant after at {w} places" for w in WHERE),
                "moved favor: axial before at new places",
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
        | {"favor: toeplitz": "open"},
    ),
    "MNIST, less a bias": Family(
        record="mnist",
        runs=lambda: measures.scores("mnist", "test"),
        against={f"{phi}: {n}": f"{phi}: unit, toeplitz" for phi in PHI for n in POSITIONS},
        claims={f"{phi}: {n}": "ahead" for phi in PHI for n in POSITIONS}
        | {f"{phi}: circulant": "suggestive, ahead" for phi in PHI},
    ),
    "MNIST, less softmax": Family(
        record="mnist",
        runs=lambda: measures.scores("mnist", "test"),
        against={f"{phi}: {n}": f"softmax: {n}" for phi in PHI for n in POSITIONS},
        claims=opened(
            (f"{phi}: {n}" for phi in PHI for n in POSITIONS),
            ahead=["favor: mixed"],
        ),
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
        | {f"mean: {n} at new places": "ahead" for n in ("axial", "mixed")}
        | {"mean: circulant at new places": "suggestive, ahead"}
        | {"mean: learned at known places": "suggestive, ahead"},
        looks=2,
    ),
    "training on, STRING from zero": TUNED(
        against={f"{at}: zero": f"{at}: without" for at in PANELS},
        claims=opened(
            (f"{at}: zero" for at in PANELS),
            ahead=("digits none: zero", "moved learned: zero"),
            suggestive_ahead=["moved none: zero"],
        ),
    ),
    "training on, STRING from noise": TUNED(
        against={f"{at}: noise": f"{at}: zero" for at in PANELS},
        claims=opened(f"{at}: noise" for at in PANELS),
    ),
    "training on, a lower rate": TUNED(
        against={f"{at}: zero, 1e-4": f"{at}: zero" for at in PANELS},
        claims=opened(
            (f"{at}: zero, 1e-4" for at in PANELS),
            behind=["moved learned: zero, 1e-4"],
            suggestive_behind=["moved none: zero, 1e-4"],
        ),
    ),
    "training on, a lower rate from noise": TUNED(
        against={f"{at}: noise, 1e-4": f"{at}: zero, 1e-4" for at in PANELS},
        claims=opened((f"{at}: noise, 1e-4" for at in PANELS), ahead=["moved none: noise, 1e-4"]),
    ),
}
