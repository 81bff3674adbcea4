"""What the records measured, as families of comparisons need it: cell → one number per seed."""

from __future__ import annotations

import math
from functools import cache, partial
from operator import itemgetter
from typing import Any

from benchmarks.goals import MODES
from benchmarks.recorded import blocks, records
from book.family import Runs
from book.recorded import at_places, data, longer, measured, score
from lab.theory.spread import mean
from results import circulant_favor, delta_rates, extrapolation, language_rates, lookup
from results.copy_rates import PERIODS

LATER = ("extrapolation_layers", "extrapolation_dropped")
"""Studies of longer texts with methods of 2025."""
ON_LONGER = "extrapolation_published"
"""Study of longer texts with published layers."""


@cache
def rates() -> Runs:
    """Return bits per byte of each model at the rate that was best for it on held-out text."""
    rates = language_rates.chosen_rates(
        "language_rates", language_rates.METHODS, language_rates.RATES
    )
    found = bits("language_rates")
    return {name: found[f"{name}, rate {rate:g}"] for name, rate in rates.items()}


@cache
def published() -> Runs:
    """Return bits per byte of published layers, and of the models that they are compared with.

    Each model has the learning rate that was best for it on held-out text.
    """
    return {**rates(), **bits("language_published")}


@cache
def bits(study: str, what: str = "bits") -> Runs:
    """Return a number of each run."""
    return measured(study, itemgetter(what))


@cache
def at_own_rates() -> Runs:
    """Return accuracies of three states of the delta rule, with the best of three rates for each.

    The best rate on a task is the one with the highest mean over the seeds.
    """
    tried = {**bits("delta_rule", "short"), **bits("delta_rates", "short")}
    states = {f"{cell['task']}, {cell['state']}" for cell in delta_rates.CELLS.values()}
    return {
        state: max(
            (row for name, row in tried.items() if name.partition(", rate ")[0] == state), key=mean
        )
        for state in sorted(states)
    }


@cache
def fit() -> Runs:
    """Return the last losses on the text that was read, in bits per byte."""
    return measured("language_long", lambda run: mean(run["losses"][-5:]) / math.log(2))


@cache
def second() -> Runs:
    """Return the bits per byte of the second of two copies, and of "model, first copy"."""
    ends = {"second": "", "first": ", first copy"}
    return {
        f"{name}{end}": row
        for which, end in ends.items()
        for name, row in measured("repeats", partial(_copy, which=which)).items()
    }


def _copy(run: Any, which: str) -> float:
    return float(run["bits"][which])


@cache
def page_text() -> Runs:
    """Return the bits per byte of text that repeats nothing."""
    return measured("page_text", lambda run: float(run["bits"]["plain"]))


@cache
def copies() -> Runs:
    """Return the bits per byte of a second copy, over all lengths of a piece."""
    names = [f"{period} second" for period in PERIODS]
    return measured("copy_distance", lambda run: mean([run["bits"][name] for name in names]))


@cache
def copied(third: int = 3) -> Runs:
    """Return the bits per byte of a second copy: "cell, bytes of the piece".

    Args:
        third: After how many thirds of the training.
    """
    found = {}
    for period in PERIODS:
        bits = partial(_second, third=third, copy=f"{period} second")
        for cell, row in measured("copy_distance", bits).items():
            found[f"{cell}, {period}"] = row
    return found


def _second(run: Any, third: int, copy: str) -> float:
    return float([*run["on the way"], run["bits"]][third - 1][copy])


@cache
def redrawn() -> Runs:
    """Return bits per byte with the rows of the training, and with new ones."""
    found = {}
    for rows, name in (("own rows", "bits"), ("new rows", "redrawn")):
        for cell, values in measured("language_redraw", itemgetter(name)).items():
            found[f"{cell}, {rows}"] = values
    return found


@cache
def places(study: str) -> Runs:
    """Return accuracies at the places of the training, and at the others."""
    found = {}
    for where, known in (("known", True), ("new", False)):
        for name, row in measured(study, at_places(known)).items():
            found[f"{name} at {where} places"] = row
    return found


@cache
def claimed() -> Runs:
    """Return bits per byte after 1,000 steps at one rate, and after 4,000 each at its own."""
    late = {f"{name}, 4,000 steps": row for name, row in bits("language_long").items()}
    return {**bits("language"), **late}


@cache
def sighted() -> Runs:
    """Return bits per byte of the same bytes with 64 or 256 in sight."""
    found = {}
    for name, cell in data("language_long")["cells"].items():
        for sight in ("64", "256"):
            found[f"{name}, {sight} bytes"] = [run["context"][sight] for run in cell["runs"]]
    return found


@cache
def gained() -> Runs:
    """Return how many bits per byte fewer the same bytes cost with 64 in sight than with 16."""
    return measured("language_long", lambda run: run["context"]["16"] - run["context"]["64"])


@cache
def recalled() -> Runs:
    """Return the accuracy of each map at its best rate: "norm, map, pairs"."""
    found = {}
    studies = (("recall_success", "8 pairs"), ("recall_many", "32 pairs"))
    for study, pairs in (*studies, ("recall_hedgehog", "32 pairs")):
        right, rates = measured(study, score("test")), dict[str, str]()
        for cell, row in right.items():
            name = cell[: cell.rindex(", rate")]
            if mean(row) > mean(right.get(rates.get(name, ""), [-1.0])):
                rates[name] = cell
        found.update({f"{name}, {pairs}": right[cell] for name, cell in rates.items()})
        if study == "recall_many":
            far = measured(study, score("64 pairs"))
            found.update({f"{n}, 64 pairs": far[c] for n, c in rates.items() if c in far})
    return found


@cache
def looked_up() -> Runs:
    """Return the share of values named at the rate that was best over all distances."""
    named = {d: measured("lookup", score(str(d))) for d in lookup.DISTANCES}
    found = {}
    for name in lookup.METHODS:
        cells = [cell for cell in lookup.CELLS if cell.rpartition(", rate ")[0] == name]
        best = max(cells, key=lambda cell: mean([mean(row[cell]) for row in named.values()]))
        found.update({f"{name}, {d}": row[best] for d, row in named.items()})
    return found


@cache
def drawn_anew() -> Runs:
    """Return the accuracy of recall with the rows of the training, and with new ones."""
    found = {}
    for rows, name in (("own rows", "accuracy"), ("new rows", "redrawn")):
        for cell, values in measured("recall_redraw", itemgetter(name)).items():
            found[f"{cell}, {rows}"] = values
    return found


@cache
def scores(study: str, *names: str) -> Runs:
    """Return scores of a run: "cell", or "cell, score" if there are several."""
    found = {}
    for name in names:
        end = f", {name}" if len(names) > 1 else ""
        found.update({f"{cell}{end}": row for cell, row in measured(study, score(name)).items()})
    return found


@cache
def tuned() -> Runs:
    """Return the accuracy of models that were trained on: "model: way", and at new places."""
    found = dict[str, list[float]]()
    for name, cell in data("transfer")["cells"].items():
        for run in cell["runs"]:
            for way, told in run["tuned"].items():
                for test, accuracy in told["scores"].items():
                    where = {"test": "", "moved": " at new places"}[test]
                    found.setdefault(f"{name}{where}: {way}", []).append(accuracy)
    return found


@cache
def outside() -> Runs:
    """Return the share of digits named outside of the square, and "model, inside"."""
    named = scores("page_digits", "test", "moved")
    ends = {", test": ", inside", ", moved": ""}
    return {
        cell.removesuffix(old) + new: row
        for old, new in ends.items()
        for cell, row in named.items()
        if cell.endswith(old)
    }


@cache
def reading_on(*studies: str) -> Runs:
    """Return bits per byte of each method: after 64 bytes and 1,024, and from place 512 on.

    There also those of a window of 64 that slides along.
    """
    steps = list(zip(extrapolation.EDGES[:-1], extrapolation.EDGES[1:], strict=True))
    late = [(i, b - a) for i, (a, b) in enumerate(steps) if a >= 512]
    found: dict[str, list[float]] = {}
    for cell in (cell for study in studies for cell in data(study)["cells"].values()):
        for run in cell["runs"]:
            if "window" not in run:  # needles
                continue
            for method, read in run["read"].items():
                for at, bits in (("64", read["lengths"][0]), ("1,024", read["lengths"][-1])):
                    found.setdefault(f"{method} at {at}", []).append(bits)
                for how, places in (("whole", read["places"]), ("window", run["window"])):
                    bits = sum(places[i] * n for i, n in late) / sum(n for _, n in late)
                    found.setdefault(f"{method}, {how}", []).append(bits)
    return found


@cache
def resolution() -> Runs:
    """Return accuracies on large pictures: "cell, when, unit of places"."""
    found = {}
    for when in ("at once", "then"):
        for unit in ("picture", "counted"):
            scores = measured("resolution", partial(_reached, when=when, unit=unit))
            found.update({f"{cell}, {when}, {unit}": row for cell, row in scores.items()})
    return found


def _reached(run: Any, when: str, unit: str) -> float:
    """Return the accuracy of a run on large pictures."""
    accuracy: float = run[when][unit]
    return accuracy


@cache
def large_alone() -> Runs:
    """Return the accuracy of models that were trained on large pictures alone."""
    return measured("resolution", itemgetter("large alone"))


@cache
def before() -> Runs:
    """Return the accuracy on volumes of a model that knows flat slices."""
    return measured("transfer_3d", lambda run: run["before"]["test"])


@cache
def needles() -> Runs:
    """Return the share of needles found among 1,024 tokens.

    Also "method at 64", as in training, and "method, far", of those 512 tokens away or more.
    """
    found = dict(longer()["needles"])
    for cell in data("extrapolation")["cells"].values():
        if cell["told"]["task"] != "needle":
            continue
        for run in cell["runs"]:
            for method, read in run["read"].items():
                found.setdefault(f"{method} at 64", []).append(read["lengths"][0])
                found.setdefault(f"{method}, far", []).append(read["distances"][-1])
    return found


@cache
def later_needles(*studies: str) -> Runs:
    """Return the share of needles found at 1,024 tokens by each method of some studies."""
    return {
        cell.removeprefix("needle").lstrip(", "): [
            run["read"][method]["lengths"][-1] for run in found["runs"]
        ]
        for study in studies
        for cell, found in data(study)["cells"].items()
        if cell.startswith("needle")
        for method in found["runs"][0]["read"]
    }


@cache
def operators() -> Runs:
    """Return the share of expressions that are named, by operator: "model, SM"."""
    found: dict[str, list[float]] = {}
    for name, cell in data("listops")["cells"].items():
        for run in cell["runs"]:
            for operator, right in run["operators"].items():
                found.setdefault(f"{name}, {operator}", []).append(right)
    return found


@cache
def squared() -> Runs:
    """Return mean squared errors at ζ = 2, in those of independent rows: "rows, vector"."""
    independent = math.expm1(circulant_favor.SQUARE) / circulant_favor.DIM
    found: dict[str, list[float]] = {}
    for name, cell in data("circulant_favor")["cells"].items():
        for run in cell["runs"]:
            for vector, (error, _) in run.get("kernel", {}).items():
                rows = name.removeprefix("kernel ")
                found.setdefault(f"{rows}, {vector}", []).append(error / independent)
    return found


@cache
def short() -> Runs:
    """Return errors of the weights of queries and keys of length ½, with 64 features."""
    at_64 = circulant_favor.SIZES.index(64)
    return measured("circulant_favor", lambda run: float(run["short"][at_64]))


@cache
def projections() -> Runs:
    """Return the logarithms of the times of a projection: by a matrix, and by FFT."""
    found = {}
    for name, row in (("matrix", "dense"), ("FFT", "fft")):
        for cell, values in measured("circulant_speed", partial(_ms, row)).items():
            found[f"{name}, {cell}"] = [math.log(ms) for ms in values]
    return found


def _ms(form: str, run: Any) -> float:
    return float(run["ms"][form])


@cache
def times(part: str, mode: str = MODES[0], threads: int = 1) -> Runs:
    """Return the logarithms of the times of a head: "contestant, shape"."""
    found = {}
    for where, block in blocks(records(part)["cpu"], mode, threads).items():
        heads = block["shape"]["batch"] * block["shape"]["heads"]
        for name, row in block["times_ms"].items():
            found[f"{name}, {where}"] = [math.log(ms / heads) for ms in row]
    return found
