r"""The form of all rotary encoders, :math:`R(r) = P\,\mathrm{RoPE}(\Omega r)\,P^\top`.

The rotation R(r) at position r has an orthogonal basis P and frequencies Ω. This file computes what
depends only on P and Ω: the generators, the matrices R(r), and the weights of a projection into
which P is merged. :mod:`stringlib.encoders.rotary` rotates queries and keys.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor, nn

from stringlib.by_name import by_name
from stringlib.derived import Derived
from stringlib.inputs import Layout, kind_of
from stringlib.kernels.rotation import deinterleave, interleave, rotate_pairs, unit_phases
from stringlib.precision import at_least_float32, widen, widest
from stringlib.spec import Floats, Positions, checked

if TYPE_CHECKING:
    from stringlib.encoders.string import STRING


class RotaryForm(Derived):
    r"""Base of rotary encoders with an orthogonal basis P and frequencies Ω, :eq:`eq-string`.

    A subclass implements :meth:`frequencies` and, if P is not the identity, :meth:`basis`.

    Args:
        head_dim: Number of channels of a head.
        coord_dim: Number of coordinates of a position.
        heads: Number of heads. P and Ω have one entry for each head. With 1, any number of heads
            share P and Ω.
        layout: How the rotating channels are paired after multiplication by the transpose of P:
            ``"interleaved"`` (default) pairs channels (2i, 2i + 1), ``"half"`` pairs channels
            (i, i + pairs).
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
        """Return the frequencies Ω, float64, ``(heads, pairs, coord_dim)``.

        The frequencies are in radians per unit of position.
        """
        raise NotImplementedError(f"{type(self).__name__} must define frequencies()")

    def basis(self) -> Tensor:
        """Return the orthogonal matrix P, float64, ``(heads, head_dim, head_dim)``.

        The columns that span the rotating planes come first, the non-rotating directions last.
        """
        device = self.frequencies().device
        eye = torch.eye(self.head_dim, dtype=widest(device), device=device)
        return eye.expand(self.heads, -1, -1)

    @checked
    def matrix(self, positions: Positions[Tensor, "... n self.coord_dim"]) -> Tensor:
        """Return the rotations R(r) of positions r, ``(..., heads, seq, head_dim, head_dim)``.

        For floating-point positions, the matrices have the dtype of the positions. For integer
        positions, the matrices are float64.
        """
        matrix = self._matrices(positions)
        return matrix.to(positions.dtype) if positions.is_floating_point() else matrix

    def generators(self) -> Tensor:
        r"""Return the commuting generators :math:`L_k`, with :math:`R(r) = \exp(\sum_k r_k L_k)`.

        See equation :eq:`eq-string-generators`.

        Returns:
            Skew-symmetric matrices, float64, ``(heads, coord_dim, head_dim, head_dim)``.
        """
        from stringlib.algebra.skew import planar_skew

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
        r"""Return the weight W of a projection with the basis P merged in, :math:`P^\top W`.

        Fold the weights (and biases) of the query and of the key projection, then encode with the
        encoder that :meth:`folded` returns, equation :eq:`eq-fold`. The logits stay the same, and
        the returned encoder costs as much as RoPE. Do not fold if a nonlinearity follows the
        projection. If a normalisation with learned scales follows the projection, use
        :func:`~stringlib.interop.fold_norms.fold_norms`, which folds through the normalisation if
        the scales allow it, equation :eq:`eq-fold-norm`.

        Args:
            weight: Weight of the query or key projection, ``(heads * head_dim, model_dim)`` as in
                ``nn.Linear``, or the bias of this projection, ``(heads * head_dim,)``.
            heads: Number of heads of ``weight``. Pass ``heads`` if the encoder has ``heads=1`` and
                the shape of the weight could be that of a joint projection to queries, keys and
                values. A joint projection must not be folded as a whole, because the values must
                not change. Without ``heads``, a joint projection is recognised only if its three
                parts are square. Default: the number of heads of the encoder, or any number if the
                encoder has ``heads=1``.
            layout: How the encoder that :meth:`folded` returns pairs channels. Pass the same value
                to :meth:`folded`. Default: None, which means the layout of this encoder.

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
        self._require_projection(weight, heads)
        basis = self.basis() if layout is None else self.basis()[..., self._order(layout)]
        by_head = weight.reshape(len(weight) // self.head_dim, self.head_dim, -1).to(basis.dtype)
        return (basis.mT @ by_head).reshape(weight.shape).to(weight.dtype)

    @checked
    def folded(self, layout: Layout | None = None) -> STRING:
        """Return an encoder with the same frequencies and no basis, for use after folding.

        Args:
            layout: How the returned encoder pairs channels, ``"interleaved"`` or ``"half"``. If a
                layout is given, non-rotating channels form pairs with frequency 0, as in models
                that rotate all channels of a head. Pass the same value to :meth:`fold`. Default:
                the layout of this encoder, with the non-rotating channels last.
        """
        from stringlib.encoders.string import STRING

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

        Fold the query and key projections of the model with :meth:`fold` in the same layout. Then
        a model that rotates pairs of channels with these tables computes the same logits as with
        this encoder.

        Args:
            positions: Positions of the tokens, ``(..., seq, coord_dim)``.
            layout: How the model pairs channels: ``"half"`` (default), as Llama and most language
                models do, or ``"interleaved"``.
            dtype: Floating-point dtype of the tables. Default: float32. Angles are computed in
                float64.

        Returns:
            ``(cos, sin)``, each ``(..., seq, head_dim)``. Each value occurs twice, at the two
            channels of its pair. With these tables, a model with the other layout does not compute
            rotations, because the two channels of its pairs get different angles,
            :eq:`eq-model-tiled`.

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
        from stringlib.encoders.checks import require_tables

        require_tables(self)
        angles = (widen(positions).unsqueeze(-3) @ self._all_frequencies().mT).squeeze(-3)
        cos, sin = ([wave(angles).to(dtype)] * 2 for wave in (torch.cos, torch.sin))
        if layout == "half":
            return torch.cat(cos, -1), torch.cat(sin, -1)
        return torch.stack(cos, -1).flatten(-2), torch.stack(sin, -1).flatten(-2)

    def extra_repr(self) -> str:
        """Return the arguments that ``repr`` shows."""
        return f"head_dim={self.head_dim}, coord_dim={self.coord_dim}, heads={self.heads}"

    def _require_projection(self, weight: Tensor, heads: int | None) -> None:
        """Raise ``ValueError`` unless ``weight`` can project to queries or keys of this encoder."""
        from stringlib.encoders.checks import require_projection

        require_projection(self, weight, heads)

    def _own_frequencies(self) -> Tensor:
        """Return the frequencies Ω that :meth:`frequencies` returns, after a check.

        Raises:
            TypeError: If the result is not a floating-point tensor.
            ValueError: If the result has a wrong shape.
        """
        frequencies = self.frequencies()
        if not (isinstance(frequencies, Tensor) and frequencies.is_floating_point()):
            kind = kind_of(frequencies)
            raise TypeError(f"frequencies() must return a floating-point tensor, got {kind}")
        heads, pairs, coord_dim = frequencies.shape if frequencies.ndim == 3 else (0, 0, 0)
        fits = 2 * pairs <= self.head_dim
        if not fits or (heads, coord_dim) != (self.heads, self.coord_dim):
            raise ValueError(
                "frequencies() must return shape (heads, pairs, coord_dim) with heads = "
                f"{self.heads}, pairs at most {self.head_dim // 2} and coord_dim = "
                f"{self.coord_dim}, got {tuple(frequencies.shape)}"
            )
        return frequencies

    def _all_frequencies(self) -> Tensor:
        """Return the frequencies Ω, with frequency 0 for each pair of non-rotating channels."""
        frequencies = self._own_frequencies()
        still = self.head_dim // 2 - frequencies.shape[-2]
        return nn.functional.pad(frequencies, (0, 0, 0, still)) if still else frequencies

    def _order(self, layout: Layout) -> Tensor:
        """Return, for each channel of a layout, the index of the column of P for this channel.

        In the layout, two non-rotating channels form a pair with frequency 0. Only the last
        channel of an odd ``head_dim`` has no partner.
        """
        frequencies, half = self._own_frequencies(), self.head_dim // 2
        pairs = frequencies.shape[-2]
        channels = torch.arange(self.head_dim, device=frequencies.device)
        turning = interleave(channels[: 2 * pairs], self.layout)
        still = channels[2 * pairs : 2 * half].unflatten(0, (-1, 2))
        return torch.cat([deinterleave(torch.cat([turning, still]), layout), channels[2 * half :]])

    def _matrices(self, positions: Tensor) -> Tensor:
        phases = unit_phases(positions, self._own_frequencies()).unsqueeze(-3)
        basis = self.basis().unsqueeze(-3)
        # row j of P is Pᵀ applied to unit vector j
        return basis @ rotate_pairs(basis, phases, self.layout).mT

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move or convert the module, but keep its frequencies and bases in a wide dtype.

        Buffers (fixed frequencies and bases) stay in float64, or in float32 on a device without
        float64. Parameters (learned frequencies) can be converted to float32 or float64. A request
        for a narrower dtype leaves parameters in float32 or float64, because frequencies that are
        rounded to bfloat16 give wrong angles at large distances.
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
