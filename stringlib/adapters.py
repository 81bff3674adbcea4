"""Modules that carry an encoder into other libraries' models, one in each of two seams.

A language model asks one rotary module for its cosines and sines: :class:`RotaryTables` stands
there. A vision transformer has no such module, but projections to queries and keys:
:class:`Rotated` stands there. Nothing else of the model is touched, and no library is imported.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from stringlib.encoders.string import RotaryEncoder
from stringlib.inputs import Layout, require_kind, require_name, require_positive
from stringlib.precision import at_least_float32, widen, widest
from stringlib.spec import Floats, Positions, Reals, checked


class RotaryTables(nn.Module):
    """What a language model of the library transformers has as its ``rotary_emb``.

    The model turns queries and keys by these tables, and does the rest as before: caches,
    generation, masks. Frequencies stay exact when the model is converted to bfloat16, and those
    that are learned get gradients. Tables hold no basis: put it into the projections of queries
    and keys, ``encoder.fold(weight, layout=layout)``.

    Move the module to the model's device. Its tables are as wide as the encoder's ``head_dim``: for
    a model that turns a part of its channels, make an encoder of these alone.

    Args:
        encoder: With ``heads=1``; or one for each of the model's layer types, by name.
        layout: How the model's own tables are laid out: ``"half"``, as Llama has them, or
            ``"interleaved"`` (Cohere); ``"pairs"``, one column a pair (GPT-OSS); ``"complex"``,
            one tensor of complex numbers, one a pair (Llama 4, DeepSeek-V2). It does not say
            which channels are a pair: Llama 4 turns neighbours, GPT-OSS halves, and GLM turns
            neighbours by half tables.
        scale: Multiplies cosines and sines, and so logits by its square: the attention factor of
            YaRN and LongRoPE. Or one for each layer type, by name; 1 for those left out.

    Raises:
        TypeError: If an encoder or a scale has the wrong kind.
        ValueError: If a name in ``scale`` is unknown, or a scale is not positive.

    Example:
        >>> from stringlib import RoPE
        >>> tables = RotaryTables(RoPE(128, base=500_000))  # model.model.rotary_emb = tables
        >>> cos, sin = tables(torch.randn(2, 10, 4096), torch.arange(10)[None])
        >>> cos.shape
        torch.Size([1, 10, 128])
    """

    @checked
    def __init__(
        self,
        encoder: RotaryEncoder | Mapping[str, RotaryEncoder],
        layout: Literal["half", "interleaved", "pairs", "complex"] = "half",
        scale: float | Mapping[str, float] = 1.0,
    ) -> None:
        super().__init__()
        by_type = encoder if isinstance(encoder, Mapping) else {"": encoder}
        for each in by_type.values():
            require_kind("encoder", each, RotaryEncoder)
        scales: dict[str, Any] = dict.fromkeys(by_type, scale)
        if isinstance(scale, Mapping) and isinstance(encoder, Mapping):
            for name in scale:
                require_name("scale's layer types", name, by_type)
            scales = {name: scale.get(name, 1.0) for name in by_type}
        for factor in scales.values():
            require_positive("scale", factor)
        self.encoder = nn.ModuleDict(encoder) if isinstance(encoder, Mapping) else encoder
        self.layout, self.scales = layout, {name: float(each) for name, each in scales.items()}

    @checked
    def forward(
        self,
        x: Floats[Tensor, "...any"],
        position_ids: Reals[Tensor, "... batch seq"],
        layer_type: str | None = None,
    ) -> tuple[Tensor, Tensor] | Tensor:
        """Return cosines and sines as the model hands them to its layers.

        Args:
            x: Tokens; only their dtype and device are read.
            position_ids: ``(batch, seq)``; for an encoder of c coordinates ``(c, batch, seq)``, as
                models of images and texts hand them over, or ``(batch, seq)`` where all
                coordinates are the same.
            layer_type: Whose encoder is asked for, where layer types have their own.

        Returns:
            ``(cos, sin)``, each ``(batch, seq, head_dim)``, of the dtype of ``x``; with layout
            ``"pairs"`` of ``head_dim / 2`` columns, with ``"complex"`` as one tensor cos + i sin,
            complex64 or wider.

        Raises:
            ValueError: If the layer type does not fit, or the encoder's heads differ.
        """
        encoder, scale = self._of(layer_type)
        axes = encoder.coord_dim
        if position_ids.ndim != 2 and (position_ids.ndim != 3 or len(position_ids) != axes):
            raise ValueError(
                f"position_ids must have shape (batch, seq) or ({axes}, batch, seq), "
                f"got {tuple(position_ids.shape)}"
            )
        positions = position_ids.expand(axes, -1, -1).movedim(0, -1).to(x.device)
        # of the half layout the first half: one column a pair
        own: Layout = "interleaved" if self.layout == "interleaved" else "half"
        columns = encoder.head_dim // (1 if own == self.layout else 2)
        tables = encoder.tables(positions, own, widest(x.device))
        cos, sin = (table[..., :columns] * scale for table in tables)
        if self.layout == "complex":
            return torch.complex(cos, sin).to(at_least_float32(x.dtype).to_complex())
        return cos.to(x.dtype), sin.to(x.dtype)

    def extra_repr(self) -> str:
        """Describe the arguments in ``repr``."""
        scales = ", ".join(f"{name or 'scale'}={scale:g}" for name, scale in self.scales.items())
        return f"layout={self.layout!r}, {scales}"

    def _of(self, layer_type: str | None) -> tuple[RotaryEncoder, float]:
        if isinstance(self.encoder, RotaryEncoder):
            return self.encoder, self.scales[""]
        require_name("layer_type", layer_type, self.encoder.keys())
        encoder = self.encoder[str(layer_type)]
        assert isinstance(encoder, RotaryEncoder)
        return encoder, self.scales[str(layer_type)]


class Rotated(nn.Module):
    r"""A projection to queries, keys or both, turned: :math:`R(r)\,(W x + b)` head by head.

    It stands where a model has the projection: a fused ``[q; k; v]`` with ``heads`` twice those of
    attention, or one module for queries and one for keys with the same encoder. Every token stands
    at its row of ``positions``; one that is at 0, such as a class token, is not turned. With
    ``CirculantSTRING(..., zero=True)`` a trained model says what it said, and learns from there.

    Queries and keys should go from here to their products. A norm between (``q_norm``, ``k_norm``)
    sees turned vectors. One that only divides by the length commutes with every rotation. One with
    learned weights, or that subtracts a mean, does not: logits then depend on the positions
    themselves, not on their differences alone, and :meth:`folded` changes them.

    Args:
        linear: The model's projection. In the ``state_dict`` its parameters are then under
            ``linear.``: load the model's weights first.
        encoder: One with ``heads=h`` serves h heads, then the next h. Where a key serves several
            queries (grouped queries), it should have ``heads=1``.
        positions: Of all tokens, ``(seq, coord_dim)``. They are not in the ``state_dict``, and
            stay exact when the model is converted to bfloat16.
        heads: How many heads of the output, the first ones, are turned; all if omitted.

    Attributes:
        linear: The projection.
        encoder: The encoder.
        positions: The positions, float64 where the device has it.
        heads: How many heads are turned.

    Raises:
        ValueError: If shapes or heads do not fit.

    Example:
        >>> from stringlib import CirculantSTRING
        >>> from stringlib.positions import grid_positions
        >>> encoder = CirculantSTRING(64, coord_dim=2, heads=12, zero=True)
        >>> places = grid_positions(14, 14, num_prefix=1)
        >>> qkv = nn.Linear(768, 3 * 768)  # block.attn.qkv
        >>> qkv = Rotated(qkv, encoder, places, heads=24)
        >>> qkv(torch.randn(8, 197, 768)).shape
        torch.Size([8, 197, 2304])
    """

    positions: Tensor

    @checked
    def __init__(
        self,
        linear: nn.Linear,
        encoder: RotaryEncoder,
        positions: Positions[Tensor, "seq coord_dim"],
        heads: int | None = None,
    ) -> None:
        super().__init__()
        if positions.shape[1] != encoder.coord_dim:
            raise ValueError(
                f"positions must have shape (seq, {encoder.coord_dim}), "
                f"got {tuple(positions.shape)}"
            )
        most, rest = divmod(linear.out_features, encoder.head_dim)
        if rest:
            raise ValueError(
                f"linear must project to heads of {encoder.head_dim} channels, those of the "
                f"encoder, got {linear.out_features} rows"
            )
        heads = most if heads is None else heads
        if not 0 < heads <= most or heads % encoder.heads:
            raise ValueError(
                f"heads must be a multiple of {encoder.heads}, the heads of the encoder, and at "
                f"most {most}, those of linear, got {heads}"
            )
        self.linear, self.encoder, self.heads = linear, encoder, int(heads)
        self.register_buffer("positions", widen(positions.detach()).clone(), persistent=False)

    @property
    def channels(self) -> int:
        """Channels of a token, as the projection reads them."""
        return self.linear.in_features

    @checked
    def forward(self, x: Floats[Tensor, "... n self.channels"]) -> Tensor:
        """Return the projected tokens, turned.

        Args:
            x: ``(..., seq, channels)``.

        Returns:
            ``(..., seq, rows)``, what ``linear`` gives but for the turn.

        Raises:
            ValueError: If there is not one position for each token.
        """
        projected, encoder = self.linear(x), self.encoder
        turning, rest = projected.tensor_split([self.heads * encoder.head_dim], -1)
        by_head = turning.unflatten(-1, (-1, encoder.heads, encoder.head_dim)).movedim(-4, -2)
        turned = encoder.rotate(by_head, self.positions).movedim(-2, -4).flatten(-3)
        return torch.cat([turned, rest], -1)

    @torch.no_grad()
    def folded(self) -> Rotated:
        """Return a module that costs what RoPE costs: the basis is in a copy of the projection.

        Its queries and keys are those of this one but for the basis, which cancels in their
        products, :eq:`eq-fold`. So fold the projections of both.
        """
        encoder, linear = self.encoder, copy.deepcopy(self.linear)
        for parameter in (linear.weight, linear.bias):
            if parameter is not None:
                for part in parameter[: self.heads * encoder.head_dim].split(
                    encoder.heads * encoder.head_dim
                ):
                    part.copy_(encoder.fold(part, encoder.heads))
        return Rotated(linear, encoder.folded(), self.positions, self.heads)

    def extra_repr(self) -> str:
        """Describe the arguments in ``repr``."""
        return f"heads={self.heads}, tokens={len(self.positions)}"

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Rotated:
        """Move, and keep positions exact: bfloat16 has no odd numbers beyond 256."""

        def move(t: Tensor) -> Tensor:
            if t is not self.positions:
                return fn(t)
            # every device has integers: only they can ask where all is moved to
            device = fn(t.new_empty(0, dtype=torch.int64)).device
            return t.to(device, widest(device))

        super()._apply(move, recurse)
        return self
