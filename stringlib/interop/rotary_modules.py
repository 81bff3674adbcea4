"""What another library's rotary module does, found out by asking it.

Such a module makes cosines and sines of positions. One small step along each coordinate shows its
frequencies, and its buffers hold the same numbers exactly. How positions are handed over and how
the tables are laid out is tried, and held to the module at other positions, near and far: what fits
all of them is taken, and what fits none is refused by name. No library is imported.
"""

from __future__ import annotations

import copy
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from stringlib.encoders.scaling import Beyond, DynamicNTK
from stringlib.encoders.string import STRING
from stringlib.inputs import Layout
from stringlib.precision import widen

Coordinates = Literal["first", "last"]
Tables = Literal["half", "interleaved", "axes", "pairs", "complex"]

STEP = 2.0**-6  # no pair turns half round in it, and products with a power of two are exact
CLOSE = 1e-5  # float32 knows angles at positions below 8 better than this
FAR = 1 << 20  # a position beyond nearly all lengths of training


class Way(NamedTuple):
    """How positions are handed to a module.

    Attributes:
        coord_dim: How many coordinates a token has.
        coordinates: Whether they are the first dimension or the last.
        batched: Whether there is a dimension for the batch.
    """

    coord_dim: int
    coordinates: Coordinates = "first"
    batched: bool = True

    def shape(self, positions: Tensor) -> Tensor:
        """Return positions ``(seq, coord_dim)`` as the module wants them."""
        if self.coordinates == "last":
            return positions[None] if self.batched else positions
        return positions.mT if self.coord_dim == 1 else positions.mT[:, None]


# one coordinate at the end: a module of three takes it for all three
WAYS = [Way(c) for c in (3, 2, 4)]
WAYS += [Way(c, "last", batched) for batched in (False, True) for c in (3, 2)]
WAYS += [Way(1)]


class Form(NamedTuple):
    """How a module makes its tables, whatever is in them.

    Attributes:
        layout: How columns belong to pairs.
        coordinates: Where several coordinates stand in positions.
        wide: Whether they are float32 where tokens are bfloat16.
    """

    layout: Tables
    coordinates: Coordinates
    wide: bool


class Found(NamedTuple):
    """What a module does, at one of its layer types.

    Attributes:
        form: Of its tables.
        encoder: Its frequencies.
        scale: What multiplies cosines and sines.
        longer: What a long text changes.
    """

    form: Form
    encoder: STRING
    scale: float
    longer: Beyond | DynamicNTK | None = None


@torch.no_grad()
def find(module: nn.Module, layer_type: str | None = None) -> Found:
    """Return what a rotary module does.

    Args:
        module: Called with tokens and positions, and with a layer type where it has several.
        layer_type: That type.

    Raises:
        ValueError: If it has no numbers, turns as no encoder does, or changes for long texts in an
            unknown way.
    """
    if any(each.is_meta for each in module.buffers()):
        raise ValueError("rotary_emb must have its numbers, got one on the meta device")
    for way in WAYS:
        asked = _Asked(module, way, layer_type)
        try:
            found = asked.found()
        except Exception:  # whatever a module says to a way of asking that is not its own
            continue
        if found is None:
            continue
        if learned := [name for name, _ in module.named_parameters()]:
            raise ValueError(
                f"rotary_emb must have fixed frequencies, got {type(module).__name__}, which "
                f"learns {', '.join(learned)}: write its encoder down"
            )
        return found._replace(longer=asked.longer(found))
    raise ValueError(
        "rotary_emb must make cosines and sines of tokens and their positions, got "
        f"{type(module).__name__}, which does not: write its encoder down"
    )


class _Asked(NamedTuple):
    """A module, and a way to ask it."""

    module: nn.Module
    way: Way
    layer_type: str | None

    def found(self, last: int = 0) -> Found | None:
        """Return what the module does in a text with a token at ``last``; None if no rotation."""
        axes = self.way.coord_dim
        module = copy.deepcopy(self.module).cpu()
        # a long text changes some, and a short one changes them back
        self._answer(module, torch.zeros(1, axes), torch.float32)
        steps = torch.cat([torch.zeros(1, axes), STEP * torch.eye(axes)])
        others = torch.arange(5.0 * axes).view(5, axes) * 1.7 % 7
        positions = torch.cat([steps, others, torch.full((1, axes), float(last))])
        answer = self._answer(module, positions, torch.float32)
        narrow = self._answer(module, positions, torch.bfloat16)
        turns = answer if isinstance(answer, Tensor) else torch.complex(*map(Tensor.float, answer))
        if turns.numel() != len(positions) * turns.shape[-1]:
            return None
        table = turns.to(torch.complex128).reshape(len(positions), -1)
        layout, pairs = _one_a_pair(table, axes)
        if turns is answer:
            layout, pairs = "complex", table
        start, stepped, rest, end = pairs.split([1, axes, 5, 1])
        scale, omega = _exact(start[0].real, module), _exact(stepped.angle().mT / STEP, module)
        error = (torch.polar(scale.expand(5, -1), widen(others) @ omega.mT) - rest).abs().max()
        if (scale != scale[0]).any() or not error < CLOSE:
            return None
        angles = last * omega.sum(1)  # as far as float32 knows them
        gaps = (torch.polar(scale, angles) - end).abs() / scale.abs()
        if (gaps > CLOSE + 2.0**-20 * last * omega.abs().sum(1)).any():
            return None
        if self.way.coordinates == "last" and (omega == 0).all(0).any():
            return None  # a module of two coordinates leaves a third one where it is
        if self.way.coordinates == "last" and 2 * len(omega) > _head_dim(module):
            return None  # a module of any number of coordinates is asked for too many
        own: Layout = "interleaved" if layout == "interleaved" else "half"
        # a model's checkpoints have no frequencies
        encoder = STRING(omega[None], layout=own, persistent=False)
        wide = layout != "complex" and narrow[0].dtype == torch.float32
        form = Form(layout, self.way.coordinates, wide)
        return Found(form, encoder, scale[0].item())

    def longer(self, near: Found) -> Beyond | DynamicNTK | None:
        """Return what a long text changes, or raise if that is unknown."""
        kind: Any = getattr(self.module, "rope_type", "")
        told: Any = getattr(self.module, "config", None)
        told = getattr(told, "rope_parameters", {})
        if self.layer_type is not None:
            kind, told = kind[self.layer_type], told[self.layer_type]
        told_length: Any = getattr(self.module, "original_max_seq_len", 1)
        trained = (told or {}).get("original_max_position_embeddings") or told_length
        beyond = max(FAR, 4 * int(trained))
        far = self.found(beyond)
        if far is not None and _same(far, near.encoder.frequencies(), near.scale):
            return None
        if far is not None and "dynamic" in kind:
            longer: Beyond | DynamicNTK = DynamicNTK(told["factor"], int(told_length))
        elif far is not None and kind == "longrope":
            longer = Beyond(far.encoder, told["original_max_position_embeddings"], far.scale)
        else:
            raise self._unknown(kind)
        for last in (longer.length - 1, longer.length, beyond):
            found, fresh = self.found(last), copy.deepcopy(longer)
            wanted = fresh(near.encoder.frequencies(), near.scale, torch.tensor(last + 1))
            if found is None or not _same(found, *wanted):
                raise self._unknown(kind)
        return longer

    def _unknown(self, kind: str) -> ValueError:
        return ValueError(
            "rotary_emb must turn long texts as short ones, or by LongRoPE or dynamic NTK scaling, "
            f"got {type(self.module).__name__} with rope_type={kind!r}"
        )

    def _answer(self, module: nn.Module, positions: Tensor, dtype: torch.dtype) -> Any:
        told = [] if self.layer_type is None else [self.layer_type]
        x = torch.zeros(1, len(positions), 1, dtype=dtype)
        return module(x, self.way.shape(positions), *told)


def _head_dim(module: nn.Module) -> float:
    """Return how many channels a head has by the module's configuration, if that says it."""
    told: Any = getattr(module, "config", None)
    width, heads = getattr(told, "hidden_size", None), getattr(told, "num_attention_heads", None)
    return getattr(told, "head_dim", None) or (width // heads if width and heads else float("inf"))


def _exact(measured: Tensor, module: nn.Module) -> Tensor:
    """Return the numbers that a module holds in place of those that were measured."""
    held = [torch.tensor([0.0])]
    for each in (*module.buffers(), *vars(module).values()):
        if isinstance(each, float) or (isinstance(each, Tensor) and each.is_floating_point()):
            held.append(torch.as_tensor(each, dtype=torch.float64).flatten())
    known = torch.cat(held).abs()
    gaps = (measured.abs()[..., None] - known).abs()
    nearest = known[gaps.argmin(-1)]
    return torch.where(gaps.amin(-1) <= CLOSE * nearest, nearest * measured.sign(), measured)


def _one_a_pair(table: Tensor, coord_dim: int) -> tuple[Tables, Tensor]:
    """Return how a table is laid out, and one column of each pair."""
    half = table.shape[-1] // 2
    candidates: list[tuple[Tables, Tensor]] = [
        ("half", table[:, :half]),
        ("interleaved", table[:, ::2]),
    ]
    if half % coord_dim == 0:
        axes = table[:, : 2 * half].unflatten(-1, (coord_dim, 2, -1))[..., 0, :].flatten(1)
        candidates.append(("axes", axes))
    for layout, pairs in candidates:
        if torch.equal(laid_out(pairs, layout, coord_dim), table):
            return layout, pairs
    return "pairs", table


def _same(found: Found, frequencies: Tensor, scale: float) -> bool:
    """Return whether a module turns by these frequencies."""
    own, wanted = found.encoder.frequencies(), widen(frequencies)
    if own.shape != wanted.shape or abs(found.scale - scale) > CLOSE:
        return False
    return bool(((own - wanted).abs() <= CLOSE * wanted.abs()).all())


def laid_out(x: Tensor, layout: Tables, coord_dim: int) -> Tensor:
    """Return one column a pair as a model has its tables.

    Args:
        x: Cosines or sines, ``(..., pairs)``.
        layout: ``"half"``, all columns and then all again; ``"interleaved"``, each beside its copy;
            ``"axes"``, halves for each coordinate by itself; any other, as they are.
        coord_dim: How many coordinates share the pairs.
    """
    if layout == "half":
        return torch.cat([x, x], -1)
    if layout == "axes":
        return laid_out(x.unflatten(-1, (coord_dim, -1)), "half", 1).flatten(-2)
    return x.repeat_interleave(2, -1) if layout == "interleaved" else x
