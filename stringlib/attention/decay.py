r"""Decay: a factor of at most 1 by which the running state is multiplied at each token.

Suppose that the state follows :math:`S_t = e^{a_t} S_{t-1} + \phi(k_t) u_t^\top`, where
:math:`\phi(k_t)` are the features of key t and :math:`u_t` is the vector that is summed. Then the
contribution of token j to the output of token i is multiplied by
:math:`e^{a_{j+1} + \dots + a_i}`.
"""

from __future__ import annotations

from torch import Tensor, nn

from stringlib.attention.weights import Factors, PositionWeight
from stringlib.inputs import common_shape, expands, require_log_decay
from stringlib.kernels.decays import decay_matrix
from stringlib.kernels.recurrence import Mode, causal_sums
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
    r"""Return the outputs :math:`\phi(q_t)^\top S_t` of a decaying state S, and the last state.

    The state after token t is :math:`S_t = e^{a_t} S_{t-1} + \phi(k_t) u_t^\top`, equation
    :eq:`eq-decay-state`. Inputs in half precision are converted to float32. The returned state is
    float64 if ``u`` is float64, and otherwise float32.

    Args:
        phi_q: Features of the queries, ``(..., heads, n, m)``.
        phi_k: Features of the keys, ``(..., heads, n, m)``.
        u: Vectors to be summed, usually the values, ``(..., heads, n, d_u)``.
        log_decay: The logarithms :math:`a_t \le 0`; ``-inf`` sets the old state to 0. The shape
            is one of:

            - ``(heads,)`` for a constant decay,
            - ``(..., heads, n)`` or ``(..., heads, n, 1)`` for one decay per token,
            - ``(..., heads, n, m)`` for one decay per token and feature.

            If ``log_decay`` has as many dimensions as ``phi_k``, the last two dimensions are tokens
            and features. With fewer dimensions a shape can fit ``(..., heads, n)`` and also
            ``(..., heads, n, m)``. Then the dimension of size ``heads`` decides between the two
            forms. If two dimensions could be the heads, an error is raised. On the CPU a value
            greater than 0 raises an error. On other devices the values are not checked.
        mode: ``"recurrent"`` computes token by token; ``"chunk"`` computes chunk by chunk;
            ``"parallel"`` treats all tokens as one chunk and so forms an n × n matrix. Default:
            None, which chooses the mode that is usually fastest.
        state: The state S before the first token, ``(..., heads, m, d_u)``. Default: zero.

    Returns:
        The sums, ``(..., heads, n, d_u)``, in the dtype of ``u``, and the last state,
        ``(..., heads, m, d_u)``.
    """
    batch_shape = common_shape(*(x.shape[:-2] for x in (phi_q, phi_k, u)))
    log_decay = with_features(log_decay, batch_shape, *phi_k.shape[-2:])
    exact = at_least_float32(u.dtype)
    if state is not None:
        state = state.to(exact)
    with without_autocast(u):  # long sums lose too many digits in half precision
        q, k, w, a = (x.to(exact) for x in (phi_q, phi_k, u, log_decay))
        sums, state = causal_sums(q, k, w, a, mode, state)
    return sums.to(u.dtype), state


def with_features(log_decay: Tensor, batch_shape: tuple[int, ...], n: int, m: int) -> Tensor:
    """Return logarithms of decays in the shape ``(..., heads, n, 1)`` or ``(..., heads, n, m)``.

    Args:
        log_decay: The logarithms, in one of the shapes that :func:`decayed_sums` accepts.
        batch_shape: Leading dimensions of the features, with the number of heads as the last one.
        n: Number of tokens.
        m: Number of features.

    Raises:
        ValueError: If the shape of ``log_decay`` fits none of the accepted shapes, or fits two of
            them equally well.
    """
    heads, shape = batch_shape[-1], tuple(log_decay.shape)
    if len(shape) == 1 and expands(shape, (heads,)):
        return log_decay[:, None, None].expand(-1, n, 1)
    whole = len(shape) == len(batch_shape) + 2 and expands(shape[:-2], batch_shape)
    # first, so that tracing with symbolic sizes needs no further comparisons
    if whole and shape[-2] == n and expands(shape[-1:], (m,)):
        return log_decay
    scalar = len(shape) > 1 and shape[-1] == n and expands(shape[:-1], batch_shape)
    vector = len(shape) > 2 and shape[-2] == n and expands(shape[:-2], batch_shape)
    vector = vector and expands(shape[-1:], (m,))
    # if both forms fit, the dimension of size `heads` decides; here there are two such dimensions
    if scalar and vector and shape[-2] == shape[-3] == heads and log_decay.numel() > 1:
        raise ValueError(
            f"log_decay must have a shape that fits one form only, got {shape}, which could be one "
            "decay per token or one decay per token and feature. Expand log_decay to "
            f"{(*batch_shape, n, 1)} for one decay per token, or to {(*batch_shape, n, m)} for one "
            f"decay per token and feature. The first {len(batch_shape)} sizes may be 1."
        )
    if scalar and (shape[-2] == heads or not vector):
        return log_decay[..., None]
    if vector:
        return log_decay
    raise ValueError(
        f"log_decay must have shape ({heads},) for a constant decay, {(*batch_shape, n)} or "
        f"{(*batch_shape, n, 1)} for one decay per token, or {(*batch_shape, n, m)} for one decay "
        f"per token and feature, got {shape}"
    )


@checked
def decay_mask(log_decay: LogDecays[Tensor, "... n"]) -> Tensor:
    r"""Return the decay from each key j to each query i, as a lower triangular matrix.

    Entry (i, j) is :math:`e^{a_{j+1} + \dots + a_i}` for j ≤ i, and 0 for j > i,
    :eq:`eq-decay-weight`.

    Args:
        log_decay: The logarithms :math:`a_t \le 0`, ``(..., n)``.

    Returns:
        ``(..., n, n)``, lower triangular, with ones on the diagonal.
    """
    return decay_matrix(log_decay)


class DecayWeight(PositionWeight):
    r"""Decay :math:`e^{a_{j+1} + \dots + a_i}` as the weight of query i and key j ≤ i.

    The weight, :eq:`eq-decay-weight`, is for causal attention only. The decay :math:`e^{a_0}` of
    the first token has an effect only on a state from earlier tokens, because no pair of the given
    tokens has :math:`a_0` in its sum.

    Args:
        log_decay: The logarithms :math:`a_t \le 0`; ``-inf`` gives all earlier tokens the weight 0.
            Pass an ``nn.Parameter`` to learn the decays. The shape is one of:

            - ``(heads,)`` for a constant decay,
            - ``(..., heads, seq)`` or ``(..., heads, seq, 1)`` for one decay per token,
            - ``(..., heads, seq, m)`` for one decay per token and feature.
    """

    causal_only = True
    log_decay: Tensor

    @checked
    def __init__(self, log_decay: LogDecays[Tensor, "... n"]) -> None:
        super().__init__()
        self._hold("log_decay", log_decay)

    @checked
    def matrix(self, num_queries: Count0, num_keys: Count0) -> Tensor:
        """Return the weights, ``(..., heads, num_queries, num_keys)``, with 0 for later keys.

        Raises:
            ValueError: If ``log_decay`` contains one decay per feature, or one per token for
                another number of tokens. With one decay per feature there is no single matrix,
                because the weights of different features differ.
        """
        tokens = max(num_queries, num_keys)
        log_decay = self.log_decay
        if log_decay.ndim == 1:
            log_decay = log_decay[:, None].expand(-1, tokens)
        if log_decay.ndim > 2 and log_decay.shape[-2:] == (tokens, 1):
            log_decay = log_decay.squeeze(-1)
        if log_decay.shape[-1] != tokens:
            raise ValueError(
                f"log_decay must have shape (heads,), (..., heads, {tokens}) or "
                f"(..., heads, {tokens}, 1) for a matrix of {tokens} tokens, got "
                f"{tuple(self.log_decay.shape)}. Call matrix(n, n) for the number n of tokens of "
                "log_decay. A weight with one decay per feature has no single matrix."
            )
        return decay_matrix(log_decay)[..., :num_queries, :num_keys]

    def factors(self, phi_q: Tensor, phi_k: Tensor, start: int | Tensor = 0) -> Factors:
        """Return the features of queries and keys unchanged, together with the decay."""
        if isinstance(self.log_decay, nn.Parameter):  # training may have made it positive
            require_log_decay("log_decay", self.log_decay)
        batch_shape = common_shape(phi_q.shape[:-2], phi_k.shape[:-2])
        return Factors(phi_q, phi_k, with_features(self.log_decay, batch_shape, *phi_k.shape[-2:]))


class SteppedDecay(DecayWeight):
    r"""Decay with a factor :math:`\Delta_j` for key j, as in Mamba-2, :eq:`eq-ssd`.

    The weight of query i and key j ≤ i is
    :math:`\Delta_j\,e^{a_{j+1} + \dots + a_i}`. In a state space model :math:`\Delta_j` is the size
    of time step j, and the decay :math:`e^{a_j}` depends on this size too.

    Args:
        log_decay: The logarithms :math:`a_t \le 0`, in one of the shapes of :class:`DecayWeight`.
        step: The factors :math:`\Delta_j`, ``(..., heads, seq)``.

    Source:
        Dao and Gu 2024.
    """

    step: Tensor

    @checked
    def __init__(
        self, log_decay: LogDecays[Tensor, "...any"], step: Floats[Tensor, "... heads n"]
    ) -> None:
        super().__init__(log_decay)
        self._hold("step", step)

    @checked
    def matrix(self, num_queries: Count0, num_keys: Count0) -> Tensor:
        """Return the weights, ``(..., heads, num_queries, num_keys)``, with 0 for later keys.

        Raises:
            ValueError: As for :meth:`DecayWeight.matrix`.
        """
        return super().matrix(num_queries, num_keys) * self.step[..., None, :num_keys]

    def factors(self, phi_q: Tensor, phi_k: Tensor, start: int | Tensor = 0) -> Factors:
        """Return the features of the queries, the scaled features of the keys, and the decay."""
        return super().factors(phi_q, phi_k * self.step[..., None].to(phi_k.dtype), start)
