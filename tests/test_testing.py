"""The contract for parts of one's own finds what is wrong with them, and says it in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.nn.functional import logsigmoid

from stringlib import (
    ALiBi,
    CosineWeight,
    DecayWeight,
    ELUFeatures,
    FeatureMap,
    KerpleLog,
    PositionWeight,
    RoPE,
)
from stringlib.attention.logit_bias import TokenBias
from stringlib.attention.path import PositionSteps
from stringlib.attention.registry import FEATURES, WEIGHTS
from stringlib.attention.token_bias import ForgettingBias
from stringlib.attention.weights import ConstantWeight, Factors
from stringlib.encoders.relative_bias import RelativeBias
from stringlib.encoders.rotary import RotaryEncoder
from stringlib.precision import widen
from stringlib.testing import (
    check_bias,
    check_encoder,
    check_feature_map,
    check_position_steps,
    check_token_bias,
    check_weight,
)
from stringlib.testing.cases import token_bias_case
from stringlib.testing.contract import Contract, Property, small
from stringlib.testing.data_dependent import DATA_DEPENDENT
from stringlib.testing.modes import MODES
from tests.refusals import refusals

QUICK = ("eager", "blind", "batched")


class Own(RotaryEncoder):
    """RoPE once more, from its frequencies alone."""

    def __init__(self, head_dim: int, coord_dim: int = 1, heads: int = 1) -> None:
        super().__init__(head_dim, coord_dim, heads=heads)
        self.omega = nn.Parameter(torch.randn(heads, head_dim // 2, coord_dim))

    def frequencies(self) -> Tensor:
        return self.omega.double()


class Slanted(Own):
    """With a basis that is not orthogonal."""

    def basis(self) -> Tensor:
        return torch.eye(self.head_dim).double().expand(self.heads, -1, -1) * 1.01


class Rounded(Own):
    """With angles of few digits."""

    def frequencies(self) -> Tensor:
        return self.omega.bfloat16().double()


class Unfinished(Own):
    """With a basis that somebody meant to write later."""

    def basis(self) -> Tensor:
        raise NotImplementedError("basis: to do")


class Forgetful(Own):
    """With numbers that are in no state and come back from nowhere."""

    def __init__(self, head_dim: int, coord_dim: int = 1, heads: int = 1) -> None:
        super().__init__(head_dim, coord_dim, heads)
        self.register_buffer("base", torch.linspace(1, 2, head_dim // 2), persistent=False)

    def frequencies(self) -> Tensor:
        return self.omega.double() * self.base.double()[:, None]


class Peeking(Own):
    """That looks at its numbers, which a GPU or a compiler has not at hand."""

    def frequencies(self) -> Tensor:
        return self.omega.double() * (2.0 if self.omega.abs().max() > 100 else 1.0)


class ForOneLength(Own):
    """That holds for the number of tokens that a compiler saw first."""

    def _phases(self, positions: Any, basis: Tensor | None = None) -> Any:
        phases = super()._phases(positions, basis)
        extra = 1.0 if torch.compiler.is_compiling() and int(positions.shape[-2]) == 9 else 0.0
        return phases._replace(cos_sin=phases.cos_sin + extra)


class Uneven(FeatureMap):
    """Whose keys depend on the tokens after them."""

    def forward(self, x: Tensor, is_query: bool = True) -> Tensor:
        return torch.exp(x - x.amax((-1, -2), keepdim=True))


class Signed(FeatureMap):
    """Whose features are negative, though it says that none is."""

    def forward(self, x: Tensor, is_query: bool = True) -> Tensor:
        return x


class WithoutGradient(ELUFeatures):
    """Whose gradient is that of another function."""

    def forward(self, x: Tensor, is_query: bool = True) -> Tensor:
        return super().forward(x).detach() + (x - x.detach())


class Falling(PositionWeight):
    """0.9 to the distance, by its matrix and by factors."""

    causal_only = True
    rate = 0.9

    def matrix(self, num_queries: int, num_keys: int) -> Tensor:
        i, j = torch.arange(num_queries).double()[:, None], torch.arange(num_keys).double()
        return (0.9 ** (i - j)).tril()

    def factors(self, phi_q: Tensor, phi_k: Tensor, start: int = 0) -> Factors:
        log = phi_q.new_full((*phi_k.shape[:-1], 1), self.rate).log()
        return Factors(phi_q, phi_k, log)


class FallingOtherwise(Falling):
    """Whose factors are not those of its matrix."""

    rate = 0.8


class FromTheStart(Falling):
    """Whose factors forget how many tokens came before."""

    def matrix(self, num_queries: int, num_keys: int) -> Tensor:
        return (1 + torch.arange(num_keys).double()).expand(num_queries, -1)

    def factors(self, phi_q: Tensor, phi_k: Tensor, start: int = 0) -> Factors:
        place = 1 + torch.arange(phi_k.shape[-2], device=phi_k.device).to(phi_k.dtype)
        return Factors(phi_q, phi_k * place[:, None], None)


class Leaking(RelativeBias):
    """Whose bias depends on more than the distance."""

    def __init__(self, heads: int) -> None:
        super().__init__(heads)
        self.slope = nn.Parameter(torch.ones(heads))

    def at(self, distances: Tensor) -> Tensor:
        return self.slope[:, None] * distances.to(self.slope.dtype) / max(len(distances), 1)


class Thrifty(Leaking):
    """That is right, and made here."""

    def at(self, distances: Tensor) -> Tensor:
        if not isinstance(distances, Tensor):
            raise TypeError(f"distances must be a tensor, got {type(distances).__name__}")
        if distances.ndim != 1:
            raise ValueError(f"distances must have shape (n,), got {tuple(distances.shape)}")
        return self.slope[:, None] * distances.abs().to(self.slope.dtype)


class Gates(TokenBias):
    """FoX once more."""

    reads_keys = False

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(heads)
        self.to_gate = nn.Linear(dim, heads)

    def marks(self, tokens: Tensor) -> Tensor:
        return logsigmoid(self.to_gate(tokens)).mT[..., None]

    def forward(self, q: Tensor, k: Tensor, marks: Tensor) -> Tensor:
        sums = widen(marks[..., 0]).cumsum(-1)
        return (sums[..., sums.shape[-1] - q.shape[-2] :, None] - sums[..., None, :]).to(q.dtype)


class Wide(Gates):
    """Whose numbers are not rounded to the dtype of the queries."""

    def forward(self, q: Tensor, k: Tensor, marks: Tensor) -> Tensor:
        return super().forward(q.double(), k, marks)


class AheadOfTime(Gates):
    """Whose keys count by the sum of all gates, the later ones too."""

    def forward(self, q: Tensor, k: Tensor, marks: Tensor) -> Tensor:
        return super().forward(q, k, marks) + marks.mT * marks.sum(-2, keepdim=True)


class OfTheCall(Gates):
    """Whose marks are sums over the tokens of one call, which no state continues."""

    def marks(self, tokens: Tensor) -> Tensor:
        return super().marks(tokens).cumsum(-2)


class FromTheFirst(Gates):
    """Whose keys count by the gates of all tokens before them, of other documents too."""

    def forward(self, q: Tensor, k: Tensor, marks: Tensor) -> Tensor:
        return super().forward(q, k, marks) + (marks * marks.cumsum(-2)).mT


class Counting(Gates):
    """In which padding is a token."""

    def forward(self, q: Tensor, k: Tensor, marks: Tensor) -> Tensor:
        return super().forward(q, k, marks - 0.1)


class OfTheBatch(Gates):
    """Whose gates are compared with those of the other entries of the batch."""

    def marks(self, tokens: Tensor) -> Tensor:
        marks = super().marks(tokens)
        return marks - marks.mean(0, keepdim=True) if marks.ndim > 3 else marks


class WithoutGradientOfGates(Gates):
    """Whose gates do not learn from all that they do."""

    def marks(self, tokens: Tensor) -> Tensor:
        return (super().marks(tokens) + super().marks(tokens).detach()) / 2


class InFloat32(Gates):
    """Whose sums lose digits after many tokens."""

    def forward(self, q: Tensor, k: Tensor, marks: Tensor) -> Tensor:
        sums = marks.cumsum(-2)
        return sums[..., sums.shape[-2] - q.shape[-2] :, :] - sums.mT


class OfNothing(Gates):
    """Whose gates close to 0, of which there is no logarithm."""

    def marks(self, tokens: Tensor) -> Tensor:
        return self.to_gate(tokens).sigmoid().log().mT[..., None]


class OfOneLength(Gates):
    """That holds for the number of tokens that a compiler saw first."""

    def forward(self, q: Tensor, k: Tensor, marks: Tensor) -> Tensor:
        far = torch.compiler.is_compiling() and q.shape[-2] == 9
        return super().forward(q, k, 2 * marks if far else marks)


class Secretive(Gates):
    """That reads the keys and says that it does not."""

    def forward(self, q: Tensor, k: Tensor, marks: Tensor) -> Tensor:
        return super().forward(q, k, marks) + q @ k.mT


ONE = nn.Linear(12, 3)


class OfAllBlocks(Gates):
    """Whose numbers are those of all others of its class."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.to_gate = ONE


class Losing(Gates):
    """With numbers that are in no state and come back from nowhere."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.register_buffer("slope", torch.linspace(1, 2, heads), persistent=False)

    def forward(self, q: Tensor, k: Tensor, marks: Tensor) -> Tensor:
        return super().forward(q, k, marks * self.slope[:, None, None])


class OnTheProcessor(Gates):
    """That makes numbers where no GPU has them."""

    def forward(self, q: Tensor, k: Tensor, marks: Tensor) -> Tensor:
        return super().forward(q, k, marks) + 0 * torch.arange(k.shape[-2])


class Unchanged(torch.autograd.Function):
    """The identity, without the methods that torch.func needs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


class OfAnOldFunction(Gates):
    """Whose gradients ``torch.func`` cannot take."""

    def marks(self, tokens: Tensor) -> Tensor:
        found: Tensor = Unchanged.apply(super().marks(tokens))
        return found


class OfNeighbours(PositionSteps):
    """Whose steps depend on the token before, which the next call does not know."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + nn.functional.pad(x, (0, 0, 1, 0))[..., :-1, :])


class WithoutGradientOfSteps(PositionSteps):
    """Whose gradient is that of other steps."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + super().forward(x).detach()


class Flat(PositionSteps):
    """Whose steps have no dimension of coordinates."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).squeeze(-1)


class Nowhere(PositionSteps):
    """Which returns no coordinate."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)[..., :0]


PLANTED: dict[str, tuple[Callable[..., Any], str]] = {
    "values have the shape and dtype that a layer expects": (Wide, "eager"),
    "later tokens change no earlier output": (AheadOfTime, "eager"),
    "outputs continue from a state": (OfTheCall, "eager"),
    "packed documents have the outputs that they have alone": (FromTheFirst, "eager"),
    "padding changes nothing even if it is nan": (Counting, "eager"),
    "each entry of a batch has the output that it has alone": (OfTheBatch, "eager"),
    "gradients are the derivatives": (WithoutGradientOfGates, "eager"),
    "lower precision stays near float64": (InFloat32, "eager"),
    "zeros and large tokens give finite outputs and gradients": (OfNothing, "eager"),
    "any number of tokens and batches": (OfOneLength, "compiled"),
    "a bias reads queries and keys only if it says so": (Secretive, "eager"),
    "each call of make returns parameters of its own": (OfAllBlocks, "eager"),
    "every kind of copy says the same": (Losing, "eager"),
    "nothing is made on another device": (OnTheProcessor, "eager"),
    "torch func takes the same gradients": (OfAnOldFunction, "eager"),
}
"""Property of data-dependent parts → a bias that breaks it, and the mode in which it does."""


@pytest.mark.parametrize("property", DATA_DEPENDENT.properties, ids=lambda p: p.words)
def test_every_property_of_data_dependent_parts_finds_a_fault(property: Property) -> None:
    make, name = PLANTED[property.words]
    modes = [mode for mode in MODES if mode.name == name]
    one = Contract()
    one.properties.append(property)
    one.check(token_bias_case(Gates)[1], "Gates", modes)
    with pytest.raises(AssertionError, match=f"breaks 1 of 1 .*\n- {property.words}"):
        one.check(token_bias_case(make)[1], make.__name__, modes)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (OfNeighbours, "outputs continue from a state: an output that continues"),
        (Flat, r"the shape .*: steps must have shape \(5, 1\), got \(5,\)"),
        (WithoutGradientOfSteps, "gradients are the derivatives: "),
    ],
)
def test_wrong_steps_are_told_in_words(make: Callable[..., Any], words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        check_position_steps(make, modes=["eager"])


RIGHT: dict[str, tuple[Callable[..., None], Callable[..., Any]]] = {
    "encoder": (check_encoder, Own),
    "encoder, made": (check_encoder, lambda: RoPE(6)),
    "encoder of one coordinate": (check_encoder, RoPE),
    "bias": (check_bias, Thrifty),
    "data-dependent bias": (check_token_bias, Gates),
    "data-dependent bias of two heads": (check_token_bias, lambda: ForgettingBias(12, 2)),
    "steps": (check_position_steps, lambda dim: nn.Linear(dim, 2)),
    "bias as an encoder": (check_encoder, lambda: ALiBi(4)),
    "feature map": (check_feature_map, ELUFeatures),
    "feature map by name": (check_feature_map, FEATURES["favor-circulant"]),
    "weight": (check_weight, Falling),
    "weight of so many tokens": (check_weight, lambda: CosineWeight(40)),
    "weight of one length": (check_weight, lambda: DecayWeight(-torch.rand(3, 20))),
    "weight without factors": (check_weight, ConstantWeight),
    "weight that reads": (check_weight, WEIGHTS["ssd"]),
    "weight that reads, of a decay per feature": (check_weight, WEIGHTS["gla"]),
    "weight of learned parameters": (check_weight, lambda: DecayWeight(Parameter(-torch.rand(3)))),
}
# a compiler and an exporter treat parameters in other ways than numbers
IN_ALL_MODES = ("weight that reads, of a decay per feature", "weight of learned parameters")


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_passes(name: str) -> None:
    check, make = RIGHT[name]
    # the package's keep it in all modes: test_encoder_contract.py, test_attention_contract.py
    modes = QUICK if make in (Own, Thrifty, Falling) else ("eager",)
    check(make, modes=None if name in IN_ALL_MODES else modes)


WRONG: list[tuple[Callable[..., None], Callable[..., Any], tuple[str, ...] | None, str]] = [
    (
        check_encoder,
        Slanted,
        QUICK,
        r"rotations are orthogonal and keep norms: RᵀR − I must have an error",
    ),
    (check_encoder, Rounded, QUICK, r"gradients are the derivatives: "),
    (check_encoder, Unfinished, ("eager",), r"NotImplementedError: basis: to do"),
    (check_encoder, Forgetful, QUICK, r"numbers given to its constructor are lost"),
    (check_encoder, lambda: Peeking(4), ("blind",), r"blind: values of tensors must not be read"),
    (check_encoder, lambda: ForOneLength(4), None, r"compiled: a result for 3 times 9"),
    (check_feature_map, Uneven, QUICK, r"an output before a changed key must have an error"),
    (check_feature_map, Signed, QUICK, r"they say: features must not be negative"),
    (check_feature_map, WithoutGradient, QUICK, r"gradients are the derivatives: "),
    (check_weight, FallingOtherwise, QUICK, r"equals the dense sum: causal attention"),
    (check_weight, FromTheStart, QUICK, r"later tokens need: .* must have an error"),
    (check_bias, Leaking, QUICK, r"the distance alone: .* must have an error"),
]


@pytest.mark.parametrize(("check", "make", "modes", "words"), WRONG)
def test_what_is_wrong_is_told_in_words(
    check: Callable[..., None], make: Callable[..., Any], modes: tuple[str, ...] | None, words: str
) -> None:
    with pytest.raises(AssertionError, match=words) as raised:
        check(make, modes=modes)
    head, *lines = str(raised.value).splitlines()
    assert head.endswith("checks of its contract:")
    assert all(line.startswith("- ") for line in lines)


def test_an_error_of_nan_is_not_small() -> None:
    with pytest.raises(AssertionError, match="a score must have an error of at most 1, got nan"):
        small(float("nan"), 1.0, "a score")


test_what_cannot_be_checked_is_named = refusals(
    (lambda: check_encoder(3), "TypeError: make must be a Callable, got int"),
    (lambda: check_encoder(lambda: 3), "TypeError: must be a RotaryEncoder or a Rel"),
    (lambda: check_encoder(lambda a, b, c: RoPE(a + 1)), "one of the shapes"),
    (lambda: check_bias(lambda: RoPE(4)), "TypeError: the return value of make must be a Rel"),
    (lambda: check_bias(ForgettingBias), "TypeError: .* data-dependent.* Call check_token_bias"),
    (lambda: check_token_bias(lambda: ALiBi(3)), "TypeError: .* must be a TokenBias, got ALiBi"),
    (lambda: check_position_steps(lambda: 3), "TypeError: .* must be a Module, got int"),
    (lambda: check_position_steps(lambda: Nowhere(12)), "at least one coordinate for each token"),
    (lambda: check_feature_map(nn.Identity), "TypeError: must be a FeatureMap, got Identity"),
    (lambda: check_weight(ELUFeatures), "TypeError: must be a PositionWeight, got ELU"),
    (lambda: check_bias(KerpleLog, modes=["eagre"]), "modes must be one of eager"),
)
