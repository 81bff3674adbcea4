"""Reference implementations of attention layers: softmax, an output gate, and C-CosGate.

C-CosGate is linear attention with circulant FAVOR+ features, a cosine position weight, and a gate
that multiplies the output of each head.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stringlib.reference.features import circulant_features
from stringlib.reference.linear import cosine_attention


def softmax_attention(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None, causal: bool = False
) -> Tensor:
    r"""Return the softmax attention of all queries, with an optional bias on the logits.

    The outputs are :math:`\operatorname{softmax}(QK^\top/\sqrt d + B)\,V`, equation
    :eq:`eq-bias-softmax`. Without a bias and without a causal mask the function is permutation
    equivariant: permuting the tokens permutes the outputs in the same way, equation
    :eq:`eq-perm-equivariant`.

    Args:
        q: Queries Q, ``(heads, seq, d)``.
        k: Keys K, ``(heads, keys, d)``.
        v: Values V, ``(heads, keys, d_v)``.
        bias: Bias B, which is added to the scaled logits, ``(heads, seq, keys)``. Default: no bias.
        causal: If True, a query attends only to keys up to its own position. The n queries then
            belong to the last n of the keys' tokens, so the last query attends to all keys.
            Default: False.

    Returns:
        Outputs of the heads, float64, ``(heads, seq, d_v)``.

    Source:
        Vaswani et al. 2017, equation 1.
    """
    q, k, v = q.double(), k.double(), v.double()
    out = torch.zeros(*q.shape[:-1], v.shape[-1], dtype=torch.float64)
    for head in range(q.shape[0]):
        for i in range(q.shape[1]):
            seen = i + 1 + k.shape[1] - q.shape[1] if causal else k.shape[1]
            logits = []
            for j in range(seen):
                logit = torch.dot(q[head, i], k[head, j]) / math.sqrt(q.shape[-1])
                logits.append(logit if bias is None else logit + bias[head, i, j].double())
            largest = max(logits)
            weights = [torch.exp(logit - largest) for logit in logits]
            total = sum(weights)
            for j in range(seen):
                out[head, i] += weights[j] / total * v[head, j]
    return out


def gate(y: Tensor, x: Tensor, w_theta: Tensor) -> Tensor:
    r"""Return the output of one head, multiplied by an output gate, equation :eq:`eq-gate`.

    The gated output is :math:`Y \odot \sigma(X W_\theta)` with the logistic function
    :math:`\sigma`.

    Args:
        y: Output Y of the head, ``(seq, d_v)``.
        x: Input X of the layer, ``(seq, dim)``.
        w_theta: Gate projection :math:`W_\theta`. With shape ``(dim, d_v)`` each channel of the
            head has its own gate (elementwise). With shape ``(dim, 1)`` all channels of the head
            have the same gate (headwise).

    Returns:
        The gated output, float64, ``(seq, d_v)``.

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
    r"""Return the output of a C-CosGate layer, equation :eq:`eq-c-cosgate`.

    The layer is linear attention with circulant FAVOR+ features, a cosine position weight, and a
    gate that multiplies the output of each head. Queries and keys are divided by :math:`d^{1/4}`
    before their features are computed.

    Tokens are rows, so matrices multiply from the right: :math:`q_i = x_i W_q`. The queries of
    head h are the columns h·d to h·d + d − 1 of this product. Keys and values are split into heads
    in the same way.

    Args:
        x: Input of the layer, ``(seq, dim)``.
        w_q: Query projection, ``(dim, heads * d)``.
        w_k: Key projection, ``(dim, heads * d)``.
        w_v: Value projection, ``(dim, heads * d)``.
        w_o: Output projection, ``(heads * d, dim)``.
        w_theta: Gate projection, ``(dim, heads * d)`` for an elementwise gate, or
            ``(dim, heads)`` for a headwise gate.
        r: First column of the circulant matrix of each head, ``(heads, d)``.
        s: Signs by which each head multiplies the channels before it applies its circulant
            matrix, ``(heads, d)``.
        horizon: Horizon M, in tokens, of the cosine weight :math:`\cos(\pi(i-j)/2M)` of query i and
            key j.
        causal: If True, token i attends only to the tokens 0 … i. Default: False.

    Returns:
        The output of the layer, float64, ``(seq, dim)``.
    """
    x, w_q, w_k, w_v, w_o = (t.double() for t in (x, w_q, w_k, w_v, w_o))
    heads, d = r.shape
    gates = w_theta.shape[1] // heads
    said = []
    for h in range(heads):
        own = slice(h * d, h * d + d)
        q, k, v = x @ w_q[:, own], x @ w_k[:, own], x @ w_v[:, own]
        # with this scale the expected product of two features is exp(q·k/√d)
        phi_q = torch.stack([circulant_features(q_i / d**0.25, r[h], s[h]) for q_i in q])
        phi_k = torch.stack([circulant_features(k_j / d**0.25, r[h], s[h]) for k_j in k])
        y = cosine_attention(phi_q[None], phi_k[None], v[None], horizon, causal=causal)[0]
        said.append(gate(y, x, w_theta[:, h * gates : (h + 1) * gates]))
    return torch.cat(said, -1) @ w_o
