r"""Decay: the smallest change that lets a running state forget.

With :math:`S_t = e^{a_t} S_{t-1} + \phi(k_t) u_t^\top`, the key of token j counts for the query of
token i by :math:`e^{a_{j+1} + \dots + a_i}`.
"""

from __future__ import annotations

from torch import Tensor, nn

from stringlib.attention.weights import Factors, PositionWeight
from stringlib.inputs import common_shape, expands, require_log_decay
from stringlib.kernels.recurrence import Mode, causal_sums, decay_matrix
from stringlib.precision import at_least_float32, without_autocast
from stringlib.spec import Count0, Floats, LogDecays, checked


@checked
def decayed_sums(
    phi_q: Floats[Tensor, "... #heads n m"],
    phi_k: Floats[Tensor, "... #heads n m"],
    u: Floats[Tensor, "... #heads n d_u"],
    log_decay: LogDecays[Tensor, "...any"],
    *,
    mode: Mode | None = None,
    state: Floats[Tensor, "...? heads? m d_u"] | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Return :math:`\phi(q_t)^\top S_t` for every token, and the last state.

    :math:`S_t = e^{a_t} S_{t-1} + \phi(k_t) u_t^\top`, equation :eq:`eq-decay-state`. Half
    precision is computed in float32, and so is its state.

    Args:
        phi_q: Features of the queries, ``(..., heads, n, m)``.
        phi_k: Features of the keys, ``(..., heads, n, m)``.
        u: What is summed, ``(..., heads, n, d_u)``.
        log_decay: The logarithms :math:`a_t \le 0`; ``-inf`` forgets everything. One above 0 is
            an error on the CPU, elsewhere nothing looks. Shape
            ``(heads,)``, ``(..., heads, n)``, or ``(..., heads, n, m)``: one for each feature;
            or ``(..., heads, n, 1)``. With all leading dimensions the last two are never
            mistaken for the second; a shape that may be either is refused.
        mode: "recurrent" goes token by token, "chunk" from chunk to chunk, "parallel" makes
            one chunk, and so an n × n matrix, of all tokens; None picks the fastest.
        state: S before the first token, ``(..., heads, m, d_u)``; zero if omitted.

    Returns:
        The sums ``(..., heads, n, d_u)`` in the dtype of ``u``, and the last state.
    """
    lead = common_shape(*(x.shape[:-2] for x in (phi_q, phi_k, u)))
    log_decay = with_features(log_decay, lead, *phi_k.shape[-2:])
    exact = at_least_float32(u.dtype)
    if state is not None:
        state = state.to(exact)
    with without_autocast(u):  # sums over many tokens need the digits
        q, k, w, a = (x.to(exact) for x in (phi_q, phi_k, u, log_decay))
        sums, state = causal_sums(q, k, w, a, mode, state)
    return sums.to(u.dtype), state


def with_features(log_decay: Tensor, lead: tuple[int, ...], n: int, m: int) -> Tensor:
    """Return the logarithms as ``(..., heads, n, 1)`` or ``(..., heads, n, m)``."""
    heads, shape = lead[-1], tuple(log_decay.shape)
    if len(shape) == 1 and shape[0] in (1, heads):
        return log_decay[:, None, None].expand(-1, n, 1)
    whole = len(shape) == len(lead) + 2 and expands(shape[:-2], lead)
    if whole and shape[-2] == n and shape[-1] in (1, m):  # a trace for any size asks no more
        return log_decay
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


@checked
def decay_mask(log_decay: LogDecays[Tensor, "... n"]) -> Tensor:
    r"""Return :math:`e^{a_{j+1} + \dots + a_i}` for j ≤ i, else 0: equation :eq:`eq-decay-weight`.

    Args:
        log_decay: The logarithms :math:`a_t \le 0`, ``(..., n)``.

    Returns:
        ``(..., n, n)``, lower triangular with ones on the diagonal.
    """
    return decay_matrix(log_decay)


class DecayWeight(PositionWeight):
    r"""Weight :math:`e^{a_{j+1} + \dots + a_i}` for j ≤ i, equation :eq:`eq-decay-weight`.

    For causal attention only. ``a_0`` acts on nothing but a state that was carried over.

    Args:
        log_decay: The logarithms :math:`a_t \le 0`; ``-inf`` forgets everything. Shape
            ``(heads,)`` constant, ``(..., heads, seq)`` or ``(..., heads, seq, 1)`` one a token,
            or ``(..., heads, seq, m)`` one a token and feature.
    """

    causal_only = True
    log_decay: Tensor

    @checked
    def __init__(self, log_decay: LogDecays[Tensor, "... n"]) -> None:
        super().__init__()
        self._hold("log_decay", log_decay)

    @checked
    def matrix(self, num_queries: Count0, num_keys: Count0) -> Tensor:
        """Return the weights, ``(..., heads, num_queries, num_keys)``, 0 for later keys.

        Raises:
            ValueError: If ``log_decay`` is not constant and has not one entry a token. With one
                for each feature there is no such matrix.
        """
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
        return decay_matrix(log_decay)[..., :num_queries, :num_keys]

    def factors(self, phi_q: Tensor, phi_k: Tensor, start: int = 0) -> Factors:
        """Return the features as they are, and the decay."""
        if isinstance(self.log_decay, nn.Parameter):  # it may have grown
            require_log_decay("log_decay", self.log_decay)
        lead = common_shape(phi_q.shape[:-2], phi_k.shape[:-2])
        return Factors(phi_q, phi_k, with_features(self.log_decay, lead, *phi_k.shape[-2:]))
