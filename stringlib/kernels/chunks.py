r"""The causal sums of :mod:`stringlib.kernels.recurrence` for all chunks of tokens at once.

The gradient is written by hand. There is one decay per token, or no decay.

There are two reasons for this code. First, autograd would allocate about forty tensors of the size
of the features for one gradient, and allocating memory takes longer than computing the sums.
Second, the threads share one product for all chunks, while the product for one chunk of few heads
is too small to be shared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from stringlib.precision import without_autocast

Plain = Callable[..., tuple[Tensor, Tensor]]

# Size of the chunks on a GPU, where a call costs more than its computation. So all chunks are
# computed at once. Chunks of 64 are faster than chunks of 32, and about as fast as chunks of 128.
# Times in milliseconds with gradients on an H100, m = d = 64. Without a decay, chunk by chunk : all
# at once: 16 heads, n = 512 3.9 : 2.0, n = 2048 17 : 2.9; 64 heads, n = 16384 88 : 8.9. With a
# decay, 64 heads, chunks of 32 : 64 : 128: one decay per token, n = 4096 8.5 : 5.5 : 4.8, n = 16384
# 27 : 15 : 16; one decay per feature, n = 4096 22 : 17 : 17, n = 16384 76 : 59 : 61.
GPU_CHUNK = 64


def chunks_by_hand(
    plain: Plain,
    mask: Tensor | None,
    q: Tensor,
    k: Tensor,
    u: Tensor,
    log_decay: Tensor | None,
    state: Tensor,
) -> tuple[Tensor, Tensor]:
    r"""Return the causal sums of tokens in chunks, and the last state, :eq:`eq-decay-chunk`.

    The sum of token t is :math:`S_t^\top q_t` with the state
    :math:`S_t = e^{a_t} S_{t-1} + k_t u_t^\top`. All tensors have the same leading dimensions.

    Args:
        plain: A function that computes the same sums with gradients by autograd, for tokens that
            are not cut into chunks. This function is used for second derivatives and for
            forward-mode derivatives.
        mask: The decay between any two tokens of a chunk, ``(..., chunks, size, size)``, or None
            for no decay.
        q: Features of the queries, ``(..., chunks, size, m)``.
        k: Features of the keys, ``(..., chunks, size, m)``.
        u: Vectors to be summed, ``(..., chunks, size, d_u)``.
        log_decay: Logarithm a of the decay of each token, ``(..., chunks, size, 1)``, or None for
            no decay.
        state: The state before the first token, ``(..., m, d_u)``.

    Returns:
        The sums, ``(..., chunks, size, d_u)``, and the state after the last token,
        ``(..., m, d_u)``.
    """
    sums, last, *_ = _Chunks.apply(plain, mask, q, k, u, log_decay, state)
    return sums, last


class _Chunks(torch.autograd.Function):
    """The function :func:`chunks_by_hand` with its gradient written by hand.

    This function also returns the scores and the states before the chunks, because the gradient
    needs them.
    """

    @staticmethod
    def forward(
        plain: Plain,
        mask: Tensor | None,
        q: Tensor,
        k: Tensor,
        u: Tensor,
        log_decay: Tensor | None,
        state: Tensor,
    ) -> tuple[Tensor, ...]:
        since, left = _decays(mask, log_decay)
        # an entry for a later key may be infinite, and times a decay of 0 it would be NaN
        scores = _times((q @ k.mT).tril_(), mask)
        before, last = _states(k if left is None else k * left, u, since, state)
        sums = _times(q @ before, since)
        _add_product(sums, scores, u)
        return sums, last, scores, before

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.plain, *tensors = inputs
        ctx.mark_non_differentiable(*output[2:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors, *output[2:])
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, g_last: Tensor | None, *_: None) -> tuple[Any, ...]:
        saved = ctx.saved_tensors
        with without_autocast(saved[1]):  # autocast may be on during backward
            return _gradients(ctx.plain, saved, g, g_last)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor | None, ...]:
        _, *inputs = ctx.saved_tensors
        call, *given = _on_chunks(ctx.plain, *inputs)
        moved = tuple(
            torch.zeros_like(x) if t is None else t
            for x, t in zip(inputs, tangents[2:], strict=True)
            if x is not None
        )
        # The forward-mode derivative is computed as the reverse-mode derivative of a reverse-mode
        # derivative, because torch cannot nest forward-mode derivatives.
        out, pull, *_ = torch.func.vjp(call, *given)
        push = torch.func.vjp(pull, tuple(torch.zeros_like(x) for x in out))[1]
        return *push(moved)[0], None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], plain: Plain, *tensors: Any) -> Any:
        batched = [
            x
            if x is None
            else x.expand(info.batch_size, *x.shape)
            if dim is None
            else x.movedim(dim, 0)
            for x, dim in zip(tensors, in_dims[1:], strict=True)
        ]
        return _Chunks.apply(plain, *batched), (0, 0, 0, 0)


def _gradients(
    plain: Plain, saved: tuple[Any, ...], g: Tensor | None, g_last: Tensor | None
) -> tuple[Any, ...]:
    """Return the gradients with respect to all arguments of :func:`chunks_by_hand`.

    The gradients with respect to ``plain`` and ``mask`` are None.

    Args:
        plain: Function that computes the sums with gradients by autograd, for second derivatives.
        saved: The tensors that ``_Chunks.setup_context`` saved.
        g: Gradient with respect to the sums; None means zero.
        g_last: Gradient with respect to the last state; None means zero.
    """
    mask, q, k, u, log_decay, state, scores, before = saved
    g = torch.zeros_like(u) if g is None else g
    g_last = torch.zeros_like(state) if g_last is None else g_last
    batched = any(map(torch._C._functorch.is_legacy_batchedtensor, (g, g_last)))
    if torch.is_grad_enabled() or batched:  # second derivatives, or vmap over gradients
        pull = torch.func.vjp(*_on_chunks(plain, q, k, u, log_decay, state))[1]
        grads = [*pull((g, g_last))]
        return None, None, *grads[:3], None if log_decay is None else grads[3], grads[-1]
    since, left = _decays(mask, log_decay)
    # through the states: a chunk reads the state before it, and adds to the state after it
    g_read = g if since is None else g * since
    g_q = g_read @ before.mT
    after, g_state = _states(q, g_read, since, g_last, backwards=True)
    g_k = _times(u @ after.mT, left)
    g_u = _times(k @ after, left)
    # within a chunk
    g_scores = (g @ u.mT).tril_()
    g_decay = None
    if since is not None:
        # The decay a_t multiplies every contribution that crosses t: pairs j < t ≤ i within the
        # chunk, reads of the old state by queries i ≥ t, writes of keys j < t to the new state, and
        # the old state itself. These terms are only added. The shorter formula q·g_q − k·g_k is a
        # difference, which would lose digits after a strong decay.
        g_kept = (after * before).sum((-2, -1)).unsqueeze(-1) * since[..., -1, :]
        ones = torch.ones(mask.shape[-2:], dtype=g.dtype, device=g.device)
        g_decay = (g_q * q).sum(-1) @ ones.tril() + (g_k * k).sum(-1) @ ones.triu(1) + g_kept
        # as a matrix product, because a sum along the last dimension is ten times slower on a GPU
        pairs = (g_scores * scores) @ ones.triu()
        g_decay[..., 1:] += pairs.tril_(-1).sum(-2)[..., :-1]
        g_decay = g_decay.unsqueeze(-1)
    g_scores = _times(g_scores, mask)
    _add_product(g_u, scores.mT, g)
    _add_product(g_q, g_scores, k)
    _add_product(g_k, g_scores.mT, q)
    return None, None, g_q, g_k, g_u, g_decay, g_state


def _decays(
    mask: Tensor | None, log_decay: Tensor | None
) -> tuple[Tensor, Tensor] | tuple[None, None]:
    """Return the decays from the start of a chunk to each token, and from each token to its end.

    Args:
        mask: The decay between any two tokens of a chunk, or None for no decay.
        log_decay: Logarithm of the decay of each token, or None for no decay.

    Returns:
        The two decays, ``(..., chunks, size, 1)``, or None and None without a decay.
    """
    if mask is None or log_decay is None:
        return None, None
    return log_decay.cumsum(-2).exp_(), mask[..., -1:, :].mT


def _times(x: Tensor, factor: Tensor | None) -> Tensor:
    """Return ``x``, multiplied in place by a factor unless the factor is None."""
    return x if factor is None else x.mul_(factor)


def _states(
    a: Tensor, b: Tensor, since: Tensor | None, state: Tensor, backwards: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the state before each chunk, and the state after the last chunk.

    Each chunk multiplies the state by the total decay of the chunk and adds aᵀb.

    Args:
        a: The factors a of the tokens of each chunk, ``(..., chunks, size, m)``.
        b: The factors b of the tokens of each chunk, ``(..., chunks, size, d_u)``.
        since: The decays from the start of a chunk to each token, or None for no decay.
        state: The state before the first chunk, ``(..., m, d_u)``. With ``backwards``, the state
            after the last chunk.
        backwards: If True, the chunks are processed in reverse order. Then the results are the
            state after each chunk, in the order of the tokens, and the state before the first
            chunk. Default: False.

    Returns:
        The states before the chunks, ``(..., chunks, m, d_u)``, and the state after the last chunk,
        ``(..., m, d_u)``.
    """
    batch_shape, chunks = a.shape[:-2], a.shape[-3]
    # aᵀb of a chunk is written to the memory of the state that the chunk leads to
    memory = a.new_empty(batch_shape.numel() + 1, a.shape[-1], b.shape[-1])
    early, late = memory[:-1], memory[1:]
    own, before = (early, late) if backwards else (late, early)
    torch.bmm(a.flatten(0, -3).mT, b.flatten(0, -3), out=own)
    last = own[::chunks] if backwards else own[chunks - 1 :: chunks]
    last = last.unflatten(0, batch_shape[:-1]).clone()
    before = before.unflatten(0, batch_shape)
    steps, order = [*before.unbind(-3)], range(chunks)
    if backwards:
        order = order[::-1]
    steps[order[0]].copy_(state)
    for here, following in zip(order, [*(steps[i] for i in order[1:]), last], strict=True):
        if since is None:
            following.add_(steps[here])
        else:
            following.addcmul_(since[..., here, -1:, :], steps[here])
    return before, last


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add ``a @ b`` in place to ``total``, which must be contiguous."""
    total.flatten(0, -3).baddbmm_(a.flatten(0, -3), b.flatten(0, -3))


def _on_chunks(plain: Plain, *given: Tensor | None) -> tuple[Any, ...]:
    """Return the function ``plain`` for tokens in chunks, followed by its arguments.

    Args:
        plain: Function that computes the sums and the last state of tokens without chunks.
        *given: Tensors of tokens in chunks, followed by the state. A tensor that is None is left
            out of the arguments.
    """
    tensors = [x for x in given if x is not None]

    def call(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        *tokens, state = tensors
        size = tokens[0].shape[-2]
        sums, last = plain(*(x.flatten(-3, -2) for x in tokens), state, size)
        return sums.unflatten(-2, (-1, size)), last

    return call, *tensors


def chunk_size(u: Tensor, size: int, mode: str | None) -> int:
    """Return the number of tokens per chunk.

    In the mode ``"parallel"`` this is the number n of all tokens. In other modes it is ``size`` on
    a CPU and ``GPU_CHUNK`` on another device, but at most n. In a compiled graph, which must work
    for any n, the number of tokens per chunk may exceed n.

    Args:
        u: Vectors to be summed, ``(..., n, d_u)``.
        size: Number of tokens per chunk on a CPU.
        mode: ``"parallel"``, ``"chunk"`` or None.
    """
    n = u.shape[-2]
    if mode == "parallel":
        return n
    size = size if u.device.type == "cpu" else GPU_CHUNK
    return size if torch.compiler.is_compiling() else min(size, n)


def in_chunks(size: int, *tensors: Tensor) -> list[Tensor]:
    """Return tensors of tokens cut into chunks, ``(..., chunks, size, channels)``.

    The last chunk is padded with zeros. A token of zeros has no effect on the state, because its
    key, its value and the logarithm of its decay are 0.

    Args:
        size: Number of tokens per chunk.
        *tensors: Tensors of the same number of tokens, ``(..., n, channels)``.
    """
    n = tensors[0].shape[-2]
    chunks = (n + size - 1) // size
    if torch.compiler.is_exporting():
        chunks += 2  # a program for 1 or 2 chunks would be specialised to this number
    missing = chunks * size - n
    if torch.compiler.is_compiling() or missing:
        tensors = tuple(pad(x, (0, 0, 0, missing)) for x in tensors)
    return [x.unflatten(-2, (chunks, size)) for x in tensors]
