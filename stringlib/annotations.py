"""The annotations by which :func:`~stringlib.spec.checked` checks arguments.

:mod:`stringlib.spec` describes the annotations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import torch
from torch import Tensor

from stringlib.inputs import require_log_decay
from stringlib.precision import require_exact

__all__ = ["PLAIN", "Array", "Count0", "Even", "NotNegative", "Numbers", "Positive", "Scale"]
__all__ += ["Share", "Whole", "at_least"]
# for a type checker, these names are imported
__all__ += ["Floats", "Indices", "LogDecays", "Positions", "Reals"]


class Numbers(NamedTuple):
    """The numbers that an annotation accepts.

    Attributes:
        words: Description of the accepted numbers, for errors.
        admits: Test whether a number is accepted.
    """

    words: str
    admits: Callable[[Any], bool]

    def __repr__(self) -> str:
        return repr(self.words)  # shown in signatures in the API reference


class Array(NamedTuple):
    """The tensors that an annotation accepts.

    Attributes:
        kind: Description of the accepted dtypes, for errors.
        floats: Whether floating-point dtypes are accepted.
        others: Test whether a dtype that is not floating-point is accepted.
        shape: The shape, one word for each dimension.
        values: Check of the values, which raises an error, or None.
    """

    kind: str
    floats: bool
    others: Callable[[torch.dtype], bool]
    shape: str
    values: Callable[[str, Tensor], None] | None

    def __repr__(self) -> str:
        return repr(self.shape)


def at_least(least: int) -> Any:
    """Return the annotation for an integer of at least ``least``."""
    return Annotated[int, Numbers(f"at least {least}", lambda x: x >= least)]


PLAIN = {
    int: at_least(1),
    float: Annotated[float, Numbers("finite", lambda x: -math.inf < x < math.inf)],
}

Count0 = Annotated[int, Numbers("at least 0", lambda x: x >= 0)]  # written out for mypy
Even = Annotated[
    int, Numbers("even and positive (channels rotate in pairs)", lambda x: x > 0 and x % 2 == 0)
]
Whole = Annotated[int, Numbers("an integer", lambda x: True)]
Positive = Annotated[float, Numbers("positive and finite", lambda x: 0 < x < math.inf)]
NotNegative = Annotated[float, Numbers("finite and at least 0", lambda x: 0 <= x < math.inf)]
Scale = Annotated[float, Numbers("finite and at least 1", lambda x: 1 <= x < math.inf)]
Share = Annotated[float, Numbers("between 0 and 1", lambda x: 0 <= x <= 1)]


if TYPE_CHECKING:  # for a type checker, ``Floats[Tensor, shape]`` is a ``Tensor``
    from typing import Annotated as Floats
    from typing import Annotated as Indices
    from typing import Annotated as LogDecays
    from typing import Annotated as Positions
    from typing import Annotated as Reals
else:

    class _Tensors:
        def __init__(self, kind, floats, others, values=None):
            self.dtypes, self.values = (kind, floats, others), values

        def __getitem__(self, item):
            return Annotated[item[0], Array(*self.dtypes, item[1], self.values)]

    _FLOATS = "a floating-point tensor", True, lambda dtype: False
    _INTEGERS = torch.int64, torch.int32, torch.int16, torch.int8
    _INTEGERS += torch.uint8, torch.uint16, torch.uint32, torch.uint64
    _REALS = "a tensor of real numbers", True, _INTEGERS.__contains__
    _WHOLE = "a tensor of integers, int64 or int32", False, (torch.int64, torch.int32).__contains__
    Floats, Reals, Indices = _Tensors(*_FLOATS), _Tensors(*_REALS), _Tensors(*_WHOLE)
    LogDecays, Positions = _Tensors(*_FLOATS, require_log_decay), _Tensors(*_REALS, require_exact)
