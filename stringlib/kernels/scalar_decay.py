r"""One decay a token: the chunks of :mod:`stringlib.kernels.recurrence`, with a gradient by hand.

Autograd would write some forty tensors of the size of the features for one gradient, and memory
that is new costs more than the sums in it. Medians of CPU time on one thread, 4 heads, n = 4096,
m = d = 64, float32, milliseconds with gradients, several runs: 65 to 85, and 49 to 62 by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Plain = Callable[..., tuple[Tensor, Tensor]]


def scalar_decay_chunks(
    plain: Plain, mask: Tensor, q: Tensor, k: Tensor, u: Tensor, log_decay: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the sums and the last state, equation :eq:`eq-decay-chunk`.

    Args:
        plain: The same by autograd, for what is not cut into chunks; second derivatives and
            derivatives forwards are its own.
        mask: The decay between the tokens of a chunk, ``(..., chunks, size, size)``.
        q: Features of the queries, ``(..., chunks, size, m)``, with the leading dimensions of all.
        k: Features of the keys, ``(..., chunks, size, m)``.
        u: What is summed, ``(..., chunks, size, d_u)``.
        log_decay: One logarithm a token, ``(..., chunks, size, 1)``.
        state: Before the first token, ``(..., m, d_u)``.

    Returns:
        The sums ``(..., chunks, size, d_u)`` and the last state.
    """
    sums, last, *_ = _ScalarDecay.apply(plain, mask, q, k, u, log_decay, state)
    return sums, last


class _ScalarDecay(torch.autograd.Function):
    @staticmethod
    def forward(
        plain: Plain,
        mask: Tensor,
        q: Tensor,
        k: Tensor,
        u: Tensor,
        log_decay: Tensor,
        state: Tensor,
    ) -> tuple[Tensor, ...]:
        # from the state to each token, and from each token to the end of its chunk
        since, left = log_decay.cumsum(-2).exp_(), mask[..., -1:, :].mT
        scores = (q @ k.mT).mul_(mask)
        states = _before((k * left).mT @ u, since, state)
        sums = (q @ states[0]).mul_(since)
        _add_product(sums, scores, u)
        return sums, states[1], scores, states[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.plain, *tensors = inputs
        ctx.mark_non_differentiable(*output[2:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors, *output[2:])
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, g_last: Tensor | None, *_: None) -> tuple[Any, ...]:
        mask, q, k, u, log_decay, state, scores, before = ctx.saved_tensors
        g = torch.zeros_like(u) if g is None else g
        g_last = torch.zeros_like(state) if g_last is None else g_last
        if torch.is_grad_enabled():  # somebody wants the derivative of this derivative
            pull = torch.func.vjp(_on_chunks(ctx.plain), q, k, u, log_decay, state)[1]
            return None, None, *pull((g, g_last))
        since, left = log_decay.cumsum(-2).exp_(), mask[..., -1:, :].mT
        # through the states: what a chunk reads of the state before it, what it adds to the next
        g_read = g * since
        g_q = g_read @ before.mT
        g_since = (g_q * q).sum(-1)
        after, g_state = _before(q.mT @ g_read, since, g_last, backwards=True)
        g_k = (u @ after.mT).mul_(left)
        g_left = (g_k * k).sum(-1)
        g_u = (k @ after).mul_(left)
        g_kept = (after * before).sum((-2, -1)).unsqueeze(-1) * since[..., -1, :]
        # within a chunk
        g_scores = g @ u.mT
        pairs = g_scores * scores
        g_scores = g_scores * mask
        _add_product(g_u, scores.mT, g)
        _add_product(g_q, g_scores, k)
        _add_product(g_k, g_scores.mT, q)
        # a_t acts on all that passes t: pairs j < t ≤ i, queries i ≥ t, keys j < t, the old state.
        # Sums only: a difference, q·g_q − k·g_k, would lose the digits of a strong decay
        size = mask.shape[-1]
        ones = torch.ones(size, size, dtype=g.dtype, device=g.device)
        g_decay = g_since @ ones.tril() + g_left @ ones.triu(1) + g_kept
        g_decay[..., 1:] += pairs.cumsum(-1).tril_(-1).sum(-2)[..., :-1]
        return None, None, g_q, g_k, g_u, g_decay.unsqueeze(-1), g_state

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor | None, ...]:
        _, *inputs = ctx.saved_tensors
        moved = tuple(
            torch.zeros_like(x) if t is None else t
            for x, t in zip(inputs, tangents[2:], strict=True)
        )
        # torch nests no derivative forwards, but one backwards of one backwards is the same
        out, pull, *_ = torch.func.vjp(_on_chunks(ctx.plain), *inputs)
        push = torch.func.vjp(pull, tuple(torch.zeros_like(x) for x in out))[1]
        return *push(moved)[0], None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], plain: Plain, *tensors: Tensor) -> Any:
        batched = [
            x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
            for x, dim in zip(tensors, in_dims[1:], strict=True)
        ]
        return _ScalarDecay.apply(plain, *batched), (0, 0, 0, 0)


def _before(
    added: Tensor, since: Tensor, state: Tensor, backwards: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the state before each chunk, in the memory of ``added``, and the last one."""
    chunks = list(zip(added.unbind(-3), since[..., -1:, :].unbind(-3), strict=True))
    for add, keep in reversed(chunks) if backwards else chunks:
        following = torch.addcmul(add, keep, state)
        add.copy_(state)
        state = following
    return added, state


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add a @ b to ``total``, which is contiguous, in place."""
    total.flatten(0, -3).baddbmm_(a.flatten(0, -3), b.flatten(0, -3))


def _on_chunks(plain: Plain) -> Callable[..., tuple[Tensor, Tensor]]:
    def call(
        q: Tensor, k: Tensor, u: Tensor, log_decay: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        size = q.shape[-2]
        flat = (x.flatten(-3, -2) for x in (q, k, u, log_decay))
        sums, last = plain(*flat, state, size)
        return sums.unflatten(-2, (-1, size)), last

    return call
