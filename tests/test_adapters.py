"""Encoders in the seams of other libraries' models, against small stand-ins of those models."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from stringlib import (
    AxialRoPE,
    CirculantSTRING,
    RoPE,
)
from stringlib.adapters import RotaryTables
from stringlib.checks import largest_difference
from tests.draws import random
from tests.test_convert import turned

DIM, HEADS, D = 24, 3, 8
EXACT = 1e-12


def random_parameters(module: nn.Module) -> None:
    torch.manual_seed(0)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.4)


class Decoder(nn.Module):
    """One layer of a language model, as transformers has it: four query heads, two of keys."""

    def __init__(self, rotary_emb: nn.Module, layout: str = "half") -> None:
        super().__init__()
        self.embed = nn.Embedding(11, DIM)
        self.q_proj, self.k_proj = nn.Linear(DIM, 4 * D), nn.Linear(DIM, 2 * D)
        self.rotary_emb, self.layout = rotary_emb, layout

    def forward(
        self, tokens: Tensor, position_ids: Tensor, cache: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the logits of attention ``(batch, 4, n, keys)``, and all keys."""
        x = self.embed(tokens)
        cos, sin = self.rotary_emb(x, position_ids=position_ids)
        q, k = (
            turned(to(x).unflatten(-1, (-1, D)).transpose(1, 2), cos[:, None], sin[:, None],
                   self.layout)
            for to in (self.q_proj, self.k_proj)
        )  # fmt: skip
        k = k if cache is None else torch.cat([cache, k], -2)
        return q @ k.repeat_interleave(2, 1).mT, k


# tables ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("scale", [1.0, 1.25])
def test_a_decoder_turns_as_the_encoder_does(layout: str, scale: float) -> None:
    encoder = CirculantSTRING(D)
    random_parameters(encoder)
    model = Decoder(RotaryTables(encoder, layout, scale), layout).double()
    positions, tokens = torch.tensor([[0, 1, 2, 3, 4], [7, 8, 9, 11, 40]]), torch.arange(10)
    tokens = tokens.view(2, 5)
    q, k = (
        to(model.embed(tokens)).unflatten(-1, (-1, D)).transpose(1, 2)
        for to in (model.q_proj, model.k_proj)
    )
    a, b = encoder(q, k.repeat_interleave(2, 1), positions[..., None])
    with torch.no_grad():
        for to in (model.q_proj, model.k_proj):
            to.weight.copy_(encoder.fold(to.weight, layout=layout))
            to.bias.copy_(encoder.fold(to.bias, layout=layout))
    assert largest_difference(model(tokens, positions)[0], scale**2 * a @ b.mT) < 10 * EXACT


def test_step_by_step_equals_the_whole() -> None:
    model, tokens = Decoder(RotaryTables(RoPE(D))).double(), torch.arange(10).view(2, 5)
    positions = torch.arange(5)[None]
    whole, _ = model(tokens, positions)
    cache = None
    for t in range(5):
        row, cache = model(tokens[:, t : t + 1], positions[:, t : t + 1], cache)
        assert largest_difference(row[..., 0, :], whole[..., t, : t + 1]) < EXACT


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_coordinates_come_first(layout: str) -> None:
    encoder, x = AxialRoPE(12, 3), random(2, 5, 1)
    places = torch.randint(50, (3, 2, 5))
    cos, sin = RotaryTables(encoder, layout)(x, places)
    wanted = encoder.tables(torch.stack([*places], -1), layout, torch.float64)
    assert torch.equal(cos, wanted[0])
    assert torch.equal(sin, wanted[1])
    text = RotaryTables(encoder, layout)(x, places[0])  # one number for all three
    assert all(map(torch.equal, text, RotaryTables(encoder, layout)(x, places[:1].repeat(3, 1, 1))))


def test_layer_types_have_encoders_of_their_own() -> None:
    encoders = {"full_attention": RoPE(D, base=1e6), "sliding_attention": RoPE(D)}
    tables, x, places = RotaryTables(encoders), torch.zeros(1, 6, 1), torch.arange(6)[None]
    for name, encoder in encoders.items():
        wanted = encoder.tables(places[..., None])
        assert all(map(torch.equal, tables(x, places, name), wanted))
        assert all(map(torch.equal, RotaryTables(encoder)(x, places, layer_type="any"), wanted))
    assert [*tables.encoder] == [*encoders]


def test_a_bfloat16_model_has_exact_angles() -> None:
    encoder = CirculantSTRING(D)
    tables = Decoder(RotaryTables(encoder)).to(torch.bfloat16).rotary_emb
    far = torch.tensor([[3, 70_001, 1_000_003]])
    angles = far[..., None].double() * encoder.frequencies()[0, :, 0].double()
    cos, sin = tables(torch.zeros(1, 3, 1, dtype=torch.bfloat16), far)
    pairs = angles.shape[-1]
    assert cos.dtype == sin.dtype == torch.bfloat16
    assert torch.equal(cos[..., :pairs], angles.cos().bfloat16())
    assert torch.equal(sin[..., D // 2 : D // 2 + pairs], angles.sin().bfloat16())
    fixed = RotaryTables(RoPE(D)).to(torch.bfloat16)
    assert fixed.encoder.frequencies().dtype == torch.float64


def test_frequencies_learn_through_tables() -> None:
    model = Decoder(RotaryTables(CirculantSTRING(D))).double()
    model(torch.arange(10).view(2, 5), torch.arange(5)[None])[0].square().sum().backward()
    gradient = model.rotary_emb.encoder.coefficients.grad
    assert gradient is not None
    assert (gradient != 0).any()


def test_tables_lie_where_the_tokens_do() -> None:
    tables = RotaryTables(RoPE(D)).to("meta")
    cos, _ = tables(torch.zeros(2, 5, 1, device="meta"), torch.arange(5)[None])
    assert (cos.device.type, cos.shape) == ("meta", (1, 5, D))


# both --------------------------------------------------------------------------------------------


def cases() -> dict[str, tuple[nn.Module, tuple[Tensor, ...]]]:
    torch.manual_seed(0)
    tokens, places = torch.arange(10).view(2, 5), torch.arange(5).expand(2, 5)
    typed = RotaryTables({"a": RoPE(D), "b": RoPE(D, base=100)})
    mrope = RotaryTables(AxialRoPE(12, 3))
    return {
        "decoder": (Decoder(RotaryTables(CirculantSTRING(D), scale=1.1)), (tokens, places)),
        "fixed decoder": (Decoder(RotaryTables(RoPE(D))), (tokens, places)),
        "coordinates": (mrope, (torch.zeros(2, 5, 1), places.expand(3, 2, 5))),
        "types": (typed, (torch.zeros(2, 5, 1), places, "b")),  # type: ignore
    }


@pytest.mark.parametrize("name", cases())
@pytest.mark.parametrize("how", ["compile", "export"])
def test_one_graph(name: str, how: str) -> None:
    module, given = cases()[name]
    wanted = module(*given)
    if how == "compile":
        torch.compiler.reset()
        found = torch.compile(module, fullgraph=True, backend="aot_eager")(*given)
    else:
        found = torch.export.export(module, given).module()(*given)
    pairs = [(found, wanted)] if isinstance(wanted, Tensor) else zip(found, wanted, strict=True)
    for got, want in pairs:
        assert got.dtype == want.dtype
        assert largest_difference(got, want) < 1e-5


LINEAR = nn.Linear(DIM, DIM)
IDS, X = torch.arange(5)[None], torch.zeros(1, 5, 1)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: RotaryTables(LINEAR), TypeError, "encoder must be a RotaryEncoder, got Linear"),
        (lambda: RotaryTables({"full": LINEAR}), TypeError, "encoder must be a RotaryEncoder"),
        (lambda: RotaryTables(RoPE(D), "both"), ValueError, "layout must be one of"),
        (lambda: RotaryTables(RoPE(D), scale=0), ValueError, "scale must be positive"),
        (lambda: RotaryTables(RoPE(D))(IDS, IDS), TypeError, "x must be a floating-point tensor"),
        (lambda: RotaryTables(RoPE(D))(X, [0]), TypeError, "position_ids must be a tensor"),
        (
            lambda: RotaryTables(RoPE(D))(X, IDS[0]),
            ValueError,
            r"position_ids must have shape \(batch, seq\) or \(1, batch, seq\), got \(5,\)",
        ),
        (
            lambda: RotaryTables(AxialRoPE(D, 2))(X, IDS.expand(3, 1, 5)),
            ValueError,
            r"position_ids must have shape .* \(2, batch, seq\), got \(3, 1, 5\)",
        ),
        (lambda: RotaryTables(RoPE(D, heads=2))(X, IDS), ValueError, "heads must be 1 for tables"),
        *[
            (
                lambda asked=asked: RotaryTables({"a": RoPE(D), "b": RoPE(D)})(X, IDS, asked),
                ValueError,
                f"layer_type must be one of a, b, got {asked!r}",
            )
            for asked in (None, "c")
        ],
    ],
)
def test_what_does_not_fit_is_named(
    call: Callable[[], object], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        call()
