r"""STRING: a rotary encoder with a given basis and given frequencies."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stringlib.by_name import by_name
from stringlib.encoders.rotary import RotaryEncoder
from stringlib.inputs import Layout, has_values
from stringlib.moved import forward
from stringlib.precision import widen, widest
from stringlib.spec import Floats, checked

ORTHOGONAL = 2e-4
"""Largest accepted absolute value of an entry of PᵀP − I.

A matrix exponential in float32 is accepted: at d = 512 its largest entry of PᵀP − I is 7e-5.
"""


class STRING(RotaryEncoder):
    r"""Rotary encoder with a given, fixed basis and fixed frequencies, equation :eq:`eq-string`.

    Args:
        frequencies: The frequencies Ω in radians per unit of position,
            ``(heads, pairs, coord_dim)``.
        basis: Orthogonal matrix P, ``(heads, head_dim, head_dim)``. Its orthogonality is checked
            once, when the encoder is made. A basis without values, for example on the meta device,
            is not checked. Default: the identity.
        head_dim: Number of channels of a head. If it exceeds ``2 * pairs``, the last channels (of
            the basis) do not rotate. Default: the size of the basis, or ``2 * pairs`` without a
            basis.
        layout: How the rotating channels are paired: ``"interleaved"`` (default) pairs channels
            (2i, 2i + 1), ``"half"`` pairs channels (i, i + pairs).
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
                scales its frequencies for longer texts, give the scaled frequencies. The encoder
                contains no other part of a scaling method. For example, YaRN's attention factor has
                to be applied separately.
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
            raise ValueError(f"head_dim must be at least 2 * pairs = {2 * pairs}, got {head_dim}")
        if basis is not None and basis.shape[-1] != head_dim:
            raise ValueError(
                f"basis must have shape {(heads, head_dim, head_dim)}, got {tuple(basis.shape)}"
            )
        if basis is not None and has_values(basis):
            _require_orthogonal(basis)
        self.register_buffer("_frequencies", _own_copy(frequencies), persistent)
        self.register_buffer("_basis", None if basis is None else _own_copy(basis), persistent)

    def frequencies(self) -> Tensor:
        """Return the frequencies Ω, float64, ``(heads, pairs, coord_dim)``.

        Do not change Ω in place.
        """
        return self._frequencies

    def basis(self) -> Tensor:
        """Return the basis P, float64, ``(heads, head_dim, head_dim)``.

        Do not change P in place.
        """
        return super().basis() if self._basis is None else self._basis

    def _own_basis(self) -> Tensor | None:
        return self._basis


def _require_orthogonal(basis: Tensor) -> None:
    exact = widen(basis.detach())
    largest = (exact.mT @ exact - torch.eye(basis.shape[-1]).to(exact)).abs().max().item()
    if not largest <= ORTHOGONAL:  # also true for NaN
        fix = "Pass an orthogonal matrix, for example torch.linalg.qr(basis).Q"
        if not math.isfinite(largest):
            fix = "Pass a basis without inf, NaN and numbers whose squares overflow"
        raise ValueError(
            f"basis must be orthogonal, PᵀP = I within {ORTHOGONAL:.0e}, got an entry of PᵀP that "
            f"is off by {largest:.1e}. {fix}."
        )


def _own_copy(x: Tensor) -> Tensor:
    """Return a float64 copy of ``x`` with memory of its own and without a gradient history."""
    return x.detach().to(widest(x.device), copy=True)


__getattr__ = forward(__name__, "stringlib.encoders.rotary", "Phases")
