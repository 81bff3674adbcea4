"""How everything that is drawn or set at the start begins: add the tensors of a new entry here.

A row makes many of a tensor's numbers at once and says their law, as its source has it. Linear
layers that no model draws anew begin as PyTorch's do, uniform within 1/√inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from typing import Any

import torch
from scipy.stats import bernoulli, chi, norm, randint, uniform
from torch import Tensor, nn

import stringlib as sl
from stringlib.algebra.skew import planar_skew
from stringlib.attention.learned import (
    GLADecay,
    KDADecay,
    LearnedToeplitz,
    RetNetDecay,
    SSDDecay,
)
from stringlib.attention.learned_delta import LearnedDelta, LearnedKDA
from stringlib.attention.path import PositionSteps
from stringlib.attention.projections import PROJECTIONS
from stringlib.attention.token_bias import ContextualBias, ForgettingBias, PathBias


def tensors(module: nn.Module) -> Iterator[tuple[tuple[str, str], nn.Module, Tensor]]:
    """Yield all that a module holds, by class and name; PyTorch's layers are their owner's."""
    own = {name: m for name, m in module.named_modules() if type(m).__module__[:5] != "torch"}
    for name, tensor in chain(module.named_parameters(), module.named_buffers()):
        prefix = max((p for p in own if not p or name.startswith(p + ".")), key=len)
        yield (type(own[prefix]).__name__, name[len(prefix) :].lstrip(".")), own[prefix], tensor


@dataclass(frozen=True)
class Start:
    """How a tensor begins.

    Attributes:
        make: What has it, with many numbers.
        law: A distribution of ``scipy.stats`` for numbers that are drawn, or the number.
        source: Where that is said, or why it is chosen.
        read: From the module that has the tensor, and the tensor, to numbers of that law.
    """

    make: Callable[[], nn.Module]
    law: Any
    source: str
    read: Callable[[Any, Tensor], Tensor] = lambda module, tensor: tensor


def between(low: float, high: float) -> Any:
    """Return the uniform law."""
    return uniform(low, high - low)


def within(most: float) -> Any:
    return between(-most, most)


DIM, DEPTH, HEADS = 64, 3, 4
PYTORCH = "ours: as torch.nn.Linear begins, uniform within 1/√inputs"
NO_LARGER = "ours: 1/√inputs, so that no layer makes its tokens larger or smaller"
RESIDUAL = "Radford et al. 2019, section 2.3: over the root of all that is added, 2 · depth"
SPHERE = "ours: a perpendicular frame from the Haar measure, as Heo et al. 2024 turn at random"


@cache
def text_model() -> sl.LanguageModel:
    """Return a language model that has all that a model can have."""
    options: dict[str, Any] = {"shift": True, "normalize_qk": True, "bias": True}
    return sl.LanguageModel(
        500, DIM, DEPTH, HEADS, gate="elementwise", tied=False, hidden=100, **options
    )


@cache
def image_model() -> sl.ViT:
    """Return a vision transformer with plain feed-forward parts."""
    return sl.ViT(32, 4, 500, DIM, DEPTH, HEADS, channels=3, hidden=100)


_text, _images = partial(Start, text_model), partial(Start, image_model)


def _projection(name: str, law: Any, source: str, **read: Any) -> Start:
    return Start(lambda: PROJECTIONS[name](16, 2000, 3), law, source, **read)


def _bits(projection: Any, signs: Tensor) -> Tensor:
    return (signs + 1) / 2


def _row_lengths(projection: Any, weight: Tensor) -> Tensor:
    return projection.matrix().norm(dim=-1)


def _inner(projection: Any, phases: Tensor) -> Tensor:
    return phases[..., 1:-1]  # both ends are real, for an even size


def _ends(projection: Any, phases: Tensor) -> Tensor:
    return phases[..., [0, -1]] / math.pi


def _directions(encoder: Any, omega: Tensor) -> Tensor:
    """Return the angles of the first pairs, over π, which a turn at random makes uniform."""
    return torch.atan2(omega[:, 0, 1], omega[:, 0, 0]) / math.pi


def _speeds(base: float) -> Callable[[Any, Tensor], Tensor]:
    """Return what lengths of two-coordinate frequencies are over what they should be."""

    def read(encoder: Any, omega: Tensor) -> Tensor:
        n = omega.shape[1] // 2  # each speed serves two directions
        return omega.norm(dim=-1) * base ** (torch.arange(2 * n) % n / n)

    return read


def _axial(encoder: Any, omega: Tensor) -> Tensor:
    """Return the frequencies of both coordinates over 100^(−t / pairs of a coordinate)."""
    n = omega.shape[1] // 2
    own = torch.cat([omega[:, :n, 0], omega[:, n:, 1]], 1)
    return own * 100 ** (torch.arange(2 * n) % n / n)


def _rope(encoder: Any, omega: Tensor) -> Tensor:
    """Return frequencies of one coordinate over RoPE's."""
    n = omega.shape[1]
    return omega[..., 0] * 10_000 ** (torch.arange(n) / n)


def _own_coordinates(encoder: Any, omega: Tensor) -> Tensor:
    """Return the frequency of each pair in its own coordinate over RoPE's; the others must be 0."""
    own = torch.diagonal(omega.flatten(0, 1))
    assert omega.count_nonzero() == own.count_nonzero()
    return _rope(encoder, own.view(*omega.shape[:2], 1))


def _mirrors(encoder: Any, angles: Tensor) -> Tensor:
    """Return the angles of both mirrors over a quarter of RoPE's speed on a grid's one axis."""
    n = angles.shape[2]
    pair = torch.arange(n)
    own = angles[:, :, pair, pair % 2] * 10_000 ** (pair / n / 2)
    return own * torch.tensor([-4.0, 4.0])[:, None, None]


def _others(encoder: Any, angles: Tensor) -> Tensor:
    """Return what the mirrors have of the coordinate that is not theirs."""
    pair = torch.arange(angles.shape[2])
    return angles[:, :, pair, 1 - pair % 2]


MANY = 4000

STARTS: dict[tuple[str, str], tuple[Start, ...]] = {
    # encoders
    ("RoPE", "_frequencies"): (
        Start(lambda: sl.RoPE(12), 1.0, "Su et al. 2024, section 3.2.2", _rope),
    ),
    ("SelectiveRoPE", "_frequencies"): (
        Start(lambda: sl.SelectiveRoPE(12, heads=3), 1.0, "Movahedi et al. 2025", _own_coordinates),
    ),
    ("AxialRoPE", "_frequencies"): (
        Start(lambda: sl.AxialRoPE(12, 2), 1.0, "Heo et al. 2024, RoPE-Axial", _axial),
    ),
    ("MixedRoPE", "omega"): (  # speeds: tests/test_mixed.py
        Start(lambda: sl.MixedRoPE(12, 2, heads=MANY), within(1), SPHERE, _directions),
    ),
    ("CayleySTRING", "omega"): (
        Start(lambda: sl.CayleySTRING(13, 2, heads=MANY), within(1), SPHERE, _directions),
        Start(lambda: sl.CayleySTRING(13, 2, heads=9), 1.0, "as RoPE-Mixed", _speeds(10)),
        Start(lambda: sl.CayleySTRING(13, 1, heads=9), 1.0, "as RoPE", _rope),
    ),
    ("CayleySTRING", "entries"): tuple(
        # S has 2 · count entries in d rows; the length of Sx is 0.1 of that of x
        Start(
            lambda size=size, density=density: sl.CayleySTRING(size, 1, heads=300, density=density),
            norm(scale=0.1 / math.sqrt(2 * count / size)),
            "ours: P moves a vector by about a fifth of its length, at any size and density",
        )
        for size, density, count in ((16, 1.0, 120), (16, 0.1, 12), (65, 0.02, 42))
    ),
    ("CayleySTRING", "support"): (
        Start(
            lambda: nn.ModuleList(sl.CayleySTRING(16, density=0.1) for _ in range(500)),
            randint(0, 120),  # positions in the matrix, in reading order
            "ours: uniformly, without replacement",
            lambda encoder, support: _place(support),
        ),
    ),
    ("CirculantSTRING", "coefficients"): (
        Start(
            lambda: sl.CirculantSTRING(30, 2, heads=100, block_size=10),
            norm(scale=0.1 / math.sqrt(20)),
            "ours: small noise, for the gradient at 0 may vanish",
        ),
        *(
            Start(
                lambda size=size, block=block: sl.CirculantSTRING(
                    size, 2, heads=100, block_size=block
                ),
                norm(scale=0.1),
                "ours: frequencies of 0.1, so that neighbours are turned by a tenth of a radian",
                lambda encoder, coefficients: encoder.frequencies(),
            )
            for size, block in ((30, 10), (64, 64))
        ),
        Start(lambda: sl.CirculantSTRING(8, zero=True), 0.0, "ours: a trained model's start"),
    ),
    ("CirculantSTRING", "_basis"): (
        Start(
            lambda: sl.CirculantSTRING(12, block_size=6),
            0.0,
            "Schenck et al. 2025, theorem 3.5: it makes every circulant matrix diagonal in planes",
            lambda encoder, basis: (
                basis.mT @ encoder.generators()[0, 0] @ basis
                - planar_skew(encoder.frequencies()[0, :, 0], 12)
            ),
        ),
    ),
    ("ReflectionSTRING", "angles"): (
        Start(lambda: sl.ReflectionSTRING(12, 2, heads=3), 1.0, "ours: as RoPE", _mirrors),
        Start(lambda: sl.ReflectionSTRING(12, 2, heads=3), 0.0, "ours: along the axes", _others),
    ),
    # biases
    ("ALiBi", "slopes"): (
        Start(
            lambda: sl.ALiBi(16),
            -8 / 16,
            "Press et al. 2022, section 3: 2^(−8h/H)",
            lambda bias, slopes: slopes.log2() / torch.arange(1, 17),
        ),
    ),
    ("T5Bias", "boundaries"): (
        Start(
            lambda: sl.T5Bias(1),
            0.0,
            "Raffel et al. 2020, code: bucket 8 + m from 8 (128 / 8)^(m / 8) on",
            lambda bias, first: (
                first
                - torch.tensor([*range(1, 8), *(math.ceil(8 * 16 ** (m / 8)) for m in range(8))])
            ),
        ),
    ),
    ("T5Bias", "weight"): (Start(lambda: sl.T5Bias(200), norm(scale=0.02), "ours: 0.02"),),
    **{
        (kind.__name__, name): (
            Start(partial(kind, MANY), between(0, most), "Chi et al. 2022, code", read),
        )
        for kind, name, most, read in (
            (sl.KerpleLog, "log_r1", 2, lambda bias, _: bias.r1),
            (sl.KerpleLog, "log_r2", 1, lambda bias, _: bias.r2),
            (sl.KerplePower, "log_r1", 1, lambda bias, _: bias.r1),
            (sl.KerplePower, "logit_r2", 2, lambda bias, _: bias.r2),
        )
    },
    # features
    ("IidProjection", "weight"): (_projection("iid", norm(), "Choromanski et al. 2021, lemma 1"),),
    **{
        (f"{name.capitalize()}Projection", "weight"): (
            _projection(name, norm(), f"{source}: a row is Gaussian"),
            _projection(name, chi(16), f"{source}: of χ_d", read=_row_lengths),
        )
        for name, source in (("orthogonal", "Yu et al. 2016"), ("simplex", "Reid et al. 2023"))
    },
    ("HadamardProjection", "diagonals"): (
        _projection("hadamard", bernoulli(0.5), "Yu et al. 2016", read=_bits),
    ),
    ("HadamardProjection", "lengths"): (
        _projection("hadamard", chi(16), "ours: of χ_D, where Yu et al. 2016 have √d"),
    ),
    ("SimplexHadamardProjection", "diagonals"): (
        _projection(
            "simplex-hadamard",
            bernoulli(0.5),
            "as hadamard, but for the first entry, which is 0",
            read=lambda _, signs: _bits(_, signs[..., 1:].sign()),
        ),
    ),
    ("SimplexHadamardProjection", "lengths"): (
        _projection("simplex-hadamard", chi(16), "as hadamard"),
    ),
    ("CirculantProjection", "column"): (_projection("circulant", norm(), "Yu et al. 2014, eq. 3"),),
    ("CirculantProjection", "signs"): (
        _projection("circulant", bernoulli(0.5), "Yu et al. 2014", read=_bits),
    ),
    **{
        (f"{kind}CirculantProjection", part): tuple(
            _projection(f"{kind.lower()}-circulant", law, source, **read)
            for law, source, read in rows
        )
        for kind in ("Unit", "Simplex")
        for part, rows in {
            "phases": (
                (between(0, 2 * math.pi), "Romberg 2009", {"read": _inner}),
                (bernoulli(0.5), "Romberg 2009: signs", {"read": _ends}),
            ),
            "signs": ((bernoulli(0.5), "as circulant", {"read": _bits}),),
            "lengths": ((chi(16), "as orthogonal, χ_d", {}),),
        }.items()
    },
    ("FavorFeatures", "alpha"): (
        Start(
            lambda: sl.make_features("favor-optimal", 16),
            # ζ = 2√d is the mean of ‖x + y‖² for channels of variance 1, scaled by d^(−1/4); ρ is
            # the root of 2ζρ² + (2ζ + d)ρ − d for ζ/d = 1/2: ρ² + 2ρ = 1
            (1 - 1 / (math.sqrt(2) - 1)) / 8,
            "Likhosherstov et al. 2022; independent channels are ours",
        ),
    ),
    # weights
    ("RetNetDecay", "log_decay"): (
        Start(
            lambda: RetNetDecay(8),
            1.0,
            "Sun et al. 2023: γ = 1 − 2^(−5−h)",
            lambda weight, log: -log.expm1() * 2.0 ** torch.arange(5, 13),
        ),
    ),
    ("GLADecay", "down.weight"): (Start(lambda: GLADecay(400, 8, 16), within(1 / 20), PYTORCH),),
    ("GLADecay", "up.weight"): (
        Start(lambda: GLADecay(4, 50, 16), within(1 / 4), PYTORCH + ", of rank 16"),
    ),
    ("GLADecay", "up.bias"): (
        Start(lambda: GLADecay(4, 200, 16), within(1 / 4), PYTORCH + ", of rank 16"),
    ),
    ("SSDDecay", "log_rate"): (
        Start(
            lambda: SSDDecay(2, MANY),
            between(1, 16),
            "Dao and Gu 2024, code: A_init_range",
            lambda weight, log_rate: log_rate.exp(),
        ),
    ),
    ("SSDDecay", "to_step.weight"): (Start(lambda: SSDDecay(25, 200), within(1 / 5), PYTORCH),),
    ("SSDDecay", "to_step.bias"): (
        Start(
            lambda: SSDDecay(2, MANY),
            between(math.log(0.001), math.log(0.1)),
            "Dao and Gu 2024, code: dt_min, dt_max",
            lambda weight, bias: nn.functional.softplus(bias).log(),
        ),
    ),
    ("LearnedDelta", "to_rate.weight"): (
        Start(lambda: LearnedDelta(25, 200), within(1 / 5), PYTORCH),
    ),
    ("LearnedDelta", "to_rate.bias"): (
        Start(lambda: LearnedDelta(25, MANY), within(1 / 5), PYTORCH),
    ),
    ("LearnedKDA", "to_rate.weight"): (
        Start(lambda: LearnedKDA(25, 200, 3), within(1 / 5), PYTORCH),
    ),
    ("LearnedKDA", "to_rate.bias"): (
        Start(lambda: LearnedKDA(25, MANY, 3), within(1 / 5), PYTORCH),
    ),
    ("KDADecay", "log_rate"): (
        Start(
            lambda: KDADecay(2, MANY, 1),
            between(1, 16),
            "Kimi Team 2025, fla's code: A_log",
            lambda weight, log_rate: log_rate.exp(),
        ),
    ),
    ("KDADecay", "down.weight"): (Start(lambda: KDADecay(400, 8, 16), within(1 / 20), PYTORCH),),
    ("KDADecay", "up.weight"): (
        Start(lambda: KDADecay(4, 50, 16), within(1 / 4), PYTORCH + ", of rank 16"),
    ),
    ("KDADecay", "up.bias"): (
        Start(
            lambda: KDADecay(2, MANY, 1),
            between(math.log(0.001), math.log(0.1)),
            "Kimi Team 2025, fla's code: dt_bias",
            lambda weight, bias: nn.functional.softplus(bias).log(),
        ),
    ),
    ("HedgehogFeatures", "weight"): (
        Start(
            lambda: sl.make_features("hedgehog", 30),
            1.0,
            "Zhang et al. 2024: the identity",
            lambda features, weight: weight - torch.eye(30) + 1,
        ),
    ),
    ("LearnedToeplitz", "bias"): (
        Start(lambda: LearnedToeplitz(200, 11), norm(scale=0.02), "ours: 0.02, as T5's"),
        Start(lambda: LearnedToeplitz(40, grid=(5, 6)), norm(scale=0.02), "ours: 0.02, as T5's"),
    ),
    # data-dependent biases and positions
    **{
        ("ForgettingBias", f"to_gate.{part}"): (
            Start(lambda: ForgettingBias(25, MANY), within(1 / 5), PYTORCH),
        )
        for part in ("weight", "bias")
    },
    ("PathBias", "to_vector.weight"): (Start(lambda: PathBias(25, 50, 8), within(1 / 5), PYTORCH),),
    **{
        ("PathBias", f"to_rate.{part}"): (
            Start(lambda: PathBias(25, MANY, 1), within(1 / 5), PYTORCH),
        )
        for part in ("weight", "bias")
    },
    ("ContextualBias", "vectors"): (
        Start(lambda: ContextualBias(2, 8), 0.0, "Golovneva et al. 2024, code: zeros"),
    ),
    **{
        ("PositionSteps", f"to_steps.{part}"): (
            Start(lambda: PositionSteps(25, 2), number, "ours: each token moves on by one"),
        )
        for part, number in (("weight", 0.0), ("bias", 1.0))
    },
    # layers
    **{
        ("MultiHeadAttention", f"{name}.weight"): (_text(norm(scale=DIM**-0.5), NO_LARGER),)
        for name in ("to_q", "to_k", "to_v")
    },
    ("MultiHeadAttention", "to_out.weight"): (
        _text(norm(scale=(DIM * 2 * DEPTH) ** -0.5), RESIDUAL),
    ),
    **{
        ("MultiHeadAttention", f"{name}.bias"): (_text(0.0, NO_LARGER),)
        for name in ("to_q", "to_k", "to_v", "to_out")
    },
    ("MultiHeadAttention", "log_temperature"): (_text(0.0, "Luo et al. 2021: no temperature"),),
    ("Gate", "to_gate.weight"): (_text(norm(scale=DIM**-0.5), NO_LARGER),),
    ("KeyShift", "logit"): (_text(0.0, "ours: both keys count half"),),
    ("SwiGLU", "to_gate.weight"): (_text(norm(scale=DIM**-0.5), NO_LARGER),),
    ("SwiGLU", "to_hidden.weight"): (_text(norm(scale=DIM**-0.5), NO_LARGER),),
    ("SwiGLU", "to_out.weight"): (_text(norm(scale=(100 * 2 * DEPTH) ** -0.5), RESIDUAL),),
    ("MLP", "to_hidden.weight"): (_images(norm(scale=DIM**-0.5), NO_LARGER),),
    ("MLP", "to_hidden.bias"): (_images(0.0, NO_LARGER),),
    ("MLP", "to_out.weight"): (_images(norm(scale=(100 * 2 * DEPTH) ** -0.5), RESIDUAL),),
    ("MLP", "to_out.bias"): (_images(0.0, NO_LARGER),),
    **{
        (owner, f"{name}.{part}"): (make(number, "Ba et al. 2016: no change"),)
        for owner, name, make in (
            ("Block", "norm_attention", _text),
            ("Block", "norm_mlp", _text),
            ("LanguageModel", "norm", _text),
            ("ViT", "norm", _images),
        )
        for part, number in (("weight", 1.0), ("bias", 0.0))
    },
    # models
    ("LanguageModel", "embed.weight"): (
        _text(norm(scale=DIM**-0.5), "Vaswani et al. 2017, section 3.4: over √dim, about 1 long"),
    ),
    ("LanguageModel", "readout.weight"): (_text(norm(scale=DIM**-0.5), NO_LARGER),),
    ("ViT", "embed.weight"): (_images(norm(scale=48**-0.5), NO_LARGER + "; 3 · 4 · 4 of a patch"),),
    ("ViT", "embed.bias"): (_images(0.0, NO_LARGER),),
    ("ViT", "readout.weight"): (_images(norm(scale=DIM**-0.5), NO_LARGER),),
    ("ViT", "readout.bias"): (_images(0.0, NO_LARGER),),
    ("ViT", "cls"): (
        Start(
            lambda: nn.ModuleList(sl.ViT(4, 4, 2, 25, 1, 1, mlp=None) for _ in range(60)),
            norm(scale=1 / 5),
            "ours: about 1 long, as a token is",
        ),
    ),
    ("LearnedAbsolute", "weight"): (
        Start(lambda: sl.LearnedAbsolute(50, 60), norm(scale=0.02), "ours: 0.02"),
    ),
    ("GridTable", "weight"): (
        Start(
            lambda: sl.ViT((12, 10), 1, 2, 24, 1, 1, encoder="learned"),
            norm(scale=0.02),
            "ours: 0.02",
        ),
    ),
}
"""Class and name of a tensor → how it begins."""


def _place(support: Tensor) -> Tensor:
    """Return which of the 120 places above the diagonal of a 16 × 16 matrix, in reading order."""
    number = torch.full((16, 16), -1)
    rows, columns = torch.triu_indices(16, 16, offset=1)
    number[rows, columns] = torch.arange(120)
    return number[tuple(support)]
