"""The state of causal linear attention, from which later tokens continue."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class LinearState(NamedTuple):
    """State of causal linear attention after some tokens, from which later tokens continue.

    The size of the state does not depend on the number of tokens.

    Attributes:
        sums: Sum over the tokens of features times values, with a 1 appended to the values,
            ``(..., heads, m, d_v + 1)``; float32 or float64. Under the delta rule, the matrix by
            which the rule maps keys to values.
        log_scale: Natural logarithm of the factor by which ``sums`` has been divided,
            ``(..., heads)``, or None for a factor 1.
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
