"""Encoders in the seams of other libraries' models, against small stand-ins of those models."""

from __future__ import annotations

import contextlib
import copy
import itertools
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune
from torch.utils.checkpoint import checkpoint

from stringlib import (
    STRING,
    AxialRoPE,
    CayleySTRING,
    CirculantSTRING,
    MixedRoPE,
    RoPE,
    RotaryEncoder,
)
from stringlib.encoders.scaling import Beyond, DynamicNTK
from stringlib.interop.adapters import KeptPatches, PatchPositions, RotaryTables, Rotated
from stringlib.positions import grid_positions
from stringlib.testing.properties import largest_difference
from tests.draws import random
from tests.refusals import refusals
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

    def forward(self, tokens: Tensor, position_ids: Tensor) -> Tensor:
        """Return the logits of attention, ``(batch, 4, n, n)``."""
        x = self.embed(tokens)
        cos, sin = self.rotary_emb(x, position_ids=position_ids)
        q, k = (
            turned(to(x).unflatten(-1, (-1, D)).transpose(1, 2), cos[:, None], sin[:, None],
                   self.layout)
            for to in (self.q_proj, self.k_proj)
        )  # fmt: skip
        logits: Tensor = q @ k.repeat_interleave(2, 1).mT
        return logits


class Attention(nn.Module):
    """Attention of a vision transformer, as timm has it."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv: nn.Module = nn.Linear(DIM, 3 * DIM)
        self.proj = nn.Linear(DIM, DIM)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).reshape(*x.shape[:2], 3, HEADS, D).permute(2, 0, 3, 1, 4).unbind(0)
        out = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.proj(out.transpose(1, 2).flatten(2))


PLACES = grid_positions(2, 3, num_prefix=1)
TURNS: dict[str, Callable[[], RotaryEncoder]] = {
    "axial": lambda: AxialRoPE(D, 2),
    "circulant": lambda: CirculantSTRING(D, 2),
    "circulant heads": lambda: CirculantSTRING(D, 2, heads=HEADS),
    "cayley heads": lambda: CayleySTRING(D, 2, heads=HEADS),
    "mixed heads": lambda: MixedRoPE(D, 2, heads=HEADS),
    "half": lambda: STRING(random(1, 3, 2), head_dim=D, layout="half"),
}
every_turn = pytest.mark.parametrize("name", TURNS)


def made(name: str) -> RotaryEncoder:
    encoder = TURNS[name]().double()
    random_parameters(encoder)
    return encoder


# tables ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("scale", [1.0, 1.25])
def test_a_decoder_turns_as_the_encoder_does(layout: str, scale: float) -> None:
    encoder = CirculantSTRING(D)
    random_parameters(encoder)
    model = Decoder(RotaryTables(encoder, layout, scale), layout).double()
    positions = torch.tensor([[0, 1, 2, 3, 4], [7, 8, 9, 11, 40]])
    tokens = torch.arange(10).view(2, 5)
    q, k = (
        to(model.embed(tokens)).unflatten(-1, (-1, D)).transpose(1, 2)
        for to in (model.q_proj, model.k_proj)
    )
    a, b = encoder(q, k.repeat_interleave(2, 1), positions[..., None])
    with torch.no_grad():
        for to in (model.q_proj, model.k_proj):
            to.weight.copy_(encoder.fold(to.weight, layout=layout))
            to.bias.copy_(encoder.fold(to.bias, layout=layout))
    found = model(tokens, positions)
    assert largest_difference(found, scale**2 * a @ b.mT) < 10 * EXACT
    found.square().sum().backward()
    assert (encoder.coefficients.grad != 0).any()


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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_tables_may_have_one_column_or_one_complex_number_a_pair(dtype: torch.dtype) -> None:
    encoder, ids, x = RoPE(D), torch.tensor([[0, 3, 50]]), torch.zeros(1, 3, 1, dtype=dtype)
    for wide in RotaryTables(encoder, "half", 1.25), RotaryTables(encoder, "interleaved", 1.25):
        columns = slice(D // 2) if wide.layout == "half" else slice(0, D, 2)
        pairs = [table[..., columns] for table in wide(x, ids)]
        assert all(map(torch.equal, RotaryTables(encoder, "pairs", 1.25)(x, ids), pairs))
    turns = RotaryTables(encoder, "complex", 1.25)(x, ids)
    assert turns.dtype == (torch.complex128 if dtype == torch.float64 else torch.complex64)
    angles = ids[..., None] * encoder.frequencies().double().squeeze()
    error = largest_difference(turns, torch.polar(torch.full_like(angles, 1.25), angles))
    assert error < (EXACT if dtype == torch.float64 else 1e-6)


def test_layer_types_have_encoders_of_their_own() -> None:
    encoders = {"full_attention": RoPE(D, base=1e6), "sliding_attention": RoPE(D)}
    tables, x, places = RotaryTables(encoders), torch.zeros(1, 6, 1), torch.arange(6)[None]
    for name, encoder in encoders.items():
        wanted = encoder.tables(places[..., None])
        assert all(map(torch.equal, tables(x, places, name), wanted))
        assert all(map(torch.equal, RotaryTables(encoder)(x, places, layer_type="any"), wanted))
    assert [*tables.encoder] == [*encoders]
    scaled = RotaryTables(encoders, scale={"full_attention": 1.25})
    for name, scale in (("full_attention", 1.25), ("sliding_attention", 1.0)):
        pairs = zip(scaled(x, places, name), tables(x, places, name), strict=True)
        assert all(largest_difference(a, scale * b) < 1e-6 for a, b in pairs)


def test_a_bfloat16_model_has_exact_angles() -> None:
    encoder = CirculantSTRING(D)
    tables = Decoder(RotaryTables(encoder, scale=1.3)).to(torch.bfloat16).rotary_emb
    far = torch.tensor([[3, 70_001, 1_000_003]])
    angles = far[..., None].double() * encoder.frequencies()[0, :, 0].double()
    cos, sin = tables(torch.zeros(1, 3, 1, dtype=torch.bfloat16), far)
    pairs = angles.shape[-1]
    assert cos.dtype == sin.dtype == torch.bfloat16
    assert torch.equal(cos[..., :pairs], (1.3 * angles.cos()).bfloat16())  # rounded once
    assert torch.equal(sin[..., D // 2 : D // 2 + pairs], (1.3 * angles.sin()).bfloat16())


# read from a module --------------------------------------------------------------------------


OMEGA = torch.tensor([[1.0, 0.0], [0.0, -0.3], [0.02, 0.0], [0.0, 0.7]])
TABLE: dict[str, Callable[[Tensor], Tensor]] = {
    "half": lambda x: torch.cat([x, x], -1),
    "interleaved": lambda x: torch.stack([x, x], -1).flatten(-2),
    "axes": lambda x: torch.cat([x[..., :2], x[..., :2], x[..., 2:], x[..., 2:]], -1),
    "pairs": lambda x: x,
    "complex": lambda x: x,
}


class Rotary(nn.Module):
    """A rotary module as other libraries write them, with all that differs between them."""

    def __init__(
        self, omega: Tensor, layout: str = "half", coordinates: str = "first",
        batched: bool = True, wide: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.register_buffer("omega", omega, persistent=False)
        self.layout, self.axes, self.batched, self.wide = layout, omega.shape[1], batched, wide
        self.last, self.attention_scaling = coordinates == "last", 1.1

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor] | Tensor:
        positions = position_ids.float()
        if self.last:
            assert positions.ndim == 2 + self.batched
            positions = positions[..., : self.axes]  # some look at no more
        else:
            positions = positions.expand(self.axes, -1, -1).movedim(0, -1)
        angles = positions @ self.get_buffer("omega").mT
        if self.layout == "complex":
            return torch.polar(torch.full_like(angles, self.attention_scaling), angles)
        tables = (
            TABLE[self.layout](w) * self.attention_scaling for w in (angles.cos(), angles.sin())
        )
        cos, sin = (t if self.wide else t.to(x.dtype) for t in tables)
        return cos, sin


class Grid(nn.Module):
    """A rotary module of as many coordinates as it is given, as towers of images have it."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.config, self.speeds = config, torch.tensor([1.0, 0.1])

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        assert position_ids.ndim == 2
        angles = (position_ids[..., None] * self.speeds).flatten(1).repeat(1, 2)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def test_a_head_says_how_many_coordinates_fit_into_it() -> None:
    given = {"hidden_size": 32, "num_attention_heads": 4}, *({"head_dim": n} for n in (8, 12, 16))
    for told, axes in zip((*given, {}), (2, 2, 3, 3, 3), strict=True):
        tables = RotaryTables.from_module(Grid(SimpleNamespace(**told)))
        assert isinstance(tables.encoder, STRING)
        assert tables.encoder.coord_dim == axes, told


def ids_for(module: Rotary, length: int = 9) -> Tensor:
    """Return positions in the shape that the module wants."""
    places = torch.randint(90, (2, length, module.axes), generator=torch.Generator().manual_seed(1))
    if module.last:
        return places if module.batched else places[0]
    return places.movedim(-1, 0) if module.axes > 1 else places[..., 0]


WAYS = {
    "text": {},
    "three": {"omega": torch.eye(3)},
    "two": {"omega": OMEGA},
    "four": {"omega": torch.eye(4), "layout": "interleaved"},
    "tower": {"omega": OMEGA, "coordinates": "last"},
    "one picture": {"omega": OMEGA, "coordinates": "last", "batched": False, "wide": True},
    "a picture of volume": {"omega": torch.eye(3), "coordinates": "last", "layout": "complex"},
    "axes": {"omega": OMEGA[[0, 2, 1, 3]], "coordinates": "last", "layout": "axes"},
    **{layout: {"layout": layout} for layout in ("interleaved", "pairs", "complex")},
    "wide": {"wide": True},
    "one pair": {"omega": torch.tensor([[0.5]])},
    "equal pairs": {"omega": OMEGA[[0, 2, 0, 2], :1], "layout": "complex"},
    "still pairs": {"omega": torch.tensor([[1.0], [0.0], [0.0]])},
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", WAYS)
def test_a_module_is_read_by_asking_it(name: str, dtype: torch.dtype) -> None:
    module = Rotary(**{"omega": OMEGA[[0, 2], :1], **WAYS[name]})  # type: ignore[arg-type]
    tables = RotaryTables.from_module(module)
    ids, x = ids_for(module), torch.zeros(1, 1, dtype=dtype)
    assert isinstance(tables.encoder, RotaryEncoder)
    # the numbers of its buffers, to the last bit
    assert torch.equal(tables.encoder.frequencies()[0], module.get_buffer("omega").double())
    assert tables.scales == {"": 1.1}
    wanted, found = module(x, ids), tables(x, ids)
    pairs = [(found, wanted)] if isinstance(wanted, Tensor) else zip(found, wanted, strict=True)
    for a, b in pairs:
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert largest_difference(a, b) < (2**-7 if a.dtype == torch.bfloat16 else 2e-5)


@pytest.mark.parametrize("to", ["float", "half", "bfloat16", "double"])
def test_what_is_read_stays_exact_when_a_model_is_converted(to: str) -> None:
    tables, x = RotaryTables.from_module(Rotary(OMEGA)), torch.zeros(1, 1)
    wanted = tables(x, ids_for(Rotary(OMEGA)))
    for converted in (getattr(tables, to)(), tables.half().float()):
        assert isinstance(converted.encoder, RotaryEncoder)
        assert torch.equal(converted.encoder.frequencies()[0], OMEGA.double())
        assert torch.equal(converted(x, ids_for(Rotary(OMEGA)))[0], wanted[0])


def test_what_a_model_reads_from_its_module_is_kept() -> None:
    module = Rotary(OMEGA)
    module.rope_type = {}  # type: ignore[assignment]  # no layer types, as ESM has it
    module.config = config = {"rope_theta": 7}  # type: ignore[assignment]
    tables = RotaryTables.from_module(module)
    assert (tables.config, tables.axes) == (config, 2)


class Longer(Rotary):
    """Slower beyond 32 tokens, by a kind of scaling that it names."""

    def __init__(self, kind: str, layer_types: bool = False) -> None:
        super().__init__(OMEGA[[0, 2], :1])
        told = {"original_max_position_embeddings": 32, "factor": 2.0}
        self.rope_type: Any = {"far": kind} if layer_types else kind
        told = {"far": told} if layer_types else told  # type: ignore[dict-item]
        self.config, self.original_max_seq_len = SimpleNamespace(rope_parameters=told), 32

    def forward(self, x: Tensor, position_ids: Tensor, layer_type: str = "") -> Any:
        assert (layer_type == "far") == isinstance(self.rope_type, dict)
        longer = position_ids.max() >= 32
        return super().forward(x, position_ids * torch.where(longer, 0.5, 1))


@pytest.mark.parametrize("layer_types", [False, True])
def test_a_module_may_slow_down_for_long_texts(layer_types: bool) -> None:
    module = Longer("longrope", layer_types)
    tables, x = RotaryTables.from_module(module), torch.zeros(1, 1)
    told = ["far"] if layer_types else []
    for length in (9, 32, 33, 50, 9):
        ids = torch.arange(length)[None]
        pairs = zip(tables(x, ids, *told), module(x, ids, *told), strict=True)
        assert all(largest_difference(a, b) < 1e-5 for a, b in pairs)


class Uneven(Rotary):
    def forward(self, x: Tensor, position_ids: Tensor) -> Any:
        cos, sin = super().forward(x, position_ids)
        return cos * torch.linspace(1, 2, cos.shape[-1]), sin


class Square(Rotary):
    def forward(self, x: Tensor, position_ids: Tensor) -> Any:
        return super().forward(x, position_ids**2)


class Ending(Rotary):
    def forward(self, x: Tensor, position_ids: Tensor) -> Any:
        return super().forward(x, position_ids.clamp(max=1000))


class Limited(Rotary):
    def forward(self, x: Tensor, position_ids: Tensor) -> Any:
        if position_ids.max() > 4096:
            raise IndexError("out of range")
        return super().forward(x, position_ids)


class Learning(Rotary):
    def __init__(self, omega: Tensor) -> None:
        super().__init__(omega)
        self.speed = nn.Parameter(torch.ones(1))


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Longer("dynamic"), "got Longer with rope_type='dynamic'"),
        (Longer("default"), "got Longer with rope_type='default'"),
        (Longer("another"), "got Longer with rope_type='another'"),
        (Ending(OMEGA), "must keep its frequencies in long texts, .* got Ending"),
        (Limited(OMEGA), "must accept long texts, got Limited with IndexError"),
        (Uneven(OMEGA[:, :1]), "a layout that RotaryTables supports, got Uneven"),
        (Square(OMEGA[:, :1]), "a layout that RotaryTables supports, got Square"),
        (nn.Identity(), "a layout that RotaryTables supports, got Identity"),
        (nn.Linear(3, 3), "a layout that RotaryTables supports, got Linear"),
        (Learning(OMEGA), "fixed frequencies, got Learning, which learns speed"),
        (Rotary(OMEGA).to("meta"), "must have values, got Rotary with buffers on the meta device"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(module: nn.Module, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RotaryTables.from_module(module)


def test_another_encoder_beyond_a_length_may_have_still_channels() -> None:
    near, beyond = CirculantSTRING(16), CirculantSTRING(16)
    random_parameters(near)
    random_parameters(beyond)
    tables, x = RotaryTables(near, longer=Beyond(beyond, 16)), torch.zeros(1, 1)
    for length, encoder in ((16, near), (17, beyond)):
        ids = torch.arange(length)
        for found, wanted in zip(tables(x, ids[None]), encoder.tables(ids[:, None]), strict=True):
            assert largest_difference(found[0], wanted) < 1e-6


def test_a_short_text_and_an_emptied_module_forget_the_longest_text() -> None:
    tables = RotaryTables(RoPE(D), longer=DynamicNTK(2.0, 16))
    given = torch.zeros(1, 1), torch.arange(20)[None]
    wanted = tables(*given)
    for length in (90, 9):  # a short text takes the frequencies back to the first ones
        tables(torch.zeros(1, 1), torch.arange(length)[None])
    assert all(torch.equal(a, b) for a, b in zip(tables(*given), wanted, strict=True))
    tables(torch.zeros(1, 1), torch.arange(90)[None])
    for emptied in (copy.deepcopy(tables), copy.deepcopy(tables).to("meta")):
        found = emptied.to_empty(device="cpu")(*given)
        assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
    assigned = copy.deepcopy(tables).to("meta")
    assigned.load_state_dict(tables.state_dict(), assign=True)
    assert not assigned.longer["for "].longest.is_meta


# projections -------------------------------------------------------------------------------------


@pytest.mark.parametrize("lead", [(), (2,), (2, 3)], ids=str)
@every_turn
def test_heads_are_turned_and_the_rest_is_left(name: str, lead: tuple[int, ...]) -> None:
    encoder, linear, x = made(name), nn.Linear(DIM, 3 * DIM).double(), random(*lead, 7, DIM)
    places = PLACES * torch.tensor([1, -0.3])
    module = Rotated(linear, encoder, places, heads=2 * HEADS)
    plain, got = linear(x), module(x)
    matrices = encoder.matrix(places.double())
    assert torch.equal(got[..., 2 * DIM :], plain[..., 2 * DIM :])
    for head, token in itertools.product(range(2 * HEADS), range(7)):
        part = slice(head * D, head * D + D)
        wanted = plain[..., token, part] @ matrices[head % len(matrices), token].mT
        assert largest_difference(got[..., token, part], wanted) < EXACT
    assert largest_difference(got[..., 0, :], plain[..., 0, :]) < EXACT  # the class token


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_trained_model_says_what_it_said(dtype: torch.dtype) -> None:
    model, x = Attention().to(dtype), random(2, 7, DIM).to(dtype)
    random_parameters(model)
    before = model(x)
    encoder = CirculantSTRING(D, 2, heads=HEADS, zero=True)
    model.qkv = Rotated(model.qkv, encoder, PLACES, heads=2 * HEADS)  # type: ignore[arg-type]
    largest = before.abs().max().item()
    assert largest_difference(model(x), before) < 20 * torch.finfo(dtype).eps * largest
    model(x).square().sum().backward()
    assert (encoder.coefficients.grad != 0).any()


@pytest.mark.parametrize("bias", [False, True])
@every_turn
def test_a_basis_is_folded_into_a_copy(name: str, bias: bool) -> None:
    model, x = Attention().double(), random(2, 7, DIM)
    linear, encoder = nn.Linear(DIM, 3 * DIM, bias=bias).double(), made(name)
    random_parameters(linear)
    kept = copy.deepcopy(linear.state_dict())
    model.qkv = module = Rotated(linear, encoder, PLACES, heads=2 * HEADS)
    before = model(x)
    model.qkv = folded = module.folded()
    assert largest_difference(model(x), before) < EXACT
    assert all(torch.equal(basis, torch.eye(D).double()) for basis in folded.encoder.basis())
    for key, value in linear.state_dict().items():
        assert torch.equal(value, kept[key])
        assert torch.equal(folded.linear.state_dict()[key][2 * DIM :], value[2 * DIM :])
    assert folded.linear.weight.requires_grad


class Added(nn.Module):
    """What a hook adds to a projection, as adapters of low rank do."""

    def forward(self, module: nn.Module, given: tuple[Tensor], projected: Tensor) -> Tensor:
        return projected + given[0]


class LowRank(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + x


def hooked(linear: nn.Linear) -> nn.Module:
    linear.register_forward_hook(Added())
    return linear


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize(
    "change",
    [
        nn.utils.parametrizations.weight_norm,
        nn.utils.weight_norm,
        lambda linear: prune.l1_unstructured(linear, "bias", 0.5),
        hooked,
        lambda linear: setattr(linear, "__class__", LowRank),
    ],
)
def test_a_projection_that_is_more_than_its_weight_is_not_folded(
    change: Callable[[nn.Linear], object],
) -> None:
    """Its basis would be overwritten at the next call, or be missing in what is added."""
    module = Rotated(nn.Linear(DIM, DIM), CirculantSTRING(D, 2), PLACES)
    module.folded()
    change(module.linear)
    module(torch.randn(7, DIM))
    with pytest.raises(ValueError, match=r"linear must be a plain nn.Linear without hooks"):
        module.folded()


@every_turn
def test_pictures_of_a_batch_may_stand_elsewhere(name: str) -> None:
    encoder, linear, x = made(name), nn.Linear(DIM, 3 * DIM).double(), random(2, 7, DIM)
    places = 3 * random(2, 7, 2, seed=3)
    together = Rotated(linear, encoder, places, heads=2 * HEADS)(x)
    for each, at, alone in zip(x, places, together, strict=True):
        wanted = Rotated(linear, encoder, at, heads=2 * HEADS)(each)
        assert largest_difference(alone, wanted) < EXACT
    called = Rotated(linear, encoder, lambda _: places, heads=2 * HEADS)
    assert torch.equal(called(x), together)
    assert largest_difference(called.folded()(x)[..., 2 * DIM :], together[..., 2 * DIM :]) == 0


@pytest.mark.parametrize("named", [False, True])
def test_who_multiplies_by_the_weight_gets_the_turn(named: bool) -> None:
    linear, x, bias = nn.Linear(DIM, DIM, bias=False).double(), random(2, 7, DIM), random(DIM)
    module = Rotated(linear, made("cayley heads"), PLACES)
    given = {"weight": module.weight, "bias": bias}
    found = nn.functional.linear(x, **given) if named else nn.functional.linear(x, *given.values())
    with_bias = nn.Linear(DIM, DIM).double()
    with_bias.weight, with_bias.bias = linear.weight, nn.Parameter(bias)
    assert torch.equal(found, Rotated(with_bias, module.encoder, PLACES)(x))
    assert torch.equal((module.weight * 2).as_subclass(Tensor), linear.weight * 2)


def test_shapes_of_pictures_are_overheard() -> None:
    embeddings = Attention()
    with pytest.raises(ValueError, match="argument must be one of x, got 'shapes'"):
        PatchPositions(embeddings, "shapes")
    places = PatchPositions(embeddings, "x")
    with pytest.raises(ValueError, match="got no call of the embedding"):
        places(torch.zeros(1, 4, 2))
    with contextlib.suppress(RuntimeError):  # shapes are none of its tokens
        embeddings(torch.tensor([[1, 3], [2, 2]]))
    found = places(torch.zeros(2, 4, DIM))
    assert found[0].tolist() == [[0, 0], [0, 1], [0, 2], [0, 0]]
    assert torch.equal(found[1], grid_positions(2, 2).double())


def overhearing() -> nn.ModuleDict:
    embeddings, linear = nn.Identity(), nn.Linear(DIM, DIM).double()
    turned = Rotated(linear, made("cayley heads"), PatchPositions(embeddings, "input"))
    return nn.ModuleDict({"embeddings": embeddings, "turned": turned})


def test_a_copy_hears_its_own_shapes() -> None:
    model = overhearing()
    model["embeddings"](torch.tensor([[2, 2]]))
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        copied["embeddings"](torch.tensor([[1, 4]]))
        there, here = (m["turned"].places(torch.zeros(1, 4, DIM)) for m in (copied, model))
        assert torch.equal(there[0], grid_positions(1, 4).double())
        assert torch.equal(here[0], grid_positions(2, 2).double())


def test_shapes_are_overheard_in_one_graph() -> None:
    model = overhearing()

    def run(x: Tensor, shapes: Tensor) -> Tensor:
        model["embeddings"](shapes)
        out: Tensor = model["turned"](x)
        return out

    given = random(2, 4, DIM), torch.tensor([[2, 2], [1, 4]])
    compiled = torch.compile(run, fullgraph=True, backend="eager")
    assert torch.equal(compiled(*given), run(*given))


def test_layers_computed_again_hear_the_shapes_of_their_picture_or_stop() -> None:
    model, x = overhearing(), random(1, 4, DIM).requires_grad_()
    module = model["turned"]

    def loss(shape: list[int], again: bool = True) -> Tensor:
        model["embeddings"](torch.tensor([shape]))
        return (checkpoint(module, x, use_reentrant=False) if again else module(x)).pow(3).sum()

    wanted = torch.autograd.grad(loss([2, 2], again=False), x)[0]
    for other in ([1, 4], [4, 1]):  # a backward pass between them
        assert torch.equal(torch.autograd.grad(loss([2, 2]), x)[0], wanted)
        assert not torch.allclose(torch.autograd.grad(loss(other), x)[0], wanted)
    first = loss([2, 2])
    with torch.no_grad():
        loss([1, 4])
    assert torch.equal(torch.autograd.grad(first, x)[0], wanted)
    both = loss([2, 2]) + loss([1, 4])
    with pytest.raises(ValueError, match="images must have the same shapes in all calls"):
        both.backward()


class PatchDrop(nn.Module):
    """Keep the class token and other patches of each image, as timm does in training."""

    def __init__(self, kept: Tensor, others: tuple[Any, ...] | None = None) -> None:
        super().__init__()
        self.kept, self.others = kept, others

    def forward(self, x: Tensor) -> Any:
        if self.training:
            x = x.gather(1, self.kept[..., None].expand(-1, -1, x.shape[-1]))
        return x if self.others is None else (x, *self.others)


KEPT = torch.tensor([[0, 3, 1], [0, 6, 5]])


def dropping(others: tuple[Any, ...] | None = None) -> nn.ModuleDict:
    drop, linear = PatchDrop(KEPT, others), nn.Linear(DIM, DIM).double()
    turned = Rotated(linear, made("cayley heads"), KeptPatches(drop, PLACES))
    return nn.ModuleDict({"drop": drop, "turned": turned})


@pytest.mark.parametrize("others", [None, (), (KEPT, "more")])
def test_kept_patches_keep_their_positions(others: tuple[Any, ...] | None) -> None:
    model, x = dropping(others), random(2, 7, DIM).requires_grad_()
    linear, encoder = model["turned"].linear, model["turned"].encoder
    for each in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        returned = each["drop"](x)
        tokens = returned if others is None else returned[0]
        assert others is None or len(returned) == 1 + len(others)
        rows = torch.stack([x[i, KEPT[i]] for i in range(2)])
        assert torch.equal(tokens, rows)
        wanted = Rotated(linear, encoder, torch.stack([PLACES[KEPT[i]] for i in range(2)]))(rows)
        found = each["turned"](tokens)
        assert largest_difference(found, wanted) < EXACT
        gradients = (torch.autograd.grad(y.pow(3).sum(), x)[0] for y in (found, wanted))
        assert largest_difference(*gradients) < EXACT
    model.eval()
    returned = model["drop"](x)
    tokens = returned if others is None else returned[0]
    assert torch.equal(tokens, x)
    assert torch.equal(model["turned"](tokens), Rotated(linear, encoder, PLACES)(x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_the_number_of_a_token_is_exact_in_every_dtype(dtype: torch.dtype) -> None:
    kept = torch.randperm(70 * 80, generator=torch.Generator().manual_seed(0))[None, :3000]
    drop, positions = PatchDrop(kept), grid_positions(70, 80) / 7
    places = KeptPatches(drop, positions)
    x = torch.randn(1, 5600, 2).to(dtype)
    tokens = drop(x)
    assert torch.equal(tokens, x[:, kept[0]])
    assert torch.equal(places(tokens), positions[kept].double())


def test_kept_patches_in_one_graph() -> None:
    model, x = dropping(), random(2, 7, DIM)

    def run(x: Tensor) -> Tensor:
        out: Tensor = model["turned"](model["drop"](x))
        return out

    compiled = torch.compile(run, fullgraph=True, backend="eager")
    assert torch.equal(compiled(x), run(x))


def test_layers_computed_again_keep_their_patches_or_stop() -> None:
    model, x = dropping(), random(2, 7, DIM).requires_grad_()

    def loss(kept: Tensor, again: bool = True) -> Tensor:
        model["drop"].kept = kept
        tokens, turned = model["drop"](x), model["turned"]
        out = checkpoint(turned, tokens, use_reentrant=False) if again else turned(tokens)
        return out.pow(3).sum()

    wanted = torch.autograd.grad(loss(KEPT, again=False), x)[0]
    for other in (KEPT.flip(0), KEPT[:, :2]):  # a backward pass between them
        assert torch.equal(torch.autograd.grad(loss(KEPT), x)[0], wanted)
        assert not torch.allclose(torch.autograd.grad(loss(other), x)[0], wanted)
    first = loss(KEPT)
    with torch.no_grad():
        loss(KEPT.flip(0))
    assert torch.equal(torch.autograd.grad(first, x)[0], wanted)
    both = loss(KEPT) + loss(KEPT.flip(0))
    with pytest.raises(ValueError, match="model must be called once between two backward passes"):
        both.backward()


def test_kept_patches_that_are_unknown() -> None:
    drop = PatchDrop(KEPT)
    places = KeptPatches(drop, PLACES)
    with pytest.raises(ValueError, match="got no call of the module"):
        places(torch.zeros(2, 3, DIM))
    with pytest.raises(ValueError, match="positions must have one row for each of the 6 tokens"):
        drop(torch.zeros(2, 6, DIM))
    with pytest.raises(ValueError, match="the tokens must have shape"):
        drop(torch.zeros(7, DIM))
    with pytest.raises(ValueError, match="positions must have shape"):
        KeptPatches(drop, PLACES[:, 0])


@pytest.mark.parametrize("places", [PLACES, PLACES.long(), PLACES.double()])
def test_positions_stay_exact_in_bfloat16(places: Tensor) -> None:
    far = places + 100_001
    module = Rotated(nn.Linear(DIM, DIM), AxialRoPE(D, 2), far)
    for moved in (module.to(torch.bfloat16), copy.deepcopy(module).float(), module.half()):
        assert moved.positions.dtype == torch.float64
        assert torch.equal(moved.positions, far.double())
    module, x = module.to(torch.bfloat16), torch.randn(7, DIM).bfloat16()
    exact = module.encoder.rotate(
        module.linear(x).double().unflatten(-1, (HEADS, D)).transpose(0, 1), far
    ).transpose(0, 1).flatten(1)  # fmt: skip
    assert module(x).dtype == torch.bfloat16
    assert largest_difference(module(x).double(), exact) < 2**-8 * exact.abs().max()
    assert module.to("meta").positions.is_meta


@pytest.mark.parametrize("make", [lambda: RoPE(D), lambda: CirculantSTRING(D)])
def test_what_a_library_sets_in_place_of_numbers_it_has_not_is_written_anew(
    make: Callable[[], RotaryEncoder],
) -> None:
    with torch.device("meta"):
        encoder = make()
    for name, parameter in make().named_parameters():
        setattr(encoder, name, nn.Parameter(parameter.detach()))
    own = [name for name, _ in encoder.named_buffers()]
    assert own
    for name in own:
        setattr(encoder, name, torch.full_like(encoder.get_buffer(name), 7, device="cpu"))
        assert torch.equal(encoder.get_buffer(name), make().get_buffer(name))
        setattr(encoder, name, torch.zeros(1))  # whoever replaces numbers means what he sets
        assert encoder.get_buffer(name) == 0


# both --------------------------------------------------------------------------------------------


def cases() -> dict[str, tuple[nn.Module, tuple[Tensor, ...]]]:
    torch.manual_seed(0)
    tokens, places = torch.arange(10).view(2, 5), torch.arange(5).expand(2, 5)
    typed = RotaryTables({"a": RoPE(D), "b": RoPE(D, base=100)})
    vision = Attention()
    vision.qkv = Rotated(vision.qkv, CirculantSTRING(D, 2, heads=HEADS), PLACES, 2 * HEADS)  # type: ignore
    mrope = RotaryTables(AxialRoPE(12, 3))
    return {
        "decoder": (Decoder(RotaryTables(CirculantSTRING(D), scale=1.1)), (tokens, places)),
        "coordinates": (mrope, (torch.zeros(2, 5, 1), places.expand(3, 2, 5))),
        "types": (typed, (torch.zeros(2, 5, 1), places, "b")),  # type: ignore
        "vision": (vision, (torch.randn(2, 7, DIM),)),
    }


@pytest.mark.parametrize(
    ("name", "how"), [*zip(cases(), itertools.cycle(("compile", "export")), strict=False)]
)
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
WEIGHT, TOKENS = Rotated(LINEAR, AxialRoPE(D, 2), PLACES).weight, torch.randn(7, DIM)


test_what_does_not_fit_is_named = refusals(
    (lambda: RotaryTables({"full": LINEAR}), "TypeError: encoder must be a RotaryEncoder"),
    (lambda: RotaryTables({"a": RoPE(D)}, scale={"a": 0}), "scale must be pos"),
    (
        lambda: RotaryTables({"a": RoPE(D)}, scale={"b": 2}),
        "scale's layer types must be one of a, got 'b'",
    ),
    (
        lambda: RotaryTables(AxialRoPE(D, 2))(X, IDS.expand(3, 1, 5)),
        r"position_ids must have shape .* \(2, batch, seq\), got \(3, 1, 5\)",
    ),
    (lambda: RotaryTables(RoPE(D))(X), "position_ids must have .* got None"),
    (
        lambda: RotaryTables(RoPE(D, heads=2)),
        "encoder must have heads=1 for tables, got heads=2",
    ),
    (
        lambda: RotaryTables({"a": RoPE(D), "b": RoPE(D)})(X, IDS, "c"),
        "layer_type must be one of a, b, got 'c'",
    ),
    (
        lambda: RotaryTables(AxialRoPE(D, 2), positions=lambda x: PLACES[:, :1])(X),
        r"positions must return .* shape \(..., seq, 2\), got \(7, 1\)",
    ),
    (
        lambda: RotaryTables(MixedRoPE(D, 3, heads=1), "axes"),
        "encoder must have a head_dim that is a multiple of 6 for layout .axes., got head_dim=8",
    ),
    (lambda: Rotated(LINEAR, RoPE(D), PLACES), "positions must have shape"),
    (lambda: Rotated(LINEAR, AxialRoPE(10, 2), PLACES), "linear must have a multiple of 10"),
    (
        lambda: Rotated(LINEAR, AxialRoPE(D, 2, heads=2), PLACES),
        "heads must be a positive multiple of 2 and at most 3, got 3",
    ),
    (
        lambda: Rotated(LINEAR, AxialRoPE(D, 2), PLACES)(torch.zeros(2, 6, DIM)),
        "positions must have shape .*n = 6, got",
    ),
    (
        lambda: Rotated(LINEAR, AxialRoPE(D, 2), PLACES.expand(2, 7, 2))(torch.zeros(3, 7, DIM)),
        r"positions must .* expand to .* got leading dimensions \(2,\) in shape \(2, 7, 2\)",
    ),
    (lambda: TOKENS @ WEIGHT.T, "weight must be used in torch.nn.functional.linear only"),
    (
        lambda: torch.addmm(TOKENS.new_zeros(1), TOKENS, WEIGHT.T),
        "weight must .* got the function addmm",
    ),
    (lambda: torch.einsum("nc,rc->nr", TOKENS, WEIGHT), "weight must .* got the function einsum"),
    (lambda: nn.functional.linear(TOKENS, WEIGHT[:4]), "weight must be the whole weight"),
)
