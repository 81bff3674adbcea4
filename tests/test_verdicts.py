"""What chapters say of records, where no cell of theirs has computed it."""

from __future__ import annotations

import json
import math
from operator import itemgetter
from pathlib import Path
from statistics import median

from benchmarks.recorded import blocks, records
from book import recorded
from book.recorded import at_places, measured, score
from lab.theory.spread import difference, mean
from results import language_rates, performer_vision, transfer, transfer_3d, vision

PHI = ("relu", "favor")
CONTEXTS = ("16", "64", "256")


def test_where_digits_stand_in_one_place_rotations_help_performers_and_a_bias_hardly() -> None:
    found = measured("performer_vision", score("test"))
    for phi in PHI:
        right = {n: mean(found[f"digits {phi}: {n}"]) for n in performer_vision.POSITIONS}
        gain = {name: value - right["none"] for name, value in right.items()}
        for name in gain:
            if name.endswith(("before", "after")):
                assert 0.155 < gain[name] < 0.235
            elif name.endswith("turned"):
                assert gain[name] < 0.015
        assert 0.01 < gain["toeplitz"] < 0.03


def test_performers_at_new_places() -> None:
    known, other = (measured("performer_vision", at_places(k)) for k in (True, False))
    relu, favor = (
        {n: other[f"moved {phi}: {n}"] for n in performer_vision.POSITIONS} for phi in PHI
    )
    for name in ("mixed after", "cayley after"):
        assert 0.14 < mean(relu[name]) - mean(relu["none"]) < 0.165
    for name in ("mixed before", "cayley before"):
        assert 0.185 < mean(favor["none"]) - mean(favor[name]) < 0.275
    assert difference(favor["circulant before"], favor["none"])[2] > 0
    for name in performer_vision.ENCODERS:
        turned = [mean(found[f"moved favor: {name} turned"]) for found in (known, other)]
        assert abs(turned[0] - turned[1]) < 0.02
        assert max(turned) < mean(favor["none"]) - 0.1
    after = [x for e in performer_vision.ENCODERS for x in known[f"moved favor: {e} after"]]
    assert (round(min(after), 2), round(max(after), 2)) == (0.19, 0.82)
    right = measured("performer_vision", score("test"))
    for phi in PHI:
        ways = {n: right[f"digits {phi}: {n}"] for n in performer_vision.POSITIONS}
        none = ways.pop("none")
        held = {n for n, v in ways.items() if difference(v, none, 2 * len(ways))[1] > 0}
        assert held == {n for n in ways if n.endswith(("before", "after", ", circulant"))}
        assert difference(ways["toeplitz"], none)[1] > 0  # suggestive


def test_unit_circulant_rows_do_as_orthogonal_ones_do() -> None:
    for known in (True, False):
        found = measured("performer_vision", at_places(known))
        for name in ("none", "axial before", "mixed before", "circulant before", "toeplitz"):
            _, low, high = difference(
                found[f"moved favor-unit-circulant: {name}"], found[f"moved favor: {name}"]
            )
            assert low < 0 < high


def test_on_mnist_a_bias_helps_and_a_rotation_helps_more() -> None:
    found = measured("mnist", score("test"))
    bias = {phi: difference(found[f"{phi}: toeplitz"], found[f"{phi}: none"]) for phi in PHI}
    assert [round(bias[phi][0], 2) for phi in PHI] == [0.14, 0.06]
    held = [difference(found[f"{phi}: toeplitz"], found[f"{phi}: none"], 18)[1] > 0 for phi in PHI]
    assert held == [True, False]  # FAVOR+'s is suggestive
    for phi in PHI:
        assert bias[phi][1] > 0
        _, low, high = difference(found[f"{phi}: unit"], found[f"{phi}: none"])
        assert low < 0 < high
        both = found[f"{phi}: unit, toeplitz"]
        assert round(mean(both), 2) == 0.81
        assert 0.15 <= mean(both) - mean(found[f"{phi}: unit"]) < 0.16
        for encoder in ("axial", "mixed", "circulant"):
            rotated = found[f"{phi}: {encoder}"]
            assert 0.86 < mean(rotated) < 0.915
            assert difference(rotated, both)[1] > 0
            behind = mean(found[f"softmax: {encoder}"]) - mean(rotated)
            assert -0.005 < behind < 0.035 if phi == "relu" else abs(behind) < 0.02
        _, low, high = difference(found[f"{phi}: circulant, toeplitz"], found[f"{phi}: circulant"])
        assert low < 0 < high


def test_a_longer_training_lets_a_bias_help_favor() -> None:
    for known in (True, False):
        found = measured("vision", at_places(known))
        plain, biased = (found[f"longer performer favor{bias}"] for bias in ("", ", toeplitz"))
        gain, low, _ = difference(biased, plain)
        assert low > 0
        assert round(gain, 2) == 0.08
        assert (difference(biased, plain, 2)[1] > 0) == known  # at new places suggestive


def test_neighbours_turn_several_times_as_fast_as_halves() -> None:
    for block in records("encoders")["cpu"]["data"]["blocks"]:
        ms = {name: median(row) for name, row in block["times_ms"].items()}
        shape = block["shape"]["name"]
        if shape in ("ViT", "text", "long"):
            assert 2.5 < ms["RoPE half"] / ms["RoPE"] < 5.5
            assert 3.3 < ms["transformers"] / ms["RoPE"] < 6.2
        for compiled in {"torch.compile RoPE half", "torch.compile RoPE"} & ms.keys():
            assert 0.8 < ms[compiled] / ms["RoPE"] < 1.25
        if shape == "step" and block["mode"] == "forward":
            assert 0.75 < ms["RoPE, phases given"] / ms["transformers"] < 1.15
            assert 1.2 < ms["RoPE"] / ms["transformers"] < 2.3


def test_a_class_token_learns_more_slowly_and_keeps_a_part_of_its_cliff() -> None:
    known, other = (measured("class_token", at_places(k)) for k in (True, False))
    early = measured("vision", at_places(False))
    for name, before, after, behind in (
        ("axial", 0.54, 0.72, 0.17),
        ("mixed", 0.64, 0.84, 0.07),
        ("circulant", 0.64, 0.80, 0.08),
    ):
        _, low, high = difference(known[f"mean: {name}"], known[f"cls: {name}"])
        assert low < 0 < high
        assert abs(mean(early[f"moved cls {name}"]) - before) < 0.0051
        assert abs(mean(other[f"cls: {name}"]) - after) < 0.0051
        assert abs(mean(other[f"mean: {name}"]) - mean(other[f"cls: {name}"]) - behind) < 0.0051
        assert 0.885 < mean(other[f"mean: {name}"]) < 0.915
    ends = min(other["cls: axial"]), max(other["cls: axial"])
    assert tuple(round(x, 2) for x in ends) == (0.53, 0.86)
    for found in (known, other):
        _, low, high = difference(found["mean: axial"], found["mean: circulant"])
        assert low < 0 < high


def test_of_the_changes_to_a_training_the_rate_alone_matters() -> None:
    found, steps = measured("circulant_training", itemgetter("accuracy")), recorded.halfway()
    base = found.pop("base")
    assert len(found) == 21
    gain = {name: difference(values, base, len(found)) for name, values in found.items()}
    assert [n for n, (_, low, high) in gain.items() if not low < 0 < high] == ["rate 0.1"]
    for start in ("normal", "uniform"):  # suggestive
        assert difference(found[f"start {start}"], base)[1] > 0
        assert round(gain[f"start {start}"][0], 2) == 0.02
    assert 3.5 < steps["rate 0.0001"] / steps["base"] < 4.5
    assert steps["rate 0.01"] < steps["base"]


def test_digits_at_new_places_after_four_hundred_steps() -> None:
    known, other = (measured("vision", at_places(k)) for k in (True, False))
    lost = [
        n
        for n in vision.ENCODERS
        if difference(known[f"moved {n}"], other[f"moved {n}"], len(vision.ENCODERS))[1] > 0
    ]
    assert lost == ["sinusoidal", "learned", "circulant", "cayley-sparse"]
    for read in ("moved", "moved cls"):
        assert difference(other[f"{read} none"], other[f"{read} learned"], 9)[1] > 0
    table = known["moved none"], known["moved learned"]
    assert difference(*table)[1] > 0 > difference(*table, 9)[1]  # suggestive


def test_the_pictures_of_digits_say_in_words_what_the_record_holds() -> None:
    path = Path(__file__).resolve().parents[1] / "notebooks" / "20_vision_transformer.ipynb"
    cells = json.loads(path.read_text(encoding="utf8"))["cells"]
    shown = (cell["metadata"].get("mystnb", {}).get("image", {}) for cell in cells)
    words = "\n".join(image.get("alt", "") for image in shown)
    pairs = [("digits", score("counted"), score("interpolated"))]
    pairs += [(f"moved{read}", at_places(True), at_places(False)) for read in ("", " cls")]
    pairs += [("volumes", score("test"), score("moved"))]
    for what, *values in pairs:
        one, two = (measured("vision", value) for value in values)
        for name in vision.WITH_CLS if "cls" in what else vision.ENCODERS:
            first, second = (mean(found[f"{what} {name}"]) for found in (one, two))
            assert f"{name} {first:.2f} and {second:.2f}" in words


def test_a_third_generator_of_zero_keeps_what_a_flat_model_knows() -> None:
    found = {what: measured("transfer_3d", score(what)) for what in ("test", "moved")}
    before = measured("transfer_3d", lambda run: run["before"]["test"])
    depth = measured("transfer_3d", lambda run: run["depth"])
    for start, known, opposite in (
        ("zero", (0.60, 0.64), (0.62, 0.71)),
        ("drawn", (0.51, 0.63), (0.73, 0.78)),
        ("scratch", None, (0.48, 0.58)),
    ):
        cells = [f"{encoder} {start}" for encoder in transfer_3d.ENCODERS]
        assert _ends(found["moved"], cells) == opposite
        assert min(min(found["test"][cell]) for cell in cells) > 0.99
        if known is not None:
            assert _ends(before, cells) == known
            largest = max(max(depth[cell]) for cell in cells)
            assert largest == 0 if start == "zero" else 13 < largest < 14
        for cell in cells:
            for other in (
                c for c in found["moved"] if c.split()[0] == cell.split()[0] and c != cell
            ):
                _, low, high = difference(
                    found["moved"][cell], found["moved"][other], comparisons=9
                )
                assert low < 0 < high


def test_string_from_zero_gains_little_and_a_low_rate_forgoes_it() -> None:
    starts = transfer.STARTS
    for start in ("zero", "noise", "zero, 1e-4", "noise, 1e-4"):
        low, high = (0.005, 0.015) if starts[start][1] else (0.045, 0.095)
        ways = measured("transfer", lambda run, s=start: run["tuned"][s]["frequencies"]["way"])
        assert low < min(map(mean, ways.values())) <= max(map(mean, ways.values())) < high
    scores = {
        s: measured("transfer", lambda run, s=s: run["tuned"][s]["scores"]["test"]) for s in starts
    }
    for cell, expected in (
        ("digits none", 0.01),
        ("moved none", 0.02),
        ("moved learned", 0.02),
        ("digits learned", None),
    ):
        gain, low, high = difference(scores["zero"][cell], scores["without"][cell])
        assert low < 0 < high if expected is None else low > 0
        assert expected is None or round(gain, 2) == expected
        gain, low, high = difference(scores["zero"][cell], scores["zero, 1e-4"][cell])
        assert low > 0 if cell.startswith("moved") else low <= 0 < high
        gain, low, high = difference(scores["noise, 1e-4"][cell], scores["zero, 1e-4"][cell])
        assert low > 0 if cell == "moved none" else low < 0 < high


def _ends(found: dict[str, list[float]], cells: list[str]) -> tuple[float, float]:
    """Return the least and the largest mean of some cells, to two digits."""
    means = [round(mean(found[cell]), 2) for cell in cells]
    return min(means), max(means)


def test_on_short_inputs_whole_models_with_a_state_take_about_as_long_as_with_softmax() -> None:
    models = records("models")["cpu"]
    for mode in ("forward", "forward and backward"):
        shapes = blocks(models, mode)
        for shape, softmax in (("text", "softmax, RoPE"), ("images", "ViT softmax, RoPE")):
            ms = {name: median(row) for name, row in shapes[shape]["times_ms"].items()}
            assert all(ms[softmax] < 1.2 * ms[name] for name in ms)
            for name in ("GLA", "delta rule"):
                assert shape == "images" or ms[name] > 1.05 * ms[softmax]
        assert 1.1 < ms["ViT FAVOR+, Toeplitz"] / ms["ViT FAVOR+"] < 1.2
    ms = {name: median(row) for name, row in shapes["text"]["times_ms"].items()}  # with gradients
    assert 0.8 < ms["elu, SSD"] / ms["softmax, RoPE"] < 0.87
    assert 0.88 < ms["circulant, RoPE"] / ms["softmax, RoPE"] < 0.93
    assert 0.88 < ms["FAVOR+, RoPE"] / ms["softmax, RoPE"] < 0.93


def test_rows_that_are_drawn_anew_hold_for_every_draw_and_cost_features() -> None:
    own, new = (measured("recall_redraw", itemgetter(name)) for name in ("accuracy", "redrawn"))
    settings = [name.removesuffix("fixed") for name in own if name.endswith("fixed")]
    assert len(settings) == 12
    gains = [difference(new[f"{s}every 10"], new[f"{s}fixed"], 12) for s in settings]
    assert min(low for _, low, _ in gains) > 0
    assert [round(f(m for m, _, _ in gains), 2) for f in (min, max)] == [0.08, 0.31]
    losses = [difference(new[f"{s}every 10"], own[f"{s}fixed"], 12) for s in settings]
    assert max(m for m, _, _ in losses) < 0
    assert sum(high < 0 for _, _, high in losses) == 6
    unit = [mean(new[f"8 pairs, unit, m = {m}, every 10"]) for m in (32, 64, 128, 256)]
    assert mean(own["8 pairs, unit, m = 32, fixed"]) > 0.99
    assert max(unit[:3]) < 0.96 < 0.985 < unit[3]
    at = "32 pairs, unit, m = 128, "
    found = [mean(own[f"{at}fixed"]), mean(new[f"{at}fixed"]), mean(new[f"{at}every 10"])]
    assert [round(x, 2) for x in found] == [0.78, 0.43, 0.61]
    learned = [difference(own[f"{s}learned"], own[f"{s}fixed"], 12) for s in settings]
    assert -0.005 < min(m for m, _, _ in learned) < max(m for m, _, _ in learned) < 0.045
    assert sum(low > 0 for _, low, _ in learned) == 1
    for s in settings:
        assert mean(new[f"{s}every 10"]) > mean(new[f"{s}every 200"]) > mean(new[f"{s}fixed"])


def test_text_at_the_rate_that_suits_each_model() -> None:
    bits, scored = (measured("language_rates", itemgetter(k)) for k in ("bits", "chosen by"))
    own = {
        name: min(
            (f"{name}, rate {rate:g}" for rate in language_rates.RATES),
            key=lambda cell: mean(scored[cell]),
        )
        for name in language_rates.METHODS
    }
    at_end = [sum(c.endswith(f"rate {rate:g}") for c in own.values()) for rate in (0.005, 0.02)]
    assert at_end == [5, 2]
    softmax = bits[own.pop("softmax, RoPE")]
    gap = {name: difference(bits[cell], softmax, 12) for name, cell in own.items()}
    above = {name: round(100 * (2 ** found[0] - 1)) for name, found in gap.items()}
    told = {n: above[n] for n, (_, low, high) in gap.items() if not low < 0 < high}
    assert told == {
        "C-CosGate": 120,
        "FAVOR+, RoPE": 28,
        "C-CosGate, RoPE": 18,
        "C-CosGate, RoPE, ramp": 14,
        "ELU, SSD": -4,
        "ELU, GLA": -5,
    }
    at_one_rate = measured("language", itemgetter("bits"))
    gap_there = difference(at_one_rate["C-CosGate, RoPE"], at_one_rate["softmax, RoPE"])[0]
    assert round(100 * (2**gap_there - 1)) == 28
    split, kerple = "half softmax, half circulant, RoPE", "softmax, KERPLE"
    assert (above[split], above[kerple]) == (4, -2)
    alone = {n: difference(bits[own[n]], softmax) for n in gap if n not in told}
    assert {n for n, (_, low, high) in alone.items() if not low < 0 < high} == {split, kerple}
    for name in ("C-CosGate, RoPE", "C-CosGate, RoPE, ramp"):
        assert own[name].endswith("rate 0.02")
    assert min(mean(v) for cell, v in bits.items() if cell.startswith("C-CosGate, rate")) > 3


def test_after_four_thousand_steps_no_model_with_positions_is_told_from_softmax() -> None:
    bits = measured("language_long", itemgetter("bits"))
    fitted = measured("language_long", lambda run: mean(run["losses"][-5:]) / math.log(2))
    softmax = bits.pop("softmax, RoPE"), fitted.pop("softmax, RoPE")
    assert len(bits) == 12
    gap = {name: difference(found, softmax[0], 12) for name, found in bits.items()}
    assert [n for n, (_, low, high) in gap.items() if not low < 0 < high] == ["C-CosGate"]
    above = {name: round(100 * (2 ** found[0] - 1), 1) for name, found in gap.items()}
    del above["C-CosGate"]
    assert (min(above.values()), max(above.values())) == (above["ELU, GLA"], 3.0) == (-2.0, 3.0)
    alone = {n: difference(bits[n], softmax[0]) for n in above}
    told = {n: above[n] for n, (_, low, high) in alone.items() if not low < 0 < high}
    ramp, circulant = "C-CosGate, RoPE, ramp", "circulant, GLA"
    assert told.pop("C-CosGate, RoPE") == 3.0
    assert told == {"FAVOR+, RoPE": 2.4, ramp: 2.0, circulant: -1.6}
    assert [round(mean(x), 1) for x in softmax] == [1.9, 1.4]
    fit = {n: difference(fitted[n], softmax[1], 12) for n in above}
    told = {n: round(m, 2) for n, (m, low, high) in fit.items() if not low < 0 < high}
    behind = {"C-CosGate, RoPE": 0.19, "FAVOR+, RoPE": 0.16, ramp: 0.15}
    assert told == {**behind, "ELU, GLA": -0.09}


def test_what_more_bytes_in_sight_are_worth() -> None:
    at = {n: measured("language_long", lambda run, n=n: run["context"][n]) for n in CONTEXTS}
    gains = {}
    for name in measured("repeats", itemgetter("losses")):
        near, mid, far = (at[n][name] for n in CONTEXTS)
        assert 0.29 < mean(near) - mean(mid) < 0.42
        gains[name] = difference(mid, far, 7)
    assert [n for n, (_, low, high) in gains.items() if not low < 0 < high] == ["softmax, RoPE"]
    assert round(gains["softmax, RoPE"][0], 3) == 0.015


def test_who_copies_text_that_stands_twice() -> None:
    first, second = (
        measured("repeats", lambda run, n=n: run["bits"][n]) for n in ("first", "second")
    )
    both = ["softmax, RoPE", "half softmax, half circulant, RoPE"]
    assert max(x for name in both for x in second[name]) < 0.02
    for name, least, most in (("FAVOR+, RoPE", 0.6, 1.4), ("C-CosGate, RoPE", 1.5, 1.8)):
        assert (round(min(second[name]), 1), round(max(second[name]), 1)) == (least, most)
    for name in ("circulant, SSD", "ELU, GLA", "gated delta rule"):
        assert all(b > a for a, b in zip(first[name], second[name], strict=True))
    for name in both:  # at step 150 only who copies is there
        for losses in measured("repeats", itemgetter("losses"))[name]:
            assert losses[3] / math.log(2) < 2.2


def test_rows_drawn_anew_on_text_cost_bits_and_hold_for_every_draw() -> None:
    own, new = (measured("language_redraw", itemgetter(name)) for name in ("bits", "redrawn"))
    found = own["fixed"], new["fixed"], new["every 10"], own["learned"]
    assert [round(mean(values), 2) for values in found] == [2.35, 3.18, 2.67, 2.25]
    assert difference(new["every 10"], own["fixed"], 4)[1] > 0
    assert difference(new["every 10"], new["fixed"], 4)[2] < 0
    assert difference(own["learned"], own["fixed"], 4)[2] < 0
    for rarer in ("every 50", "every 200"):
        assert mean(new[rarer]) > mean(new["every 10"])


def test_no_share_of_a_cayley_basis_is_told_from_none_and_all_take_as_long() -> None:
    for known in (True, False):
        found = measured("sparse_sweep", at_places(known))
        none = found.pop("f = 0")
        assert len(found) == 5
        gains = [difference(values, none) for values in found.values()]
        assert all(low < 0 < high for _, low, high in gains)
        assert max(abs(gain) for gain, _, _ in gains) < 0.0265
    for mode, (least, most) in {"forward": (1.08, 1.15), "gradients": (1.1, 1.16)}.items():
        spent = measured("sparse_sweep", itemgetter(mode))["times"]
        none, *others = (median(run[share] for run in spent) for share in spent[0])
        assert all(least < other / none < most for other in others)
