"""Folding with the norms of queries and keys of every family of models in transformers.

The families are found in the source of the installed transformers. A family counts if a layer
normalises queries and keys between projections and rotation. Each test builds the norms by the
expressions of the layer, and compares logits, for which the norms are applied by their own code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from book import exchanged
from lab.records import read_record
from stringlib import STRING, CayleySTRING, RoPE, RotaryEncoder, foldable
from stringlib.interop.fold_norms import Folded, fold_norms
from stringlib.testing.properties import largest_difference
from tests.draws import generator, random

transformers = pytest.importorskip("transformers")

D, QUERIES, KEYS, TOKENS = 8, 4, 2, 5  # channels of a head, heads, heads of keys, positions
LENGTH = 1e3  # of inputs, so that an eps of at most 1e-5 changes a norm by 1e-11 of its length

NORMS = (
    ("q_norm", "k_norm"), ("q_layernorm", "k_layernorm"), ("query_layernorm", "key_layernorm"),
    ("q_layer_norm", "k_layer_norm"), ("qk_norm", "qk_norm"),
)  # fmt: skip
"""What a layer calls the norms of its queries and of its keys.

The norms of latent attention have other names. They normalise the latent vector, which comes before
a projection, or a vector that serves as key and as value (DeepSeek V4), so that a basis of the keys
would change the values.
"""

ROTATION = re.compile(r"apply\w*_(rot|rope|multidimensional_rope)")

SIZES = SimpleNamespace(
    head_dim=D, index_head_dim=D, hidden_size=QUERIES * D,
    num_heads=QUERIES, num_attention_heads=QUERIES, num_key_value_heads=KEYS,
    rms_norm_eps=1e-6, layer_norm_eps=1e-6, norm_eps=1e-6, use_qk_norm=True, qk_norm_type="qwen3",
)  # fmt: skip
"""What the expressions of a layer read from the layer and from its configuration."""


# --- the census ---


class Layer(NamedTuple):
    """A class that has norms of queries and keys.

    Attributes:
        family: Name of the folder of the model.
        file: Name of its file.
        kind: Name of the class.
        made: Expressions that build the norm of the queries and that of the keys.
        where: "between" projections and rotation, or why the class does not count.
    """

    family: str
    file: str
    kind: str
    made: tuple[str, str]
    where: str


def layers() -> Iterator[Layer]:
    """Yield all classes of transformers that have norms of queries and keys."""
    for path in sorted((Path(transformers.__path__[0]) / "models").glob("*/modeling_*.py")):
        text = path.read_text(encoding="utf8")
        if not any(f"self.{name} = " in text for pair in NORMS for name in pair):
            continue
        for kind in (part for part in ast.parse(text).body if isinstance(part, ast.ClassDef)):
            made = {
                ast.unparse(part.targets[0]): ast.unparse(part.value)
                for part in ast.walk(kind)
                if isinstance(part, ast.Assign)
            }
            for names in NORMS:
                q, k = (made.get(f"self.{name}", "") for name in names)
                if q and k:
                    yield Layer(
                        path.parent.name, path.stem, kind.name, (q, k), where(kind, q, names[0])
                    )


def where(kind: ast.ClassDef, made: str, norm: str) -> str:
    """Return where the norms of a class are: "between", or why the class does not count."""
    if "Index" in kind.name:
        return "chooses the keys only"
    if made == "nn.Identity()":
        return "no norm"
    calls = [(ast.unparse(part.func), part.lineno) for part in ast.walk(kind)
             if isinstance(part, ast.Call)]  # fmt: skip
    rotated = [line for name, line in calls if ROTATION.match(name)]
    if not rotated:
        return "no rotation"
    normed = [line for name, line in calls if name == f"self.{norm}"]
    return "between" if min(normed) < min(rotated) else "after the rotation"


LAYERS = [*layers()]
BETWEEN = sorted({layer.family for layer in LAYERS if layer.where == "between"})


# --- the norms, and attention with them ---


class Norms(NamedTuple):
    """The norms of queries and of keys of one layer, in float64.

    ZAYA has one module for both, which multiplies the keys of each head by one learned number.
    """

    q: nn.Module
    k: nn.Module

    @property
    def joint(self) -> bool:
        """Whether one module normalises queries and keys in one call."""
        return "key_states" in signature(self.q.forward).parameters

    @property
    def key_heads(self) -> int:
        """Number of key heads, which is the number of query heads if the norms have equal sizes."""
        return max(len(scales(self.k)) // D, KEYS)

    @property
    def kind(self) -> str:
        """For which scales a basis folds, in the words of the record of released models."""
        if self.joint or not [*self.q.parameters()]:
            return "any scales"
        x = random(QUERIES, 1, D)
        return (
            "none" if torch.allclose(applied(self.q, x), applied(self.q, x + 1)) else "equal scales"
        )

    def applied(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Return queries and keys, ``(heads, tokens, head_dim)``, after the norms."""
        if not self.joint:
            return applied(self.q, q), applied(self.k, k)
        q, k = self.q(*(x.transpose(0, 1)[None] for x in (q, k)))
        return q[0].transpose(0, 1), k[0].transpose(0, 1)

    def given(self) -> tuple[Tensor, Tensor]:
        """Return queries and keys before the norms."""
        q, k = random(QUERIES, TOKENS, D), random(self.key_heads, TOKENS, D, seed=1)
        return LENGTH * q, LENGTH * k

    def asked(self) -> tuple[nn.Module | Tensor | None, nn.Module | Tensor | None]:
        """Return what ``foldable`` is given: modules, or scales where one module is for both."""
        if self.joint:
            return None, self.q.get_parameter("temp").repeat_interleave(D)
        return self.q, self.k

    def vary(self) -> None:
        """Write random scales into the modules."""
        if self.joint:
            self.q.get_parameter("temp").data = 0.5 + random(KEYS, seed=7).abs()
            return
        for seed, norm in enumerate((self.q, self.k)):
            write(norm, 0.5 + random(len(scales(norm)), seed=seed).abs())

    def replace(self, folded: Folded) -> None:
        """Write the scales of a fold into the modules."""
        if self.kind != "any scales":
            write(self.q, folded.scale_q)
            write(self.k, folded.scale_k)
            return
        wanted = self.q.get_parameter("temp")[:, None] if self.joint else torch.ones(1, 1)
        assert torch.allclose(folded.scale_q, torch.ones(1, 1).double())
        assert torch.allclose(folded.scale_k, wanted.double())


def weights(norm: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that hold scales; StableLM has a norm for each head."""
    return [p for name, p in norm.named_parameters() if name.endswith("weight")]


def scales(norm: nn.Module) -> Tensor:
    """Return the scales of a norm as one vector, without what a class may add to its weights."""
    return torch.cat([torch.zeros(0), *(p.flatten() for p in weights(norm))])


def write(norm: nn.Module, wanted: Tensor) -> None:
    """Write scales into a norm, so that its class multiplies by them."""
    parts = weights(norm)
    if not parts:
        return
    for part in parts:
        part.zero_()
    adds = applied(norm, random(max(len(scales(norm)) // D, 1), 1, D)).abs().max() > 0
    for part, own in zip(parts, wanted.flatten().chunk(len(parts)), strict=True):
        part.copy_(own.view(part.shape) - 1.0 * adds)  # Gemma multiplies by 1 + weight


def applied(norm: nn.Module, x: Tensor) -> Tensor:
    """Return vectors, ``(heads, tokens, head_dim)``, after a norm of one head or of all heads."""
    shape = next((p.shape for p in norm.parameters()), (D,))
    if shape == (D,):
        return norm(x[None])[0]
    rows = x.transpose(0, 1)
    return norm(rows.reshape(-1, *shape)).view(rows.shape).transpose(0, 1)


def built(layer: Layer) -> Norms:
    """Return the norms of a layer, as the layer builds them."""
    module = import_module(f"transformers.models.{layer.family}.{layer.file}")
    known = vars(module) | {"self": SIZES, "config": SIZES}
    norms = Norms(*(eval(made, known).double() for made in layer.made))
    if norms.joint:
        norms = Norms(norms.q, norms.q)
        norms.vary()  # the scales begin at 0, and the logits with them
    return norms


def logits(encoder: RotaryEncoder, q: Tensor, k: Tensor) -> Tensor:
    """Return the logits of queries and keys that are normalised. Query heads may share a key."""
    q, k = encoder(q, k.repeat_interleave(len(q) // len(k), 0), 3 * random(TOKENS, 2, seed=5))
    return q @ k.mT


def turned(folded: Folded, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Return the queries and keys of projections into which the matrices of a fold are merged."""
    turn_q = folded.turn_q.repeat_interleave(len(q) // len(folded.turn_q), 0)
    return q @ turn_q.mT, k @ folded.turn_k.mT


def tolerance(norms: Norms) -> float:
    """Return the largest difference of logits that rounding explains, in units of the largest one.

    Most classes compute in float32. Before and after a fold, each of two vectors takes at most 8
    roundings, and their scales as many. A class that computes in float64 differs by its eps, which
    is at most 1e-5 and is added to squares of about ``LENGTH``, and so do the scales that it is
    asked for.
    """
    out = norms.applied(*norms.given())[0]
    narrow = torch.equal(out.float().double(), out)
    return 64 * torch.finfo(torch.float32).eps if narrow else 64 * 1e-5 / LENGTH**2


def assert_folds(encoder: RotaryEncoder, norms: Norms, within: float) -> None:
    """Fold the basis of an encoder, and compare the logits with those before."""
    assert foldable(encoder, *norms.asked())
    q, k = norms.given()
    wanted = logits(encoder, *norms.applied(q, k))
    folded = fold_norms(encoder, *norms.asked())
    norms.replace(folded)
    found = logits(folded.encoder, *norms.applied(*turned(folded, q, k)))
    assert largest_difference(found, wanted) < within * wanted.abs().max()
    without = logits(folded.encoder, *norms.applied(q, k))
    assert largest_difference(without, wanted) > 0.1 * wanted.abs().max()


def assert_refused(encoder: RotaryEncoder, norms: Norms) -> None:
    """Check that a basis does not fold, by both functions."""
    assert not foldable(encoder, *norms.asked())
    with pytest.raises(ValueError, match="encoder must have a basis that folds through"):
        fold_norms(encoder, *norms.asked())


def dense() -> CayleySTRING:
    """Return an encoder whose basis is a dense random matrix."""
    encoder = CayleySTRING(D, 2).double()
    nn.init.normal_(encoder.entries, generator=generator(3))
    return encoder


def inside() -> STRING:
    """Return an encoder with planes of two distant channels, and a basis that rotates in each."""
    within = STRING(random(1, D // 2, 1, seed=4)).matrix(torch.ones(1, 1).double())[0]
    apart = torch.arange(D).view(2, -1).T.flatten()
    return STRING(random(1, D // 2, 2, seed=6), within[:, apart.argsort()])


# --- what is tried with each family ---


@torch.no_grad()
def norms_with_scales_fold_by_their_scales(layer: Layer) -> None:
    """Equal scales, with which a class begins, fold every basis; others fold planes only."""
    within = tolerance(built(layer))
    assert_folds(dense(), built(layer), within)
    norms = built(layer)
    norms.vary()
    assert_refused(dense(), norms)
    assert_folds(inside(), norms, within)


@torch.no_grad()
def norms_without_scales_fold_every_basis(layer: Layer) -> None:
    """So do norms with one scale for each head."""
    norms = built(layer)
    within = tolerance(norms)
    norms.vary()
    assert_folds(dense(), norms, within)


@torch.no_grad()
def norms_that_subtract_a_mean_fold_after_the_mean_has_moved(layer: Layer) -> None:
    """They are refused, whatever the basis.

    Without a bias, they are norms with scales for projections from which the mean is subtracted.
    """
    norms, encoders = built(layer), (RoPE(D, layout="half").double(), inside(), dense())
    together = weights(norms.q)[0].shape == (QUERIES * D,)  # one mean of all heads
    within, over = tolerance(norms), (0, 2) if together else (2,)

    def without_mean(x: Tensor) -> Tensor:
        return x - x.mean(over, keepdim=True)

    def scaled(x: Tensor, by: Tensor) -> Tensor:
        return x / x.square().mean(over, keepdim=True).sqrt() * by.view(-1, 1, D)

    for encoder, vary in ((encoders[-1], False), (encoders[1], True)):
        if vary:
            norms.vary()
        for each in encoders:
            assert_refused(each, norms)
        q, k = norms.given()
        wanted = logits(encoder, *norms.applied(q, k))
        folded = fold_norms(encoder, scales(norms.q), scales(norms.k))
        q, k = turned(folded, without_mean(q), without_mean(k))
        found = logits(folded.encoder, scaled(q, folded.scale_q), scaled(k, folded.scale_k))
        assert largest_difference(found, wanted) < within * wanted.abs().max()
    assert not foldable(dense(), scales(norms.q), scales(norms.k))


TRIED: dict[str, Callable[[Layer], None]] = {
    "any scales": norms_without_scales_fold_every_basis,
    "equal scales": norms_with_scales_fold_by_their_scales,
    "none": norms_that_subtract_a_mean_fold_after_the_mean_has_moved,
}


@pytest.mark.parametrize("family", BETWEEN)
def test_a_basis_folds_through_the_norms_of_a_family_or_is_refused(family: str) -> None:
    for layer in (each for each in LAYERS if each[::4] == (family, "between")):
        TRIED[built(layer).kind](layer)


def test_the_census_finds_families_of_every_kind() -> None:
    assert len(BETWEEN) >= 50
    kinds = {
        "any scales": {"muse_glimmer", "neomme", "zaya"},
        "equal scales": {"qwen3", "gemma3", "olmo2", "glm4_moe", "qwen3_next", "qwen4_exp"},
        "none": {"cohere", "chameleon", "esmc", "persimmon", "phi", "stablelm"},
    }
    for kind, families in kinds.items():
        found = {each.family: built(each).kind for each in LAYERS if each.where == "between"
                 and each.family in families}  # fmt: skip
        assert found == dict.fromkeys(families, kind)
    where = {(each.family, each.where) for each in LAYERS}
    after = {"llama4", "nanochat", "hunyuan_v1_dense", "timesfm2_5", "idefics"}
    assert {(family, "after the rotation") for family in after} <= where
    assert {("blt", "no rotation"), ("qwen4_exp", "chooses the keys only")} <= where


def test_the_record_of_released_models_says_the_same() -> None:
    """The record asks models that are built small; the census finds those that are not, too."""
    record = read_record(exchanged.RECORD)["data"]
    if record["libraries"]["transformers"] != transformers.__version__:
        pytest.skip("the record is of another version of transformers")
    found: dict[str, set[str]] = {}
    for layer in LAYERS:
        if layer.where in ("between", "after the rotation"):
            kind = built(layer).kind if layer.where == "between" else "behind"
            found.setdefault(layer.family, set()).add(kind)
    told = {
        name.removeprefix("transformers: "): {*row["norms"].split(", ")}
        for name, row in record["rows"].items()
        if row.get("norms") and name.startswith("transformers: ")
    }
    assert told == {family: found[family] for family in told}
    assert {*found} - {*told} == {"dots3_note", "esmfold2", "idefics", "qwen4_exp", "zaya"}
