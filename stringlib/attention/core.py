r"""The core of an attention layer: what each head computes between the projections.

A core takes queries, keys and values that are split into heads, and returns the outputs of the
heads. :class:`~stringlib.attention.softmax.SoftmaxAttention` is softmax attention.
:class:`~stringlib.attention.kernelised.LinearAttention` replaces the exponential of softmax by a
feature map. The two classes also apply the positions, and can be used without a layer::

    core = LinearAttention(FavorFeatures(64), RoPE(64), CosineWeight(512))
    out, state = core(q, k, v)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from stringlib.encoders.relative_bias import RelativeBias
from stringlib.encoders.rotary import Phases, RotaryEncoder
from stringlib.inputs import require_kind_of_state, require_same_tokens

if TYPE_CHECKING:
    from stringlib.attention.roll import Roll
    from stringlib.documents import Documents

PARTS = ("features", "weight", "encoder", "position_bias", "roll", "rotate")
"""Names of the attributes of a core that can be set on its layer; setting one updates ``kind``."""


class Given(NamedTuple):
    """The checked arguments of a core other than queries, keys and values.

    Attributes:
        at: Positions of the queries in the form that :meth:`AttentionCore.located` returns.
        key_at: Positions of the keys in the same form. None if the keys are at the positions of
            the queries.
        tokens: The tokens of the layer, or None.
        key_mask: False for padding, or None.
        state: The state that the core returned for the earlier tokens, or None.
        documents: The documents of packed sequences, or None.
    """

    at: Any
    key_at: Any
    tokens: Tensor | None
    key_mask: Tensor | None
    state: Any
    documents: Documents | None


class AttentionCore(nn.Module):
    """Base class of softmax and linear attention as the core of a layer.

    The base class finds the positions of the tokens and checks states. A subclass computes the
    outputs.

    Args:
        causal: If True, a token attends only to itself and to earlier tokens.
        grid: ``(rows, columns)`` of an image. The positions of the grid are then the default for an
            encoder with two coordinates. None for a sequence.

    Attributes:
        kind: Description of the parts, by which a core recognises its states.
        part_types: The accepted classes of each part, by the name of its attribute. A core uses a
            part according to the class of the part. Without a check of the class, an encoder inside
            a wrapper would be ignored without an error.
    """

    part_types: ClassVar[dict[str, tuple[type[Any], ...]]] = {
        "encoder": (RotaryEncoder, RelativeBias),
        "position_bias": (),
    }
    state_type: type[Any]
    encoder: RotaryEncoder | RelativeBias | None
    roll: Roll | None
    kind: str

    def __init__(self, causal: bool, grid: tuple[int, int] | None) -> None:
        super().__init__()
        self.causal, self.grid = causal, grid

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        positions: Tensor | Phases | None = None,
        *,
        tokens: Tensor | None = None,
        key_mask: Tensor | None = None,
        state: Any = None,
        document_ids: Tensor | Documents | None = None,
        return_state: bool = False,
        key_positions: Tensor | Phases | None = None,
    ) -> tuple[Tensor, Any]:
        """Return the outputs of the heads, and the state after the last token.

        Args:
            q: Queries, ``(..., heads, n, d)``.
            k: Keys, ``(..., kv_heads, keys, d)``, where ``kv_heads`` divides ``heads``. If causal,
                the number of keys is the number of queries.
            v: Values, ``(..., kv_heads, keys, d_v)``.
            positions: Positions of the tokens, ``(..., n, coord_dim)``, or the phases of the
                encoder at these positions. A roll takes integers. Default: 0, 1, 2, …, or the
                positions of the grid. With ``state`` the default positions continue from the number
                of tokens in the state. With ``document_ids`` they restart at 0 in each document.
            tokens: The tokens of the layer, ``(..., n, dim)``, from which a learned weight
                computes its decays. Default: ``q``.
            key_mask: False for padding, ``(..., keys)`` or ``(..., heads, keys)``. Default: None,
                no padding.
            state: The state that the core returned for the earlier tokens. Default: None, which
                means no earlier tokens.
            document_ids: Integers that increase from document to document, ``(..., n)``, or the
                :class:`~stringlib.documents.Documents` that are made from such integers. No token
                attends to another document. Only the first document of each row continues
                ``state``. Softmax, linear attention that is not causal and Toeplitz weights use an
                n × n mask. Default: None, one document.
            return_state: With ``document_ids``, whether to return a state. If True, the state is
                that of the last document alone, and the last document must have the same number of
                tokens in each row. If False (default), None is returned in place of the state.
                Without ``document_ids`` this argument has no effect.
            key_positions: Positions of the keys, or their phases, if the keys belong to other
                tokens than the queries (cross-attention). Must be None if causal or with
                ``document_ids``. Default: ``positions``.

        Returns:
            The outputs, ``(..., heads, n, d_v)``, and the state, which is a
            :class:`~stringlib.attention.cache.KeyValueCache` of softmax attention, a
            :class:`~stringlib.attention.states.LinearState` of linear attention, or None if
            the core has no state.

        Raises:
            TypeError: If ``state`` is not of the class that this core returns.
            ValueError: If a shape does not fit, if positions are missing, if ``state`` is given to
                a core without states, or if ``state`` comes from a core with other parts.
        """
        if state is not None:
            self.require_state(state)
        documents = None
        if document_ids is not None:
            from stringlib.documents import documents_of

            documents = documents_of(q, document_ids, 0 if state is None else state.length)
        at = self.located(q, positions, state, documents)
        key_at = None
        if key_positions is not None:
            if self.causal or documents is not None:
                raise ValueError(
                    "key_positions must be None in causal attention and with document_ids, got a "
                    f"{type(key_positions).__name__}. In these cases queries and keys belong to "
                    "the same tokens. Leave out key_positions."
                )
            key_at = self.located(k, key_positions, name="key_positions")
        elif at is not None and k.shape[-2] != q.shape[-2]:
            raise ValueError(
                "key_positions must be given if the numbers of queries and keys differ, got None "
                f"for {q.shape[-2]} queries and {k.shape[-2]} keys. Pass the positions of the keys."
            )
        given = Given(at, key_at, tokens, key_mask, state, documents)
        out, after = self._attend(q, k, v, given)
        if documents is not None and after is not None:
            after = self._shortened(after, documents.last_length()) if return_state else None
        return out, None if after is None else self._labelled(after, state)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, given: Given) -> tuple[Tensor, Any]:
        """Return the outputs of the heads and the state after the last token.

        Args:
            q: Queries, ``(..., heads, n, d)``.
            k: Keys, ``(..., kv_heads, keys, d)``.
            v: Values, ``(..., kv_heads, keys, d_v)``.
            given: The other arguments of the core, after its checks.
        """
        raise NotImplementedError

    @property
    def has_state(self) -> bool:
        """Whether the core returns a state, from which later tokens continue."""
        return self.causal

    def require_state(self, state: Any) -> None:
        """Raise an error if the core has no state, or if ``state`` belongs to another kind of core.

        None is accepted as ``state``.

        Raises:
            TypeError: If ``state`` is not of the class that this core returns.
            ValueError: If the core has no state, or if ``state`` comes from a core with other
                parts.
        """
        if not self.has_state:
            raise ValueError(self._why_no_state())
        if state is not None:
            if not isinstance(state, self.state_type):
                expected = self.state_type.__name__
                raise TypeError(
                    f"state must be a {expected}, got {type(state).__name__}. Pass the state that "
                    "the same layer returned."
                )
            require_kind_of_state(state.kind, self.kind)

    def _why_no_state(self) -> str:
        """Return the error for a state that a core without states receives or has to return."""
        return (
            "state and return_state need a layer with causal=True and without rotate='after', "
            f"got a layer with causal={self.causal} and rotate={self.rotate!r}. Create the "
            "layer with other arguments, or leave out state and return_state."
        )

    @property
    def unfit_for_context(self) -> str | None:
        """Kind of layer that refuses a context, such as "a causal layer". None if it accepts it."""
        return "a causal layer" if self.causal else self._unfit()

    def _unfit(self) -> str | None:
        """Return the kind of layer, apart from a causal one, that refuses a context, or None."""
        return None

    def _shortened(self, state: Any, length: int) -> Any:
        """Return the state after packed documents as that of the last document alone.

        Args:
            state: The state after all documents.
            length: Number of tokens of the last document.
        """
        return state._replace(length=length)

    def _labelled(self, after: Any, before: Any) -> Any:
        """Return the state ``after`` with the ``kind`` by which the core recognises its states.

        Args:
            after: The state after the tokens.
            before: The state before the tokens, or None.
        """
        return after if after.kind == self.kind else after._replace(kind=self.kind)

    def _description(self) -> str:
        """Return the value of ``kind`` for the parts that the core has now."""
        if isinstance(self.encoder, RotaryEncoder):
            return " with a rotary encoder"  # of any class: after folding, the keys are the same
        return "" if self.encoder is None else f" with {type(self.encoder).__name__}"

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute, and update ``kind`` if the attribute is a part.

        Raises:
            TypeError: If the attribute is a part and the value is not of a class for this part.
        """
        admitted = self.part_types.get(name)
        if admitted is not None and value is not None and not isinstance(value, admitted):
            classes = ", ".join(f"a {part.__name__}" for part in admitted)
            expected = f"{classes} or None" if classes else "None"
            raise TypeError(
                f"{name} must be {expected}, got {type(value).__name__}. A wrapper around a part "
                "would hide the methods that the layer calls. Wrap the layer or the block, "
                "or the core with a wrapper that passes on its attributes, as peft does."
            )
        super().__setattr__(name, value)
        if name in PARTS and "kind" in vars(self):
            self.kind = self._description()

    def located(
        self,
        q: Tensor,
        positions: Tensor | Phases | None,
        state: Any = None,
        documents: Documents | None = None,
        *,
        name: str = "positions",
    ) -> Any:
        """Return positions in the form that the encoder or the roll applies.

        Args:
            q: Vectors of the tokens, ``(..., heads, n, channels)``.
            positions: ``(..., n, coord_dim)``, phases of the encoder, or None for the default.
            state: The state of the earlier tokens, or None.
            documents: The documents of packed sequences, or None.
            name: Name of the positions in errors.

        Returns:
            Phases for a rotary encoder, positions for a roll, and None for a core that has neither
            a rotary encoder nor a roll.
        """
        encoder = self.encoder
        if not isinstance(encoder, RotaryEncoder):
            encoder = None
        if encoder is None and self.roll is None:
            return None
        if isinstance(positions, Phases):
            return positions
        if positions is None:
            coord_dim = 1 if encoder is None else encoder.coord_dim
            positions = self._default_positions(q, coord_dim, state, documents, name)
        elif encoder is not None:
            owner = "the queries" if name == "positions" else "the keys"
            require_same_tokens(owner, q, name, positions)
        return positions if encoder is None else encoder.phases(positions).to(q.dtype)

    def _default_positions(
        self, q: Tensor, coord_dim: int, state: Any, documents: Documents | None, name: str
    ) -> Tensor:
        """Return the default positions: 0, 1, 2, …, or for two coordinates those of the grid.

        With ``state`` the default positions continue from the number of tokens in the state. With
        ``documents`` they restart at 0 in each document.

        Raises:
            ValueError: If there is no default for the number of coordinates, or if the grid has
                another number of positions than there are tokens.
        """
        if coord_dim == 1 and documents is not None:
            return documents.positions[..., None]
        n, before = q.shape[-2], 0 if state is None else state.length
        if coord_dim == 1:
            # the values of int32 need no check, because float64 represents each of them
            return torch.arange(before, before + n, dtype=torch.int32, device=q.device)[:, None]
        if self.grid is None or coord_dim != 2 or documents is not None:
            raise ValueError(
                f"{name} must be given with shape (..., {n}, {coord_dim}) for an encoder with "
                f"coord_dim={coord_dim}, got None"
            )
        from stringlib.positions import grid_positions

        positions = grid_positions(*self.grid, device=q.device)
        own = positions[before : before + n] if self.causal else positions
        if n != len(own):
            raise ValueError(
                f"{name} must be given for {before + n} tokens, got None. The grid {self.grid} has "
                f"{len(positions)} positions. Pass {name}, or as many tokens as the grid has."
            )
        return own
