r"""Rotary encoders: the rotation :math:`R(r) = P\,\mathrm{RoPE}(\Omega r)\,P^\top`.

The orthogonal *basis* P splits the channels into planes. The *frequencies* Ω are the angles, in
radians, by which each plane rotates per unit of each coordinate of the position r. The encoders of
this package differ only in how they obtain P and Ω.

The form is general. If every real vector r is a position, then a continuous encoding has this form
if its scores are exactly relative, if it encodes queries and keys in the same way, and if it is the
identity at r = 0.
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
    """Phases of positions and the basis of an encoder, computed once for many uses.

    The same phases rotate queries and keys, and all layers that share the encoder can use them.

    Attributes:
        turns: Cosine and sine of the angle of each pair, ``(..., heads, seq, pairs, 2)``. In the
            interleaved layout, non-rotating channels are pairs with frequency 0. For
            :class:`~stringlib.encoders.dense.DenseSTRING`: the matrices R(r),
            ``(..., heads, seq, head_dim, head_dim)``.
        basis: P, ``(heads or 1, head_dim, head_dim)``. None if P is the identity, or if queries
            and keys are already multiplied by its transpose.
    """

    turns: Tensor
    basis: Tensor | None = None

    def to(self, *args: Any, **kwargs: Any) -> Phases:
        """Return the phases on another device or in another dtype, as ``Tensor.to`` does.

        If the requested dtype is narrower than float32, the result is float32.
        """
        turns = self.turns.to(*args, **kwargs)
        exact = at_least_float32(turns.dtype)
        if turns.dtype != exact:
            turns = self.turns.to(turns.device, exact)
        return Phases(turns, None if self.basis is None else self.basis.to(turns.device, exact))


class RotaryEncoder(Derived):
    r"""Base of all encoders of the form :math:`R(r) = P\,\mathrm{RoPE}(\Omega r)\,P^\top`.

    See equation :eq:`eq-string`; Schenck et al. 2025, theorem 3.4. A subclass implements
    :meth:`frequencies` and, if P is not the identity, :meth:`basis`. A subclass that can multiply
    by P faster than with a dense matrix also overrides :meth:`to_basis` and :meth:`from_basis`.

    Shapes in all methods: ``q``, ``k`` and ``x`` are ``(..., heads, seq, head_dim)``. ``positions``
    is an integer or floating-point tensor ``(..., seq, coord_dim)`` whose leading dimensions
    broadcast with those of ``x``, or the result of :meth:`phases`.

    Args:
        head_dim: Number of channels of a head.
        coord_dim: Number of coordinates of a position.
        heads: Number of heads, each with its own P and Ω. With 1, any number of heads share them.
        layout: How the rotating channels are paired after multiplication by the transpose of P:
            ``"interleaved"`` (default) pairs channels (2i, 2i + 1), ``"half"`` (i, i + pairs).
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
        """Return Ω in radians per unit of position, float64, ``(heads, pairs, coord_dim)``."""
        raise NotImplementedError(f"{type(self).__name__} must define frequencies()")

    def basis(self) -> Tensor:
        """Return the orthogonal matrix P, float64, ``(heads, head_dim, head_dim)``.

        The columns that span the rotating planes come first, the non-rotating directions last.
        """
        device = self.frequencies().device
        eye = torch.eye(self.head_dim, dtype=widest(device), device=device)
        return eye.expand(self.heads, -1, -1)

    def to_basis(self, x: Tensor, basis: Tensor | None = None) -> Tensor:
        """Return Pᵀx for float32 or float64 ``x``.

        Args:
            x: Vectors, ``(..., heads, seq, head_dim)``.
            basis: P, if it is already computed. Default: :meth:`basis`.
        """
        return x @ (self.basis() if basis is None else basis).to(x.dtype)

    def from_basis(self, x: Tensor, basis: Tensor | None = None) -> Tensor:
        """Return Px for float32 or float64 ``x``.

        Args:
            x: Vectors, ``(..., heads, seq, head_dim)``.
            basis: P, if it is already computed. Default: :meth:`basis`.
        """
        return x @ (self.basis() if basis is None else basis).to(x.dtype).mT

    @checked
    def phases(self, positions: Positions[Tensor, "... n self.coord_dim"]) -> Phases:
        """Return the cosines and sines of the angles at given positions, for use in other calls.

        :meth:`forward` and :meth:`rotate` accept the result as ``positions``, so that several calls
        share one computation. Angles and results are float64, or float32 on a device without
        float64. If the encoder has learned parameters, compute the phases again after each step of
        the optimiser.

        Args:
            positions: ``(..., seq, coord_dim)``.

        Returns:
            The phases, and the basis P.

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
        r"""Return encoded queries and keys, :math:`\mathrm{RoPE}(\Omega r)\,P^\top x` for each x.

        The outer factor P of R(r) is left out, because it cancels in every product of a query and
        a key, equation :eq:`eq-outer-basis`. Use :meth:`rotate` for R(r)x itself.

        Args:
            q: Queries, ``(..., heads, seq, head_dim)``.
            k: Keys, ``(..., kv_heads, keys, head_dim)``. Their number of heads may differ from that
                of the queries if the encoder has ``heads=1``, and their number of tokens if
                ``key_positions`` is given.
            positions: Positions of the queries, ``(..., seq, coord_dim)``, or their phases.
            key_positions: Positions or phases of the keys, if they differ from those of the
                queries, as with a cache or in cross-attention. Default: ``positions``.

        Returns:
            Encoded queries and keys, with the dtypes of ``q`` and ``k``.
        """
        phases = self._fitting("q", q, "positions", positions)
        if key_positions is not None:
            key_phases = self._fitting("k", k, "key_positions", key_positions, phases.basis)
        elif isinstance(positions, Phases):
            key_phases = self._fitting("k", k, "positions", positions)
        else:  # the annotations do not compare keys with ``positions``
            require_heads("k", k, self.heads)
            require_same_tokens("k", k, "positions", positions)
            key_phases = phases
        if key_phases is phases and phases.turns.dtype != at_least_float32(q.dtype):
            phases = key_phases = phases.to(q.dtype)  # converted once for queries and keys
        with without_autocast(q):
            if key_phases is phases and is_short(q) and q.dtype == k.dtype:
                # with few tokens the number of calls takes the time: rotate both in one tensor
                if q.shape == k.shape and phases.turns.ndim <= q.ndim + 1:
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
        """Return the matrices R(r), ``(..., heads, seq, head_dim, head_dim)``.

        Their dtype is that of floating-point positions. For integer positions it is float64.
        """
        matrix = self._matrices(positions)
        return matrix.to(positions.dtype) if positions.is_floating_point() else matrix

    def generators(self) -> Tensor:
        r"""Return the commuting generators :math:`L_k`, with :math:`R(r) = \exp(\sum_k r_k L_k)`.

        See equation :eq:`eq-string-generators`.

        Returns:
            Skew-symmetric matrices, float64, ``(heads, coord_dim, head_dim, head_dim)``.
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
        r"""Merge the basis into a projection: :math:`W \mapsto P^\top W`, equation :eq:`eq-fold`.

        Fold the weights (and biases) of the query and of the key projection, then encode with the
        encoder that :meth:`folded` returns. The logits stay the same, and the encoder costs as
        much as RoPE. Do not fold if a nonlinearity follows the projection. If a normalisation
        with learned scales follows it, use :func:`~stringlib.interop.fold_norms.fold_norms`, which
        folds through the normalisation if its scales allow it, equation :eq:`eq-fold-norm`.

        Args:
            weight: Weight of the query or key projection, ``(heads * head_dim, model_dim)`` as in
                ``nn.Linear``, or its bias, ``(heads * head_dim,)``.
            heads: Number of heads of ``weight``. Give it if the encoder has ``heads=1`` and the
                weight could be a joint projection to queries, keys and values, which must not be
                folded as a whole because the values must not change. Without it, such a weight is
                recognised only if its three parts are square. Default: the heads of the encoder,
                or any number if it has ``heads=1``.
            layout: Layout of the encoder that will be used, as for :meth:`folded`.

        Returns:
            The folded weight, of the same shape and dtype.

        Raises:
            ValueError: If the shape of ``weight`` does not fit the encoder and ``heads``, or if
                ``heads`` is not given and the weight looks like a joint projection to queries, keys
                and values.

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
            raise ValueError(
                f"heads must be {self.heads}, the number of heads of the encoder, got {heads}"
            )
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
                "weight must have the layout of nn.Linear, (out, in), got "
                f"{tuple(weight.shape)}, which looks like GPT-2's Conv1D with queries, keys and "
                f"values side by side. Pass one part, for example weight[:, :{rows}].T, or set "
                "heads."
            )
        third = rows // 3
        if own is None and weight.shape == (3 * third, third) and third % self.head_dim == 0:
            raise ValueError(
                f"weight must project to queries or to keys, got {tuple(weight.shape)}, which "
                f"looks like queries, keys and values in one projection. Fold weight[:{third}] and "
                f"weight[{third}:{2 * third}] separately, or set heads."
            )
        basis = self.basis() if layout is None else self.basis()[..., self._order(layout)]
        by_head = weight.reshape(rows // self.head_dim, self.head_dim, -1).to(basis.dtype)
        return (basis.mT @ by_head).reshape(weight.shape).to(weight.dtype)

    @checked
    def folded(self, layout: Layout | None = None) -> STRING:
        """Return the encoder to use after folded projections: the same frequencies, no basis.

        Args:
            layout: How the returned encoder pairs channels, ``"interleaved"`` or ``"half"``. With
                either, non-rotating channels are numbered as pairs with frequency 0, as in models
                that rotate all channels of a head. Pass the same value to :meth:`fold`. Default:
                the layout of this encoder, with the non-rotating channels last.
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
        """Return tables of cosines and sines in the format of rotary modules in other libraries.

        A model that rotates pairs of channels with these tables computes the same logits as with
        this encoder, if its query and key projections are folded with :meth:`fold` in the same
        layout.

        Args:
            positions: ``(..., seq, coord_dim)``.
            layout: How the model pairs channels: ``"half"`` (default), as Llama and most language
                models do, or ``"interleaved"``.
            dtype: Floating-point dtype of the tables. Default: float32. Angles are computed in
                float64.

        Returns:
            ``(cos, sin)``, each ``(..., seq, head_dim)``. Each value occurs twice, at the two
            channels of its pair. A model with the other layout does not rotate with these tables,
            because the two channels of a pair get different angles, :eq:`eq-model-tiled`.

        Raises:
            TypeError: If ``dtype`` is not a floating-point dtype.
            ValueError: If the encoder has more than one head, or if ``head_dim`` is odd.

        Example:
            >>> from stringlib import RoPE
            >>> cos, sin = RoPE(128, base=500_000).tables(torch.arange(10)[:, None])
            >>> cos.shape
            torch.Size([10, 128])
        """
        if not dtype.is_floating_point:
            raise TypeError(f"dtype must be a floating-point dtype, got {dtype}")
        self._require_tables()
        angles = (widen(positions).unsqueeze(-3) @ self._all_frequencies().mT).squeeze(-3)
        cos, sin = ([wave(angles).to(dtype)] * 2 for wave in (torch.cos, torch.sin))
        if layout == "half":
            return torch.cat(cos, -1), torch.cat(sin, -1)
        return torch.stack(cos, -1).flatten(-2), torch.stack(sin, -1).flatten(-2)

    def extra_repr(self) -> str:
        """Return the sizes that ``repr`` shows."""
        return f"head_dim={self.head_dim}, coord_dim={self.coord_dim}, heads={self.heads}"

    @property
    def basis_first(self) -> bool:
        """Whether :meth:`forward` first multiplies by Pᵀ, so that P can be folded into weights.

        False for a subclass that overrides :meth:`forward` or ``_encode``.
        """
        own = type(self)
        return (own.forward, own._encode) == (RotaryEncoder.forward, RotaryEncoder._encode)

    def _require_tables(self) -> None:
        """Raise ``ValueError`` unless cosines and sines can be tables, ``(..., n, head_dim)``."""
        if self.head_dim % 2:
            raise ValueError(
                "encoder must have an even head_dim for tables, because channels rotate in pairs, "
                f"got {self.head_dim}"
            )
        if self.heads != 1:
            raise ValueError(
                "encoder must have heads=1 for tables, because all heads share one table, got "
                f"heads={self.heads}. Use encoder.phases(positions) instead."
            )

    def _own_frequencies(self) -> Tensor:
        """Return Ω; raise ``ValueError`` if :meth:`frequencies` returns it in a wrong shape."""
        frequencies = self.frequencies()
        require_floats("frequencies()", frequencies)
        heads, pairs, coord_dim = frequencies.shape if frequencies.ndim == 3 else (0, 0, 0)
        fits = 2 * pairs <= self.head_dim
        if not fits or (heads, coord_dim) != (self.heads, self.coord_dim):
            raise ValueError(
                f"frequencies() must return shape ({self.heads} heads, at most "
                f"{self.head_dim // 2} pairs, {self.coord_dim} coordinates), got "
                f"{tuple(frequencies.shape)}"
            )
        return frequencies

    def _all_frequencies(self) -> Tensor:
        """Return Ω with a frequency of 0 for each pair of non-rotating channels."""
        frequencies = self._own_frequencies()
        still = self.head_dim // 2 - frequencies.shape[-2]
        return nn.functional.pad(frequencies, (0, 0, 0, still))

    def _order(self, layout: Layout) -> Tensor:
        """Return, for each channel of a layout, the index of the column of P that it takes.

        In this layout, two non-rotating channels form a pair with frequency 0. Only the last
        channel of an odd ``head_dim`` has no partner.
        """
        frequencies, half = self._own_frequencies(), self.head_dim // 2
        pairs = frequencies.shape[-2]
        channels = torch.arange(self.head_dim, device=frequencies.device)
        turning = pair_up(channels[: 2 * pairs], self.layout)
        still = channels[2 * pairs : 2 * half].unflatten(0, (-1, 2))
        return torch.cat([unpair(torch.cat([turning, still]), layout), channels[2 * half :]])

    def _matrices(self, positions: Tensor) -> Tensor:
        phases = unit_phases(positions, self._own_frequencies()).unsqueeze(-3)
        basis = self.basis().unsqueeze(-3)
        # row j of P is Pᵀ applied to unit vector j
        return basis @ rotate_pairs(basis, phases, self.layout).mT

    def _turns(self, positions: Tensor) -> Tensor:
        """Return cosine and sine of all pairs at the positions."""
        # with non-rotating channels as pairs of frequency 0, one product covers all channels
        interleaved = self.layout == "interleaved"
        return unit_phases(
            positions, self._all_frequencies() if interleaved else self._own_frequencies()
        )

    def _turn_shape(self) -> tuple[int, int]:
        """Return the shape of the phases of one token in one head."""
        interleaved = self.layout == "interleaved"
        return self.head_dim // 2 if interleaved else self.frequencies().shape[1], 2

    def _basis_of_turns(self) -> Tensor | None:
        """Return the basis for ``Phases``: P, None for the identity.

        If all heads share P, its first dimension may be 1.
        """
        return None if type(self).basis is RotaryEncoder.basis else self.basis()

    def _phases(self, positions: Tensor, basis: Tensor | None = None) -> Phases:
        """Return the phases of positions; ``basis`` is P if it is already computed."""
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
        """Return the phases for ``x``: those of positions, or given phases after a check.

        Raises:
            ValueError: If ``x`` has the wrong number of heads, or if given phases have a shape that
                does not fit this encoder and ``x``, or are on another device.
        """
        require_heads(x_name, x, self.heads)
        if not isinstance(positions, Phases):
            return self._phases(positions, basis)
        shape, heads = tuple(positions.turns.shape), 1 if self.heads == 1 else x.shape[-3]
        expected = heads, x.shape[-2], *self._turn_shape()
        if shape[-4:] != expected:
            raise ValueError(
                f"{name} must be phases that this encoder computed for the {x.shape[-2]} tokens of "
                f"{x_name}, (..., {', '.join(map(str, expected))}), got shape {shape}"
            )
        require_same_device(x_name, x, name, positions.turns)
        require_same_leading(x_name, x, name, positions.turns, own=4)
        return positions

    def _encode(self, x: Tensor, phases: Phases, whole: bool = False) -> Tensor:
        """Return RoPE(Ωr)Pᵀx, or R(r)x if ``whole`` is True."""
        turns, basis = phases
        exact = at_least_float32(x.dtype)
        y = x.to(exact)
        y = rotate_pairs(y if basis is None else self.to_basis(y, basis), turns, self.layout)
        return (self.from_basis(y, basis) if whole and basis is not None else y).to(x.dtype)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> RotaryEncoder:
        """Move or convert the module, but keep its frequencies and bases in a wide dtype.

        Buffers (fixed frequencies and bases) stay in float64, or in float32 on a device without
        float64. Parameters (learned frequencies) can be converted to float32 or float64; a request
        for a narrower dtype leaves them in float32 or float64. A model in bfloat16 needs
        this, because rounded frequencies give wrong angles at large distances.
        """
        own = [b for b in self._buffers.values() if b is not None]

        def move(t: Tensor) -> Tensor:
            fixed = any(t is b for b in own)
            # an int64 tensor exists on every device, so it shows where ``fn`` moves tensors
            device = fn(t.new_empty(0, dtype=torch.int64)).device
            t = t.to(widest(device)) if t.dtype == torch.float64 else t
            wanted = keep = fn(t.new_empty(0)).dtype
            if fixed:
                keep = widest(device) if t.is_floating_point() else t.dtype
            elif wanted != at_least_float32(wanted):
                keep = at_least_float32(t.dtype)
            if fixed and t.is_meta:  # no values to copy: they are computed or loaded afterwards
                return torch.empty_like(t, dtype=keep, device=device)
            done = keep == wanted and (device == t.device or not fixed)
            return fn(t) if done else t.to(device, keep)

        super()._apply(move, recurse)
        return self


ORTHOGONAL = 2e-4
"""Largest accepted absolute value of an entry of PᵀP − I.

A matrix exponential in float32 is accepted: at d = 512 its largest entry of PᵀP − I is 7e-5.
"""


class STRING(RotaryEncoder):
    r"""Rotary encoder with a given, fixed basis and fixed frequencies, equation :eq:`eq-string`.

    Args:
        frequencies: Ω, ``(heads, pairs, coord_dim)``, in radians per unit of position.
        basis: Orthogonal matrix P, ``(heads, head_dim, head_dim)``. Its orthogonality is checked
            once, when the encoder is made, unless it has no values (on the meta device, for
            example). Default: the identity.
        head_dim: Number of channels of a head. If it exceeds ``2 * pairs``, the last channels (of
            the basis) do not rotate. Default: the size of the basis, or ``2 * pairs`` without one.
        layout: How the rotating channels are paired: ``"interleaved"`` (default) pairs channels
            (2i, 2i + 1), ``"half"`` (i, i + pairs).
        persistent: If True (default), frequencies and basis are saved in the ``state_dict``.

    Raises:
        ValueError: If the basis is not orthogonal (the message gives the deviation), or if the
            sizes of the arguments do not fit each other.

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
        """Return the encoder with the frequencies ``inv_freq`` of another library's rotary module.

        Args:
            inv_freq: Frequency of each pair in radians per position, ``(pairs,)``. If the model
                scales its frequencies for longer texts, give the scaled ones. The encoder contains
                no other part of such a method; for example, YaRN's attention factor has to be
                applied separately.
            layout: How the model pairs channels: ``"half"`` (default) for (i, i + pairs),
                ``"interleaved"`` for (2i, 2i + 1).
            head_dim: Number of channels of a head. If it exceeds ``2 * pairs``, the last channels
                do not rotate. Default: ``2 * pairs``.

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
                raise ValueError("head_dim must be given if frequencies have no pairs, got None")
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
        """Return Ω, float64, ``(heads, pairs, coord_dim)``. Do not change it in place."""
        return self._frequencies

    def basis(self) -> Tensor:
        """Return P, float64, ``(heads, head_dim, head_dim)``. Do not change it in place."""
        return super().basis() if self._basis is None else self._basis

    def _basis_of_turns(self) -> Tensor | None:
        return self._basis


def _require_orthogonal(basis: Tensor) -> None:
    exact = widen(basis.detach())
    largest = (exact.mT @ exact - torch.eye(basis.shape[-1]).to(exact)).abs().max().item()
    if not largest <= ORTHOGONAL:  # also true for NaN
        raise ValueError(
            f"basis must be orthogonal, PᵀP = I within {ORTHOGONAL:.0e}, got an entry of PᵀP that "
            f"is off by {largest:.1e}. Orthogonalise it, for example with torch.linalg.qr(basis).Q."
        )


def _own_copy(x: Tensor) -> Tensor:
    """Return a float64 copy of ``x`` with memory of its own and without a gradient history."""
    return x.detach().to(widest(x.device), copy=True)
