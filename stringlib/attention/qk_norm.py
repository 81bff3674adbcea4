r"""QK-norm: queries and keys of one norm, so that the logits are :math:`\tau\cos(q, k)`."""

from __future__ import annotations

from torch import Tensor

from stringlib.kernels.features import unit
from stringlib.precision import at_least_float32


def with_one_norm(q: Tensor, k: Tensor, log_temperature: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return queries and keys scaled so that :math:`q^\top k/\sqrt d` is :math:`\tau\cos(q, k)`.

    Args:
        q: Queries, ``(..., heads, n, d)``.
        k: Keys, ``(..., kv_heads, keys, d)``.
        log_temperature: Logarithm of :math:`\tau`, ``(kv_heads,)``.
    """
    norm = ((log_temperature / 2).exp() * k.shape[-1] ** 0.25)[:, None, None]
    group = q.shape[-3] // k.shape[-3]
    return _with_norm(q, norm.repeat_interleave(group, 0)), _with_norm(k, norm)


def _with_norm(x: Tensor, norm: Tensor) -> Tensor:
    """Return the vectors ``x`` scaled to the given norm. A zero vector remains 0."""
    wide = x.to(at_least_float32(x.dtype))
    return (unit(wide) * norm).to(x.dtype)
