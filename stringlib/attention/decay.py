r"""Decay: the smallest change that lets a running state forget.

With :math:`S_t = e^{a_t} S_{t-1} + \phi(k_t) u_t^\top`, the key of token j counts for the query of
token i by :math:`e^{a_{j+1} + \dots + a_i}`. No function here ever exponentiates a positive
number: where two tokens meet, the logarithms between them are summed, never subtracted.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

from stringlib.attention.scalar_decay import scalar_decay_chunks
from stringlib.attention.weights import PositionWeight, require_pairs
from stringlib.inputs import expands, require_causal, require_floats, require_mode, require_state
from stringlib.precision import without_autocast

# Medians on one CPU thread, 8 heads, m = d = 64, float32, milliseconds with gradients, chunks of
# 32 : 64. One decay a token: n = 1024 29 : 34, n = 4096 118 : 104; one a feature: n = 1024 87 : 82.
CHUNK = 32


def decayed_sums(
    phi_q: Tensor,
    phi_k: Tensor,
    u: Tensor,
    log_decay: Tensor,
    *,
    mode: str | None = None,
    state: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Return :math:`\phi(q_t)^\top S_t` for every token, and the last state.

    :math:`S_t = e^{a_t} S_{t-1} + \phi(k_t) u_t^\top`, equation :eq:`eq-decay-state`. Half
    precision is computed in float32, and so is its state.

    Args:
        phi_q: Features of the queries, ``(..., heads, n, m)``.
        phi_k: Features of the keys, ``(..., heads, n, m)``.
        u: What is summed, ``(..., heads, n, d_u)``.
        log_decay: The logarithms :math:`a_t \le 0`; ``-inf`` forgets everything. Shape
            ``(heads,)``, ``(..., heads, n)``, or ``(..., heads, n, m)``: one for each feature;
            or ``(..., heads, n, 1)``. With all leading dimensions the last two are never
            mistaken for the second; a shape that may be either is refused.
        mode: "recurrent" goes token by token, "chunk" from chunk to chunk, "parallel" makes
            one chunk, and so an n × n matrix, of all tokens; None picks the fastest.
        state: S before the first token, ``(..., heads, m, d_u)``; zero if omitted.

    Returns:
        The sums ``(..., heads, n, d_u)`` in the dtype of ``u``, and the last state.

    Raises:
        TypeError: If an argument is not a floating-point tensor.
        ValueError: If shapes do not fit, or there is no such mode.
    """
    require_causal(("phi_q", phi_q), ("phi_k", phi_k), ("u", u))
    require_floats("log_decay", log_decay)
    require_mode(mode, tuple(_MODES))
    n, m = phi_k.shape[-2:]
    lead = torch.broadcast_shapes(*(x.shape[:-2] for x in (phi_q, phi_k, u)))
    decay = _per_feature(log_decay, lead, n, m)
    if state is not None:
        require_state(state, lead, m, u.shape[-1])
    if mode is None:
        mode = "recurrent" if n == 1 else "chunk"
    exact = torch.promote_types(u.dtype, torch.float32)
    with without_autocast(u):  # sums over many tokens need the digits
        q, k, w, a = (x.to(exact) for x in (phi_q, phi_k, u, decay))
        if state is None:
            state = q.new_zeros(*lead, m, w.shape[-1])
        state = state.to(exact)
        sums, state = _MODES[mode](q, k, w, a, state) if n else (q @ state, state)
    return sums.to(u.dtype), state


def _per_feature(log_decay: Tensor, lead: tuple[int, ...], n: int, m: int) -> Tensor:
    """Return the logarithms as ``(..., heads, n, 1)`` or ``(..., heads, n, m)``."""
    heads, shape = lead[-1], tuple(log_decay.shape)
    if shape in ((heads,), (1,)):
        return log_decay[:, None, None].expand(-1, n, 1)
    scalar = len(shape) > 1 and shape[-1] == n and expands(shape[:-1], lead)
    vector = len(shape) > 2 and shape[-2] == n and expands(shape[:-2], lead)
    vector = vector and shape[-1] in (1, m)
    # one head may serve all, but a shape with all heads is meant so
    if scalar and vector and shape[-2] == shape[-3] == heads and log_decay.numel() > 1:
        raise ValueError(
            f"log_decay must say whether it is one a token or one a feature: give one a token as "
            f"{(*lead, n, 1)}, one a feature as {(*lead, n, m)}, where 1 serves for any number "
            f"of the first {len(lead)}; got {shape}, which may be either"
        )
    if scalar and (shape[-2] == heads or not vector):
        return log_decay[..., None]
    if vector:
        return log_decay
    raise ValueError(
        f"log_decay must have shape ({heads},), {(*lead, n)} or {(*lead, n, m)} "
        f"for {heads} heads, {n} tokens and {m} features, got {shape}"
    )


def _recurrent(
    q: Tensor, k: Tensor, u: Tensor, log_decay: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Go token by token."""
    keep, sums = log_decay.exp(), []
    for t in range(u.shape[-2]):
        state = keep[..., t, :, None] * state + k[..., t, :, None] * u[..., t, None, :]
        sums.append(q[..., t, None, :] @ state)
    return torch.cat(sums, -2), state


def _chunked(
    q: Tensor, k: Tensor, u: Tensor, log_decay: Tensor, state: Tensor, size: int | None = None
) -> tuple[Tensor, Tensor]:
    r"""Go chunk by chunk, equation :eq:`eq-decay-chunk`.

    Within a chunk all pairs of tokens meet; what came before reaches it through the state.
    """
    n = u.shape[-2]
    size = min(size or CHUNK, n)
    if n % size:  # tokens without key and value that forget nothing
        q, k, u, log_decay = (pad(x, (0, 0, 0, -n % size)) for x in (q, k, u, log_decay))
    q, k, u, log_decay = (x.unflatten(-2, (-1, size)) for x in (q, k, u, log_decay))
    since_start = log_decay.cumsum(-2).exp()
    added = (k * _sum_of_later(log_decay).exp()).mT @ u
    kept = since_start[..., -1, :, None]
    before = []
    for add, keep in zip(added.unbind(-3), kept.unbind(-3), strict=True):
        before.append(state)
        state = torch.addcmul(add, keep, state)
    within = _scores(q, k, log_decay) @ u
    sums = within + (q * since_start) @ torch.stack(before, -3)
    return sums.flatten(-3, -2)[..., :n, :], state


def _fast_chunks(
    q: Tensor, k: Tensor, u: Tensor, log_decay: Tensor, state: Tensor, size: int | None = None
) -> tuple[Tensor, Tensor]:
    """Do as :func:`_chunked`; where a token has one decay, with a gradient by hand."""
    if log_decay.shape[-1] > 1 or torch.compiler.is_compiling():  # a compiler fuses the plain form
        return _chunked(q, k, u, log_decay, state, size)
    n = u.shape[-2]
    size = min(size or CHUNK, n)
    if n % size:
        q, k, u, log_decay = (pad(x, (0, 0, 0, -n % size)) for x in (q, k, u, log_decay))
    *given, state = _same_leading(q, k, u, log_decay, state)
    q, k, u, a = (x.unflatten(-2, (-1, size)) for x in given)
    with torch.no_grad():
        mask = decay_mask(a.squeeze(-1))
    sums, state = scalar_decay_chunks(_chunked, mask, q, k, u, a, state)
    sums = sums.flatten(-3, -2)
    # the gradient of a slice is a copy, be it of everything
    return sums[..., :n, :] if n % size else sums, state


def _same_leading(*tensors: Tensor) -> list[Tensor]:
    lead = torch.broadcast_shapes(*(x.shape[:-2] for x in tensors))
    return [x.expand(*lead, *x.shape[-2:]) for x in tensors]


def _parallel(
    q: Tensor, k: Tensor, u: Tensor, log_decay: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Make one chunk of all tokens."""
    return _fast_chunks(q, k, u, log_decay, state, size=u.shape[-2])


_Kernel = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
_MODES: dict[str, _Kernel] = {
    "parallel": _parallel,
    "recurrent": _recurrent,
    "chunk": _fast_chunks,
}


def _scores(q: Tensor, k: Tensor, log_decay: Tensor) -> Tensor:
    r"""Return :math:`\sum_f q_{if} k_{jf} e^{a_{j+1,f} + \dots + a_{if}}` for j ≤ i, else 0."""
    if log_decay.shape[-1] == 1:
        return q @ k.mT * decay_mask(log_decay.squeeze(-1))
    size = q.shape[-2]
    whole = 1 << (size - 1).bit_length()  # halving needs a power of two
    q, k, log_decay = (pad(x, (0, 0, 0, whole - size)) for x in (q, k, log_decay))
    return _scores_by_halves(q, k, log_decay)[..., :size, :size]


def _scores_by_halves(q: Tensor, k: Tensor, log_decay: Tensor) -> Tensor:
    """Return the scores where each feature decays at its own rate, equation :eq:`eq-decay-halves`.

    Between the first half of the tokens and the second, the decay of a pair is one up to the
    boundary times one from there: a product of two matrices. The halves are halved in turn.
    """
    size = q.shape[-2]
    if size == 1:
        return (q * k).sum(-1, keepdim=True)
    q, k, log_decay = (x.unflatten(-2, (2, size // 2)) for x in (q, k, log_decay))
    halves = _scores_by_halves(q, k, log_decay)
    first, second = log_decay.unbind(-3)
    to_boundary = k[..., 0, :, :] * _sum_of_later(first).exp()
    from_boundary = q[..., 1, :, :] * second.cumsum(-2).exp()
    across = from_boundary @ to_boundary.mT
    upper = torch.cat([halves[..., 0, :, :], torch.zeros_like(across)], -1)
    return torch.cat([upper, torch.cat([across, halves[..., 1, :, :]], -1)], -2)


def _sum_of_later(log_decay: Tensor) -> Tensor:
    """Return for each token the sum over those after it, ``(..., n, f)``; the last gets 0."""
    return pad(log_decay[..., 1:, :].flip(-2).cumsum(-2).flip(-2), (0, 0, 0, 1))


def decay_mask(log_decay: Tensor) -> Tensor:
    r"""Return :math:`e^{a_{j+1} + \dots + a_i}` for j ≤ i, else 0: equation :eq:`eq-decay-weight`.

    Args:
        log_decay: The logarithms :math:`a_t \le 0`, ``(..., n)``.

    Returns:
        ``(..., n, n)``, lower triangular with ones on the diagonal.
    """
    require_floats("log_decay", log_decay)
    if log_decay.ndim == 0:
        raise ValueError("log_decay must have shape (..., n), got ()")
    n = log_decay.shape[-1]
    # column j is summed from j + 1 on: a difference of two sums from the start loses digits
    # after a strong decay, and is no number at all after -inf
    sums = log_decay.unsqueeze(-1).expand(*log_decay.shape, n).tril(-1).cumsum(-2)
    later = torch.ones(n, n, dtype=torch.bool, device=sums.device).triu(1)
    return sums.masked_fill_(later, -torch.inf).exp_()


class DecayWeight(PositionWeight):
    r"""Weight :math:`e^{a_{j+1} + \dots + a_i}` for j ≤ i, equation :eq:`eq-decay-weight`.

    For causal attention only. ``a_0`` acts on nothing but a state that was carried over.

    Args:
        log_decay: The logarithms :math:`a_t \le 0`; ``-inf`` forgets everything. Shape
            ``(heads,)`` constant, ``(..., heads, seq)`` or ``(..., heads, seq, 1)`` one a token,
            or ``(..., heads, seq, m)`` one a token and feature.

    Raises:
        TypeError: If it is not a floating-point tensor.
        ValueError: If it has no dimension for the heads.
    """

    causal_only = True
    log_decay: Tensor

    def __init__(self, log_decay: Tensor) -> None:
        require_floats("log_decay", log_decay)
        if log_decay.ndim == 0:
            raise ValueError("log_decay must have shape (heads,) or more, got ()")
        super().__init__()
        self._hold("log_decay", log_decay)

    def matrix(self, num_queries: int, num_keys: int) -> Tensor:
        """Return the weights, ``(..., heads, num_queries, num_keys)``, 0 for later keys.

        Raises:
            ValueError: If ``log_decay`` is not constant and has not one entry a token. With one
                for each feature there is no such matrix.
        """
        require_pairs(num_queries, num_keys)
        tokens = max(num_queries, num_keys)
        log_decay = self.log_decay
        if log_decay.ndim == 1:
            log_decay = log_decay[:, None].expand(-1, tokens)
        if log_decay.ndim > 2 and log_decay.shape[-2:] == (tokens, 1):
            log_decay = log_decay.squeeze(-1)
        if log_decay.shape[-1] != tokens:
            raise ValueError(
                f"log_decay must have shape (heads,) or (..., heads, {tokens}) to give the weights "
                f"of {tokens} tokens, got {tuple(self.log_decay.shape)}"
            )
        return decay_mask(log_decay)[..., :num_queries, :num_keys]

    def sums(
        self,
        phi_q: Tensor,
        phi_k: Tensor,
        u: Tensor,
        *,
        causal: bool,
        mode: str | None,
        state: Tensor | None = None,
        start: int = 0,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the weighted sums and the last state, by :func:`decayed_sums`.

        Raises:
            ValueError: If not causal.
        """
        if not causal:
            raise ValueError(
                "causal must be True with a DecayWeight: it weighs earlier keys only, got False"
            )
        return decayed_sums(phi_q, phi_k, u, self.log_decay, mode=mode, state=state)

    def rescaled_sums(
        self,
        phi_q: Tensor,
        phi_k: Tensor,
        u: Tensor,
        log_decay: Tensor,
        *,
        mode: str | None,
        state: Tensor | None = None,
        start: int = 0,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the causal sums under a further decay: the logarithms add up."""
        lead = torch.broadcast_shapes(*(x.shape[:-2] for x in (phi_q, phi_k, u)))
        both = _per_feature(self.log_decay, lead, *phi_k.shape[-2:]) + log_decay[..., None]
        return decayed_sums(phi_q, phi_k, u, both, mode=mode, state=state)
