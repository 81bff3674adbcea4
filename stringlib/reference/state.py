"""Linear attention that forgets, as each paper prints it: one token after the other."""

from __future__ import annotations

import torch
from torch import Tensor


def retnet_recurrence(q: Tensor, k: Tensor, v: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return :math:`o_t = q_t S_t`, :math:`S_t = \gamma S_{t-1} + k_t^\top v_t`, :eq:`eq-retnet`.

    Args:
        q: Queries, ``(heads, n, d)``.
        k: Keys, ``(heads, n, d)``.
        v: Values, ``(heads, n, d_v)``.
        gamma: ``(heads,)``.

    Returns:
        Outputs ``(heads, n, d_v)`` and the last state ``(heads, d, d_v)``, float64.

    Source:
        Sun et al. 2023.
    """
    heads, n, d = q.shape
    out = torch.zeros(heads, n, v.shape[-1], dtype=torch.float64)
    last = torch.zeros(heads, d, v.shape[-1], dtype=torch.float64)
    for h in range(heads):
        s = torch.zeros(d, v.shape[-1], dtype=torch.float64)
        for t in range(n):
            s = gamma[h].double() * s + torch.outer(k[h, t].double(), v[h, t].double())
            out[h, t] = q[h, t].double() @ s
        last[h] = s
    return out, last


def gla_recurrence(q: Tensor, k: Tensor, v: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return :math:`o_t = q_t S_t`, :math:`S_t = \mathrm{Diag}(\alpha_t) S_{t-1} + k_t^\top v_t`.

    Equation :eq:`eq-gla`.

    Args:
        q: Queries, ``(heads, n, d)``.
        k: Keys, ``(heads, n, d)``.
        v: Values, ``(heads, n, d_v)``.
        alpha: ``(heads, n, d)``.

    Returns:
        Outputs ``(heads, n, d_v)`` and the last state ``(heads, d, d_v)``, float64.

    Source:
        Yang et al. 2024.
    """
    heads, n, d = q.shape
    out = torch.zeros(heads, n, v.shape[-1], dtype=torch.float64)
    last = torch.zeros(heads, d, v.shape[-1], dtype=torch.float64)
    for h in range(heads):
        s = torch.zeros(d, v.shape[-1], dtype=torch.float64)
        for t in range(n):
            s = torch.diag(alpha[h, t].double()) @ s
            s = s + torch.outer(k[h, t].double(), v[h, t].double())
            out[h, t] = q[h, t].double() @ s
        last[h] = s
    return out, last


def rwkv6_recurrence(
    r: Tensor, k: Tensor, v: Tensor, w: Tensor, u: Tensor
) -> tuple[Tensor, Tensor]:
    r"""Return :math:`o_t = r_t(S_{t-1} + \mathrm{diag}(u)\,k_t^\top v_t)`, equation :eq:`eq-rwkv6`.

    :math:`S_t = \mathrm{diag}(w_t) S_{t-1} + k_t^\top v_t`.

    Args:
        r: Receptance, ``(heads, n, d)``.
        k: Keys, ``(heads, n, d)``.
        v: Values, ``(heads, n, d_v)``.
        w: Decays, ``(heads, n, d)``.
        u: Bonus, ``(heads, d)``.

    Returns:
        Outputs ``(heads, n, d_v)`` and the last state ``(heads, d, d_v)``, float64.

    Source:
        Peng et al. 2024.
    """
    heads, n, d = r.shape
    out = torch.zeros(heads, n, v.shape[-1], dtype=torch.float64)
    last = torch.zeros(heads, d, v.shape[-1], dtype=torch.float64)
    for h in range(heads):
        s = torch.zeros(d, v.shape[-1], dtype=torch.float64)
        for t in range(n):
            written = torch.outer(k[h, t].double(), v[h, t].double())
            out[h, t] = r[h, t].double() @ (s + torch.diag(u[h].double()) @ written)
            s = torch.diag(w[h, t].double()) @ s + written
        last[h] = s
    return out, last


def ssd_recurrence(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
) -> tuple[Tensor, Tensor]:
    r"""Return :math:`y_t = C_t^\top h_t`, :math:`h_t = e^{\Delta_t A} h_{t-1} + \Delta_t B_t x_t`.

    Equation :eq:`eq-ssd`.

    Args:
        x: Inputs, ``(heads, n, p)``.
        dt: Steps, ``(heads, n)``.
        A: Rates, ``(heads,)``.
        B: Input maps, ``(heads, n, N)``.
        C: Output maps, ``(heads, n, N)``.

    Returns:
        Outputs ``(heads, n, p)`` and the last state ``(heads, N, p)``, float64.

    Source:
        Dao and Gu 2024.
    """
    heads, n, p = x.shape
    out = torch.zeros(heads, n, p, dtype=torch.float64)
    last = torch.zeros(heads, B.shape[-1], p, dtype=torch.float64)
    for head in range(heads):
        h = torch.zeros(B.shape[-1], p, dtype=torch.float64)
        for t in range(n):
            step = dt[head, t].double()
            h = torch.exp(step * A[head].double()) * h
            h = h + step * torch.outer(B[head, t].double(), x[head, t].double())
            out[head, t] = C[head, t].double() @ h
        last[head] = h
    return out, last


def semiseparable_mask(a: Tensor) -> Tensor:
    r"""Return :math:`L_{ij} = a_{j+1} \cdots a_i` for j ≤ i, else 0: :eq:`eq-decay-weight`.

    Args:
        a: Factors, ``(n,)``.

    Returns:
        float64, ``(n, n)``.

    Source:
        Dao and Gu 2024.
    """
    n = a.shape[0]
    mask = torch.zeros(n, n, dtype=torch.float64)
    for i in range(n):
        for j in range(i + 1):
            product = torch.ones((), dtype=torch.float64)
            for s in range(j + 1, i + 1):
                product = product * a[s].double()
            mask[i, j] = product
    return mask


def delta_rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> Tensor:
    r"""Return DeltaNet's :math:`q_t S_t`, equation :eq:`eq-delta-rule`: no decay, for comparison.

    :math:`S_t = (I - \beta_t k_t k_t^\top) S_{t-1} + \beta_t k_t v_t^\top`.

    Args:
        q: Queries, ``(n, d)``.
        k: Keys of norm 1, ``(n, d)``.
        v: Values, ``(n, d_v)``.
        beta: ``(n,)``.

    Returns:
        float64, ``(n, d_v)``.

    Source:
        Schlag et al. 2021.
    """
    n, d = q.shape
    out = torch.zeros(n, v.shape[-1], dtype=torch.float64)
    s = torch.zeros(d, v.shape[-1], dtype=torch.float64)
    eye = torch.eye(d, dtype=torch.float64)
    for t in range(n):
        key, value, rate = k[t].double(), v[t].double(), beta[t].double()
        s = (eye - rate * torch.outer(key, key)) @ s + rate * torch.outer(key, value)
        out[t] = q[t].double() @ s
    return out
