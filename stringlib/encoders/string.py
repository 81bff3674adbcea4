r"""The one rotation :math:`P\,\mathrm{RoPE}(\Omega r)\,P^\top`.

Every exactly relative encoder of real vectors r that is continuous, and the same for queries and
keys, is of this form. An orthogonal *basis* P splits the channels into planes; *frequencies* Ω say
how fast each plane turns along each coordinate of r. A variant says only where its P and Ω come
from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from stringlib.algebra.skew import planar_skew
from stringlib.by_name import by_name
from stringlib.derived import Derived
from stringlib.inputs import (
    Layout,
    has_values,
    require_floats,
    require_heads,
    require_same_device,
    require_same_leading,
    require_same_tokens,
)
from stringlib.kernels.rotation import is_short, pair_up, rotate_pairs, unit_phases, unpair
from stringlib.precision import at_least_float32, widen, widest, without_autocast
from stringlib.spec import Floats, Positions, checked


class Phases(NamedTuple):
    """What an encoder makes of positions: computed once, it serves queries, keys and all layers.

    Attributes:
        turns: Cosine and sine of each pair, ``(..., heads, seq, pairs, 2)``. In the interleaved
            layout channels that stay still are pairs too, which turn at frequency 0.
        basis: P, ``(heads or 1, head_dim, head_dim)``; None if it is the identity, or if what is
            to be turned is in the basis already.
    """

    turns: Tensor
    basis: Tensor | None = None

    def to(self, *args: Any, **kwargs: Any) -> Phases:
        """Move and convert, as ``Tensor.to`` does, but to no dtype narrower than float32."""
        turns = self.turns.to(*args, **kwargs)
        exact = at_least_float32(turns.dtype)
        if turns.dtype != exact:
            turns = self.turns.to(turns.device, exact)
        return Phases(turns, None if self.basis is None else self.basis.to(turns.device, exact))


class RotaryEncoder(Derived):
    r"""Base of all encoders of the form :math:`R(r) = P\,\mathrm{RoPE}(\Omega r)\,P^\top`.

    A subclass gives :meth:`frequencies` and, when P is not the identity, :meth:`basis`; one with
    a faster product also :meth:`to_basis` and :meth:`from_basis`. Equation :eq:`eq-string`;
    Schenck et al. 2025, theorem 3.4.

    Shapes, here and in the methods: ``q``, ``k``, ``x`` are ``(..., heads, seq, head_dim)``;
    ``positions`` is ``(..., seq, coord_dim)``, integer or floating, its leading dimensions
    broadcast with those of ``x``; or what :meth:`phases` made of it. ``heads=1`` serves any number
    of heads.
    """

    @by_name("heads", "layout")
    @checked
    def __init__(
        self, head_dim: int, coord_dim: int, *, heads: int, layout: Layout = "interleaved"
    ) -> None:
        super().__init__()
        self.head_dim, self.coord_dim, self.heads = int(head_dim), int(coord_dim), int(heads)
        self.layout: Layout = layout

    def frequencies(self) -> Tensor:
        """Return Ω in radians per unit of position: float64, ``(heads, pairs, coord_dim)``."""
        raise NotImplementedError

    def basis(self) -> Tensor:
        """Return P, orthogonal, pairs first: float64, ``(heads, head_dim, head_dim)``."""
        device = self.frequencies().device
        eye = torch.eye(self.head_dim, dtype=widest(device), device=device)
        return eye.expand(self.heads, -1, -1)

    def to_basis(self, x: Tensor, basis: Tensor | None = None) -> Tensor:
        """Return Pᵀx for float32 or float64 ``x``; ``basis`` is P, if it is known already."""
        return x @ (self.basis() if basis is None else basis).to(x.dtype)

    def from_basis(self, x: Tensor, basis: Tensor | None = None) -> Tensor:
        """Return Px for float32 or float64 ``x``; ``basis`` is P, if it is known already."""
        return x @ (self.basis() if basis is None else basis).to(x.dtype).mT

    @checked
    def phases(self, positions: Positions[Tensor, "... n self.coord_dim"]) -> Phases:
        """Return what :meth:`forward` and :meth:`rotate` compute from positions, to be shared.

        Angles are computed in float64, and so are the results, where the device has it. They follow
        what is learned: an optimiser's step makes them stale.

        Args:
            positions: ``(..., seq, coord_dim)``.

        Example:
            >>> from stringlib import RoPE
            >>> encoder, q = RoPE(64), torch.randn(2, 6, 10, 64)
            >>> phases = encoder.phases(torch.arange(10)[:, None])  # once, for all layers
            >>> encoder(q, q, phases)[0].shape
            torch.Size([2, 6, 10, 64])
        """
        return self._phases(positions)

    @checked
    def forward(
        self,
        q: Floats[Tensor, "... heads n self.head_dim"],
        k: Floats[Tensor, "...k kv_heads keys self.head_dim"],
        positions: Positions[Tensor, "... n self.coord_dim"] | Phases,
        key_positions: Positions[Tensor, "...k keys self.coord_dim"] | Phases | None = None,
    ) -> tuple[Tensor, Tensor]:
        r"""Encode for attention: :math:`\mathrm{RoPE}(\Omega r)\,P^\top x` of queries and keys.

        The outer P is left out: it cancels in every product of a query and a key
        (equation :eq:`eq-outer-basis`). Use :meth:`rotate` for R(r)x itself.

        Args:
            q: Queries.
            k: Keys.
            positions: Where the queries are, and the keys too unless told otherwise.
            key_positions: Where the keys are, when elsewhere (a cache, cross-attention).

        Returns:
            Encoded queries and keys, with the dtypes of ``q`` and ``k``.
        """
        phases = self._fitting("q", q, "positions", positions)
        if key_positions is not None:
            key_phases = self._fitting("k", k, "key_positions", key_positions, phases.basis)
        elif isinstance(positions, Phases):
            key_phases = self._fitting("k", k, "positions", positions)
        else:  # the annotations speak of the keys' own positions alone
            require_heads("k", k, self.heads)
            require_same_tokens("k", k, "positions", positions)
            key_phases = phases
        if key_phases is phases and phases.turns.dtype != at_least_float32(q.dtype):
            phases = key_phases = phases.to(q.dtype)  # once for both
        with without_autocast(q):
            if key_phases is phases and is_short(q) and q.dtype == k.dtype:
                # a few tokens: half as many calls, with queries and keys in one tensor
                if q.shape == k.shape:
                    both = self._encode(torch.stack([q, k]), phases)
                    return both[0], both[1]
                if self.heads == 1 and q.shape[:-3] == k.shape[:-3]:
                    both = self._encode(torch.cat([q, k], -3), phases)
                    heads = q.shape[-3]
                    return both.narrow(-3, 0, heads), both.narrow(-3, heads, k.shape[-3])
            return self._encode(q, phases), self._encode(k, key_phases)

    @checked
    def rotate(
        self,
        x: Floats[Tensor, "... heads n self.head_dim"],
        positions: Positions[Tensor, "... n self.coord_dim"] | Phases,
    ) -> Tensor:
        """Return R(r)x, in the dtype of ``x``."""
        phases = self._fitting("x", x, "positions", positions)
        with without_autocast(x):
            return self._encode(x, phases, whole=True)

    @checked
    def matrix(self, positions: Positions[Tensor, "... n self.coord_dim"]) -> Tensor:
        """Return R(r) itself: ``(..., heads, seq, head_dim, head_dim)``.

        The dtype is that of floating positions, float64 for integer ones.
        """
        matrix = self._matrices(positions)
        return matrix.to(positions.dtype) if positions.is_floating_point() else matrix

    def generators(self) -> Tensor:
        r"""Return the commuting generators L, with :math:`R(r) = \exp(\sum_k r_k L_k)`.

        Equation :eq:`eq-string-generators`.

        Returns:
            Skew-symmetric, float64, ``(heads, coord_dim, head_dim, head_dim)``.
        """
        planes = planar_skew(self._own_frequencies().mT, self.head_dim, self.layout)
        basis = self.basis().unsqueeze(1)
        return basis @ planes @ basis.mT

    @checked
    def fold(
        self,
        weight: Floats[Tensor, "..."],
        heads: int | None = None,
        *,
        layout: Layout | None = None,
    ) -> Tensor:
        r"""Move the basis into a projection: :math:`W \mapsto P^\top W`, equation :eq:`eq-fold`.

        Fold the query and the key projection, then encode with :meth:`folded`: the logits
        stay the same and the encoder costs what RoPE costs. Not allowed when a nonlinearity follows
        the projection. Behind a normalisation with learned scales only where their squares map each
        plane to itself, equation :eq:`eq-fold-norm`, and then with other scales.

        Args:
            weight: ``(heads * head_dim, model_dim)`` as in ``nn.Linear``, or its bias,
                ``(heads * head_dim,)``. An encoder with ``heads=1`` serves any number of heads.
            heads: How many heads the weight has. An encoder with ``heads=1`` cannot know, so say it
                where queries, keys and values share one weight: that is not to be folded as a
                whole, for its values would turn too. Without it only a weight of three square parts
                is known to be one.
            layout: As for :meth:`folded`.

        Returns:
            The folded weight, of the same shape and dtype.

        Example:
            >>> from stringlib import CayleySTRING
            >>> encoder, positions = CayleySTRING(8), torch.arange(5)[:, None]
            >>> x, w = torch.randn(5, 32), torch.randn(3 * 8, 32)  # to 3 heads of 8 channels
            >>> q, folded = ((x @ m.mT).unflatten(-1, (3, 8)).transpose(0, 1)
            ...              for m in (w, encoder.fold(w)))
            >>> (encoder(q, q, positions)[0] - encoder.folded()(folded, folded, positions)[0]
            ...  ).abs().max().item() < 1e-4
            True
        """
        if heads is not None and self.heads not in (1, heads):
            raise ValueError(f"heads must be {self.heads}, those of the encoder, got {heads}")
        own = heads or (None if self.heads == 1 else self.heads)
        rows = weight.shape[0] if weight.ndim in (1, 2) else 0
        if rows == 0 or rows % self.head_dim or (own and own * self.head_dim != rows):
            count = own or "any number of heads"
            raise ValueError(
                f"weight must have shape ({count} * {self.head_dim}, model_dim) or "
                f"({count} * {self.head_dim},), got {tuple(weight.shape)}"
            )
        if own is None and weight.ndim == 2 and weight.shape[1] == 3 * rows:
            raise ValueError(
                f"weight must have its rows first, as nn.Linear has; {tuple(weight.shape)} looks "
                "like queries, keys and values in columns, as GPT-2's Conv1D has them: give the "
                "transposed part, or heads"
            )
        third = rows // 3
        if own is None and weight.shape == (3 * third, third) and third % self.head_dim == 0:
            raise ValueError(
                "weight must project to queries or to keys, not to queries, keys and values as "
                f"(3 * {third}, {third}) does, got {tuple(weight.shape)}: fold the parts, or give "
                "heads"
            )
        basis = self.basis() if layout is None else self.basis()[..., self._order(layout)]
        by_head = weight.reshape(rows // self.head_dim, self.head_dim, -1).to(basis.dtype)
        return (basis.mT @ by_head).reshape(weight.shape).to(weight.dtype)

    @checked
    def folded(self, layout: Layout | None = None) -> STRING:
        """Return the encoder to use behind folded projections: the same frequencies, no basis.

        Args:
            layout: How it numbers its pairs, ``"interleaved"`` or ``"half"``, with the channels
                that stay still among them, as pairs that turn at frequency 0: what a model does
                that turns whole heads. As here, with still channels last, if omitted. Give it to
                :meth:`fold` as well.
        """
        if layout is None:
            return STRING(self._own_frequencies(), head_dim=self.head_dim, layout=self.layout)
        return STRING(self._all_frequencies(), head_dim=self.head_dim, layout=layout)

    @checked
    def tables(
        self,
        positions: Positions[Tensor, "... n self.coord_dim"],
        layout: Layout = "half",
        dtype: torch.dtype = torch.float32,
    ) -> tuple[Tensor, Tensor]:
        """Return cosines and sines as rotary modules of other libraries hand them to attention.

        A model that turns pairs of channels by such tables does what this encoder does, with
        projections that :meth:`fold` gave its basis, in the same layout.

        Args:
            positions: ``(..., seq, coord_dim)``.
            layout: ``"half"``, as Llama and most language models have it, or ``"interleaved"``.
            dtype: Of the tables; angles are computed in float64.

        Returns:
            ``(cos, sin)``, each ``(..., seq, head_dim)``: every angle stands twice, at the two
            channels of its pair. In another layout they make no rotation, :eq:`eq-model-tiled`.

        Raises:
            TypeError: If ``dtype`` is not a floating-point dtype.
            ValueError: If heads differ in their frequencies or ``head_dim`` is odd.

        Example:
            >>> from stringlib import RoPE
            >>> cos, sin = RoPE(128, base=500_000).tables(torch.arange(10)[:, None])
            >>> cos.shape
            torch.Size([10, 128])
        """
        if not dtype.is_floating_point:
            raise TypeError(f"dtype must be a floating-point dtype, got {dtype}")
        if self.head_dim % 2:
            raise ValueError(
                f"head_dim must be even for tables (channels rotate in pairs), got {self.head_dim}"
            )
        if self.heads != 1:
            raise ValueError(
                f"heads must be 1 for tables, which all heads share, got {self.heads}: use phases"
            )
        angles = (widen(positions).unsqueeze(-3) @ self._all_frequencies().mT).squeeze(-3)
        cos, sin = ([wave(angles).to(dtype)] * 2 for wave in (torch.cos, torch.sin))
        if layout == "half":
            return torch.cat(cos, -1), torch.cat(sin, -1)
        return torch.stack(cos, -1).flatten(-2), torch.stack(sin, -1).flatten(-2)

    def extra_repr(self) -> str:
        """Describe the shapes in ``repr``."""
        return f"head_dim={self.head_dim}, coord_dim={self.coord_dim}, heads={self.heads}"

    @property
    def basis_first(self) -> bool:
        """Whether :meth:`forward` applies P before all else, so that projections may do it."""
        own = type(self)
        return (own.forward, own._encode) == (RotaryEncoder.forward, RotaryEncoder._encode)

    def _own_frequencies(self) -> Tensor:
        """Return Ω, or say that a subclass has none of the right shape."""
        frequencies = self.frequencies()
        require_floats("frequencies()", frequencies)
        heads, pairs, coord_dim = frequencies.shape if frequencies.ndim == 3 else (0, 0, 0)
        fits = 2 * pairs <= self.head_dim
        if not fits or (heads, coord_dim) != (self.heads, self.coord_dim):
            raise ValueError(
                f"frequencies() must have shape ({self.heads} heads, at most {self.head_dim // 2} "
                f"pairs, {self.coord_dim} coordinates), got {tuple(frequencies.shape)}"
            )
        return frequencies

    def _all_frequencies(self) -> Tensor:
        """Return Ω with the still channels, two by two, as pairs of frequency 0."""
        frequencies = self._own_frequencies()
        still = self.head_dim // 2 - frequencies.shape[-2]
        return nn.functional.pad(frequencies, (0, 0, 0, still))

    def _order(self, layout: Layout) -> Tensor:
        """Return which channel of the rotating basis stands where in a layout of all pairs."""
        frequencies, half = self._own_frequencies(), self.head_dim // 2
        pairs = frequencies.shape[-2]
        channels = torch.arange(self.head_dim, device=frequencies.device)
        turning = pair_up(channels[: 2 * pairs], self.layout)
        still = channels[2 * pairs : 2 * half].unflatten(0, (-1, 2))
        return torch.cat([unpair(torch.cat([turning, still]), layout), channels[2 * half :]])

    def _matrices(self, positions: Tensor) -> Tensor:
        phases = unit_phases(positions, self._own_frequencies()).unsqueeze(-3)
        basis = self.basis().unsqueeze(-3)
        # row j of the basis is Pᵀ applied to unit vector j
        return basis @ rotate_pairs(basis, phases, self.layout).mT

    def _turns(self, positions: Tensor) -> Tensor:
        """Return cosine and sine of all pairs at the positions."""
        # still channels as pairs that turn at frequency 0: one product, nothing to join
        interleaved = self.layout == "interleaved"
        return unit_phases(
            positions, self._all_frequencies() if interleaved else self._own_frequencies()
        )

    def _turn_shape(self) -> tuple[int, int]:
        """Return the shape of what turns one token of one head."""
        interleaved = self.layout == "interleaved"
        return self.head_dim // 2 if interleaved else self.frequencies().shape[1], 2

    def _basis_of_turns(self) -> Tensor | None:
        """Return P, in which :meth:`_turns` turn, or one head's for all; None for the identity."""
        return None if type(self).basis is RotaryEncoder.basis else self.basis()

    def _phases(self, positions: Tensor, basis: Tensor | None = None) -> Phases:
        """Return the phases of positions; ``basis`` is P, if it is known already."""
        basis = self._basis_of_turns() if basis is None else basis
        return Phases(self._turns(positions), basis)

    def _fitting(
        self,
        x_name: str,
        x: Tensor,
        name: str,
        positions: Tensor | Phases,
        basis: Tensor | None = None,
    ) -> Phases:
        """Return the phases for ``x``, or raise unless these are the encoder's, on its device.

        There have to be the encoder's heads and a phase for each token.
        """
        require_heads(x_name, x, self.heads)
        if not isinstance(positions, Phases):
            return self._phases(positions, basis)
        shape, heads = tuple(positions.turns.shape), 1 if self.heads == 1 else x.shape[-3]
        expected = heads, x.shape[-2], *self._turn_shape()
        if shape[-4:] != expected:
            raise ValueError(
                f"{name} must be phases of this encoder for the {x.shape[-2]} tokens of {x_name}, "
                f"(..., {', '.join(map(str, expected))}), got shape {shape}"
            )
        require_same_device(x_name, x, name, positions.turns)
        require_same_leading(x_name, x, name, positions.turns, own=4)
        return positions

    def _encode(self, x: Tensor, phases: Phases, whole: bool = False) -> Tensor:
        """Return RoPE(Ωr)Pᵀx, or R(r)x if ``whole``."""
        turns, basis = phases
        exact = at_least_float32(x.dtype)
        y = x.to(exact)
        y = rotate_pairs(y if basis is None else self.to_basis(y, basis), turns, self.layout)
        return (self.from_basis(y, basis) if whole and basis is not None else y).to(x.dtype)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> RotaryEncoder:
        """Move, and keep frequencies and bases exact: a bfloat16 model needs them too.

        What is fixed stays in the widest dtype of its device. What is learned goes to float32 or
        float64 when told to, and is not made narrower than float32.
        """
        own = [b for b in self._buffers.values() if b is not None]

        def move(t: Tensor) -> Tensor:
            fixed = any(t is b for b in own)
            # every device has integers: only they can ask where all is moved to
            device = fn(t.new_empty(0, dtype=torch.int64)).device
            t = t.to(widest(device)) if t.dtype == torch.float64 else t
            wanted = keep = fn(t.new_empty(0)).dtype
            if fixed:
                keep = widest(device) if t.is_floating_point() else t.dtype
            elif wanted != at_least_float32(wanted):
                keep = at_least_float32(t.dtype)
            if fixed and t.is_meta:  # nothing can be copied from there, but computed anew
                return torch.empty_like(t, dtype=keep, device=device)
            done = keep == wanted and (device == t.device or not fixed)
            return fn(t) if done else t.to(device, keep)

        super()._apply(move, recurse)
        return self


ORTHOGONAL = 2e-4
"""How far PᵀP may be from I in an entry; the exponential in float32 is off by 7e-5 at d = 512."""


class STRING(RotaryEncoder):
    r"""An encoder with given, fixed basis and frequencies, equation :eq:`eq-string`.

    Args:
        frequencies: Ω, ``(heads, pairs, coord_dim)``, in radians per unit of position.
        basis: P, orthogonal, ``(heads, head_dim, head_dim)``; the identity if omitted. Values are
            checked here, once, and not on the meta device.
        head_dim: Number of channels; ``2 * pairs`` (or the size of the basis) if omitted.
        layout: How the pairs are numbered, ``"interleaved"`` or ``"half"``.
        persistent: Whether frequencies and basis belong to the ``state_dict``.

    Raises:
        ValueError: If the basis is not orthogonal; the message says by how much.

    Source:
        Schenck et al. 2025, theorem 3.4.
    """

    _frequencies: Tensor
    _basis: Tensor | None

    @classmethod
    @checked
    def from_inv_freq(
        cls,
        inv_freq: Floats[Tensor, "pairs"],
        layout: Layout = "half",
        head_dim: int | None = None,
    ) -> STRING:
        """Return the encoder of a rotary module that has its frequencies in a buffer.

        Args:
            inv_freq: Radians per position of each pair, ``(pairs,)``, scaled already where the
                model scales them. Nothing else of the model's scaling is in it, such as YaRN's
                factor of the logits.
            layout: How the model numbers the channels of a pair: ``"half"`` for (i, i + pairs),
                ``"interleaved"`` for (2i, 2i + 1).
            head_dim: Channels of a head; ``2 * pairs`` if omitted. With more, the last stay still.

        Example:
            >>> inv_freq = 10_000.0 ** -(torch.arange(0, 64, 2) / 64)  # rotary.inv_freq
            >>> encoder = STRING.from_inv_freq(inv_freq)
            >>> encoder.tables(torch.arange(5)[:, None])[0].shape
            torch.Size([5, 64])
        """
        return cls(inv_freq[None, :, None], head_dim=head_dim, layout=layout)

    @by_name("head_dim", "layout")
    @checked
    def __init__(
        self,
        frequencies: Floats[Tensor, "heads pairs coord_dim"],
        basis: Floats[Tensor, "heads head_dim head_dim"] | None = None,
        *,
        head_dim: int | None = None,
        layout: Layout = "interleaved",
        persistent: bool = True,
    ) -> None:
        heads, pairs, coord_dim = frequencies.shape
        if head_dim is None:
            if basis is None and pairs == 0:
                raise ValueError("head_dim must be given for frequencies without pairs, got None")
            head_dim = 2 * pairs if basis is None else basis.shape[-1]
        super().__init__(head_dim, coord_dim, heads=heads, layout=layout)
        if head_dim < 2 * pairs:
            raise ValueError(
                f"head_dim must be at least {2 * pairs} for {pairs} pairs, got {head_dim}"
            )
        if basis is not None and basis.shape[-1] != head_dim:
            raise ValueError(
                f"basis must have shape {(heads, head_dim, head_dim)}, got {tuple(basis.shape)}"
            )
        if basis is not None and has_values(basis):
            _require_orthogonal(basis)
        self.register_buffer("_frequencies", _own_copy(frequencies), persistent)
        self.register_buffer("_basis", None if basis is None else _own_copy(basis), persistent)

    def frequencies(self) -> Tensor:
        """Return Ω, not to be changed in place: float64, ``(heads, pairs, coord_dim)``."""
        return self._frequencies

    def basis(self) -> Tensor:
        """Return P, not to be changed in place: float64, ``(heads, head_dim, head_dim)``."""
        return super().basis() if self._basis is None else self._basis

    def _basis_of_turns(self) -> Tensor | None:
        return self._basis


def _require_orthogonal(basis: Tensor) -> None:
    exact = widen(basis.detach())
    largest = (exact.mT @ exact - torch.eye(basis.shape[-1]).to(exact)).abs().max().item()
    if not largest <= ORTHOGONAL:  # nor NaN
        raise ValueError(
            f"basis must be orthogonal, PᵀP = I within {ORTHOGONAL:.0e}, got entries that are off "
            f"by {largest:.1e}"
        )


def _own_copy(x: Tensor) -> Tensor:
    """Return a float64 copy that shares neither memory nor history with ``x``."""
    return x.detach().to(widest(x.device), copy=True)
