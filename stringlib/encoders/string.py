r"""The one rotation :math:`P\,\mathrm{RoPE}(\Omega r)\,P^\top`.

Every exactly relative encoder that is continuous, and the same for queries and keys, is of
this form. An orthogonal *basis* P splits the channels into planes; *frequencies* Ω say how
fast each plane turns along each coordinate of the position r. A variant says only where its
P and Ω come from.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from stringlib.algebra.shared import shared_product
from stringlib.algebra.skew import planar_skew
from stringlib.autocast import without_autocast
from stringlib.inputs import (
    require_count,
    require_floats,
    require_layout,
    require_positions,
    require_same_tokens,
    require_vectors,
)


def unit_phases(positions: Tensor, frequencies: Tensor) -> Tensor:
    r"""Return cosine and sine of :math:`\Omega r` for every head, token and pair.

    Together they are the unit phase :math:`e^{\mathrm{i}\,\Omega r}`, :eq:`eq-rope-complex`.
    Angles are computed in float64 (float32 on devices without it): at position 10⁶ a
    float32 angle is already wrong by several hundredths of a radian.

    Args:
        positions: ``(..., seq, coord_dim)``.
        frequencies: Radians per unit, ``(heads, pairs, coord_dim)``.

    Returns:
        ``(..., heads, seq, pairs, 2)``.
    """
    exact = torch.float32 if positions.device.type == "mps" else torch.float64
    angles = positions.to(exact).unsqueeze(-3) @ frequencies.to(exact).mT
    return torch.stack([angles.cos(), angles.sin()], -1)


def rotate_pairs(x: Tensor, phases: Tensor, layout: str = "interleaved") -> Tensor:
    r"""Turn every pair of channels by its phase, equation :eq:`eq-rope-pair`.

    Channels behind the pairs are passed through.

    Args:
        x: float32 or float64, ``(..., channels)``.
        phases: Cosines and sines, broadcastable, ``(..., pairs, 2)``, ``2 * pairs <= channels``.
        layout: ``"interleaved"`` pairs channels (2i, 2i+1), ``"half"`` (i, i + pairs).

    Returns:
        The turned tensor, with the dtype of ``x`` and the broadcast shape.
    """
    pairs = phases.shape[-2]
    phases = phases.to(x.dtype)
    turning, still = x[..., : 2 * pairs], x[..., 2 * pairs :]
    if layout == "interleaved" and not torch.compiler.is_compiling():
        # neighbours are the two parts of a complex number: one pass over memory, no temporary,
        # 1.2 times a copy where the real form below takes 4 times (two CPU cores, d = 64)
        turned = torch.view_as_real(
            shared_product(_as_complex(turning), torch.view_as_complex(phases))
        )
    else:
        # compilers fuse real arithmetic and know nothing of complex numbers:
        # (a, b) cos + (b, a) (-sin, sin)
        shape, part = ((pairs, 2), -1) if layout == "interleaved" else ((2, pairs), -2)
        both = turning.unflatten(-1, shape)
        cos, sin = phases.unbind(-1)
        cos, sin = torch.stack([cos, cos], part), torch.stack([-sin, sin], part)
        turned = torch.addcmul(both * cos, both.flip(part), sin)
    turned = turned.flatten(-2)
    if still.shape[-1] == 0:
        return turned
    return torch.cat([turned, still.expand(*turned.shape[:-1], -1)], -1)


def _as_complex(x: Tensor) -> Tensor:
    """View adjacent channels as complex numbers; copy only when the strides forbid the view."""
    pairs = x.unflatten(-1, (-1, 2))
    *outer, last = pairs.stride()
    if last != 1 or any(s % 2 for s in outer) or pairs.storage_offset() % 2:
        pairs = pairs.clone(memory_format=torch.contiguous_format)
    return torch.view_as_complex(pairs)


class RotaryEncoder(nn.Module):
    r"""Base of all encoders of the form :math:`R(r) = P\,\mathrm{RoPE}(\Omega r)\,P^\top`.

    A subclass gives :meth:`frequencies` and, when P is not the identity, :meth:`basis`,
    :meth:`to_basis` and :meth:`from_basis`. Equation :eq:`eq-string`; Schenck et al. 2025,
    theorem 3.4.

    Shapes, here and in the methods: ``q``, ``k``, ``x`` are ``(..., heads, seq, head_dim)``;
    ``positions`` is ``(..., seq, coord_dim)``, integer or floating, its leading dimensions
    broadcast with those of ``x``. ``heads=1`` serves any number of heads.
    """

    def __init__(
        self, head_dim: int, coord_dim: int, heads: int, layout: str = "interleaved"
    ) -> None:
        super().__init__()
        require_count("head_dim", head_dim)
        require_count("coord_dim", coord_dim)
        require_count("heads", heads)
        require_layout(layout)
        self.head_dim, self.coord_dim, self.heads = int(head_dim), int(coord_dim), int(heads)
        self.layout = layout

    def frequencies(self) -> Tensor:
        """Return Ω in radians per unit of position: float64, ``(heads, pairs, coord_dim)``."""
        raise NotImplementedError

    def basis(self) -> Tensor:
        """Return P, orthogonal, pairs first: float64, ``(heads, head_dim, head_dim)``."""
        eye = torch.eye(self.head_dim, dtype=torch.float64, device=self.frequencies().device)
        return eye.expand(self.heads, -1, -1)

    def to_basis(self, x: Tensor) -> Tensor:
        """Return Pᵀx for float32 or float64 ``x``."""
        return x

    def from_basis(self, x: Tensor) -> Tensor:
        """Return Px for float32 or float64 ``x``."""
        return x

    def forward(
        self, q: Tensor, k: Tensor, positions: Tensor, key_positions: Tensor | None = None
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

        Raises:
            TypeError: If ``q`` or ``k`` is not floating point, or positions are not numbers.
            ValueError: If a shape does not fit.
        """
        phases = self._phases(q, positions, "q", "positions")
        if key_positions is None:
            require_vectors("k", k, self.head_dim, self.heads)
            require_same_tokens("k", k, "positions", positions)
            return self._encode(q, phases), self._encode(k, phases)
        key_phases = self._phases(k, key_positions, "k", "key_positions")
        return self._encode(q, phases), self._encode(k, key_phases)

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """Return R(r)x, in the dtype of ``x``.

        Raises:
            TypeError: If ``x`` is not floating point, or positions are not numbers.
            ValueError: If a shape does not fit.
        """
        phases = self._phases(x, positions, "x", "positions")
        return self._encode(x, phases, self.from_basis)

    def matrix(self, positions: Tensor) -> Tensor:
        """Return R(r) itself: ``(..., heads, seq, head_dim, head_dim)``.

        The dtype is that of floating positions, float64 for integer ones.

        Raises:
            TypeError: If positions are not numbers.
            ValueError: If their shape does not fit.
        """
        require_positions("positions", positions, self.coord_dim)
        phases = unit_phases(positions, self.frequencies()).unsqueeze(-3)
        basis = self.basis().unsqueeze(-3)
        # row j of the basis is Pᵀ applied to unit vector j
        matrix = basis @ rotate_pairs(basis, phases, self.layout).mT
        return matrix.to(positions.dtype) if positions.is_floating_point() else matrix

    def generators(self) -> Tensor:
        r"""Return the commuting generators L, with :math:`R(r) = \exp(\sum_k r_k L_k)`.

        Equation :eq:`eq-string-generators`.

        Returns:
            Skew-symmetric, float64, ``(heads, coord_dim, head_dim, head_dim)``.
        """
        planes = planar_skew(self.frequencies().mT, self.head_dim, self.layout)
        basis = self.basis().unsqueeze(1)
        return basis @ planes @ basis.mT

    def fold(self, weight: Tensor) -> Tensor:
        r"""Move the basis into a projection: :math:`W \mapsto P^\top W`, equation :eq:`eq-fold`.

        Fold the query and the key projection, then encode with :meth:`folded`: the logits
        stay the same and the encoder costs what RoPE costs. Not allowed when a
        nonlinearity or a per-head normalisation with learned scales follows the projection.

        Args:
            weight: ``(heads * head_dim, model_dim)`` as in ``nn.Linear``, or its bias,
                ``(heads * head_dim,)``. An encoder with ``heads=1`` serves any number of heads.

        Returns:
            The folded weight, of the same shape and dtype.

        Raises:
            TypeError: If ``weight`` is not a floating-point tensor.
            ValueError: If its shape does not fit.
        """
        require_floats("weight", weight)
        rows = weight.shape[0] if weight.ndim in (1, 2) else 0
        if rows == 0 or rows % self.head_dim or self.heads not in (1, rows // self.head_dim):
            heads = "any number of heads" if self.heads == 1 else str(self.heads)
            raise ValueError(
                f"weight must have shape ({heads} * {self.head_dim}, model_dim) or "
                f"({heads} * {self.head_dim},), got {tuple(weight.shape)}"
            )
        basis = self.basis()
        by_head = weight.reshape(rows // self.head_dim, self.head_dim, -1).to(basis.dtype)
        return (basis.mT @ by_head).reshape(weight.shape).to(weight.dtype)

    def folded(self) -> STRING:
        """Return the encoder to use behind folded projections: the same frequencies, no basis."""
        return STRING(self.frequencies(), head_dim=self.head_dim, layout=self.layout)

    def extra_repr(self) -> str:
        """Describe the shapes in ``repr``."""
        return f"head_dim={self.head_dim}, coord_dim={self.coord_dim}, heads={self.heads}"

    def _phases(self, x: Tensor, positions: Tensor, x_name: str, name: str) -> Tensor:
        require_vectors(x_name, x, self.head_dim, self.heads)
        require_positions(name, positions, self.coord_dim)
        require_same_tokens(x_name, x, name, positions)
        frequencies = self.frequencies()
        if self.layout == "interleaved":
            # still channels as pairs that turn at frequency 0: one product, nothing to join
            still = self.head_dim // 2 - frequencies.shape[-2]
            frequencies = nn.functional.pad(frequencies, (0, 0, 0, still))
        return unit_phases(positions, frequencies)

    def _encode(
        self, x: Tensor, phases: Tensor, finish: Callable[[Tensor], Tensor] | None = None
    ) -> Tensor:
        wide = x if x.dtype in (torch.float32, torch.float64) else x.float()
        with without_autocast(x):
            turned = rotate_pairs(self.to_basis(wide), phases, self.layout)
            return (finish(turned) if finish else turned).to(x.dtype)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> RotaryEncoder:
        """Move buffers but keep their dtype: a bfloat16 model still needs exact frequencies."""
        own = [b for b in self._buffers.values() if b is not None]

        def move(t: Tensor) -> Tensor:
            if not any(t is b for b in own):
                return fn(t)
            probe = fn(t.new_empty(0))
            if (probe.dtype, probe.device) == (t.dtype, t.device):
                return fn(t)
            # nothing can be copied from the meta device: see _refill
            return torch.empty_like(t, device=probe.device) if t.is_meta else t.to(probe.device)

        super()._apply(move, recurse)
        if any(b.is_meta for b in own):
            self._refill()
        return self

    def _refill(self) -> None:
        """Compute buffers that are not in the ``state_dict`` anew, after ``to_empty``."""


class STRING(RotaryEncoder):
    r"""An encoder with given, fixed basis and frequencies, equation :eq:`eq-string`.

    Args:
        frequencies: Ω, ``(heads, pairs, coord_dim)``, in radians per unit of position.
        basis: P, orthogonal, ``(heads, head_dim, head_dim)``; the identity if omitted.
        head_dim: Number of channels; ``2 * pairs`` (or the size of the basis) if omitted.
        layout: How the pairs are numbered, ``"interleaved"`` or ``"half"``.
        persistent: Whether frequencies and basis belong to the ``state_dict``.

    Raises:
        TypeError: If ``frequencies`` or ``basis`` is not a floating-point tensor.
        ValueError: If the shapes do not fit.

    Source:
        Schenck et al. 2025, theorem 3.4.
    """

    _frequencies: Tensor
    _basis: Tensor | None

    def __init__(
        self,
        frequencies: Tensor,
        basis: Tensor | None = None,
        head_dim: int | None = None,
        layout: str = "interleaved",
        *,
        persistent: bool = True,
    ) -> None:
        require_floats("frequencies", frequencies)
        if basis is not None:
            require_floats("basis", basis)
        if frequencies.ndim != 3:
            raise ValueError(
                "frequencies must have shape (heads, pairs, coord_dim), "
                f"got {tuple(frequencies.shape)}"
            )
        heads, pairs, coord_dim = frequencies.shape
        if head_dim is None:
            if basis is None and pairs == 0:
                raise ValueError("head_dim must be given when frequencies have no pairs, got None")
            head_dim = 2 * pairs if basis is None or basis.ndim == 0 else basis.shape[-1]
        super().__init__(head_dim, coord_dim, heads, layout)
        if head_dim < 2 * pairs:
            raise ValueError(
                f"head_dim must be at least {2 * pairs} for {pairs} pairs, got {head_dim}"
            )
        if basis is not None and basis.shape != (heads, head_dim, head_dim):
            raise ValueError(
                f"basis must have shape {(heads, head_dim, head_dim)}, got {tuple(basis.shape)}"
            )
        self.register_buffer("_frequencies", _own_copy(frequencies), persistent)
        self.register_buffer("_basis", None if basis is None else _own_copy(basis), persistent)

    def frequencies(self) -> Tensor:
        """Return Ω, not to be changed in place: float64, ``(heads, pairs, coord_dim)``."""
        return self._frequencies

    def basis(self) -> Tensor:
        """Return P, not to be changed in place: float64, ``(heads, head_dim, head_dim)``."""
        return super().basis() if self._basis is None else self._basis

    def to_basis(self, x: Tensor) -> Tensor:
        """Return Pᵀx for float32 or float64 ``x``."""
        return x if self._basis is None else x @ self._basis.to(x.dtype)

    def from_basis(self, x: Tensor) -> Tensor:
        """Return Px for float32 or float64 ``x``."""
        return x if self._basis is None else x @ self._basis.to(x.dtype).mT


def _own_copy(x: Tensor) -> Tensor:
    """Return a float64 copy that shares neither memory nor history with ``x``."""
    return x.detach().to(torch.float64, copy=True)
