"""Find the frequencies and the table layout of another library's rotary module by calling it.

A rotary module returns cosines and sines of positions. Its output after a small step along each
coordinate gives its frequencies. If the module stores numbers that are equal to these frequencies
up to rounding, the stored numbers are used. The ways to pass positions and to order the columns of
the tables are tried one after the other. Each way is compared with the module at further positions.
The first way that agrees at all these positions is used. If no way agrees, an error names the class
of the module. This file does not import the other libraries.
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

STEP = 2.0**-6
"""Step along each coordinate by which frequencies are measured.

A pair of frequency below 64π rotates by less than half a turn in one step. The step is a power of
two, so products with it are exact.
"""
CLOSE = 1e-5
"""Largest difference of two tables that counts as a rounding error.

The rounding errors of float32 angles at positions up to 8 are smaller.
"""
FAR = 1 << 20
"""A position beyond the training length of nearly all models."""
BY_HAND = (
    "Build the replacement yourself: RotaryTables(encoder, layout), with the same frequencies."
)
"""Advice at the end of an error about a module whose tables cannot be rebuilt."""


class Way(NamedTuple):
    """Way to pass positions to a rotary module.

    Attributes:
        coord_dim: Number of coordinates of a position.
        coordinates: Dimension that contains the coordinates, ``"first"`` or ``"last"``.
        batched: Whether positions have a batch dimension.
    """

    coord_dim: int
    coordinates: Coordinates = "first"
    batched: bool = True

    def shape(self, positions: Tensor) -> Tensor:
        """Return positions in the shape that the module expects.

        Args:
            positions: ``(seq, coord_dim)``.
        """
        if self.coordinates == "last":
            return positions[None] if self.batched else positions
        return positions.mT if self.coord_dim == 1 else positions.mT[:, None]


# one coordinate is tried last, because a module with three would use it for all three
WAYS = [Way(c) for c in (3, 2, 4)]
WAYS += [Way(c, "last", batched) for batched in (False, True) for c in (3, 2)]
WAYS += [Way(1)]


class Form(NamedTuple):
    """Form of the tables, in the words of :class:`~stringlib.interop.adapters.RotaryTables`.

    Attributes:
        layout: Order of the columns.
        coordinates: Dimension of positions that contains the coordinates, if there are several.
        wide: Whether tables are float32 when tokens are bfloat16.
    """

    layout: Tables
    coordinates: Coordinates
    wide: bool


class Found(NamedTuple):
    """Result of :func:`find` for one layer type of a rotary module.

    Attributes:
        form: Form of the tables.
        encoder: Encoder with the frequencies of the module.
        scale: Factor of cosines and sines.
        longer: Change of frequencies and scale for long texts, or None if nothing changes.
    """

    form: Form
    encoder: STRING
    scale: float
    longer: Beyond | DynamicNTK | None = None


@torch.no_grad()
def find(module: nn.Module, layer_type: str | None = None) -> Found:
    """Return frequencies, table layout and scaling of a rotary module.

    Args:
        module: Rotary module. It is called with tokens and positions, and also with
            ``layer_type`` if this is not None.
        layer_type: Layer type, for a module that has several layer types. Default: None.

    Raises:
        ValueError: If the module is on the meta device, does not return cosines and sines of
            positions, or has learned frequencies. Also if, for long texts, it raises an error or
            changes its frequencies in another way than LongRoPE or dynamic NTK.
    """
    kind, error = type(module).__name__, "Its results fit none of these layouts"
    if any(each.is_meta for each in module.buffers()):
        raise ValueError(
            f"rotary_emb must have values, got {kind} with buffers on the meta device. Load the "
            "model on another device first."
        )
    for way in WAYS:
        asked = _Asked(module, way, layer_type)
        try:
            found = asked.found()
        except Exception as raised:  # the module does not accept positions passed in this way
            error = f"The last error of a call was {raised!r}"
            continue
        if found is None:
            continue
        if learned := [name for name, _ in module.named_parameters()]:
            raise ValueError(
                f"rotary_emb must have fixed frequencies, got {kind}, which learns "
                f"{', '.join(learned)}. {BY_HAND}"
            )
        return found._replace(longer=asked.longer(found))
    raise ValueError(
        "rotary_emb must return cosines and sines in a layout that RotaryTables supports, got "
        f"{kind}. {error}. {BY_HAND}"
    )


class _Asked(NamedTuple):
    """A rotary module, together with a way to pass positions to it."""

    module: nn.Module
    way: Way
    layer_type: str | None

    def found(self, last: int = 0) -> Found | None:
        """Return form, encoder and scale of the module; None if no encoder has the same tables.

        Args:
            last: Last position of the text with which the module is called. Some modules choose
                their frequencies by the length of the text, which is ``last`` + 1. Default: 0.
        """
        axes = self.way.coord_dim
        module = copy.deepcopy(self.module).cpu()
        # a long text changes the frequencies of some modules; this short one restores them
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
        angles = last * omega.sum(1)  # compared with a tolerance that grows with the angle
        gaps = (torch.polar(scale, angles) - end).abs() / scale.abs()
        if (gaps > CLOSE + 2.0**-20 * last * omega.abs().sum(1)).any():
            return None
        if self.way.coordinates == "last" and (omega == 0).all(0).any():
            return None  # a module for two coordinates ignores the third
        if self.way.coordinates == "last" and 2 * len(omega) > _head_dim(module):
            return None  # too many pairs: the module accepts any number of coordinates
        own: Layout = "interleaved" if layout == "interleaved" else "half"
        # not persistent, because checkpoints of the model contain no frequencies
        encoder = STRING(omega[None], layout=own, persistent=False)
        wide = layout != "complex" and narrow[0].dtype == torch.float32
        form = Form(layout, self.way.coordinates, wide)
        return Found(form, encoder, scale[0].item())

    def longer(self, near: Found) -> Beyond | DynamicNTK | None:
        """Return the change of frequencies and scale for long texts; None if nothing changes.

        Args:
            near: Form, encoder and scale of the module with a short text.

        Raises:
            ValueError: If the module raises an error for a long text, or if the change is neither
                LongRoPE nor dynamic NTK.
        """
        kind: Any = getattr(self.module, "rope_type", "")
        config: Any = getattr(self.module, "config", None)
        config = getattr(config, "rope_parameters", {})
        if self.layer_type is not None:
            kind, config = kind[self.layer_type], config[self.layer_type]
        told_length: Any = getattr(self.module, "original_max_seq_len", 1)
        trained = (config or {}).get("original_max_position_embeddings") or told_length
        beyond = max(FAR, 4 * int(trained))
        try:
            far = self.found(beyond)
        except Exception as error:
            raise ValueError(
                f"rotary_emb must accept long texts, got {type(self.module).__name__} with "
                f"{error!r} at position {beyond}. {BY_HAND}"
            ) from error
        if far is not None and _same(far, near.encoder.frequencies(), near.scale):
            return None
        if far is not None and "dynamic" in kind:
            longer: Beyond | DynamicNTK = DynamicNTK(config["factor"], int(told_length))
        elif far is not None and kind == "longrope":
            longer = Beyond(far.encoder, config["original_max_position_embeddings"], far.scale)
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
            "rotary_emb must keep its frequencies in long texts, or change them by LongRoPE or "
            f"dynamic NTK, got {type(self.module).__name__} with rope_type={kind!r}, which does "
            f"neither. {BY_HAND}"
        )

    def _answer(self, module: nn.Module, positions: Tensor, dtype: torch.dtype) -> Any:
        layer_type = [] if self.layer_type is None else [self.layer_type]
        x = torch.zeros(1, len(positions), 1, dtype=dtype)
        return module(x, self.way.shape(positions), *layer_type)


def _head_dim(module: nn.Module) -> float:
    """Return the number of channels of a head from a module's ``config``; infinity if unknown."""
    config: Any = getattr(module, "config", None)
    width = getattr(config, "hidden_size", None)
    heads = getattr(config, "num_attention_heads", None)
    divided = width // heads if width and heads else float("inf")
    return getattr(config, "head_dim", None) or divided


def _exact(measured: Tensor, module: nn.Module) -> Tensor:
    """Return measured numbers, replaced by the nearest numbers that the module stores, up to sign.

    The module stores numbers in its buffers and attributes. If no stored number is within a
    relative distance of ``CLOSE``, the measured number stays unchanged.
    """
    held = [torch.tensor([0.0])]
    for each in (*module.buffers(), *vars(module).values()):
        if isinstance(each, float) or (isinstance(each, Tensor) and each.is_floating_point()):
            held.append(torch.as_tensor(each, dtype=torch.float64).flatten())
    known = torch.cat(held).abs()
    gaps = (measured.abs()[..., None] - known).abs()
    nearest = known[gaps.argmin(-1)]
    return torch.where(gaps.amin(-1) <= CLOSE * nearest, nearest * measured.sign(), measured)


def _one_a_pair(table: Tensor, coord_dim: int) -> tuple[Tables, Tensor]:
    """Return the layout of a table, and the same table with only one column per pair."""
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
    """Return whether a :class:`Found` has given frequencies and scale, up to rounding."""
    own, wanted = found.encoder.frequencies(), widen(frequencies)
    if own.shape != wanted.shape or abs(found.scale - scale) > CLOSE:
        return False
    return bool(((own - wanted).abs() <= CLOSE * wanted.abs()).all())


def laid_out(x: Tensor, layout: Tables, coord_dim: int) -> Tensor:
    """Arrange a table with one column per pair in the layout of a model.

    Args:
        x: Cosines or sines, ``(..., pairs)``.
        layout: ``"half"``: all columns, then all columns again. ``"interleaved"``: each column
            twice, side by side. ``"axes"``: the columns of one coordinate, then the same columns
            again; then those of the next coordinate, in the same way. With any other layout ``x``
            is returned unchanged.
        coord_dim: Number of coordinates, among which the pairs are divided evenly.
    """
    if layout == "half":
        return torch.cat([x, x], -1)
    if layout == "axes":
        return laid_out(x.unflatten(-1, (coord_dim, -1)), "half", 1).flatten(-2)
    return x.repeat_interleave(2, -1) if layout == "interleaved" else x
