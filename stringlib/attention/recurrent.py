r"""Linear attention with a short convolution before it, and a norm and a gate after it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from stringlib.attention.convolution import ShortConvolution
from stringlib.attention.features import IdentityFeatures
from stringlib.attention.gated_norm import GatedNorm
from stringlib.attention.kernelised import LinearAttention
from stringlib.attention.layer import AttentionLayer, require_tokens
from stringlib.attention.path import make_steps
from stringlib.attention.states import ConvolvedState, LinearState, PathState, opened
from stringlib.attention.weights import PositionWeight
from stringlib.documents import documents_of
from stringlib.encoders.rotary import Phases, RotaryEncoder
from stringlib.inputs import require_split
from stringlib.precision import at_least_float32
from stringlib.spec import Floats, Indices, Reals, checked


class RecurrentAttention(AttentionLayer):
    r"""Causal linear attention with a short convolution before it, and a norm and a gate after it.

    Queries, keys and values are projections of the tokens, mixed with the tokens just before by a
    :class:`~stringlib.attention.convolution.ShortConvolution` if the layer has one. The core is a
    :class:`~stringlib.attention.kernelised.LinearAttention` with the position weight of the layer.
    The core has no feature map, and its outputs are not divided by a sum of weights. They are
    normalised and gated by a :class:`~stringlib.attention.gated_norm.GatedNorm`, and projected
    back.

    The layers of :data:`~stringlib.attention.published.LAYERS` are instances of this class. Input
    and output have the shape ``(..., seq, dim)``.

    Args:
        dim: Number of channels of a token.
        heads: Number of heads.
        weight: The position weight, or the module that computes it from the tokens, for ``heads``
            heads with ``key_dim // key_heads`` features.
        norm: The norm and the gate, for ``heads`` heads of ``value_dim // heads`` channels.
        encoder: A rotary encoder for queries and keys, with 1 or ``heads`` heads. Default: None.
        key_dim: Number of channels of all queries together, and of all keys. Default: ``dim``.
        value_dim: Number of channels of all values together; must be a multiple of ``heads``.
            Default: ``dim``.
        key_heads: Number of heads of queries and keys; must divide ``heads`` and ``key_dim``. Each
            serves ``heads // key_heads`` consecutive heads. Default: ``heads``.
        convolution: The convolution of queries, keys and values side by side, for
            ``2 * key_dim + value_dim`` channels. Default: None.
        scale: Number by which the outputs of the core are multiplied. Default: 1.
        skip: If True, values times one learned number per head are added to the outputs of the
            core. Default: False.
        position_steps: Makes the positions of the encoder depend on the tokens, as the argument of
            :class:`~stringlib.attention.multihead.MultiHeadAttention` with the same name. Default:
            None.

    Attributes:
        to_q: The projection :math:`W_q`, an ``nn.Linear`` without a bias. The other projections are
            ``to_k``, ``to_v`` and ``to_out``.
        core: The :class:`~stringlib.attention.kernelised.LinearAttention`.
        convolution: The convolution, or None.
        norm: The norm and the gate.
        skip: The learned numbers, ``(heads,)``, 1 at the start, or None.
        position_steps: The module that computes the steps of the positions, or None.
    """

    core: LinearAttention
    causal = True

    @checked
    def __init__(
        self,
        dim: int,
        heads: int,
        weight: PositionWeight,
        norm: GatedNorm,
        *,
        encoder: RotaryEncoder | None = None,
        key_dim: int | None = None,
        value_dim: int | None = None,
        key_heads: int | None = None,
        convolution: ShortConvolution | None = None,
        scale: float = 1.0,
        skip: bool = False,
        position_steps: nn.Module | str | None = None,
    ) -> None:
        super().__init__()
        self.dim, self.heads = int(dim), int(heads)
        self.key_heads = int(key_heads or heads)
        self.key_dim, self.value_dim = int(key_dim or dim), int(value_dim or dim)
        if self.heads % self.key_heads:
            raise ValueError(f"key_heads must divide heads = {heads}, got {key_heads}")
        require_split(self.key_dim, self.key_heads, name="key_dim", by="key_heads")
        require_split(self.value_dim, self.heads, name="value_dim")
        if (norm.heads, norm.head_dim) != (self.heads, self.value_dim // self.heads):
            raise ValueError(
                f"norm must be for {self.heads} heads of {self.value_dim // self.heads} channels, "
                f"got {norm.heads} heads of {norm.head_dim} channels"
            )
        channels = 2 * self.key_dim + self.value_dim
        if convolution is not None and convolution.channels != channels:
            raise ValueError(
                f"convolution must have {channels} channels, those of queries, keys and values "
                f"together, got {convolution.channels}"
            )
        self.to_q, self.to_k, self.to_v = (
            nn.Linear(self.dim, rows, bias=False)
            for rows in (self.key_dim, self.key_dim, self.value_dim)
        )
        self.to_out = nn.Linear(self.value_dim, self.dim, bias=False)
        self.core = LinearAttention(IdentityFeatures(), encoder, weight, causal=True)
        self.convolution, self.norm, self.scale = convolution, norm, float(scale)
        self.skip = nn.Parameter(torch.ones(self.heads)) if skip else None
        self.position_steps = make_steps(position_steps, self)

    @checked
    def forward(
        self,
        x: Floats[Tensor, "... n self.dim"],
        positions: Reals[Tensor, "...p seq coord_dim"] | Phases | None = None,
        *,
        key_mask: Tensor | None = None,
        document_ids: Indices[Tensor, "...? n"] | None = None,
        state: LinearState | ConvolvedState | PathState | None = None,
        return_state: bool = False,
    ) -> Tensor | tuple[Tensor, LinearState | ConvolvedState | PathState]:
        """Return the output of the layer, which a model adds to the tokens.

        Args:
            x: Tokens, ``(..., seq, dim)``, after the norm of a pre-norm model.
            positions: Positions of the tokens for the encoder, ``(..., seq, coord_dim)``, or its
                phases. A layer without an encoder, or with ``position_steps``, does not use them.
                Default: 0, 1, 2, … With ``state`` the default positions continue from the number of
                tokens in the state.
            key_mask: False for padding, which changes neither the state nor the convolution of
                later tokens, ``(..., seq)``. Default: None, no padding.
            document_ids: For packed sequences, the document of each token, ``(..., seq)``:
                integers that increase from document to document. Each document has the same output
                as alone. Default: None, one document per row.
            state: The state that the layer returned for the earlier tokens. Default: None, no
                earlier tokens.
            return_state: If True, the state after the last token is also returned. With
                ``document_ids`` this is the state of the last document alone. Default: False.

        Returns:
            The output, ``(..., seq, dim)``, in the dtype of ``x``. With ``return_state`` a pair of
            the output and the state, which is a
            :class:`~stringlib.attention.states.ConvolvedState` if the layer has a convolution,
            and otherwise a :class:`~stringlib.attention.states.LinearState`. With
            ``position_steps`` it is a :class:`~stringlib.attention.states.PathState`, which
            contains one of the two.

        Raises:
            TypeError: If ``state`` is not of the class that this layer returns, or if the dtype of
                the tokens is not that of the weights.
            ValueError: If a shape does not fit, or if ``state`` comes from another kind of layer.
        """
        require_tokens(self, x, positions)
        documents = None
        if document_ids is not None:
            earlier = getattr(state, "length", 0)
            documents = documents_of(x.unsqueeze(-3), document_ids, earlier)
        at = None
        if self.position_steps is not None:
            # given positions are not used; a wrapper around a block may hide that none are needed
            positions, at, state = self._stepped(x, key_mask, state, documents)
        before = last = None
        if self.convolution is not None and state is not None:
            before, state = opened(state, ConvolvedState)
            self.core.require_state(state)
        # in float32, because the sums are not divided: before the norm they overflow in float16
        q, k, v = (
            y.to(at_least_float32(y.dtype)) for y in (self.to_q(x), self.to_k(x), self.to_v(x))
        )
        if self.convolution is not None:
            # by name, because hooks such as those of Opacus expect tensors as positional arguments
            joined, last = self.convolution(
                torch.cat([q, k, v], -1), before=before, key_mask=key_mask, document_ids=documents
            )
            q, k, v = joined.split([self.key_dim, self.key_dim, self.value_dim], -1)
        q, k = (_heads(y, self.key_heads) for y in (q, k))
        v = _heads(v, self.heads)
        shared = self.heads // self.key_heads
        if shared > 1:
            q, k = (y.repeat_interleave(shared, -3) for y in (q, k))
        out, after = self.core(
            q,
            k,
            v,
            positions,
            tokens=x,
            key_mask=key_mask,
            state=state,
            document_ids=documents,
            return_state=return_state,
        )
        out = out * self.scale
        if self.skip is not None:
            out = out + self.skip.to(v.dtype)[:, None, None] * v
        out = self.to_out(self.norm(out, x))
        if not return_state:
            return out
        after = after if last is None else ConvolvedState(last, after)
        return out, after if at is None else PathState(at, after)

    def extra_repr(self) -> str:
        """Return the arguments that ``repr`` shows."""
        keys = "" if self.key_heads == self.heads else f", key_heads={self.key_heads}"
        return (
            f"dim={self.dim}, heads={self.heads}{keys}, key_dim={self.key_dim}, "
            f"value_dim={self.value_dim}"
        )


def _heads(x: Tensor, heads: int) -> Tensor:
    """Split ``(..., seq, heads * channels)`` into heads, ``(..., heads, seq, channels)``."""
    return torch.unflatten(x, -1, (heads, -1)).transpose(-3, -2)
