"""Numbers that a source gives and no argument shows, measured from outside.

Each is computed once more from what the source says, so that a factor of 2 in the code is seen.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

import stringlib
from lab.tasks import make_task
from lab.train import fit
from lab.train.settings import Settings
from stringlib import CirculantSTRING, make_features
from stringlib.attention.learned import GLADecay, SSDDecay
from stringlib.attention.learned_delta import LearnedDelta
from stringlib.attention.registry import FEATURES
from stringlib.models.blocks import FEED_FORWARD, Block


def undecided(weight: Any) -> Any:
    """Return a weight that reads nothing of the tokens: all of its projections are 0."""
    for module in weight.modules():
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.weight)
            nn.init.zeros_(module.bias) if module.bias is not None else None
    return weight.double()


TOKENS = torch.ones(5, 4, dtype=torch.float64)


def test_gla_takes_the_sixteenth_root() -> None:
    """Yang et al. 2024: σ(·)^(1/τ) with τ = 16; at 0 the decay is 2^(−1/16)."""
    log_decay = undecided(GLADecay(4, 2, 3))(TOKENS).log_decay
    assert torch.allclose(log_decay.exp() ** 16, torch.full_like(log_decay, 0.5))


def test_the_rates_of_the_delta_rule_reach_two() -> None:
    """Grazzi et al. 2025: 2σ(·), so that the eigenvalues 1 − β reach −1."""
    rule = undecided(LearnedDelta(4, 2))
    assert torch.equal(rule(TOKENS).beta, torch.ones(2, 5, dtype=torch.float64))
    nn.init.constant_(rule.to_rate.bias, 50.0)
    assert torch.equal(rule(TOKENS).beta, torch.full((2, 5), 2.0, dtype=torch.float64))


def test_ssd_decays_by_its_rate_times_its_step() -> None:
    """Dao and Gu 2024: a = −A softplus(dt), here with A = 3 and softplus(0) = ln 2."""
    weight = undecided(SSDDecay(4, 2))
    nn.init.constant_(weight.log_rate, math.log(3))
    log_decay = weight(TOKENS).log_decay
    assert torch.allclose(log_decay, torch.full_like(log_decay, -3 * math.log(2)))


@pytest.mark.parametrize("name", ["kerple-log", "kerple-power"])
def test_no_number_of_kerple_starts_below_a_hundredth(name: str) -> None:
    """Chi et al. 2022, code: clamped at 0.01, as uniform numbers of 4,000 heads would not be."""
    torch.manual_seed(0)
    bias: Any = stringlib.encoders.registry.make_bias(name, 4000)
    for numbers in (bias.r1, bias.r2):
        assert numbers.min().item() == pytest.approx(0.01, abs=1e-6)
    if name == "kerple-power":
        assert bias.r2.max().item() == pytest.approx(2 - 0.01, abs=1e-5)


WIDTHS = {
    "mlp": (4.0, "Vaswani et al. 2017, section 3.3: 2048 for 512"),
    "swiglu": (8 / 3, "Shazeer 2020: two thirds, so that three matrices have as many weights"),
}


@pytest.mark.parametrize("name", FEED_FORWARD)
def test_a_feed_forward_part_is_as_wide_as_its_source_has_it(name: str) -> None:
    assert name in WIDTHS, f"add {name!r} to WIDTHS in tests/test_source_numbers.py"
    block = Block(192, 4, mlp=name)
    assert block.mlp is not None
    assert block.mlp.to_out.in_features == 192 * WIDTHS[name][0]
    matrices = sum(p.numel() for p in block.mlp.parameters() if p.ndim == 2)
    assert matrices == 8 * 192**2  # of both kinds


@pytest.mark.parametrize("name", [name for name in FEATURES if name not in ("relu", "elu")])
def test_what_stands_for_softmax_divides_by_the_root_of_its_channels(name: str) -> None:
    """Choromanski et al. 2021: queries and keys over d^(1/4), so that products are qᵀk/√d."""
    features = make_features(name, 16)
    # a learned map finds its own scale
    assert features.scale == (1.0 if name in ("identity", "hedgehog") else 0.5)


def test_the_penalty_is_lambda_times_the_sum_of_squares() -> None:
    """Its gradient is 2λc: what it adds to that of the loss, equation eq-circulant-penalty."""
    task = make_task("recall", pairs=2)
    gradients = []
    for penalty in (0.0, 3.0):
        torch.manual_seed(0)
        model = task.model(encoder="circulant")
        learned = [m.coefficients for m in model.modules() if isinstance(m, CirculantSTRING)]
        start = learned[0].detach().clone()
        learned[0].register_hook(lambda g: gradients.append(g.clone()))
        fit(model, task, Settings(steps=1, batch_size=4, penalty=penalty, clip=None), device="cpu")
    plain, penalised = gradients
    assert torch.allclose(penalised - plain, 6 * start, atol=1e-5)
