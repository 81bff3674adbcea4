"""The study behind the chapter on inference: its rungs."""

from __future__ import annotations

import pytest
import torch

from results import inference_ladder as study
from stringlib import CirculantSTRING, checks

RUNGS = ["matrix_exp", "fft", "rfft", "half", "basis", "folded", "rope"]


def test_all_rungs_but_the_last_two_give_the_same_scores() -> None:
    torch.manual_seed(0)
    encoder, positions = CirculantSTRING(8, heads=3), torch.arange(5.0)[:, None]
    q, k = torch.randn(2, 2, 3, 5, 8)
    ways = study.rungs(encoder, positions)
    assert list(ways) == RUNGS
    want = checks.logits(encoder.double(), q.double(), k.double(), positions)
    for name, way in study.rungs(encoder.float(), positions).items():
        turned_q, turned_k = way(q, k)
        assert turned_q.dtype == torch.float32
        error = checks.relative_logit_error(turned_q @ turned_k.mT, want, q, k)
        assert (error < 1e-6) == (name not in ("folded", "rope"))


def test_the_folded_rung_gives_the_scores_of_folded_vectors() -> None:
    encoder, positions = CirculantSTRING(8, heads=3), torch.arange(5.0)[:, None]
    q, k = torch.randn(2, 2, 3, 5, 8)
    basis = encoder.basis().float()
    turned_q, turned_k = study.rungs(encoder, positions)["folded"](q @ basis, k @ basis)
    want = checks.logits(encoder, q, k, positions)
    assert checks.relative_logit_error(turned_q @ turned_k.mT, want, q, k) < 1e-6


def test_milliseconds_is_the_median_of_its_calls() -> None:
    calls: list[int] = []
    assert study.milliseconds(lambda: calls.append(1), 3) < 100
    assert len(calls) == 3


def test_memory_counts_results_and_what_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("BATCH", 2), ("HEADS", 2), ("TOKENS", 5), ("DIM", 8)):
        monkeypatch.setattr(study, name, value)
    found = study.memory()
    assert list(found["peak"]) == RUNGS
    assert list(found["saved"]) == RUNGS[1:]
    # every rung holds its result; the complex FFT holds spectra beside it
    assert min(found["peak"].values()) >= 1
    assert found["peak"]["fft"] > found["peak"]["rfft"] > found["peak"]["rope"]
    assert found["saved"]["fft"] > found["saved"]["rfft"] > found["saved"]["rope"]
