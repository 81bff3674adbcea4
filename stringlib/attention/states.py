"""The states of causal layers other than the cache of softmax, from which later tokens continue.

The state of a layer with a key shift, a short convolution or position steps has two parts: data
of the last tokens, for example the last key, and the state of the core.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from stringlib.attention.cache import KeyValueCache


class LinearState(NamedTuple):
    """State of causal linear attention after some tokens, from which later tokens continue.

    The size of the state does not depend on the number of tokens.

    Attributes:
        sums: Sum over the tokens of features times values, with a 1 appended to the values,
            ``(..., heads, m, d_v + 1)``; float32 or float64. Under the delta rule, the matrix by
            which the rule maps keys to values.
        log_scale: Natural logarithm of the factors by which ``sums`` has been divided,
            ``(..., heads, 1)``, or ``(..., heads, m)`` with one decay per feature. None for 1.
        length: Number of tokens so far.
        kind: Description of the layer or weight that made the state. A layer or weight with a
            different description raises an error. Default: empty, which is not checked.
        drawn: Some of the random numbers of the feature map, ``(..., heads, count)``. A layer with
            other random features raises an error on the CPU. Default: None, which is not checked.
    """

    sums: Tensor
    log_scale: Tensor | None
    length: int
    kind: str = ""
    drawn: Tensor | None = None

    def with_room(self, tokens: int) -> LinearState:
        """Return the state itself, because its size does not depend on the number of tokens."""
        return self


class ShiftedState(NamedTuple):
    """State of a causal layer with a key shift.

    Attributes:
        key: Key of the last token before it is mixed or encoded, ``(..., kv_heads, 1, head_dim)``.
        rest: The state of the core of the layer, for the mixed keys.
    """

    key: Tensor
    rest: LinearState | KeyValueCache

    @property
    def length(self) -> int:
        """Number of tokens so far."""
        return self.rest.length

    def with_room(self, tokens: int) -> ShiftedState:
        """Return the state with memory for ``tokens`` tokens, if ``rest`` is a cache."""
        return self._replace(rest=self.rest.with_room(tokens))


class ConvolvedState(NamedTuple):
    """State of a causal layer with a short convolution.

    Attributes:
        inputs: The last inputs of the convolution, ``(..., width - 1, channels)``.
        rest: The state of the core of the layer.
    """

    inputs: Tensor
    rest: LinearState

    @property
    def length(self) -> int:
        """Number of tokens so far."""
        return self.rest.length

    def with_room(self, tokens: int) -> ConvolvedState:
        """Return the state itself, because its size does not depend on the number of tokens."""
        return self


class PathState(NamedTuple):
    """State of a causal layer with data-dependent positions.

    Attributes:
        position: Position of the last token, ``(..., 1, coord_dim)``.
        rest: The state of the rest of the layer.
    """

    position: Tensor
    rest: Any

    @property
    def length(self) -> int:
        """Number of tokens so far."""
        length: int = self.rest.length
        return length

    def with_room(self, tokens: int) -> PathState:
        """Return the state with memory for ``tokens`` tokens, if ``rest`` has a cache."""
        return self._replace(rest=self.rest.with_room(tokens))


State = LinearState | KeyValueCache | ShiftedState | ConvolvedState | PathState
"""The states of attention layers, from which later tokens continue."""


def opened(state: Any, expected: type[Any]) -> Any:
    """Return the two parts of a state that contains the state of the core as its second part.

    Args:
        state: The state that was given to a layer.
        expected: The class of the states of this layer.

    Raises:
        TypeError: If the state is not of this class.
    """
    if not isinstance(state, expected):
        raise TypeError(
            f"state must be a {expected.__name__}, got {type(state).__name__}. Pass the state "
            "that the same layer returned."
        )
    return state
