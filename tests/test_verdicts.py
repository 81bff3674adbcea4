"""What chapters say of records, where no cell of theirs has computed it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from operator import itemgetter
from pathlib import Path
from statistics import median

from benchmarks.recorded import blocks, records
from book import measures, recorded
from book.recorded import at_places, measured, score
from lab.theory.spread import difference, mean
from results import performer_vision, transfer, transfer_3d, vision


def test_after_favor_a_rotation_is_a_lottery_and_a_random_turn_knows_no_place() -> None:
    known, other = (measured("performer_vision", at_places(k)) for k in (True, False))
    for name in performer_vision.ENCODERS:
        turned = [mean(found[f"moved favor: {name} turned"]) for found in (known, other)]
        assert abs(turned[0] - turned[1]) < 0.02
    after = [x for e in performer_vision.ENCODERS for x in known[f"moved favor: {e} after"]]
    assert (round(min(after), 2), round(max(after), 2)) == (0.19, 0.82)
    unit = measured("mnist", score("test"))
    assert {round(mean(unit[f"{phi}: unit, toeplitz"]), 2) for phi in ("relu", "favor")} == {0.81}


def test_neighbours_turn_several_times_as_fast_as_halves() -> None:
    for block in records("encoders")["cpu"]["data"]["blocks"]:
        ms = {name: median(row) for name, row in block["times_ms"].items()}
        shape = block["shape"]["name"]
        if shape in ("ViT", "text", "long"):
            assert 2 < ms["RoPE half"] / ms["RoPE"] < 3.1
            assert 2.9 < ms["transformers"] / ms["RoPE"] < 5.5
        for compiled in {"torch.compile RoPE half", "torch.compile RoPE"} & ms.keys():
            assert 0.8 < ms[compiled] / ms["RoPE"] < 1.3
        if shape == "step" and block["mode"] == "forward":
            assert 0.75 < ms["RoPE, phases given"] / ms["transformers"] < 1.15
            assert 1.2 < ms["RoPE"] / ms["transformers"] < 2.3


def test_a_class_token_learns_more_slowly_and_keeps_a_part_of_its_cliff() -> None:
    other = measured("class_token", at_places(False))
    early = measured("vision", at_places(False))
    for name, before, after in (
        ("axial", 0.54, 0.82),
        ("mixed", 0.64, 0.82),
        ("circulant", 0.63, 0.81),
    ):
        assert abs(mean(early[f"moved cls {name}"]) - before) < 0.0051
        assert abs(mean(other[f"cls: {name}"]) - after) < 0.0051
        assert 0.875 < mean(other[f"mean: {name}"]) < 0.915


def test_a_low_rate_learns_slowly() -> None:
    steps = recorded.halfway()
    assert 3.5 < steps["rate 0.0001"] / steps["base"] < 4.5
    assert steps["rate 0.01"] < steps["base"]


def test_the_pictures_of_digits_say_in_words_what_the_record_holds() -> None:
    path = Path(__file__).resolve().parents[1] / "notebooks" / "20_vision_transformer.ipynb"
    cells = json.loads(path.read_text(encoding="utf8"))["cells"]
    shown = (cell["metadata"].get("mystnb", {}).get("image", {}) for cell in cells)
    words = "\n".join(image.get("alt", "") for image in shown)
    same, counted, fine, corner, opposite = (
        {name: mean(measured("vision", score(at))[f"{what} {name}"]) for name in vision.ENCODERS}
        for what, at in (
            *(("digits", at) for at in ("test", "counted", "interpolated")),
            *(("volumes", at) for at in ("test", "moved")),
        )
    )
    encoded, rotary = vision.ENCODERS[1:], vision.ENCODERS[3:]
    low, high = _range(same, encoded)
    assert f"without an encoding is at {same['none']:.2f}. All others are between {low}" in words
    assert f"and {high}. The sinusoidal embedding is highest" in words
    assert max(same, key=same.__getitem__) == "sinusoidal"
    assert all(abs(found - 0.12) < 0.05 for found in counted.values())
    assert f"without an encoding stays at {fine['none']:.2f}" in words
    assert "rise to between {} and {}. The learned".format(*_range(fine, encoded)) in words
    assert max(fine, key=fine.__getitem__) == "learned"
    told = (
        f"the learned embedding is at {corner['learned']:.2f} and the row without encoding is near"
    )
    assert told in words
    assert min(corner[name] for name in encoded if name != "learned") > 0.99
    assert opposite["sinusoidal"] < 0.05
    assert "are between {} and {}, with seeds".format(*_range(opposite, rotary)) in words
    assert max(opposite, key=opposite.__getitem__) == "circulant"


def _range(found: Mapping[str, float], names: Iterable[str]) -> tuple[str, str]:
    """Return the least and the largest of some, as a text has them."""
    some = [found[name] for name in names]
    return f"{min(some):.2f}", f"{max(some):.2f}"


def test_the_picture_of_two_sizes_says_in_words_what_the_record_holds() -> None:
    path = Path(__file__).resolve().parents[1] / "notebooks" / "20_vision_transformer.ipynb"
    cells = json.loads(path.read_text(encoding="utf8"))["cells"]
    (words,) = (
        cell["metadata"]["mystnb"]["image"]["alt"]
        for cell in cells
        if "stages = torch.tensor" in "".join(cell["source"])
    )
    found = {cell: mean(row) for cell, row in measures.resolution().items()}
    ends = measured("resolution", itemgetter("small"))
    small = {cell: mean(row) for cell, row in ends.items()}
    turned = ("axial RoPE", "RoPE-Mixed", "Circulant-STRING")
    placed = ("learned table", "sinusoidal", *turned)
    assert min(small[cell] for cell in placed) > 0.8
    assert {f"{found[f'{cell}, at once, picture']:.1f}" for cell in turned} == {"0.8"}
    for cell, name in (("sinusoidal", "sinusoidal"), ("learned table", "learned")):
        assert f"{name} embedding falls to {found[f'{cell}, at once, picture']:.2f}" in words
    assert all(0.855 < found[f"{cell}, then, picture"] < 0.885 for cell in placed)
    assert f"ends at {found['no position, then, picture']:.2f}" in words
    at_once = [found[f"{cell}, at once, counted"] for cell in small if cell != "learned table"]
    assert f"fall to between {min(at_once):.2f} and {max(at_once):.2f}" in words
    then = {cell: found[f"{cell}, then, counted"] for cell in ("sinusoidal", *turned)}
    assert f"Circulant-STRING is highest at {then['Circulant-STRING']:.2f}" in words
    assert f"the sinusoidal embedding is at {then['sinusoidal']:.2f}" in words
    assert min(then[cell] for cell in turned) > 0.7


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
                assert shape == "images" or ms[name] > 1.01 * ms[softmax]
        assert 1.1 < ms["ViT FAVOR+, Toeplitz"] / ms["ViT FAVOR+"] < 1.15
    ms = {name: median(row) for name, row in shapes["text"]["times_ms"].items()}  # with gradients
    assert 0.8 < ms["elu, SSD"] / ms["softmax, RoPE"] < 0.87
    assert 0.86 < ms["circulant, RoPE"] / ms["softmax, RoPE"] < 0.9
    assert 0.86 < ms["FAVOR+, RoPE"] / ms["softmax, RoPE"] < 0.9


def test_rows_that_are_drawn_anew_hold_for_every_draw_and_cost_features() -> None:
    own, new = (measured("recall_redraw", itemgetter(name)) for name in ("accuracy", "redrawn"))
    unit = [mean(new[f"8 pairs, unit, m = {m}, every 10"]) for m in (32, 64, 128, 256)]
    assert mean(own["8 pairs, unit, m = 32, fixed"]) > 0.99
    assert max(unit[:3]) < 0.96 < 0.985 < unit[3]
    at = "32 pairs, unit, m = 128, "
    found = [mean(own[f"{at}fixed"]), mean(new[f"{at}fixed"]), mean(new[f"{at}every 10"])]
    assert [round(x, 2) for x in found] == [0.78, 0.43, 0.61]
    settings = [name.removesuffix("fixed") for name in own if name.endswith("fixed")]
    for s in settings:
        assert mean(new[f"{s}every 10"]) > mean(new[f"{s}every 200"]) > mean(new[f"{s}fixed"])


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


def test_all_shares_of_a_cayley_basis_take_as_long() -> None:
    for mode, (least, most) in {"forward": (1.08, 1.15), "gradients": (1.1, 1.16)}.items():
        spent = measured("sparse_sweep", itemgetter(mode))["times"]
        none, *others = (median(run[share] for run in spent) for share in spent[0])
        assert all(least < other / none < most for other in others)
