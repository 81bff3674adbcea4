r"""Rotary encoders: the rotation :math:`R(r) = P\,\mathrm{RoPE}(\Omega r)\,P^\top`.

The orthogonal *basis* P splits the channels into planes. The *frequencies* Ω are the angles, in
radians, by which each plane rotates per unit of each coordinate of the position r. The encoders of
this package differ in how they obtain P and Ω. The rotation of a plane is in
:mod:`stringlib.kernels.rotation`.

The form is general. Suppose that every real vector r is a position. Then every continuous encoding
with these three properties has this form: its scores depend only on the difference of two
positions, it encodes queries and keys in the same way, and it is the identity at r = 0.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor

from stringlib.encoders.form import RotaryForm
from stringlib.inputs import (
    require_heads,
    require_same_device,
    require_same_leading,
    require_same_tokens,
)
from stringlib.kernels.fast_rotation import is_short
from stringlib.kernels.rotation import rotate_pairs, unit_phases
from stringlib.precision import at_least_float32, without_autocast
from stringlib.spec import Floats, Positions, checked


class Phases(NamedTuple):
    """Phases of positions and the basis of an encoder, computed once for many uses.

    The same phases rotate queries and keys, and all layers that share the encoder can use them.

    Attributes:
        cos_sin: Cosine and sine of the angle of each pair, ``(..., heads, seq, pairs, 2)``. In the
            interleaved layout, non-rotating channels are pairs with frequency 0. For
            :class:`~stringlib.encoders.dense.DenseSTRING`: the matrices R(r),
            ``(..., heads, seq, head_dim, head_dim)``.
        basis: The basis P, ``(heads or 1, head_dim, head_dim)``. None if P is the identity, or if
            queries and keys are already multiplied by the transpose of P.
    """

    cos_sin: Tensor
    basis: Tensor | None = None

    @property
    def turns(self) -> Tensor:
        """The old name of ``cos_sin``."""
        warnings.warn(
            "turns is now called cos_sin; the old name is removed in the next version",
            DeprecationWarning,
            stacklevel=2,
        )
        return self.cos_sin

    def to(self, *args: Any, **kwargs: Any) -> Phases:
        """Return the phases on another device or in another dtype, as ``Tensor.to`` does.

        If the requested dtype is narrower than float32, the result is float32.
        """
        moved = self.cos_sin.to(*args, **kwargs)
        if moved.dtype.itemsize < 4:
            moved = self.cos_sin.to(moved.device, torch.float32)
        return Phases(moved, None if self.basis is None else self.basis.to(moved))

    def detach(self) -> Phases:
        """Return the phases without gradients, like ``Tensor.detach``.

        Some hooks call ``detach`` on every argument of a module.
        """
        return Phases(self.cos_sin.detach(), None if self.basis is None else self.basis.detach())


class RotaryEncoder(RotaryForm):
    r"""Base of all encoders of the form :math:`R(r) = P\,\mathrm{RoPE}(\Omega r)\,P^\top`.

    See equation :eq:`eq-string`; Schenck et al. 2025, theorem 3.4. A subclass implements
    :meth:`~stringlib.encoders.form.RotaryForm.frequencies` and, if P is not the identity,
    :meth:`~stringlib.encoders.form.RotaryForm.basis`. A subclass that can multiply by P faster
    than with a dense matrix also overrides :meth:`to_basis` and :meth:`from_basis`.

    In :meth:`forward` and :meth:`rotate`, the vectors ``q`` and ``x`` have shape
    ``(..., heads, seq, head_dim)``. The keys ``k`` may have another number of heads and tokens, see
    :meth:`forward`. The argument ``positions`` is the result of :meth:`phases`, or an integer or
    floating-point tensor ``(..., seq, coord_dim)``. The leading dimensions of ``positions``
    broadcast with the dimensions of the vectors before the heads.

    ``.half()`` and ``.bfloat16()`` leave frequencies in float32 or float64, because rounded
    frequencies give wrong angles at large distances. A wrapper such as FSDP casts parameters
    without a call of these methods and so rounds learned frequencies. For example,
    ``MixedPrecisionPolicy(param_dtype=torch.bfloat16)`` changes angles by several radians at a
    distance of 4,000. To prevent this, give ``fully_shard`` the argument
    ``ignored_params=set(encoder.parameters())``. Then average the gradients of these parameters
    over the processes yourself, because FSDP does not. The fixed frequencies of RoPE are computed
    from their base if a wrapper has rounded them.

    If several blocks share an encoder with parameters, give the encoder to ``fully_shard`` before
    the blocks, and call ``register_fsdp_forward_method(encoder, "phases")``, because layers call
    ``phases`` instead of ``forward``.

    Args:
        head_dim: Number of channels of a head.
        coord_dim: Number of coordinates of a position.
        heads: Number of heads. P and Ω have one entry for each head. With 1, any number of heads
            share P and Ω.
        layout: How the rotating channels are paired after multiplication by the transpose of P:
            ``"interleaved"`` (default) pairs channels (2i, 2i + 1), ``"half"`` pairs channels
            (i, i + pairs).
    """

    def to_basis(self, x: Tensor, basis: Tensor | None = None) -> Tensor:
        """Return Pᵀx, the coordinates of ``x`` in the basis.

        Args:
            x: Vectors in float32 or float64, ``(..., heads, seq, head_dim)``.
            basis: The basis P, if it is already computed. Default: ``self.basis()``.
        """
        return x @ (self.basis() if basis is None else basis).to(x.dtype)

    def from_basis(self, x: Tensor, basis: Tensor | None = None) -> Tensor:
        """Return Px, the vectors with the coordinates ``x`` in the basis.

        Args:
            x: Coordinates in float32 or float64, ``(..., heads, seq, head_dim)``.
            basis: The basis P, if it is already computed. Default: ``self.basis()``.
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
            positions: Positions of the tokens, ``(..., seq, coord_dim)``.

        Returns:
            A :class:`~stringlib.encoders.rotary.Phases` with cosines, sines and the basis P.

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
        r"""Return encoded queries and keys.

        A query or key x at position r becomes :math:`\mathrm{RoPE}(\Omega r)\,P^\top x`. The outer
        factor P of R(r) is left out, because it cancels in every product of a query and a key,
        equation :eq:`eq-outer-basis`. Use :meth:`rotate` for R(r)x itself.

        Args:
            q: Queries, ``(..., heads, seq, head_dim)``.
            k: Keys, ``(..., kv_heads, keys, head_dim)``. If the encoder has ``heads=1``, the number
                of heads may differ from that of the queries. If ``key_positions`` is given, the
                number of tokens may differ from that of the queries.
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
            key_phases = phases  # what fits the queries fits keys of the same shape
            if k.shape != q.shape or k.device != q.device:
                self._fitting("k", k, "positions", positions)
        else:  # the annotations do not compare keys with ``positions``
            require_heads("k", k, self.heads)
            require_same_tokens("k", k, "positions", positions)
            key_phases = phases
        shared, exact = key_phases is phases and q.dtype == k.dtype, at_least_float32(q.dtype)
        if phases.cos_sin.dtype != exact:
            phases = phases.to(exact)
        key_phases = phases if shared else key_phases.to(at_least_float32(k.dtype))
        if shared and is_short(q):
            # with few tokens the number of calls takes the time: rotate both in one tensor
            if q.shape == k.shape and phases.cos_sin.ndim <= q.ndim + 1:
                q, k = self._encode(torch.stack([q, k]), phases).unbind()
                return q, k
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
        """Return R(r)x, the vectors ``x`` rotated for their positions r, in the dtype of ``x``."""
        phases, exact = self._fitting("x", x, "positions", positions), at_least_float32(x.dtype)
        if phases.cos_sin.dtype != exact:
            phases = phases.to(exact)
        return self._encode(x, phases, whole=True)

    @property
    def basis_first(self) -> bool:
        """Whether :meth:`forward` first multiplies by Pᵀ, so that P can be folded into weights.

        This is False for a subclass that overrides :meth:`forward` or ``_encode``.
        """
        own = type(self)
        return (own.forward, own._encode) == (RotaryEncoder.forward, RotaryEncoder._encode)

    def _phase_shape(self) -> tuple[int, int]:
        """Return the shape of the phases of one token in one head."""
        if self.layout == "interleaved":
            return self.head_dim // 2, 2
        return self.frequencies().shape[1], 2

    def _own_basis(self) -> Tensor | None:
        """Return the basis P for ``Phases``, or None if P is the identity.

        If all heads share P, the first dimension of P may be 1.
        """
        return None if type(self).basis is RotaryForm.basis else self.basis()

    def _phases(self, positions: Tensor, basis: Tensor | None = None) -> Phases:
        """Return the phases of positions; ``basis`` is P if it is already computed."""
        # with non-rotating channels as pairs of frequency 0, one product covers all channels
        interleaved = self.layout == "interleaved"
        frequencies = self._all_frequencies() if interleaved else self._own_frequencies()
        basis = self._own_basis() if basis is None else basis
        return Phases(unit_phases(positions, frequencies), basis)

    def _fitting(
        self,
        x_name: str,
        x: Tensor,
        name: str,
        positions: Tensor | Phases,
        basis: Tensor | None = None,
    ) -> Phases:
        """Return the phases for ``x``, computed from positions or given and then checked.

        Raises:
            ValueError: If ``x`` has the wrong number of heads, or if given phases have a shape that
                does not fit this encoder and ``x``, or are on another device.
        """
        if self.heads != 1:  # one head serves any number of heads
            require_heads(x_name, x, self.heads)
        if not isinstance(positions, Phases):
            return self._phases(positions, basis)
        cos_sin = positions.cos_sin
        shape = tuple(cos_sin.shape)
        expected = self.heads, x.shape[-2], *self._phase_shape()
        if shape[-4:] != expected:
            raise ValueError(
                f"{name} must be phases of shape (..., {', '.join(map(str, expected))}) for the "
                f"{x.shape[-2]} tokens of {x_name}, got shape {shape}. Call phases(...) of this "
                "encoder with the positions of these tokens."
            )
        require_same_device(x_name, x, name, cos_sin)
        if cos_sin.ndim > 4:
            require_same_leading(x_name, x, name, cos_sin, own=4)
        return positions

    def _encode(self, x: Tensor, phases: Phases, whole: bool = False) -> Tensor:
        """Return encoded vectors RoPE(Ωr)Pᵀx, or R(r)x if ``whole`` is True.

        The phases have the dtype of the computation, float32 or float64.
        """
        cos_sin, basis = phases
        y = x.to(cos_sin.dtype)
        if basis is None:
            return rotate_pairs(y, cos_sin, self.layout).to(x.dtype)
        with without_autocast(x):  # a product with P in half precision would lose digits
            y = rotate_pairs(self.to_basis(y, basis), cos_sin, self.layout)
            return (self.from_basis(y, basis) if whole else y).to(x.dtype)


def rotated(
    encoder: Any,
    q: Tensor,
    k: Tensor,
    phases: Phases,
    key_phases: Phases | None = None,
    *,
    whole: bool,
) -> tuple[Tensor, Tensor]:
    """Return queries and keys rotated by an encoder, also if several query heads share a key head.

    Args:
        encoder: The rotary encoder.
        q: ``(..., heads, n, d)``.
        k: ``(..., kv_heads, keys, d)``.
        phases: Phases of the encoder for the queries.
        key_phases: Phases for the keys. Default: ``phases``.
        whole: If True, a vector x at position r becomes R(r)x, where R(r) is the matrix of the
            encoder. If False, the basis of the encoder may be left out where it cancels in the
            products of queries and keys.
    """
    group = q.shape[-3] // k.shape[-3]
    grouped = group > 1 and encoder.heads > 1
    if grouped:
        # the queries of one key head as a batch, so that the phases of this head serve them all
        q, k = q.unflatten(-3, (-1, group)).transpose(-4, -3), k.unsqueeze(-4)
        phases = phases._replace(cos_sin=phases.cos_sin.unsqueeze(-5))
        if key_phases is not None:
            key_phases = key_phases._replace(cos_sin=key_phases.cos_sin.unsqueeze(-5))
    if whole and phases.basis is not None:
        q, k = encoder.rotate(q, phases), encoder.rotate(k, key_phases or phases)
    elif key_phases is not None:
        q, k = encoder(q, k, phases, key_phases)
    else:
        q, k = encoder(q, k, phases)
    return (q.transpose(-4, -3).flatten(-4, -3), k.squeeze(-4)) if grouped else (q, k)
