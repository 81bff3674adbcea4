"""The figures between the sections of a chapter draw the formulas and the code beside them."""

from __future__ import annotations

import math

import pytest
import torch

from book.figures.reflections import KEYS
from lab.theory import rope_decay
from stringlib import STRING, CirculantSTRING, ReflectionSTRING, RoPE
from stringlib.algebra import circulant, fourier_basis, planar_skew
from stringlib.encoders import scaling
from stringlib.kernels.rotation import geometric_frequencies
from stringlib.reference.rope import householder_2d
from stringlib.testing import properties
from stringlib.testing.properties import largest_difference
from tests.figure_cases import exact, states


def turned(angle: float) -> torch.Tensor:
    return exact([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])


def test_both_paths_end_at_the_sum_and_the_integral() -> None:
    for at, (fig, _) in states("rope_decay.partial_sums"):
        arc, sums, *_, mark = fig.data
        t = exact([at["distance"]])
        ends = (torch.exp(1j * t) - torch.exp(1j * t / 10_000)) / 128
        total = complex(rope_decay.phase_sum(t, geometric_frequencies(64)) - ends)
        integral = complex(rope_decay.phase_integral(t, 10_000.0))
        assert abs(complex(sums.x[-1], sums.y[-1]) - total) < 1e-4
        assert abs(complex(arc.x[-1], arc.y[-1]) - integral) < 4e-4
        assert mark.y[1] == pytest.approx(abs(total - integral), abs=4e-4)


def test_a_key_for_a_distance_scores_highest_there() -> None:
    for at, (fig, _) in states("rope_decay.copied_score"):
        plain, moved, _ = fig.data
        assert max(moved.y) == moved.y[at["place"]] == pytest.approx(1)
        q = torch.ones(1, 1, 128, dtype=torch.float64)
        encoder = RoPE(128).double()
        for curve, place in ((plain, 0), (moved, at["place"])):
            key = encoder.rotate(q, exact([[float(place)]]))
            query = encoder.rotate(q.expand(1, 129, 128), torch.arange(129.0).double()[:, None])
            want = (query @ key.mT)[0, :, 0] / 128
            assert largest_difference(exact(curve.y), want) < 1e-9


def test_a_head_of_fast_pairs_looks_where_the_scaled_frequencies_say() -> None:
    scaled = {
        "interpolation": scaling.position_interpolation,
        "NTK-aware": scaling.ntk_aware,
        "YaRN": lambda waves, s: scaling.yarn(waves, s, 64, fast=4),
    }
    waves = RoPE(64, base=100.0).frequencies()
    turns = 64 * waves[0, :, 0] / (2 * math.pi)
    fast = int((turns >= 4).sum())
    for at, (fig, told) in states("rope_decay.fast_head"):
        after = scaled[at["method"]](waves, float(at["scale"]))[0, :fast, 0]
        h = torch.polar(exact(fast * [1 / fast]), -at["place"] * waves[0, :fast, 0])
        for line, theta in zip(fig.data, (waves[0, :fast, 0], after), strict=False):
            want = rope_decay.phase_sum(exact(line.x), theta, h).real
            assert largest_difference(exact(line.y), want) < 1e-9
        best = 1 + want.argmax().item()
        assert fig.data[2].x[0] == best
        assert f"After scaling, the maximum is at distance {best}, and" in told
        if at["method"] == "interpolation":
            assert abs(best - at["scale"] * at["place"]) <= 0.5


def test_pairs_are_slowed_down_as_the_packages_scalings_do() -> None:
    waves = RoPE(128).frequencies()
    for at, (fig, told) in states("rope_decay.slower_pairs"):
        scale, length = at["scale"], at["length"]
        scaled = (
            scaling.position_interpolation(waves, scale),
            scaling.ntk_aware(waves, scale),
            scaling.yarn(waves, scale, length),
        )
        for line, slow in zip(fig.data, scaled, strict=True):
            want = (waves / slow)[0, :, 0]
            assert largest_difference(exact(line.y), want) < 1e-9
        kept = int((waves * length / (2 * math.pi) >= 32).sum())
        assert f"the first {kept} pairs unchanged" in told


def test_the_integral_that_a_page_computes_is_that_of_the_theory() -> None:
    for at, (fig, _) in states("rope_decay.decay_curves"):
        total, integral, early, late, _ = fig.data
        t, base = exact(total.x), float(at["base"])
        theta = geometric_frequencies(at["dim"] // 2, base)
        wanted = (rope_decay.phase_sum(t, theta).abs(), rope_decay.phase_integral(t, base).abs())
        for trace, want in zip((total, integral), wanted, strict=True):
            assert ((exact(trace.y) - want) / want).abs().max() < 1e-6
        for trace, law in zip((early, late), rope_decay.regimes(t, base), strict=True):
            drawn = [(y, want) for y, want in zip(trace.y, law.tolist(), strict=True) if y]
            assert len(drawn) > 30
            assert all(y == pytest.approx(want) for y, want in drawn)


def test_scores_of_rounded_positions_are_the_packages() -> None:
    ones, encoder = torch.ones(1, 65, 64).double() / 8, RoPE(64)
    for at, (fig, told) in states("rope.rounded_positions"):
        places = (at["start"] + torch.arange(65).double())[:, None]
        for line, dtype in zip(fig.data, (torch.float32, torch.bfloat16), strict=True):
            scores = properties.logits(encoder, ones, ones, places.to(dtype).double())[0, 0]
            assert largest_difference(exact(line.y), scores) < 1e-9
        assert f"leaves {places.bfloat16().unique().numel()} of 65 different" in told


def test_planes_turn_as_the_matrices_do() -> None:
    A = planar_skew(exact([2.0, 1.0]), 4)
    for at, (fig, _) in states("string.turned_planes"):
        R = torch.matrix_exp(at["first"] * A + at["second"] * A @ A @ A)
        for plane, hand in enumerate(fig.data[2::3]):
            ends = exact([hand.x[1], hand.y[1]])
            first = R[2 * plane : 2 * plane + 2, 2 * plane]
            assert largest_difference(ends, first) < 1e-9


def test_a_wave_moves_as_the_exponential_of_a_circulant_says() -> None:
    shift = circulant(torch.eye(16).double()[1])
    names = {"2 waves": 2, "7 waves": 12, "constant": 14, "alternating": 15}
    for at, (fig, _) in states("circulant_string.moved_wave"):
        vector = fourier_basis(16)[:, names[at["vector"]]]
        want = torch.matrix_exp(at["position"] * (shift - shift.mT)) @ vector
        assert largest_difference(exact(fig.data[0].y), want) < 1e-12


def test_arrows_are_first_steps_of_adam() -> None:
    j, m = torch.arange(1, 8).double(), torch.arange(16).double()
    M = 2 * torch.sin(2 * torch.pi * j[:, None] * m / 16)
    for at, (fig, told) in states("circulant_string.first_steps"):
        angle = math.radians(at["direction"])
        down = torch.zeros(7).double()
        down[:2] = exact([math.cos(angle), math.sin(angle)])
        for arrow, (to_omega, size) in zip(
            fig.data[1:], ((torch.eye(7).double(), 7), (M, 16)), strict=True
        ):
            parameter = torch.zeros(size, dtype=torch.float64, requires_grad=True)
            adam = torch.optim.Adam([parameter], lr=1, eps=1e-7)
            (-(to_omega @ parameter) @ down).backward()
            adam.step()
            step = (to_omega @ parameter).detach()
            step = step / step.norm()
            assert largest_difference(exact([arrow.x[1], arrow.y[1]]), step[:2]) < 1e-5
            assert f"{step @ down:.2f}" in told


def test_modes_turn_into_the_exponential() -> None:
    for at, (fig, _) in states("circulant_blocks.turned_modes"):
        bars, before, *_, modes = fig.data
        C = circulant(exact([0, at["c1"], at["c2"], at["c3"], 0, 0, 0, 0]))
        want = torch.matrix_exp(at["r"] * (C - C.mT)) @ exact(before.y)
        assert largest_difference(exact(bars.y), want) < 1e-12
        drawn = torch.complex(exact(modes.x), exact(modes.y))
        assert (torch.fft.fft(want) - drawn).abs().max() < 1e-12


def test_blocks_leave_still_what_their_generator_does_not_move() -> None:
    for at, (fig, told) in states("circulant_blocks.still_channels"):
        hands, squares = fig.data
        encoder = CirculantSTRING(64, block_size=int(at["block"])).double()
        turning = torch.linalg.matrix_rank(encoder.generators()[0, 0]).item()
        assert len(squares.x) == 64 - turning == 64 - len(hands.x) // 3
        told_pairs = f"channels of {turning // 2} pairs" if turning else "There is no pair"
        assert told_pairs in told


def test_rounded_mirrors_lose_the_digits_that_float32_does() -> None:
    for at, (fig, _) in states("reflections.rounded_mirrors"):
        encoder, rope = ReflectionSTRING(64), RoPE(64).double()
        encoder.angles.data += at["common"]
        distance = exact([[at["distance"]]])
        apart = encoder.double().matrix(distance) - rope.matrix(distance)
        package = torch.linalg.matrix_norm(apart[0], 2).item()
        assert list(fig.data[0].y) == pytest.approx([package] * len(KEYS), rel=1e-3, abs=1e-11)
        angles = encoder.angles.detach()[:, 0, :, 0]
        for key, drawn in zip(fig.data[2].x, fig.data[2].y, strict=True):
            turns = []
            for position in (key, key + at["distance"]):  # in float32 itself
                first, second = (householder_2d((position * a.float()).double()) for a in angles)
                turns.append(second @ first)
            want = rope.matrix(distance)[0, 0].unflatten(0, (32, 2)).unflatten(-1, (32, 2))
            blocks = torch.stack([want[i, :, i] for i in range(32)])
            worst = torch.linalg.matrix_norm(turns[1] @ turns[0].mT - blocks, 2).max().item()
            assert drawn == pytest.approx(worst, rel=1e-3, abs=1e-11)


def test_a_mirror_passes_what_commutes_with_it() -> None:
    passes = {  # beside the encoder → mirrors that may be folded
        "nothing": {0, 20, 45},
        "RMS norm": {0, 20, 45},
        "RMS norm, scales": {0},
        "layer norm": {45},
        "ReLU, then rotate": {45},
        "rotate, then ReLU": {0, 20, 45},
    }
    for at, (fig, _) in states("folds.mirrored_basis"):
        folded, dropped = fig.data[1].y[0], fig.data[3].y[0]
        assert (folded == 0) == (at["mirror"] in passes[at["between"]])
        assert (dropped == 0) == (at["between"] != "rotate, then ReLU" or at["mirror"] == 45)
        if at["between"] != "ReLU, then rotate":
            continue
        # the same from the package, whose encoder drops the outer P itself
        angle, P = math.radians(2 * at["mirror"]), torch.eye(4).double()
        cos, sin = math.cos(angle), math.sin(angle)
        P[1:3, 1:3] = exact([[cos, sin], [sin, -cos]])
        encoder = STRING(exact([[[0.7], [0.2]]]), P[None])
        generator = torch.Generator().manual_seed(0)
        z, w = torch.randn(2, 1, 32, 4, generator=generator, dtype=torch.float64)
        places = torch.arange(32.0).double()[:, None]
        right = properties.logits(encoder, z.relu(), w.relu(), places)
        wrong = properties.logits(encoder.folded(), (z @ P).relu(), (w @ P).relu(), places)
        error = ((wrong - right).square().mean() / right.square().mean()).sqrt()
        assert folded == pytest.approx(error.item(), abs=1e-9)
