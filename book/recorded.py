"""What the records say of each method, as the text of a table's cell or of a sentence.

A mean has half its 95 % interval behind ±, of Student's t over seeds. A method without runs has no
entry: nothing here is made up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.goals import MODES
from benchmarks.models import LAYERS
from benchmarks.recorded import blocks, ladder, records
from benchmarks.scaling import crossover
from book.names import display
from lab.records import gather, read_record
from lab.theory.spread import interval, mean

RESULTS = Path(__file__).resolve().parents[1] / "results"
LONGEST = 16384  # tokens at which times are compared
KNOWN = range(3)  # rows and columns of the canvas at which a digit stood in training
LADDERS = {  # of the benchmark: name → part, contestant, what it replaces
    "relu": ("attention", "ReLU", "SDPA"),
    "elu": ("attention", "ELU", "SDPA"),
    "favor": ("attention", "FAVOR+ attention", "SDPA"),
    "cosine": ("attention", "cosine", "SDPA"),
    "retnet": ("states", "RetNet", "SDPA causal"),
    "ssd": ("states", "SSD", "SDPA causal"),
    "gla": ("states", "GLA", "SDPA causal"),
}
ENCODERS = {  # of the benchmark: name → contestant
    "rope": "RoPE",
    "axial": "AxialRoPE",
    "mixed": "MixedRoPE",
    "reflection": "ReflectionSTRING",
    "circulant": "CirculantSTRING",
    "cayley": "CayleySTRING",
}


def data(study: str) -> dict[str, Any]:
    """Return what a study has recorded."""
    found: dict[str, Any] = read_record(RESULTS / f"{study}.json")["data"]
    return found


def measured(study: str, measure: Callable[[Any], float]) -> dict[str, list[float]]:
    """Return cell → one number per seed, of the cells that have the measure."""
    found = {}
    for name, cell in data(study)["cells"].items():
        try:
            found[name] = [measure(run) for run in cell["runs"]]
        except KeyError:  # another task
            continue
    return found


def about(values: Sequence[float], digits: int = 2, sign: str = "") -> str:
    """Return mean and half the interval as text.

    Args:
        values: One number per seed.
        digits: Digits behind the point.
        sign: ``"+"`` for a change, which shows that it rises.
    """
    middle = mean(values)
    half = interval(values)[1] - middle
    # seeds that agree in all digits shown need no ± 0.00
    spread = f"\u00a0±\u00a0{half:.{digits}f}" if round(half, digits) else ""
    return f"{middle:{sign}.{digits}f}{spread}".replace("-", "−")


def texts(values: Mapping[str, Sequence[float]], digits: int = 2, sign: str = "") -> dict[str, str]:
    """Return cell → mean and half the interval."""
    return {name: about(row, digits, sign) for name, row in values.items()}


def at_places(known: bool) -> Callable[[Any], float]:
    """Return the measure of accuracy over the canvas: at the places of training, or at others."""

    def measure(run: Any) -> float:
        cells = [
            (i in KNOWN and j in KNOWN, right)
            for i, row in enumerate(run["places"])
            for j, right in enumerate(row)
        ]
        return mean([right for trained, right in cells if trained is known])

    return measure


def score(name: str) -> Callable[[Any], float]:
    """Return the measure of a score."""
    return lambda run: float(run["scores"][name])


def vision() -> dict[str, dict[str, list[float]]]:
    """Return the measures of chapter 20: name → cell → one number per seed."""
    measures = {name: score(name) for name in ("test", "moved", "counted", "interpolated")}
    measures |= {"same": at_places(True), "other": at_places(False)}
    return {name: measured("vision", measure) for name, measure in measures.items()}


def longer() -> dict[str, dict[str, list[float]]]:
    """Return the measures of chapter 22: name → method → one number per seed.

    ``"trained"`` has the bits per byte at the trained length, ``"text"`` what sixteen times that
    adds to them, ``"needles"`` the share found there.
    """
    found: dict[str, dict[str, list[float]]] = {"trained": {}, "text": {}, "needles": {}}
    for cell in data("extrapolation")["cells"].values():
        for method in cell["runs"][0]["read"]:
            rows = [run["read"][method] for run in cell["runs"]]
            if cell["told"]["task"] == "text":
                found["trained"][method] = [row["lengths"][0] for row in rows]
                found["text"][method] = [r["lengths"][-1] - r["lengths"][0] for r in rows]
            else:
                found["needles"][method] = [row["lengths"][-1] for row in rows]
    return found


def language() -> dict[str, list[float]]:
    """Return the bits per byte of chapter 21: cell → one number per seed."""
    return measured("language", lambda run: float(run["bits"]))


def beside(name: str) -> tuple[str, list[float]] | None:
    """Return what a method ran with in chapter 21, and its bits per byte; None if it did not.

    A feature map, and softmax, with RoPE and nothing else; a weight with a fixed feature map.
    """
    cells, bits = data("language")["cells"], language()
    for cell, found in cells.items():
        told = found["told"]
        attention = told.get("attention", "softmax")
        if set(told) <= {"attention", "encoder"} and "encoder" in told and attention == name:
            return "RoPE", bits[cell]
        if told.get("weight") == name and attention in ("relu", "elu") and "gate" not in told:
            return display(attention), bits[cell]
    return None


def recall(norm: str = "free", kind: str = "test") -> dict[str, list[float]]:
    """Return the accuracy of chapter 19 on 32 pairs: feature map → one number per seed.

    Each map at its best rate.

    Args:
        norm: Whether queries and keys have a ``"unit"`` length or are ``"free"``.
        kind: ``"test"``, or ``"redrawn"`` for other random rows.
    """
    right, asked = (
        measured("recall_many", score(k)) | measured("recall_hedgehog", score(k))
        for k in ("test", kind)
    )
    best: dict[str, str] = {}
    for cell in right:
        length, name, _ = cell.split(", ")
        if length == norm and mean(right[cell]) > mean(right.get(best.get(name, ""), [-1.0])):
            best[name] = cell
    return {name: asked[cell] for name, cell in best.items() if cell in asked}


def replaced() -> dict[str, list[float]]:
    """Return the accuracy of chapter 18 on rewritten keys: state → one number per seed."""
    where = "rewritten, "
    found = measured("delta_rule", lambda run: float(run["short"]))
    return {n.removeprefix(where): row for n, row in found.items() if n.startswith(where)}


def _ratio(ms: dict[str, list[float]], one: str, other: str) -> float:
    """Return how many times as long one contestant takes, the median over rounds."""
    return median(a / b for a, b in zip(ms[one], ms[other], strict=True))


def encoder_times() -> dict[str, dict[str, float]]:
    """Return the times of chapter 23 over RoPE's, for the patches of a ViT.

    ``"training"`` is forward and backward, ``"inference"`` forward, folded where that helps; and
    ``"layer"`` a whole layer, forward and backward, over one with axial RoPE.
    """
    cpu = records("encoders")["cpu"]
    forward, train = (blocks(cpu, mode)["ViT"]["times_ms"] for mode in MODES)
    found: dict[str, dict[str, float]] = {"training": {}, "inference": {}}
    for name, contestant in ENCODERS.items():
        folded = f"{contestant} folded"
        best = folded if folded in forward else contestant
        found["training"][name] = _ratio(train, contestant, "RoPE")
        found["inference"][name] = _ratio(forward, best, "RoPE")
    layers = blocks(records("models")["cpu"], MODES[1])["ViT layer"]["times_ms"]
    found["layer"] = {
        encoder: _ratio(layers, layer, "layer, RoPE") for layer, encoder in LAYERS.items()
    }
    return found


def attention_times() -> dict[str, dict[str, float]]:
    """Return how each attention compares with fused softmax in chapter 23, forward.

    ``"from"`` is the length from which on it is faster, the median over rounds, ``"share"`` its
    part of softmax's time at 16,384 tokens.
    """
    found: dict[str, dict[str, float]] = {"from": {}, "share": {}}
    for name, (part, contestant, base) in LADDERS.items():
        cpu = records(part)["cpu"]
        (lengths, rows, _), (at, reference, _) = (ladder(cpu, x) for x in (contestant, base))
        if lengths != at:
            raise ValueError(f"{contestant} and {base} must have the same lengths in the record")
        rounds = range(min(map(len, (*rows, *reference))))
        meets = [crossover(at, [r[i] for r in reference], [r[i] for r in rows]) for i in rounds]
        found["from"][name] = median(m or float("inf") for m in meets)
        last = lengths.index(LONGEST)
        found["share"][name] = median(rows[last]) / median(reference[last])
    return found


def halfway() -> dict[str, float]:
    """Return change of a training → mean step at which its loss is half of where it began."""
    every = data("circulant_training")["every"]

    def step(run: Any) -> float:
        below = [n for n, loss in enumerate(run["losses"]) if loss < run["losses"][0] / 2]
        return float(every * (below or [len(run["losses"])])[0])

    return {name: mean(steps) for name, steps in measured("circulant_training", step).items()}


def fft() -> dict[str, float]:
    """Return what an FFT costs where a plain product would do, forward.

    ``"projection"`` is how many times as long a circulant of 64 channels takes, ``"toeplitz"`` the
    number of tokens up to which Toeplitz weights are slower, at 64 features and channels.
    """
    circulant = gather(data("circulant_speed"), "ms", "d")[64]
    rows = gather(data("toeplitz_crossover"), "ms", "kind", "m", "n")["forward"][64]
    both = {n: row for n, row in rows.items() if {"matrix", "fft"} <= row.keys()}
    plain, fast = ([median(row[way]) for row in both.values()] for way in ("matrix", "fft"))
    return {
        "projection": _ratio(circulant, "fft", "dense"),
        "toeplitz": crossover(list(both), plain, fast) or float("inf"),
    }
