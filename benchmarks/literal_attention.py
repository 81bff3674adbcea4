"""Linear attention written out from papers and reference implementations, for comparison.

All functions compute in float32. Features have shape ``(batch, heads, seq, m)`` and values
``(batch, heads, seq, d)``.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def cosine_features(phi: Tensor) -> Tensor:
    """Return 2m features whose products contain the weight cos(π(i − j)/2n) (Qin et al. 2022)."""
    n = phi.shape[-2]
    angle = math.pi / 2 / n * torch.arange(n, device=phi.device)[:, None]
    return torch.cat([phi * torch.sin(angle), phi * torch.cos(angle)], -1)


def cosformer(phi_q: Tensor, phi_k: Tensor, v: Tensor) -> Tensor:
    """Return cosFormer's attention, not causal, with one sum of all keys for all queries."""
    q, k = cosine_features(phi_q), cosine_features(phi_k)
    kv = torch.einsum("bhnm,bhnd->bhmd", k, v)
    z = 1 / torch.einsum("bhnm,bhm->bhn", q, k.sum(-2)).clamp(min=1e-6)
    return torch.einsum("bhnm,bhmd,bhn->bhnd", q, kv, z)


def cosformer_cumsum(phi_q: Tensor, phi_k: Tensor, v: Tensor) -> Tensor:
    """Return cosFormer's causal attention, with a state for every token by a cumulative sum."""
    q, k = cosine_features(phi_q), cosine_features(phi_k)
    states = torch.einsum("bhnm,bhnd->bhnmd", k, v).cumsum(2)
    total = torch.einsum("bhnm,bhnm->bhn", q, k.cumsum(2)).clamp(min=1e-6)
    return torch.einsum("bhnm,bhnmd->bhnd", q, states) / total[..., None]


def chunked(phi_q: Tensor, phi_k: Tensor, v: Tensor, size: int = 64) -> Tensor:
    """Return causal linear attention, for all chunks at once, by a cumulative sum of states."""
    total = (phi_q * phi_k.cumsum(2)).sum(-1, keepdim=True)
    q, k, u = (x.unflatten(2, (-1, size)) for x in (phi_q, phi_k, v))
    own = k.mT @ u
    before = own.cumsum(2) - own
    mask = torch.ones(size, size, dtype=torch.bool, device=v.device).triu(1)
    inside = (q @ k.mT).masked_fill(mask, 0) @ u
    return (q @ before + inside).flatten(2, 3) / total


def decayed_chunks(
    phi_q: Tensor, phi_k: Tensor, v: Tensor, log_decay: Tensor, size: int = 64
) -> Tensor:
    """Return causal sums with one decay per token, chunk by chunk (Yang et al. 2024)."""
    q, k, u = (x.unflatten(2, (-1, size)) for x in (phi_q, phi_k, v))
    log = log_decay.unflatten(2, (-1, size)).cumsum(-1)
    mask = torch.ones(size, size, dtype=torch.bool, device=v.device).tril()
    between = (log[..., :, None] - log[..., None, :]).masked_fill(~mask, -math.inf).exp()
    state, out = k.new_zeros(*k.shape[:2], k.shape[-1], u.shape[-1]), []
    for c in range(q.shape[2]):
        a = log[:, :, c]
        scores = (q[:, :, c] @ k[:, :, c].mT) * between[:, :, c]
        out.append((q[:, :, c] * a.exp()[..., None]) @ state + scores @ u[:, :, c])
        kept = k[:, :, c] * (a[..., -1:] - a).exp()[..., None]
        state = state * a[..., -1].exp()[..., None, None] + kept.mT @ u[:, :, c]
    return torch.stack(out, 2).flatten(2, 3)


def delta_chunks(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, size: int = 64) -> Tensor:
    """Return the outputs of the delta rule, chunk by chunk (Yang et al. 2024).

    The triangular system of a chunk is solved row by row.

    Args:
        q: Queries, ``(batch, heads, seq, d)``.
        k: Keys of norm 1, of the same shape.
        v: Values, of the same shape.
        beta: Rates, ``(batch, heads, seq)``.
        size: Length of a chunk, a divisor of seq.
    """
    q, k, v, rate = (x.unflatten(2, (-1, size)) for x in (q, k, v, beta[..., None]))
    products = -(rate * k @ k.mT).tril(-1)
    rows = [products[..., :1, :]]
    for i in range(1, size):  # row i of the inverse, from those above it
        row = products[..., i : i + 1, :]
        rows.append(row + row[..., :i] @ torch.cat(rows, -2))
    inverse = torch.cat(rows, -2) + torch.eye(size, device=k.device)
    from_keys, from_values = inverse @ (rate * k), inverse @ (rate * v)
    state, out = k.new_zeros(*k.shape[:2], k.shape[-1], v.shape[-1]), []
    for c in range(q.shape[2]):
        written = from_values[:, :, c] - from_keys[:, :, c] @ state
        own = (q[:, :, c] @ k[:, :, c].mT).tril() @ written
        out.append(q[:, :, c] @ state + own)
        state = state + k[:, :, c].mT @ written
    return torch.stack(out, 2).flatten(2, 3)


def ssd(x: Tensor, a: Tensor, b: Tensor, c: Tensor, size: int = 64) -> Tensor:
    """Return the outputs of structured state space duality, computed in its four steps.

    The steps are those of listing 1 in Dao and Gu 2024.

    Args:
        x: Inputs, which correspond to values, ``(batch, seq, heads, d)``.
        a: Logarithms of the decays, ``(batch, seq, heads)``.
        b: Input vectors, which correspond to keys, ``(batch, seq, heads, m)``.
        c: Output vectors, which correspond to queries, ``(batch, seq, heads, m)``.
        size: Length of a chunk, a divisor of seq.
    """
    x, a, b, c = (t.unflatten(1, (-1, size)) for t in (x, a, b, c))
    a = a.permute(0, 3, 1, 2)
    total = a.cumsum(-1)
    # inside a chunk; what a chunk adds; the states between chunks; what they give
    inside = torch.einsum("bclhn,bcshn,bhcls,bcshp->bclhp", c, b, segment_sums(a).exp(), x)
    left = (total[..., -1:] - total).exp()
    states = torch.einsum("bclhn,bhcl,bclhp->bchpn", b, left, x)
    states = torch.cat([torch.zeros_like(states[:, :1]), states], 1)
    between = segment_sums(torch.nn.functional.pad(total[..., -1], (1, 0))).exp()
    states = torch.einsum("bhzc,bchpn->bzhpn", between, states)[:, :-1]
    carried = torch.einsum("bclhn,bchpn,bhcl->bclhp", c, states, total.exp())
    return (inside + carried).flatten(1, 2)


def segment_sums(a: Tensor) -> Tensor:
    """Return the sum of a from j + 1 to i as entry (i, j) for j ≤ i, and −∞ for j > i."""
    n = a.shape[-1]
    lower = torch.ones(n, n, dtype=torch.bool, device=a.device).tril(-1)
    sums = a[..., None].expand(*a.shape, n).masked_fill(~lower, 0).cumsum(-2)
    return sums.masked_fill(~(lower | torch.eye(n, dtype=torch.bool, device=a.device)), -math.inf)


def toeplitz_fft(phi_q: Tensor, phi_k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """Return linear attention with a bias per offset, by FFTs over all features and channels.

    This is algorithm 1 of Luo et al. 2021. For each query, D1 is a matrix of sums and D2 a vector.

    Args:
        phi_q: Features of the queries.
        phi_k: Features of the keys.
        v: Values.
        bias: One bias per offset, ``(heads, 2n - 1)``. The offset is the position of the key minus
            that of the query, from −(n − 1) to n − 1.
    """
    n = v.shape[-2]
    weights = bias.exp()
    # first column of the circulant matrix of size 2n that holds the weights
    column = torch.cat([weights[:, :n].flip(-1), weights.new_zeros(len(weights), 1)], -1)
    column = torch.cat([column, weights[:, n:].flip(-1)], -1)
    spectrum = torch.fft.rfft(column)[..., None]

    def multiply(x: Tensor) -> Tensor:
        return torch.fft.irfft(spectrum * torch.fft.rfft(x, 2 * n, dim=-2), 2 * n, dim=-2)[
            ..., :n, :
        ]

    products = torch.einsum("bhnm,bhnd->bhnmd", phi_k, v)
    d1 = multiply(products.flatten(-2)).unflatten(-1, products.shape[-2:])
    d2 = multiply(phi_k)
    upper = torch.einsum("bhnm,bhnmd->bhnd", phi_q, d1)
    return upper / torch.einsum("bhnm,bhnm->bhn", phi_q, d2)[..., None]
