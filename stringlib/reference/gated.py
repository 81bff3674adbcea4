"""Gated attention and a whole C-CosGate layer as they are printed: one token after the other.

The layer is circulant FAVOR+ features, the cosine weight and a gate behind both.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def gate(y: Tensor, x: Tensor, w_theta: Tensor) -> Tensor:
    r"""Return :math:`Y \odot \sigma(X W_\theta)`, equation :eq:`eq-gate`.

    Args:
        y: What one head says, ``(seq, d_v)``.
        x: The layer's input, ``(seq, dim)``.
        w_theta: ``(dim, d_v)``, or ``(dim, 1)`` for one number a head.

    Returns:
        float64, ``(seq, d_v)``.

    Source:
        Qiu et al. 2025.
    """
    y, x, w_theta = y.double(), x.double(), w_theta.double()
    out = torch.zeros_like(y)
    for i in range(y.shape[0]):
        for c in range(y.shape[1]):
            before = torch.dot(x[i], w_theta[:, min(c, w_theta.shape[1] - 1)]).item()
            out[i, c] = y[i, c] / (1 + math.exp(-before))
    return out


def circulant_features(x: Tensor, r: Tensor, s: Tensor) -> Tensor:
    r"""Return :math:`e^{-\|x\|^2/2} \exp(\mathrm{circ}(r)\,\mathrm{diag}(s)\,x) / \sqrt d`.

    Args:
        x: One query or key, ``(d,)``.
        r: First column of the circulant, ``(d,)``.
        s: Signs, ``(d,)``.

    Returns:
        float64, ``(d,)``: as many features as channels.
    """
    projected = torch.fft.ifft(torch.fft.fft(r.double()) * torch.fft.fft(s.double() * x.double()))
    return torch.exp(projected.real - torch.dot(x.double(), x.double()) / 2) / math.sqrt(len(x))


def c_cosgate(
    x: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    w_v: Tensor,
    w_o: Tensor,
    w_theta: Tensor,
    r: Tensor,
    s: Tensor,
    horizon: float,
    causal: bool = False,
) -> Tensor:
    r"""Return a whole layer, equation :eq:`eq-c-cosgate`.

    Matrices multiply from the right, :math:`q_i = x_i W_q`; head h owns columns h·d to h·d + d − 1.

    Args:
        x: The layer's input, ``(seq, dim)``.
        w_q: Query projection, ``(dim, heads * d)``.
        w_k: Key projection.
        w_v: Value projection.
        w_o: Output projection, ``(heads * d, dim)``.
        w_theta: The gate's projection: ``(dim, heads * d)``, or ``(dim, heads)`` if headwise.
        r: First columns of the circulants, ``(heads, d)``.
        s: Their signs, ``(heads, d)``.
        horizon: M of the cosine.
        causal: Whether token i sees the tokens 0 … i only.

    Returns:
        float64, ``(seq, dim)``.
    """
    x, w_q, w_k, w_v, w_o = (t.double() for t in (x, w_q, w_k, w_v, w_o))
    heads, d = r.shape
    gates = w_theta.shape[1] // heads
    said = []
    for h in range(heads):
        own = slice(h * d, h * d + d)
        q, k, v = x @ w_q[:, own], x @ w_k[:, own], x @ w_v[:, own]
        # a query times a key is then exp(q·k/√d), in expectation
        phi_q = [circulant_features(q_i / d**0.25, r[h], s[h]) for q_i in q]
        phi_k = [circulant_features(k_j / d**0.25, r[h], s[h]) for k_j in k]
        y = torch.zeros_like(v)
        for i in range(len(x)):
            above, below = torch.zeros(d, dtype=torch.float64), 0.0
            for j in range(i + 1 if causal else len(x)):
                weight = math.cos(math.pi / 2 * (i - j) / horizon)
                a = torch.dot(phi_q[i], phi_k[j]).item() * weight
                above += a * v[j]
                below += a
            y[i] = above / below
        said.append(gate(y, x, w_theta[:, h * gates : (h + 1) * gates]))
    return torch.cat(said, -1) @ w_o
