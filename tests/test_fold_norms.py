"""Folding through norms with scales, against attention written down and a criterion of its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from stringlib import STRING, CayleySTRING, CirculantSTRING, RoPE, RotaryEncoder, foldable
from stringlib.interop.fold_norms import Folded, fold_norms
from stringlib.testing.properties import largest_difference
from tests.draws import random
from tests.refusals import refusals

D = 8


def drawn(encoder: RotaryEncoder, seed: int = 0) -> RotaryEncoder:
    generator = torch.Generator().manual_seed(seed)
    encoder.double()
    with torch.no_grad():
        for parameter in encoder.parameters():
            if parameter.is_floating_point():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return encoder


def haar(size: int, seed: int = 0) -> Tensor:
    return torch.linalg.qr(random(size, size, seed=seed))[0]


def block(*angles: float) -> Tensor:
    turns = [[[a.cos(), -a.sin()], [a.sin(), a.cos()]] for a in torch.tensor(angles).double()]
    return torch.block_diag(*map(torch.tensor, turns))


def logits(encoder: RotaryEncoder, q: Tensor, k: Tensor, gq: Tensor, gk: Tensor) -> Tensor:
    """Return what attention sees: norms over a head, then the turn."""
    places = 3 * random(q.shape[-2], encoder.coord_dim, seed=5)
    q, k = (x / x.norm(dim=-1, keepdim=True) * g[..., None, :] for x, g in ((q, gq), (k, gk)))
    q, k = encoder(q, k, places)
    return q @ k.mT


def served(folded: Folded, q: Tensor, k: Tensor) -> Tensor:
    """Return the logits of one head that is folded."""
    turned = q @ folded.turn_q[0].mT, k @ folded.turn_k[0].mT
    return logits(folded.encoder, *turned, folded.scale_q, folded.scale_k)


def criterion(encoder: RotaryEncoder, scales: Tensor) -> bool:
    """Return whether Γ² commutes with all products of generators, for frequencies that differ."""
    made, square = encoder.generators()[0], torch.diag(scales**2)
    products = [a @ b for a in made for b in made]
    return max(largest_difference(square @ m, m @ square) for m in products) < 1e-9


OMEGA = torch.tensor([[1.0, 0.3], [0.2, -0.7], [0.05, 0.4], [0.6, 0.1]]).double()
SIGNS = torch.tensor([[1], [-1], [1], [1]])
INTO = torch.eye(D)[:, [0, 4, 1, 5, 2, 6, 3, 7]].double()
CASES: dict[str, Callable[[], tuple[RotaryEncoder, bool]]] = {
    "rope": lambda: (RoPE(D), True),
    "rope half": lambda: (RoPE(D, layout="half"), True),
    "circulant": lambda: (drawn(CirculantSTRING(D, 2)), False),
    "cayley": lambda: (drawn(CayleySTRING(D, 2)), False),
    "haar": lambda: (STRING(OMEGA[None], haar(D)[None]), False),
    # P turns inside its own planes: nothing is in the way
    "inside": lambda: (STRING(OMEGA[None], block(0.7, 1.1, -0.4, 2)[None]), True),
    "inside, spread": lambda: (STRING(OMEGA[None], (INTO @ block(0.7, 1, -0.4, 2))[None]), True),
    "two planes meet": lambda: (
        STRING(OMEGA[None], torch.block_diag(haar(4), torch.eye(4))[None]),
        False,
    ),
    # what shares a frequency, also mirrored, may be mixed by a complex map and no other
    "one frequency": lambda: (STRING(OMEGA[[0, 0, 2, 3]][None]), True),
    "mirrored": lambda: (STRING((OMEGA[[0, 0, 2, 3]] * SIGNS)[None]), True),
    "still": lambda: (STRING(OMEGA[None, :2], torch.block_diag(torch.eye(4), haar(4))[None]), True),
    "frequency 0": lambda: (
        STRING((OMEGA * torch.tensor([[1], [1], [0], [0]]))[None],
               torch.block_diag(torch.eye(4), haar(4))[None]),
        True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_basis_folds_or_is_said_not_to(case: str) -> None:
    encoder, folds = CASES[case]()
    gq, gk = 1 + random(2, D, seed=2).abs()
    assert foldable(encoder, gq, gk) == folds
    assert foldable(encoder, gq.float(), None) == folds
    if case in ("circulant", "cayley", "haar", "inside", "inside, spread", "two planes meet"):
        assert criterion(encoder, gq) == folds
    one = torch.full((D,), 1.7)
    assert foldable(encoder, one, None)
    holes = gq * (torch.arange(D) % 3 > 0)
    for scales in ((gq, gk), (holes, gk), (one.double(), 2 * one.double())):
        if not foldable(encoder, *scales):
            with pytest.raises(ValueError, match="encoder must have a basis that folds through"):
                fold_norms(encoder, *scales)
            continue
        q, k = random(2, 3, 5, D, seed=1)
        folded = fold_norms(encoder, *scales)
        assert torch.equal(folded.encoder.basis()[0], torch.eye(D).double())
        assert largest_difference(served(folded, q, k), logits(encoder, q, k, *scales)) < 1e-12
        assert largest_difference(folded.turn_q @ folded.turn_q.mT, torch.eye(D).double()) < 1e-12


@pytest.mark.parametrize("seed", range(20))
def test_the_criterion_decides_for_planes_that_keep_together_by_chance(seed: int) -> None:
    """Scales with equal entries: some random bases pass, most do not."""
    generator = torch.Generator().manual_seed(seed)
    sizes = [2, 2, 4] if seed % 2 else [4, 4]
    parts = [haar(size, seed=seed + i) for i, size in enumerate(sizes)]
    order = torch.randperm(D, generator=generator)
    encoder = STRING(OMEGA[None], torch.block_diag(*parts)[order][None])
    values = torch.randint(1, 4, (len(sizes),), generator=generator).double()
    scales = torch.cat([v.expand(s) for v, s in zip(values, sizes, strict=True)])[order]
    if seed % 3 == 0:
        scales = scales.roll(1)
    assert foldable(encoder, scales, scales) == criterion(encoder, scales)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("mix", ["complex", "real"])
def test_planes_of_one_frequency_mix_by_a_complex_map(mix: str, sign: float) -> None:
    """A unitary map of two planes folds where scales are constant in each plane."""
    unitary = torch.linalg.qr(torch.complex(random(2, 2), random(2, 2, seed=1)))[0]
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]]).double()
    whole = torch.kron(unitary.real.contiguous(), torch.eye(2))
    whole = whole + torch.kron(unitary.imag.contiguous(), turn)
    mixed = haar(4) if mix == "real" else whole
    omega = torch.tensor([[1.0], [sign]]).double()  # mirrored it is the same rotation
    encoder = STRING(omega[None], mixed[None] * torch.tensor([1.0, 1.0, 1.0, sign]))
    gamma = torch.tensor([1.0, 1.0, 2.0, 2.0]).double()
    folds = foldable(encoder, gamma, gamma)
    assert folds == (mix == "complex")
    if folds:
        q, k = random(2, 1, 5, 4)
        found = served(fold_norms(encoder, gamma, gamma), q, k)
        assert largest_difference(found, logits(encoder, q, k, gamma, gamma)) < 1e-12


def complex_linear(size: int, seed: int) -> Tensor:
    """Return an invertible matrix that commutes with the rotation of each plane."""
    parts = random(2, size, size, seed=seed)
    quarter = torch.tensor([[0.0, -1.0], [1.0, 0.0]]).double()
    return torch.kron(parts[0].contiguous(), torch.eye(2)) + torch.kron(parts[1], quarter)


def one_frequency(planes: int, seed: int, mirror: float = -1.0) -> tuple[STRING, Tensor]:
    """Return a STRING with one frequency and scales that fold with their inverses alone.

    Every other plane has the frequency ``mirror``.
    """
    inverse = torch.linalg.inv(complex_linear(planes, seed))
    squares = inverse.mT @ torch.diag(0.2 + random(2 * planes, seed=seed + 1).abs()) @ inverse
    values, vectors = torch.linalg.eigh(squares)
    signs = torch.tensor([1.0, mirror]).double()[torch.arange(planes) % 2]
    mirrored = torch.stack([torch.ones_like(signs), signs], -1).flatten()
    return STRING(signs[None, :, None], (vectors.mT * mirrored)[None]), values.sqrt()


@pytest.mark.parametrize("planes", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_queries_and_keys_may_need_different_matrices(planes: int, seed: int) -> None:
    """No single basis folds here: queries need C and keys its inverse transpose."""
    encoder, gamma = one_frequency(planes, seed)
    assert not foldable(encoder, gamma, None)
    assert not foldable(encoder, gamma, gamma)
    assert foldable(encoder, gamma, 3 / gamma)
    folded = fold_norms(encoder, gamma, 3 / gamma)
    q, k = random(2, 1, 5, 2 * planes, seed=seed)
    wanted = logits(encoder, q, k, gamma, 3 / gamma)
    assert largest_difference(served(folded, q, k), wanted) < 1e-12
    one = torch.eye(2 * planes).double()
    for turn in (folded.turn_q[0], folded.turn_k[0]):
        assert largest_difference(turn @ turn.mT, one) < 1e-12


def least_off_diagonal(encoder: STRING, gq: Tensor, gk: Tensor) -> float:
    """Search for a complex-linear C that diagonalises both squared scales; return what is left."""
    basis, planes = encoder.basis()[0], encoder.head_dim // 2
    quarter = torch.tensor([[0.0, -1.0], [1.0, 0.0]]).double()
    best = torch.inf
    for start in range(4):
        parts = random(2, planes, planes, seed=50 + start).requires_grad_()
        optimizer = torch.optim.LBFGS([parts], max_iter=200, line_search_fn="strong_wolfe")

        def left(parts: Tensor = parts) -> Tensor:
            c = torch.kron(parts[0], torch.eye(2)) + torch.kron(parts[1], quarter)
            other = torch.linalg.inv(c).mT
            total = torch.zeros(()).double()
            for matrix, gamma in ((c, gq), (other, gk)):
                inside = matrix.mT @ basis.mT @ torch.diag(gamma**2) @ basis @ matrix
                size = inside.diagonal().rsqrt()
                scaled = inside * size[:, None] * size
                total = total + (scaled - torch.diag(scaled.diagonal())).square().sum()
            return total

        def step(parts: Tensor = parts, optimizer: torch.optim.Optimizer = optimizer) -> Tensor:
            optimizer.zero_grad()
            loss = left(parts)
            loss.backward()
            return loss

        optimizer.step(step)  # type: ignore[arg-type]
        best = min(best, left(parts).item())
    return best


@pytest.mark.parametrize("seed", range(2))
def test_a_search_finds_a_fold_exactly_where_one_is_said_to_exist(seed: int) -> None:
    encoder, gamma = one_frequency(2, seed, mirror=1.0)
    for keys in (1 / gamma, gamma, torch.ones(4).double(), 0.3 + random(4, seed=seed).abs()):
        assert (least_off_diagonal(encoder, gamma, keys) < 1e-8) == foldable(encoder, gamma, keys)


class Shifted(nn.Module):
    """Gemma's norm: scales are one more than its weights, which begin at 0."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.rms_norm(x, (len(self.weight),)) * (1 + self.weight)


class Biased(nn.RMSNorm):
    """A norm with a bias so small that scales alone come close."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 5e-4


def test_a_norm_is_asked_for_its_scales() -> None:
    scales, encoder = 1 + random(D, seed=3).abs().float(), drawn(CirculantSTRING(D))
    rms = nn.RMSNorm(D)
    assert foldable(encoder, rms, rms)
    rms.weight.data = scales
    assert not foldable(encoder, rms, None)
    assert foldable(RoPE(D), rms, Shifted(scales))
    found = fold_norms(RoPE(D), rms, Shifted(scales))
    assert largest_difference(found.scale_q[0], scales.double()) < 1e-5
    assert largest_difference(found.scale_k[0], 1 + scales.double()) < 1e-5
    exact = fold_norms(RoPE(D), Shifted(scales.double() / 3), None).scale_q[0]
    assert largest_difference(exact, 1 + scales.double() / 3) < 1e-9  # in the module's own dtype
    assert foldable(encoder, Shifted(torch.zeros(D)), None)
    narrow = nn.RMSNorm(D, dtype=torch.bfloat16)
    assert foldable(encoder, narrow, narrow)
    narrow.weight.data = scales.bfloat16()
    assert foldable(RoPE(D), narrow, None)
    assert not foldable(encoder, narrow, None)
    for other in (nn.LayerNorm(D), nn.Identity(), nn.Tanh(), nn.Linear(D + 1, D), Biased(D)):
        assert not foldable(RoPE(D), other, rms)


@pytest.mark.parametrize("heads", [1, 2])
def test_a_norm_over_all_heads_has_scales_for_each(heads: int) -> None:
    """OLMo 2 divides by the length of all heads together; a key serves two queries."""
    encoder = STRING(OMEGA.expand(heads, -1, -1), block(0.7, 1.1, -0.4, 2).expand(heads, D, D))
    gq, gk = 1 + random(4 * D, seed=2).abs(), 1 + random(2 * D, seed=3).abs()
    folded = fold_norms(encoder, gq, gk)
    assert folded.turn_q.shape == (4, D, D)
    assert folded.turn_k.shape == (2, D, D)
    q, k = random(4, 5, D), random(2, 5, D, seed=1)
    for head in range(4):
        a, b = q[head : head + 1], k[head // 2 : head // 2 + 1]
        own = STRING(OMEGA[None], block(0.7, 1.1, -0.4, 2)[None])
        wanted = logits(own, a, b, gq.view(4, D)[head], gk.view(2, D)[head // 2])
        turned = a @ folded.turn_q[head].mT, b @ folded.turn_k[head // 2].mT
        scaled = folded.scale_q[head], folded.scale_k[head // 2]
        alone = STRING(folded.encoder.frequencies()[:1])
        assert largest_difference(logits(alone, *turned, *scaled), wanted) < 1e-12


@pytest.mark.parametrize("case", CASES)
def test_a_head_that_a_norm_makes_zero_folds(case: str) -> None:
    """As pruning leaves it: logits are zero before and after."""
    encoder, zero = CASES[case]()[0], torch.zeros(D)
    folded = fold_norms(encoder, zero, zero)
    assert torch.equal(folded.scale_q, torch.zeros(1, D).double())
    assert largest_difference(folded.turn_q @ folded.turn_q.mT, torch.eye(D).double()) < 1e-12
    scales = 1 + random(D, seed=2).abs()
    assert foldable(encoder, zero, scales) == foldable(encoder, None, scales)


test_what_does_not_fit_is_named = refusals(
    (lambda: foldable(RoPE(D), torch.full((D,), torch.nan), None), "norm_q must have finite scal"),
    (lambda: foldable(RoPE(D), torch.ones(D + 1), None), "norm_q must have 8 scales, .* got 9"),
    (lambda: foldable(RoPE(D, heads=2), None, torch.ones(3 * D)), "norm_k .* for 2 heads"),
    (lambda: foldable(RoPE(D), torch.ones(3 * D), torch.ones(2 * D)),
     "norm_q must have scales .* a multiple of 2 heads, got scales for 3 heads"),
)  # fmt: skip
