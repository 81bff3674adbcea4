"""What chapter 23 claims of times: quotients, so differences of logarithms."""

from __future__ import annotations

import math
from functools import partial
from itertools import product

from benchmarks.goals import MODES
from book import measures
from book.family import Family
from results import circulant_speed

SIZES = [told["d"] for told in circulant_speed.CELLS.values()]
FFT = {f"FFT, d = {d}": f"matrix, d = {d}" for d in SIZES}
ATTENTION = {  # with a bias → without, at as many tokens, a power of 2 where there is none
    f"{way}, {where}": f"ReLU, N{n}"
    for where, n in (("patches", 256), ("patches 512", 512))
    for way in ("Toeplitz", "Toeplitz, literal FFT")
}
CIRCULANT = tuple(product(("folded", "by FFT"), ("ViT", "long")))
LONG = ("text", "long")
_times = partial(Family, unit="times", less=True, shown=math.exp)
FAMILIES = {
    "a projection by FFT": _times(
        record="circulant_speed",
        runs=measures.projections,
        against=FFT,
        claims=dict.fromkeys(FFT, "ahead")
        | {"FFT, d = 32": "behind", "FFT, d = 64": "suggestive, behind"},
    ),
    "a projection by FFT, half the time": _times(
        record="circulant_speed",
        runs=measures.projections,
        against=FFT,
        claims={f"FFT, d = {d}": "ahead" if d >= 256 else "behind" for d in SIZES},
        limits=dict.fromkeys(FFT, -math.log(2)),
    ),
    "a Toeplitz bias": _times(
        record="bench-attention-cpu",
        runs=lambda: measures.times("attention"),
        against=ATTENTION,
        claims=dict.fromkeys(ATTENTION, "behind"),
        paired=False,  # of two shapes, which no round has both of
    ),
    "a Toeplitz bias in a ViT": _times(
        record="bench-models-cpu",
        runs=lambda: measures.times("models"),
        against="ViT FAVOR+, images",
        claims={"ViT FAVOR+, Toeplitz, images": "behind"},
    ),
    "Circulant-STRING, over learned frequencies": _times(
        record="bench-encoders-cpu",
        runs=lambda: measures.times("encoders"),
        against={f"CirculantSTRING {way}, {at}": f"MixedRoPE, {at}" for way, at in CIRCULANT},
        claims={
            f"CirculantSTRING {way}, {at}": "open" if way == "folded" else "behind"
            for way, at in CIRCULANT
        },
    ),
    "AxialRoPE with its table, over rope-vit": _times(
        record="bench-encoders-cpu",
        runs=lambda: measures.times("encoders", MODES[1], threads=2),
        against={f"AxialRoPE, phases given, {at}": f"rope-vit axial, {at}" for at in LONG},
        claims={f"AxialRoPE, phases given, {at}": "behind" for at in LONG},
    ),
}
