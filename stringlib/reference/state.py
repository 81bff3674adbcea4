"""Reference implementations of attention as a recurrence over tokens.

The state S of a head is a matrix. Each token multiplies the state by a transition (usually a decay)
and adds the product of its key and value. The output is the product of the query and the state.
"""

from __future__ import annotations

import torch
from torch import Tensor


def _states(A: Tensor, k: Tensor, v: Tensor) -> Tensor:
    r"""Return the state of each head after each token.

    The state after token t is :math:`S_t = A_t S_{t-1} + k_t v_t^\top`, with :math:`S_{-1} = 0`.

    Args:
        A: Transition matrix of each token, ``(heads, n, d, d)``.
        k: Keys, ``(heads, n, d)``.
        v: Values, ``(heads, n, d_v)``.

    Returns:
        The states, float64, ``(heads, n, d, d_v)``.
    """
    A, k, v = A.double(), k.double(), v.double()
    s = torch.zeros(len(k), k.shape[-1], v.shape[-1], dtype=torch.float64)
    found = []
    for t in range(k.shape[1]):
        s = A[:, t] @ s + k[:, t, :, None] * v[:, t, None, :]
        found.append(s)
    return torch.stack(found, 1)


def _read(q: Tensor, S: Tensor) -> Tensor:
    """Return the output of each token, which is the product of its query and a state.

    Args:
        q: Queries, ``(heads, n, d)``.
        S: State that the query of each token reads, ``(heads, n, d, d_v)``.

    Returns:
        The outputs, float64, ``(heads, n, d_v)``.
    """
    return torch.einsum("hnd,hndv->hnv", q.double(), S)


def recurrent_attention(phi_q: Tensor, phi_k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r"""Return causal linear attention, computed by a recurrence, equation :eq:`eq-linear-state`.

    Token t adds :math:`\phi(k_t)\,v_t^\top` to the state S and :math:`\phi(k_t)` to the normaliser
    z. The output of token t is :math:`\phi(q_t)^\top S_t / \phi(q_t)^\top z_t`.

    Args:
        phi_q: Features of the queries, ``(heads, n, m)``.
        phi_k: Features of the keys, ``(heads, n, m)``.
        v: Values, ``(heads, n, d_v)``.

    Returns:
        Three float64 tensors, namely the outputs, ``(heads, n, d_v)``, the last state S,
        ``(heads, m, d_v)``, and the last normaliser z, ``(heads, m)``.

    Source:
        Katharopoulos et al. 2020.
    """
    phi_q, phi_k, v = phi_q.double(), phi_k.double(), v.double()
    heads, n, m = phi_q.shape
    S = torch.zeros(heads, m, v.shape[-1], dtype=torch.float64)
    z = torch.zeros(heads, m, dtype=torch.float64)
    rows = []
    for t in range(n):
        S = S + torch.einsum("hm,hd->hmd", phi_k[:, t], v[:, t])
        z = z + phi_k[:, t]
        numerator = torch.einsum("hm,hmd->hd", phi_q[:, t], S)
        denominator = torch.einsum("hm,hm->h", phi_q[:, t], z)
        rows.append(numerator / denominator[:, None])
    return torch.stack(rows, 1), S, z


def state_space(A: Tensor, B: Tensor, C: Tensor, x: Tensor) -> Tensor:
    r"""Return the outputs of a linear state-space model, equation :eq:`eq-linear-ssm`.

    The output of step t is :math:`y_t = C_t^\top h_t` with the state
    :math:`h_t = A_t h_{t-1} + B_t x_t^\top`.

    Args:
        A: Transition matrix of each step, ``(n, m, m)``.
        B: Vector of each step that writes the input to the state, ``(n, m)``.
        C: Vector of each step that reads the output from the state, ``(n, m)``.
        x: Inputs, ``(n, d)``.

    Returns:
        The outputs, float64, ``(n, d)``.

    Source:
        Dao and Gu 2024.
    """
    return _read(C[None], _states(A[None], B[None], x[None]))[0]


def retnet_recurrence(q: Tensor, k: Tensor, v: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return the outputs and the last state of RetNet's retention, equation :eq:`eq-retnet`.

    With queries, keys and values as rows, the output is :math:`o_t = q_t S_t` with
    :math:`S_t = \gamma S_{t-1} + k_t^\top v_t`.

    Args:
        q: Queries, ``(heads, n, d)``.
        k: Keys, ``(heads, n, d)``.
        v: Values, ``(heads, n, d_v)``.
        gamma: Decay :math:`\gamma` of each head, ``(heads,)``.

    Returns:
        Outputs ``(heads, n, d_v)`` and the last state ``(heads, d, d_v)``, float64.

    Source:
        Sun et al. 2023.
    """
    S = _states(torch.diag_embed(gamma[:, None, None].expand_as(k)), k, v)
    return _read(q, S), S[:, -1]


def gla_recurrence(q: Tensor, k: Tensor, v: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return the outputs and the last state of gated linear attention (GLA), :eq:`eq-gla`.

    With queries, keys and values as rows, the output is :math:`o_t = q_t S_t` with
    :math:`S_t = \mathrm{Diag}(\alpha_t) S_{t-1} + k_t^\top v_t`.

    Args:
        q: Queries, ``(heads, n, d)``.
        k: Keys, ``(heads, n, d)``.
        v: Values, ``(heads, n, d_v)``.
        alpha: Data-dependent decay of each token and key channel, ``(heads, n, d)``.

    Returns:
        Outputs ``(heads, n, d_v)`` and the last state ``(heads, d, d_v)``, float64.

    Source:
        Yang et al. 2024.
    """
    S = _states(torch.diag_embed(alpha), k, v)
    return _read(q, S), S[:, -1]


def rwkv6_recurrence(
    r: Tensor, k: Tensor, v: Tensor, w: Tensor, u: Tensor
) -> tuple[Tensor, Tensor]:
    r"""Return the outputs and the last state of RWKV-6, equation :eq:`eq-rwkv6`.

    With queries, keys and values as rows, the output is
    :math:`o_t = r_t(S_{t-1} + \mathrm{diag}(u)\,k_t^\top v_t)` with
    :math:`S_t = \mathrm{diag}(w_t) S_{t-1} + k_t^\top v_t`. The current token thus has the weight
    u in its own output, and is added to the state only afterwards.

    Args:
        r: Queries, which RWKV calls receptance, ``(heads, n, d)``.
        k: Keys, ``(heads, n, d)``.
        v: Values, ``(heads, n, d_v)``.
        w: Decay of each token and key channel, ``(heads, n, d)``.
        u: Weight of the current token in each key channel (bonus), ``(heads, d)``.

    Returns:
        Outputs ``(heads, n, d_v)`` and the last state ``(heads, d, d_v)``, float64.

    Source:
        Peng et al. 2024.
    """
    S = _states(torch.diag_embed(w), k, v)
    before = torch.cat([torch.zeros_like(S[:, :1]), S[:, :-1]], 1)
    bonus = u[:, None].double() * k.double()
    return _read(r, before + bonus[..., None] * v.double()[..., None, :]), S[:, -1]


def ssd_recurrence(x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return the outputs and the last state of SSD (Mamba-2), equation :eq:`eq-ssd`.

    The output is :math:`y_t = C_t^\top h_t` with
    :math:`h_t = e^{\Delta_t A} h_{t-1} + \Delta_t B_t x_t^\top`.

    Args:
        x: Inputs, which correspond to values, ``(heads, n, p)``.
        dt: Step size :math:`\Delta_t` of each token, ``(heads, n)``.
        A: A negative number per head, so that :math:`e^{\Delta_t A}` is a decay, ``(heads,)``.
        B: Input vectors, which correspond to keys, ``(heads, n, N)``.
        C: Output vectors, which correspond to queries, ``(heads, n, N)``.

    Returns:
        Outputs ``(heads, n, p)`` and the last state ``(heads, N, p)``, float64.

    Source:
        Dao and Gu 2024.
    """
    step = dt[..., None].double()
    decay = torch.exp(step * A[:, None, None].double()).expand_as(B)
    h = _states(torch.diag_embed(decay), step * B.double(), x)
    return _read(C, h), h[:, -1]


def semiseparable_mask(a: Tensor) -> Tensor:
    r"""Return the causal mask of products of decays, equation :eq:`eq-decay-weight`.

    Entry (i, j) is the product :math:`a_{j+1} \cdots a_i` for j < i, 1 for j = i, and 0 for j > i.

    Args:
        a: Decay of each token, ``(n,)``.

    Returns:
        The mask L, float64, ``(n, n)``.

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


def delta_rule_recurrence(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, alpha: Tensor
) -> tuple[Tensor, Tensor]:
    r"""Return the outputs and the last state of the gated delta rule, :eq:`eq-delta-gated`.

    The output is :math:`S_t^\top q_t` with
    :math:`S_t = \alpha_t (I - \beta_t k_t k_t^\top) S_{t-1} + \beta_t k_t v_t^\top`. With
    :math:`\alpha = 1` this is DeltaNet, otherwise Gated DeltaNet. With one decay per feature, as in
    KDA, :math:`S_{t-1}` is multiplied by :math:`\mathrm{diag}(\alpha_t)` before it is multiplied by
    the bracket, :eq:`eq-kda`.

    Args:
        q: Queries, ``(heads, n, d)``.
        k: Keys of norm 1, ``(heads, n, d)``.
        v: Values, ``(heads, n, d_v)``.
        beta: Rate :math:`\beta_t`, which is the fraction of the stored value that the new value
            replaces, ``(heads, n)``.
        alpha: Decay :math:`\alpha_t` of the whole state, ``(heads, n)``, or of each feature,
            ``(heads, n, d)``.

    Returns:
        Outputs ``(heads, n, d_v)`` and the last state ``(heads, d, d_v)``, float64.

    Source:
        Schlag et al. 2021; Yang et al. 2025 for one alpha per token; Kimi Team 2025 for one per
        feature.
    """
    if alpha.ndim == 2:
        alpha = alpha[..., None]
    k, written = k.double(), beta[..., None].double() * k.double()
    keep = torch.eye(k.shape[-1], dtype=torch.float64) - written[..., :, None] * k[..., None, :]
    S = _states(keep * alpha[..., None, :].double(), written, v)
    return _read(q, S), S[:, -1]
